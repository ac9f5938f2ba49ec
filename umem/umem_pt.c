/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of an on-demand region: a radix tree of 4 KiB chunks in the segment, all links offsets. A
 * leaf holds a byte a page (UMEM_PT_*) for 16 MiB, an inner chunk 512 links. It grows with what is
 * mapped: a leaf is made when its first page comes, and of a region with more than one it is given back
 * when its last page goes.
 *
 * Writers hold umem_mutex. Readers take no lock, but announce themselves (dma_begin): so a leaf that is
 * unlinked is not used again before the readers of its range are through. Who looks without announcing
 * himself gets a hint, and must look again under the lock.
 */
#include "umem/refault.h"
#include "umem/umem.h"
#include "umem/umem_internal.h"

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

int pt_init(struct ib_umem_odp *odp)
{
	static uint32_t ids;

	odp->id = __atomic_fetch_add(&ids, 1, __ATOMIC_RELAXED);
	odp->first_page = odp->umem.address >> PAGE_SHIFT;
	for (odp->pt_levels = 1; pages_below(odp->pt_levels) < num_pages(odp);)
		odp->pt_levels++;
	odp->pt_root = seg_chunk_alloc(odp->umem.dev->seg);
	return odp->pt_root ? 0 : -ENOMEM;
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

void pt_destroy(struct ib_umem_odp *odp)
{
	free_chunks(odp->umem.dev->seg, odp->pt_root, odp->pt_levels);
}

/* The leaf that holds page number `index` of the table; NULL: not there. */
static uint8_t *leaf_of(const struct ib_umem_odp *odp, uint64_t index)
{
	const struct seg *seg = odp->umem.dev->seg;
	uint64_t off = odp->pt_root;

	for (unsigned level = odp->pt_levels; level > 1; level--) {
		const uint64_t *inner = seg_ptr(seg, off);
		uint64_t i = index / pages_below(level - 1) % INNER;

		/* pairs with leaf_make(); seq_cst: and with give_back(), after the announcement */
		off = __atomic_load_n(&inner[i], __ATOMIC_SEQ_CST);
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
			/* zeroed when it can be seen; pairs with leaf_of() and any() */
			__atomic_store_n(&inner[i], off, __ATOMIC_RELEASE);
		}
	}
	return seg_ptr(seg, off);
}

/* what clear() carries along */
struct clearing {
	struct ib_umem_odp *odp;
	uint32_t now;
	bool stale; /* what is pinned becomes stale, or stays as it is */
};

/* Clears [from, to) of the leaf whose first page has the number `base`; returns how many were cleared. */
static uint64_t clear_leaf(const struct clearing *c, uint8_t *leaf, uint64_t base, uint64_t from, uint64_t to)
{
	uint64_t n = 0;

	for (uint64_t i = from; i < to; i++) {
		if (!(i & 7) && i + 8 <= to && !*(uint64_t *)(leaf + i)) {
			i += 7;
			continue;
		}
		/* seq_cst, both: before the look at the hazards; pairs with pt_look() */
		if (leaf[i] & UMEM_PT_PINNED) {
			if (c->stale)
				__atomic_fetch_or(&leaf[i], UMEM_PT_STALE, __ATOMIC_SEQ_CST);
		} else if (leaf[i]) {
			__atomic_exchange_n(&leaf[i], UMEM_PT_NONE, __ATOMIC_SEQ_CST);
			refault_note(c->odp->id, base + i, c->now);
			n++;
		}
	}
	return n;
}

static bool is_empty(const uint64_t *chunk)
{
	for (unsigned i = 0; i < SEG_CHUNK / sizeof(*chunk); i++)
		if (chunk[i])
			return false;
	return true;
}

/* `first`: the number, in the whole table, of the first page below the link */
static void give_back(struct ib_umem_odp *odp, uint64_t *link, uint64_t first, uint64_t pages)
{
	struct seg *seg = odp->umem.dev->seg;
	uint64_t off = *link, start = (odp->first_page + first) << PAGE_SHIFT;

	if (!is_empty(seg_ptr(seg, off)))
		return;
	/* seq_cst: before the look at the hazards; pairs with leaf_of() */
	__atomic_store_n(link, 0, __ATOMIC_SEQ_CST);
	dma_wait_range(start, start + (pages << PAGE_SHIFT));
	seg_chunk_free(seg, off);
}

/* [from, to): page numbers below the chunk at `off`, whose first has the number `base` */
static uint64_t clear(const struct clearing *c, uint64_t off, unsigned levels, uint64_t base, uint64_t from,
		      uint64_t to)
{
	struct seg *seg = c->odp->umem.dev->seg;
	uint64_t n = 0, span, *inner;

	if (levels == 1)
		return clear_leaf(c, seg_ptr(seg, off), base, from, to);
	inner = seg_ptr(seg, off);
	span = pages_below(levels - 1);
	for (uint64_t i = from / span; i <= (to - 1) / span; i++) {
		uint64_t start = i * span, end = start + span, cleared;

		if (!inner[i])
			continue;
		cleared = clear(c, inner[i], levels - 1, base + start, from > start ? from - start : 0,
				(to < end ? to : end) - start);
		if (cleared)
			give_back(c->odp, &inner[i], base + start, span);
		n += cleared;
	}
	return n;
}

bool pt_clip(const struct ib_umem_odp *odp, uint64_t start, uint64_t end, uint64_t *from, uint64_t *to)
{
	uint64_t first = odp->first_page, last = first + num_pages(odp);

	*from = start >> PAGE_SHIFT;
	*to = (end >> PAGE_SHIFT) + !!(end & ~PAGE_MASK);
	*from = (*from > first ? *from : first) - first;
	*to = *to < last ? *to : last;
	*to = *to > first ? *to - first : 0;
	return *from < *to;
}

uint64_t pt_clear(struct ib_umem_odp *odp, uint64_t from, uint64_t to, bool stale)
{
	struct clearing c = {.odp = odp, .now = refault_now(), .stale = stale};

	return clear(&c, odp->pt_root, odp->pt_levels, 0, from, to);
}

uint64_t pt_absent(const struct ib_umem_odp *odp, uint64_t from, uint64_t to)
{
	const uint8_t *leaf = NULL;
	uint64_t n = 0;

	for (uint64_t i = from; i < to; i++) {
		if (!leaf || !(i % LEAF_PAGES))
			leaf = leaf_of(odp, i);
		n += !leaf || leaf[i % LEAF_PAGES] == UMEM_PT_NONE;
	}
	return n;
}

int pt_enter(struct ib_umem_odp *odp, uint64_t from, uint64_t to, uint8_t right, uint64_t *fresh,
	     uint64_t *again)
{
	uint32_t now = refault_now();
	bool look = refault_any(now);
	uint8_t *leaf = NULL;

	*fresh = *again = 0;
	for (uint64_t i = from; i < to; i++) {
		if (!leaf || !(i % LEAF_PAGES))
			leaf = leaf_make(odp, i);
		if (!leaf)
			return -ENOMEM;
		uint8_t *b = &leaf[i % LEAF_PAGES], old = *b;

		*fresh += old == UMEM_PT_NONE;
		*again += look && old == UMEM_PT_NONE && refault_take(odp->id, i, now);
		/* an entry to write stays one when it is faulted for reading. Release: the page is there, and its
		 * mapping watched, when this is seen; pairs with ib_umem_odp_present() and pt_page() */
		if ((old | right) != old)
			__atomic_store_n(b, old | right, __ATOMIC_RELEASE);
	}
	return 0;
}

/* As clear(), of which this is the question. */
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

bool pt_any(const struct ib_umem_odp *odp, uint64_t from, uint64_t to)
{
	return any(odp->umem.dev->seg, odp->pt_root, odp->pt_levels, from, to);
}

uint64_t pt_unpin(struct ib_umem_odp *odp, uint64_t from, uint64_t to)
{
	uint64_t n = 0;

	for (uint64_t i = from; i < to; i++) {
		uint8_t *b = &leaf_of(odp, i)[i % LEAF_PAGES];

		/* a stale page's way was the pin: now there is none. seq_cst: as clear_leaf() */
		n += !!(*b & UMEM_PT_STALE);
		if (*b & UMEM_PT_STALE)
			__atomic_exchange_n(b, UMEM_PT_NONE, __ATOMIC_SEQ_CST);
		else
			__atomic_fetch_and(b, (uint8_t)~UMEM_PT_PINNED, __ATOMIC_SEQ_CST);
	}
	return n;
}

uint8_t pt_page(const struct ib_umem_odp *odp, uint64_t index)
{
	const uint8_t *leaf = leaf_of(odp, index);

	return leaf ? __atomic_load_n(&leaf[index % LEAF_PAGES], __ATOMIC_SEQ_CST) : UMEM_PT_NONE;
}

bool ib_umem_odp_present(const struct ib_umem_odp *odp, uint64_t addr, size_t len, bool write)
{
	const uint64_t all = write ? 0x0303030303030303ull : 0x0101010101010101ull;
	const uint64_t look = all | 0x0101010101010101ull * UMEM_PT_STALE;
	const uint8_t *leaf = NULL;
	uint64_t i, to;

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
			if ((__atomic_load_n((const uint64_t *)(leaf + at), __ATOMIC_SEQ_CST) & look) != all)
				return false;
			i += 7;
			continue;
		}
		if ((__atomic_load_n(&leaf[at], __ATOMIC_SEQ_CST) & (uint8_t)look) != (uint8_t)all)
			return false;
	}
	return true;
}

unsigned pt_look(const struct ib_umem_odp *odp, uint64_t addr, size_t len, bool write)
{
	const uint8_t need = write ? UMEM_PT_WRITE : UMEM_PT_READ;
	uint64_t from, to;
	unsigned seen = 0;

	if (!pt_clip(odp, addr, addr + len, &from, &to))
		return PT_ABSENT;
	for (uint64_t i = from; i < to; i++) {
		uint8_t b = pt_page(odp, i);

		if ((b & need) != need)
			seen |= PT_ABSENT;
		if (b & UMEM_PT_PINNED)
			seen |= PT_PINNED;
		if (b & UMEM_PT_STALE)
			seen |= PT_STALE;
	}
	return seen;
}
