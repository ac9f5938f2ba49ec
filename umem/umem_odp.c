/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * On-demand regions: nothing is held at registration but an interval notifier and one chunk of table.
 * The device looks a page up in the table (ib_umem_odp_present); a miss is a page fault, which makes
 * the page present in the CPU's tables first and enters it here (ib_umem_odp_map_dma_and_lock); when
 * the application takes the page away the notifier clears it here, and waits for copies under way.
 *
 * The table is a radix tree of 4 KiB chunks in the segment, all links offsets: a leaf holds a byte a
 * page for 16 MiB, an inner chunk 512 links. It grows with what was touched, and chunks once there
 * stay until the region goes, so that readers need no lock. Writers hold umem_mutex.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "umem/refault.h"
#include "umem/umem.h"
#include "umem/umem_internal.h"
#include "util/log.h"
#include "util/probe.h"
#include "util/provoke.h"

#define LEAF_PAGES 4096ull
#define INNER_BITS 9
#define INNER	   (1u << INNER_BITS)

static uint64_t pages_below(unsigned levels)
{
	return LEAF_PAGES << (INNER_BITS * (levels - 1));
}

static uint64_t num_pages(const struct ib_umem_odp *odp)
{
	return ((odp->umem.address + odp->umem.length - 1) >> PAGE_SHIFT) + 1 - odp->first_page;
}

/* The leaf that holds page number `index` of the table; NULL: not there. */
static uint8_t *leaf_of(const struct ib_umem_odp *odp, uint64_t index)
{
	const struct seg *seg = odp->umem.dev->seg;
	uint64_t off = __atomic_load_n(&odp->pt_root, __ATOMIC_ACQUIRE);

	for (unsigned level = odp->pt_levels; level > 1; level--) {
		const uint64_t *inner = seg_ptr(seg, off);
		uint64_t i = index / pages_below(level - 1) % INNER;

		off = __atomic_load_n(&inner[i], __ATOMIC_ACQUIRE); /* pairs with leaf_make() */
		if (!off)
			return NULL;
	}
	return seg_ptr(seg, off);
}

/* the same, made where it is missing; NULL: the segment is full. umem_mutex held. */
static uint8_t *leaf_make(struct ib_umem_odp *odp, uint64_t index)
{
	struct seg *seg = odp->umem.dev->seg;
	uint64_t off = odp->pt_root;

	for (unsigned level = odp->pt_levels; level > 1; level--) {
		uint64_t *inner = seg_ptr(seg, off);
		uint64_t i = index / pages_below(level - 1) % INNER;

		off = inner[i];
		if (!off) {
			off = seg_chunk_alloc(seg);
			if (!off)
				return NULL;
			__atomic_store_n(&inner[i], off, __ATOMIC_RELEASE);
		}
	}
	return seg_ptr(seg, off);
}

static void free_chunks(struct seg *seg, uint64_t off, unsigned levels)
{
	if (levels > 1) {
		const uint64_t *inner = seg_ptr(seg, off);

		for (unsigned i = 0; i < INNER; i++)
			if (inner[i])
				free_chunks(seg, inner[i], levels - 1);
	}
	seg_chunk_free(seg, off);
}

/*
 * Clears [from, to), page numbers below the chunk at `off`, which begins with page `base` of the table;
 * returns how many were set.
 */
static uint64_t clear(const struct ib_umem_odp *odp, uint64_t off, unsigned levels, uint64_t base, uint64_t from,
		      uint64_t to, uint32_t now)
{
	struct seg *seg = odp->umem.dev->seg;
	uint64_t n = 0;

	if (levels > 1) {
		const uint64_t *inner = seg_ptr(seg, off);
		uint64_t span = pages_below(levels - 1);

		for (uint64_t i = from / span; i <= (to - 1) / span; i++) {
			uint64_t start = i * span, end = start + span;

			if (inner[i])
				n += clear(odp, inner[i], levels - 1, base + start, from > start ? from - start : 0,
					   (to < end ? to : end) - start, now);
		}
		return n;
	}
	uint8_t *leaf = seg_ptr(seg, off);

	for (uint64_t i = from; i < to; i++) {
		if (!(i & 7) && i + 8 <= to && !*(uint64_t *)(leaf + i)) {
			i += 7;
			continue;
		}
		/* seq_cst: before the look at the hazards; pairs with ib_umem_odp_present() */
		if (leaf[i]) {
			__atomic_exchange_n(&leaf[i], UMEM_PT_NONE, __ATOMIC_SEQ_CST);
			refault_note(odp->id, base + i, now);
			n++;
		}
	}
	return n;
}

/* ---- counters ---- */

static struct faultline_mr *mr_stat(struct ib_umem_odp *odp)
{
	return __atomic_load_n(&odp->umem.stat, __ATOMIC_RELAXED);
}

#define MR_ADD(odp, field, n)                                                                      \
	do {                                                                                       \
		struct faultline_mr *mr_ = mr_stat(odp);                                           \
		if (mr_)                                                                           \
			__atomic_fetch_add(&mr_->field, n, __ATOMIC_RELAXED);                      \
	} while (0)

static void count_mapped(struct ib_umem_odp *odp, uint64_t n, bool prefetch)
{
	struct faultline_device *d = odp->umem.dev->stat;

	odp->mapped += n;
	cnt_add(d, prefetch ? FL_CNT_page_prefetch : FL_CNT_page_faults, n);
	cnt_add(d, FL_CNT_dma_maps, n);
	cnt_add(d, FL_CNT_mapped_pages, n);
	MR_ADD(odp, dma_maps, n);
	if (prefetch)
		MR_ADD(odp, page_prefetch, n);
	else
		MR_ADD(odp, page_faults, n);
	MR_ADD(odp, mapped_pages, n);
}

static void count_unmapped(struct ib_umem_odp *odp, uint64_t n)
{
	struct faultline_device *d = odp->umem.dev->stat;

	odp->mapped -= n;
	cnt_add(d, FL_CNT_dma_unmaps, n);
	__atomic_fetch_sub(&d->counter[FL_CNT_mapped_pages], n, __ATOMIC_RELAXED);
	MR_ADD(odp, dma_unmaps, n);
	MR_ADD(odp, mapped_pages, -n);
}

/* counts for the device and the region */
#define COUNT(odp, field, n)                                                                       \
	do {                                                                                       \
		cnt_add((odp)->umem.dev->stat, FL_CNT_##field, n);                                 \
		MR_ADD(odp, field, n);                                                             \
	} while (0)

/* ---- taking away ---- */

void ib_umem_odp_unmap_dma_pages(struct ib_umem_odp *odp, uint64_t start, uint64_t end)
{
	uint64_t first = odp->first_page, last = first + num_pages(odp);
	uint64_t from = start >> PAGE_SHIFT, to = (end >> PAGE_SHIFT) + !!(end & ~PAGE_MASK);
	uint64_t n;

	from = from > first ? from : first;
	to = to < last ? to : last;
	if (from >= to)
		return;
	n = clear(odp, odp->pt_root, odp->pt_levels, 0, from - first, to - first, refault_now());
	provoke_race(PROVOKE_INVALIDATE_CLEARED);
	/* also when none was set: another may have cleared them and still wait */
	dma_wait_range(from << PAGE_SHIFT, to << PAGE_SHIFT);
	if (n)
		count_unmapped(odp, n);
}

static bool invalidate(struct mmu_interval_notifier *mni, const struct mmu_notifier_range *range,
		       unsigned long cur_seq)
{
	struct ib_umem_odp *odp =
		(struct ib_umem_odp *)((char *)mni - offsetof(struct ib_umem_odp, notifier));
	uint64_t before;

	fl_lock(&odp->umem_mutex);
	mmu_interval_set_seq(mni, cur_seq);
	before = odp->mapped;
	ib_umem_odp_unmap_dma_pages(odp, range->start, range->end);
	before -= odp->mapped;
	FL_PROBE3(invalidate, range->start, range->end, before);
	if (before) {
		COUNT(odp, page_invalidations, before);
		if (range->event == MMU_NOTIFY_RECLAIM)
			COUNT(odp, page_reclaims, before);
	}
	fl_unlock(&odp->umem_mutex);
	return true;
}

/* As clear(), of which this is the question. No lock: a page that comes or goes meanwhile may be missed. */
static bool any(const struct seg *seg, uint64_t off, unsigned levels, uint64_t from, uint64_t to)
{
	if (levels > 1) {
		const uint64_t *inner = seg_ptr(seg, off);
		uint64_t span = pages_below(levels - 1);

		for (uint64_t i = from / span; i <= (to - 1) / span; i++) {
			uint64_t below = __atomic_load_n(&inner[i], __ATOMIC_ACQUIRE); /* pairs with leaf_make() */
			uint64_t start = i * span, end = start + span;

			if (below && any(seg, below, levels - 1, from > start ? from - start : 0,
					 (to < end ? to : end) - start))
				return true;
		}
		return false;
	}
	const uint8_t *leaf = seg_ptr(seg, off);

	for (uint64_t i = from; i < to; i++) {
		if (!(i & 7) && i + 8 <= to) {
			if (__atomic_load_n((const uint64_t *)(leaf + i), __ATOMIC_RELAXED))
				return true;
			i += 7;
		} else if (__atomic_load_n(&leaf[i], __ATOMIC_RELAXED)) {
			return true;
		}
	}
	return false;
}

static bool holds(struct mmu_interval_notifier *mni, uint64_t start, uint64_t end)
{
	struct ib_umem_odp *odp =
		(struct ib_umem_odp *)((char *)mni - offsetof(struct ib_umem_odp, notifier));

	return any(odp->umem.dev->seg, odp->pt_root, odp->pt_levels, (start >> PAGE_SHIFT) - odp->first_page,
		   (end >> PAGE_SHIFT) - odp->first_page);
}

static const struct mmu_interval_notifier_ops notifier_ops = {.invalidate = invalidate, .holds = holds};

/* ---- faults ---- */

/* Enters [from, to), page numbers of the table. How many were not there, or -ENOMEM. umem_mutex held. */
static int enter(struct ib_umem_odp *odp, uint64_t from, uint64_t to, uint8_t right, bool prefetch)
{
	uint32_t now = refault_now();
	bool look = refault_any(now);
	uint8_t *leaf = NULL;
	uint64_t n = 0, again = 0;
	int err = 0;

	for (uint64_t i = from; i < to; i++) {
		if (!leaf || !(i % LEAF_PAGES))
			leaf = leaf_make(odp, i);
		if (!leaf) {
			err = -ENOMEM;
			break;
		}
		uint8_t *b = &leaf[i % LEAF_PAGES], old = *b;

		n += old == UMEM_PT_NONE;
		again += look && old == UMEM_PT_NONE && refault_take(odp->id, i, now);
		if ((old | right) != old) /* an entry to write stays one when it is faulted for reading */
			__atomic_store_n(b, old | right, __ATOMIC_RELEASE);
	}
	if (n)
		count_mapped(odp, n, prefetch);
	if (again && !prefetch) {
		COUNT(odp, page_refaults, again);
		FL_PROBE3(refault, (odp->first_page + from) << PAGE_SHIFT, (odp->first_page + to) << PAGE_SHIFT, again);
	}
	FL_PROBE4(map, (odp->first_page + from) << PAGE_SHIFT, (odp->first_page + to) << PAGE_SHIFT, n, prefetch);
	return err ? err : (int)n;
}

/* An invalidation came between, or is under way. */
static void count_retry(struct ib_umem_odp *odp, uint64_t addr)
{
	COUNT(odp, page_fault_retries, 1);
	FL_PROBE3(page_fault_retry, addr, odp->umem.address, odp->umem.length);
}

int ib_umem_odp_map_dma_and_lock(struct ib_umem_odp *odp, uint64_t addr, size_t len, unsigned flags)
{
	bool write = flags & UMEM_FAULT_WRITE;
	uint64_t first = odp->first_page;
	struct hmm_range range;
	unsigned long seq;
	int ret;

	if (!len || addr < odp->umem.address || len > odp->umem.length ||
	    addr - odp->umem.address > odp->umem.length - len)
		return -EFAULT;
	if (write && !odp->umem.writable)
		return -EPERM;

	for (;;) {
		mm_wait_start_dma();
		seq = mmu_interval_read_begin(&odp->notifier);
		range = (struct hmm_range){
			.notifier = &odp->notifier,
			.notifier_seq = seq,
			.start = addr & PAGE_MASK,
			.end = ((addr + len - 1) & PAGE_MASK) + PAGE_SIZE,
			.write = write,
			.nosleep = flags & UMEM_FAULT_NOSLEEP,
		};
		if (!(flags & UMEM_FAULT_FORCE) && ib_umem_odp_present(odp, addr, len, write)) {
			/* another fault brought it: see that it stays so under the lock */
			fl_lock(&odp->umem_mutex);
			if (ib_umem_odp_present(odp, addr, len, write))
				return 0;
			fl_unlock(&odp->umem_mutex);
			continue;
		}
		provoke_race(PROVOKE_FAULT_BEGUN);
		ret = hmm_range_fault(&range);
		if (ret == -EBUSY) {
			count_retry(odp, addr);
			continue;
		}
		if (ret) {
			if (ret == -EFAULT && flags & UMEM_FAULT_FORCE) {
				/* the table promised what is not there */
				fl_lock(&odp->umem_mutex);
				ib_umem_odp_unmap_dma_pages(odp, addr & PAGE_MASK, addr + len);
				fl_unlock(&odp->umem_mutex);
			}
			return ret;
		}
		provoke_race(PROVOKE_FAULT_POPULATED);
		fl_lock(&odp->umem_mutex);
		if (!mmu_interval_read_retry(&odp->notifier, seq))
			break;
		fl_unlock(&odp->umem_mutex);
		count_retry(odp, addr);
	}
	provoke_race(PROVOKE_FAULT_LOCKED);
	ret = enter(odp, range.start / PAGE_SIZE - first, range.end / PAGE_SIZE - first,
		    write ? UMEM_PT_WRITE : UMEM_PT_READ, flags & UMEM_FAULT_PREFETCH);
	if (ret < 0) {
		fl_unlock(&odp->umem_mutex);
		fl_warn_once("no memory is left in the segment for the tables of on-demand regions");
		return ret;
	}
	if (flags & UMEM_FAULT_PREFETCH)
		return ret;
	if (range.major)
		COUNT(odp, page_faults_major, 1);
	else
		COUNT(odp, page_faults_minor, 1);
	return ret;
}

bool ib_umem_odp_present(const struct ib_umem_odp *odp, uint64_t addr, size_t len, bool write)
{
	const uint64_t all = write ? 0x0303030303030303ull : 0x0101010101010101ull;
	const uint8_t need = (uint8_t)all;
	uint64_t i, to;
	const uint8_t *leaf = NULL;

	/* pairs with stop_dma() of the event thread: either it waits for our hazard, or we see this */
	if (__atomic_load_n(&mm_stop_dma, __ATOMIC_SEQ_CST))
		return false;
	if (!len || addr < odp->umem.address || len > odp->umem.length ||
	    addr - odp->umem.address > odp->umem.length - len)
		return false;
	i = (addr >> PAGE_SHIFT) - odp->first_page;
	to = ((addr + len - 1) >> PAGE_SHIFT) - odp->first_page + 1;
	for (; i < to; i++) {
		uint64_t at = i % LEAF_PAGES;

		if (!leaf || !at) {
			leaf = leaf_of(odp, i);
			if (!leaf)
				return false;
		}
		if (!(at & 7) && to - i >= 8) {
			if ((__atomic_load_n((const uint64_t *)(leaf + at), __ATOMIC_SEQ_CST) & all) != all)
				return false;
			i += 7;
			continue;
		}
		if ((__atomic_load_n(&leaf[at], __ATOMIC_SEQ_CST) & need) != need)
			return false;
	}
	return true;
}

static enum umem_way way(const struct ib_umem *umem, uint64_t addr, size_t len, bool write, bool failed)
{
	return !failed && ib_umem_odp_present(to_ib_umem_odp(umem), addr, len, write) ? UMEM_BY_ADDRESS
										      : UMEM_FAULT;
}

static int fault(struct ib_umem *umem, uint64_t addr, size_t len, unsigned flags)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(umem);
	int n = ib_umem_odp_map_dma_and_lock(odp, addr, len, flags);

	if (n >= 0)
		ib_umem_odp_unlock(odp);
	return n;
}

/* ---- life ---- */

static void release(struct ib_umem *umem)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(umem);

	/* no callback after this, nor one under way */
	mmu_interval_notifier_remove(&odp->notifier);
	if (odp->mapped)
		count_unmapped(odp, odp->mapped);
	free_chunks(odp->umem.dev->seg, odp->pt_root, odp->pt_levels);
	fl_mutex_destroy(&odp->umem_mutex);
	free(odp);
}

static const struct umem_ops umem_odp_ops = {
	.kind = UMEM_ODP,
	.way = way,
	.fault = fault,
	.release = release,
};

int ib_umem_odp_get(struct umem_device *dev, uint64_t addr, size_t size, unsigned access,
		    struct ib_umem **out)
{
	static uint32_t ids;
	struct ib_umem_odp *odp;
	int err;

	if (!size)
		return -EINVAL;
	if (addr + size < addr || ((addr + size + PAGE_SIZE - 1) & PAGE_MASK) < addr + size)
		return -EOVERFLOW;
	odp = calloc(1, sizeof(*odp));
	if (!odp)
		return -ENOMEM;
	odp->umem.ops = &umem_odp_ops;
	odp->umem.dev = dev;
	odp->umem.address = addr;
	odp->umem.length = size;
	odp->umem.writable = umem_writable(access);
	odp->id = __atomic_fetch_add(&ids, 1, __ATOMIC_RELAXED);
	odp->first_page = addr >> PAGE_SHIFT;
	fl_mutex_init(&odp->umem_mutex, LOCK_UMEM_MUTEX);
	for (odp->pt_levels = 1; pages_below(odp->pt_levels) < num_pages(odp);)
		odp->pt_levels++;
	odp->pt_root = seg_chunk_alloc(dev->seg);
	if (!odp->pt_root) {
		err = -ENOMEM;
		goto err_free;
	}
	err = mmu_interval_notifier_insert(&odp->notifier, addr, size, &notifier_ops);
	if (err)
		goto err_table;
	*out = &odp->umem;
	return 0;

err_table:
	seg_chunk_free(dev->seg, odp->pt_root);
err_free:
	fl_mutex_destroy(&odp->umem_mutex);
	free(odp);
	return err;
}
