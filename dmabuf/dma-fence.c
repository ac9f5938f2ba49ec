/* SPDX-License-Identifier: BSD-2-Clause */
/* Fences. The lock of one is a leaf: callbacks run under it, so that who takes one off knows it is not running. */
#include "dmabuf/dma-fence.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include "dmabuf/rules.h"
#include "util/lock.h"

struct dma_fence {
	unsigned refs;
	uint64_t context, seqno;
	struct fl_mutex lock; /* LOCK_LEAF: all below */
	pthread_cond_t done;
	bool signaled; /* written under the lock, read without: pairs are release and acquire */
	int error;
	struct dma_fence_cb *cbs;
};

static uint64_t next_context = 1;

uint64_t dma_fence_context_alloc(unsigned num)
{
	return __atomic_fetch_add(&next_context, num, __ATOMIC_RELAXED);
}

struct dma_fence *dma_fence_create(uint64_t context, uint64_t seqno)
{
	struct dma_fence *f = calloc(1, sizeof(*f));
	pthread_condattr_t attr;

	if (!f)
		return NULL;
	f->refs = 1;
	f->context = context;
	f->seqno = seqno;
	fl_mutex_init(&f->lock, LOCK_LEAF);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&f->done, &attr);
	pthread_condattr_destroy(&attr);
	return f;
}

struct dma_fence *dma_fence_get(struct dma_fence *f)
{
	__atomic_fetch_add(&f->refs, 1, __ATOMIC_RELAXED);
	return f;
}

void dma_fence_put(struct dma_fence *f)
{
	/* release and acquire: what others did to it before their put is done before it is freed */
	if (!f || __atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL))
		return;
	pthread_cond_destroy(&f->done);
	fl_mutex_destroy(&f->lock);
	free(f);
}

uint64_t dma_fence_context(const struct dma_fence *f)
{
	return f->context;
}

bool dma_fence_is_later(const struct dma_fence *a, const struct dma_fence *b)
{
	return a->seqno > b->seqno;
}

void dma_fence_set_error(struct dma_fence *f, int error)
{
	fl_lock(&f->lock);
	if (!f->signaled)
		f->error = error;
	fl_unlock(&f->lock);
}

int dma_fence_signal(struct dma_fence *f)
{
	fl_lock(&f->lock);
	if (f->signaled) {
		fl_unlock(&f->lock);
		return -EINVAL;
	}
	/* pairs with dma_fence_is_signaled(): who sees it sees the work that it stands for */
	__atomic_store_n(&f->signaled, true, __ATOMIC_RELEASE);
	while (f->cbs) {
		struct dma_fence_cb *cb = f->cbs;

		f->cbs = cb->next;
		cb->func(f, cb);
	}
	pthread_cond_broadcast(&f->done);
	fl_unlock(&f->lock);
	return 0;
}

bool dma_fence_is_signaled(struct dma_fence *f)
{
	return __atomic_load_n(&f->signaled, __ATOMIC_ACQUIRE); /* pairs with dma_fence_signal() */
}

int dma_fence_get_status(struct dma_fence *f)
{
	int r;

	fl_lock(&f->lock);
	r = f->signaled ? (f->error ? f->error : 1) : 0;
	fl_unlock(&f->lock);
	return r;
}

int dma_fence_add_callback(struct dma_fence *f, struct dma_fence_cb *cb,
			   void (*func)(struct dma_fence *, struct dma_fence_cb *))
{
	int err = -ENOENT;

	fl_lock(&f->lock);
	if (!f->signaled) {
		cb->func = func;
		cb->next = f->cbs;
		f->cbs = cb;
		err = 0;
	}
	fl_unlock(&f->lock);
	return err;
}

bool dma_fence_remove_callback(struct dma_fence *f, struct dma_fence_cb *cb)
{
	bool there = false;

	fl_lock(&f->lock);
	for (struct dma_fence_cb **p = &f->cbs; *p; p = &(*p)->next) {
		if (*p == cb) {
			*p = cb->next;
			there = true;
			break;
		}
	}
	fl_unlock(&f->lock);
	return there;
}

int dma_fence_wait_timeout(struct dma_fence *f, long timeout_ms)
{
	struct timespec until;
	int r = 0;

	DMA_BUF_RULE(6, !dma_buf_invalidating, "a wait for a fence inside invalidate_mappings");
	if (dma_fence_is_signaled(f))
		return 1;
	if (!timeout_ms)
		return 0;
	dma_buf_count(DMA_BUF_FENCE_WAITS, 1);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += timeout_ms % 1000 * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	fl_lock(&f->lock);
	while (!f->signaled && r != ETIMEDOUT)
		r = timeout_ms < 0 ? pthread_cond_wait(&f->done, &f->lock.m)
				   : pthread_cond_timedwait(&f->done, &f->lock.m, &until);
	r = f->signaled;
	fl_unlock(&f->lock);
	return r;
}
