/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An implicit on-demand region: one key for all of the address space, local and remote. Memory mapped
 * later is reachable; what is not mapped, or not to be written, is an access error that ends the QP; what
 * is unmapped is reachable no more; prefetch; a process with 65,000 mappings; the device's own memory is
 * left out.
 */
#include "rc.h"

#include <unistd.h>

static struct rc_side a, b;
static struct ibv_mr *all_a, *all_b;

static enum ibv_wc_status move(enum ibv_wr_opcode op, void *local, void *remote, uint32_t len)
{
	CHECK(!rc_post(&a, op, (uintptr_t)local, len, all_a->lkey, (uintptr_t)remote, all_b->rkey), "post");
	return rc_wait(&a);
}

#define GIVES(want, ...)                                                                           \
	do {                                                                                       \
		enum ibv_wc_status got_ = move(__VA_ARGS__);                                       \
		CHECK(got_ == (want), "%s: %s", #__VA_ARGS__, ibv_wc_status_str(got_));            \
	} while (0)

static void denied(enum ibv_wc_status want, enum ibv_wr_opcode op, void *local, void *remote, uint32_t len)
{
	GIVES(want, op, local, remote, len);
	CHECK(rc_state(a.qp) == IBV_QPS_ERR, "the initiator's QP is in error");
	if (want == IBV_WC_REM_ACCESS_ERR)
		CHECK(rc_state(b.qp) == IBV_QPS_ERR, "the target's QP is in error");
	rc_pair(&a, &b, &rc_default);
}

static void roles(void)
{
	uint8_t *from = rc_map(3 * PAGE), *to = rc_map(3 * PAGE);

	rc_fill(from, 3 * PAGE, 0, 1);
	GIVES(IBV_WC_SUCCESS, IBV_WR_RDMA_WRITE, from + 11, to + 7, 2 * PAGE);
	CHECK(rc_differs(to + 7, 2 * PAGE, 11, 1) == UINT64_MAX, "written");
	memset(from, 0, 3 * PAGE);
	GIVES(IBV_WC_SUCCESS, IBV_WR_RDMA_READ, from + 11, to + 7, 2 * PAGE);
	CHECK(rc_differs(from + 11, 2 * PAGE, 11, 1) == UINT64_MAX, "read");
	CHECK(!rc_post_recv(&b, (uintptr_t)to + 1, 2 * PAGE, all_b->lkey, 1), "recv");
	GIVES(IBV_WC_SUCCESS, IBV_WR_SEND, from + 11, NULL, 2 * PAGE);
	rc_expect(&b, IBV_WC_SUCCESS);
	CHECK(rc_differs(to + 1, 2 * PAGE, 11, 1) == UINT64_MAX, "sent");
	*(uint64_t *)to = 40;
	CHECK(!rc_post_atomic(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)from, all_a->lkey, (uintptr_t)to,
			      all_b->rkey, 2, 0),
	      "atomic");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(*(uint64_t *)from == 40 && *(uint64_t *)to == 42, "added");
	munmap(from, 3 * PAGE);
	munmap(to, 3 * PAGE);
}

static void borders(void)
{
	const size_t gib = 1ul << 30;
	uint8_t *from = rc_map(PAGE), *hole = rc_map(3 * gib), *edge, *ro = rc_map(PAGE);

	edge = (uint8_t *)(((uintptr_t)hole + gib) & ~(gib - 1));
	munmap(hole, 3 * gib);
	rc_fill(from, PAGE, 0, 2);
	denied(IBV_WC_REM_ACCESS_ERR, IBV_WR_RDMA_WRITE, from, edge - 100, 200);
	/* mapped later, and reaching over the border of two gigabytes */
	CHECK(mmap(edge - PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
		      MAP_FAILED,
	      "mmap");
	GIVES(IBV_WC_SUCCESS, IBV_WR_RDMA_WRITE, from, edge - 100, 200);
	CHECK(rc_differs(edge - 100, 200, 0, 2) == UINT64_MAX, "over the border");
	munmap(edge - PAGE, 2 * PAGE);
	denied(IBV_WC_REM_ACCESS_ERR, IBV_WR_RDMA_WRITE, from, edge - 100, 200);
	denied(IBV_WC_REM_ACCESS_ERR, IBV_WR_RDMA_READ, from, edge, 8);
	denied(IBV_WC_LOC_PROT_ERR, IBV_WR_RDMA_WRITE, edge, from, 8);
	denied(IBV_WC_REM_ACCESS_ERR, IBV_WR_RDMA_WRITE, from, NULL, 8);
	denied(IBV_WC_REM_ACCESS_ERR, IBV_WR_RDMA_WRITE, from, (void *)(1ul << 47), 8);
	/* read, and not to be written: a page, the program */
	mprotect(ro, PAGE, PROT_READ);
	denied(IBV_WC_REM_ACCESS_ERR, IBV_WR_RDMA_WRITE, from, ro, 8);
	GIVES(IBV_WC_SUCCESS, IBV_WR_RDMA_READ, from, ro, 8);
	denied(IBV_WC_REM_ACCESS_ERR, IBV_WR_RDMA_WRITE, from, (void *)(uintptr_t)borders, 8);
	GIVES(IBV_WC_SUCCESS, IBV_WR_RDMA_READ, from, (void *)(uintptr_t)borders, 8);
	CHECK(!memcmp(from, (void *)(uintptr_t)borders, 8), "the program is read");
	munmap(from, PAGE);
	munmap(ro, PAGE);
}

static void prefetch(void)
{
	uint8_t *m = rc_map(8 * PAGE);
	unsigned char vec[8];
	struct ibv_sge sge = {.addr = (uintptr_t)m + 1, .length = 4 * PAGE, .lkey = all_a->lkey};

	CHECK(!ibv_advise_mr(a.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), "prefetch");
	CHECK(!mincore(m, 8 * PAGE, vec) && vec[0] & vec[4] & 1 && !(vec[5] & 1), "five pages are there");
	sge.addr = (uintptr_t)m + 6 * PAGE;
	munmap(m + 7 * PAGE, PAGE);
	CHECK(ibv_advise_mr(a.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1) == EFAULT, "hole");
	CHECK(!ibv_advise_mr(a.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), "asked for, and nobody to tell");
	munmap(m, 7 * PAGE);
}

/* Finds a mapping of the device by its name in the list of mappings; NULL: none. */
static void *mapping_of(const char *name)
{
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");
	void *at = NULL;

	while (f && !at && fgets(line, sizeof(line), f))
		if (strstr(line, name) && strstr(line, "rw-s"))
			at = (void *)strtoul(line, NULL, 16);
	if (f)
		fclose(f);
	return at;
}

static void the_device_is_left_out(void)
{
	uint8_t *from = rc_map(PAGE);
	void *segment = mapping_of("/memfd:faultline");

	if (access("/proc/self/maps", R_OK)) {
		printf("no list of mappings\n");
		munmap(from, PAGE);
		return;
	}
	CHECK(segment, "the device has a segment");
	denied(IBV_WC_REM_ACCESS_ERR, IBV_WR_RDMA_WRITE, from, segment, 8);
	munmap(from, PAGE);
}

static void many_mappings(void)
{
	enum { N = 64000 };
	uint8_t *m = rc_map(N * PAGE), *from = rc_map(PAGE);
	unsigned made = 0;
	double t;

	/* every other page is its own mapping */
	for (unsigned i = 0; i < N; i += 2)
		made += !mprotect(m + i * PAGE, PAGE, PROT_READ);
	if (made < N / 2) /* vm.max_map_count */
		printf("%u mappings only\n", 2 * made);
	t = rc_now();
	for (unsigned i = 1; i < N; i += 640) {
		from[0] = (uint8_t)i;
		GIVES(IBV_WC_SUCCESS, IBV_WR_RDMA_WRITE, from, m + i * PAGE, 1);
		CHECK(m[i * PAGE] == (uint8_t)i, "written");
	}
	t = rc_now() - t;
	CHECK(t < 10, "100 faults among %u mappings took %.1f s", 2 * made, t);
	printf("100 faults among %u mappings: %.1f us each\n", 2 * made, t * 1e4);
	munmap(m, N * PAGE);
	munmap(from, PAGE);
}

int main(int argc, char **argv)
{
	struct ibv_device_attr_ex attr;
	int access = ALL_ACCESS | ODP;

	rc_main(argc, argv);
	rc_open(&a);
	rc_open(&b);
	CHECK(!ibv_query_device_ex(a.ctx, NULL, &attr), "query");
	if (!(attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT)) {
		CHECK(!ibv_reg_mr(a.pd, NULL, SIZE_MAX, access) && errno == EINVAL, "refused as EINVAL");
		rc_skip("this device has no implicit regions");
	}
	CHECK(!ibv_reg_mr(a.pd, NULL, SIZE_MAX, ALL_ACCESS) && errno == EINVAL, "not pinned");
	all_a = ibv_reg_mr(a.pd, NULL, SIZE_MAX, access);
	all_b = ibv_reg_mr(b.pd, NULL, SIZE_MAX, access);
	CHECK(all_a && all_b && !all_a->addr && all_a->length == SIZE_MAX, "ibv_reg_mr");
	rc_pair(&a, &b, &rc_default);
	roles();
	borders();
	prefetch();
	the_device_is_left_out();
	many_mappings();
	CHECK(!ibv_dereg_mr(all_a) && !ibv_dereg_mr(all_b), "ibv_dereg_mr");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
