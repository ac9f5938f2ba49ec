/* SPDX-License-Identifier: BSD-2-Clause */
/* SRD's requester: what is answered in any order, lost, refused or not answered at all. */
#include <errno.h>
#include "srd_rig.h"

static int send_op(enum ibv_wr_opcode op, uint64_t id, uint32_t off, uint32_t len)
{
	struct ibv_send_wr wr = wr_data(op, id, off, len), *bad;

	wr.send_flags = IBV_SEND_SIGNALED;
	memset(&wr.wr, 0, sizeof(wr.wr));
	wr.wr.ud.ah = (struct ibv_ah *)&srd_av;
	wr.wr.ud.remote_qpn = PEER_QPN;
	wr.wr.ud.remote_qkey = QKEY;
	hca_wr_set_place(&wr, REMOTE_KEY, REMOTE_VA);
	return hca_post_send_all(rig.qp, &wr, &bad);
}

static void answer(uint8_t syndrome, uint32_t psn, uint32_t before)
{
	rx((struct roce_pkt){.opcode = RD(ACKNOWLEDGE), .opcode_last = RD(ACKNOWLEDGE), .pkey = 0xffff, .npkts = 1,
			     .dest_qpn = hca_qp_num(rig.qp), .psn = psn, .msn = before, .syndrome = syndrome,
			     .flow = srd_flow_sent});
}

static void sent(unsigned from, unsigned n)
{
	for (unsigned i = from; i < from + n; i++) {
		CHECK_EQ(send_op(IBV_WR_SEND, i, 0, 10), 0);
		srd_tx(RD(SEND_ONLY), i, 10);
	}
}

static void answered_in_any_order(void)
{
	struct roce_pkt pkt;

	srd_up();
	CHECK_EQ(send_op(IBV_WR_SEND_WITH_IMM, 0, 3, 1001), 0);
	pkt = srd_tx(RD(SEND_ONLY_WITH_IMMEDIATE), 0, 1001);
	CHECK(!memcmp(pkt.payload, rig.mem + 3, 1001));
	CHECK(pkt.qkey == QKEY && pkt.src_qpn == hca_qp_num(rig.qp) && pkt.imm == 0x11223344);
	sent(1, 2);
	wc_none(rig.scq);
	answer(ACK, 2, 0);
	SWC(SUCCESS, 2);
	wc_none(rig.scq);
	answer(ACK, 1, 3);
	SWC(SUCCESS, 1);
	SWC(SUCCESS, 0);
	answer(ACK, 1, 3);
	wc_none(rig.scq);
	rig_advance(10 * SECOND);
	TX_NONE();
}

static void lost_ones_go_again(void)
{
	srd_up();
	sent(0, 7);
	for (unsigned i = 2; i < 7; i++)
		answer(ACK, i, 0);
	/* one is overtaken by more than three, then the other */
	srd_tx(RD(SEND_ONLY), 0, 10);
	srd_tx(RD(SEND_ONLY), 1, 10);
	TX_NONE();
	answer(ACK, 1, 7);
	/* and after silence */
	sent(7, 2);
	rig_advance(100 * MS);
	srd_tx(RD(SEND_ONLY), 7, 10);
	srd_tx(RD(SEND_ONLY), 8, 10);
	answer(ACK, 8, 9);
	rig_advance(10 * SECOND);
	TX_NONE();
}

static void waits_for_a_receive(void)
{
	opt.rnr_retry = 2;
	srd_up();
	sent(0, 2);
	answer(AETH_RNR_NAK, 0, 0);
	TX_NONE();
	answer(ACK, 1, 0);
	SWC(SUCCESS, 1);
	for (unsigned i = 0; i < 2; i++) {
		rig_advance(20 * MS);
		srd_tx(RD(SEND_ONLY), 0, 10);
		answer(AETH_RNR_NAK, 0, 0);
	}
	SWC(RNR_RETRY_EXC_ERR, 0);
	/* its PSN is given up, so that the window moves */
	srd_tx(RD(RESYNC), 0, 0);
	answer(ACK, 0, 2);
	rig_advance(10 * SECOND);
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

/* the first wait is 320 us, each next one twice that, five times; 7 is without end */
static void waits_longer_each_time(void)
{
	opt.rnr_retry = 7;
	srd_up();
	sent(0, 1);
	for (unsigned i = 0; i < 50; i++) {
		uint64_t wait = 320000ull << (i < 5 ? i : 5);

		answer(AETH_RNR_NAK, 0, 0);
		answer(AETH_RNR_NAK, 0, 0); /* the network's copy */
		rig_advance(wait - 1);
		TX_NONE();
		rig_advance(1);
		srd_tx(RD(SEND_ONLY), 0, 10);
		TX_NONE();
	}
	answer(ACK, 0, 1);
	SWC(SUCCESS, 0);
}

/* what gives a PSN up is sent until it is answered, too, or the window would stand for ever */
static void giving_up_is_repeated(void)
{
	srd_up();
	sent(0, 1);
	answer(AETH_NAK_REM_ACC_ERR, 0, 0);
	SWC(REM_ACCESS_ERR, 0);
	srd_tx(RD(RESYNC), 0, 0);
	for (unsigned i = 0; i < 3; i++) {
		rig_advance(300 * MS);
		srd_tx(RD(RESYNC), 0, 0);
		TX_NONE();
	}
	answer(ACK, 0, 1);
	rig_advance(10 * SECOND);
	TX_NONE();
}

static void an_error_is_one_request_s(void)
{
	static const struct {
		uint8_t syndrome;
		enum ibv_wc_status status;
	} t[] = {{AETH_NAK_INVALID_REQ, IBV_WC_REM_INV_REQ_ERR},
		 {AETH_NAK_REM_ACC_ERR, IBV_WC_REM_ACCESS_ERR},
		 {AETH_NAK_REM_OP_ERR, IBV_WC_BAD_RESP_ERR},
		 {AETH_NAK_INVALID_RD_REQ, IBV_WC_REM_INV_RD_REQ_ERR}};

	srd_up();
	for (unsigned i = 0; i < 4; i++) {
		sent(2 * i, 2);
		answer(t[i].syndrome, 2 * i, 2 * i);
		wc_next(rig.scq, t[i].status, 2 * i);
		srd_tx(RD(RESYNC), 2 * i, 0);
		answer(ACK, 2 * i + 1, 2 * i + 2);
		SWC(SUCCESS, 2 * i + 1);
	}
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

static void silence_is_told(void)
{
	uint32_t old;

	srd_up();
	sent(0, 3);
	old = srd_flow_sent;
	for (unsigned i = 0; i < 80; i++) {
		rig_advance(100 * MS);
		srd_drain();
	}
	for (unsigned i = 0; i < 3; i++)
		CHECK_EQ(SWC(RESP_TIMEOUT_ERR, i).vendor_err, SRD_UNREACH_REMOTE);
	/* what is posted then is of another flow */
	sent(0, 1);
	CHECK(srd_flow_sent != old);
	answer(ACK, 0, 1);
	SWC(SUCCESS, 0);
}

/* a peer that answers all but one: that one has failed, and no other */
static void one_without_an_answer(void)
{
	struct ibv_wc wc;
	unsigned i;

	srd_up();
	sent(0, 1);
	for (i = 1;; i++) {
		CHECK_EQ(send_op(IBV_WR_SEND, i, 0, 10), 0);
		answer(ACK, i, 0);
		SWC(SUCCESS, i);
		rig_advance(100 * MS);
		srd_drain();
		if (hca_cq_poll(rig.scq, 1, &wc))
			break;
		CHECK(i < 70);
	}
	CHECK(i >= 50); /* SRD_PATIENCE_NS */
	CHECK(wc.wr_id == 0 && wc.status == IBV_WC_RESP_TIMEOUT_ERR && wc.vendor_err == SRD_UNRESP_REMOTE);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	answer(ACK, 0, i + 1);
	rig_advance(10 * SECOND);
	TX_NONE();
}

/* a flow that was not used for long may be forgotten by the peer: it begins anew */
static void an_old_flow_begins_anew(void)
{
	uint32_t old;

	srd_up();
	sent(0, 1);
	old = srd_flow_sent;
	answer(ACK, 0, 1);
	SWC(SUCCESS, 0);
	rig_advance(SRD_IDLE_NS - 1);
	sent(1, 1);
	CHECK_EQ(srd_flow_sent, old);
	answer(ACK, 1, 2);
	SWC(SUCCESS, 1);
	rig_advance(SRD_IDLE_NS);
	sent(0, 1);
	CHECK(srd_flow_sent != old);
}

static void a_peer_that_forgot_us(void)
{
	srd_up();
	sent(0, 2);
	answer(AETH_NAK_UNKNOWN_FLOW, 1, 0);
	SWC(REM_ABORT_ERR, 0);
	SWC(REM_ABORT_ERR, 1);
	sent(0, 1);
	answer(ACK, 0, 1);
	SWC(SUCCESS, 0);
}

static void writes_are_packets_of_their_own(void)
{
	struct roce_pkt pkt;

	srd_up();
	CHECK_EQ(send_op(IBV_WR_RDMA_WRITE_WITH_IMM, 9, 5, 2 * MTU + 100), 0);
	for (unsigned i = 0; i < 2; i++) {
		pkt = srd_tx(RD(RDMA_WRITE_ONLY), i, MTU);
		CHECK(pkt.va == REMOTE_VA + i * MTU && pkt.rkey == REMOTE_KEY && pkt.dma_len == MTU);
		CHECK(!memcmp(pkt.payload, rig.mem + 5 + i * MTU, MTU));
	}
	/* what tells of them waits for them */
	TX_NONE();
	answer(ACK, 1, 0);
	TX_NONE();
	answer(ACK, 0, 2);
	pkt = srd_tx(RD(RDMA_WRITE_ONLY_WITH_IMMEDIATE), 2, 100);
	CHECK(pkt.va == REMOTE_VA + 2 * MTU && pkt.dma_len == 2 * MTU + 100 && pkt.imm == 0x11223344);
	wc_none(rig.scq);
	answer(ACK, 2, 3);
	CHECK_EQ(SWC(SUCCESS, 9).opcode, IBV_WC_RDMA_WRITE);
}

static void respond(uint8_t op, uint8_t last, uint32_t psn, uint32_t npkts, const void *data, uint32_t len)
{
	rx((struct roce_pkt){.opcode = op, .opcode_last = last, .pkey = 0xffff, .npkts = npkts, .mtu = MTU,
			     .dest_qpn = hca_qp_num(rig.qp), .psn = psn, .syndrome = ACK, .flow = srd_flow_sent, .payload = data,
			     .payload_len = len});
}

static void reads_in_pieces(void)
{
	static uint8_t data[4 * MTU];
	struct roce_pkt pkt;

	srd_up();
	rig_fill(data, sizeof(data), 3);
	CHECK_EQ(send_op(IBV_WR_RDMA_READ, 4, 7, 3 * MTU + 50), 0);
	pkt = srd_tx(RD(RDMA_READ_REQUEST), 0, 0);
	CHECK(pkt.va == REMOTE_VA && pkt.rkey == REMOTE_KEY && (pkt.dma_len & SRD_LEN_MASK) == 3 * MTU + 50 &&
	      pkt.dma_len >> SRD_MTU_SHIFT == IBV_MTU_1024);
	/* of a wrong length: not an answer */
	respond(RD(RDMA_READ_RESPONSE_LAST), RD(RDMA_READ_RESPONSE_LAST), 3, 1, data, 51);
	/* the last comes first, the third is lost; an ACK does not stand for data */
	respond(RD(RDMA_READ_RESPONSE_LAST), RD(RDMA_READ_RESPONSE_LAST), 3, 1, data + 3 * MTU, 50);
	respond(RD(RDMA_READ_RESPONSE_FIRST), RD(RDMA_READ_RESPONSE_MIDDLE), 0, 2, data, 2 * MTU);
	answer(ACK, 2, 4);
	wc_none(rig.scq);
	rig_advance(400 * MS);
	pkt = srd_tx(RD(RDMA_READ_REQUEST), 2, 0);
	CHECK(pkt.va == REMOTE_VA + 2 * MTU && (pkt.dma_len & SRD_LEN_MASK) == MTU);
	respond(RD(RDMA_READ_RESPONSE_ONLY), RD(RDMA_READ_RESPONSE_ONLY), 2, 1, data + 2 * MTU, MTU);
	SWC(SUCCESS, 4);
	rig_is(rig.mem + 7, 3 * MTU + 50, 3);
}

static void answers_that_cannot_be(void)
{
	srd_up();
	sent(0, 2);
	answer(ACK, 5, 0);	 /* never sent */
	answer(ACK, 0xffffff, 7); /* more than was sent */
	answer(AETH_NAK_REM_ACC_ERR, 9, 0);
	answer(0x40, 0, 0); /* reserved */
	SWC(BAD_RESP_ERR, 0);
	srd_flow_sent ^= 1;
	answer(AETH_NAK_UNKNOWN_FLOW, 0, 0);
	respond(RD(RDMA_READ_RESPONSE_ONLY), RD(RDMA_READ_RESPONSE_ONLY), 1, 1, rig.mem, 10);
	srd_flow_sent ^= 1;
	respond(RD(RDMA_READ_RESPONSE_ONLY), RD(RDMA_READ_RESPONSE_ONLY), 1, 1, rig.mem, 10);
	wc_none(rig.scq);
	answer(ACK, 1, 2);
	SWC(SUCCESS, 1);
}

static void what_is_not_taken(void)
{
	struct ibv_send_wr wr = wr_data(IBV_WR_SEND, 1, 0, 10), *bad;

	srd_up();
	wr.wr.ud.ah = (struct ibv_ah *)&srd_av;
	wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
	CHECK_EQ(hca_post_send(rig.qp, &wr, &bad), EINVAL);
	wr = wr_data(IBV_WR_RDMA_WRITE, 1, 0, 10);
	wr.send_flags = IBV_SEND_SIGNALED;
	CHECK_EQ(hca_post_send(rig.qp, &wr, &bad), EINVAL); /* has no room for an address */
	CHECK_EQ(send_op(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8), EINVAL);
	/* slots are taken until they complete, in any order */
	for (unsigned i = 0; i < opt.sq_depth; i++)
		send_op(IBV_WR_SEND, i, 0, 1);
	CHECK_EQ(send_op(IBV_WR_SEND, 1, 0, 1), ENOMEM);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(answered_in_any_order),
		TEST(lost_ones_go_again),
		TEST(waits_for_a_receive),
		TEST(waits_longer_each_time),
		TEST(giving_up_is_repeated),
		TEST(an_error_is_one_request_s),
		TEST(silence_is_told),
		TEST(one_without_an_answer),
		TEST(an_old_flow_begins_anew),
		TEST(a_peer_that_forgot_us),
		TEST(writes_are_packets_of_their_own),
		TEST(reads_in_pieces),
		TEST(answers_that_cannot_be),
		TEST(what_is_not_taken),
		{0},
	};

	return rig_main(argc, argv, tests);
}
