/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What RC refuses, with the statuses, events and states of both ends. Where rxe is known to differ
 * from the specification and from NICs, the check of its side says so ("rxe:").
 */
#include "exchange.h"

void case_rnr_exceeded(void)
{
	barrier();
	if (!server)
		refused("SEND without a receive", IBV_WR_SEND, 0, IBV_WC_RNR_RETRY_EXC_ERR);
	barrier();
	if (server)
		CHECK(state() == IBV_QPS_RTS, "the responder's QP is in state %d", state());
}

void case_bad_rkey(void)
{
	barrier();
	if (!server)
		refused("WRITE, wrong key", IBV_WR_RDMA_WRITE, peer.rkey ^ 1,
			IBV_WC_REM_ACCESS_ERR);
	barrier();
	if (server) {
		CHECK(is_in_error(), "the responder's QP is in state %d", state());
		CHECK(async_is(IBV_EVENT_QP_ACCESS_ERR), "no access error event");
	}
}

void case_out_of_bounds(void)
{
	struct ibv_sge sge = {IOVA, 3000, mr->lkey};
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, &sge, IOVA + BUF_SIZE - 2999, peer.rkey);

	barrier();
	if (!server) {
		post_send(&wr);
		expect_send("READ one byte too far", 3000, IBV_WC_REM_ACCESS_ERR);
	}
	barrier();
	if (server)
		CHECK(is_in_error(), "the responder's QP is in state %d", state());
}

void case_no_right(void)
{
	barrier();
	if (!server)
		refused("READ that the QP does not allow", IBV_WR_RDMA_READ, peer.rkey,
			IBV_WC_REM_INV_REQ_ERR);
	barrier();
	if (server)
		CHECK(is_in_error(), "the responder's QP is in state %d", state());
}

/* 9.7.4.1.5: a message longer than its receive is an invalid request, and a local length error
 * there. rxe: remote and local operation error */
void case_too_long(void)
{
	struct ibv_wc wc = {0};

	if (server)
		post_recv_at(OFFSET, 16);
	barrier();
	if (!server)
		refused("SEND longer than its receive", IBV_WR_SEND, 0,
			peer.rxe ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR);
	barrier();
	if (server) {
		CHECK(wait_wc(recv_cq, &wc), "no completion of the receive");
		CHECK(wc.status == (rxe ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_LEN_ERR),
		      "the receive: %s", ibv_wc_status_str(wc.status));
	}
}

void case_gone(void)
{
	barrier();
	if (server) {
		ibv_destroy_qp(qp);
		qp = NULL;
	}
	barrier();
	if (!server)
		refused("WRITE to a QP that is gone", IBV_WR_RDMA_WRITE, peer.rkey,
			IBV_WC_RETRY_EXC_ERR);
	barrier();
}
