/* SPDX-License-Identifier: BSD-2-Clause */
/* How debug builds stop where the contract (dma-buf.h, THE RULES) is broken: inside dmabuf/ only. */
#ifndef FL_DMABUF_RULES_H
#define FL_DMABUF_RULES_H

#include <stdbool.h>

/* callbacks of importers, invalidate_mappings, that this thread is in */
extern __thread unsigned dma_buf_invalidating __attribute__((tls_model("initial-exec")));

#ifdef FL_DEBUG_LOCKS
void dma_buf_rule_check(bool kept, int rule, const char *what);
#define DMA_BUF_RULE(rule, kept, what) dma_buf_rule_check(kept, rule, what)
#else
#define DMA_BUF_RULE(rule, kept, what) ((void)0)
#endif

/* for what is looked for in every build: counts and says it, and debug builds stop */
void dma_buf_rule_broken(int rule, const char *exporter, const char *importer, const char *what);

/* what the process's totals are made of */
enum dma_buf_count {
	DMA_BUF_BUFFERS, DMA_BUF_ATTACHMENTS, DMA_BUF_MAPS, DMA_BUF_PINS, DMA_BUF_MOVES, DMA_BUF_EVICTIONS,
	DMA_BUF_INVALIDATIONS, DMA_BUF_REVOCATIONS, DMA_BUF_FENCE_WAITS, DMA_BUF_RULE_BREAKS,
	DMA_BUF_IMPORTERS_ENDED, DMA_BUF_IMPORTERS_LOST,
	DMA_BUF_COUNT_NUM,
};
void dma_buf_count(enum dma_buf_count what, long n);
void dma_buf_reset_counts(void); /* in the child of a fork */

#endif
