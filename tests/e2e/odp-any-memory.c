/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Any memory of a process may be registered on demand: a part of a page, the stack, .data, the
 * heap, huge pages, text to be read; whether its changes can be watched or not, accesses are right.
 * free() of a registered heap buffer returns, and the device then sees what is there.
 */
#include "rc.h"

static struct rc_side a, b;
static uint8_t *buf;
static struct ibv_mr *bmr;
static uint8_t in_data[3 * PAGE] = {1, 2, 3};
static uint8_t in_bss[3 * PAGE];

static void rw(const char *what, uint8_t *at, uint32_t len)
{
	struct ibv_mr *mr = rc_reg(&b, at, len, ALL_ACCESS | ODP);
	uint8_t left = at[-1], right = at[len];

	for (uint64_t i = 0; i < 2; i++) {
		rc_fill(buf, len, 0, i + 3);
		rc_pair(&a, &b, &rc_default);
		CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)buf, len, bmr->lkey, (uintptr_t)at,
			       mr->rkey),
		      "post");
		rc_expect(&a, IBV_WC_SUCCESS);
		CHECK(rc_differs(at, len, 0, i + 3) == UINT64_MAX, "%s: WRITE", what);
		CHECK(at[-1] == left && at[len] == right, "%s: neighbours", what);
		at[len / 2] ^= 1;
		memset(buf, 0, len);
		CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)buf, len, bmr->lkey, (uintptr_t)at,
			       mr->rkey),
		      "post");
		rc_expect(&a, IBV_WC_SUCCESS);
		CHECK(!memcmp(buf, at, len), "%s: READ", what);
	}
	/* one byte more than is registered */
	CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)buf, len + 1, bmr->lkey, (uintptr_t)at,
		       mr->rkey),
	      "post");
	rc_expect(&a, IBV_WC_REM_ACCESS_ERR);
	CHECK(!ibv_dereg_mr(mr), "dereg");
}

static void freed_heap(void)
{
	for (size_t size = 100; size < 2000000; size = size * 3 + 1) {
		uint8_t *p = malloc(size + 2);
		struct ibv_mr *mr = rc_reg(&b, p, size, ALL_ACCESS | ODP);

		rc_pair(&a, &b, &rc_default);
		CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)buf, 64, bmr->lkey, (uintptr_t)p,
			       mr->rkey),
		      "post");
		rc_expect(&a, IBV_WC_SUCCESS);
		free(p);
		/* only READs now: the memory may be somebody else's, or nobody's */
		CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)buf, 64, bmr->lkey, (uintptr_t)p,
			       mr->rkey),
		      "post");
		enum ibv_wc_status s = rc_wait(&a);

		CHECK(s == IBV_WC_SUCCESS || s == IBV_WC_REM_ACCESS_ERR, "READ of freed memory: %s",
		      ibv_wc_status_str(s));
		CHECK(!ibv_dereg_mr(mr), "dereg");
	}
}

int main(int argc, char **argv)
{
	uint8_t on_stack[3 * PAGE];

	rc_open(&a);
	rc_open(&b);
	buf = rc_map(4 << 20);
	bmr = rc_reg(&a, buf, 4 << 20, ALL_ACCESS);
	uint8_t *m = rc_map(4 * PAGE);

	rw("within a page", m + 100, 77);
	rw("over a page's edge", m + PAGE - 5, 11);
	rw("stack", on_stack + 100, 2 * PAGE);
	rw(".data", in_data + 1, 2 * PAGE);
	rw(".bss", in_bss + 100, 2 * PAGE);
	uint8_t *heap = malloc(100000);

	rw("heap", heap + 1, 99000);
	free(heap);
	uint8_t *big =
		mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	madvise(big, 4 << 20, MADV_HUGEPAGE);
	rw("transparent huge pages", big + 4097, 3 << 20);
	uint8_t *huge = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	if (huge != MAP_FAILED)
		rw("hugetlb", huge + 4097, 1 << 20);
	struct ibv_mr *text = rc_reg(&b, (void *)(uintptr_t)main, 64, ALL_ACCESS | ODP);

	rc_pair(&a, &b, &rc_default);
	CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)buf, 64, bmr->lkey, (uintptr_t)main,
		       text->rkey),
	      "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(!memcmp(buf, (void *)(uintptr_t)main, 64), "READ of text");
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)buf, 64, bmr->lkey, (uintptr_t)main,
		       text->rkey),
	      "post");
	rc_expect(&a, IBV_WC_REM_ACCESS_ERR);
	CHECK(!ibv_dereg_mr(text), "dereg");
	freed_heap();
	CHECK(!ibv_dereg_mr(bmr), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
