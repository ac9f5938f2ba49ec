/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who drives the device. Progress is inline first: ibv_post_send() sends, ibv_poll_cq() receives. The
 * engine, one thread a process, does the rest: it runs timers and connections, and receives when the
 * application does not poll (a one-sided target, an application that waits for events).
 *
 * Two modes. *Armed*: the engine sleeps, and who puts something into one of our rings wakes it.
 * *Polled*: an application's thread polls so often that waking the engine would only take its core;
 * producers wake nobody, and the engine looks once a TICK whether the polling goes on. Many polls in a
 * row enter polled mode; a tick without a poll, or arming a CQ (the application is about to sleep),
 * leaves it. An idle device has no tick: the engine sleeps until something happens.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "hw/hw.h"
#include "mm/mm.h"
#include "util/cancel.h"

#define TICK_NS	      1000000ull
#define LINGER_NS     50000ull /* after traffic the engine looks on for so long, yielding the core */
#define POLLS_TO_ENTER 64
#define BUDGET	      64
/*
 * An application that polls in vain may hold the very core that its peer's engine needs to answer: after
 * some 30 us it lets others run. An answer from a peer that runs comes much earlier than that. A
 * yield costs a third of a microsecond when nobody waits for the core.
 */
#define POLLS_TO_YIELD 512

struct hca_engine {
	pthread_t thread;
	int epoll_fd, kick_fd;
	_Atomic bool polled;
	_Atomic uint32_t polls; /* by applications, since the last arming */
	_Atomic uint32_t vain;	/* of these, in a row without anything coming in */
};

/* like the registry's: a new thread's stack is taken out of implicit regions, by their locks */
static struct fl_mutex start_lock = FL_MUTEX_INIT(LOCK_REGISTRY);

/* QPs that owe an ACK for the batch this thread is taking in. */
static __thread struct hca_qp *ack_list __attribute__((tls_model("initial-exec")));

void engine_defer_ack(struct hca_qp *qp)
{
	if (qp->resp.ack_queued)
		return;
	qp->resp.ack_queued = true;
	qp->ack_next = ack_list;
	ack_list = qp;
}

void engine_flush_acks(void)
{
	struct hca_qp *qp;

	while ((qp = ack_list)) {
		ack_list = qp->ack_next;
		fl_lock(&qp->lock);
		qp->resp.ack_queued = false;
		resp_send_ack(qp);
		fl_unlock(&qp->lock);
	}
}

static int progress(void)
{
	int n;

	pf_begin_pass();
	n = net_poll(hca_node->net, BUDGET);

	if (ack_list)
		engine_flush_acks();
	return n;
}

/* NULL: it has not started. Pairs with engine_start(): who sees it sees its descriptors. */
static struct hca_engine *running(void)
{
	return atomic_load_explicit(&hca_node->engine, memory_order_acquire);
}

void engine_kick(void)
{
	NO_CANCEL;
	struct hca_engine *e = running();
	uint64_t one = 1;

	if (e && write(e->kick_fd, &one, sizeof(one)) < 0) {
		/* EAGAIN: the counter is full, so it is awake */
	}
}

int engine_poll(void)
{
	struct hca_engine *e = running();
	uint32_t polls, vain;
	int n;

	if (!e)
		return 0;
	/* relaxed, and not exact when several threads poll: it only has to move */
	polls = atomic_load_explicit(&e->polls, memory_order_relaxed) + 1;
	atomic_store_explicit(&e->polls, polls, memory_order_relaxed);
	if (polls > POLLS_TO_ENTER && !atomic_load_explicit(&e->polled, memory_order_relaxed)) {
		atomic_store(&e->polled, true);
		net_awake(hca_node->net);
		engine_kick();
	}
	n = progress();
	vain = n ? 0 : atomic_load_explicit(&e->vain, memory_order_relaxed) + 1;
	atomic_store_explicit(&e->vain, vain, memory_order_relaxed);
	if (vain % POLLS_TO_YIELD == POLLS_TO_YIELD - 1)
		sched_yield();
	return n;
}

void engine_app_sleeps(void)
{
	struct hca_engine *e = running();

	if (!e)
		return;
	atomic_store_explicit(&e->polls, 0, memory_order_relaxed);
	if (atomic_exchange(&e->polled, false))
		engine_kick();
}

static void sleep_until(struct hca_engine *e, uint64_t now, uint64_t deadline)
{
	struct epoll_event ev[2];
	struct timespec ts, *tp = NULL;
	uint64_t wait = deadline > now ? deadline - now : 0, junk;
	int n;

	if (deadline != UINT64_MAX) {
		ts = (struct timespec){wait / 1000000000, wait % 1000000000};
		tp = &ts;
	}
	n = epoll_pwait2(e->epoll_fd, ev, 2, tp, NULL);
	if (n < 0 && errno == ENOSYS) /* Linux < 5.11: milliseconds, rounded up */
		epoll_wait(e->epoll_fd, ev, 2, tp ? (int)((wait + 999999) / 1000000) : -1);
	if (n != 0 && read(e->kick_fd, &junk, sizeof(junk)) < 0) {
		/* EAGAIN: it was not the kick that woke us */
	}
}

/* Nothing to do: sleep, in the way of the mode. */
static void idle(struct hca_engine *e, uint32_t *last_polls, uint64_t now, uint64_t next)
{
	uint32_t polls = atomic_load_explicit(&e->polls, memory_order_relaxed);

	if (atomic_load(&e->polled)) {
		if (polls != *last_polls) {
			*last_polls = polls;
			sleep_until(e, now, next < now + TICK_NS ? next : now + TICK_NS);
			net_service(hca_node->net);
			return;
		}
		atomic_store_explicit(&e->polls, 0, memory_order_relaxed);
		atomic_store(&e->polled, false);
	}
	/* what came in before this is found by it, what comes after wakes us */
	if (!net_prepare_sleep(hca_node->net))
		return;
	sleep_until(e, now, next);
	net_awake(hca_node->net);
	net_service(hca_node->net);
}

static void *engine_main(void *arg)
{
	struct hca_engine *e = arg;
	uint64_t now, next, busy_until = 0;
	uint32_t last_polls = 0;
	int n;

	for (;;) {
		n = progress();
		now = now_ns();
		next = timers_run(now);
		if (n) {
			busy_until = now + LINGER_NS;
		} else if (now < busy_until && !atomic_load_explicit(&e->polled, memory_order_relaxed)) {
			/* most likely more comes: look on, but let any other thread have the core */
			sched_yield();
		} else {
			idle(e, &last_polls, now, next);
		}
	}
	return NULL;
}

static int engine_open(struct hca_engine *e)
{
	struct epoll_event ev = {.events = EPOLLIN};

	e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (e->epoll_fd < 0)
		return -errno;
	e->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (e->kick_fd < 0)
		return -errno;
	ev.data.fd = e->kick_fd;
	if (epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, e->kick_fd, &ev))
		return -errno;
	ev.data.fd = net_fd(hca_node->net);
	if (epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, ev.data.fd, &ev))
		return -errno;
	return 0;
}

static void engine_close(struct hca_engine *e)
{
	if (e->epoll_fd >= 0)
		close(e->epoll_fd);
	if (e->kick_fd >= 0)
		close(e->kick_fd);
	free(e);
}

static int engine_new(struct hca_engine **out)
{
	struct hca_engine *e = calloc(1, sizeof(*e));
	int rc;

	if (!e)
		return -ENOMEM;
	e->epoll_fd = e->kick_fd = -1; /* none: 0 is the application's */
	rc = engine_open(e);
	if (!rc)
		rc = mm_thread(&e->thread, NULL, engine_main, e, "faultline");
	if (rc)
		engine_close(e);
	else
		*out = e;
	return rc;
}

int engine_start(struct hca_node *node)
{
	struct hca_engine *e;
	int rc = 0;

	fl_lock(&start_lock);
	if (!atomic_load_explicit(&node->engine, memory_order_relaxed)) {
		rc = engine_new(&e);
		if (rc)
			fl_err("cannot start the engine's thread: %s", strerror(-rc));
		else /* other threads may be polling: pairs with running() */
			atomic_store_explicit(&node->engine, e, memory_order_release);
	}
	fl_unlock(&start_lock);
	return rc;
}

/* In the child of a fork: the parent's thread is not here, its descriptors are copies. */
void engine_fork_child(struct hca_node *node)
{
	struct hca_engine *e = atomic_load_explicit(&node->engine, memory_order_relaxed);

	fl_mutex_init(&start_lock, LOCK_REGISTRY);
	ack_list = NULL;
	if (!e)
		return;
	/* its memory stays: the heap may be amid a change */
	close(e->epoll_fd);
	close(e->kick_fd);
	atomic_store_explicit(&node->engine, NULL, memory_order_relaxed);
}
