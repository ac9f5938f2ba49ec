/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Buffers that one device lends to another: the kernel's dma-buf, its names of 2026 (invalidate_mappings
 * was move_notify before, dma_buf_invalidate_mappings() was dma_buf_move_notify()), and its contract.
 *
 * An exporter owns memory and gives it out as a dma_buf, which is a file descriptor to the application.
 * An importer attaches to it and maps it, and gets the places where its device finds the bytes. There are
 * three kinds of importer, by what they hand to dma_buf_dynamic_attach():
 *
 *   dynamic		ops with invalidate_mappings, and never pins: the exporter moves the buffer when it
 *			likes to; the importer unmaps, and maps again when it needs it.
 *   pinned		ops without invalidate_mappings; pins, then maps. Nothing moves while it is pinned.
 *   pinned-revocable	ops with invalidate_mappings; pins, then maps. An invalidation while it is pinned
 *			means that the memory is gone for good. (Between attach and pin it is a move like any
 *			other, and the pin that follows is as good.)
 *
 * THE RULES. Those marked * abort in debug builds (-Ddebug_locks=true) where they are broken.
 *
 *  1*	The reservation lock (dmabuf->resv) is held over pin, unpin, map, unmap and
 *	dma_buf_invalidate_mappings(), and by nobody who calls export, fd, get, put, attach, detach, mmap,
 *	begin and end of CPU access. Exporters' and importers' functions are called accordingly.
 *  2*	An attachment without invalidate_mappings pins before it maps. (dma_buf_attach(), which has no
 *	importer ops at all, is pinned by the framework for as long as it is mapped.)
 *  3	A pinned buffer does not move. Pinning does not mean system memory: the exporter pins where it likes,
 *	or refuses (-EOPNOTSUPP, -EBUSY), and then the registration fails with that error.
 *  4*	Pins nest, each is undone once, and no more unpins than pins; the same for maps.
 *  5*	An invalidation that meets a pinned importer which cannot be told is an exporter's bug.
 *  6*	Inside invalidate_mappings: no waiting for a fence, no mapping. Unmap and unpin are allowed there.
 *	The exporter waits for the fences (DMA_RESV_USAGE_BOOKKEEP) after the callbacks, not the callback.
 *  7*	After the callback an importer writes no more than what a fence of its covers, reads only to throw
 *	away, unmaps in bounded time, and may map again at once. A stale mapping that was written to is found
 *	when it is unmapped.
 *  8*	A mapping is used only after the exporter's move fence (DMA_RESV_USAGE_KERNEL) is signalled: every map
 *	is followed by dma_resv_wait_timeout(KERNEL). dma_buf_assert_usable() checks it.
 *  9*	Teardown: the key is dead, then unmap, unpin, unlock, detach, put. A detach with a map or pin left,
 *	a release with an attachment left, is a bug.
 * 10	Without allow_peer2peer an importer never sees device memory: the exporter moves it to system memory
 *	before it is mapped, or refuses the attachment (-EOPNOTSUPP) or the map.
 * 11	Memory that cannot be reached by a copy on the CPU (which our DMA is) is refused at attach, in words.
 * 12	Who imports keeps a reference, so the application may close its descriptor.
 *
 * Locks: LOCK_DMA_BUF (the table of buffers), then resv (LOCK_DMA_RESV), then the exporter's (LOCK_DMA_EXPORTER),
 * then the importers' (LOCK_MR_TABLE, LOCK_UMEM_MUTEX and others), which are not held when any function of this
 * room is called: map and unmap allocate and free. What is between processes has a lock of its own (remote.h).
 */
#ifndef FL_DMABUF_DMA_BUF_H
#define FL_DMABUF_DMA_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <urcu/list.h>
#include "dmabuf/dma-resv.h"
#include "faultline/segment.h"

enum dma_data_direction { DMA_BIDIRECTIONAL, DMA_TO_DEVICE, DMA_FROM_DEVICE };

/* Where a mapped buffer is, from its first byte to its last, in as many pieces as it takes. */
struct scatterlist {
	uint64_t dma_address; /* address in this process at which the library's threads reach it; page-aligned */
	size_t dma_length;    /* whole pages */
	uint64_t offset;      /* of it in sg_table.file, where there is one */
};

struct sg_table {
	unsigned nents;
	bool peer2peer; /* it is device memory */
	int file;	/* what other processes find it in, by mmap(); the exporter's; -1: they cannot */
	/*
	 * Not NULL: the memory is lent by another process, which takes it away without waiting any longer once this
	 * is not 0. Who used the mapping looks after that, with a full fence between; what was done counts only if
	 * it is 0 then.
	 */
	const uint32_t *revoked;
	void *priv; /* the exporter's */
	struct scatterlist sgl[];
};

/* who imports: its name for messages, and where it counts */
struct dma_buf_dev {
	const char *name;
	struct faultline_device *stat; /* or NULL */
};

struct dma_buf;
struct dma_buf_attachment;

/* The exporter's functions. R: called with the reservation lock held; the others without. */
struct dma_buf_ops {
	/* Optional. May this importer have it? attach->peer2peer and dma_buf_attach_revocable() say what it can. */
	int (*attach)(struct dma_buf *dmabuf, struct dma_buf_attachment *attach);
	void (*detach)(struct dma_buf *dmabuf, struct dma_buf_attachment *attach); /* optional */

	/* R. Optional, both or none: without them the buffer never moves, and pinning is nothing. Called for
	 * the first pin and the last unpin of each attachment. */
	int (*pin)(struct dma_buf_attachment *attach);
	void (*unpin)(struct dma_buf_attachment *attach);

	/* R. May move the buffer to where the importer can reach it, and sleep for it. */
	int (*map_dma_buf)(struct dma_buf_attachment *attach, enum dma_data_direction dir,
			   struct sg_table **sgt);
	void (*unmap_dma_buf)(struct dma_buf_attachment *attach, struct sg_table *sgt,
			      enum dma_data_direction dir);

	/* R. Optional: this mapping's importer is lost (below), and it will stay for who knows how long. */
	void (*mapping_lost)(struct dma_buf_attachment *attach, struct sg_table *sgt);

	/* after the last reference: nobody else has it any more */
	void (*release)(struct dma_buf *dmabuf);

	/* Optional: the application's CPU is about to access it, or has done so. */
	int (*begin_cpu_access)(struct dma_buf *dmabuf, enum dma_data_direction dir);
	int (*end_cpu_access)(struct dma_buf *dmabuf, enum dma_data_direction dir);
	/* Optional: maps part of it for the application; offset and length are checked. */
	int (*mmap)(struct dma_buf *dmabuf, size_t offset, size_t length, int prot, void **addr);
};

/* what can be made to fail, for tests */
enum dma_buf_fail { DMA_BUF_FAIL_ATTACH, DMA_BUF_FAIL_PIN, DMA_BUF_FAIL_MAP, DMA_BUF_FAIL_NUM };

struct dma_buf {
	size_t size;
	const struct dma_buf_ops *ops;
	struct dma_resv *resv;
	const char *exp_name;
	void *priv;			  /* the exporter's */
	struct cds_list_head attachments; /* under resv */

	/* the framework's own, dma-buf.c */
	struct dma_resv own_resv;
	struct cds_list_head node; /* the rest under LOCK_DMA_BUF */
	uint64_t dev, ino;	   /* of the descriptor's file: how a descriptor is known again */
	unsigned long refs;	   /* get_dma_buf(), and one for all descriptors of the application together */
	bool exported;		   /* there are such descriptors, or there were at the last look */
	int file;		   /* our own description of the file, close-on-exec; -1: foreign */
	int watch;		   /* tells when a description of the file was closed; -1: none */
	unsigned descriptions;	   /* how many dma_buf_fd() has opened */
	bool cpu_mappable;	   /* the application may mmap() the descriptor itself */
	int fail[DMA_BUF_FAIL_NUM]; /* errno to fail with, one shot; atomic */
};

/* The importer's functions. */
struct dma_buf_attach_ops {
	bool allow_peer2peer; /* it can do with device memory */
	/*
	 * Optional. The buffer is about to move, or (to one that has pinned it) is being taken away for good.
	 * Reservation lock held. See rules 6 and 7.
	 */
	void (*invalidate_mappings)(struct dma_buf_attachment *attach);
};

struct dma_buf_attachment {
	struct dma_buf *dmabuf;
	struct dma_buf_dev *dev;
	struct cds_list_head node; /* in dmabuf->attachments, under resv */
	bool peer2peer;		   /* the importer's allow_peer2peer; an exporter may clear it in attach */
	const struct dma_buf_attach_ops *importer_ops; /* NULL: static */
	void *importer_priv;
	void *priv; /* the exporter's */
	unsigned pins, maps; /* under resv; of rule 4 and 9 */
	unsigned stale;	     /* mappings that an invalidation has met and that are not unmapped yet */
	const bool *lost;    /* NULL: its importer is here; else see dma_buf_attachment_lost() */
};

struct dma_buf_export_info {
	const char *exp_name;
	const struct dma_buf_ops *ops;
	size_t size;	       /* whole pages */
	struct dma_resv *resv; /* NULL: one of its own; else it must outlive the buffer */
	void *priv;
	/*
	 * A memfd of that size which is the buffer's memory, and which the application may mmap() by the
	 * buffer's descriptor, in any process; the framework takes it over, also where it fails. -1: it cannot
	 * be mapped by its descriptor, and other processes import it through this one (remote.h).
	 */
	int storage;
};

/* ---- the buffer ---- */

/* One reference, the caller's. -EINVAL: ops or size; -ENOMEM, -EMFILE, ... */
int dma_buf_export(const struct dma_buf_export_info *info, struct dma_buf **dmabuf);
/*
 * A descriptor for the application; it takes over the caller's reference. flags: O_CLOEXEC. The buffer lives until
 * the last copy of the descriptor, in any process, and the last mapping by it, is gone, and every reference.
 */
int dma_buf_fd(struct dma_buf *dmabuf, int flags);
/*
 * The buffer behind a descriptor, with a reference. Ours of this process; else one that a Faultline process has
 * sent (system memory and accel memory: it is imported by mmap, and never moves; other memory through that
 * process); else a kernel dma-buf (udmabuf, dma-heap, a driver's), imported by mmap with DMA_BUF_IOCTL_SYNC. -EBADF;
 * -EINVAL: not a dma-buf; of another process: -ENODEV: that has ended, -EPERM: is another user's, -ETIMEDOUT: does
 * not answer, -EOPNOTSUPP: cannot be asked.
 */
int dma_buf_get(int fd, struct dma_buf **dmabuf);
void get_dma_buf(struct dma_buf *dmabuf);
void dma_buf_put(struct dma_buf *dmabuf);

/* ---- importing ---- */

/* -EINVAL: misuse; -EOPNOTSUPP, -ENODEV, -EBUSY: as the exporter says. No reservation lock held. */
int dma_buf_attach(struct dma_buf *dmabuf, struct dma_buf_dev *dev, struct dma_buf_attachment **attach);
int dma_buf_dynamic_attach(struct dma_buf *dmabuf, struct dma_buf_dev *dev,
			   const struct dma_buf_attach_ops *importer_ops, void *importer_priv,
			   struct dma_buf_attachment **attach);
/* The attachment is freed; the reference to the buffer stays the caller's. */
void dma_buf_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach);

/* can this importer be told that memory is gone, and lets go of it in bounded time? For exporters. */
bool dma_buf_attach_revocable(const struct dma_buf_attachment *attach);
static inline bool dma_buf_attachment_is_dynamic(const struct dma_buf_attachment *attach)
{
	return attach->importer_ops;
}

/* Reservation lock held, all four. */
int dma_buf_pin(struct dma_buf_attachment *attach);
void dma_buf_unpin(struct dma_buf_attachment *attach);
int dma_buf_map_attachment(struct dma_buf_attachment *attach, enum dma_data_direction dir,
			   struct sg_table **sgt);
void dma_buf_unmap_attachment(struct dma_buf_attachment *attach, struct sg_table *sgt,
			      enum dma_data_direction dir);

/* rule 8, for importers to call before a mapping's places go into a device's table. Lock held. */
void dma_buf_assert_usable(struct dma_buf_attachment *attach);

/* ---- for exporters ---- */

/* Tells all importers. Lock held. The caller then waits for the fences. */
void dma_buf_invalidate_mappings(struct dma_buf *dmabuf);
/* the same for one of them that can be told */
void dma_buf_invalidate_attachment(struct dma_buf_attachment *attach);
/*
 * Has its importer, in another process, not answered in time? Then it is not pinned any more and nothing that it still
 * does by its mappings counts, but it may do it: they stay until that process lets go of them or ends.
 */
static inline bool dma_buf_attachment_lost(const struct dma_buf_attachment *attach)
{
	return attach->lost && __atomic_load_n(attach->lost, __ATOMIC_ACQUIRE);
}
bool dma_buf_is_pinned(struct dma_buf *dmabuf); /* lock held */
struct sg_table *dma_buf_alloc_sgt(unsigned nents); /* NULL: no memory; free() frees it */

/* ---- CPU access ---- */

int dma_buf_begin_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction dir);
int dma_buf_end_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction dir);
/* -EINVAL: past its end, or offset not of a page; -ENODEV: the exporter has no mmap */
int dma_buf_mmap(struct dma_buf *dmabuf, size_t offset, size_t length, int prot, void **addr);

/* ---- for tests, and for the check at the end ---- */

/* The next such call fails with err (a positive errno); 0: not after all. */
void dma_buf_inject_fail(struct dma_buf *dmabuf, enum dma_buf_fail what, int err);

/* of the whole process, now; all 0: nothing left behind */
struct dma_buf_totals {
	uint64_t buffers, attachments, maps, pins;
	uint64_t moves, evictions, invalidations, revocations, fence_waits; /* since the start */
	uint64_t rule_breaks; /* rules 5 and 7, found at run time in any build */
	uint64_t importers_ended, importers_lost; /* processes that imported from this one: see remote.h */
};
void dma_buf_totals(struct dma_buf_totals *totals);

#endif
