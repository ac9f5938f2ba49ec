/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reservations. The lock is a word under a leaf mutex with a condition to wait on, since who waits has to look
 * again whenever the holder changes: whether it may wait at all depends on who holds it. Under wait-die an
 * older context waits for a younger one, a younger never for an older while it holds something itself, so all
 * waits of those who hold go from older to younger, and there is no circle. Who holds one without a context
 * takes no second, so it waits for nobody and can be waited for by all.
 *
 * Who comes with nothing in hand queues, or one that takes it again and again (an importer's copies) would keep the
 * exporter's moves waiting. Who holds something does not: it would wait for those before it, whatever their age.
 *
 * For util/lock.h a context counts as one lock, from its first reservation to its last.
 */
#include "dmabuf/dma-resv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dmabuf/rules.h"

static uint64_t next_stamp = 1;

void ww_acquire_init(struct ww_acquire_ctx *ctx)
{
	ctx->stamp = __atomic_fetch_add(&next_stamp, 1, __ATOMIC_RELAXED);
	ctx->acquired = 0;
	fl_mutex_init(&ctx->order, LOCK_DMA_RESV);
}

void ww_acquire_fini(struct ww_acquire_ctx *ctx)
{
	DMA_BUF_RULE(1, !ctx->acquired, "an acquire context ends that still holds reservations");
	fl_mutex_destroy(&ctx->order);
}

void dma_resv_init(struct dma_resv *obj)
{
	memset(obj, 0, sizeof(*obj));
	fl_mutex_init(&obj->lock, LOCK_LEAF);
	fl_mutex_init(&obj->order, LOCK_DMA_RESV);
	pthread_cond_init(&obj->freed, NULL);
}

void dma_resv_fini(struct dma_resv *obj)
{
	for (unsigned i = 0; i < obj->num_fences; i++)
		dma_fence_put(obj->fences[i].fence);
	free(obj->fences);
	pthread_cond_destroy(&obj->freed);
	fl_mutex_destroy(&obj->order);
	fl_mutex_destroy(&obj->lock);
}

/* obj->lock is held, and obj is free */
static void take(struct dma_resv *obj, struct ww_acquire_ctx *ctx)
{
	obj->held = true;
	obj->holder = pthread_self();
	obj->ctx = ctx;
}

/* what fl_lock() does besides locking; with obj->lock given back, since that is a lock of a later rank */
static void mark(struct dma_resv *obj, struct ww_acquire_ctx *ctx)
{
	fl_locks_held++;
	if (!ctx)
		fl_lock_acquired(&obj->order);
	else if (!ctx->acquired++)
		fl_lock_acquired(&ctx->order);
}

int dma_resv_lock(struct dma_resv *obj, struct ww_acquire_ctx *ctx)
{
	bool queues = !ctx || !ctx->acquired;
	unsigned ticket;
	int err = 0;

	/* a second one is allowed within a context, and only there */
	fl_lock_may_take(queues ? LOCK_DMA_RESV : LOCK_DMA_RESV + 1);
	fl_lock(&obj->lock);
	ticket = obj->tickets;
	obj->tickets += queues;
	while ((obj->held || (queues && ticket != obj->served)) && !err) {
		if (ctx && obj->ctx == ctx)
			err = -EALREADY;
		else if (ctx && ctx->acquired && obj->ctx && obj->ctx->stamp < ctx->stamp)
			err = -EDEADLK;
		else
			fl_cond_wait(&obj->freed, &obj->lock);
	}
	obj->served += queues; /* none of the queue leaves it without */
	if (!err)
		take(obj, ctx);
	fl_unlock(&obj->lock);
	if (!err)
		mark(obj, ctx);
	return err;
}

void dma_resv_lock_slow(struct dma_resv *obj, struct ww_acquire_ctx *ctx)
{
	DMA_BUF_RULE(1, !ctx->acquired, "dma_resv_lock_slow() with other reservations held");
	dma_resv_lock(obj, ctx); /* cannot fail for a context that holds nothing */
}

bool dma_resv_trylock(struct dma_resv *obj)
{
	bool got;

	fl_lock(&obj->lock);
	got = !obj->held;
	if (got)
		take(obj, NULL);
	fl_unlock(&obj->lock);
	if (got)
		mark(obj, NULL);
	return got;
}

void dma_resv_unlock(struct dma_resv *obj)
{
	struct ww_acquire_ctx *ctx = obj->ctx; /* only the holder changes it */

	dma_resv_assert_held(obj);
	if (!ctx)
		fl_lock_released(&obj->order);
	else if (!--ctx->acquired)
		fl_lock_released(&ctx->order);
	fl_lock(&obj->lock);
	obj->held = false;
	obj->ctx = NULL;
	obj->reserved = 0;
	/* all of them: each decides anew whether it may wait for who comes next */
	pthread_cond_broadcast(&obj->freed);
	fl_unlock(&obj->lock);
	fl_locks_held--;
}

bool dma_resv_held(struct dma_resv *obj)
{
	bool mine;

	fl_lock(&obj->lock);
	mine = obj->held && pthread_equal(obj->holder, pthread_self());
	fl_unlock(&obj->lock);
	return mine;
}

void dma_resv_assert_held(struct dma_resv *obj)
{
	DMA_BUF_RULE(1, dma_resv_held(obj), "the reservation is not held by this thread");
}

/* takes out those that are signalled, into gone[]; obj->lock is held */
static unsigned prune(struct dma_resv *obj, struct dma_fence **gone, unsigned max)
{
	unsigned n = 0;

	for (unsigned i = 0; i < obj->num_fences && n < max;) {
		if (dma_fence_is_signaled(obj->fences[i].fence)) {
			gone[n++] = obj->fences[i].fence;
			obj->fences[i] = obj->fences[--obj->num_fences];
		} else {
			i++;
		}
	}
	return n;
}

int dma_resv_reserve_fences(struct dma_resv *obj, unsigned num)
{
	struct dma_fence *gone[16];
	struct dma_resv_fence *bigger, *old = NULL;
	unsigned n, max;

	dma_resv_assert_held(obj);
	/* nothing is allocated or freed under a leaf: the memory watcher may need it */
	fl_lock(&obj->lock);
	n = prune(obj, gone, 16);
	obj->reserved += num; /* beside those that a caller up the stack has asked for */
	max = obj->num_fences + obj->reserved;
	fl_unlock(&obj->lock);
	for (unsigned i = 0; i < n; i++)
		dma_fence_put(gone[i]);
	if (max <= obj->max_fences)
		return 0;
	bigger = calloc(max, sizeof(*bigger));
	if (!bigger) {
		obj->reserved -= num;
		return -ENOMEM;
	}
	fl_lock(&obj->lock);
	if (obj->num_fences)
		memcpy(bigger, obj->fences, obj->num_fences * sizeof(*bigger));
	old = obj->fences;
	obj->fences = bigger;
	obj->max_fences = max;
	fl_unlock(&obj->lock);
	free(old);
	return 0;
}

void dma_resv_add_fence(struct dma_resv *obj, struct dma_fence *fence, enum dma_resv_usage usage)
{
	struct dma_fence *old = NULL;
	unsigned i;

	dma_resv_assert_held(obj);
	dma_fence_get(fence);
	fl_lock(&obj->lock);
	for (i = 0; i < obj->num_fences; i++)
		if (obj->fences[i].usage == usage &&
		    dma_fence_context(obj->fences[i].fence) == dma_fence_context(fence) &&
		    dma_fence_is_later(fence, obj->fences[i].fence))
			break;
	if (i < obj->num_fences) {
		old = obj->fences[i].fence;
		obj->fences[i].fence = fence;
	} else if (i < obj->max_fences && obj->reserved) {
		obj->reserved--;
		obj->fences[obj->num_fences++] = (struct dma_resv_fence){fence, usage};
	} else {
		old = fence;
	}
	fl_unlock(&obj->lock);
	DMA_BUF_RULE(1, old != fence, "dma_resv_add_fence() without dma_resv_reserve_fences()");
	if (old == fence) /* no room, by that mistake: to wait here and now is as right */
		dma_fence_wait_timeout(fence, DMA_FENCE_FOREVER);
	dma_fence_put(old);
}

/* one that is not signalled, with a reference, or NULL */
static struct dma_fence *pending(struct dma_resv *obj, enum dma_resv_usage usage)
{
	struct dma_fence *f = NULL;

	fl_lock(&obj->lock);
	for (unsigned i = 0; i < obj->num_fences && !f; i++)
		if (obj->fences[i].usage <= usage && !dma_fence_is_signaled(obj->fences[i].fence))
			f = dma_fence_get(obj->fences[i].fence);
	fl_unlock(&obj->lock);
	return f;
}

bool dma_resv_test_signaled(struct dma_resv *obj, enum dma_resv_usage usage)
{
	struct dma_fence *f = pending(obj, usage);

	dma_fence_put(f);
	return !f;
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int dma_resv_wait_timeout(struct dma_resv *obj, enum dma_resv_usage usage, long timeout_ms)
{
	long end = now_ms() + timeout_ms;
	struct dma_fence *f;

	DMA_BUF_RULE(6, !dma_buf_invalidating, "a wait for fences inside invalidate_mappings");
	while ((f = pending(obj, usage))) {
		long left = timeout_ms < 0 ? DMA_FENCE_FOREVER : end - now_ms();
		int r = dma_fence_wait_timeout(f, timeout_ms >= 0 && left < 0 ? 0 : left);

		dma_fence_put(f);
		if (!r)
			return 0;
	}
	return 1;
}
