/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The address space of the process as the device sees it: what mm/ is to a kernel driver.
 *
 *  - guarded access: copies that survive whatever the application did to the memory (guard.c)
 *  - long-term pins (pin.c)
 *  - mmu interval notifiers, with the kernel's sequence protocol (mmu_notifier.c), fed by a
 *    userfaultfd thread (uffd.c), and by hooks in the caller's thread where there are any (hooks.c)
 *  - a look for what the kernel has swapped out, under memory pressure (reclaim.c)
 *  - hmm_range_fault() (hmm.c)
 *
 * Addresses are virtual, of this process, as uint64_t; ranges are [start, end).
 * Errors are negative errno. Everything here is thread-safe.
 */
#ifndef FL_MM_H
#define FL_MM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <urcu/list.h>

#define PAGE_SHIFT 12
#define PAGE_SIZE  4096ul
#define PAGE_MASK  (~(PAGE_SIZE - 1))

struct fl_config;

/* Starts what the settings ask for; called by the registry at the first open of a device, and again in
 * the child after fork (nothing of the parent's is then valid). 0 or negative errno. */
int mm_init(const struct fl_config *cfg);
void mm_fork_child(void);

/*
 * What this machine has for this user, for who asks before there is a device (`faultline doctor`); nothing of it
 * stays. 0 or negative errno.
 */
int mm_probe_userfaultfd(bool *async); /* async: for memory of every kind, and free (Linux 6.7) */
int mm_probe_psi(void);
bool mm_probe_ipc_lock(void); /* RLIMIT_MEMLOCK does not hold */
bool mm_probe_pagemap_scan(void); /* Linux 6.7 */

/* ---- guarded access ---- */

/*
 * Copies in ascending order; the last bytes are stored last; an aligned 8-byte word is never torn.
 * Either side may be any address. Returns how many bytes were NOT copied (0: all), as
 * copy_from_user() does. Never raises a signal the application sees.
 */
size_t copy_guarded(void *dst, const void *src, size_t len);

/* CPU atomics on an aligned address; *orig gets the value from before. 0 or -EFAULT. */
int cmpxchg64_guarded(uint64_t *p, uint64_t compare, uint64_t swap, uint64_t *orig);
int fetch_add64_guarded(uint64_t *p, uint64_t add, uint64_t *orig);

/* ---- pinning ---- */

struct mm_pin;

/*
 * Pins every page of [addr, addr + len) for long, faulting them in. write: with the right to write.
 * -EFAULT: a hole, or write asked for and not allowed, or a file mapping that cannot be pinned;
 * -ENOMEM: past RLIMIT_MEMLOCK (logged, with the limit and what to do), or no memory.
 */
int pin_user_pages(uint64_t addr, size_t len, bool write, struct mm_pin **pin);
void unpin_user_pages(struct mm_pin *pin);
const char *pin_how(const struct mm_pin *pin); /* "io_uring" or "mlock" */

/*
 * Reach the pinned pages themselves, whatever is mapped at their addresses by now. Slow (about 10 us).
 * A buffer of io_uring's does it: 0; -EOPNOTSUPP: pinned by mlock, which cannot; -EFAULT: buf; -EIO.
 * Atomics are so among each other, not against the CPU.
 */
int pin_copy(struct mm_pin *pin, uint64_t addr, void *buf, size_t len, bool to_pages);
int pin_atomic(struct mm_pin *pin, uint64_t addr, bool cmpswap, uint64_t swap_add, uint64_t compare,
	       uint64_t *orig);

/* ---- mmu interval notifiers ---- */

struct mmu_interval_notifier;

enum mmu_notifier_event {
	MMU_NOTIFY_UNMAP,   /* munmap, mremap away, mmap over */
	MMU_NOTIFY_CLEAR,   /* MADV_DONTNEED, MADV_REMOVE: mapped still, pages gone */
	MMU_NOTIFY_RECLAIM, /* swapped out, or dropped from the page cache (the kernel says CLEAR) */
	MMU_NOTIFY_MIGRATE, /* the same bytes elsewhere: provoked only (util/provoke.h) */
};

struct mmu_notifier_range {
	uint64_t start, end;
	enum mmu_notifier_event event;
	bool unwatch;	    /* the source also stops to watch the range */
	const char *by;	    /* the call that does it, a literal; NULL: not known */
	const void *caller; /* who made that call; NULL: not known */
};

struct mmu_interval_notifier_ops {
	/*
	 * What is taken away never comes back (pinned memory): nothing is watched anew, not to be watched
	 * is no more than an information, and watching begins by mmu_interval_notifier_watch().
	 */
	bool once;
	/*
	 * So much is in its range that only the mappings that faults meet are watched, each whole, when
	 * hmm_range_fault() meets them.
	 */
	bool lazy;
	/*
	 * Pages of range are about to go or gone. Must take the lock its owner's fault path holds when
	 * it calls mmu_interval_read_retry(), call mmu_interval_set_seq(), and return only when no
	 * access through the owner's tables to the range is in flight. Allocates, frees and maps nothing.
	 */
	bool (*invalidate)(struct mmu_interval_notifier *mni, const struct mmu_notifier_range *range,
			   unsigned long cur_seq);
	/*
	 * Is something of [start, end) in its owner's tables? Called under a lock of mm's: takes none. May be
	 * NULL: then pages that the kernel has reclaimed are never told of.
	 */
	bool (*holds)(struct mmu_interval_notifier *mni, uint64_t start, uint64_t end);
};

/* Embedded in its owner. Fields are mm's own. */
struct mmu_interval_notifier {
	const struct mmu_interval_notifier_ops *ops;
	uint64_t start, end; /* page aligned */
	unsigned long invalidate_seq;
	bool watched; /* a userfaultfd covers all of it; false: say so to the user, access stays safe */
	struct interval_node *node;
	struct cds_list_head deferred;
};

/* Start to watch [start, start + length), widened to pages. The range need not be mapped. Not an error
 * when it cannot be watched (mni->watched tells). Costs the same whatever the length. */
int mmu_interval_notifier_insert(struct mmu_interval_notifier *mni, uint64_t start, uint64_t length,
				 const struct mmu_interval_notifier_ops *ops);
/*
 * For ops->once: until then only hooks tell. To be called with the memory faulted in: a part of a mapping
 * that was cut out before its first page came does not grow together with the rest again.
 */
void mmu_interval_notifier_watch(struct mmu_interval_notifier *mni);
/* When it returns no callback runs, nor will. Ranges still watched by others stay watched. */
void mmu_interval_notifier_remove(struct mmu_interval_notifier *mni);

unsigned long mmu_interval_read_begin(struct mmu_interval_notifier *mni);
/* true: an invalidation began since; called under the owner's lock */
bool mmu_interval_read_retry(struct mmu_interval_notifier *mni, unsigned long seq);
void mmu_interval_set_seq(struct mmu_interval_notifier *mni, unsigned long cur_seq);

/* what a source of events calls, around the change */
void mmu_notifier_invalidate_range_start(const struct mmu_notifier_range *range);
void mmu_notifier_invalidate_range_end(const struct mmu_notifier_range *range);

/*
 * Non-zero between "an event is there" and "its range is known and invalidated": all device access to
 * watched memory holds off. Read it with seq_cst after announcing a hazard (umem/dma.c).
 */
extern int mm_stop_dma;
/* the same, kept up to date also at *word, for peers that look from outside */
void mm_mirror_stop_dma(uint32_t *word);
/* waits (sleeping) until mm_stop_dma is 0 */
void mm_wait_start_dma(void);
/*
 * This thread's announcement of an access, or NULL; umem's to set. In static TLS: a hook looks at it, which may
 * run in a signal handler on top of the access itself.
 */
struct faultline_hazard;
extern _Thread_local __attribute__((tls_model("initial-exec"))) struct faultline_hazard *mm_hazard;
/* umem gives mm the way to wait until no access at all is in flight */
void mm_set_quiesce(void (*quiesce)(uint64_t start, uint64_t end));

/* ---- reclaim ---- */

/*
 * One look over all that is watched: what the kernel has taken from memory (swapped out, dropped from the
 * page cache) goes from the devices' tables as an MMU_NOTIFY_RECLAIM. Under memory pressure it runs by itself.
 */
void mm_reclaim_scan(void);
/* where looks are counted; NULL: nowhere */
void mm_count_scans(uint64_t *counter);

/* ---- what of the address space is the device's own ---- */

/* a mapping of ours, when it has been made and before it goes: is not reached by regions that are everything */
void mm_private_add(const void *at, size_t len);
void mm_private_remove(const void *at);
bool mm_is_private(uint64_t start, uint64_t end);
/*
 * A thread of the device's: detached, without the application's signals, its stack private. attr: NULL, or what else
 * it is to be like. 0 or negative errno.
 */
int mm_thread(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg, const char *name);
/* one that ends before the process does: to be joined or detached, and its stack is memory like any other */
int mm_thread_start(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg, const char *name);

/* ---- HMM ---- */

struct hmm_range {
	struct mmu_interval_notifier *notifier;
	unsigned long notifier_seq; /* from mmu_interval_read_begin() */
	uint64_t start, end;	    /* page aligned */
	bool write;		    /* pages are to be writable */
	bool nosleep;		    /* -EAGAIN rather than wait for a disk, swap or another process */
	bool touch;		    /* with `write`: let the first store to each page be ours (it is slow with shadow page tables) */
	bool major;		    /* out: something had to be waited for, as far as can be told */
};

/*
 * Makes every page of the range present in the CPU's tables, with the right asked for.
 * -EFAULT: unmapped or no right (then range->start is the first page that failed; those before it are
 * present); -EAGAIN: nosleep and it would; -EBUSY: an invalidation came between, take the sequence anew;
 * -ENOMEM.
 */
int hmm_range_fault(struct hmm_range *range);

/*
 * Memory files whose names begin so stand for a device's memory (dmabuf/): there are no pages behind mappings of them,
 * as the kernel's VM_PFNMAP has it, and they are neither pinned nor faulted in by address: -EFAULT. Who makes such a
 * file, or gets one, says so first.
 */
#define MM_DEVICE_FILE "faultline-dmabuf:device-"
void mm_has_device_files(void);

/* The first run of pages of [start, end), which is page aligned, that are in the CPU's tables; false: none. */
bool mm_next_present(uint64_t start, uint64_t end, uint64_t *from, uint64_t *to);

#endif
