/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fault-around: faults in order bring along what the CPU has behind them, and only that; faults at random
 * bring nothing, and neither allocates memory.
 */
#include "tests/umem/umemtest.h"

#define PAGES 4096ul

static size_t resident(char *m)
{
	static unsigned char in[PAGES];
	size_t n = 0;

	CHECK(!mincore(m, PAGES * P, in));
	for (size_t i = 0; i < PAGES; i++)
		n += in[i] & 1;
	return n;
}

static struct ib_umem_odp *region(char **m, size_t touched)
{
	*m = mmap(NULL, PAGES * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(*m != MAP_FAILED);
	madvise(*m, PAGES * P, MADV_NOHUGEPAGE);
	memset(*m, 1, touched * P);
	return odp_get(*m, PAGES * P);
}

/* one page a fault, where the device would fault; returns how many there were up to page n */
static unsigned walk(struct ib_umem_odp *odp, char *m, size_t n)
{
	unsigned faults = 0;

	for (size_t i = 0; i < n; i++) {
		if (ib_umem_odp_present(odp, (uintptr_t)m + i * P, 64, true))
			continue;
		CHECK(odp->umem.ops->fault(&odp->umem, (uintptr_t)m + i * P, 64, UMEM_FAULT_WRITE) >= 0);
		CHECK(ib_umem_odp_present(odp, (uintptr_t)m + i * P, 64, true));
		faults++;
	}
	return faults;
}

int main(void)
{
	struct ib_umem_odp *odp;
	unsigned seed = 5, n;
	uint64_t events;
	char *m;

	umem_start();

	/* half of it is there: few faults for that half, and the other half is not brought in on a guess */
	odp = region(&m, PAGES / 2);
	n = walk(odp, m, PAGES / 2);
	events = cnt(FL_CNT_page_faults_minor) + cnt(FL_CNT_page_faults_major);
	fprintf(stderr, "%lu pages in order: %u faults\n", PAGES / 2, n);
	CHECK(n < PAGES / 2 / 50);
	CHECK(events == n);
	CHECK(cnt(FL_CNT_page_faults) == PAGES / 2); /* those that came along are pages of a fault as well */
	CHECK(odp->mapped == PAGES / 2);
	CHECK(resident(m) == PAGES / 2);
	n = walk(odp, m, PAGES / 2 + 100);
	CHECK(n == 100 && odp->mapped == PAGES / 2 + 100 && resident(m) == PAGES / 2 + 100);
	ib_umem_release(&odp->umem);
	CHECK(!munmap(m, PAGES * P));

	/* at random nothing comes along */
	odp = region(&m, PAGES);
	for (int i = 0; i < 200; i++) {
		char *at = m + 2 * P * ((size_t)rand_r(&seed) % (PAGES / 2));

		CHECK(odp->umem.ops->fault(&odp->umem, (uintptr_t)at, 64, 0) >= 0);
	}
	CHECK(odp->mapped <= 200);
	ib_umem_release(&odp->umem);

	/* at a region's end not beyond it, also where that is amid a page */
	odp = odp_get(m + P, 8 * P + 100);
	n = walk(odp, m + P, 8);
	CHECK(n == 3 && odp->mapped == 9);
	ib_umem_release(&odp->umem);
	CHECK(cnt(FL_CNT_dma_maps) == cnt(FL_CNT_dma_unmaps));
	return 0;
}
