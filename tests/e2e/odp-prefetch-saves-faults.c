/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pages that fault while cold memory is written in messages of 4 and of 64 KiB: all without prefetch, none after a
 * synchronous one, and none of those that an asynchronous one running ahead has brought. Argument: MiB (16).
 */
#include <faultline/odp.h>
#include <sched.h>
#include "rc.h"

static struct rc_side a, b;
static uint8_t *src;
static struct ibv_mr *src_mr;

enum how { NONE, ASYNC, SYNC };

static uint64_t faults(size_t size, uint32_t step, enum how how)
{
	uint8_t *m = rc_map(size);
	struct ibv_mr *mr = rc_reg(&b, m, size, ALL_ACCESS | ODP);
	const size_t ahead = 1 << 20;
	struct faultline_mr_counters c;

	madvise(m, size, MADV_NOHUGEPAGE);
	for (size_t off = 0; off < size; off += step) {
		if (how == ASYNC && off % ahead == 0) {
			struct ibv_sge sge = {.addr = (uintptr_t)m + off, .length = ahead, .lkey = mr->lkey};

			if (off + 2 * ahead <= size)
				sge.length = 2 * ahead;
			CHECK(!ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge, 1), "advise");
			/* the application computes something, and the prefetch is done */
			for (double end = rc_now() + 5; rc_now() < end; sched_yield()) {
				CHECK(!faultline_mr_counters(mr, &c), "counters");
				if (c.mapped_pages * PAGE >= off + sge.length)
					break;
			}
		} else if (how == SYNC && off == 0) {
			struct ibv_sge sge = {.addr = (uintptr_t)m, .length = (uint32_t)size, .lkey = mr->lkey};

			CHECK(!ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge,
					     1), "advise");
		}
		CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)src, step, src_mr->lkey, (uintptr_t)m + off, mr->rkey),
		      "post");
		rc_expect(&a, IBV_WC_SUCCESS);
		CHECK(!memcmp(m + off, src, step), "data");
	}
	CHECK(!faultline_mr_counters(mr, &c), "counters");
	CHECK(c.page_faults + c.page_prefetch == size / PAGE, "%lu pages faulted and %lu prefetched of %zu",
	      c.page_faults, c.page_prefetch, size / PAGE);
	CHECK(!ibv_dereg_mr(mr), "dereg");
	munmap(m, size);
	return c.page_faults;
}

int main(int argc, char **argv)
{
	static const uint32_t steps[] = {4096, 65536};
	size_t size = (argc > 1 ? strtoul(argv[1], NULL, 10) : 16) << 20;

	rc_main(argc, argv);
	rc_open(&a);
	rc_open(&b);
	src = rc_map(65536);
	rc_fill(src, 65536, 0, 1);
	src_mr = rc_reg(&a, src, 65536, ALL_ACCESS);
	rc_pair(&a, &b, &rc_default);
	for (int i = 0; i < 2; i++) {
		uint64_t n[3];

		for (enum how how = NONE; how <= SYNC; how++)
			n[how] = faults(size, steps[i], how);
		printf("messages of %u: per GiB %lu pages fault without prefetch, %lu with one ahead, %lu after one\n",
		       steps[i], n[NONE] * (1024ul << 20) / size, n[ASYNC] * (1024ul << 20) / size,
		       n[SYNC] * (1024ul << 20) / size);
		CHECK(n[NONE] == size / PAGE, "%lu pages faulted without prefetch of %zu", n[NONE], size / PAGE);
		CHECK(n[SYNC] == 0, "%lu pages faulted after a synchronous prefetch", n[SYNC]);
		CHECK(n[ASYNC] * 10 <= n[NONE], "%lu pages faulted behind an asynchronous prefetch", n[ASYNC]);
	}
	CHECK(!ibv_dereg_mr(src_mr), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
