/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receiver not ready: with a finite rnr_retry a SEND without a receive ends in RNR_RETRY_EXC_ERR
 * after about that many waits, and the responder is none the worse; with 7 it waits until a receive
 * comes.
 */
#include "rc.h"

static struct rc_side a;
static struct rc_peer *peer;
static uint8_t *mem;
static struct ibv_mr *mr;
static struct rc_remote target;

static void exhausted(enum ibv_wr_opcode opcode)
{
	/* timer 20: 10.24 ms (9.7.5.2.8) */
	for (uint8_t retries = 0; retries <= 3; retries += 3) {
		struct rc_opt opt = rc_default;
		double t0, waited, timer = 0.01024;

		opt.rnr_retry = retries;
		opt.rnr_timer = 20;
		rc_connect_peer(&a, peer, &opt);
		rc_call(peer, RC_FILL, target.buf, 0, PAGE, 0, 6);
		t0 = rc_now();
		CHECK(!rc_post(&a, opcode, (uintptr_t)mem, 100, mr->lkey, target.iova, target.key),
		      "post");
		rc_expect(&a, IBV_WC_RNR_RETRY_EXC_ERR);
		waited = rc_now() - t0;
		CHECK(waited >= retries * timer, "%u retries within %f s", retries, waited);
		CHECK(waited < retries * timer * 6 + 1, "%u retries took %f s", retries, waited);
		CHECK(rc_state(a.qp) == IBV_QPS_ERR && rc_call(peer, RC_STATE, 0) == IBV_QPS_RTS,
		      "states");
		CHECK(rc_call(peer, RC_DIFFERS, target.buf, 0, PAGE, 0, 6) == UINT64_MAX,
		      "data were placed without a receive");
	}
}

static void recovered(enum ibv_wr_opcode opcode, uint8_t timeout, uint8_t rnr_timer)
{
	struct rc_msg m = {.op = RC_RECV, .num_sge = 1, .sge = {{target.buf, 3, PAGE}}};
	struct rc_opt opt = rc_default;
	struct ibv_wc wc;

	opt.timeout = timeout;
	opt.rnr_timer = rnr_timer;
	opt.retry = 1; /* waiting for a receive is no lost packet: these retries are not used up */
	rc_connect_peer(&a, peer, &opt);
	rc_fill(mem, 3000, 0, 8);
	CHECK(!rc_post(&a, opcode, (uintptr_t)mem, 3000, mr->lkey, target.iova + 3, target.key),
	      "post");
	CHECK(!rc_poll(&a, &wc, 0.6), "completed without a receive: %s",
	      ibv_wc_status_str(wc.status));
	CHECK(!rc_call_msg(peer, m).arg[0], "post_recv");
	rc_expect(&a, IBV_WC_SUCCESS);
	m = rc_call_msg(peer, (struct rc_msg){.op = RC_WAIT, .arg = {20000}});
	CHECK(m.arg[0] && m.arg[1] == IBV_WC_SUCCESS && m.arg[2] == 3000, "receive");
	CHECK(rc_call(peer, RC_DIFFERS, target.buf, 3, 3000, 0, 8) == UINT64_MAX, "data");
}

int main(int argc, char **argv)
{
	rc_main(argc, argv);
	rc_open(&a);
	peer = rc_peer_start();
	mem = rc_map(PAGE);
	mr = rc_reg(&a, mem, PAGE, ALL_ACCESS);
	target = rc_peer_buf(peer, 2 * PAGE, ALL_ACCESS | ODP, RC_SAME, RC_ANON);
	exhausted(IBV_WR_SEND);
	exhausted(IBV_WR_RDMA_WRITE_WITH_IMM);
	recovered(IBV_WR_SEND, 16, 12);
	recovered(IBV_WR_RDMA_WRITE_WITH_IMM, 16, 12);
	recovered(IBV_WR_SEND, 15,
		  31); /* each wait of 492 ms is longer than both tries of 134 ms */
	CHECK(!ibv_dereg_mr(mr), "dereg");
	rc_close(&a);
	rc_peer_stop(peer);
	return 0;
}
