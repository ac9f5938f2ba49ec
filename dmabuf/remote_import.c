/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The importing process's end of what remote.h describes: a dma_buf whose exporter is another process. Its
 * functions are calls to that; its memory is what that process sends a descriptor of, mapped here for each mapping.
 *
 * The connection is read, and all of struct remote used, under the reservation. Whoever calls reads until his answer has
 * come; a thread of the connection's own reads what comes otherwise. Nothing that comes is believed before it is checked.
 */
#include "dmabuf/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dmabuf/internal.h"
#include "mm/mm.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/provoke.h"
#include "util/usock.h"

#define SAY_MS 1000 /* how long an answer may take before something is said */

struct remote {
	struct dma_buf *dmabuf;
	int fd; /* our own of the descriptor: it keeps the buffer, as any importer does */
	int sock;
	int spare; /* room for the descriptor of a place, when the program has none left */
	pid_t pid; /* for messages */
	pthread_t thread;
	struct dma_remote_page *page;
	size_t page_size;
	uint32_t seq;
	uint64_t last_id;
	bool ended;   /* the other process, or what we have with it */
	bool closing; /* the thread is to end */
	bool silent;  /* the last call was not answered in time */
};

struct remote_map {
	uint64_t id;
	void *addr;
};

static int calls_take_ms(void)
{
	return 6 * dma_remote_patience_ms; /* remote.h says why */
}

static long now_ms(void)
{
	return (long)(now_ns() / 1000000);
}

/* ---- what comes ---- */

/*
 * There will be nothing more. Where the other process has ended, what is mapped stays. Where it has lost patience with
 * us, or talks nonsense, all that can be told are told, and the mark makes the rest fail.
 */
static void end(struct remote *r)
{
	struct dma_buf_attachment *a;

	if (r->ended)
		return;
	r->ended = true;
	if (!r->page || !__atomic_load_n(&r->page->revoked, __ATOMIC_SEQ_CST)) {
		fl_info("process %d, whose dma-buf is registered here, has ended: the memory stays where it is", (int)r->pid);
		return;
	}
	fl_warn("process %d has taken back its dma-buf: every access to it is an error from now on", (int)r->pid);
	if (r->dmabuf)
		cds_list_for_each_entry(a, &r->dmabuf->attachments, node)
			if (dma_buf_attach_revocable(a) && (a->maps || a->pins))
				dma_buf_invalidate_attachment(a);
}

static void nonsense(struct remote *r)
{
	fl_warn("process %d says what is no message about its dma-buf (another version of Faultline?)", (int)r->pid);
	if (r->page)
		__atomic_store_n(&r->page->revoked, 1, __ATOMIC_SEQ_CST);
	end(r);
}

static int post(struct remote *r, struct dma_remote_msg msg, int fd)
{
	long until = now_ms() + calls_take_ms();
	int err = -EAGAIN;

	while (!r->ended && err == -EAGAIN && now_ms() < until) {
		struct pollfd p = {.fd = r->sock, .events = POLLOUT};

		err = usock_send(r->sock, &msg, sizeof(msg), &fd, fd >= 0);
		if (err == -EAGAIN) /* its thread does nothing but read: it is stopped */
			poll(&p, 1, 100);
	}
	return err == -EAGAIN ? -ETIMEDOUT : err;
}

/* The attachment's, which lets go of what it has mapped, and this side has ended what is under way when it says so. */
static void told(struct remote *r, const struct dma_remote_msg *msg)
{
	struct dma_buf_attachment *a;

	provoke_race(PROVOKE_DMA_TOLD);
	if (r->dmabuf) {
		cds_list_for_each_entry(a, &r->dmabuf->attachments, node)
			if ((uint64_t)(uintptr_t)a->priv == msg->id && dma_buf_attach_revocable(a)) {
				dma_buf_invalidate_attachment(a);
				break;
			}
		dma_resv_wait_timeout(r->dmabuf->resv, DMA_RESV_USAGE_BOOKKEEP, DMA_FENCE_FOREVER);
	}
	post(r, (struct dma_remote_msg){.type = DMA_REMOTE_ACK, .seq = msg->seq}, -1);
}

/* An answer that nobody waits for any more: what was granted is given back. */
static void too_late(struct remote *r, const struct dma_remote_msg *a)
{
	struct dma_remote_msg msg = {.id = a->id, .map = a->map};

	if (a->err)
		return;
	msg.type = a->call == DMA_REMOTE_MAP	  ? DMA_REMOTE_UNMAP
		   : a->call == DMA_REMOTE_PIN	  ? DMA_REMOTE_UNPIN
		   : a->call == DMA_REMOTE_ATTACH ? DMA_REMOTE_DETACH
						  : 0;
	if (msg.type)
		post(r, msg, -1);
}

/*
 * Reads one message, and does with it what is to be done. 1: the answer to the call with this seq, in *a, with *fd or
 * -1; 0: something else; -EAGAIN: nothing there; -ENODEV: it has ended.
 */
static int read_one(struct remote *r, uint32_t seq, struct dma_remote_msg *a, int *fd)
{
	int fds[USOCK_MAX_FDS], num = 0, ret = 0;
	ssize_t n;

	if (r->ended)
		return -ENODEV;
	n = usock_recv(r->sock, a, sizeof(*a), fds, &num);
	*fd = num ? fds[0] : -1;
	for (int i = 1; i < num; i++)
		close(fds[i]);
	if (n == -EAGAIN || n == -EINTR)
		return n == -EAGAIN ? -EAGAIN : 0;
	if (n <= 0 && n != -EMFILE)
		end(r);
	else if (n != -EMFILE && n != sizeof(*a))
		nonsense(r);
	else if (a->type == DMA_REMOTE_ANSWER && a->seq == seq)
		ret = 1; /* without its descriptor, where there was no room for that */
	else if (a->type == DMA_REMOTE_ANSWER)
		too_late(r, a);
	else if (a->type == DMA_REMOTE_INVALIDATE)
		told(r, a);
	else
		nonsense(r);
	if (!ret && *fd >= 0) {
		close(*fd);
		*fd = -1;
	}
	return ret;
}

static void say_slow(struct remote *r)
{
	fl_warn("process %d, whose dma-buf this is, has not answered for a second (is it stopped, or in a debugger?); waiting "
		"for it",
		(int)r->pid);
}

/*
 * A call, with its answer in *a, and *fd, where fd is not NULL. Its error, -ENODEV: the other has ended; -ETIMEDOUT.
 * What it is told before it is answered has been done then.
 */
static int call_fd(struct remote *r, struct dma_remote_msg msg, int sends, struct dma_remote_msg *a, int *fd)
{
	long begun = now_ms(), now = begun;
	bool said = false;
	int got = -1, err;

	msg.seq = ++r->seq;
	err = r->ended ? -ENODEV : post(r, msg, sends);
	while (!err && now - begun < calls_take_ms()) {
		struct pollfd p = {.fd = r->sock, .events = POLLIN};

		err = read_one(r, msg.seq, a, &got);
		if (err == 1) {
			r->silent = false;
			break;
		}
		if (err != -EAGAIN)
			continue;
		err = 0;
		if (now - begun > SAY_MS && !said) {
			said = true;
			say_slow(r);
		}
		poll(&p, 1, SAY_MS);
		now = now_ms();
	}
	if (!err) {
		r->silent = true;
		return -ETIMEDOUT;
	}
	if (err < 0)
		return err == -EPIPE || err == -ECONNRESET ? -ENODEV : err;
	if (fd && !a->err)
		*fd = got;
	else if (got >= 0)
		close(got);
	return a->err > 0 ? -EPROTO : a->err;
}

static int call(struct remote *r, struct dma_remote_msg msg)
{
	struct dma_remote_msg a;

	return call_fd(r, msg, -1, &a, NULL);
}

static void *listen_to(void *arg)
{
	struct remote *r = arg;
	struct dma_remote_msg msg;
	bool on = true;
	int fd, n;

	while (on) {
		struct pollfd p = {.fd = r->sock, .events = POLLIN};

		poll(&p, 1, -1);
		dma_resv_lock(r->dmabuf->resv, NULL);
		/* seq 0 is no call's */
		while (!r->closing && (n = read_one(r, 0, &msg, &fd)) >= 0)
			if (n == 1 && fd >= 0)
				close(fd);
		on = !r->closing && !r->ended;
		dma_resv_unlock(r->dmabuf->resv);
	}
	return NULL;
}

/* ---- the exporter's functions ---- */

static int make_spare(struct remote *r)
{
	return dma_remote_keep(fcntl(r->fd, F_DUPFD_CLOEXEC, 0));
}

static uint64_t id_of(const struct dma_buf_attachment *attach)
{
	return (uint64_t)(uintptr_t)attach->priv;
}

static int remote_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct remote *r = dmabuf->priv;
	struct dma_remote_msg msg = {.type = DMA_REMOTE_ATTACH};
	int err;

	snprintf(msg.name, sizeof(msg.name), "%s", attach->dev->name);
	msg.flags = (dma_buf_attach_revocable(attach) ? DMA_REMOTE_TOLD : 0) | (attach->peer2peer ? DMA_REMOTE_P2P : 0);
	dma_resv_lock(dmabuf->resv, NULL);
	msg.id = ++r->last_id;
	attach->priv = (void *)(uintptr_t)msg.id;
	err = call(r, msg);
	dma_resv_unlock(dmabuf->resv);
	if (err)
		fl_warn("%s: process %d, whose dma-buf this is, cannot or will not lend it: %s", attach->dev->name, (int)r->pid,
			strerror(-err));
	return err;
}

static void remote_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct remote *r = dmabuf->priv;

	dma_resv_lock(dmabuf->resv, NULL);
	if (r->silent)
		post(r, (struct dma_remote_msg){.type = DMA_REMOTE_DETACH, .id = id_of(attach)}, -1);
	else
		call(r, (struct dma_remote_msg){.type = DMA_REMOTE_DETACH, .id = id_of(attach)});
	dma_resv_unlock(dmabuf->resv);
}

static int remote_pin(struct dma_buf_attachment *attach)
{
	return call(attach->dmabuf->priv, (struct dma_remote_msg){.type = DMA_REMOTE_PIN, .id = id_of(attach)});
}

static void remote_unpin(struct dma_buf_attachment *attach)
{
	post(attach->dmabuf->priv, (struct dma_remote_msg){.type = DMA_REMOTE_UNPIN, .id = id_of(attach)}, -1);
}

/* Maps the pieces that the page tells of, one after the other, for they are one buffer. */
static int map_pieces(struct remote *r, int fd, uint64_t num, void **out)
{
	size_t size = r->dmabuf->size, done = 0;
	struct stat st;
	char *at;

	if (fd < 0)
		return -EMFILE;
	/* or it could be cut off under our copies */
	if (!(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) || fstat(fd, &st) || num > size / 4096)
		return -EPROTO;
	at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return -errno;
	for (uint64_t i = 0; i < num; i++) {
		/* once: it is the other's memory, too */
		uint64_t offset = __atomic_load_n(&r->page->piece[i].offset, __ATOMIC_RELAXED);
		uint64_t length = __atomic_load_n(&r->page->piece[i].length, __ATOMIC_RELAXED);
		uint64_t stop;

		if (!length || (offset | length) & 4095 || length > size - done ||
		    __builtin_add_overflow(offset, length, &stop) || stop > (uint64_t)st.st_size)
			break;
		if (mmap(at + done, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)offset) == MAP_FAILED) {
			int err = -errno;

			munmap(at, size);
			return err;
		}
		done += length;
	}
	if (done != size) {
		munmap(at, size);
		return -EPROTO;
	}
	madvise(at, size, MADV_DONTFORK); /* a child has no part in it */
	*out = at;
	return 0;
}

static int remote_map(struct dma_buf_attachment *attach, enum dma_data_direction dir, struct sg_table **sgt)
{
	struct remote *r = attach->dmabuf->priv;
	struct dma_remote_msg a;
	struct sg_table *t = dma_buf_alloc_sgt(1);
	struct remote_map *m = malloc(sizeof(*m));
	int err = t && m ? 0 : -ENOMEM, fd = -1;

	if (err)
		goto err_free;
	dma_remote_close(r->spare);
	err = call_fd(r, (struct dma_remote_msg){.type = DMA_REMOTE_MAP, .id = id_of(attach)}, -1, &a, &fd);
	if (!err) {
		err = map_pieces(r, fd, a.num, &m->addr);
		if (err)
			post(r, (struct dma_remote_msg){.type = DMA_REMOTE_UNMAP, .id = id_of(attach), .map = a.map}, -1);
	}
	if (fd >= 0)
		close(fd);
	r->spare = make_spare(r);
	if (err)
		goto err_free;
	m->id = a.map;
	t->peer2peer = a.flags & DMA_REMOTE_P2P;
	t->revoked = &r->page->revoked;
	t->priv = m;
	t->sgl[0] = (struct scatterlist){(uint64_t)(uintptr_t)m->addr, attach->dmabuf->size, 0};
	*sgt = t;
	return 0;
err_free:
	free(m);
	free(t);
	return err;
}

static void remote_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt, enum dma_data_direction dir)
{
	struct remote_map *m = sgt->priv;

	munmap(m->addr, attach->dmabuf->size);
	post(attach->dmabuf->priv,
	     (struct dma_remote_msg){.type = DMA_REMOTE_UNMAP, .id = id_of(attach), .map = m->id}, -1);
	free(m);
	free(sgt);
}

/* what hello() has made, and no thread runs */
static void free_remote(struct remote *r)
{
	if (r->page)
		munmap(r->page, r->page_size);
	dma_remote_close(r->spare);
	dma_remote_close(r->fd);
	dma_remote_close(r->sock);
	free(r);
}

static void remote_release(struct dma_buf *dmabuf)
{
	struct remote *r = dmabuf->priv;

	dma_remote_close(r->fd); /* before the other looks whether somebody has it still */
	r->fd = -1;
	dma_resv_lock(dmabuf->resv, NULL);
	if (!r->silent)
		call(r, (struct dma_remote_msg){.type = DMA_REMOTE_BYE});
	r->closing = true;
	dma_resv_unlock(dmabuf->resv);
	shutdown(r->sock, SHUT_RDWR);
	pthread_join(r->thread, NULL);
	free_remote(r);
}

static const struct dma_buf_ops remote_ops = {
	.attach = remote_attach,
	.detach = remote_detach,
	.pin = remote_pin,
	.unpin = remote_unpin,
	.map_dma_buf = remote_map,
	.unmap_dma_buf = remote_unmap,
	.release = remote_release,
};

/* ---- importing ---- */

static int take_page(struct remote *r, int fd, uint64_t size)
{
	struct stat st;
	void *p;

	if (fd < 0)
		return -EMFILE;
	if (!size || size & 4095 || size > INT64_MAX / 2 || !(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) || fstat(fd, &st) ||
	    (size_t)st.st_size < dma_remote_page_size(size))
		return -EPROTO;
	r->page_size = dma_remote_page_size(size);
	p = mmap(NULL, r->page_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	madvise(p, r->page_size, MADV_DONTFORK);
	r->page = p;
	return 0;
}

/* Who it is, and that we have a descriptor of it; then it tells its size. */
static int hello(struct remote *r, uint64_t *size)
{
	struct dma_remote_msg a;
	int fd = -1, err = call_fd(r, (struct dma_remote_msg){.type = DMA_REMOTE_HELLO, .num = DMA_REMOTE_VERSION}, r->fd, &a,
				   &fd);

	if (!err)
		err = take_page(r, fd, a.num);
	if (fd >= 0)
		close(fd);
	*size = a.num;
	return err;
}

static void say_refused(int err)
{
	if (err == -ECONNREFUSED)
		fl_warn("this dma-buf is of another process, which has ended (or is in another network namespace)");
	else if (err == -EPERM)
		fl_warn("this dma-buf is of another user's process: refused");
	else
		fl_warn("this dma-buf is of another process, which cannot be asked for it: %s", strerror(-err));
}

static int import(int fd, uint64_t token, struct dma_buf **dmabuf)
{
	struct remote *r = calloc(1, sizeof(*r));
	char name[40];
	uint64_t size;
	int err = -ENOMEM;

	if (!r)
		goto err_fd;
	snprintf(name, sizeof(name), DMA_REMOTE_NAME, token);
	r->spare = -1;
	r->fd = dma_remote_keep(fd);
	if (r->fd < 0) {
		free(r);
		return -EMFILE;
	}
	r->sock = dma_remote_dial(name);
	err = r->sock < 0 ? r->sock : 0;
	if (err)
		goto err_free;
	r->pid = usock_pid(r->sock);
	err = hello(r, &size);
	if (err)
		goto err_remote;
	r->spare = make_spare(r);
	err = dma_buf_create(&(struct dma_buf_export_info){.exp_name = "another process", .ops = &remote_ops, .size = size,
							   .priv = r, .storage = -1},
			     &r->dmabuf);
	if (err)
		goto err_remote;
	*dmabuf = r->dmabuf;
	err = mm_thread_start(&r->thread, NULL, listen_to, r, "fl-dmabuf-told");
	if (!err)
		return 0;
	dma_buf_discard(r->dmabuf);
err_remote:
	free_remote(r);
	return err;
err_free:
	dma_remote_close(r->fd);
	free(r);
	return err;
err_fd:
	close(fd);
	return err;
}

int dma_remote_import(int fd, uint64_t token, struct dma_buf **dmabuf)
{
	int err = import(fd, token, dmabuf);

	if (err)
		say_refused(err);
	return err == -ECONNREFUSED ? -ENODEV : err;
}
