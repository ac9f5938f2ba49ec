/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pinned regions. Pages are faulted in, pinned and DMA-mapped as a whole at registration and given back
 * as a whole when the last key is gone; whatever the application does to the addresses meanwhile, the
 * device goes on using the pages that were there.
 *
 * As a rule they still are there, and the device reaches them by address. An interval notifier tells
 * when the application takes some away (munmap, madvise, mremap, mmap over); its callback marks them
 * stale, a bit a page, and waits for accesses by address under way. From then on they are reached
 * through the pin (pin_copy), slowly. A page by its address and through its pin is the same memory
 * until then, so the slow way is never wrong, and it is taken, too, when an access by address fails:
 * nobody tells of mprotect() or of a file that was truncated.
 *
 * Memory that is registered and taken away is a bug of the application almost always. The first access
 * of each region that meets it says so: which region, who registered it, who took it away.
 */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "umem/umem.h"
#include "umem/umem_internal.h"
#include "util/log.h"

/* Who registers: a few frames cost 2 us, and so only the first registrations of a process pay. */
#define TRACE_FRAMES 10
#define TRACE_FIRST  512u

struct ib_umem_pinned {
	struct ib_umem umem;
	struct mmu_interval_notifier notifier;
	void *trace[TRACE_FRAMES];
	int num_trace;
	bool reported; /* atomic */
	bool locked;   /* atomic: pinned by mlock */
	struct umem_taken taken;
	uint64_t stale[]; /* a bit a page; atomic, only ever set */
};

static struct ib_umem_pinned *to_pinned(const struct ib_umem *umem)
{
	return (struct ib_umem_pinned *)umem; /* umem is its first member */
}

/* ---- what is taken away ---- */

static bool invalidate(struct mmu_interval_notifier *mni, const struct mmu_notifier_range *range,
		       unsigned long cur_seq)
{
	struct ib_umem_pinned *p = caa_container_of(mni, struct ib_umem_pinned, notifier);
	uint64_t from = range->start > mni->start ? range->start : mni->start;
	uint64_t to = range->end < mni->end ? range->end : mni->end;

	mmu_interval_set_seq(mni, cur_seq);
	/* The kernel refuses to discard locked memory; and what it would not take away is not to be lost
	 * where there is no other way to it. */
	if (from >= to || range->event == MMU_NOTIFY_RECLAIM || range->event == MMU_NOTIFY_MIGRATE ||
	    (range->event == MMU_NOTIFY_CLEAR && __atomic_load_n(&p->locked, __ATOMIC_RELAXED)))
		return true;
	umem_taken_remember(&p->taken, range);
	for (uint64_t i = (from - mni->start) >> PAGE_SHIFT; i < (to - mni->start) >> PAGE_SHIFT;) {
		uint64_t n = ((to - mni->start) >> PAGE_SHIFT) - i, bit = i % 64;

		n = n < 64 - bit ? n : 64 - bit;
		/* seq_cst, all of these: before the look at the hazards. Pairs with ib_umem_pinned_stale() and
		 * ib_umem_pinned_intact(), which look after the announcement. */
		__atomic_fetch_or(&p->stale[i / 64], (~0ull >> (64 - n)) << bit, __ATOMIC_SEQ_CST);
		i += n;
	}
	__atomic_store_n(&p->umem.stale, true, __ATOMIC_SEQ_CST);
	ib_umem_pinned_publish(&p->umem);
	dma_wait_range(from, to);
	return true;
}

void ib_umem_pinned_publish(struct ib_umem *umem)
{
	/* seq_cst, all: of the key's creation and an invalidation the later one sees what the other wrote */
	struct faultline_mr *ent = __atomic_load_n(&umem->stat, __ATOMIC_SEQ_CST);

	if (ent && __atomic_load_n(&umem->stale, __ATOMIC_SEQ_CST))
		__atomic_store_n(&ent->stale, 1, __ATOMIC_SEQ_CST);
}

static const struct mmu_interval_notifier_ops notifier_ops = {.once = true, .invalidate = invalidate};

bool ib_umem_pinned_stale(const struct ib_umem *umem, uint64_t addr, size_t len)
{
	const struct ib_umem_pinned *p = to_pinned(umem);
	uint64_t i, last;

	if (!__atomic_load_n(&umem->stale, __ATOMIC_SEQ_CST) || !len)
		return false;
	last = (addr + len - 1 - p->notifier.start) >> PAGE_SHIFT;
	for (i = (addr - p->notifier.start) >> PAGE_SHIFT; i <= last; i++)
		if (__atomic_load_n(&p->stale[i / 64], __ATOMIC_SEQ_CST) >> (i % 64) & 1)
			return true;
	return false;
}

static enum umem_way way(const struct ib_umem *umem, uint64_t addr, size_t len, bool write, bool failed)
{
	if (failed) /* nobody tells of everything */
		return UMEM_BY_COPY;
	/* pairs with stop_dma() of the event thread: either it waits for our hazard, or we see this */
	if (__builtin_expect(__atomic_load_n(&mm_stop_dma, __ATOMIC_SEQ_CST), 0))
		return ib_umem_pinned_stale(umem, addr, len) ? UMEM_BY_COPY : UMEM_WAIT;
	return ib_umem_pinned_stale(umem, addr, len) ? UMEM_BY_COPY : UMEM_BY_ADDRESS;
}

/* ---- telling ---- */

/* "where [<- caller ...]"; our own frames, and those of the C library's start, say nothing */
static const char *trace_text(const struct ib_umem_pinned *p, char *text, size_t size)
{
	Dl_info us, at;
	size_t used = 0;
	unsigned shown = 0;

	if (!dladdr((void *)(uintptr_t)&notifier_ops, &us))
		us.dli_fbase = NULL;
	text[0] = 0;
	for (int i = 0; i < p->num_trace && shown < 4 && used < size; i++) {
		uintptr_t pc = (uintptr_t)p->trace[i];

		if (!dladdr(p->trace[i], &at) || !at.dli_fname || at.dli_fbase == us.dli_fbase)
			continue;
		if (shown && strstr(at.dli_fname, "/libc.so"))
			break;
		used += (size_t)snprintf(text + used, size - used, "%s%s(%s+0x%lx)",
					 shown++ ? " <- " : "", at.dli_fname,
					 at.dli_sname ? at.dli_sname : "",
					 pc - (uintptr_t)(at.dli_sname ? at.dli_saddr : at.dli_fbase));
	}
	return shown ? text : "a caller not recorded";
}

static void report(struct ib_umem_pinned *p, uint32_t key, uint64_t addr, bool lost)
{
	static const char lost_text[] = "The access fails: memory pinned by mlock (io_uring is not to be "
					"had) cannot be reached any more; a NIC would go on using it",
			  kept_text[] = "The device goes on using the pages that were there, as a NIC does";
	char where[1024], what[640];

	if (__atomic_exchange_n(&p->reported, true, __ATOMIC_RELAXED))
		return;
	fl_warn("pinned MR with key 0x%x (%zu bytes at %#lx, registered by %s): the application took memory "
		"of it away that is accessed now: %s. %s. Deregister an MR before its memory is freed, "
		"unmapped or discarded, or register it on demand (IBV_ACCESS_ON_DEMAND)",
		key, p->umem.length, p->umem.address, trace_text(p, where, sizeof(where)),
		umem_taken_text(&p->taken, addr & PAGE_MASK, what, sizeof(what)),
		lost ? lost_text : kept_text);
}

/* ---- the slow way: through the pin. It counts, and for the first time in a region it tells the user ---- */

static int told(struct ib_umem *umem, uint32_t key, uint64_t addr, int err)
{
	cnt_inc(umem->dev->stat, FL_CNT_mr_pinned_stale);
	report(to_pinned(umem), key, addr, err == -EOPNOTSUPP);
	return err ? -EACCES : 0;
}

static int pinned_copy(struct ib_umem *umem, uint32_t key, uint64_t addr, void *buf, size_t len,
		       bool to_pages)
{
	return told(umem, key, addr, pin_copy(umem->pin, addr, buf, len, to_pages));
}

static int pinned_atomic(struct ib_umem *umem, uint32_t key, uint64_t addr, bool cmpswap,
			 uint64_t swap_add, uint64_t compare, uint64_t *orig)
{
	/* one of the CPU's that began by address before the page was taken away must not be lost */
	dma_wait_range(addr, addr + 8);
	return told(umem, key, addr, pin_atomic(umem->pin, addr, cmpswap, swap_add, compare, orig));
}

/* ---- life ---- */

static void release(struct ib_umem *umem)
{
	struct ib_umem_pinned *p = to_pinned(umem);

	mmu_interval_notifier_remove(&p->notifier);
	ib_dma_unmap_pages(umem->dev, umem->npages);
	unpin_user_pages(umem->pin);
	__atomic_fetch_sub(&umem->dev->stat->counter[FL_CNT_pinned_pages], umem->npages, __ATOMIC_RELAXED);
	free(p);
}

static const struct umem_ops umem_pinned_ops = {
	.kind = UMEM_PINNED,
	.way = way,
	.copy = pinned_copy,
	.atomic = pinned_atomic,
	.release = release,
};

/*
 * The first backtrace() loads a library. Later that would go into any hole, also one that the application has
 * made by munmap() to put something there again by MAP_FIXED.
 */
void umem_pinned_init(void)
{
	void *frame;

	backtrace(&frame, 1);
}

int ib_umem_get(struct umem_device *dev, uint64_t addr, size_t size, unsigned access,
		struct ib_umem **out)
{
	static unsigned traces;
	struct ib_umem_pinned *p;
	uint64_t npages;
	int err;

	/* also when only the end, rounded up to a page, wraps */
	if (!size || addr + size < addr || ((addr + size + PAGE_SIZE - 1) & PAGE_MASK) < addr + size)
		return -EINVAL;
	npages = (((addr + size + PAGE_SIZE - 1) & PAGE_MASK) - (addr & PAGE_MASK)) >> PAGE_SHIFT;
	/* of a length that no memory has these are addresses only, until the pin is refused */
	p = calloc(1, sizeof(*p) + (npages + 63) / 64 * 8);
	if (!p)
		return -ENOMEM;
	p->umem.ops = &umem_pinned_ops;
	p->umem.dev = dev;
	p->umem.address = addr;
	p->umem.length = size;
	p->umem.writable = umem_writable(access);
	p->umem.npages = npages;
	/* In the tree before it is pinned: what goes away in between is at worst taken for stale. */
	err = mmu_interval_notifier_insert(&p->notifier, addr, size, &notifier_ops);
	if (err)
		goto err_free;
	/* an invalidation under way may have put the insertion off: wait for its end */
	mmu_interval_read_begin(&p->notifier);
	err = pin_user_pages(addr, size, p->umem.writable, &p->umem.pin);
	if (err)
		goto err_notifier;
	err = ib_dma_map_pages(dev, npages);
	if (err)
		goto err_unpin;
	mmu_interval_notifier_watch(&p->notifier);
	__atomic_store_n(&p->locked, !strcmp(pin_how(p->umem.pin), "mlock"), __ATOMIC_RELAXED);
	if (__atomic_load_n(&traces, __ATOMIC_RELAXED) < TRACE_FIRST &&
	    __atomic_fetch_add(&traces, 1, __ATOMIC_RELAXED) < TRACE_FIRST)
		p->num_trace = backtrace(p->trace, TRACE_FRAMES);
	cnt_add(dev->stat, FL_CNT_pinned_pages, npages);
	*out = &p->umem;
	return 0;

err_unpin:
	unpin_user_pages(p->umem.pin);
err_notifier:
	mmu_interval_notifier_remove(&p->notifier);
err_free:
	free(p);
	return err == -EOVERFLOW ? -EFAULT : err;
}
