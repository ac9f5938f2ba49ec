/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fault-around. Who goes through a region in order by small accesses would fault on each page of it, though
 * the CPU has them all. From the third fault that begins where the one before ended, what follows comes
 * along: 64 KiB, twice as much each time, up to 2 MiB (a huge page, which the CPU has as a whole). Only
 * what the CPU has: nothing is allocated, read or waited for on a guess.
 */
#include "umem/umem.h"
#include "umem/umem_internal.h"

#define IN_ORDER  2
#define MIN_BYTES (64ull << 10)
#define MAX_BYTES (2ull << 20)

static uint64_t window(unsigned run)
{
	uint64_t bytes;

	if (run < IN_ORDER)
		return 0;
	run -= IN_ORDER;
	bytes = run < 8 ? MIN_BYTES << run : MAX_BYTES;
	return bytes < MAX_BYTES ? bytes : MAX_BYTES;
}

void umem_odp_around(struct ib_umem_odp *odp, uint64_t addr, size_t len, unsigned flags)
{
	uint64_t start = addr & PAGE_MASK, end = ((addr + len - 1) & PAGE_MASK) + PAGE_SIZE, from, to;
	uint64_t last = odp->umem.address + odp->umem.length, limit;
	unsigned run = 0;

	/* hints: two threads that fault at once may spoil them for each other */
	if (__atomic_load_n(&odp->around_next, __ATOMIC_RELAXED) == start)
		run = __atomic_load_n(&odp->around_run, __ATOMIC_RELAXED) + 1;
	__atomic_store_n(&odp->around_run, run, __ATOMIC_RELAXED);
	limit = end + window(run);
	limit = limit < last ? limit : last;
	if (end < limit && mm_next_present(end, (limit + PAGE_SIZE - 1) & PAGE_MASK, &from, &to) && from == end) {
		to = to < last ? to : last;
		if (ib_umem_odp_map_dma_and_lock(odp, end, to - end,
						 (flags & UMEM_FAULT_WRITE) | UMEM_FAULT_NOSLEEP |
							 UMEM_FAULT_AROUND) >= 0) {
			ib_umem_odp_unlock(odp);
			end = to;
		}
	}
	__atomic_store_n(&odp->around_next, (end + PAGE_SIZE - 1) & PAGE_MASK, __ATOMIC_RELAXED);
}
