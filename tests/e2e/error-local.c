/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Errors at the side that owns the memory: a bad local key, bounds, or rights end the request with
 * a local protection error and leave the peer as it was; a receive buffer that is too small or not
 * usable is an error at both sides.
 */
#include "rc.h"

static struct rc_side a;
static struct rc_peer *peer;
static uint8_t *mem;
static struct ibv_mr *mr, *read_only;
static struct rc_remote target;

static void local(const char *what, enum ibv_wr_opcode opcode, uint64_t addr, uint32_t len,
		  uint32_t lkey)
{
	struct ibv_wc wc;

	rc_connect_peer(&a, peer, &rc_default);
	CHECK(!rc_post(&a, opcode, addr, len, lkey, target.iova, target.key), "%s: post", what);
	CHECK(rc_poll(&a, &wc, 20), "%s: no completion", what);
	CHECK(wc.status == IBV_WC_LOC_PROT_ERR, "%s: %s", what, ibv_wc_status_str(wc.status));
	CHECK(rc_state(a.qp) == IBV_QPS_ERR, "%s: the QP's state is %d", what, rc_state(a.qp));
	CHECK(rc_call(peer, RC_STATE, 0) == IBV_QPS_RTS, "%s: the peer's state changed", what);
}

static void requester(void)
{
	static const struct {
		enum ibv_wr_opcode op;
		const char *name;
	} ops[] = {{IBV_WR_RDMA_WRITE, "WRITE"}, {IBV_WR_SEND, "SEND"}, {IBV_WR_RDMA_READ, "READ"}};
	struct ibv_pd *pd2 = ibv_alloc_pd(a.ctx);
	struct ibv_mr *other = ibv_reg_mr(pd2, mem, PAGE, ALL_ACCESS);

	CHECK(other, "register: %s", strerror(errno));
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		uint64_t m = (uintptr_t)mem;

		local(ops[i].name, ops[i].op, m, 8, mr->lkey ^ 1);
		local(ops[i].name, ops[i].op, m, 8, mr->lkey ^ 0x45600);
		local(ops[i].name, ops[i].op, m, 8, other->lkey);
		local(ops[i].name, ops[i].op, m + 4 * PAGE - 7, 8, mr->lkey);
		local(ops[i].name, ops[i].op, m - 1, 8, mr->lkey);
		local(ops[i].name, ops[i].op, UINT64_MAX - 3, 8, mr->lkey);
	}
	local("READ into what may not be written", IBV_WR_RDMA_READ, (uintptr_t)mem, 8,
	      read_only->lkey);
	CHECK(!ibv_dereg_mr(other) && !ibv_dealloc_pd(pd2), "close");
}

/* atomics are of 8 bytes, aligned: else they are not posted, or refused */
static void misaligned_atomics(void)
{
	struct ibv_sge sge = {(uintptr_t)mem, 4, mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				       .send_flags = IBV_SEND_SIGNALED,
				       .wr.atomic = {target.iova, 1, 0, target.key}};

	rc_connect_peer(&a, peer, &rc_default);
	CHECK(rc_post_atomic(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)mem, mr->lkey,
			     target.iova + 4, target.key, 1, 0) == EINVAL,
	      "misaligned atomic");
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr,
	      "atomic with a result of 4 bytes");
	CHECK(rc_state(a.qp) == IBV_QPS_RTS, "state");
}

/* a SEND of len into a receive that a caller has posted: what either side is told */
static void refused_receive(const char *what, uint32_t len, enum ibv_wc_status sender,
			    enum ibv_wc_status receiver)
{
	struct rc_msg m;

	CHECK(!rc_post(&a, IBV_WR_SEND, (uintptr_t)mem, len, mr->lkey, 0, 0), "%s: post", what);
	rc_expect(&a, sender);
	m = rc_call_msg(peer, (struct rc_msg){.op = RC_WAIT, .arg = {20000}});
	CHECK(m.arg[0], "%s: the receive does not complete", what);
	CHECK(m.arg[1] == receiver, "%s: the receive says %s", what,
	      ibv_wc_status_str((enum ibv_wc_status)m.arg[1]));
	CHECK(rc_state(a.qp) == IBV_QPS_ERR && rc_call(peer, RC_STATE, 0) == IBV_QPS_ERR,
	      "%s: states", what);
}

static void receiver(void)
{
	struct rc_msg m = {.op = RC_RECV, .num_sge = 1, .sge = {{target.buf, 0, 99}}};
	struct rc_remote ro = rc_peer_buf(peer, PAGE, IBV_ACCESS_REMOTE_READ, RC_SAME, RC_ANON);

	/* 9.9.3: a message longer than the receive is an invalid request to who sent it */
	rc_connect_peer(&a, peer, &rc_default);
	CHECK(!rc_call_msg(peer, m).arg[0], "post_recv");
	refused_receive("receive too small", 100, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR);
	rc_connect_peer(&a, peer, &rc_default);
	CHECK(!rc_call_msg(peer, m).arg[0], "post_recv");
	refused_receive("receive too small by packets", 4 * PAGE, IBV_WC_REM_INV_REQ_ERR,
			IBV_WC_LOC_LEN_ERR);

	rc_connect_peer(&a, peer, &rc_default);
	m.sge[0] = (struct rc_call_sge){target.buf, 4 * PAGE - 10, 100}; /* past its end */
	CHECK(!rc_call_msg(peer, m).arg[0], "post_recv");
	refused_receive("receive out of bounds", 100, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);

	rc_connect_peer(&a, peer, &rc_default);
	m.sge[0] = (struct rc_call_sge){ro.buf, 0, 100};
	CHECK(!rc_call_msg(peer, m).arg[0], "post_recv");
	refused_receive("receive into what may not be written", 100, IBV_WC_REM_OP_ERR,
			IBV_WC_LOC_PROT_ERR);

	/* the part of the list that the message does not reach is not looked at */
	rc_connect_peer(&a, peer, &rc_default);
	m = (struct rc_msg){
		.op = RC_RECV, .num_sge = 2, .sge = {{target.buf, 0, 100}, {ro.buf, 0, 100}}};
	CHECK(!rc_call_msg(peer, m).arg[0], "post_recv");
	CHECK(!rc_post(&a, IBV_WR_SEND, (uintptr_t)mem, 100, mr->lkey, 0, 0), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	rc_call(peer, RC_WAIT, 20000);
	rc_call(peer, RC_UNBUF, ro.buf);
}

int main(int argc, char **argv)
{
	rc_main(argc, argv);
	rc_open(&a);
	peer = rc_peer_start();
	for (int odp = 0; odp < 2; odp++) {
		mem = rc_map(4 * PAGE);
		mr = rc_reg(&a, mem, 4 * PAGE, ALL_ACCESS | (odp ? ODP : 0));
		read_only = rc_reg(&a, mem, 4 * PAGE, IBV_ACCESS_REMOTE_READ | (odp ? ODP : 0));
		target =
			rc_peer_buf(peer, 4 * PAGE, ALL_ACCESS | (odp ? ODP : 0), RC_SAME, RC_ANON);
		requester();
		misaligned_atomics();
		receiver();
		CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(read_only), "dereg");
	}
	rc_close(&a);
	rc_peer_stop(peer);
	return 0;
}
