/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PREFETCH_NO_FAULT maps for the device what the CPU has, and that alone: nothing becomes resident, and what was
 * mapped does not fault any more; up to where addresses end.
 */
#include <faultline/odp.h>
#include "rc.h"

#define PAGES 64ul

static struct rc_side a, b;

int main(int argc, char **argv)
{
	struct faultline_mr_counters c;
	unsigned char resident[PAGES];
	struct ibv_sge sge;

	rc_main(argc, argv);
	rc_open(&a);
	rc_open(&b);
	rc_pair(&a, &b, &rc_default);
	uint8_t *m = rc_map(PAGES * PAGE), *src = rc_map(PAGE);
	struct ibv_mr *mr = rc_reg(&b, m, PAGES * PAGE, ALL_ACCESS | ODP), *src_mr = rc_reg(&a, src, PAGE, ALL_ACCESS);

	madvise(m, PAGES * PAGE, MADV_NOHUGEPAGE);
	for (uint64_t i = 0; i < PAGES; i += 3)
		m[i * PAGE] = 1;
	sge = (struct ibv_sge){.addr = (uintptr_t)m, .length = PAGES * PAGE, .lkey = mr->lkey};
	CHECK(!ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), "advise");
	CHECK(!mincore(m, PAGES * PAGE, resident), "mincore");
	for (uint64_t i = 0; i < PAGES; i++)
		CHECK((resident[i] & 1) == !(i % 3), "page %lu is %sresident", i, resident[i] & 1 ? "" : "not ");
	CHECK(!faultline_mr_counters(mr, &c), "counters");
	CHECK(c.mapped_pages == (PAGES + 2) / 3 && c.page_prefetch == c.mapped_pages && !c.page_faults,
	      "%lu pages mapped, %lu prefetched, %lu faulted", c.mapped_pages, c.page_prefetch, c.page_faults);
	for (uint64_t i = 0; i < PAGES; i++) {
		CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)src, 8, src_mr->lkey, (uintptr_t)m + i * PAGE, mr->rkey),
		      "post");
		rc_expect(&a, IBV_WC_SUCCESS);
		CHECK(src[0] == !(i % 3), "data");
	}
	CHECK(!faultline_mr_counters(mr, &c), "counters");
	CHECK(c.page_faults == PAGES - (PAGES + 2) / 3, "%lu pages faulted", c.page_faults);
	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(src_mr), "dereg");

	/* all of the address space, up to its very end: nothing is there, and that is soon found out */
	mr = rc_reg(&b, NULL, SIZE_MAX, ALL_ACCESS | ODP);
	sge = (struct ibv_sge){.addr = -(2ul << 20), .length = (2u << 20) - 1, .lkey = mr->lkey};
	CHECK(!ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), "advise");
	CHECK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1) == EFAULT, "advise");
	CHECK(!ibv_dereg_mr(mr), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
