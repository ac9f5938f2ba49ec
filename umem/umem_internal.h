/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this room share. */
#ifndef FL_UMEM_INTERNAL_H
#define FL_UMEM_INTERNAL_H

#include <errno.h>
#include "umem/umem.h"
#include "util/interval_tree.h"

bool umem_writable(unsigned access);

/* counts for the region (and for the device) */
#define UMEM_MR_ADD(umem, field, n)                                                                \
	do {                                                                                       \
		struct faultline_mr *mr_ = __atomic_load_n(&(umem)->stat, __ATOMIC_RELAXED);       \
		if (mr_)                                                                           \
			__atomic_fetch_add(&mr_->field, n, __ATOMIC_RELAXED);                      \
	} while (0)

#define UMEM_COUNT(umem, field, n)                                                                 \
	do {                                                                                       \
		cnt_add((umem)->dev->stat, FL_CNT_##field, n);                                     \
		UMEM_MR_ADD(umem, field, n);                                                       \
	} while (0)

/* ---- umem.c: who took pinned memory away ---- */

/* the first keeps its place; called where nothing may be allocated */
void umem_taken_remember(struct umem_taken *taken, const struct mmu_notifier_range *range);
/* "start-end by munmap(), called from ..."; page: the page accessed, for when nobody was remembered */
const char *umem_taken_text(struct umem_taken *taken, uint64_t page, char *text, size_t size);

/* ---- umem_pt.c: the table of an on-demand region; with umem_mutex, but where said ---- */

int pt_init(struct ib_umem_odp *odp);
void pt_destroy(struct ib_umem_odp *odp);
/* the page numbers of the table that lie in [start, end); false: none does */
bool pt_clip(const struct ib_umem_odp *odp, uint64_t start, uint64_t end, uint64_t *from, uint64_t *to);
/* Takes pages out: how many. Those that are pinned stay, and become stale if the caller says so. */
uint64_t pt_clear(struct ib_umem_odp *odp, uint64_t from, uint64_t to, bool stale);
/* how many are not there at all */
uint64_t pt_absent(const struct ib_umem_odp *odp, uint64_t from, uint64_t to);
/* Adds rights (and UMEM_PT_PINNED); *fresh: how many were not there; *again: of those, how many went within
 * a second. -ENOMEM: the segment is full. */
int pt_enter(struct ib_umem_odp *odp, uint64_t from, uint64_t to, uint8_t right, uint64_t *fresh,
	     uint64_t *again);
/* They are pinned no longer; how many were stale, and so are out. */
uint64_t pt_unpin(struct ib_umem_odp *odp, uint64_t from, uint64_t to);
/* without the lock: */
/* is something there? A page that comes or goes meanwhile may be missed */
bool pt_any(const struct ib_umem_odp *odp, uint64_t from, uint64_t to);
uint8_t pt_page(const struct ib_umem_odp *odp, uint64_t index);
#define PT_ABSENT 1u /* some page is not there with that right */
#define PT_PINNED 2u
#define PT_STALE  4u
unsigned pt_look(const struct ib_umem_odp *odp, uint64_t addr, size_t len, bool write);

/* ---- umem_odp.c ---- */

/* a region whose umem is filled in but for ops; mni_ops: its notifier's */
int umem_odp_init(struct ib_umem_odp *odp, const struct mmu_interval_notifier_ops *mni_ops);
void umem_odp_destroy(struct ib_umem_odp *odp);
/* the invalidate of every on-demand notifier; the table is empty then: true */
bool umem_odp_holds(struct mmu_interval_notifier *mni, uint64_t start, uint64_t end);
bool umem_odp_invalidate(struct ib_umem_odp *odp, const struct mmu_notifier_range *range,
			 unsigned long cur_seq);
/* fresh pages have come into the table, or are out of it; umem_mutex held */
void umem_odp_count_mapped(struct ib_umem_odp *odp, uint64_t n, unsigned flags);
void umem_odp_count_unmapped(struct ib_umem_odp *odp, uint64_t n);
enum umem_way umem_odp_way(const struct ib_umem *umem, uint64_t addr, size_t len, bool write, bool failed);
int umem_odp_fault(struct ib_umem *umem, uint64_t addr, size_t len, unsigned flags);

/* ---- umem_odp_around.c ---- */

/* a fault there was resolved: what the CPU has behind it may come along; umem_mutex not held */
void umem_odp_around(struct ib_umem_odp *odp, uint64_t addr, size_t len, unsigned flags);

/* ---- umem_odp_pin.c ---- */

int umem_odp_copy(struct ib_umem *umem, uint32_t key, uint64_t addr, void *buf, size_t len, bool to_pages);
int umem_odp_atomic(struct ib_umem *umem, uint32_t key, uint64_t addr, bool cmpswap, uint64_t swap_add,
		    uint64_t compare, uint64_t *orig);
int umem_odp_pin(struct ib_umem *umem, uint64_t addr, size_t len);
int umem_odp_unpin(struct ib_umem *umem, uint64_t addr, size_t len);
void umem_odp_unpin_all(struct ib_umem_odp *odp);

/* ---- umem_implicit.c ---- */

/* in a new process, or the child of a fork */
void umem_implicit_init(void);

/* ---- umem_pinned.c ---- */

void umem_pinned_init(void);

/* ---- iommu.c ---- */

/* Maps pages for DMA, or unmaps them, and counts: -ENOMEM: the aperture is used up (said). */
int ib_dma_map_pages(struct umem_device *dev, uint64_t n);
void ib_dma_unmap_pages(struct umem_device *dev, uint64_t n);

#endif
