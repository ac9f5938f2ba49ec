/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pinned memory stays what it was when it was registered: unmapped, discarded, protected, moved,
 * mapped over or truncated, the device goes on using the pages that were there, in both directions,
 * and nothing of it shows in what is mapped at their addresses now.
 *
 * Run with the preloaded hooks and without them.
 */
#include "rc.h"

#include <unistd.h>

static struct rc_side a, b;
static uint8_t *buf;
static struct ibv_mr *buf_mr;
static const char *now;
static uint64_t seed = 100;

static enum ibv_wc_status rdma(enum ibv_wr_opcode op, const void *at, uint32_t len, struct ibv_mr *mr)
{
	rc_pair(&a, &b, &rc_default);
	CHECK(!rc_post(&a, op, (uintptr_t)buf, len, buf_mr->lkey, (uintptr_t)at, mr->rkey), "%s: post", now);
	return rc_wait(&a);
}

static void reads(const void *at, uint32_t len, struct ibv_mr *mr, uint64_t pattern)
{
	enum ibv_wc_status s;
	uint64_t wrong;

	memset(buf, 0x77, len);
	s = rdma(IBV_WR_RDMA_READ, at, len, mr);
	CHECK(s == IBV_WC_SUCCESS, "%s: READ: %s", now, ibv_wc_status_str(s));
	wrong = rc_differs(buf, len, 0, pattern);
	CHECK(wrong == UINT64_MAX, "%s: READ gives other data than the pinned pages hold, at %lu", now, wrong);
}

/* WRITE, and READ gives it back; returns the pattern */
static uint64_t keeps(void *at, uint32_t len, struct ibv_mr *mr)
{
	enum ibv_wc_status s;

	rc_fill(buf, len, 0, ++seed);
	s = rdma(IBV_WR_RDMA_WRITE, at, len, mr);
	CHECK(s == IBV_WC_SUCCESS, "%s: WRITE: %s", now, ibv_wc_status_str(s));
	reads(at, len, mr, seed);
	return seed;
}

/* what the application had written before it took the memory away is there; and then as keeps() */
static void stays(void *at, uint32_t len, struct ibv_mr *mr, uint64_t pattern)
{
	reads(at, len, mr, pattern);
	keeps(at, len, mr);
}

static void is_zero(const uint8_t *m, size_t len)
{
	for (size_t i = 0; i < len; i++)
		CHECK(!m[i], "%s: byte %zu of the new mapping was written", now, i);
}

static uint8_t *filled(struct ibv_mr **mr, size_t len, uint64_t pattern)
{
	uint8_t *m = rc_map(len);

	rc_fill(m, len, 0, pattern);
	*mr = rc_reg(&b, m, len, ALL_ACCESS);
	return m;
}

static void map_over(void *at, size_t len)
{
	CHECK(mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at,
	      "%s: mmap", now);
}

static void taken_away(void)
{
	const size_t len = 4 * PAGE;
	struct ibv_mr *mr;
	uint8_t *m;

	now = "discarded";
	m = filled(&mr, len, 1);
	CHECK(!madvise(m, len, MADV_DONTNEED), "madvise");
	is_zero(m, len);
	stays(m, len, mr, 1);
	is_zero(m, len); /* and not what the device wrote */
	ibv_dereg_mr(mr);

	now = "unmapped";
	m = filled(&mr, len, 2);
	CHECK(!munmap(m, len), "munmap");
	stays(m, len, mr, 2);
	stays(m + 5, 2 * PAGE - 100, mr, keeps(m + 5, 2 * PAGE - 100, mr));
	now = "unmapped and mapped anew";
	map_over(m, len);
	keeps(m, len, mr);
	is_zero(m, len);
	ibv_dereg_mr(mr);

	now = "mapped over";
	m = filled(&mr, len, 3);
	map_over(m, len);
	stays(m, len, mr, 3);
	is_zero(m, len);
	ibv_dereg_mr(mr);

	now = "moved away";
	m = filled(&mr, len, 4);
	uint8_t *to = rc_map(len);

	CHECK(mremap(m, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to, "mremap");
	stays(m, len, mr, 4);
	CHECK(rc_differs(to, len, 0, seed) == UINT64_MAX, "%s: the pages moved, but not with their data", now);
	ibv_dereg_mr(mr);

	now = "a part unmapped";
	m = filled(&mr, len, 5);
	CHECK(!munmap(m + PAGE, PAGE), "munmap");
	stays(m, len, mr, 5);
	CHECK(rc_differs(m, PAGE, 0, seed) == UINT64_MAX, "%s: an intact page before", now);
	CHECK(rc_differs(m + 2 * PAGE, 2 * PAGE, 2 * PAGE, seed) == UINT64_MAX, "%s: intact pages behind", now);
	now = "intact pages beside";
	keeps(m + 2 * PAGE, 100, mr);
	CHECK(rc_differs(m + 2 * PAGE, 100, 0, seed) == UINT64_MAX, "%s: the CPU does not see it", now);
	ibv_dereg_mr(mr);
}

static void protected(void)
{
	struct ibv_mr *mr;
	uint8_t *m = filled(&mr, 2 * PAGE, 6);

	now = "read-only";
	CHECK(!mprotect(m, 2 * PAGE, PROT_READ), "mprotect");
	stays(m, 2 * PAGE, mr, 6);
	CHECK(rc_differs(m, 2 * PAGE, 0, seed) == UINT64_MAX, "%s: the CPU does not see what was written", now);
	now = "PROT_NONE";
	CHECK(!mprotect(m, 2 * PAGE, PROT_NONE), "mprotect");
	stays(m, 2 * PAGE, mr, seed);
	CHECK(!mprotect(m, 2 * PAGE, PROT_READ | PROT_WRITE), "mprotect");
	CHECK(rc_differs(m, 2 * PAGE, 0, seed) == UINT64_MAX, "%s: the CPU does not see what was written", now);
	ibv_dereg_mr(mr);
}

static void truncated(void)
{
	int fd = memfd_create("truncated", 0);
	struct ibv_mr *mr;
	uint8_t *m;

	now = "truncated";
	CHECK(fd >= 0 && !ftruncate(fd, 4 * PAGE), "memfd");
	m = rc_map_as(4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	memset(m, 1, 4 * PAGE);
	mr = rc_reg(&b, m, 4 * PAGE, ALL_ACCESS);
	CHECK(!ftruncate(fd, PAGE), "ftruncate");
	keeps(m + 2 * PAGE, PAGE, mr);
	ibv_dereg_mr(mr);
	close(fd);
}

static void atomics(void)
{
	struct ibv_mr *mr;
	uint8_t *m = filled(&mr, PAGE, 7);
	uint64_t *word = (uint64_t *)(m + 64), *got = (uint64_t *)buf;

	now = "atomics on unmapped memory";
	*word = 41;
	CHECK(!munmap(m, PAGE), "munmap");
	rc_pair(&a, &b, &rc_default);
	CHECK(!rc_post_atomic(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)buf, buf_mr->lkey, (uintptr_t)word,
			      mr->rkey, 1, 0), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(*got == 41, "fetch and add gave %lu", *got);
	CHECK(!rc_post_atomic(&a, IBV_WR_ATOMIC_CMP_AND_SWP, (uintptr_t)buf, buf_mr->lkey, (uintptr_t)word,
			      mr->rkey, 42, 7), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(*got == 42, "compare and swap gave %lu", *got);
	CHECK(!rc_post_atomic(&a, IBV_WR_ATOMIC_CMP_AND_SWP, (uintptr_t)buf, buf_mr->lkey, (uintptr_t)word,
			      mr->rkey, 42, 9), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(*got == 7, "compare and swap gave %lu", *got);
	CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)buf, 8, buf_mr->lkey, (uintptr_t)word, mr->rkey), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(*got == 7, "a swap that compared unequal was made");
	ibv_dereg_mr(mr);
}

/* the requester's own side: source of a WRITE, sink of a READ */
static void local(void)
{
	uint8_t *m = rc_map(2 * PAGE), *far = rc_map(2 * PAGE);
	struct ibv_mr *mr, *far_mr = rc_reg(&b, far, 2 * PAGE, ALL_ACCESS);

	now = "local, unmapped";
	rc_fill(m, 2 * PAGE, 0, 8);
	mr = rc_reg(&a, m, 2 * PAGE, ALL_ACCESS);
	CHECK(!munmap(m, 2 * PAGE), "munmap");
	rc_pair(&a, &b, &rc_default);
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m, 2 * PAGE, mr->lkey, (uintptr_t)far, far_mr->rkey),
	      "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(rc_differs(far, 2 * PAGE, 0, 8) == UINT64_MAX, "the source was not what it had been");
	rc_fill(far, 2 * PAGE, 0, 9);
	CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)m, 2 * PAGE, mr->lkey, (uintptr_t)far, far_mr->rkey),
	      "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	memset(far, 0, 2 * PAGE);
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m, 2 * PAGE, mr->lkey, (uintptr_t)far, far_mr->rkey),
	      "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(rc_differs(far, 2 * PAGE, 0, 9) == UINT64_MAX, "what was READ is not there");
	ibv_dereg_mr(mr);
	ibv_dereg_mr(far_mr);
}

int main(int argc, char **argv)
{
	rc_main(argc, argv);
	rc_open(&a);
	rc_open(&b);
	buf = rc_map(64 * PAGE);
	buf_mr = rc_reg(&a, buf, 64 * PAGE, ALL_ACCESS);
	taken_away();
	protected();
	truncated();
	atomics();
	local();
	ibv_dereg_mr(buf_mr);
	rc_close(&a);
	rc_close(&b);
	return 0;
}
