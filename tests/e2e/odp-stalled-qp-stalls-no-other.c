/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A responder whose page takes a second to come stalls its QP for that second, though the
 * requester's timer runs out many times meanwhile; another QP of the same process goes on at its
 * pace. The stalled request then completes, data right.
 */
#include "rc.h"

static struct rc_side a, c, d;
static struct rc_peer *peer;

int main(int argc, char **argv)
{
	struct rc_opt opt = rc_default;
	struct ibv_wc wc;
	double t0, took, worst = 0;
	unsigned rounds = 0;

	rc_main(argc, argv);
	rc_open(&a);
	rc_open(&c);
	rc_open(&d);
	peer = rc_peer_start();
	struct rc_remote r = rc_peer_buf(peer, 4 * PAGE, ALL_ACCESS | ODP, RC_SAME, RC_SLOW);
	uint8_t *m = rc_map(8 * PAGE);
	struct ibv_mr *ma = rc_reg(&a, m, 2 * PAGE, ALL_ACCESS);
	struct ibv_mr *mc = rc_reg(&c, m + 4 * PAGE, PAGE, ALL_ACCESS);
	struct ibv_mr *md = rc_reg(&d, m + 5 * PAGE, PAGE, ALL_ACCESS | ODP);

	opt.timeout = 14; /* 67 ms */
	rc_connect_peer(&a, peer, &opt);
	rc_pair(&c, &d, &rc_default);
	t0 = rc_now();
	CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)m, 1000, ma->lkey, r.iova + 5, r.key),
	      "post");
	while (!rc_poll(&a, &wc, 0)) {
		double t = rc_now();

		CHECK(t - t0 < 15, "the READ of a slow page does not complete");
		CHECK(!rc_post(&c, IBV_WR_RDMA_WRITE, (uintptr_t)m + 4 * PAGE, 64, mc->lkey,
			       (uintptr_t)m + 5 * PAGE, md->rkey),
		      "post");
		rc_expect(&c, IBV_WC_SUCCESS);
		t = rc_now() - t;
		worst = t > worst ? t : worst;
		rounds++;
	}
	took = rc_now() - t0;
	CHECK(wc.status == IBV_WC_SUCCESS,
	      "READ of a slow page: %s after %.3f s; meanwhile %u WRITEs, the slowest %.3f s",
	      ibv_wc_status_str(wc.status), took, rounds, worst);
	CHECK(took >= RC_SLOW_SECONDS * 0.99, "READ of a slow page took %.3f s", took);
	CHECK(rc_differs(m, 1000, 5, 33) == UINT64_MAX, "data of the slow page");
	CHECK(rounds > 100 && worst < RC_SLOW_SECONDS / 2,
	      "the other QP: %u WRITEs, the slowest took %.3f s", rounds, worst);

	/* the same with a WRITE, to the next page */
	t0 = rc_now();
	rc_fill(m, 100, 0, 34);
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m, 100, ma->lkey, r.iova + PAGE + 5,
		       r.key),
	      "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(rc_now() - t0 >= RC_SLOW_SECONDS * 0.99, "WRITE to a slow page took %.3f s",
	      rc_now() - t0);
	CHECK(rc_call(peer, RC_DIFFERS, r.buf, PAGE + 5, 100, 0, 34) == UINT64_MAX &&
		      rc_call(peer, RC_DIFFERS, r.buf, PAGE + 105, 100, PAGE + 105, 33) ==
			      UINT64_MAX,
	      "data of the WRITE");
	CHECK(!ibv_dereg_mr(ma) && !ibv_dereg_mr(mc) && !ibv_dereg_mr(md), "dereg");
	rc_close(&a);
	rc_close(&c);
	rc_close(&d);
	rc_peer_stop(peer);
	return 0;
}
