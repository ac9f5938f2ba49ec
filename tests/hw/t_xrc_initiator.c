/* SPDX-License-Identifier: BSD-2-Clause */
/* The initiator of XRC (annex A14): which SRQ each message names, and what becomes of it. */
#include "rig.h"

static void initiator_up(void)
{
	opt.type = IBV_QPT_XRC_SEND;
	rig_up();
}

#define SRQN 0x777123

static struct ibv_send_wr xrc(struct ibv_send_wr wr)
{
	wr.qp_type.xrc.remote_srqn = SRQN;
	return wr;
}

static void sends(void)
{
	initiator_up();
	CHECK_EQ(post(xrc(wr_data(IBV_WR_SEND, 1, 3, 5000))), 0);
	CHECK_EQ(TX2(SEND_FIRST, SEND_LAST, 100, 5, 5000).srqn, SRQN);
	CHECK_EQ(post(xrc(wr_data(IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, 8))), 0);
	CHECK_EQ(TX(RDMA_WRITE_ONLY_WITH_IMMEDIATE, 105, 1, 8).srqn, SRQN);
	CHECK_EQ(post(xrc(wr_data(IBV_WR_RDMA_READ, 3, 8192, 3000))), 0);
	CHECK_EQ(TX(RDMA_READ_REQUEST, 106, 1, 0).srqn, SRQN);
	CHECK_EQ(post(xrc(wr_atomic(true, 4, 5, 6))), 0);
	CHECK_EQ(TX(COMPARE_SWAP, 109, 1, 0).srqn, SRQN);
	rx_ack(105);
	SWC(SUCCESS, 1);
	SWC(SUCCESS, 2);
	rx_read(106, 3000, pattern);
	SWC(SUCCESS, 3);
	CHECK(!memcmp(rig.mem + 8192, pattern, 3000));
	rx_atomic_ack(109, 0x1234);
	SWC(SUCCESS, 4);
}

/* each work request has its own, and keeps it when it is sent again */
static void sends_again(void)
{
	struct ibv_send_wr wr;

	initiator_up();
	wr = wr_data(IBV_WR_SEND, 2, 0, 8);
	CHECK_EQ(post(xrc(wr_data(IBV_WR_SEND, 1, 0, 3000))), 0);
	wr.qp_type.xrc.remote_srqn = 0xff000001; /* 24 bits count */
	CHECK_EQ(post(wr), 0);
	CHECK_EQ(TX2(SEND_FIRST, SEND_LAST, 100, 3, 3000).srqn, SRQN);
	CHECK_EQ(TX(SEND_ONLY, 103, 1, 8).srqn, 1);
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 101);
	CHECK_EQ(TX2(SEND_MIDDLE, SEND_LAST, 101, 2, 1976).srqn, SRQN);
	CHECK_EQ(TX(SEND_ONLY, 103, 1, 8).srqn, 1);
	rx_nak(AETH_RNR_NAK | 1, 103);
	SWC(SUCCESS, 1);
	rig_advance(10 * MS);
	CHECK_EQ(TX(SEND_ONLY, 103, 1, 8).srqn, 1);
	rx_ack(103);
	SWC(SUCCESS, 2);
}

static void is_refused(void)
{
	static const struct {
		uint8_t syndrome;
		enum ibv_wc_status status;
	} t[] = {{AETH_NAK_INVALID_REQ, IBV_WC_REM_INV_REQ_ERR},
		 {AETH_NAK_REM_ACC_ERR, IBV_WC_REM_ACCESS_ERR},
		 {AETH_NAK_REM_OP_ERR, IBV_WC_REM_OP_ERR},
		 {AETH_NAK_INVALID_RD_REQ, IBV_WC_REM_INV_RD_REQ_ERR}};

	opt.type = IBV_QPT_XRC_SEND;
	rig_node();
	for (unsigned i = 0; i < 4; i++) {
		rig.qp = rig_qp_new();
		CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_INIT), 0);
		CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTR), 0);
		CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTS), 0);
		CHECK_EQ(post(xrc(wr_data(IBV_WR_SEND, 1, 0, 8))), 0);
		CHECK_EQ(post(xrc(wr_data(IBV_WR_SEND, 2, 0, 8))), 0);
		rx_nak(t[i].syndrome, 100);
		CHECK_EQ(wc_next(rig.scq, t[i].status, 1).vendor_err, t[i].syndrome);
		SWC(WR_FLUSH_ERR, 2);
		CHECK_EQ(qp_state(), IBV_QPS_ERR);
	}
	/* to others than XRC the last says nothing */
	rig_again();
	opt.type = IBV_QPT_RC;
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 8)), 0);
	rx_nak(AETH_NAK_INVALID_RD_REQ, 100);
	SWC(REM_OP_ERR, 1);
}

static void time_out(void)
{
	initiator_up();
	CHECK_EQ(post(xrc(wr_data(IBV_WR_RDMA_WRITE, 1, 0, 8))), 0);
	for (int i = 0; i < 8; i++)
		rig_advance(20 * MS);
	SWC(RETRY_EXC_ERR, 1);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {TEST(sends), TEST(sends_again), TEST(is_refused), TEST(time_out), {NULL, NULL}};

	return rig_main(argc, argv, tests);
}
