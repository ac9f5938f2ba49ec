/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory registration, what all kinds share. A pinned region (umem_pinned.c) holds all of its memory
 * from the start, an on-demand region (umem_odp.c) owns nothing at first, an implicit one
 * (umem_implicit.c) is all of the address space, on demand.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <sys/mman.h>
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

void umem_taken_remember(struct umem_taken *taken, const struct mmu_notifier_range *range)
{
	int untaken = 0;

	if (__atomic_compare_exchange_n(&taken->state, &untaken, 1, false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED)) {
		taken->by = *range;
		__atomic_store_n(&taken->state, 2, __ATOMIC_RELEASE); /* pairs with umem_taken_text() */
	}
}

const char *umem_taken_text(struct umem_taken *taken, uint64_t page, char *text, size_t size)
{
	const struct mmu_notifier_range *by = &taken->by;
	unsigned char resident;
	const char *call;
	Dl_info at;

	if (__atomic_load_n(&taken->state, __ATOMIC_ACQUIRE) != 2) { /* pairs with umem_taken_remember() */
		/* mapped still, or on its way out and the event not here yet? */
		snprintf(text, size, "%#lx by %s", page,
			 mincore((void *)page, PAGE_SIZE, &resident) ? "munmap(), free() or mremap()"
								     : "mprotect(), or by truncating its file");
		return text;
	}
	call = by->by				    ? by->by
	       : by->event == MMU_NOTIFY_CLEAR ? "madvise(MADV_DONTNEED, MADV_FREE or MADV_REMOVE)"
					       : "munmap(), free(), mremap() or mmap() over it";
	if (by->caller && dladdr(by->caller, &at) && at.dli_fname)
		snprintf(text, size, "%#lx-%#lx by %s, called from %s(%s+0x%lx)", by->start, by->end, call,
			 at.dli_fname, at.dli_sname ? at.dli_sname : "",
			 (uintptr_t)by->caller -
				 (uintptr_t)(at.dli_sname ? at.dli_saddr : at.dli_fbase));
	else
		snprintf(text, size, "%#lx-%#lx by %s", by->start, by->end, call);
	return text;
}

int ib_umem_pin(struct ib_umem *umem, uint64_t addr, size_t len)
{
	return umem->ops->pin ? umem->ops->pin(umem, addr, len) : -EINVAL;
}

int ib_umem_unpin(struct ib_umem *umem, uint64_t addr, size_t len)
{
	return umem->ops->unpin ? umem->ops->unpin(umem, addr, len) : -EINVAL;
}
