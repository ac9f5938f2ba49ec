/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One process's segment, read from outside. The owner writes while we read and is not to be
 * believed: strings are cut and cleaned, indexes checked, an MR is taken only when its key was the
 * same before and after. Untouched parts of the key table are skipped by the file's holes: to read
 * a hole through the mapping would fill it.
 */
#include "cli/cli.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "util/seg.h"

const char *const counter_name[FL_CNT_NUM] = {
#define X(name, gauge, help) [FL_CNT_##name] = #name,
	FAULTLINE_COUNTERS(X)
#undef X
};

const char *const counter_help[FL_CNT_NUM] = {
#define X(name, gauge, help) [FL_CNT_##name] = help,
	FAULTLINE_COUNTERS(X)
#undef X
};

const char *const histogram_name[FL_HIST_NUM] = {
#define X(name, help) [FL_HIST_##name] = #name,
	FAULTLINE_HISTOGRAMS(X)
#undef X
};

const char *const histogram_help[FL_HIST_NUM] = {
#define X(name, help) [FL_HIST_##name] = help,
	FAULTLINE_HISTOGRAMS(X)
#undef X
};

int process_receive(int sock)
{
	union {
		struct cmsghdr hdr;
		char buf[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	struct cmsghdr *cmsg;
	int fd;

	if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) < 1)
		return -1;
	cmsg = CMSG_FIRSTHDR(&msg);
	if (!cmsg || cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS ||
	    cmsg->cmsg_len != CMSG_LEN(sizeof(int)))
		return -1;
	memcpy(&fd, CMSG_DATA(cmsg), sizeof(fd));
	return fd;
}

int process_open(struct process *p, int segment_fd, pid_t pid)
{
	int err = seg_map_peer(segment_fd, &p->s);

	if (err) {
		close(segment_fd);
		return err;
	}
	p->fd = segment_fd;
	p->pid = pid ? pid : (pid_t)p->s->pid;
	p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	if (p->pidfd < 0)
		p->pidfd = -1;
	return 0;
}

void process_close(struct process *p)
{
	seg_unmap_peer(p->s);
	close(p->fd);
	if (p->pidfd >= 0)
		close(p->pidfd);
}

bool process_alive(const struct process *p)
{
	struct pollfd pfd = {.fd = p->pidfd, .events = POLLIN};

	return p->pidfd >= 0 && poll(&pfd, 1, 0) == 0;
}

void printable(char *dst, size_t size, const char *src, size_t max)
{
	size_t i;

	for (i = 0; i < max && i + 1 < size && src[i]; i++)
		dst[i] = isprint((unsigned char)src[i]) ? src[i] : '?';
	dst[i] = '\0';
}

const struct faultline_device *process_device(const struct process *p, unsigned i,
					      struct device_text *text)
{
	static const uint8_t v4mapped[12] = {[10] = 0xff, [11] = 0xff};
	const struct faultline_device *d;

	if (i >= FAULTLINE_MAX_DEVICES)
		return NULL;
	d = &p->s->device[i];
	if (!d->name[0])
		return NULL;
	printable(text->name, sizeof(text->name), d->name, sizeof(d->name));
	printable(text->profile, sizeof(text->profile), d->profile, sizeof(d->profile));
	printable(text->netdev, sizeof(text->netdev), d->netdev, sizeof(d->netdev));
	if (memcmp(d->gid, v4mapped, sizeof(v4mapped)) == 0)
		inet_ntop(AF_INET, d->gid + 12, text->gid, sizeof(text->gid));
	else
		inet_ntop(AF_INET6, d->gid, text->gid, sizeof(text->gid));
	return d;
}

/* false: free, or it changed while it was copied */
static bool copy_mr(const struct faultline_mr *from, struct faultline_mr *to)
{
	uint32_t key = __atomic_load_n(&from->key, __ATOMIC_ACQUIRE);

	if (!key)
		return false;
	memcpy(to, from, sizeof(*to));
	__atomic_thread_fence(
		__ATOMIC_ACQUIRE); /* the owner clears the key before it reuses the rest */
	to->key = key;
	return __atomic_load_n(&from->key, __ATOMIC_RELAXED) == key;
}

void process_each_mr(const struct process *p, void (*fn)(const struct faultline_mr *mr, void *arg),
		     void *arg)
{
	uint64_t entries, i = 0;
	const struct faultline_mr *mr = seg_peer_mrs(p->s, &entries);
	off_t base = (off_t)((const char *)mr - (const char *)p->s);

	while (i < entries) {
		off_t data = lseek(p->fd, base + (off_t)(i * sizeof(*mr)), SEEK_DATA);
		off_t hole = data < 0 ? -1 : lseek(p->fd, data, SEEK_HOLE);
		uint64_t end;

		if (hole < 0)
			return; /* ENXIO: nothing but a hole from here on */
		if (data > base && (uint64_t)(data - base) / sizeof(*mr) > i)
			i = (uint64_t)(data - base) / sizeof(*mr);
		end = hole > base ? ((uint64_t)(hole - base) + sizeof(*mr) - 1) / sizeof(*mr) : 0;
		for (; i < entries && i < end; i++) {
			struct faultline_mr copy;

			if (copy_mr(&mr[i], &copy))
				fn(&copy, arg);
		}
	}
}

const char *mr_kind_name(uint32_t kind)
{
	switch (kind) {
	case FAULTLINE_MR_PINNED:
		return "pinned";
	case FAULTLINE_MR_IMPLICIT:
		return "implicit";
	case FAULTLINE_MR_ODP:
		return "on-demand";
	case FAULTLINE_MR_DMABUF:
		return "dma-buf";
	}
	return "unknown";
}

uint64_t histogram_total(const uint64_t bucket[FAULTLINE_BUCKETS])
{
	uint64_t n = 0;

	for (unsigned b = 0; b < FAULTLINE_BUCKETS; b++)
		n += __atomic_load_n(&bucket[b], __ATOMIC_RELAXED);
	return n;
}

uint64_t histogram_below(const uint64_t bucket[FAULTLINE_BUCKETS], double part)
{
	double want = (double)histogram_total(bucket) * part, n = 0;
	unsigned b;

	for (b = 0; b < FAULTLINE_BUCKETS - 1; b++) {
		n += (double)__atomic_load_n(&bucket[b], __ATOMIC_RELAXED);
		if (n >= want)
			break;
	}
	return 1ull << b;
}

const char *human_us(uint64_t us, char buf[32])
{
	if (us < 1024)
		snprintf(buf, 32, "%llu us", (unsigned long long)us);
	else if (us < 1024 * 1024)
		snprintf(buf, 32, "%llu ms", (unsigned long long)(us + 512) / 1024);
	else
		snprintf(buf, 32, "%llu s", (unsigned long long)(us + 524288) / 1048576);
	return buf;
}

const char *human_bytes(uint64_t n, char buf[32])
{
	static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double v = (double)n / 1024;
	unsigned u = 0;

	if (n < 10240) {
		snprintf(buf, 32, "%llu byte%s", (unsigned long long)n, n == 1 ? "" : "s");
		return buf;
	}
	for (; v >= 1024 && u < 5; u++)
		v /= 1024;
	snprintf(buf, 32, "%.*f %s", v < 10 ? 1 : 0, v, unit[u]);
	return buf;
}
