/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What counts as a refault: a page of that region, noted within a second, once. 64 Ki pages of a region
 * are all remembered; of more, the last are. And by the counters of a region: taken away and faulted
 * again counts, faulted again after more than a second does not, nor does a page that never went.
 */
#include "tests/umem/umemtest.h"
#include "umem/refault.h"

#define PLACES 65536u

static void table(void)
{
	uint32_t t = UINT32_MAX - 300; /* the clock's 32 bits of milliseconds wrap */
	unsigned lost = 0;

	CHECK(!refault_any(t) && !refault_take(1, 5, t));
	refault_note(1, 5, t);
	CHECK(refault_any(t + 999) && !refault_any(t + 1000));
	CHECK(!refault_take(2, 5, t) && !refault_take(1, 6, t) && !refault_take(1, 5 + PLACES, t));
	CHECK(refault_take(1, 5, t + 999));
	CHECK(!refault_take(1, 5, t + 999));
	refault_note(1, 5, t);
	CHECK(!refault_take(1, 5, t + 1000));

	for (uint64_t i = 0; i < PLACES; i++)
		refault_note(3, 1000 + i, t);
	for (uint64_t i = 0; i < PLACES; i++)
		CHECK(refault_take(3, 1000 + i, t));
	for (uint64_t i = 0; i < 2 * PLACES; i++)
		refault_note(3, i, t);
	for (uint64_t i = 0; i < 2 * PLACES; i++)
		lost += !refault_take(3, i, t);
	CHECK(lost == PLACES);
}

static void counters(void)
{
	struct faultline_mr mr = {0};
	char *m = anon(8 * P);
	struct ib_umem_odp *odp = odp_get(m, 8 * P);

	if (!odp->notifier.watched)
		SKIP("no userfaultfd here: nothing is invalidated");
	odp->umem.stat = &mr;
	CHECK(fault(odp, m, 4 * P, UMEM_FAULT_WRITE) == 4);
	CHECK(mr.page_refaults == 0 && mr.page_faults_minor == 1 && mr.page_faults_major == 0);
	CHECK(!madvise(m, 3 * P, MADV_DONTNEED));
	/* pages 0 to 2 went, 3 is there, 4 to 7 never were */
	CHECK(fault(odp, m + P, 7 * P, UMEM_FAULT_WRITE) == 6);
	CHECK(mr.page_refaults == 2 && mr.page_invalidations == 3);
	CHECK(cnt(FL_CNT_page_refaults) == 2);
	usleep(1100000);
	CHECK(fault(odp, m, P, UMEM_FAULT_WRITE) == 1);
	CHECK(mr.page_refaults == 2);
	/* what prefetch brings back is no fault */
	CHECK(!madvise(m, 3 * P, MADV_DONTNEED));
	CHECK(fault(odp, m, 3 * P, UMEM_FAULT_WRITE | UMEM_FAULT_PREFETCH) == 3);
	CHECK(mr.page_refaults == 2 && mr.page_prefetch == 3 && mr.page_faults_minor == 3);
	CHECK(mr.dma_maps == 14 && mr.dma_unmaps == 6 && mr.mapped_pages == 8);
	ib_umem_release(&odp->umem);
	CHECK(mr.dma_maps == mr.dma_unmaps);
}

int main(void)
{
	umem_start();
	table();
	counters();
	return 0;
}
