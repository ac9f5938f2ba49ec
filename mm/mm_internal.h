/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this room share, and the kernel interfaces that Debian 12's headers lack. */
#ifndef FL_MM_INTERNAL_H
#define FL_MM_INTERNAL_H

#include <linux/types.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include "mm/mm.h"
#include "util/config.h"

/* Thread-local data that may be touched where nothing may be allocated: in static TLS. */
#define MM_THREAD _Thread_local __attribute__((tls_model("initial-exec")))

/* ---- kernel interfaces, by their names in uapi ---- */

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15) /* Linux 6.7 */
#endif

#ifndef PAGEMAP_SCAN /* Linux 6.7 */
struct page_region {
	__u64 start, end;
	__u64 categories;
};
struct pm_scan_arg {
	__u64 size;
	__u64 flags;
	__u64 start, end;
	__u64 walk_end;
	__u64 vec, vec_len;
	__u64 max_pages;
	__u64 category_inverted;
	__u64 category_mask;
	__u64 category_anyof_mask;
	__u64 return_mask;
};
#define PAGEMAP_SCAN	_IOWR('f', 16, struct pm_scan_arg)
#define PAGE_IS_WPALLOWED (1 << 0)
#define PAGE_IS_PRESENT (1 << 3)
#define PAGE_IS_SWAPPED (1 << 4)
#endif

#ifndef PROCMAP_QUERY /* Linux 6.11 */
struct procmap_query {
	__u64 size;
	__u64 query_flags;
	__u64 query_addr;
	__u64 vma_start, vma_end;
	__u64 vma_flags;
	__u64 vma_page_size;
	__u64 vma_offset;
	__u64 inode;
	__u32 dev_major, dev_minor;
	__u32 vma_name_size;
	__u32 build_id_size;
	__u64 vma_name_addr;
	__u64 build_id_addr;
};
#define PROCMAP_QUERY			   _IOWR('f', 17, struct procmap_query)
#define PROCMAP_QUERY_COVERING_OR_NEXT_VMA 0x10
#endif

/* ---- guard.c ---- */

int guard_init(void);
/* Puts the guard back in front when the application has installed a handler over it. */
void guard_recheck(void);

/* ---- vma.c: what /proc/self knows ---- */

struct vma {
	uint64_t start, end;
	uint64_t page_size; /* of a huge page's mapping larger than PAGE_SIZE, as far as the kernel tells */
	bool file;  /* backed by a file, shmem included */
	bool shmem; /* as far as its name tells */
	bool device; /* MM_DEVICE_FILE */
	uint64_t offset, dev, inode; /* of the file; inode: a System V segment's identifier */
};

/* the mapping that holds addr, or the next one: 0 or -ENOENT. Allocates nothing. */
int vma_find(uint64_t addr, struct vma *v);
/*
 * Would populating [start, end) wait for swap or for a file's data? As far as can be told. *v: a mapping that the
 * caller knows, or zero; that which was looked at last, when it returns.
 */
bool vma_would_sleep(uint64_t start, uint64_t end, struct vma *v);
/* Is a device's memory mapped in [start, end)? *at: the first of it. */
bool vma_device(uint64_t start, uint64_t end, uint64_t *at);
/* Is any page of it not in the CPU's tables? */
bool vma_absent(uint64_t start, uint64_t end);
/* does a userfaultfd in WP_ASYNC mode watch every page of it, whatever is mapped there? true also if that is not
 * to be found out */
bool vma_all_watched(uint64_t start, uint64_t end);
/*
 * Runs of pages of [start, end) that are mapped and not in the CPU's tables, at most max; how many. *next: where
 * to look on, or end.
 */
unsigned vma_absent_runs(uint64_t start, uint64_t end, struct page_region *run, unsigned max, uint64_t *next);
/* MADV_POPULATE_READ or _WRITE with its errors sorted: 0, -EFAULT, -ENOMEM. On -EFAULT *failed, when
 * asked for, is the first page that cannot be had. */
int mm_populate(uint64_t start, uint64_t end, bool write, uint64_t *failed);
/* Touches each page, until one fails: 0 or -EFAULT. */
int mm_touch(uint64_t start, uint64_t end, bool write);
void vma_init(const struct fl_config *cfg);
void vma_fork_child(void);

/* ---- pin.c ---- */

void pin_init(const struct fl_config *cfg);
void pin_fork_child(void);

/* ---- mmu_notifier.c ---- */

void notifier_fork_child(void);
/* fn for each part of [start, end) that no subscription covers */
void notifier_each_uncovered(uint64_t start, uint64_t end, void (*fn)(uint64_t start, uint64_t end));
/* Makes sure that what is mapped now in [start, end) of mni is watched, when mappings may have come since
 * it was inserted. -EBUSY: nothing is mapped there. */
int notifier_watch_again(struct mmu_interval_notifier *mni, uint64_t start, uint64_t end);
/* Of a lazy subscription: is all that is mapped in [start, end) watched, as it is from now on if it can be? */
bool notifier_watches(struct mmu_interval_notifier *mni, uint64_t start, uint64_t end);
/*
 * A mapping that a fault has looked at is good for the next one as long as nothing of mni's range is unmapped, and
 * that is told of. *v: it, or zero; and what says later that it still held: for notifier_knows().
 */
unsigned notifier_known(struct mmu_interval_notifier *mni, struct vma *v);
void notifier_knows(struct mmu_interval_notifier *mni, const struct vma *v, unsigned unmaps);
/* how many subscriptions there are; atomic */
extern unsigned notifier_regions;
/* Does one overlap [start, end)? Never waits: no, when somebody is at the tree for long. */
bool notifier_overlaps(uint64_t start, uint64_t end);
/*
 * The next range at or after `at` that somebody watches; forgets: whose device forgets (not ops->once): false: none.
 * What overlaps it on the right comes by the next call.
 */
bool notifier_next(uint64_t at, bool forgets, uint64_t *start, uint64_t *end);
/* Does a device have something of it in its tables (ops->holds)? */
bool notifier_holds(uint64_t start, uint64_t end);
/* the quiesce callback, if one was set */
void notifier_quiesce(void);

/* ---- cgroup.c ---- */

/* The directory of the control group of whose /proc/self/cgroup and mountinfo these are; false: none is mounted. */
bool cgroup_dir(FILE *cgroup, FILE *mountinfo, char *path, size_t size);

/* ---- reclaim.c ---- */

/* With the first region whose device forgets; does nothing when it is under way. No lock but the watch lock. */
void reclaim_start(void);
void reclaim_fork_child(void);

/* ---- private.c ---- */

void private_init(void);
void private_fork_child(void);
/* as mm_private_add(), for the stack of a thread that stays */
void mm_private_thread(pthread_t thread);

/* ---- hooks.c ---- */

void hooks_init(void);
void hooks_fork_child(void);

/* ---- uffd.c: called with the notifier's watch lock held, but for the event thread ---- */

void uffd_init(const struct fl_config *cfg);
void uffd_fork_child(void);
/* false: not available; starts the thread at the first call. loud: what fails is a warning */
bool uffd_start(bool loud);
/* started, and not in vain */
bool uffd_runs(void);
bool uffd_is_async(void); /* it runs, in WP_ASYNC mode */
enum uffd_watch { UFFD_WATCHED, UFFD_NOTHING_MAPPED, UFFD_UNWATCHED };
enum uffd_watch uffd_register(uint64_t start, uint64_t end);
/* why it last was UFFD_UNWATCHED */
const char *uffd_unwatched_why(void);
void uffd_unregister(uint64_t start, uint64_t end);
/* unregisters what mremap() carried away from watched ranges since */
void uffd_drop_strays(void);

#endif
