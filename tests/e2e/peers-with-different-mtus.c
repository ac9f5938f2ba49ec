/* SPDX-License-Identifier: BSD-2-Clause */
/* What peers-with-different-mtus.sh runs: messages between ends whose path MTUs differ, either way. */
#include "rc.h"

#define LEN 5000u

static struct rc_side a;
static struct rc_peer *peer;

static enum ibv_wc_status send(enum ibv_mtu ours, enum ibv_mtu theirs, uint32_t len, struct ibv_mr *mr,
			       const struct rc_remote *to)
{
	struct rc_opt o = rc_default;
	struct rc_msg m = {.op = RC_MAKE_QP};

	o.mtu = ours;
	rc_make_qp(&a, &o);
	m.opt = rc_default;
	m.opt.mtu = theirs;
	m = rc_call_msg(peer, m);
	rc_connect(&a, &m.hello);
	m = (struct rc_msg){.op = RC_CONNECT, .hello = a.me};
	rc_call_msg(peer, m);
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)mr->addr, len, mr->lkey, to->iova, to->key), "post");
	return rc_wait(&a);
}

int main(int argc, char **argv)
{
	rc_main(argc, argv);
	rc_open(&a);
	peer = rc_peer_start();
	struct ibv_mr *mr = rc_reg(&a, rc_map(LEN), LEN, ALL_ACCESS);
	struct rc_remote to = rc_peer_buf(peer, LEN, ALL_ACCESS, RC_SAME, RC_ANON);

	rc_fill(mr->addr, LEN, 0, 3);
	for (int swap = 0; swap < 2; swap++) {
		enum ibv_mtu ours = swap ? IBV_MTU_256 : IBV_MTU_1024, theirs = swap ? IBV_MTU_1024 : IBV_MTU_256;
		enum ibv_wc_status s = send(ours, theirs, LEN, mr, &to);

		CHECK(s == IBV_WC_REM_INV_REQ_ERR, "MTUs %d and %d: %s", ours, theirs, ibv_wc_status_str(s));
		CHECK(rc_state(a.qp) == IBV_QPS_ERR, "the QP is not in error");
		s = send(ours, theirs, 200, mr, &to);
		CHECK(s == IBV_WC_SUCCESS, "200 bytes: %s", ibv_wc_status_str(s));
		CHECK(rc_call(peer, RC_DIFFERS, to.buf, 0, 200, 0, 3) == UINT64_MAX, "data");
	}
	CHECK(!ibv_dereg_mr(mr), "dereg");
	rc_close(&a);
	rc_peer_stop(peer);
	return 0;
}
