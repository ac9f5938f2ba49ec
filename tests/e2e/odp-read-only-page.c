/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A page that may be read alone, in an on-demand region registered for everything: the network reads it, and a
 * SEND and a WRITE go from it; a WRITE or an atomic to it is an access error, a READ or a receive into it a
 * local one; the page stays as it was, and each of these counts as a fault that was denied.
 */
#include "counters.h"
#include "rc.h"

static struct rc_side a, b;

static void tries(uint8_t *ro, uint8_t *rw, struct ibv_mr *ro_a, struct ibv_mr *rw_a, struct ibv_mr *ro_b,
		  struct ibv_mr *rw_b)
{
	double denied = counter_of_mr(ro_a->lkey, "page_faults_denied") + counter_of_mr(ro_b->lkey, "page_faults_denied");

	rc_fill(ro, PAGE, 0, 1);
	CHECK(!mprotect(ro, PAGE, PROT_READ), "mprotect");
	rc_pair(&a, &b, &rc_default);
	CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)rw, PAGE, rw_a->lkey, (uintptr_t)ro, ro_b->rkey), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(rc_differs(rw, PAGE, 0, 1) == UINT64_MAX, "READ from it");
	memset(rw, 0, PAGE);
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)ro, PAGE, ro_a->lkey, (uintptr_t)rw, rw_b->rkey), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(rc_differs(rw, PAGE, 0, 1) == UINT64_MAX, "WRITE from it");
	memset(rw, 0, PAGE);
	CHECK(!rc_post_recv(&b, (uintptr_t)rw, PAGE, rw_b->lkey, 1), "post");
	CHECK(!rc_post(&a, IBV_WR_SEND, (uintptr_t)ro, PAGE, ro_a->lkey, 0, 0), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	rc_expect(&b, IBV_WC_SUCCESS);
	CHECK(rc_differs(rw, PAGE, 0, 1) == UINT64_MAX, "SEND from it");
	CHECK(counter_of_mr(ro_a->lkey, "page_faults_denied") + counter_of_mr(ro_b->lkey, "page_faults_denied") == denied,
	      "denied");

	memset(rw, 9, PAGE);
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)rw, 64, rw_a->lkey, (uintptr_t)ro, ro_b->rkey), "post");
	rc_expect(&a, IBV_WC_REM_ACCESS_ERR);
	rc_pair(&a, &b, &rc_default);
	CHECK(!rc_post_atomic(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)rw, rw_a->lkey, (uintptr_t)ro, ro_b->rkey, 1,
			      0), "post");
	rc_expect(&a, IBV_WC_REM_ACCESS_ERR);
	rc_pair(&a, &b, &rc_default);
	CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)ro, 64, ro_a->lkey, (uintptr_t)rw, rw_b->rkey), "post");
	rc_expect(&a, IBV_WC_LOC_PROT_ERR);
	rc_pair(&a, &b, &rc_default);
	CHECK(!rc_post_recv(&b, (uintptr_t)ro, PAGE, ro_b->lkey, 1), "post");
	CHECK(!rc_post(&a, IBV_WR_SEND, (uintptr_t)rw, 64, rw_a->lkey, 0, 0), "post");
	rc_expect(&b, IBV_WC_LOC_PROT_ERR);
	CHECK(rc_differs(ro, PAGE, 0, 1) == UINT64_MAX, "it was written");
	denied = counter_of_mr(ro_a->lkey, "page_faults_denied") + counter_of_mr(ro_b->lkey, "page_faults_denied") - denied;
	CHECK(denied >= 4, "%.0f faults were denied, of 4", denied);
}

int main(int argc, char **argv)
{
	uint8_t *rw, *ro;

	rc_main(argc, argv);
	rc_open(&a);
	rc_open(&b);
	rw = rc_map(PAGE);
	ro = rc_map(PAGE);
	struct ibv_mr *ro_a = rc_reg(&a, ro, PAGE, ALL_ACCESS | ODP), *rw_a = rc_reg(&a, rw, PAGE, ALL_ACCESS | ODP);
	struct ibv_mr *ro_b = rc_reg(&b, ro, PAGE, ALL_ACCESS | ODP), *rw_b = rc_reg(&b, rw, PAGE, ALL_ACCESS | ODP);

	tries(ro, rw, ro_a, rw_a, ro_b, rw_b);
	return 0;
}
