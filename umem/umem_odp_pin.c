/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Parts of an on-demand region that are pinned: the hot range, which must not fault. A pinned page is in
 * the table with UMEM_PT_PINNED. An invalidation leaves it there and makes it stale: its address may be
 * anything by now, but the page is held, and is reached through the pin, as in a pinned region.
 *
 * What is pinned is a tree of segments that do not overlap, each with a count. Pinning adds segments for
 * what was not pinned, each with a pin of its own, and counts up the rest; where a range begins or ends
 * inside of a segment that is cut in two, which share the pin. The pin goes with its last segment.
 *
 * pins_lock: who pins and unpins, and may sleep at it. The tree changes under umem_mutex as well, so
 * that accesses look segments up under it; they hold a pin by its count.
 */
#include <errno.h>
#include <stdlib.h>
#include "umem/umem.h"
#include "umem/umem_internal.h"
#include "util/log.h"

struct shared_pin {
	struct mm_pin *pin;
	unsigned refs; /* atomic: segments, and accesses under way */
};

struct segment {
	struct interval_node node; /* its first member */
	unsigned count;
	struct shared_pin *pin;
};

static struct segment *segment_of(struct interval_node *n)
{
	return (struct segment *)n;
}

static void put_pin(struct shared_pin *pin)
{
	/* the last one's unpinning comes after the others' use: each is released, and acquired here */
	if (pin && __atomic_fetch_sub(&pin->refs, 1, __ATOMIC_ACQ_REL) == 1) {
		unpin_user_pages(pin->pin);
		free(pin);
	}
}

static uint64_t pages(const struct segment *s)
{
	return (s->node.end - s->node.start) >> PAGE_SHIFT;
}

static void count_pinned(struct ib_umem_odp *odp, int64_t n)
{
	__atomic_fetch_add(&odp->umem.dev->stat->counter[FL_CNT_pinned_pages], (uint64_t)n, __ATOMIC_RELAXED);
	UMEM_MR_ADD(&odp->umem, pinned_pages, (uint64_t)n);
}

/* ---- pinning ---- */

/* Cuts the segment that `at` lies inside of. pins_lock held. */
static int cut(struct ib_umem_odp *odp, uint64_t at)
{
	struct interval_node *n = interval_first(&odp->pins, at, at + 1);
	struct segment *s, *tail;

	if (!n || n->start == at)
		return 0;
	s = segment_of(n);
	tail = malloc(sizeof(*tail));
	if (!tail)
		return -ENOMEM;
	*tail = *s;
	tail->node.start = at;
	__atomic_fetch_add(&s->pin->refs, 1, __ATOMIC_RELAXED);
	fl_lock(&odp->umem_mutex);
	interval_remove(&odp->pins, &s->node);
	s->node.end = at;
	interval_insert(&odp->pins, &s->node);
	interval_insert(&odp->pins, &tail->node);
	__atomic_fetch_add(&odp->num_pins, 1, __ATOMIC_RELEASE);
	fl_unlock(&odp->umem_mutex);
	return 0;
}

/* umem_mutex held; on success it is in the tree */
static int enter(struct ib_umem_odp *odp, struct segment *s)
{
	uint8_t right = odp->umem.writable ? UMEM_PT_WRITE : UMEM_PT_READ;
	uint64_t from, to, absent, fresh, again;
	int err;

	pt_clip(odp, s->node.start, s->node.end, &from, &to);
	absent = pt_absent(odp, from, to);
	err = ib_dma_map_pages(odp->umem.dev, absent);
	if (err)
		return err;
	/* the rights first: that there is room for all is known before anything is pinned */
	err = pt_enter(odp, from, to, right, &fresh, &again);
	if (fresh)
		umem_odp_count_mapped(odp, fresh, UMEM_FAULT_PIN);
	if (err) {
		ib_dma_unmap_pages(odp->umem.dev, absent - fresh);
		return err;
	}
	pt_enter(odp, from, to, right | UMEM_PT_PINNED, &fresh, &again);
	interval_insert(&odp->pins, &s->node);
	/* release, both: the table is as they say; pairs with next_part(), held() and umem_odp_way(), which look
	 * without the lock, and with the first look at pins_moved, of which the second is under it */
	__atomic_fetch_add(&odp->num_pins, 1, __ATOMIC_RELEASE);
	__atomic_fetch_add(&odp->pins_moved, 1, __ATOMIC_RELEASE);
	return 0;
}

/* pins_lock held, nothing of [start, end) is pinned */
static int pin_part(struct ib_umem_odp *odp, uint64_t start, uint64_t end)
{
	struct segment *s = calloc(1, sizeof(*s));
	struct shared_pin *pin = calloc(1, sizeof(*pin));
	bool locked = false;
	int err = s && pin ? -EBUSY : -ENOMEM;

	while (err == -EBUSY) {
		unsigned long seq;
		struct hmm_range range;

		mm_wait_start_dma();
		seq = mmu_interval_read_begin(&odp->notifier);
		range = (struct hmm_range){.notifier = &odp->notifier,
					   .notifier_seq = seq,
					   .start = start,
					   .end = end,
					   .write = odp->umem.writable};
		/* also has what is mapped watched */
		err = hmm_range_fault(&range);
		if (!err)
			err = pin_user_pages(start, end - start, odp->umem.writable, &pin->pin);
		if (err)
			continue;
		fl_lock(&odp->umem_mutex);
		locked = true;
		if (!mmu_interval_read_retry(&odp->notifier, seq))
			break;
		fl_unlock(&odp->umem_mutex);
		locked = false;
		unpin_user_pages(pin->pin);
		err = -EBUSY;
	}
	if (!err) {
		s->node.start = start;
		s->node.end = end;
		s->count = 1;
		s->pin = pin;
		pin->refs = 1;
		err = enter(odp, s);
	}
	if (locked)
		fl_unlock(&odp->umem_mutex);
	if (!err) {
		count_pinned(odp, (int64_t)pages(s));
		return 0;
	}
	if (locked)
		unpin_user_pages(pin->pin);
	free(pin);
	free(s);
	return err;
}

/* pins_lock held */
static void drop(struct ib_umem_odp *odp, struct segment *s)
{
	uint64_t from, to, gone;

	pt_clip(odp, s->node.start, s->node.end, &from, &to);
	fl_lock(&odp->umem_mutex);
	interval_remove(&odp->pins, &s->node);
	gone = pt_unpin(odp, from, to);
	__atomic_fetch_add(&odp->pins_moved, 1, __ATOMIC_RELEASE);
	__atomic_fetch_sub(&odp->num_pins, 1, __ATOMIC_RELEASE);
	if (gone) {
		dma_wait_range(s->node.start, s->node.end);
		umem_odp_count_unmapped(odp, gone);
	}
	fl_unlock(&odp->umem_mutex);
	count_pinned(odp, -(int64_t)pages(s));
	put_pin(s->pin);
	free(s);
}

/* Counts down what is in [start, end), which segments fill without one that reaches out. pins_lock held. */
static void unpin_parts(struct ib_umem_odp *odp, uint64_t start, uint64_t end)
{
	struct interval_node *n = interval_first(&odp->pins, start, end), *next;

	for (; n; n = next) {
		next = interval_next(n, start, end);
		if (!--segment_of(n)->count)
			drop(odp, segment_of(n));
	}
}

/* the pages of [addr, addr + len) and its end: false: not within the region */
static bool clip(const struct ib_umem_odp *odp, uint64_t *addr, uint64_t len, uint64_t *end)
{
	if (*addr < odp->umem.address || len > odp->umem.length ||
	    *addr - odp->umem.address > odp->umem.length - len)
		return false;
	*end = (*addr + len + PAGE_SIZE - 1) & PAGE_MASK;
	*addr &= PAGE_MASK;
	return true;
}

int umem_odp_pin(struct ib_umem *umem, uint64_t addr, size_t len)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(umem);
	uint64_t at, from, to, end, undo;
	struct interval_node *n;
	int err;

	if (!len)
		return -EINVAL;
	if (!clip(odp, &addr, len, &end))
		return -EFAULT;
	fl_lock(&odp->pins_lock);
	err = cut(odp, addr);
	if (!err)
		err = cut(odp, end);
	if (err)
		goto out;
	/* those that are there */
	for (n = interval_first(&odp->pins, addr, end); n; n = interval_next(n, addr, end))
		segment_of(n)->count++;
	/* and between them; what is behind `at` is counted, or new */
	undo = at = addr;
	while (!err && interval_next_gap(&odp->pins, &at, end, &from, &to)) {
		err = pin_part(odp, from, to);
		undo = err ? from : to;
	}
	if (err && undo > addr)
		unpin_parts(odp, addr, undo);
	if (err && undo < end) /* new ones are none there */
		for (n = interval_first(&odp->pins, undo, end); n; n = interval_next(n, undo, end))
			segment_of(n)->count--;
out:
	fl_unlock(&odp->pins_lock);
	return err;
}

int umem_odp_unpin(struct ib_umem *umem, uint64_t addr, size_t len)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(umem);
	uint64_t at, from, to, end;
	int err;

	if (!len || !clip(odp, &addr, len, &end))
		return -EINVAL;
	fl_lock(&odp->pins_lock);
	at = addr;
	err = interval_next_gap(&odp->pins, &at, end, &from, &to) ? -EINVAL : 0;
	if (!err)
		err = cut(odp, addr);
	if (!err)
		err = cut(odp, end);
	if (!err)
		unpin_parts(odp, addr, end);
	fl_unlock(&odp->pins_lock);
	return err;
}

void umem_odp_unpin_all(struct ib_umem_odp *odp)
{
	fl_lock(&odp->pins_lock);
	while (odp->pins.root)
		drop(odp, segment_of(odp->pins.root));
	fl_unlock(&odp->pins_lock);
}

/* ---- accesses that meet pinned pages which are not at their addresses ---- */

static void tell(struct ib_umem_odp *odp, uint32_t key, uint64_t addr, bool lost)
{
	char what[640];

	cnt_inc(odp->umem.dev->stat, FL_CNT_mr_pinned_stale);
	if (__atomic_exchange_n(&odp->told, true, __ATOMIC_RELAXED))
		return;
	fl_warn("on-demand MR with key 0x%x: the application took memory away that it had pinned by "
		"faultline_mr_pin() and that is accessed now: %s. %s. Unpin a range before it is unmapped or "
		"discarded",
		key, umem_taken_text(&odp->taken, addr & PAGE_MASK, what, sizeof(what)),
		lost ? "The access fails: memory pinned by mlock cannot be reached any more"
		     : "The device goes on using the pages that were there");
}

/* The pin that holds the page at addr, counted up, and where its segment ends; NULL: not pinned. */
static struct shared_pin *get_pin(struct ib_umem_odp *odp, uint64_t addr, uint64_t *end)
{
	struct shared_pin *pin = NULL;
	struct interval_node *n;

	fl_lock(&odp->umem_mutex);
	n = interval_first(&odp->pins, addr, addr + 1);
	if (n) {
		pin = segment_of(n)->pin;
		*end = n->end;
		__atomic_fetch_add(&pin->refs, 1, __ATOMIC_RELAXED);
	} else {
		n = interval_first(&odp->pins, addr, odp->notifier.end);
		*end = n ? n->start : odp->notifier.end;
	}
	fl_unlock(&odp->umem_mutex);
	return pin;
}

static int by_address(struct ib_umem_odp *odp, uint32_t key, uint64_t addr, void *buf, size_t len,
		      bool to_pages)
{
	struct faultline_hazard *h = dma_begin(addr, addr + len, key);
	void *at = (void *)(uintptr_t)addr;
	size_t left = len;

	if (ib_umem_odp_present(odp, addr, len, to_pages))
		left = to_pages ? copy_guarded(at, buf, len) : copy_guarded(buf, at, len);
	dma_end(h);
	return left ? -EFAULT : 0;
}

int umem_odp_copy(struct ib_umem *umem, uint32_t key, uint64_t addr, void *buf, size_t len, bool to_pages)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(umem);

	while (len) {
		uint64_t end;
		struct shared_pin *pin = get_pin(odp, addr, &end);
		size_t n = end - addr < len ? end - addr : len;
		int rc;

		if (pin) {
			rc = pin_copy(pin->pin, addr, buf, n, to_pages);
			put_pin(pin);
			tell(odp, key, addr, rc == -EOPNOTSUPP);
			if (rc)
				return -EACCES;
		} else {
			rc = by_address(odp, key, addr, buf, n, to_pages);
			if (rc)
				return rc;
		}
		addr += n;
		buf = (char *)buf + n;
		len -= n;
	}
	return 0;
}

int umem_odp_atomic(struct ib_umem *umem, uint32_t key, uint64_t addr, bool cmpswap, uint64_t swap_add,
		    uint64_t compare, uint64_t *orig)
{
	struct ib_umem_odp *odp = to_ib_umem_odp(umem);
	uint64_t end;
	struct shared_pin *pin = get_pin(odp, addr, &end);
	int rc;

	if (!pin)
		return -EFAULT;
	/* one of the CPU's that began by address before the page was taken away must not be lost */
	dma_wait_range(addr, addr + 8);
	rc = pin_atomic(pin->pin, addr, cmpswap, swap_add, compare, orig);
	put_pin(pin);
	tell(odp, key, addr, rc == -EOPNOTSUPP);
	return rc ? -EACCES : 0;
}
