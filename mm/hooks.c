/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The source of invalidations that is synchronous: the preload library calls from the application's
 * munmap() and its relatives, before and after the system call (preload/preload.h).
 *
 * Before it, the range is taken from the device's tables and is let go by userfaultfd, so that no event
 * fires and nobody is woken. It stays so: nothing of it is in a table, and what comes into one again
 * by a fault is watched anew before (the subscription's `gaps`). Pages that go from a file by its
 * descriptor go from all its mappings: those in regions are looked for, and no event would tell of them.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>
#include "faultline/segment.h"
#include "mm/mm_internal.h"
#include "preload/preload.h"
#include "util/lock.h"

static pid_t owner; /* in a child that nobody told us of (vfork, a raw clone) we do nothing */
static MM_THREAD bool inside;

/* the end of a System V segment that is mapped at start; 0: there is none */
static uint64_t shm_end(uint64_t start)
{
	struct shmid_ds ds;
	struct vma v;

	if (vma_find(start, &v) || v.start > start || !v.shmem || v.inode > INT32_MAX ||
	    shmctl((int)v.inode, IPC_STAT, &ds))
		return 0;
	return start + ((ds.shm_segsz + PAGE_SIZE - 1) & PAGE_MASK);
}

_Thread_local __attribute__((tls_model("initial-exec"))) struct faultline_hazard *mm_hazard;

static bool amid_access(void)
{
	return mm_hazard && __atomic_load_n(&mm_hazard->start, __ATOMIC_RELAXED) !=
				    __atomic_load_n(&mm_hazard->end, __ATOMIC_RELAXED);
}

/*
 * A call of ours, or of a signal handler over it: the event will come. So also when a handler has
 * interrupted us with a lock held, which may be one that is taken below; but amid an access, with nothing
 * but its queue pair's held, the event would be read only when that access is over.
 */
static bool may_enter(void)
{
	return !inside && (!fl_locks_held || amid_access());
}

static void take_away(const struct mmu_notifier_range *range)
{
	/* nobody waits for that access now: it may go on only after us (umem/dma.c) */
	if (amid_access())
		__atomic_store_n(&mm_hazard->unmapping, 1, __ATOMIC_SEQ_CST);
	mmu_notifier_invalidate_range_start(range);
	uffd_unregister(range->start, range->end);
	if (mm_hazard)
		__atomic_store_n(&mm_hazard->unmapping, 0, __ATOMIC_SEQ_CST);
}

static bool begin(uint64_t start, uint64_t end, bool discard, const char *by, const void *caller)
{
	struct mmu_notifier_range range = {
		.start = start,
		.end = end,
		.event = discard ? MMU_NOTIFY_CLEAR : MMU_NOTIFY_UNMAP,
		.unwatch = true,
		.by = by,
		.caller = caller,
	};
	bool owed = false;

	if (!may_enter())
		return false;
	inside = true;
	if (!end)
		range.end = shm_end(start);
	if (range.end > start && notifier_overlaps(start, range.end) && getpid() == owner) {
		take_away(&range);
		owed = true;
	}
	inside = false;
	return owed;
}

/* The mappings in [at, end) of that part of the file. How many. */
static unsigned take_mappings(uint64_t at, uint64_t end, const struct stat *file, struct mmu_notifier_range *range,
			      uint64_t from, uint64_t to)
{
	unsigned n = 0;
	struct vma v;

	for (; at < end && !vma_find(at, &v) && v.start < end; at = v.end) {
		uint64_t first = v.offset, last = v.offset + (v.end - v.start);

		if (v.inode != file->st_ino || v.dev != file->st_dev || last <= from || first >= to)
			continue;
		range->start = v.start + (first < from ? from - first : 0);
		range->end = last > to ? v.end - (last - to) : v.end;
		range->start = range->start < at ? at : range->start;
		range->end = range->end > end ? end : range->end;
		if (range->start >= range->end)
			continue;
		take_away(range);
		n++;
	}
	return n;
}

static unsigned begin_file(int fd, uint64_t from, uint64_t to, const char *by, const void *caller)
{
	struct mmu_notifier_range range = {
		.event = MMU_NOTIFY_CLEAR, .unwatch = true, .by = by, .caller = caller};
	uint64_t at = 0, start, end;
	struct stat file;
	unsigned owed = 0;

	if (!may_enter())
		return 0;
	inside = true;
	if (getpid() == owner && !fstat(fd, &file) && S_ISREG(file.st_mode) && from < (uint64_t)file.st_size)
		for (; notifier_next(at, false, &start, &end); at = end)
			owed += take_mappings(start, end, &file, &range, from, to);
	inside = false;
	return owed;
}

static void end(void)
{
	struct mmu_notifier_range none = {.start = 0};

	mmu_notifier_invalidate_range_end(&none);
}

void hooks_fork_child(void)
{
	owner = getpid();
	inside = false;
	mm_hazard = NULL; /* it was in the parent's segment */
}

void hooks_init(void)
{
	static const struct faultline_mm_ops ops = {.size = sizeof(ops),
						    .regions = &notifier_regions,
						    .begin = begin,
						    .end = end,
						    .begin_file = begin_file};
	const struct faultline_preload_ops *preload = dlsym(RTLD_DEFAULT, "faultline_preload_ops");

	owner = getpid();
	if (preload && preload->version >= FAULTLINE_PRELOAD_VERSION &&
	    preload->size > offsetof(struct faultline_preload_ops, mm_install))
		preload->mm_install(&ops);
}
