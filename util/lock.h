/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks and their order. A thread takes locks in ascending rank, never two of one rank; debug builds
 * check it and abort with both names. What each lock guards is said here and nowhere else.
 */
#ifndef FL_UTIL_LOCK_H
#define FL_UTIL_LOCK_H

#include <pthread.h>
#include <stdbool.h>

enum lock_rank {
	LOCK_REGISTRY = 1,  /* the process's devices, and whether the engine, net and segment exist */
	LOCK_CORE,	    /* a device's tables of handles (pd, mr, ...) and their use counts */
	LOCK_NET_SLOT,	    /* the table of channels to peers: connecting, accepting, death. Held over fork() */
	LOCK_NET_RX,	    /* consumer side of one ring or of the UDP sockets: who drains it */
	LOCK_QP,	    /* everything of a QP but its receive queue */
	LOCK_RQ,	    /* a receive queue or SRQ */
	LOCK_CQ,	    /* a CQ's ring and its arming */
	LOCK_EVENT,	    /* a completion channel's or a context's queue of events */
	LOCK_NET_IMPAIR,    /* packets held back on purpose, and what became of those before */
	LOCK_NET_TX,	    /* producer side of one ring, or of a UDP socket's batch. Payloads are copied under it, and
			     * what a copy may need comes after it */
	LOCK_DMA_BUF,	    /* the process's table of dma-bufs, and their references */
	LOCK_DMA_RESV,	    /* a dma-buf's reservation; several at once only by dmabuf/dma-resv.h */
	LOCK_DMA_EXPORTER,  /* an exporter's memory: which buffer has which part of it */
	LOCK_DMA_REMOTE,    /* beginning to answer other processes that import dma-bufs from this one */
	LOCK_MR_TABLE,	    /* handing out and taking back keys */
	LOCK_PF_QUEUE,	    /* the page-fault queue */
	LOCK_UMEM_CHILDREN, /* the children of one implicit region: made, used by faults, given back */
	LOCK_UMEM_PINS,	    /* pinning and unpinning parts of one on-demand region: who does */
	LOCK_UMEM_RWSEM,    /* the interval tree of on-demand regions */
	LOCK_UMEM_MUTEX,    /* one umem_odp's page table. Nothing is allocated, freed or mapped under it */
	LOCK_PT_ARENA,	    /* the free list of page-present tables' chunks */
	LOCK_NET_PEER,	    /* our hazard at one peer, and what we have mapped of it */
	LOCK_TIMER,	    /* the timer heap */
	LOCK_LEAF,	    /* anything that takes no other lock inside */
};

struct fl_mutex {
	pthread_mutex_t m;
	enum lock_rank rank;
};

/*
 * Adaptive: who finds it taken looks on for a moment before it sleeps. They are held for well under a microsecond, and
 * a sleep costs two system calls, one of them the holder's.
 */
#define FL_MUTEX_INIT(r) {.m = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, .rank = (r)}

void fl_mutex_init(struct fl_mutex *l, enum lock_rank rank);
void fl_mutex_destroy(struct fl_mutex *l);

#ifdef FL_DEBUG_LOCKS
void fl_lock_acquired(struct fl_mutex *l);
void fl_lock_released(struct fl_mutex *l);
/* aborts if the thread holds a lock of a rank >= r */
void fl_lock_may_take(enum lock_rank r);
#else
static inline void fl_lock_acquired(struct fl_mutex *l) { (void)l; }
static inline void fl_lock_released(struct fl_mutex *l) { (void)l; }
static inline void fl_lock_may_take(enum lock_rank r) { (void)r; }
#endif

/*
 * How many locks this thread holds or is about to: what a handler at exit() asks, which may run on top
 * of one of our functions (exit() in a signal handler).
 */
extern __thread int fl_locks_held __attribute__((tls_model("initial-exec")));

static inline void fl_lock(struct fl_mutex *l)
{
	fl_lock_may_take(l->rank);
	fl_locks_held++;
	pthread_mutex_lock(&l->m);
	fl_lock_acquired(l);
}

static inline bool fl_trylock(struct fl_mutex *l)
{
	fl_locks_held++;
	if (pthread_mutex_trylock(&l->m)) {
		fl_locks_held--;
		return false;
	}
	fl_lock_acquired(l);
	return true;
}

static inline void fl_unlock(struct fl_mutex *l)
{
	fl_lock_released(l);
	pthread_mutex_unlock(&l->m);
	fl_locks_held--;
}

/* lets go of the lock, waits, and has it again */
static inline void fl_cond_wait(pthread_cond_t *cond, struct fl_mutex *l)
{
	fl_lock_released(l);
	pthread_cond_wait(cond, &l->m);
	fl_lock_acquired(l);
}

#endif
