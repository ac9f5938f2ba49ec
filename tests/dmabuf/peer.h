/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A second process for the tests of buffers between processes: this program, executed again, which does what it is told
 * over a socket. It imports what it is sent (importer.h), or exports.
 */
#ifndef FL_TESTS_DMABUF_PEER_H
#define FL_TESTS_DMABUF_PEER_H

#include "importer.h"

#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum peer_op {
	PEER_GET,     /* slot, kind, and the descriptor; arg: without peer to peer */
	PEER_MAP,     /* slot */
	PEER_WRITE,   /* slot, offset, length, seed */
	PEER_DIFFERS, /* the same: 1, it does; 0, it does not */
	PEER_RELEASE, /* slot */
	PEER_TOLD,    /* slot -> how often */
	PEER_REVOKED, /* slot */
	PEER_TOTALS,  /* -> all that is there now, and rules that were broken */
	PEER_BEGIN,   /* slot: a copy by a thread of its own, which is within it when this returns */
	PEER_END,     /* slot: the end of the copy -> what has become of it */
	PEER_EXPORT,  /* kind, length -> a descriptor */
	PEER_FILL_TABLE, /* of descriptors, to the last */
	PEER_FORK,    /* a child that stays -> its pid */
	PEER_EXEC,    /* another program, that sleeps */
	PEER_COUNT,   /* slot, offset, arg: counts up a word so many times, one access each; a wrong one: -EIO */
};

struct peer_cmd {
	enum peer_op op;
	int slot, kind, arg;
	uint64_t offset, length, seed;
};

struct peer {
	pid_t pid;
	int sock;
};

/* ---- descriptors over sockets ---- */

/* both are false where the other end is gone */
static inline bool send_with_fd(int sock, const void *msg, size_t len, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)msg, .iov_len = len};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		struct cmsghdr *c;

		m.msg_control = control;
		m.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	return sendmsg(sock, &m, MSG_NOSIGNAL) == (ssize_t)len;
}

static inline bool receive_with_fd(int sock, void *msg, size_t len, int *fd)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {.iov_base = msg, .iov_len = len};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};

	if (recvmsg(sock, &m, MSG_CMSG_CLOEXEC) != (ssize_t)len)
		return false;
	*fd = -1;
	if (CMSG_FIRSTHDR(&m))
		memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	return true;
}

/* ---- the peer ---- */

static inline uint8_t peer_byte(uint64_t at, uint64_t seed)
{
	return (uint8_t)((at * 2654435761u ^ at >> 9) + seed * 97);
}

static inline void peer_fill(uint8_t *buf, const struct peer_cmd *c)
{
	for (uint64_t i = 0; i < c->length; i++)
		buf[i] = peer_byte(c->offset + i, c->seed);
}

static inline int peer_access(struct importer *im, const struct peer_cmd *c)
{
	uint8_t *want = malloc(c->length), *buf = malloc(c->length);
	int ret;

	peer_fill(want, c);
	if (c->op == PEER_WRITE)
		ret = importer_dma(im, c->offset, want, c->length, true);
	else
		ret = importer_dma(im, c->offset, buf, c->length, false) ?: !!memcmp(want, buf, c->length);
	free(want);
	free(buf);
	return ret;
}

static inline int peer_count(struct importer *im, const struct peer_cmd *c)
{
	uint64_t w, want;
	int err = importer_dma(im, c->offset, &want, 8, false);

	for (int i = 0; i < c->arg && !err; i++) {
		err = importer_dma(im, c->offset, &w, 8, false);
		if (!err && w != want)
			err = -EIO;
		want++;
		if (!err)
			err = importer_dma(im, c->offset, &want, 8, true);
	}
	return err;
}

/* as a device: within a copy, which nobody takes the mapping away from, until it is let go */
static inline void *copy_thread(void *arg)
{
	struct importer *im = arg;
	uint64_t n = 1;

	pthread_mutex_lock(&im->lock);
	importer_walk(im, 64, (char *)&n, 8, true);
	sem_post(&im->within);
	while (sem_wait(&im->go_on))
		;
	importer_walk(im, 72, (char *)&n, 8, true);
	im->late = importer_too_late(im);
	pthread_mutex_unlock(&im->lock);
	return NULL;
}

static inline int peer_export(const struct peer_cmd *c, int *fd)
{
	static struct faultline_dmabuf_device *dev;

	return exporter_open(&(struct faultline_dmabuf_device_attr){.kind = c->kind}, &dev) ?:
		       exporter_alloc(dev, c->length, 0, fd);
}

static inline int peer_do(struct importer *im, const struct peer_cmd *c, int *fd)
{
	static const struct dma_buf_attach_ops no_peer[] = {
		[DYNAMIC] = {.invalidate_mappings = importer_invalidate},
		[PINNED] = {0},
		[REVOCABLE] = {.invalidate_mappings = importer_invalidate},
	};
	struct faultline_dmabuf_totals t;
	struct rlimit few = {64, 64};
	int ret = 0;

	switch (c->op) {
	case PEER_GET:
		ret = importer_get_ops(im, *fd, c->kind, c->arg ? &no_peer[c->kind] : NULL);
		close(*fd);
		*fd = -1;
		return ret;
	case PEER_MAP:
		return importer_map(im);
	case PEER_WRITE:
	case PEER_DIFFERS:
		return peer_access(im, c);
	case PEER_RELEASE:
		importer_release(im);
		return 0;
	case PEER_TOLD:
	case PEER_REVOKED:
		dma_resv_lock(im->dmabuf->resv, NULL);
		ret = c->op == PEER_TOLD ? (int)im->told : im->revoked;
		dma_resv_unlock(im->dmabuf->resv);
		return ret;
	case PEER_TOTALS:
		exporter_totals(&t);
		return (int)(t.buffers + t.attachments + t.maps + t.pins + t.rule_breaks);
	case PEER_BEGIN:
		sem_init(&im->within, 0, 0);
		sem_init(&im->go_on, 0, 0);
		ret = importer_map(im) ?: -pthread_create(&im->copying, NULL, copy_thread, im);
		while (!ret && sem_wait(&im->within))
			;
		return ret;
	case PEER_END:
		sem_post(&im->go_on);
		pthread_join(im->copying, NULL);
		return im->late;
	case PEER_EXPORT:
		return peer_export(c, fd);
	case PEER_FILL_TABLE:
		setrlimit(RLIMIT_NOFILE, &few);
		while (dup(0) >= 0)
			;
		return errno == EMFILE ? 0 : -errno;
	case PEER_FORK:
		ret = fork();
		if (!ret) {
			pause();
			_exit(0);
		}
		return ret;
	case PEER_EXEC:
		execlp("sleep", "sleep", "100", NULL);
		return -errno;
	case PEER_COUNT:
		return peer_count(im, c);
	}
	return -EINVAL;
}

#define PEER_SOCK 3

/* Call first in main(). */
static inline void peer_main(int argc, char **argv)
{
	static struct importer im[8];
	struct peer_cmd c;
	int fd, ret;

	if (argc != 2 || strcmp(argv[1], "--peer"))
		return;
	alarm(100);
	fcntl(PEER_SOCK, F_SETFD, FD_CLOEXEC);
	while (receive_with_fd(PEER_SOCK, &c, sizeof(c), &fd)) {
		ret = peer_do(&im[c.slot], &c, &fd);
		send_with_fd(PEER_SOCK, &ret, sizeof(ret), c.op == PEER_EXPORT ? fd : -1);
		if (c.op == PEER_EXPORT)
			close(fd);
	}
	_exit(0);
}

/* ---- the test's side ---- */

static inline struct peer peer_start(void)
{
	struct peer p;
	int sock[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
	p.pid = fork();
	assert_true(p.pid >= 0);
	if (!p.pid) {
		if (sock[1] == PEER_SOCK)
			fcntl(PEER_SOCK, F_SETFD, 0);
		else
			dup2(sock[1], PEER_SOCK);
		execl("/proc/self/exe", "peer", "--peer", NULL);
		_exit(127);
	}
	close(sock[1]);
	p.sock = sock[0];
	return p;
}

/* fd: goes along, and what comes back */
static inline int peer_ask_fd(struct peer *p, struct peer_cmd c, int *fd)
{
	int ret;

	if (!send_with_fd(p->sock, &c, sizeof(c), *fd) || !receive_with_fd(p->sock, &ret, sizeof(ret), fd))
		return -EPIPE;
	return ret;
}

#define peer_ask(p, ...)                                                                           \
	({                                                                                         \
		int none_ = -1;                                                                    \
		peer_ask_fd(p, (struct peer_cmd){__VA_ARGS__}, &none_);                            \
	})

static inline int peer_get(struct peer *p, int slot, int fd, enum importer_kind kind)
{
	return peer_ask_fd(p, (struct peer_cmd){.op = PEER_GET, .slot = slot, .kind = kind}, &fd);
}

/* none of its threads runs when this returns */
static inline void peer_pause(struct peer *p)
{
	int status;

	kill(p->pid, SIGSTOP);
	assert_int_equal(waitpid(p->pid, &status, WUNTRACED), p->pid);
	assert_true(WIFSTOPPED(status));
}

static inline void peer_reap(struct peer *p)
{
	int status;

	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	close(p->sock);
}

static inline void peer_kill(struct peer *p)
{
	kill(p->pid, SIGKILL);
	peer_reap(p);
}

/* nothing may be left there */
static inline void peer_stop(struct peer *p)
{
	int status;

	assert_int_equal(peer_ask(p, .op = PEER_TOTALS), 0);
	close(p->sock);
	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	assert_int_equal(status, 0);
}

/* what another process's end brings about is to be seen soon, not at once */
#define EVENTUALLY(cond)                                                                           \
	do {                                                                                       \
		bool so_ = false; /* some are to be done once */                                   \
                                                                                                   \
		for (int n_ = 0; !so_ && n_ < 20000; n_++) {                                       \
			so_ = (cond);                                                              \
			if (!so_)                                                                  \
				usleep(1000);                                                      \
		}                                                                                  \
		if (!so_)                                                                          \
			fail_msg("never: %s", #cond);                                              \
	} while (0)

#endif
