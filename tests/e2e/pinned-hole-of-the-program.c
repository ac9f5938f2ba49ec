/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program unmaps a part of its memory to put something else there, and registers other memory, pinned, for the
 * first time in between. What the device maps for itself at that time is not in the hole: the program maps over
 * it by MAP_FIXED, and after that all works as before.
 */
#include "rc.h"

#define HOLE (8ul << 20)

/* the lowest mapping of [start, end); NULL: there is none */
static const char *mapped_in(uint64_t start, uint64_t end)
{
	static char line[512];
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	bool found = false;

	CHECK(f, "/proc/self/maps");
	while (!found && fgets(line, sizeof(line), f))
		found = sscanf(line, "%lx-%lx", &from, &to) == 2 && from < end && to > start;
	fclose(f);
	return found ? line : NULL;
}

/* what is free above the hole is filled, large pieces first: new mappings of whatever size go to the hole */
static void fill_above(uint8_t *hole)
{
	for (size_t size = HOLE / 8; size >= PAGE; size /= 8)
		for (int i = 0;; i++) {
			uint8_t *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			CHECK(p != MAP_FAILED, "mmap");
			if (p >= hole && p < hole + HOLE) {
				munmap(p, size);
				break;
			}
			if (p < hole || i == 10000)
				rc_skip("new mappings do not go to the hole here");
		}
}

int main(int argc, char **argv)
{
	struct rc_side a = {0}, b = {0};
	/* where the kernel puts what says no place: rc_map() does say one */
	uint8_t *m = mmap(NULL, 2 * HOLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *hole = m + HOLE / 2, *src = rc_map(64 * PAGE), *dst;
	struct ibv_mr *from, *to;
	const char *there;

	CHECK(m != MAP_FAILED, "mmap");
	/* the program's own use of stdio maps nothing later */
	CHECK(mapped_in((uintptr_t)m, (uintptr_t)m + 1), "own memory");
	rc_open(&a);
	rc_open(&b);
	rc_pair(&a, &b, &rc_default);
	CHECK(!munmap(hole, HOLE), "munmap");
	fill_above(hole);

	from = rc_reg(&a, src, 64 * PAGE, ALL_ACCESS);
	there = mapped_in((uintptr_t)hole, (uintptr_t)hole + HOLE);
	CHECK(!there, "in the program's hole: %s", there);
	dst = mmap(hole, HOLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(dst == hole, "MAP_FIXED");
	memset(dst, 0xaa, HOLE);

	to = rc_reg(&b, dst, HOLE, ALL_ACCESS);
	rc_fill(src, 64 * PAGE, 0, 5);
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)src, 64 * PAGE, from->lkey, (uintptr_t)dst + 123, to->rkey),
	      "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(rc_differs(dst + 123, 64 * PAGE, 0, 5) == UINT64_MAX, "wrong bytes");
	CHECK(!ibv_dereg_mr(from) && !ibv_dereg_mr(to), "dereg");
	/* what was pinned reaches its pages by the ring when they are taken away */
	to = rc_reg(&b, dst, HOLE, ALL_ACCESS);
	from = rc_reg(&a, src, 64 * PAGE, ALL_ACCESS);
	CHECK(!madvise(dst, HOLE, MADV_DONTNEED), "madvise");
	CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)src, 64 * PAGE, from->lkey, (uintptr_t)dst + HOLE - 64 * PAGE,
		       to->rkey),
	      "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	for (size_t i = 0; i < 64 * PAGE; i++)
		CHECK(src[i] == 0xaa, "byte %zu: %#x", i, src[i]);
	CHECK(!ibv_dereg_mr(from) && !ibv_dereg_mr(to), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
