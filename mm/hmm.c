/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hmm_range_fault(): makes the CPU's tables hold a range, so that the device's may.
 *
 * The order matters. Populate first, then have what is mapped watched where it may be new, then look
 * whether an invalidation came between. What was mapped into a hole before the populate is watched
 * before the caller enters it into a table; what goes away after that sends an event.
 */
#include <errno.h>
#include "mm/mm_internal.h"

#define POPULATE_TRIES 4

/*
 * Memory that a userfaultfd could not watch though it watches other memory is as a rule another
 * userfaultfd's: its pages come when a pager of the application brings them, which may be long.
 */
static bool waits_for_pager(const struct hmm_range *range)
{
	struct mmu_interval_notifier *mni = range->notifier;

	if (!uffd_runs())
		return false;
	if (mni->ops->lazy ? notifier_watches(mni, range->start, range->end)
			   : __atomic_load_n(&mni->watched, __ATOMIC_RELAXED))
		return false;
	return vma_absent(range->start, range->end);
}

static bool would_sleep(const struct hmm_range *range)
{
	struct vma v;
	unsigned unmaps = notifier_known(range->notifier, &v);
	bool yes = vma_would_sleep(range->start, range->end, &v);

	notifier_knows(range->notifier, &v, unmaps);
	return yes;
}

/* as where nothing is mapped: what is before it comes, and it is what failed */
static int no_pages(struct hmm_range *range, uint64_t from)
{
	uint64_t failed = 0;

	if (from > range->start && mm_populate(range->start, from, range->write, &failed) == -EFAULT)
		from = failed;
	range->start = from;
	return -EFAULT;
}

int hmm_range_fault(struct hmm_range *range)
{
	uint64_t device;
	bool touched;
	int ret = 0;

	if (mmu_interval_read_retry(range->notifier, range->notifier_seq))
		return -EBUSY;
	if (vma_device(range->start, range->end, &device))
		return no_pages(range, device);
	range->major = would_sleep(range) || waits_for_pager(range);
	if (range->nosleep && range->major)
		return -EAGAIN;
	/*
	 * What must come from swap is brought as the program would: at a control group's limit there are kernels
	 * (6.18) that kill the process when madvise() does it. What cannot be had is the populate's to say.
	 */
	touched = range->major && !mm_touch(range->start, range->end, range->write);
	for (int i = 0; !touched && i < POPULATE_TRIES; i++) {
		uint64_t failed = 0;

		ret = mm_populate(range->start, range->end, range->write, &failed);
		if (ret == -EFAULT)
			range->start = failed;
		if (ret || !failed)
			break;
		ret = -EBUSY; /* a page was missing and is there now: somebody maps as we look */
	}
	if (ret)
		return ret;
	/* a page that has gone again is for the sequence to tell */
	if (range->touch && range->write && !touched)
		mm_touch(range->start, range->end, true);
	ret = notifier_watch_again(range->notifier, range->start, range->end);
	if (ret)
		return ret;
	return mmu_interval_read_retry(range->notifier, range->notifier_seq) ? -EBUSY : 0;
}
