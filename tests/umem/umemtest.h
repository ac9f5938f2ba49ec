/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef FL_TESTS_UMEMTEST_H
#define FL_TESTS_UMEMTEST_H

#include <infiniband/verbs.h>
#include "tests/mm/mmtest.h"
#include "umem/umem.h"

#define KEY 0x1234u

static struct seg seg;
static struct umem_device dev;

static inline void umem_start(void)
{
	mm_start("auto");
	CHECK(!seg_create(&seg));
	dma_init(&seg);
	dev.seg = &seg;
	dev.stat = &seg.s->device[0];
}

static inline uint64_t cnt(enum faultline_counter c)
{
	return __atomic_load_n(&dev.stat->counter[c], __ATOMIC_RELAXED);
}

static inline struct ib_umem_odp *odp_get(void *at, size_t n)
{
	struct ib_umem *u;

	CHECK(!ib_umem_odp_get(&dev, (uintptr_t)at, n, IBV_ACCESS_LOCAL_WRITE, &u));
	return to_ib_umem_odp(u);
}

static inline int fault(struct ib_umem_odp *odp, void *at, size_t n, unsigned flags)
{
	int ret = ib_umem_odp_map_dma_and_lock(odp, (uintptr_t)at, n, flags);

	if (ret >= 0)
		ib_umem_odp_unlock(odp);
	return ret;
}

/* What the device does: announce, look, copy; 0, 1 for a page fault, -1 for a copy that failed. */
static inline int dev_access(struct ib_umem_odp *odp, void *at, void *buf, size_t n, bool write)
{
	struct faultline_hazard *h = dma_begin((uintptr_t)at, (uintptr_t)at + n, KEY);
	int ret = 1;

	if (ib_umem_odp_present(odp, (uintptr_t)at, n, write))
		ret = copy_guarded(write ? at : buf, write ? buf : at, n) ? -1 : 0;
	dma_end(h);
	return ret;
}

#endif
