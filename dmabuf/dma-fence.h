/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fence: something that will have happened once, and stays so. A copy engine signals one when a buffer's
 * bytes are at their new place; an importer may add one for access that it cannot stop at once.
 *
 * A fence that was made must be signalled, in bounded time, whatever fails (with an error then), and who
 * has to signal it must not wait for a reservation lock first: others wait for fences under theirs.
 */
#ifndef FL_DMABUF_DMA_FENCE_H
#define FL_DMABUF_DMA_FENCE_H

#include <stdbool.h>
#include <stdint.h>

struct dma_fence;

/* called once, when the fence is signalled, by who signals it; it must not block or wait */
struct dma_fence_cb {
	struct dma_fence_cb *next;
	void (*func)(struct dma_fence *fence, struct dma_fence_cb *cb);
};

/* A context is a timeline: of two fences of one context the one with the higher seqno is signalled later. */
uint64_t dma_fence_context_alloc(unsigned num);

/* not signalled, one reference; NULL: no memory */
struct dma_fence *dma_fence_create(uint64_t context, uint64_t seqno);
struct dma_fence *dma_fence_get(struct dma_fence *fence);
void dma_fence_put(struct dma_fence *fence); /* NULL: nothing */

uint64_t dma_fence_context(const struct dma_fence *fence);
bool dma_fence_is_later(const struct dma_fence *a, const struct dma_fence *b); /* of one context */

/* what went wrong with the work that the fence stands for: negative errno, before it is signalled */
void dma_fence_set_error(struct dma_fence *fence, int error);
/* 0; -EINVAL: it was before */
int dma_fence_signal(struct dma_fence *fence);
bool dma_fence_is_signaled(struct dma_fence *fence);
/* 0: not signalled yet; 1: done; negative: its error */
int dma_fence_get_status(struct dma_fence *fence);

/* 0; -ENOENT: signalled already, and func will not be called */
int dma_fence_add_callback(struct dma_fence *fence, struct dma_fence_cb *cb,
			   void (*func)(struct dma_fence *, struct dma_fence_cb *));
/* true: it was taken off before it ran; false: it has run */
bool dma_fence_remove_callback(struct dma_fence *fence, struct dma_fence_cb *cb);

#define DMA_FENCE_FOREVER (-1l)
/* timeout in ms; 1: signalled, 0: the time was up. Never inside an invalidate_mappings callback. */
int dma_fence_wait_timeout(struct dma_fence *fence, long timeout_ms);

#endif
