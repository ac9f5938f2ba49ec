/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory registration: what backs a memory region. A region is pinned (umem_pinned.c) or on demand
 * (umem_odp.c); the device reaches both by dma.c, which announces every access so that who takes
 * memory away can wait for it.
 *
 * The table of an on-demand region holds a byte a page (UMEM_PT_*) in the shared segment, as a radix
 * tree of 4 KiB chunks by offset, so that its memory grows with what is mapped, not with what is
 * registered. It is written under umem_mutex, read without a lock.
 */
#ifndef FL_UMEM_H
#define FL_UMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "mm/mm.h"
#include "util/interval_tree.h"
#include "util/lock.h"
#include "util/seg.h"

/* what a region belongs to: where it counts, where its tables live. One per device, made by core. */
struct umem_device {
	struct seg *seg;
	struct faultline_device *stat;
	uint64_t dma_aperture; /* pages that may be mapped at a time; 0: all */
	uint64_t dma_mapped;   /* atomic; umem's own */
};

/* pages that are mapped for DMA now: at the last close of the device, none */
uint64_t ib_dma_mapped(const struct umem_device *dev);


struct ib_umem;

enum umem_kind { UMEM_PINNED, UMEM_ODP, UMEM_ODP_IMPLICIT, UMEM_DMABUF };

/* how an access to a region goes on */
enum umem_way {
	UMEM_BY_ADDRESS, /* everything is there, for as long as the hazard stands */
	UMEM_FAULT,	 /* ops->fault() first */
	UMEM_BY_COPY,	 /* not by address, but by ops->copy() or ops->atomic() */
	UMEM_WAIT,	 /* all access holds off: mm_wait_start_dma(), and look again */
};

/* What a kind of region does in its own way. Ranges lie within the region. */
struct umem_ops {
	enum umem_kind kind;
	/* Inside a hazard. failed: it was by address, and the copy has failed all the same. */
	enum umem_way (*way)(const struct ib_umem *umem, uint64_t addr, size_t len, bool write, bool failed);
	/*
	 * Has pages, for an access that must fault; flags are UMEM_FAULT_*. Outside of a hazard, with the
	 * region held. Pages that are new in its table, or negative errno. NULL: nothing of it ever faults.
	 */
	int (*fault)(struct ib_umem *umem, uint64_t addr, size_t len, unsigned flags);
	/*
	 * The slow way, always right. Outside of a hazard, with the region held. 0; -EACCES: not to be had;
	 * -EFAULT: something must fault first.
	 */
	int (*copy)(struct ib_umem *umem, uint32_t key, uint64_t addr, void *buf, size_t len, bool to_pages);
	int (*atomic)(struct ib_umem *umem, uint32_t key, uint64_t addr, bool cmpswap, uint64_t swap_add,
		      uint64_t compare, uint64_t *orig);
	/* ib_umem_pin() and ib_umem_unpin(); NULL: there is no such thing */
	int (*pin)(struct ib_umem *umem, uint64_t addr, size_t len);
	int (*unpin)(struct ib_umem *umem, uint64_t addr, size_t len);
	void (*release)(struct ib_umem *umem);
};

struct ib_umem {
	const struct umem_ops *ops;
	struct umem_device *dev;
	uint64_t address; /* as registered */
	size_t length;
	bool writable;
	struct faultline_mr *stat; /* the key table's entry once there is one (set by hw), for counters */
	struct mm_pin *pin;	   /* pinned only */
	size_t npages;		   /* pinned only: DMA maps to give back */
	bool stale; /* pinned only: the application has taken some of it away; atomic, never reset */
};

#define UMEM_PT_NONE  0
#define UMEM_PT_READ  1 /* present, the device may read */
#define UMEM_PT_WRITE 3 /* present, read and write */
#define UMEM_PT_PINNED 4 /* and: stays, until unpinned */
#define UMEM_PT_STALE  8 /* and: pinned, but not at its address any more */

/* who was the first to take pinned memory away */
struct umem_taken {
	int state; /* 0, 1 while it is written, 2; atomic */
	struct mmu_notifier_range by;
};

struct ib_umem_odp {
	struct ib_umem umem;
	struct mmu_interval_notifier notifier;
	struct fl_mutex umem_mutex;
	uint32_t id;	     /* no other of the process has or had it, as far as 32 bits go */
	uint64_t first_page; /* page number of the table's first byte */
	uint64_t pt_root;    /* offset in the segment; as long as the region lives */
	unsigned pt_levels;
	uint64_t mapped; /* pages in the table, under umem_mutex */
	uint64_t around_next; /* umem_odp_around.c: where the next fault would be in order; */
	unsigned around_run;  /* how many were. Both atomic, and no more than hints */

	/* parts that are pinned: umem_odp_pin.c */
	struct fl_mutex pins_lock;
	struct interval_tree pins;
	unsigned num_pins;	  /* atomic: how many are in the tree; written under umem_mutex */
	unsigned long pins_moved; /* atomic: counts changes; written under umem_mutex */
	struct umem_taken taken;
	bool told; /* atomic */
};

static inline struct ib_umem_odp *to_ib_umem_odp(const struct ib_umem *umem)
{
	return (struct ib_umem_odp *)umem; /* umem is its first member */
}

/* Does it fault? Which pages it has changes then, and is no matter of registration. */
static inline bool umem_faults(const struct ib_umem *umem)
{
	return umem->ops->fault;
}

/*
 * Pinned: pages are faulted in, pinned and DMA-mapped. access: IBV_ACCESS_*; writable when any of
 * LOCAL_WRITE, REMOTE_WRITE, REMOTE_ATOMIC, MW_BIND is in it (ib_umem_get's rule).
 * -EINVAL: address + length wraps, or length 0; -EFAULT, -ENOMEM: as pin_user_pages().
 */
int ib_umem_get(struct umem_device *dev, uint64_t addr, size_t size, unsigned access,
		struct ib_umem **umem);

/* On demand: touches nothing, whatever the size. -EOVERFLOW: address + length wraps; -EINVAL: length 0. */
int ib_umem_odp_get(struct umem_device *dev, uint64_t addr, size_t size, unsigned access,
		    struct ib_umem **umem);

/* On demand, all of the address space: touches nothing. */
int ib_umem_odp_alloc_implicit(struct umem_device *dev, unsigned access, struct ib_umem **umem);

/* Of any kind. The caller has made sure, by dma_wait_key(), that no access is in flight or can begin. */
void ib_umem_release(struct ib_umem *umem);

/*
 * Faults [addr, addr + len) in and enters it in the region's table; returns with umem_mutex held and
 * the number of pages that were not there before, or without the lock and a negative errno, as
 * hmm_range_fault() and: -EPERM: write to a region that is not writable.
 */
#define UMEM_FAULT_WRITE   1u
#define UMEM_FAULT_NOSLEEP 2u
#define UMEM_FAULT_FORCE   4u /* do not trust the table: an access through it has failed */
#define UMEM_FAULT_PREFETCH 8u /* counts as page_prefetch, not as page_faults */
#define UMEM_FAULT_PIN	   16u /* counts as neither */
#define UMEM_FAULT_TOUCH   32u /* the caller has time that the access will not have: struct hmm_range */
#define UMEM_FAULT_AROUND  64u /* comes along with a fault: its pages count, but it is no event of its own */
int ib_umem_odp_map_dma_and_lock(struct ib_umem_odp *odp, uint64_t addr, size_t len, unsigned flags);
static inline void ib_umem_odp_unlock(struct ib_umem_odp *odp)
{
	fl_unlock(&odp->umem_mutex);
}

/* Takes [start, end) out of the table and waits for accesses in flight there. umem_mutex held. */
void ib_umem_odp_unmap_dma_pages(struct ib_umem_odp *odp, uint64_t start, uint64_t end);

/*
 * Pins the pages of a range within an on-demand region: they neither fault nor go away, the rest stays on
 * demand. Nests. -EINVAL: length 0, or not on demand; -EFAULT: not within the region, or as
 * hmm_range_fault(); -ENOMEM.
 */
int ib_umem_pin(struct ib_umem *umem, uint64_t addr, size_t len);
/* -EINVAL: some page of it is not pinned; then nothing is done (an implicit region: maybe some). */
int ib_umem_unpin(struct ib_umem *umem, uint64_t addr, size_t len);

/*
 * Debug access to a region of any kind, which the caller holds: faults first. key: the region's. -EINVAL:
 * not within the region; -EPERM: it may not be written; -EFAULT, -ENOMEM: something of it is not to be had.
 */
int ib_umem_copy_from(void *dst, struct ib_umem *umem, uint32_t key, size_t offset, size_t length);
int ib_umem_copy_to(struct ib_umem *umem, uint32_t key, size_t offset, const void *src, size_t length);

/* Is every page of it in the table with the right asked for? No lock; call it inside a hazard. */
bool ib_umem_odp_present(const struct ib_umem_odp *odp, uint64_t addr, size_t len, bool write);

/* ---- pinned memory that the application has taken away (umem_pinned.c) ---- */

/* Is some page of it not at its address any more? Inside a hazard. */
bool ib_umem_pinned_stale(const struct ib_umem *umem, uint64_t addr, size_t len);

/* Says in the key table, once umem->stat is set, whether that is so of any page. */
void ib_umem_pinned_publish(struct ib_umem *umem);

/* ---- accesses in flight (dma.c) ---- */

/* Once a process, and again in the child of a fork, when there is a segment. */
void dma_init(struct seg *seg);

/*
 * Announces an access to [start, end) under key. After it, and before touching memory, the caller
 * checks that the key is alive and the pages present; both may change until then, not after.
 * Each thread has one slot: no nesting. Between begin and end a thread takes no lock and allocates nothing.
 */
struct faultline_hazard *dma_begin(uint64_t start, uint64_t end, uint32_t key);
void dma_end(struct faultline_hazard *h);

/* Wait until no announced access overlaps the range, or uses the key. The caller has made new ones
 * impossible first (with seq_cst). */
void dma_wait_range(uint64_t start, uint64_t end);
void dma_wait_key(uint32_t key);

/*
 * Peers that place directly: from now on the hazard at this slot of seg->peers counts, as long as sock,
 * the connection to the peer, does not hang up; and no more, when what it had under way is over.
 */
bool dma_peer_joined(uint32_t slot, int sock); /* false: another connection has the slot's hazard */
void dma_peer_left(uint32_t slot, int sock);
/* until what peers have under way now is over; the caller has made new accesses impossible */
void dma_wait_peers(void);

#endif
