/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * DMA mapping. The device uses the process's addresses, so a page's DMA address is its own and mapping is
 * accounting: every map has its unmap, and the counters show it. What an IOMMU can do to a driver can be
 * had all the same: an aperture of so many pages, which runs out, and recovers as others unmap.
 */
#include <errno.h>
#include "umem/umem.h"
#include "umem/umem_internal.h"
#include "util/log.h"

int ib_dma_map_pages(struct umem_device *dev, uint64_t n)
{
	uint64_t mapped = __atomic_fetch_add(&dev->dma_mapped, n, __ATOMIC_RELAXED);

	if (dev->dma_aperture && (n > dev->dma_aperture || mapped > dev->dma_aperture - n)) {
		__atomic_fetch_sub(&dev->dma_mapped, n, __ATOMIC_RELAXED);
		fl_warn_once("the IOMMU's aperture (setting 'iommu_aperture', %llu KiB) is used up: what needs "
			     "more fails, until other memory is unmapped or deregistered",
			     (unsigned long long)dev->dma_aperture * (PAGE_SIZE / 1024));
		return -ENOMEM;
	}
	cnt_add(dev->stat, FL_CNT_dma_maps, n);
	return 0;
}

void ib_dma_unmap_pages(struct umem_device *dev, uint64_t n)
{
	__atomic_fetch_sub(&dev->dma_mapped, n, __ATOMIC_RELAXED);
	cnt_add(dev->stat, FL_CNT_dma_unmaps, n);
}

uint64_t ib_dma_mapped(const struct umem_device *dev)
{
	return __atomic_load_n(&dev->dma_mapped, __ATOMIC_RELAXED);
}
