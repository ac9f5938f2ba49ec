/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * On-demand regions: nothing is held at registration but an interval notifier and one chunk of table.
 * The device looks a page up in the table (ib_umem_odp_present); a miss is a page fault, which makes
 * the page present in the CPU's tables first and enters it here (ib_umem_odp_map_dma_and_lock); when
 * the application takes the page away the notifier clears it here, and waits for copies under way.
 * The table is umem_pt.c's. Parts of a region may be pinned (umem_odp_pin.c): these neither fault nor
 * go away.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "umem/umem.h"
#include "umem/umem_internal.h"
#include "util/log.h"
#include "util/probe.h"
#include "util/provoke.h"

/* ---- counters ---- */

void umem_odp_count_mapped(struct ib_umem_odp *odp, uint64_t n, unsigned flags)
{
	odp->mapped += n;
	UMEM_MR_ADD(&odp->umem, dma_maps, n);
	UMEM_COUNT(&odp->umem, mapped_pages, n);
	if (flags & UMEM_FAULT_PREFETCH)
		UMEM_COUNT(&odp->umem, page_prefetch, n);
	else if (!(flags & UMEM_FAULT_PIN))
		UMEM_COUNT(&odp->umem, page_faults, n);
}

void umem_odp_count_unmapped(struct ib_umem_odp *odp, uint64_t n)
{
	struct faultline_device *d = odp->umem.dev->stat;

	odp->mapped -= n;
	ib_dma_unmap_pages(odp->umem.dev, n);
	__atomic_fetch_sub(&d->counter[FL_CNT_mapped_pages], n, __ATOMIC_RELAXED);
	UMEM_MR_ADD(&odp->umem, dma_unmaps, n);
	UMEM_MR_ADD(&odp->umem, mapped_pages, -n);
}

/* ---- taking away ---- */

static void take_out(struct ib_umem_odp *odp, uint64_t start, uint64_t end, bool stale)
{
	uint64_t from, to, n;

	if (!pt_clip(odp, start, end, &from, &to))
		return;
	n = pt_clear(odp, from, to, stale);
	provoke_race(PROVOKE_INVALIDATE_CLEARED);
	/* also when none was set: another may have cleared them and still wait */
	dma_wait_range((odp->first_page + from) << PAGE_SHIFT, (odp->first_page + to) << PAGE_SHIFT);
	if (n)
		umem_odp_count_unmapped(odp, n);
}

void ib_umem_odp_unmap_dma_pages(struct ib_umem_odp *odp, uint64_t start, uint64_t end)
{
	take_out(odp, start, end, true);
}

bool umem_odp_invalidate(struct ib_umem_odp *odp, const struct mmu_notifier_range *range,
			 unsigned long cur_seq)
{
	/* what is pinned is not reclaimed (the look was at what is mapped there by now), and does not migrate */
	bool stale = range->event != MMU_NOTIFY_RECLAIM && range->event != MMU_NOTIFY_MIGRATE, empty;
	uint64_t before;

	fl_lock(&odp->umem_mutex);
	mmu_interval_set_seq(&odp->notifier, cur_seq);
	if (stale && odp->pins.root && interval_first(&odp->pins, range->start, range->end))
		umem_taken_remember(&odp->taken, range);
	before = odp->mapped;
	take_out(odp, range->start, range->end, stale);
	before -= odp->mapped;
	empty = !odp->mapped;
	FL_PROBE3(invalidate, range->start, range->end, before);
	if (before) {
		UMEM_COUNT(&odp->umem, page_invalidations, before);
		if (range->event == MMU_NOTIFY_RECLAIM)
			UMEM_COUNT(&odp->umem, page_reclaims, before);
	}
	fl_unlock(&odp->umem_mutex);
	return empty;
}

static bool invalidate(struct mmu_interval_notifier *mni, const struct mmu_notifier_range *range,
		       unsigned long cur_seq)
{
	umem_odp_invalidate(caa_container_of(mni, struct ib_umem_odp, notifier), range, cur_seq);
	return true;
}

bool umem_odp_holds(struct mmu_interval_notifier *mni, uint64_t start, uint64_t end)
{
	const struct ib_umem_odp *odp = caa_container_of(mni, struct ib_umem_odp, notifier);
	uint64_t from, to;

	return pt_clip(odp, start, end, &from, &to) && pt_any(odp, from, to);
}

static const struct mmu_interval_notifier_ops notifier_ops = {.invalidate = invalidate, .holds = umem_odp_holds};

/* ---- faults ---- */

/* Is there nothing to do for such an access? A hint without umem_mutex. */
static bool held(const struct ib_umem_odp *odp, uint64_t addr, size_t len, bool write)
{
	if (ib_umem_odp_present(odp, addr, len, write))
		return true;
	return __atomic_load_n(&odp->num_pins, __ATOMIC_ACQUIRE) &&
	       !(pt_look(odp, addr, len, write) & PT_ABSENT);
}

/*
 * The next part of [*at, end) that is not pinned: false: there is none. Without umem_mutex: pins may come
 * and go, and then odp->pins_moved does not stay what it was.
 */
static bool next_part(const struct ib_umem_odp *odp, uint64_t *at, uint64_t end, uint64_t *from, uint64_t *to)
{
	*from = *at;
	*to = *at = end;
	if (!__atomic_load_n(&odp->num_pins, __ATOMIC_ACQUIRE))
		return *from < end;
	while (*from < end && pt_page(odp, (*from >> PAGE_SHIFT) - odp->first_page) & UMEM_PT_PINNED)
		*from += PAGE_SIZE;
	for (*to = *from;
	     *to < end && !(pt_page(odp, (*to >> PAGE_SHIFT) - odp->first_page) & UMEM_PT_PINNED);)
		*to += PAGE_SIZE;
	*at = *to;
	return *from < *to;
}

static int populate(struct ib_umem_odp *odp, struct hmm_range *range)
{
	uint64_t at = range->start, end = range->end;
	bool major = false;
	int ret = 0;

	while (!ret && next_part(odp, &at, end, &range->start, &range->end)) {
		ret = hmm_range_fault(range);
		major |= range->major;
	}
	range->major = major;
	return ret;
}

/* Enters what is not pinned of a range. How many were not there, or -ENOMEM. umem_mutex held. */
static int enter(struct ib_umem_odp *odp, uint64_t start, uint64_t end, uint8_t right, unsigned flags)
{
	uint64_t at = start, from, to, absent, fresh, gone, n = 0, again = 0;
	int err = 0;

	while (!err && next_part(odp, &at, end, &from, &to)) {
		from = (from >> PAGE_SHIFT) - odp->first_page;
		to = (to >> PAGE_SHIFT) - odp->first_page;
		absent = pt_absent(odp, from, to);
		err = ib_dma_map_pages(odp->umem.dev, absent);
		if (err)
			break;
		err = pt_enter(odp, from, to, right, &fresh, &gone);
		if (err) {
			ib_dma_unmap_pages(odp->umem.dev, absent - fresh);
			fl_warn_once("no memory is left in the segment for the tables of on-demand regions");
		}
		n += fresh;
		again += gone;
	}
	if (n)
		umem_odp_count_mapped(odp, n, flags);
	if (again && !(flags & UMEM_FAULT_PREFETCH)) {
		UMEM_COUNT(&odp->umem, page_refaults, again);
		FL_PROBE3(refault, start, end, again);
	}
	FL_PROBE4(map, start, end, n, !!(flags & UMEM_FAULT_PREFETCH));
	return err ? err : (int)n;
}

/* An invalidation came between, or is under way. */
static void count_retry(struct ib_umem_odp *odp, uint64_t addr)
{
	UMEM_COUNT(&odp->umem, page_fault_retries, 1);
	FL_PROBE3(page_fault_retry, addr, odp->umem.address, odp->umem.length);
}

/* the table promised what is not there */
static void forget(struct ib_umem_odp *odp, uint64_t start, uint64_t end)
{
	uint64_t at = start, from, to;

	fl_lock(&odp->umem_mutex);
	while (next_part(odp, &at, end, &from, &to))
		ib_umem_odp_unmap_dma_pages(odp, from, to);
	fl_unlock(&odp->umem_mutex);
}

int ib_umem_odp_map_dma_and_lock(struct ib_umem_odp *odp, uint64_t addr, size_t len, unsigned flags)
{
	bool write = flags & UMEM_FAULT_WRITE;
	uint64_t start = addr & PAGE_MASK, end = ((addr + len - 1) & PAGE_MASK) + PAGE_SIZE;
	struct hmm_range range;
	unsigned long seq, pins;
	int ret;

	if (!len || addr < odp->umem.address || len > odp->umem.length ||
	    addr - odp->umem.address > odp->umem.length - len)
		return -EFAULT;
	if (write && !odp->umem.writable)
		return -EPERM;

	for (;;) {
		mm_wait_start_dma();
		seq = mmu_interval_read_begin(&odp->notifier);
		pins = __atomic_load_n(&odp->pins_moved, __ATOMIC_ACQUIRE);
		range = (struct hmm_range){
			.notifier = &odp->notifier,
			.notifier_seq = seq,
			.start = start,
			.end = end,
			.write = write,
			.nosleep = flags & UMEM_FAULT_NOSLEEP,
			.touch = flags & UMEM_FAULT_TOUCH,
		};
		if (!(flags & UMEM_FAULT_FORCE) && held(odp, addr, len, write)) {
			/* another fault brought it: see that it stays so under the lock */
			fl_lock(&odp->umem_mutex);
			if (held(odp, addr, len, write))
				return 0;
			fl_unlock(&odp->umem_mutex);
			continue;
		}
		provoke_race(PROVOKE_FAULT_BEGUN);
		ret = populate(odp, &range);
		if (ret == -EBUSY) {
			count_retry(odp, addr);
			continue;
		}
		if (ret) {
			if (ret == -EFAULT && flags & UMEM_FAULT_FORCE)
				forget(odp, start, end);
			return ret;
		}
		provoke_race(PROVOKE_FAULT_POPULATED);
		fl_lock(&odp->umem_mutex);
		if (!mmu_interval_read_retry(&odp->notifier, seq) && pins == odp->pins_moved)
			break;
		fl_unlock(&odp->umem_mutex);
		count_retry(odp, addr);
	}
	provoke_race(PROVOKE_FAULT_LOCKED);
	ret = enter(odp, start, end, write ? UMEM_PT_WRITE : UMEM_PT_READ, flags);
	if (ret < 0) {
		fl_unlock(&odp->umem_mutex);
		return ret;
	}
	if (flags & (UMEM_FAULT_PREFETCH | UMEM_FAULT_AROUND))
		return ret;
	if (range.major)
		UMEM_COUNT(&odp->umem, page_faults_major, 1);
	else
		UMEM_COUNT(&odp->umem, page_faults_minor, 1);
	return ret;
}

enum umem_way umem_odp_way(const struct ib_umem *umem, uint64_t addr, size_t len, bool write, bool failed)
{
	const struct ib_umem_odp *odp = to_ib_umem_odp(umem);
	unsigned seen;

	if (!failed && ib_umem_odp_present(odp, addr, len, write))
		return UMEM_BY_ADDRESS;
	if (!__atomic_load_n(&odp->num_pins, __ATOMIC_ACQUIRE))
		return UMEM_FAULT;
	seen = pt_look(odp, addr, len, write);
	if (seen & PT_ABSENT)
		return UMEM_FAULT;
	return seen & PT_STALE || (failed && seen & PT_PINNED) ? UMEM_BY_COPY : UMEM_FAULT;
}

int umem_odp_fault(struct ib_umem *umem, uint64_t addr, size_t len, unsigned flags)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(umem);
	int n = ib_umem_odp_map_dma_and_lock(odp, addr, len, flags);

	if (n < 0)
		return n;
	ib_umem_odp_unlock(odp);
	if (!(flags & (UMEM_FAULT_PREFETCH | UMEM_FAULT_FORCE)))
		umem_odp_around(odp, addr, len, flags);
	return n;
}

/* ---- life ---- */

int umem_odp_init(struct ib_umem_odp *odp, const struct mmu_interval_notifier_ops *mni_ops)
{
	int err;

	fl_mutex_init(&odp->umem_mutex, LOCK_UMEM_MUTEX);
	fl_mutex_init(&odp->pins_lock, LOCK_UMEM_PINS);
	err = pt_init(odp);
	if (err)
		goto err_mutex;
	err = mmu_interval_notifier_insert(&odp->notifier, odp->umem.address, odp->umem.length, mni_ops);
	if (err)
		goto err_table;
	return 0;

err_table:
	pt_destroy(odp);
err_mutex:
	fl_mutex_destroy(&odp->pins_lock);
	fl_mutex_destroy(&odp->umem_mutex);
	return err;
}

void umem_odp_destroy(struct ib_umem_odp *odp)
{
	/* no callback after this, nor one under way */
	mmu_interval_notifier_remove(&odp->notifier);
	umem_odp_unpin_all(odp);
	if (odp->mapped)
		umem_odp_count_unmapped(odp, odp->mapped);
	pt_destroy(odp);
	fl_mutex_destroy(&odp->pins_lock);
	fl_mutex_destroy(&odp->umem_mutex);
}

static void release(struct ib_umem *umem)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(umem);

	umem_odp_destroy(odp);
	free(odp);
}

static const struct umem_ops umem_odp_ops = {
	.kind = UMEM_ODP,
	.way = umem_odp_way,
	.fault = umem_odp_fault,
	.copy = umem_odp_copy,
	.atomic = umem_odp_atomic,
	.pin = umem_odp_pin,
	.unpin = umem_odp_unpin,
	.release = release,
};

int ib_umem_odp_get(struct umem_device *dev, uint64_t addr, size_t size, unsigned access,
		    struct ib_umem **out)
{
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
	err = umem_odp_init(odp, &notifier_ops);
	if (err) {
		free(odp);
		return err;
	}
	*out = &odp->umem;
	return 0;
}
