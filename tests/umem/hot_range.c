/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of an on-demand region that are pinned: nested, cut, taken away by the application; counts; and what
 * an aperture that is too small refuses. */
#include <sys/resource.h>
#include "tests/umem/umemtest.h"

static struct faultline_mr mr;

static int pin(struct ib_umem_odp *o, char *at, size_t n)
{
	return ib_umem_pin(&o->umem, (uintptr_t)at, n);
}

static int unpin(struct ib_umem_odp *o, char *at, size_t n)
{
	return ib_umem_unpin(&o->umem, (uintptr_t)at, n);
}

static enum umem_way way(struct ib_umem_odp *o, char *at, size_t n, bool failed)
{
	struct faultline_hazard *h = dma_begin((uintptr_t)at, (uintptr_t)at + n, KEY);
	enum umem_way w = o->umem.ops->way(&o->umem, (uintptr_t)at, n, true, failed);

	dma_end(h);
	return w;
}

static void nests(void)
{
	char *m = anon(16 * P), *hole = anon(4 * P);
	struct ib_umem_odp *o = odp_get(m + 100, 16 * P - 200), *h;

	o->umem.stat = &mr;
	CHECK(pin(o, m + 100, 0) == -EINVAL && pin(o, m, P) == -EFAULT && pin(o, m + 15 * P, P) == -EFAULT);
	CHECK(unpin(o, m + P, P) == -EINVAL);
	CHECK(!pin(o, m + 4 * P + 1, 2 * P)); /* pages 4, 5, 6 */
	CHECK(mr.pinned_pages == 3 && mr.mapped_pages == 3 && mr.page_faults == 0 && mr.dma_maps == 3);
	CHECK(way(o, m + 4 * P, 3 * P, false) == UMEM_BY_ADDRESS && way(o, m + 3 * P, 2 * P, false) == UMEM_FAULT);
	CHECK(!pin(o, m + 2 * P, 4 * P)); /* 2..5 */
	CHECK(mr.pinned_pages == 5);
	CHECK(unpin(o, m + P, 2 * P) == -EINVAL && mr.pinned_pages == 5);
	CHECK(!unpin(o, m + 3 * P, 2 * P)); /* 3 goes, 4 has one left */
	CHECK(mr.pinned_pages == 4);
	CHECK(unpin(o, m + 3 * P, P) == -EINVAL);
	CHECK(!unpin(o, m + 4 * P, 3 * P)); /* 4 and 6 go, 5 has one left */
	CHECK(mr.pinned_pages == 2);
	CHECK(!pin(o, m + 100, 16 * P - 200)); /* all */
	CHECK(mr.pinned_pages == 16 && !unpin(o, m + 100, 16 * P - 200) && mr.pinned_pages == 2);
	/* what was pinned is on demand again */
	madvise(m + 4 * P, P, MADV_DONTNEED);
	mm_wait_start_dma();
	if (o->notifier.watched)
		CHECK(way(o, m + 4 * P, 8, false) == UMEM_FAULT);
	/* over a hole: nothing of it stays pinned */
	munmap(hole + 2 * P, P);
	h = odp_get(hole, 4 * P);
	CHECK(!pin(h, hole, P));
	CHECK(pin(h, hole, 4 * P) == -EFAULT && cnt(FL_CNT_pinned_pages) == 3);
	CHECK(!unpin(h, hole, P) && unpin(h, hole, P) == -EINVAL);
	ib_umem_release(&h->umem);
	ib_umem_release(&o->umem); /* two pages are pinned still */
	CHECK(mr.pinned_pages == 0 && mr.mapped_pages == 0 && cnt(FL_CNT_pinned_pages) == 0);
	CHECK(cnt(FL_CNT_dma_maps) == cnt(FL_CNT_dma_unmaps) && ib_dma_mapped(&dev) == 0);
	munmap(m, 16 * P);
}

/* the pinned part is as pinned memory is: the old pages, and nothing lands in the new ones */
static void taken_away(void)
{
	char *m = anon(8 * P), b[3 * P], c[3 * P];
	struct ib_umem_odp *o = odp_get(m, 8 * P);
	uint64_t orig, stale = cnt(FL_CNT_mr_pinned_stale);

	memset(m, 'a', 8 * P);
	CHECK(!pin(o, m + 2 * P, 2 * P) && fault(o, m, 8 * P, UMEM_FAULT_WRITE) == 6);
	if (!o->notifier.watched) {
		ib_umem_release(&o->umem);
		return;
	}
	CHECK(!munmap(m + P, 2 * P)); /* one that is pinned, and one that is not */
	CHECK(mmap(m + P, 2 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m + P);
	mm_wait_start_dma();
	CHECK(way(o, m + P, 8, false) == UMEM_FAULT && way(o, m + 2 * P, 8, false) == UMEM_BY_COPY);
	CHECK(way(o, m + 3 * P, 8, false) == UMEM_BY_ADDRESS);
	/* a fault of the whole leaves the pinned part alone */
	CHECK(fault(o, m, 8 * P, UMEM_FAULT_WRITE) == 1 && way(o, m + P, 3 * P, false) == UMEM_BY_COPY);
	memset(b, 'b', sizeof(b));
	CHECK(!o->umem.ops->copy(&o->umem, KEY, (uintptr_t)m + P, b, 3 * P, true));
	CHECK(m[P] == 'b' && m[2 * P] == 0 && m[3 * P] == 'b' && m[4 * P] == 'a');
	CHECK(!o->umem.ops->copy(&o->umem, KEY, (uintptr_t)m + P, c, 3 * P, false) && !memcmp(b, c, 3 * P));
	CHECK(cnt(FL_CNT_mr_pinned_stale) > stale);
	CHECK(!o->umem.ops->atomic(&o->umem, KEY, (uintptr_t)m + 2 * P, false, 1, 0, &orig) &&
	      orig == 0x6262626262626262ull);
	CHECK(!o->umem.ops->copy(&o->umem, KEY, (uintptr_t)m + 2 * P, c, 8, false) && c[0] == 'c');
	/* nobody tells of this: by address it fails, by the pin it does not */
	mprotect(m + 3 * P, P, PROT_NONE);
	CHECK(dev_access(o, m + 3 * P, b, 8, true) == -1 && way(o, m + 3 * P, 8, true) == UMEM_BY_COPY);
	CHECK(!o->umem.ops->copy(&o->umem, KEY, (uintptr_t)m + 3 * P, c, 8, false) && c[0] == 'b');
	/* unpinned, a stale page is the new one's */
	CHECK(!unpin(o, m + 2 * P, P) && way(o, m + 2 * P, 8, false) == UMEM_FAULT);
	CHECK(fault(o, m + 2 * P, 8, UMEM_FAULT_WRITE) == 1 && !dev_access(o, m + 2 * P, c, 8, false) && !c[0]);
	ib_umem_release(&o->umem);
	CHECK(cnt(FL_CNT_dma_maps) == cnt(FL_CNT_dma_unmaps) && ib_dma_mapped(&dev) == 0);
	munmap(m, 8 * P);
}

/* a pin that is cut in two, of which one part goes: the other is still one */
static void cut_in_two(void)
{
	char *m = anon(4 * P), c[8];
	struct ib_umem_odp *o = odp_get(m, 4 * P);

	memset(m, 'a', 4 * P);
	CHECK(!pin(o, m, 4 * P) && !pin(o, m, 2 * P) && !unpin(o, m, 4 * P)); /* the first two have one left */
	CHECK(fault(o, m, 4 * P, UMEM_FAULT_WRITE) >= 0);
	if (o->notifier.watched) {
		CHECK(mmap(m, P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m);
		mm_wait_start_dma();
		CHECK(way(o, m, 8, false) == UMEM_BY_COPY && way(o, m + P, 3 * P, false) == UMEM_BY_ADDRESS);
		CHECK(!o->umem.ops->copy(&o->umem, KEY, (uintptr_t)m, c, 8, false) && c[0] == 'a');
	}
	CHECK(!unpin(o, m, 2 * P) && unpin(o, m, P) == -EINVAL && cnt(FL_CNT_pinned_pages) == 0);
	CHECK(o->num_pins == 0); /* or every access would look for pins that are not there */
	ib_umem_release(&o->umem);
	munmap(m, 4 * P);
}

static void debug_access(void)
{
	char *m = anon(4 * P), b[2 * P], c[2 * P];
	struct ib_umem_odp *o = odp_get(m, 4 * P);
	struct ib_umem *u;

	memset(b, 'x', sizeof(b));
	CHECK(!ib_umem_copy_to(&o->umem, KEY, P + 5, b, P) && m[P + 4] == 0 && m[P + 5] == 'x' && m[2 * P + 5] == 0);
	CHECK(!ib_umem_copy_from(c, &o->umem, KEY, P + 5, P) && !memcmp(b, c, P));
	CHECK(ib_umem_copy_from(c, &o->umem, KEY, 4 * P, 1) == -EINVAL);
	CHECK(ib_umem_copy_from(c, &o->umem, KEY, 4 * P - 1, 2) == -EINVAL);
	mprotect(m, P, PROT_READ);
	CHECK(ib_umem_copy_to(&o->umem, KEY, 0, b, 8) == -EFAULT && !ib_umem_copy_from(c, &o->umem, KEY, 0, 8));
	mprotect(m + P, P, PROT_NONE); /* in the table, and not to be had */
	CHECK(ib_umem_copy_from(c, &o->umem, KEY, P, 8) == -EFAULT);
	munmap(m + 3 * P, P);
	CHECK(ib_umem_copy_from(c, &o->umem, KEY, 2 * P, 2 * P) == -EFAULT);
	CHECK(!ib_umem_odp_get(&dev, (uintptr_t)m + 2 * P, P, IBV_ACCESS_REMOTE_READ, &u));
	CHECK(ib_umem_copy_to(u, KEY, 0, b, 8) == -EPERM && !ib_umem_copy_from(c, u, KEY, 0, 8));
	ib_umem_release(u);
	ib_umem_release(&o->umem);
	CHECK(!ib_umem_get(&dev, (uintptr_t)m + 2 * P, P, IBV_ACCESS_LOCAL_WRITE, &u));
	CHECK(!ib_umem_copy_to(u, KEY, 0, b, 8) && m[2 * P] == 'x' && ib_umem_pin(u, (uintptr_t)m, P) == -EINVAL);
	ib_umem_release(u);
}

static void aperture(void)
{
	char *m = anon(16 * P);
	struct ib_umem_odp *o = odp_get(m, 16 * P);
	struct ib_umem *u;

	dev.dma_aperture = 8;
	CHECK(fault(o, m, 8 * P, UMEM_FAULT_WRITE) == 8 && fault(o, m, 8 * P, 0) == 0);
	CHECK(fault(o, m + 8 * P, P, 0) == -ENOMEM && pin(o, m + 8 * P, P) == -ENOMEM);
	CHECK(ib_umem_get(&dev, (uintptr_t)m, P, 0, &u) == -ENOMEM);
	CHECK(cnt(FL_CNT_pinned_pages) == 0 && ib_dma_mapped(&dev) == 8);
	madvise(m, 4 * P, MADV_DONTNEED);
	mm_wait_start_dma();
	if (o->notifier.watched) {
		CHECK(fault(o, m + 8 * P, 5 * P, 0) == -ENOMEM && fault(o, m + 8 * P, 2 * P, 0) == 2);
		CHECK(!pin(o, m + 10 * P, 2 * P) && fault(o, m + 12 * P, P, 0) == -ENOMEM);
	}
	ib_umem_release(&o->umem);
	CHECK(!ib_umem_get(&dev, (uintptr_t)m, 8 * P, 0, &u));
	ib_umem_release(u);
	CHECK(ib_dma_mapped(&dev) == 0 && cnt(FL_CNT_dma_maps) == cnt(FL_CNT_dma_unmaps));
	dev.dma_aperture = 0;
}

/* ---- pins, accesses and unmapping at once ---- */

static int stop;
static struct ib_umem_odp *raced;
static char *hot;

static void *pinner(void *arg)
{
	unsigned seed = 5;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		size_t from = (size_t)rand_r(&seed) % 7, n = 1 + (size_t)rand_r(&seed) % (8 - from);

		if (!pin(raced, hot + from * P, n * P))
			CHECK(!unpin(raced, hot + from * P, n * P));
	}
	return NULL;
}

static void *unmapper(void *arg)
{
	unsigned seed = 9;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		char *at = hot + (size_t)rand_r(&seed) % 8 * P;

		if (rand_r(&seed) % 2)
			madvise(at, P, MADV_DONTNEED);
		else
			CHECK(mmap(at, P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
		usleep(50);
	}
	return NULL;
}

static void races(void)
{
	char b[3 * P];
	pthread_t t[2];
	unsigned seed = 3;

	hot = anon(8 * P);
	raced = odp_get(hot, 8 * P);
	memset(b, 1, sizeof(b));
	__atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
	pthread_create(&t[0], NULL, pinner, NULL);
	pthread_create(&t[1], NULL, unmapper, NULL);
	for (double end = now() + 1; now() < end;) {
		size_t off = (size_t)rand_r(&seed) % (5 * P);

		CHECK(!(rand_r(&seed) % 2 ? ib_umem_copy_to(&raced->umem, KEY, off, b, 2 * P)
					  : ib_umem_copy_from(b, &raced->umem, KEY, off, 2 * P)));
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	CHECK(cnt(FL_CNT_pinned_pages) == 0);
	ib_umem_release(&raced->umem);
	CHECK(cnt(FL_CNT_dma_maps) == cnt(FL_CNT_dma_unmaps) && ib_dma_mapped(&dev) == 0);
}

/* what is unmapped takes its part of a large table along */
static void tables(void)
{
	char *m = mmap(NULL, 1ul << 40, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct ib_umem_odp *o;
	uint32_t fresh;

	if (m == MAP_FAILED)
		return;
	o = odp_get(m, 1ul << 40);
	for (int round = 0; round < 3; round++) {
		for (uint64_t i = 0; i < 200; i++)
			CHECK(fault(o, m + (i << 32), P, UMEM_FAULT_WRITE) == 1);
		if (round == 0)
			fresh = seg.fresh;
		CHECK(seg.fresh == fresh); /* chunks come again */
		madvise(m, 1ul << 40, MADV_DONTNEED);
		mm_wait_start_dma();
		if (!o->notifier.watched)
			break;
		CHECK(o->mapped == 0);
	}
	ib_umem_release(&o->umem);
	munmap(m, 1ul << 40);
}

int main(void)
{
	alarm(100);
	umem_start();
	nests();
	taken_away();
	cut_in_two();
	debug_access();
	aperture();
	tables();
	races();
	return 0;
}
