/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nobody answers: a QPN that never was, a QP that was destroyed, reset, or is in error. The request
 * ends in RETRY_EXC_ERR, not before the timeout has run out retry_cnt + 1 times and not after four
 * times that (9.9.2.1.1); what waits behind it is flushed.
 */
#include "rc.h"

#define TIMEOUT 15 /* 134 ms */
#define RETRY	2

static struct rc_side a;
static struct rc_peer *peer;
static uint8_t *mem;
static struct ibv_mr *mr;
static struct rc_remote target;
static struct rc_opt opt;

static void expect_retries(const char *what)
{
	double unit = 4.096e-6 * (1 << TIMEOUT), t0 = rc_now(), waited;
	struct ibv_wc wc;

	for (uint64_t i = 0; i < 3; i++)
		CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)mem, 100, mr->lkey, target.iova,
			       target.key),
		      "%s: post", what);
	CHECK(rc_poll(&a, &wc, 20), "%s: no completion", what);
	waited = rc_now() - t0;
	CHECK(wc.status == IBV_WC_RETRY_EXC_ERR, "%s: %s", what, ibv_wc_status_str(wc.status));
	CHECK(waited >= (RETRY + 1) * unit * 0.99, "%s: given up after %.3f s, before its time",
	      what, waited);
	/* and some slack for a machine that does other things */
	CHECK(waited <= (RETRY + 1) * unit * 4 + 0.5, "%s: given up after %.3f s only", what,
	      waited);
	rc_expect(&a, IBV_WC_WR_FLUSH_ERR);
	rc_expect(&a, IBV_WC_WR_FLUSH_ERR);
	CHECK(rc_state(a.qp) == IBV_QPS_ERR, "%s: state", what);
}

int main(int argc, char **argv)
{
	rc_main(argc, argv);
	rc_open(&a);
	peer = rc_peer_start();
	mem = rc_map(PAGE);
	mr = rc_reg(&a, mem, PAGE, ALL_ACCESS);
	target = rc_peer_buf(peer, PAGE, ALL_ACCESS, RC_SAME, RC_ANON);
	opt = rc_default;
	opt.timeout = TIMEOUT;
	opt.retry = RETRY;

	rc_make_qp(&a, &opt);
	rc_connect(&a, &(struct rc_hello){.gid = a.me.gid, .qpn = 0xfffffd, .psn = 1});
	expect_retries("no such QP");

	rc_connect_peer(&a, peer, &opt);
	CHECK(!rc_call(peer, RC_TO_STATE, IBV_QPS_RESET), "to RESET");
	expect_retries("a QP in RESET");

	rc_connect_peer(&a, peer, &opt);
	CHECK(!rc_call(peer, RC_TO_STATE, IBV_QPS_ERR), "to ERR");
	expect_retries("a QP in ERR");

	rc_connect_peer(&a, peer, &opt);
	rc_call(peer, RC_DESTROY_QP, 0);
	expect_retries("a QP that was destroyed");

	CHECK(!ibv_dereg_mr(mr), "dereg");
	rc_close(&a);
	rc_peer_stop(peer);
	return 0;
}
