/* SPDX-License-Identifier: BSD-2-Clause */
/* What stops a debug build, and the process's totals, which show what was left behind. */
#include "dmabuf/rules.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dmabuf/dma-buf.h"
#include "util/log.h"

__thread unsigned dma_buf_invalidating;

static uint64_t counts[DMA_BUF_COUNT_NUM];

void dma_buf_count(enum dma_buf_count what, long n)
{
	/* release: who sees that an importer has ended sees what went with it; pairs with dma_buf_totals() */
	__atomic_fetch_add(&counts[what], (uint64_t)n, __ATOMIC_RELEASE);
}

void dma_buf_reset_counts(void)
{
	memset(counts, 0, sizeof(counts));
}

void dma_buf_totals(struct dma_buf_totals *t)
{
#define GET(what) __atomic_load_n(&counts[DMA_BUF_##what], __ATOMIC_ACQUIRE)
	uint64_t ended = GET(IMPORTERS_ENDED), lost = GET(IMPORTERS_LOST); /* before what they had */

	*t = (struct dma_buf_totals){
		.buffers = GET(BUFFERS),
		.attachments = GET(ATTACHMENTS),
		.maps = GET(MAPS),
		.pins = GET(PINS),
		.moves = GET(MOVES),
		.evictions = GET(EVICTIONS),
		.invalidations = GET(INVALIDATIONS),
		.revocations = GET(REVOCATIONS),
		.fence_waits = GET(FENCE_WAITS),
		.rule_breaks = GET(RULE_BREAKS),
		.importers_ended = ended,
		.importers_lost = lost,
	};
#undef GET
}

#ifdef FL_DEBUG_LOCKS
static void __attribute__((noreturn)) stop(int rule, const char *what)
{
	char buf[200];
	int n = snprintf(buf, sizeof(buf), "faultline: dma-buf rule %d: %s\n", rule, what);

	if (write(STDERR_FILENO, buf, (size_t)n) < 0)
		abort();
	abort();
}

void dma_buf_rule_check(bool kept, int rule, const char *what)
{
	if (!kept)
		stop(rule, what);
}
#endif

void dma_buf_rule_broken(int rule, const char *exporter, const char *importer, const char *what)
{
	dma_buf_count(DMA_BUF_RULE_BREAKS, 1);
	fl_err("dma-buf of %s, imported by %s: %s", exporter, importer, what);
#ifdef FL_DEBUG_LOCKS
	stop(rule, what);
#endif
}
