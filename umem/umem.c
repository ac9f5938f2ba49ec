/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory registration, what all kinds share. A pinned region (umem_pinned.c) holds all of its memory
 * from the start, an on-demand region (umem_odp.c) owns nothing at first. DMA mapping is accounting
 * here, for there is no IOMMU: but whatever is mapped must be unmapped, and the counters show it.
 */
#include <infiniband/verbs.h>
#include "umem/umem.h"
#include "umem/umem_internal.h"

bool umem_writable(unsigned access)
{
	return access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
			 IBV_ACCESS_MW_BIND);
}

void ib_umem_release(struct ib_umem *umem)
{
	umem->ops->release(umem);
}
