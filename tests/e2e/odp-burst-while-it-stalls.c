/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The resolver of faults stalls for 50 ms (FAULTLINE_PROVOKE) under a burst, on a wire that loses packets: what comes
 * behind a lost one meanwhile is dropped, and counted; the peer goes back for it; all data arrives, and no QP fails.
 */
#include "counters.h"
#include "rc.h"

#define NUM 8
#define LEN 32768u

static void dropped(struct rc_side *s, struct rc_msg *m)
{
	m->arg[0] = counter_now(FL_CNT_rx_backlog_drop);
}

int main(int argc, char **argv)
{
	struct rc_opt o = rc_default;
	struct rc_side a;
	struct rc_peer *peer;
	double t;

	rc_own = dropped;
	rc_main(argc, argv);
	rc_open(&a);
	peer = rc_peer_start();
	uint8_t *m = rc_map(NUM * LEN);
	struct ibv_mr *mr = rc_reg(&a, m, NUM * LEN, ALL_ACCESS);
	struct rc_remote r = rc_peer_buf(peer, NUM * LEN, ALL_ACCESS | ODP, RC_SAME, RC_ANON);

	rc_fill(m, NUM * LEN, 0, 7);
	o.timeout = 15; /* 134 ms: answers are lost, too */
	rc_connect_peer(&a, peer, &o);
	t = rc_now();
	for (uint64_t i = 0; i < NUM; i++)
		CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m + i * LEN, LEN, mr->lkey, r.iova + i * LEN, r.key), "post");
	for (int i = 0; i < NUM; i++)
		rc_expect(&a, IBV_WC_SUCCESS);
	t = rc_now() - t;
	CHECK(t >= 0.05, "nothing stalled: %.1f ms", t * 1e3);
	CHECK(rc_call(peer, RC_DIFFERS, r.buf, 0, NUM * LEN, 0, 7) == UINT64_MAX, "data");
	CHECK(rc_state(a.qp) == IBV_QPS_RTS && rc_call(peer, RC_STATE) == IBV_QPS_RTS, "a QP is in error");
	CHECK(counter_now(FL_CNT_completer_retry_err) > 0, "nothing was sent again");
	CHECK(rc_call(peer, RC_OWN) > 0, "nothing was dropped");
	CHECK(!ibv_dereg_mr(mr), "dereg");
	rc_close(&a);
	rc_peer_stop(peer);
	return 0;
}
