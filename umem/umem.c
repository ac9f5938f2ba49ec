/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory registration. A pinned region is faulted in, pinned and DMA-mapped as a whole when it is
 * registered, and given back as a whole when the last key is gone. An on-demand region (umem_odp.c)
 * owns nothing at first. DMA mapping is accounting here, for there is no IOMMU: but whatever is mapped
 * must be unmapped, and the counters show it.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include "umem/umem.h"
#include "umem/umem_internal.h"

bool umem_writable(unsigned access)
{
	return access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
			 IBV_ACCESS_MW_BIND);
}

int ib_umem_get(struct umem_device *dev, uint64_t addr, size_t size, unsigned access,
		struct ib_umem **out)
{
	struct ib_umem *umem;
	int err;

	/* also when only the end, rounded up to a page, wraps */
	if (!size || addr + size < addr || ((addr + size + PAGE_SIZE - 1) & PAGE_MASK) < addr + size)
		return -EINVAL;
	umem = calloc(1, sizeof(*umem));
	if (!umem)
		return -ENOMEM;
	umem->dev = dev;
	umem->address = addr;
	umem->length = size;
	umem->writable = umem_writable(access);
	umem->npages = (((addr + size + PAGE_SIZE - 1) & PAGE_MASK) - (addr & PAGE_MASK)) >> PAGE_SHIFT;
	err = pin_user_pages(addr, size, umem->writable, &umem->pin);
	if (err) {
		free(umem);
		return err;
	}
	cnt_add(dev->stat, FL_CNT_pinned_pages, umem->npages);
	cnt_add(dev->stat, FL_CNT_dma_maps, umem->npages);
	*out = umem;
	return 0;
}

void ib_umem_release(struct ib_umem *umem)
{
	if (umem->is_odp) {
		umem_odp_release(to_ib_umem_odp(umem));
		return;
	}
	cnt_add(umem->dev->stat, FL_CNT_dma_unmaps, umem->npages);
	unpin_user_pages(umem->pin);
	__atomic_fetch_sub(&umem->dev->stat->counter[FL_CNT_pinned_pages], umem->npages, __ATOMIC_RELAXED);
	free(umem);
}
