/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * IBV_WC_RETRY_EXC_ERR says why in vendor_err: the peer is stuck in a page fault (memory of a slow pager, and
 * FAULTLINE_FAULT_PATIENCE short), or it is gone.
 */
#include "rc.h"

int main(int argc, char **argv)
{
	struct rc_side a = {0};
	struct rc_opt o = rc_default;
	struct rc_peer *peer;
	struct ibv_wc wc;

	rc_main(argc, argv);
	rc_open(&a);
	peer = rc_peer_start();
	struct ibv_mr *mr = rc_reg(&a, memset(rc_map(PAGE), 1, PAGE), PAGE, ALL_ACCESS);
	struct rc_remote slow = rc_peer_buf(peer, PAGE, ALL_ACCESS | ODP, RC_SAME, RC_SLOW);

	o.timeout = 12; /* 17 ms */
	o.retry = 3;
	rc_connect_peer(&a, peer, &o);
	rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)mr->addr, 64, mr->lkey, slow.iova, slow.key);
	CHECK(rc_poll(&a, &wc, 20), "no completion");
	CHECK(wc.status == IBV_WC_RETRY_EXC_ERR && wc.vendor_err == 0x83, "stuck: %s, vendor_err 0x%x",
	      ibv_wc_status_str(wc.status), wc.vendor_err);

	rc_connect_peer(&a, peer, &o);
	rc_call(peer, RC_DESTROY_QP, 0);
	rc_post(&a, IBV_WR_SEND, (uintptr_t)mr->addr, 64, mr->lkey, 0, 0);
	CHECK(rc_poll(&a, &wc, 20), "no completion");
	CHECK(wc.status == IBV_WC_RETRY_EXC_ERR && wc.vendor_err == 0x81, "gone: %s, vendor_err 0x%x",
	      ibv_wc_status_str(wc.status), wc.vendor_err);
	return 0;
}
