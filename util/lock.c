/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lock ranks. Order by rank is the whole deadlock argument of the library, so debug builds keep,
 * per thread, the locks it holds, and abort at the first one taken out of order: at the mistake,
 * not at the rare interleaving where it would hang. The list is in static thread-local memory,
 * since locks are taken by threads that may not allocate.
 */
#include "util/lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__thread int fl_locks_held;

void fl_mutex_init(struct fl_mutex *l, enum lock_rank rank)
{
	l->m = (pthread_mutex_t)PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
	l->rank = rank;
}

void fl_mutex_destroy(struct fl_mutex *l)
{
	pthread_mutex_destroy(&l->m);
}

#ifdef FL_DEBUG_LOCKS

#define MAX_HELD 16 /* one a rank, and trylocks out of order */

/* initial-exec: the first use in a thread must not make the dynamic linker allocate */
static __thread struct {
	unsigned n;
	struct fl_mutex *lock[MAX_HELD];
} held __attribute__((tls_model("initial-exec")));

static const char *const rank_name[] = {
	[LOCK_REGISTRY] = "registry",
	[LOCK_CORE] = "core",
	[LOCK_NET_SLOT] = "net slot",
	[LOCK_NET_RX] = "net rx",
	[LOCK_QP] = "qp",
	[LOCK_RQ] = "rq",
	[LOCK_CQ] = "cq",
	[LOCK_EVENT] = "event",
	[LOCK_NET_IMPAIR] = "net impair",
	[LOCK_NET_TX] = "net tx",
	[LOCK_DMA_BUF] = "dma-buf table",
	[LOCK_DMA_RESV] = "dma-buf reservation",
	[LOCK_DMA_EXPORTER] = "dma-buf exporter",
	[LOCK_DMA_REMOTE] = "dma-bufs of other processes",
	[LOCK_MR_TABLE] = "mr table",
	[LOCK_PF_QUEUE] = "page-fault queue",
	[LOCK_UMEM_CHILDREN] = "umem children",
	[LOCK_UMEM_PINS] = "umem pins",
	[LOCK_UMEM_RWSEM] = "umem rwsem",
	[LOCK_UMEM_MUTEX] = "umem mutex",
	[LOCK_PT_ARENA] = "page-table arena",
	[LOCK_NET_PEER] = "net peer",
	[LOCK_TIMER] = "timer",
	[LOCK_LEAF] = "leaf",
};

static const char *name_of(enum lock_rank r)
{
	if ((size_t)r >= sizeof(rank_name) / sizeof(rank_name[0]) || !rank_name[r])
		return "unknown";
	return rank_name[r];
}

static void __attribute__((noreturn))
die(const char *what, enum lock_rank r, enum lock_rank holding)
{
	char buf[160];
	int n = snprintf(buf, sizeof(buf),
			 "faultline: lock order: %s '%s' (rank %d) holding '%s' (rank %d)\n", what,
			 name_of(r), (int)r, name_of(holding), (int)holding);

	if (write(STDERR_FILENO, buf, (size_t)n) < 0)
		abort();
	abort();
}

void fl_lock_may_take(enum lock_rank r)
{
	for (unsigned i = 0; i < held.n; i++)
		if (held.lock[i]->rank >= r)
			die("taking", r, held.lock[i]->rank);
}

void fl_lock_acquired(struct fl_mutex *l)
{
	if (held.n == MAX_HELD)
		die("too many locks, taking", l->rank, held.lock[MAX_HELD - 1]->rank);
	held.lock[held.n++] = l;
}

void fl_lock_released(struct fl_mutex *l)
{
	unsigned i = held.n;

	while (i > 0 && held.lock[i - 1] != l)
		i--;
	if (!i)
		die("releasing without having", l->rank, l->rank);
	held.n--;
	memmove(&held.lock[i - 1], &held.lock[i], (held.n - (i - 1)) * sizeof(held.lock[0]));
}

#endif
