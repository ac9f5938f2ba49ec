/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * <faultline/odp.h> on the device, or on a libibverbs that is not ours: a hot range that does not fault,
 * counters, debug access. Links with -lfaultline as a program would.
 */
#include <errno.h>
#include <faultline/odp.h>
#include <string.h>
#include <sys/mman.h>
#include "tests/native/check.h"

static unsigned resident(void *m, size_t pages)
{
	unsigned char vec[64];
	unsigned n = 0;

	CHECK(!mincore(m, pages * PAGE, vec));
	for (size_t i = 0; i < pages; i++)
		n += vec[i] & 1;
	return n;
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct faultline_mr_counters c;
	struct ibv_context *ctx = list && *list ? ibv_open_device(*list) : NULL;
	struct ibv_pd *pd;
	struct ibv_mr *mr, *pinned, fake;
	char *m, b[100];

	if (argc > 1) { /* without the device: every call says so, and does nothing */
		CHECK(faultline_mr_pin(&fake, &fake, 1) == EOPNOTSUPP && faultline_mr_unpin(&fake, &fake, 1) == EOPNOTSUPP);
		CHECK(faultline_mr_counters(&fake, &c) == EOPNOTSUPP && faultline_mr_read(&fake, b, 0, 1) == EOPNOTSUPP);
		return 0;
	}
	CHECK(ctx);
	pd = ibv_alloc_pd(ctx);
	m = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pd && m != MAP_FAILED);
	/* an iova of its own: pins go by address all the same */
	mr = ibv_reg_mr_iova(pd, m, 16 * PAGE, 0x10000000, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	CHECK(mr && resident(m, 16) == 0);
	CHECK(!faultline_mr_pin(mr, m + 4 * PAGE + 1, 2 * PAGE) && resident(m, 16) == 3);
	CHECK(!faultline_mr_counters(mr, &c) && c.pinned_pages == 3 && c.mapped_pages == 3 && c.page_faults == 0);
	CHECK(faultline_mr_pin(mr, m, 0) == EINVAL && faultline_mr_pin(mr, m + 15 * PAGE, 2 * PAGE) == EFAULT);
	CHECK(faultline_mr_unpin(mr, m, PAGE) == EINVAL);
	CHECK(!faultline_mr_write(mr, 5 * PAGE - 2, "four", 4) && !memcmp(m + 5 * PAGE - 2, "four", 4));
	CHECK(!faultline_mr_read(mr, b, 5 * PAGE - 2, 4) && !memcmp(b, "four", 4));
	CHECK(!faultline_mr_counters(mr, &c) && c.page_faults == 0);
	CHECK(!faultline_mr_write(mr, 9 * PAGE, "cold", 4) && !faultline_mr_counters(mr, &c) && c.page_faults == 1);
	CHECK(faultline_mr_read(mr, b, 16 * PAGE - 1, 2) == EINVAL);
	CHECK(!faultline_mr_unpin(mr, m + 4 * PAGE, 3 * PAGE) && !faultline_mr_counters(mr, &c) && c.pinned_pages == 0);
	CHECK(!munmap(m + 12 * PAGE, PAGE) && faultline_mr_read(mr, b, 12 * PAGE, 1) == EFAULT);
	CHECK(faultline_mr_pin(mr, m + 11 * PAGE, 2 * PAGE) == EFAULT);
	CHECK(!faultline_mr_counters(mr, &c) && c.pinned_pages == 0);
	CHECK(!faultline_mr_pin(mr, m, 2 * PAGE)); /* ends with the region */
	pinned = ibv_reg_mr(pd, m, PAGE, IBV_ACCESS_LOCAL_WRITE);
	CHECK(pinned && faultline_mr_pin(pinned, m, PAGE) == EINVAL && !faultline_mr_write(pinned, 1, "x", 1) && m[1] == 'x');
	CHECK(!faultline_mr_counters(pinned, &c) && c.pinned_pages == 1);
	CHECK(!ibv_dereg_mr(pinned) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx));
	return 0;
}
