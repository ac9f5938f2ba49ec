/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ibv_advise_mr(): what is refused and how, with and without FLUSH; what becomes resident; that a list
 * stops at what cannot be had; that a prefetch under way does not outlive its region.
 */
#include "rc.h"

#include <unistd.h>

#define PREFETCH IBV_ADVISE_MR_ADVICE_PREFETCH
#define WRITE	 IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
#define NO_FAULT IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
#define FLUSH	 IBV_ADVISE_MR_FLAG_FLUSH
#define PAGES	 16

static struct rc_side s;
static struct ibv_pd *other_pd;
static const enum ibv_advise_mr_advice advices[] = {PREFETCH, WRITE, NO_FAULT};

static int advise(enum ibv_advise_mr_advice advice, uint32_t flags, const void *at, uint32_t len, uint32_t key)
{
	struct ibv_sge sge = {.addr = (uintptr_t)at, .length = len, .lkey = key};

	return ibv_advise_mr(s.pd, advice, flags, &sge, 1);
}

#define GIVES(want, ...)                                                                           \
	do {                                                                                       \
		int got_ = advise(__VA_ARGS__);                                                    \
		CHECK(got_ == (want), "%s (advice %d): %s, not %s", #__VA_ARGS__, a, strerror(got_), \
		      strerror(want));                                                             \
	} while (0)

static unsigned resident(const void *m, size_t pages)
{
	unsigned char vec[64];
	unsigned n = 0;

	CHECK(pages <= 64 && !mincore((void *)m, pages * PAGE, vec), "mincore");
	for (size_t i = 0; i < pages; i++)
		n += vec[i] & 1;
	return n;
}

/* the same for every advice but where a table of three says otherwise */
static void refusals(enum ibv_advise_mr_advice a)
{
	uint8_t *m = rc_map(PAGES * PAGE), *ro, *none, *gone;
	struct ibv_mr *mr = rc_reg(&s, m, PAGES * PAGE, ALL_ACCESS | ODP);
	struct ibv_mr *pinned = rc_reg(&s, rc_map(PAGE), PAGE, ALL_ACCESS);
	struct ibv_mr *no_write = rc_reg(&s, m, PAGE, IBV_ACCESS_REMOTE_READ | ODP);
	struct ibv_mr *other = ibv_reg_mr(other_pd, m, PAGE, ALL_ACCESS | ODP);
	const int no_fault = a == NO_FAULT;

	CHECK(other, "ibv_reg_mr");
	for (uint32_t f = 0; f <= FLUSH; f += FLUSH) {
		int no_range = f ? EFAULT : 0;

		GIVES(0, a, f, m, PAGES * PAGE, mr->lkey);
		GIVES(0, a, f, m + 100, PAGE, mr->lkey);
		GIVES(no_range, a, f, m + PAGE, PAGES * PAGE, mr->lkey);
		GIVES(no_range, a, f, m - 1, PAGE, mr->lkey);
		GIVES(no_range, a, f, m + PAGES * PAGE, 1, mr->lkey);
		GIVES(no_range, a, f, pinned->addr, PAGE, pinned->lkey);
		GIVES(f ? EINVAL : 0, a, f, m, 0, mr->lkey);
		GIVES(EINVAL, a, f, m, PAGE, mr->lkey ^ 0x5500);
		GIVES(EINVAL, a, f, m, PAGE, other->lkey);
		GIVES(EINVAL, a, f, m, PAGE, no_write->lkey);
		CHECK(ibv_advise_mr(s.pd, a, f, &(struct ibv_sge){.addr = (uintptr_t)m, .lkey = mr->lkey}, 0) ==
		      EINVAL, "no SGE");
	}
	GIVES(EINVAL, a, 2, m, PAGE, mr->lkey);
	GIVES(EINVAL, a, 0x80000000, m, PAGE, mr->lkey);
	for (int bad = 3; bad < 100; bad += 96)
		CHECK(advise((enum ibv_advise_mr_advice)bad, FLUSH, m, PAGE, mr->lkey) == EOPNOTSUPP, "advice %d", bad);

	/* what the memory itself allows */
	ro = m + 4 * PAGE;
	none = m + 6 * PAGE;
	gone = m + 8 * PAGE;
	CHECK(!mprotect(ro, PAGE, PROT_READ) && !mprotect(none, PAGE, PROT_NONE) && !munmap(gone, PAGE), "%m");
	GIVES(a == WRITE ? EPERM : 0, a, FLUSH, ro, PAGE, mr->lkey);
	GIVES(no_fault ? 0 : EFAULT, a, FLUSH, none, PAGE, mr->lkey);
	GIVES(no_fault ? 0 : EFAULT, a, FLUSH, gone, PAGE, mr->lkey);
	GIVES(no_fault ? 0 : EFAULT, a, FLUSH, gone - PAGE / 2, PAGE, mr->lkey);
	GIVES(0, a, 0, gone, PAGE, mr->lkey);

	struct ibv_sge list[3] = {
		{.addr = (uintptr_t)m, .length = PAGE, .lkey = mr->lkey},
		{.addr = (uintptr_t)gone, .length = PAGE, .lkey = mr->lkey},
		{.addr = (uintptr_t)m + 10 * PAGE, .length = PAGE, .lkey = mr->lkey},
	};
	int rc = ibv_advise_mr(s.pd, a, FLUSH, list, 3);

	CHECK(rc == (no_fault ? 0 : EFAULT), "a list with a hole in it: %s", strerror(rc));
	list[1] = list[0];
	CHECK(!ibv_advise_mr(s.pd, a, FLUSH, list, 3), "a list");
	ibv_dereg_mr(no_write);
	ibv_dereg_mr(other);
	ibv_dereg_mr(pinned);
	ibv_dereg_mr(mr);
}

static void residency(enum ibv_advise_mr_advice a, uint32_t flags)
{
	uint8_t *m = rc_map(PAGES * PAGE);
	struct ibv_mr *mr = rc_reg(&s, m, PAGES * PAGE, ALL_ACCESS | ODP);
	unsigned want = a == NO_FAULT ? 0 : PAGES;

	GIVES(0, a, flags, m, PAGES * PAGE, mr->lkey);
	for (int i = 0; i < 2000 && resident(m, PAGES) != want; i++)
		usleep(1000);
	CHECK(resident(m, PAGES) == want, "advice %d, flags %u: %u pages resident, not %u", a, flags,
	      resident(m, PAGES), want);
	ibv_dereg_mr(mr);
}

/* regions that go while their prefetch is not done */
static void cancelled(void)
{
	size_t size = 64ul << 20;
	uint8_t *m = rc_map_as(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);

	for (int i = 0; i < 20; i++) {
		struct ibv_mr *mr = rc_reg(&s, m, size, ALL_ACCESS | ODP);
		struct ibv_sge sge[2] = {
			{.addr = (uintptr_t)m, .length = (uint32_t)size, .lkey = mr->lkey},
			{.addr = (uintptr_t)m + size / 2, .length = (uint32_t)size / 2, .lkey = mr->lkey},
		};
		double t;

		CHECK(!ibv_advise_mr(s.pd, WRITE, 0, sge, 2), "advise");
		usleep((unsigned)(i * 100));
		t = rc_now();
		CHECK(!ibv_dereg_mr(mr), "dereg");
		CHECK(rc_now() - t < 2, "deregistration waits for all of a prefetch");
		CHECK(!madvise(m, size, MADV_DONTNEED), "madvise");
	}
	munmap(m, size);
}

int main(int argc, char **argv)
{
	rc_main(argc, argv);
	rc_open(&s);
	other_pd = ibv_alloc_pd(s.ctx);
	for (int i = 0; i < 3; i++) {
		refusals(advices[i]);
		residency(advices[i], 0);
		residency(advices[i], FLUSH);
	}
	cancelled();
	ibv_dealloc_pd(other_pd);
	rc_close(&s);
	return 0;
}
