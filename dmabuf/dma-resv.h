/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A reservation object: the lock of a buffer, and the fences of the work that is under way on it.
 *
 * Who moves a buffer, maps it, pins it, or changes who is told about moves, holds the lock. Its rank is
 * LOCK_DMA_RESV. Two buffers may be locked at once, which no other lock of ours allows, by the rule of
 * the kernel's ww_mutex in its wait-die form: both under one acquire context, whose ticket is its age. Who
 * meets a lock of an older context while it holds some itself gets -EDEADLK, gives back all it holds, waits
 * for the contended one with dma_resv_lock_slow(), and begins anew; it keeps its ticket, so it gets older
 * and is served in the end. A thread that holds a reservation without a context takes no second one.
 *
 *	ww_acquire_init(&ctx);
 *	retry: for each buffer: err = dma_resv_lock(b->resv, &ctx);
 *		-EDEADLK: unlock all that are held, dma_resv_lock_slow(b->resv, &ctx), retry the others
 *	...
 *	unlock all; ww_acquire_fini(&ctx);
 */
#ifndef FL_DMABUF_DMA_RESV_H
#define FL_DMABUF_DMA_RESV_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "dmabuf/dma-fence.h"
#include "util/lock.h"

/* One thread's, for one attempt (with its retries) to lock several reservations. */
struct ww_acquire_ctx {
	uint64_t stamp;	       /* the ticket: lower is older */
	unsigned acquired;     /* reservations held under it */
	struct fl_mutex order; /* never locked: stands for all of them in the check of the lock order */
};

void ww_acquire_init(struct ww_acquire_ctx *ctx);
void ww_acquire_fini(struct ww_acquire_ctx *ctx); /* nothing may be held under it any more */

/*
 * What a fence stands for; a wait for one class waits for all before it as well.
 *
 * KERNEL	a move: until it is signalled the bytes are not there. Waited for on every map, by everybody.
 * WRITE	work that writes: waited for by who reads or writes in order with others
 * READ		work that reads: waited for by who writes in order with others
 * BOOKKEEP	orders nothing, but the memory is in use: waited for before it is taken away. Importers put
 *		here what they cannot stop inside invalidate_mappings.
 */
enum dma_resv_usage {
	DMA_RESV_USAGE_KERNEL,
	DMA_RESV_USAGE_WRITE,
	DMA_RESV_USAGE_READ,
	DMA_RESV_USAGE_BOOKKEEP,
};

struct dma_resv_fence {
	struct dma_fence *fence;
	enum dma_resv_usage usage;
};

struct dma_resv {
	struct fl_mutex lock; /* LOCK_LEAF: the words below, never held over anything */
	pthread_cond_t freed;
	bool held;
	pthread_t holder;
	struct ww_acquire_ctx *ctx; /* of the holder, or NULL */
	unsigned tickets, served; /* of the queue */
	struct fl_mutex order;	    /* never locked: the holder's mark in the check of the lock order */
	struct dma_resv_fence *fences;
	unsigned num_fences, max_fences;
	unsigned reserved; /* places that were asked for and not used yet; by the holder */
};

void dma_resv_init(struct dma_resv *obj);
void dma_resv_fini(struct dma_resv *obj); /* not locked; drops its fences */

/*
 * ctx NULL: alone, waits as long as it takes, 0. With a context: 0; -EDEADLK: back off, see above;
 * -EALREADY: held under this context.
 */
int dma_resv_lock(struct dma_resv *obj, struct ww_acquire_ctx *ctx);
/* after -EDEADLK, when all else was given back: waits however long */
void dma_resv_lock_slow(struct dma_resv *obj, struct ww_acquire_ctx *ctx);
/* never waits, so may be tried with any lock held; not under a context */
bool dma_resv_trylock(struct dma_resv *obj);
void dma_resv_unlock(struct dma_resv *obj);
bool dma_resv_held(struct dma_resv *obj); /* by this thread */

/* Room for num more fences, until the lock is given up: dma_resv_add_fence() cannot fail then. Lock held. 0 or
 * -ENOMEM. */
int dma_resv_reserve_fences(struct dma_resv *obj, unsigned num);
/* Lock held; takes a reference of its own. Replaces an earlier fence of the same context and usage. */
void dma_resv_add_fence(struct dma_resv *obj, struct dma_fence *fence, enum dma_resv_usage usage);

bool dma_resv_test_signaled(struct dma_resv *obj, enum dma_resv_usage usage);
/*
 * For all fences up to that usage, those that are there now; with the lock or without it.
 * 1: signalled, 0: the time (ms, or DMA_FENCE_FOREVER) was up. Never inside an invalidate_mappings callback.
 */
int dma_resv_wait_timeout(struct dma_resv *obj, enum dma_resv_usage usage, long timeout_ms);

/* Debug builds (-Ddebug_locks=true) abort where this thread does not hold it; others do nothing. */
void dma_resv_assert_held(struct dma_resv *obj);

#endif
