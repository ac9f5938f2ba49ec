/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Places far apart are touched through an implicit region, each a child of its own, and unmapped: there are no
 * children then. Argument: how many places (10000).
 */
#include <unistd.h>
#include "counters.h"
#include "rc.h"

#define STRIDE (1ul << 30)

static struct rc_side a, b;

static void reach(uint8_t *from, struct ibv_mr *from_mr, uint8_t *at, struct ibv_mr *all, uint64_t i)
{
	CHECK(mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at,
	      "mmap: %m");
	memcpy(from, &i, 8);
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)from, 8, from_mr->lkey, (uintptr_t)at + 8, all->rkey), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(!memcmp(at + 8, &i, 8), "data");
}

int main(int argc, char **argv)
{
	uint64_t places = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
	uint8_t *base, *from;
	double n = 0;

	rc_main(argc, argv);
	rc_open(&a);
	rc_open(&b);
	struct ibv_mr *all = ibv_reg_mr(b.pd, NULL, SIZE_MAX, ALL_ACCESS | ODP);

	if (!all)
		rc_skip("this device has no implicit regions");
	from = rc_map(PAGE);
	struct ibv_mr *from_mr = rc_reg(&a, from, PAGE, ALL_ACCESS);

	base = mmap(NULL, places * STRIDE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		rc_skip("no address space for %lu places: %s", places, strerror(errno));
	munmap(base, places * STRIDE);
	rc_pair(&a, &b, &rc_default);
	for (uint64_t i = 0; i < places; i++)
		reach(from, from_mr, base + i * STRIDE, all, i);
	n = counter_of_mr(all->lkey, "children");
	CHECK(n == (double)places, "%.0f children of %lu places", n, places);
	for (uint64_t i = 0; i < places; i++)
		munmap(base + i * STRIDE, PAGE);
	for (int wait = 0; wait < 100 && (n = counter_of_mr(all->lkey, "children")); wait++)
		usleep(50000);
	CHECK(n == 0, "%.0f children are left of %lu", n, places);
	CHECK(counter_of_mr(all->lkey, "mapped_pages") == 0, "pages are mapped still");
	CHECK(!ibv_dereg_mr(all) && !ibv_dereg_mr(from_mr), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
