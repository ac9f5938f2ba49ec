/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The exporting process's end of what remote.h describes: the socket, a thread that reads all connections, and a
 * worker for each. The thread takes answers and sees hang-ups and time-outs; it waits for nothing but its epoll,
 * since those who hold a reservation wait for it. What takes a reservation is put into the connection's list of
 * calls, for the worker.
 *
 * Everything shared is under one leaf lock, under which nothing is allocated and no fence signalled.
 *
 * A connection ends in this order: the thread sees the hang-up; nothing more is told (over); those who wait are let
 * go; the connection is off the thread's lists, and released; the worker undoes what is left, and frees it.
 */
#include "dmabuf/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "dmabuf/rules.h"
#include "mm/mm.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/usock.h"

#define MAX_CALLS 65536 /* that wait for the worker: more than a process has a reason for */

_Atomic int dma_remote_patience_ms = 10000;

static struct {
	struct fl_mutex start; /* whether it runs */
	uint64_t token;
	int listen_fd, epoll_fd, timer_fd;
	int spare_fd; /* to turn a connection away when there is no other descriptor left */
	struct fl_mutex lock; /* LOCK_LEAF */
	struct cds_list_head conns;
	uint64_t timer_ns; /* when the timer goes off; 0: not */
} service = {
	.start = FL_MUTEX_INIT(LOCK_DMA_REMOTE),
	.listen_fd = -1, .epoll_fd = -1, .timer_fd = -1, .spare_fd = -1,
	.lock = FL_MUTEX_INIT(LOCK_LEAF),
	.conns = CDS_LIST_HEAD_INIT(service.conns),
};

/* lock held */
static void set_timer(uint64_t at)
{
	struct itimerspec t = {.it_value = {.tv_sec = (time_t)(at / 1000000000ull), .tv_nsec = (long)(at % 1000000000ull)}};

	service.timer_ns = at;
	timerfd_settime(service.timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
}

/* ---- telling ---- */

uint32_t dma_remote_tell(struct dma_remote_conn *c, struct dma_remote_told *t, struct dma_fence **fence)
{
	struct dma_fence *unused = NULL;
	uint32_t seq = 0;

	fl_lock(&service.lock);
	if (!c->over) {
		seq = c->seq = c->seq + 1 ? c->seq + 1 : 1;
		if (cds_list_empty(&t->node)) {
			t->fence = *fence ? dma_fence_get(*fence) : NULL;
			cds_list_add_tail(&t->node, &c->pending);
		} else { /* told again before it has answered: this answer is what counts */
			unused = *fence;
			*fence = NULL;
		}
		t->seq = seq;
		t->until_ns = now_ns() + (uint64_t)dma_remote_patience_ms * 1000000;
		if (!service.timer_ns || t->until_ns < service.timer_ns)
			set_timer(t->until_ns);
	}
	fl_unlock(&service.lock);
	if (unused)
		dma_fence_signal(unused);
	dma_fence_put(unused);
	return seq;
}

void dma_remote_wait_told(struct dma_remote_conn *c, struct dma_remote_told *t)
{
	fl_lock(&service.lock);
	while (!cds_list_empty(&t->node))
		fl_cond_wait(&c->answered, &service.lock);
	fl_unlock(&service.lock);
}

/* Takes one off the list, and lets those go who wait for it: the one with that seq; 0: any. false: there is none. */
static bool answered(struct dma_remote_conn *c, uint32_t seq)
{
	struct dma_remote_told *t, *found = NULL;
	struct dma_fence *fence = NULL;

	fl_lock(&service.lock);
	cds_list_for_each_entry(t, &c->pending, node) {
		if (!seq || t->seq == seq) {
			found = t;
			break;
		}
	}
	if (found) {
		fence = found->fence;
		found->fence = NULL;
		cds_list_del_init(&found->node);
		pthread_cond_broadcast(&c->answered);
	}
	fl_unlock(&service.lock);
	/* whatever it was, c may not be touched any more: its proxy may be taken down now */
	if (fence)
		dma_fence_signal(fence);
	dma_fence_put(fence);
	return found;
}

/* ---- the end of waiting ---- */

/*
 * The importer is lost. By its reader, or by who sends to it with a reservation held that the worker needs: c stays.
 * The mark comes before fences are signalled: who moves the buffer then copies after it. Pairs with withdrawn() in
 * umem/umem_dmabuf.c.
 */
static void lose(struct dma_remote_conn *c, const char *why)
{
	bool before;

	fl_lock(&service.lock);
	before = __atomic_exchange_n(&c->lost, true, __ATOMIC_SEQ_CST);
	c->over = true;
	if (c->page)
		__atomic_store_n(&c->page->revoked, 1, __ATOMIC_SEQ_CST);
	fl_unlock(&service.lock);
	if (before)
		return;
	fl_warn("process %d, which has a dma-buf of this one registered, %s: it has the buffer no more, and its regions on "
		"it are dead",
		(int)c->pid, why);
	dma_buf_count(DMA_BUF_IMPORTERS_LOST, 1);
	while (answered(c, 0))
		;
	shutdown(c->sock, SHUT_WR); /* it reads that when it goes on */
	fl_lock(&service.lock);
	pthread_cond_signal(&c->work);
	fl_unlock(&service.lock);
}

int dma_remote_send(struct dma_remote_conn *c, const struct dma_remote_msg *msg, int fd)
{
	uint64_t until = now_ns() + (uint64_t)dma_remote_patience_ms * 1000000, now = 0;
	int err = -EAGAIN;

	while (err == -EAGAIN && now < until && !__atomic_load_n(&c->lost, __ATOMIC_ACQUIRE)) {
		struct pollfd p = {.fd = c->sock, .events = POLLOUT};

		err = usock_send(c->sock, msg, sizeof(*msg), &fd, fd >= 0);
		now = now_ns();
		if (err == -EAGAIN && now < until)
			poll(&p, 1, (int)((until - now) / 1000000) + 1);
	}
	if (err == -EAGAIN)
		lose(c, "does not read what it is told");
	return err ? -EPIPE : 0;
}

/* The timer went off: who has not answered in time? By the reader, so that none of them goes away meanwhile. */
static void timed_out(void)
{
	struct dma_remote_conn *c, *late;
	struct dma_remote_told *t;
	uint64_t now = now_ns(), next;

	do {
		late = NULL;
		next = 0;
		fl_lock(&service.lock);
		cds_list_for_each_entry(c, &service.conns, node)
			cds_list_for_each_entry(t, &c->pending, node) {
				if (t->until_ns <= now)
					late = c;
				else if (!next || t->until_ns < next)
					next = t->until_ns;
			}
		if (!late)
			set_timer(next);
		fl_unlock(&service.lock);
		if (late)
			lose(late, "has not let go of it in time (is it stopped, or in a debugger?)");
	} while (late);
}

void dma_remote_set_page(struct dma_remote_conn *c, struct dma_remote_page *page)
{
	fl_lock(&service.lock);
	c->page = page;
	page->revoked = c->lost;
	fl_unlock(&service.lock);
}

/* ---- calls ---- */

void dma_remote_free_call(struct dma_remote_call *call)
{
	if (call->fd >= 0)
		close(call->fd);
	free(call);
}

static bool undoes(const struct dma_remote_call *call)
{
	return call->msg.type == DMA_REMOTE_UNMAP || call->msg.type == DMA_REMOTE_UNPIN;
}

struct dma_remote_call *dma_remote_next(struct dma_remote_conn *c, bool undo)
{
	struct dma_remote_call *call = NULL;

	fl_lock(&service.lock);
	while (!undo && (c->over || !c->num_calls) && !c->released && !(c->lost && !c->given_up))
		fl_cond_wait(&c->work, &service.lock);
	if (c->num_calls)
		call = cds_list_first_entry(&c->calls, struct dma_remote_call, node);
	/* of who is gone, or lost, nothing is done that it asked for */
	if (c->over || (undo && call && !undoes(call)))
		call = NULL;
	if (call) {
		cds_list_del(&call->node);
		c->num_calls--;
	}
	fl_unlock(&service.lock);
	return call;
}

static void add_call(struct dma_remote_conn *c, const struct dma_remote_msg *msg, int fd)
{
	struct dma_remote_call *call = malloc(sizeof(*call));
	bool taken = false;

	if (call) {
		call->msg = *msg;
		call->msg.name[sizeof(call->msg.name) - 1] = '\0';
		call->fd = fd;
		fl_lock(&service.lock);
		taken = !c->over && c->num_calls < MAX_CALLS;
		if (taken) {
			cds_list_add_tail(&call->node, &c->calls);
			c->num_calls++;
			pthread_cond_signal(&c->work);
		}
		fl_unlock(&service.lock);
	}
	if (taken)
		return;
	free(call);
	if (fd >= 0)
		close(fd);
	lose(c, "asks for more than there is room for");
}

/* ---- the thread ---- */

static void hung_up(struct dma_remote_conn *c)
{
	epoll_ctl(service.epoll_fd, EPOLL_CTL_DEL, c->sock, NULL);
	fl_lock(&service.lock);
	c->over = true;
	fl_unlock(&service.lock);
	while (answered(c, 0))
		;
	fl_lock(&service.lock);
	cds_list_del(&c->node);
	c->released = true;
	pthread_cond_signal(&c->work);
	fl_unlock(&service.lock);
}

/* false: there is no more for now */
static bool read_one(struct dma_remote_conn *c)
{
	int fds[USOCK_MAX_FDS], num = 0;
	struct dma_remote_msg msg = {0};
	ssize_t n = usock_recv(c->sock, &msg, sizeof(msg), fds, &num);

	if (n == -EINTR)
		return true;
	if (n == -EAGAIN)
		return false;
	if (n <= 0 && n != -EMFILE) {
		hung_up(c);
		return false;
	}
	/* whose descriptor found no room here is answered by the worker, who misses it */
	if (n == -EMFILE && msg.type == DMA_REMOTE_HELLO)
		msg.err = -EMFILE;
	else if (n != sizeof(msg) || num > (msg.type == DMA_REMOTE_HELLO))
		msg.type = 0;
	for (int i = 1; i < num; i++)
		close(fds[i]);
	if (msg.type == DMA_REMOTE_ACK) {
		if (msg.seq)
			answered(c, msg.seq);
	} else if (msg.type >= DMA_REMOTE_HELLO && msg.type <= DMA_REMOTE_UNPIN) {
		add_call(c, &msg, num ? fds[0] : -1);
	} else {
		if (num)
			close(fds[0]);
		lose(c, "says what is no message (another version of Faultline?)");
	}
	return true;
}

static void *worker(void *arg)
{
	struct dma_remote_conn *c = arg;
	struct dma_remote_call *call, *next;

	dma_remote_work(c);
	cds_list_for_each_entry_safe(call, next, &c->calls, node)
		dma_remote_free_call(call);
	dma_remote_close(c->sock);
	pthread_cond_destroy(&c->work);
	pthread_cond_destroy(&c->answered);
	free(c);
	return NULL;
}

static int new_conn(int sock)
{
	struct dma_remote_conn *c = calloc(1, sizeof(*c));
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
	pthread_t t;

	if (!c)
		return -ENOMEM;
	c->sock = sock;
	c->pid = usock_pid(sock);
	CDS_INIT_LIST_HEAD(&c->calls);
	CDS_INIT_LIST_HEAD(&c->pending);
	CDS_INIT_LIST_HEAD(&c->proxies);
	pthread_cond_init(&c->work, NULL);
	pthread_cond_init(&c->answered, NULL);
	if (epoll_ctl(service.epoll_fd, EPOLL_CTL_ADD, sock, &ev) || mm_thread_start(&t, NULL, worker, c, "fl-dmabuf-work")) {
		free(c);
		return -ENOMEM;
	}
	pthread_detach(t);
	fl_lock(&service.lock);
	cds_list_add(&c->node, &service.conns);
	fl_unlock(&service.lock);
	return 0;
}

static void accept_all(void)
{
	int sock;

	while ((sock = dma_remote_accept(service.listen_fd)) >= 0)
		if (new_conn(sock))
			dma_remote_close(sock);
	if (sock != -EMFILE && sock != -ENFILE)
		return;
	/* one that stays in the queue would keep us awake for nothing, so it is taken and closed */
	fl_warn_once("out of file descriptors: another process could not import a dma-buf; raise the limit (ulimit -n)");
	dma_remote_close(service.spare_fd);
	dma_remote_close(dma_remote_accept(service.listen_fd));
	service.spare_fd = dma_remote_keep(fcntl(service.epoll_fd, F_DUPFD_CLOEXEC, 0));
}

static void *serve(void *arg)
{
	struct epoll_event ev[32];
	uint64_t times;

	for (;;) {
		int n = epoll_wait(service.epoll_fd, ev, 32, -1);

		/* each connection is in it once, and only this thread lets go of one */
		for (int i = 0; i < n; i++) {
			if (ev[i].data.ptr == &service.listen_fd)
				accept_all();
			else if (ev[i].data.ptr != &service.timer_fd)
				while (read_one(ev[i].data.ptr))
					;
			else if (read(service.timer_fd, &times, sizeof(times)) > 0)
				timed_out();
		}
	}
	return NULL;
}

/* ---- start ---- */

static void close_all(void)
{
	dma_remote_close(service.listen_fd);
	dma_remote_close(service.epoll_fd);
	dma_remote_close(service.timer_fd);
	dma_remote_close(service.spare_fd);
	service.listen_fd = service.epoll_fd = service.timer_fd = service.spare_fd = -1;
}

static int watch(int *fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = fd};

	return *fd < 0 || epoll_ctl(service.epoll_fd, EPOLL_CTL_ADD, *fd, &ev) ? -1 : 0;
}

static int start(uint64_t token)
{
	char name[40];
	pthread_t t;
	int err = -EMFILE;

	snprintf(name, sizeof(name), DMA_REMOTE_NAME, token);
	service.epoll_fd = dma_remote_keep(epoll_create1(EPOLL_CLOEXEC));
	service.timer_fd = dma_remote_keep(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	service.spare_fd = service.epoll_fd < 0 ? -1 : dma_remote_keep(fcntl(service.epoll_fd, F_DUPFD_CLOEXEC, 0));
	service.listen_fd = dma_remote_keep(usock_listen(name));
	if (service.spare_fd >= 0 && !watch(&service.listen_fd) && !watch(&service.timer_fd))
		err = mm_thread(&t, NULL, serve, NULL, "fl-dmabuf");
	if (err)
		close_all();
	return err;
}

uint64_t dma_remote_serve(void)
{
	uint64_t token;

	fl_lock(&service.start);
	if (!service.token && getrandom(&token, sizeof(token), GRND_NONBLOCK) == sizeof(token) && token && !start(token))
		service.token = token;
	token = service.token;
	fl_unlock(&service.start);
	return token;
}

void dma_remote_fork_child(void)
{
	/* the parent's connections are the parent's, and so is its socket */
	dma_remote_fds_fork_child();
	fl_mutex_init(&service.start, LOCK_DMA_REMOTE);
	fl_mutex_init(&service.lock, LOCK_LEAF);
	CDS_INIT_LIST_HEAD(&service.conns);
	service.token = service.timer_ns = 0;
	service.listen_fd = service.epoll_fd = service.timer_fd = service.spare_fd = -1;
}
