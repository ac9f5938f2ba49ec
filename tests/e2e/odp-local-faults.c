/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults at the side that owns the work request: a source or sink on demand that cannot be had ends
 * the request with a local protection error and leaves the peer alone; a receive buffer that cannot
 * be had is an error at both. What can be had comes in, whichever role the memory has.
 */
#include "rc.h"

static struct rc_side a;
static struct rc_peer *peer;
static struct rc_remote target;

static void local(const char *what, enum ibv_wr_opcode op, uint8_t *at, struct ibv_mr *mr)
{
	struct ibv_wc wc;

	rc_connect_peer(&a, peer, &rc_default);
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		rc_post_atomic(&a, op, (uintptr_t)at, mr->lkey, target.iova, target.key, 1, 0);
	else
		rc_post(&a, op, (uintptr_t)at, 64, mr->lkey, target.iova, target.key);
	CHECK(rc_poll(&a, &wc, 20), "%s: no completion", what);
	CHECK(wc.status == IBV_WC_LOC_PROT_ERR, "%s: %s", what, ibv_wc_status_str(wc.status));
	CHECK(rc_state(a.qp) == IBV_QPS_ERR && rc_call(peer, RC_STATE, 0) == IBV_QPS_RTS,
	      "%s: states", what);
}

static void receive(const char *what, uint64_t offset, uint8_t *src, struct ibv_mr *smr)
{
	struct rc_msg m = {.op = RC_RECV, .num_sge = 1, .sge = {{target.buf, offset, 200}}};

	rc_connect_peer(&a, peer, &rc_default);
	CHECK(!rc_call_msg(peer, m).arg[0], "post_recv");
	rc_post(&a, IBV_WR_SEND, (uintptr_t)src, 200, smr->lkey, 0, 0);
	rc_expect(&a, IBV_WC_REM_OP_ERR);
	m = rc_call_msg(peer, (struct rc_msg){.op = RC_WAIT, .arg = {20000}});
	CHECK(m.arg[0] && m.arg[1] == IBV_WC_LOC_PROT_ERR, "%s: the receive says %s", what,
	      ibv_wc_status_str((enum ibv_wc_status)m.arg[1]));
}

int main(int argc, char **argv)
{
	rc_main(argc, argv);
	rc_open(&a);
	peer = rc_peer_start();
	uint8_t *m = rc_map(8 * PAGE), *src = rc_map(PAGE);
	struct ibv_mr *mr = rc_reg(&a, m, 8 * PAGE, ALL_ACCESS | ODP),
		      *smr = rc_reg(&a, src, PAGE, ALL_ACCESS);

	target = rc_peer_buf(peer, 8 * PAGE, ALL_ACCESS | ODP, RC_SAME, RC_ANON);
	for (int touched = 0; touched < 2; touched++) {
		rc_connect_peer(&a, peer, &rc_default);
		rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)m, touched ? 4 * PAGE : 8, mr->lkey,
			target.iova, target.key);
		rc_expect(&a, IBV_WC_SUCCESS);
		munmap(m + PAGE, PAGE);
		local("WRITE from unmapped", IBV_WR_RDMA_WRITE, m + PAGE, mr);
		local("SEND from unmapped", IBV_WR_SEND, m + PAGE, mr);
		local("READ into unmapped", IBV_WR_RDMA_READ, m + PAGE, mr);
		local("READ into a hole's edge", IBV_WR_RDMA_READ, m + PAGE - 8, mr);
		local("atomic into unmapped", IBV_WR_ATOMIC_FETCH_AND_ADD, m + PAGE, mr);
		mprotect(m + 2 * PAGE, PAGE, PROT_READ);
		local("READ into read-only", IBV_WR_RDMA_READ, m + 2 * PAGE, mr);
		local("atomic into read-only", IBV_WR_ATOMIC_FETCH_AND_ADD, m + 2 * PAGE, mr);
		rc_connect_peer(&a, peer, &rc_default);
		rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m + 2 * PAGE, 64, mr->lkey, target.iova,
			target.key);
		rc_expect(&a, IBV_WC_SUCCESS); /* read-only memory is a fine source */
		mprotect(m + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE);
		CHECK(mmap(m + PAGE, PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m + PAGE,
		      "mmap");

		rc_call(peer, RC_MUNMAP, target.buf, 3 * PAGE, PAGE);
		receive("receive into unmapped", 3 * PAGE, src, smr);
		receive("receive into a hole's edge", 3 * PAGE - 100, src, smr);
		rc_call(peer, RC_PROTECT, target.buf, 4 * PAGE, PAGE, PROT_READ);
		receive("receive into read-only", 4 * PAGE, src, smr);
		rc_call(peer, RC_PROTECT, target.buf, 4 * PAGE, PAGE, PROT_READ | PROT_WRITE);
		rc_call(peer, RC_REMAP, target.buf, 3 * PAGE, PAGE);
	}
	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(smr), "dereg");
	rc_close(&a);
	rc_peer_stop(peer);
	return 0;
}
