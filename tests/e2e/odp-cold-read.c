/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * READs of memory that neither side has touched, of 1 MiB, 1 MiB and a byte, and 64 MiB: all bytes arrive, and no
 * side enters more pages than there are. Argument: MiB of the last (64).
 */
#include <faultline/odp.h>
#include "rc.h"

#include <unistd.h>

static struct rc_side a, b;

static uint64_t faults(struct ibv_mr *mr)
{
	struct faultline_mr_counters c;

	CHECK(!faultline_mr_counters(mr, &c), "counters");
	return c.page_faults;
}

static void cold(uint32_t len)
{
	const uint64_t pages = (len + PAGE - 1) / PAGE;
	int fd = memfd_create("cold", MFD_CLOEXEC);
	uint8_t *there, *here = rc_map(pages * PAGE), *source;
	struct ibv_mr *from, *to;

	/* data that is there, and not mapped anywhere yet */
	CHECK(fd >= 0 && !ftruncate(fd, (off_t)(pages * PAGE)), "memfd: %m");
	source = rc_map_as(pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	rc_fill(source, len, 0, len);
	there = rc_map_as(pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	from = rc_reg(&b, there, len, ALL_ACCESS | ODP);
	to = rc_reg(&a, here, len, ALL_ACCESS | ODP);
	rc_pair(&a, &b, &rc_default);
	CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)here, len, to->lkey, (uintptr_t)there, from->rkey), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(rc_differs(here, len, 0, len) == UINT64_MAX, "%u bytes: data", len);
	CHECK(faults(from) <= pages && faults(to) <= pages && faults(from) && faults(to),
	      "%u bytes, %lu pages: %lu and %lu faulted", len, pages, faults(from), faults(to));
	CHECK(!ibv_dereg_mr(from) && !ibv_dereg_mr(to), "dereg");
	munmap(source, pages * PAGE);
	munmap(there, pages * PAGE);
	munmap(here, pages * PAGE);
	close(fd);
}

int main(int argc, char **argv)
{
	rc_main(argc, argv);
	rc_open(&a);
	rc_open(&b);
	cold(1 << 20);
	cold((1 << 20) + 1);
	cold((argc > 1 ? (uint32_t)atoi(argv[1]) : 64) << 20);
	rc_close(&a);
	rc_close(&b);
	return 0;
}
