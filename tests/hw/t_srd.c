/* SPDX-License-Identifier: BSD-2-Clause */
/* SRD: what is answered in any order, lost, refused or not answered at all; and what arrives more than once. */
#include <errno.h>
#include "hw/srd.h"
#include "rig.h"

#define QKEY	 0x11111111
#define FLOW	 0x123456 /* of the peer's */
#define MTU	 1024u
#define RD(op)	 IBV_OPCODE_RD_##op
#define SECOND	 1000000000ull

static const uint8_t peer_gid[16] = {[10] = 0xff, 0xff, 10, 0, 0, 2}, my_gid[16] = {[10] = 0xff, 0xff, 10, 0, 0, 1};
static struct hca_av av = {.pd = PD, .sgid = {[10] = 0xff, 0xff, 10, 0, 0, 1}, .dgid = {[10] = 0xff, 0xff, 10, 0, 0, 2}};
static uint8_t grh[GRH_BYTES];

static const struct hca_av *av_of(struct ibv_ah *ah)
{
	return (const struct hca_av *)ah;
}

static void state(enum ibv_qp_state s, int mask)
{
	struct ibv_qp_attr attr = {.qp_state = s, .qkey = QKEY, .port_num = 1, .rnr_retry = opt.rnr_retry};
	static const uint8_t gid[16];

	CHECK_EQ(hca_qp_modify(rig.qp, &attr, IBV_QP_STATE | mask, gid), 0);
}

static void new_qp(void)
{
	rig.qp = rig_qp_new();
	state(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	state(IBV_QPS_RTR, 0);
	state(IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY);
}

static void up(void)
{
	struct hca_event_ops ops;

	opt.type = IBV_QPT_DRIVER;
	opt.profile = hca_profile_find("efa");
	rig_node();
	ops = hca_event_ops;
	ops.av = av_of;
	hca_set_event_ops(&ops);
	new_qp();
	grh[20] = 0x45;
	memcpy(grh + 32, peer_gid + 12, 4);
	memcpy(grh + 36, my_gid + 12, 4);
}

/* ---- requester ---- */

static uint32_t flow; /* of ours: read from what was sent */

static int send_op(enum ibv_wr_opcode op, uint64_t id, uint32_t off, uint32_t len)
{
	struct ibv_send_wr wr = wr_data(op, id, off, len), *bad;

	wr.send_flags = IBV_SEND_SIGNALED;
	memset(&wr.wr, 0, sizeof(wr.wr));
	wr.wr.ud.ah = (struct ibv_ah *)&av;
	wr.wr.ud.remote_qpn = PEER_QPN;
	wr.wr.ud.remote_qkey = QKEY;
	hca_wr_set_place(&wr, REMOTE_KEY, REMOTE_VA);
	return hca_post_send_all(rig.qp, &wr, &bad);
}

static struct roce_pkt tx(uint8_t op, uint32_t psn, uint32_t len)
{
	struct roce_pkt pkt = tx_train(__FILE__, __LINE__, op, op, psn, 1, len);

	flow = pkt.flow;
	return pkt;
}

static void answer(uint8_t syndrome, uint32_t psn, uint32_t before)
{
	rx((struct roce_pkt){.opcode = RD(ACKNOWLEDGE), .opcode_last = RD(ACKNOWLEDGE), .pkey = 0xffff, .npkts = 1,
			     .dest_qpn = hca_qp_num(rig.qp), .psn = psn, .msn = before, .syndrome = syndrome,
			     .flow = flow});
}

#define ACK AETH_ACK_NO_CREDIT

static void sent(unsigned from, unsigned n)
{
	for (unsigned i = from; i < from + n; i++) {
		CHECK_EQ(send_op(IBV_WR_SEND, i, 0, 10), 0);
		tx(RD(SEND_ONLY), i, 10);
	}
}

static void answered_in_any_order(void)
{
	struct roce_pkt pkt;

	up();
	CHECK_EQ(send_op(IBV_WR_SEND_WITH_IMM, 0, 3, 1001), 0);
	pkt = tx(RD(SEND_ONLY_WITH_IMMEDIATE), 0, 1001);
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
	up();
	sent(0, 7);
	for (unsigned i = 2; i < 7; i++)
		answer(ACK, i, 0);
	/* one is overtaken by more than three, then the other */
	tx(RD(SEND_ONLY), 0, 10);
	tx(RD(SEND_ONLY), 1, 10);
	TX_NONE();
	answer(ACK, 1, 7);
	/* and after silence */
	sent(7, 2);
	rig_advance(100 * MS);
	tx(RD(SEND_ONLY), 7, 10);
	tx(RD(SEND_ONLY), 8, 10);
	answer(ACK, 8, 9);
	rig_advance(10 * SECOND);
	TX_NONE();
}

static void waits_for_a_receive(void)
{
	opt.rnr_retry = 2;
	up();
	sent(0, 2);
	answer(AETH_RNR_NAK, 0, 0);
	TX_NONE();
	answer(ACK, 1, 0);
	SWC(SUCCESS, 1);
	for (unsigned i = 0; i < 2; i++) {
		rig_advance(20 * MS);
		tx(RD(SEND_ONLY), 0, 10);
		answer(AETH_RNR_NAK, 0, 0);
	}
	SWC(RNR_RETRY_EXC_ERR, 0);
	/* its PSN is given up, so that the window moves */
	tx(RD(RESYNC), 0, 0);
	answer(ACK, 0, 2);
	rig_advance(10 * SECOND);
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

static void an_error_is_one_request_s(void)
{
	static const struct {
		uint8_t syndrome;
		enum ibv_wc_status status;
	} t[] = {{AETH_NAK_INVALID_REQ, IBV_WC_REM_INV_REQ_ERR},
		 {AETH_NAK_REM_ACC_ERR, IBV_WC_REM_ACCESS_ERR},
		 {AETH_NAK_REM_OP_ERR, IBV_WC_BAD_RESP_ERR},
		 {AETH_NAK_INV_RD_REQ, IBV_WC_REM_INV_RD_REQ_ERR}};

	up();
	for (unsigned i = 0; i < 4; i++) {
		sent(2 * i, 2);
		answer(t[i].syndrome, 2 * i, 2 * i);
		wc_next(rig.scq, t[i].status, 2 * i);
		tx(RD(RESYNC), 2 * i, 0);
		answer(ACK, 2 * i + 1, 2 * i + 2);
		SWC(SUCCESS, 2 * i + 1);
	}
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

static void drain_tx(void)
{
	struct roce_pkt pkt;

	while (fake_tx_pop(&pkt))
		;
}

static void silence_is_told(void)
{
	uint32_t old;

	up();
	sent(0, 3);
	old = flow;
	for (unsigned i = 0; i < 80; i++) {
		rig_advance(100 * MS);
		drain_tx();
	}
	for (unsigned i = 0; i < 3; i++)
		CHECK_EQ(SWC(RESP_TIMEOUT_ERR, i).vendor_err, SRD_UNREACH_REMOTE);
	/* what is posted then is of another flow */
	sent(0, 1);
	CHECK(flow != old);
	answer(ACK, 0, 1);
	SWC(SUCCESS, 0);
}

static void a_peer_that_forgot_us(void)
{
	up();
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

	up();
	CHECK_EQ(send_op(IBV_WR_RDMA_WRITE_WITH_IMM, 9, 5, 2 * MTU + 100), 0);
	for (unsigned i = 0; i < 2; i++) {
		pkt = tx(RD(RDMA_WRITE_ONLY), i, MTU);
		CHECK(pkt.va == REMOTE_VA + i * MTU && pkt.rkey == REMOTE_KEY && pkt.dma_len == MTU);
		CHECK(!memcmp(pkt.payload, rig.mem + 5 + i * MTU, MTU));
	}
	/* what tells of them waits for them */
	TX_NONE();
	answer(ACK, 1, 0);
	TX_NONE();
	answer(ACK, 0, 2);
	pkt = tx(RD(RDMA_WRITE_ONLY_WITH_IMMEDIATE), 2, 100);
	CHECK(pkt.va == REMOTE_VA + 2 * MTU && pkt.dma_len == 2 * MTU + 100 && pkt.imm == 0x11223344);
	wc_none(rig.scq);
	answer(ACK, 2, 3);
	CHECK_EQ(SWC(SUCCESS, 9).opcode, IBV_WC_RDMA_WRITE);
}

static void respond(uint8_t op, uint8_t last, uint32_t psn, uint32_t npkts, const void *data, uint32_t len)
{
	rx((struct roce_pkt){.opcode = op, .opcode_last = last, .pkey = 0xffff, .npkts = npkts, .mtu = MTU,
			     .dest_qpn = hca_qp_num(rig.qp), .psn = psn, .syndrome = ACK, .flow = flow, .payload = data,
			     .payload_len = len});
}

static void reads_in_pieces(void)
{
	static uint8_t data[4 * MTU];
	struct roce_pkt pkt;

	up();
	rig_fill(data, sizeof(data), 3);
	CHECK_EQ(send_op(IBV_WR_RDMA_READ, 4, 7, 3 * MTU + 50), 0);
	pkt = tx(RD(RDMA_READ_REQUEST), 0, 0);
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
	pkt = tx(RD(RDMA_READ_REQUEST), 2, 0);
	CHECK(pkt.va == REMOTE_VA + 2 * MTU && (pkt.dma_len & SRD_LEN_MASK) == MTU);
	respond(RD(RDMA_READ_RESPONSE_ONLY), RD(RDMA_READ_RESPONSE_ONLY), 2, 1, data + 2 * MTU, MTU);
	SWC(SUCCESS, 4);
	rig_is(rig.mem + 7, 3 * MTU + 50, 3);
}

static void answers_that_cannot_be(void)
{
	up();
	sent(0, 2);
	answer(ACK, 5, 0);	 /* never sent */
	answer(ACK, 0xffffff, 7); /* more than was sent */
	answer(AETH_NAK_REM_ACC_ERR, 9, 0);
	answer(0x40, 0, 0); /* reserved */
	SWC(BAD_RESP_ERR, 0);
	flow ^= 1;
	answer(AETH_NAK_UNKNOWN_FLOW, 0, 0);
	respond(RD(RDMA_READ_RESPONSE_ONLY), RD(RDMA_READ_RESPONSE_ONLY), 1, 1, rig.mem, 10);
	flow ^= 1;
	respond(RD(RDMA_READ_RESPONSE_ONLY), RD(RDMA_READ_RESPONSE_ONLY), 1, 1, rig.mem, 10);
	wc_none(rig.scq);
	answer(ACK, 1, 2);
	SWC(SUCCESS, 1);
}

static void what_is_not_taken(void)
{
	struct ibv_send_wr wr = wr_data(IBV_WR_SEND, 1, 0, 10), *bad;

	up();
	wr.wr.ud.ah = (struct ibv_ah *)&av;
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

/* ---- responder ---- */

static struct roce_pkt request(uint8_t op, uint32_t psn, uint32_t len)
{
	static uint8_t data[2 * MTU];
	struct roce_pkt pkt = pkt_req(op, op, psn, len, data);

	rig_fill(data, sizeof(data), psn);
	pkt.npkts = 1;
	pkt.qkey = QKEY;
	pkt.src_qpn = PEER_QPN;
	pkt.flow = FLOW;
	pkt.grh = grh;
	return pkt;
}

static void answers_at(const char *file, int line, uint8_t syndrome, uint32_t psn, uint32_t before)
{
	struct roce_pkt pkt = tx_train(file, line, RD(ACKNOWLEDGE), RD(ACKNOWLEDGE), psn, 1, 0);

	if (pkt.syndrome != syndrome || pkt.msn != before || pkt.flow != FLOW)
		FAIL("%s:%d: syndrome %#x, all before %u, flow %#x", file, line, pkt.syndrome, pkt.msn, pkt.flow);
}
#define ANSWERS(syndrome, psn, before) answers_at(__FILE__, __LINE__, syndrome, psn, before)

/* the first of a source, whose path back is found by a worker */
static void begin(void)
{
	up();
	CHECK_EQ(post_recv(100, 0, MTU), 0);
	rx(request(RD(SEND_ONLY), 0, 33));
	rig_workers_idle();
	ANSWERS(ACK, 0, 1);
	CHECK_EQ(RWC(SUCCESS, 100).src_qp, PEER_QPN);
	rig_is(rig.mem, 33, 0);
}

static void each_is_delivered_once(void)
{
	struct ibv_wc wc;

	begin();
	CHECK(!memcmp(fake_tx_attr.dgid, peer_gid, 16) && !memcmp(fake_tx_attr.sgid, my_gid, 16));
	for (unsigned i = 1; i < 4; i++)
		CHECK_EQ(post_recv(100 + i, i * 4096, MTU), 0);
	rx(request(RD(SEND_ONLY), 0, 33));
	ANSWERS(ACK, 0, 1);
	rx(request(RD(SEND_ONLY_WITH_IMMEDIATE), 2, 44));
	ANSWERS(ACK, 2, 1);
	wc = RWC(SUCCESS, 101);
	CHECK(wc.byte_len == 44 && wc.imm_data == 0x55667788 && wc.slid == AH_UNKNOWN);
	rig_is(rig.mem + 4096, 44, 2);
	rx(request(RD(SEND_ONLY_WITH_IMMEDIATE), 2, 44));
	ANSWERS(ACK, 2, 1);
	rx(request(RD(SEND_ONLY), 1, 55));
	ANSWERS(ACK, 1, 3);
	RWC(SUCCESS, 102);
	wc_none(rig.rcq);
	/* of another flow of the same QP's it is another one */
	struct roce_pkt pkt = request(RD(SEND_ONLY), 0, 66);

	pkt.flow = FLOW + 1;
	rx(pkt);
	CHECK_EQ(tx(RD(ACKNOWLEDGE), 0, 0).flow, FLOW + 1);
	RWC(SUCCESS, 103);
}

static void outside_the_window(void)
{
	struct roce_pkt pkt;

	begin();
	CHECK_EQ(post_recv(101, 0, MTU), 0);
	rx(request(RD(SEND_ONLY), 1 + SRD_WINDOW, 10));
	TX_NONE();
	wc_none(rig.rcq);
	rx(request(RD(SEND_ONLY), SRD_WINDOW, 10));
	ANSWERS(ACK, SRD_WINDOW, 1);
	/* a flow that begins in its middle was forgotten */
	pkt = request(RD(SEND_ONLY), SRD_WINDOW, 10);
	pkt.flow = FLOW + 1;
	rx(pkt);
	CHECK_EQ(tx(RD(ACKNOWLEDGE), SRD_WINDOW, 0).syndrome, AETH_NAK_UNKNOWN_FLOW);
}

static void what_is_refused(void)
{
	struct roce_pkt pkt;

	begin();
	rx(request(RD(SEND_ONLY), 1, 10));
	ANSWERS(AETH_RNR_NAK, 1, 1);
	CHECK_EQ(post_recv(101, 0, 20), 0);
	rx(request(RD(SEND_ONLY), 1, 21));
	ANSWERS(AETH_NAK_INVALID_REQ, 1, 1);
	pkt = request(RD(SEND_ONLY), 1, 10);
	pkt.qkey ^= 1;
	rx(pkt);
	ANSWERS(AETH_NAK_INV_RD_REQ, 1, 1);
	pkt = request(RD(RDMA_WRITE_ONLY), 1, 10);
	pkt.va = IOVA;
	pkt.dma_len = 10;
	pkt.rkey = rig.key ^ 0x100;
	rx(pkt);
	ANSWERS(AETH_NAK_REM_ACC_ERR, 1, 1);
	pkt.rkey = rig.key;
	pkt.dma_len = 11;
	rx(pkt);
	ANSWERS(AETH_NAK_INVALID_REQ, 1, 1);
	wc_none(rig.rcq);
	/* none of it was kept: the receive is there, and the PSN */
	rx(request(RD(SEND_ONLY), 1, 20));
	ANSWERS(ACK, 1, 2);
	RWC(SUCCESS, 101);
	rx(request(RD(RESYNC), 3, 0));
	ANSWERS(ACK, 3, 2);
	rx(request(RD(RESYNC), 2, 0));
	ANSWERS(ACK, 2, 4);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

static void written_and_told_of(void)
{
	struct roce_pkt pkt;
	struct ibv_wc wc;

	begin();
	CHECK_EQ(post_recv(101, 0, 0), 0);
	pkt = request(RD(RDMA_WRITE_ONLY_WITH_IMMEDIATE), 1, 100);
	pkt.va = IOVA + 9000;
	pkt.rkey = rig.key;
	pkt.dma_len = 5000; /* of all of it */
	rx(pkt);
	ANSWERS(ACK, 1, 2);
	wc = RWC(SUCCESS, 101);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 5000 && wc.imm_data == 0x55667788);
	rig_is(rig.mem + 9000, 100, 1);
}

static struct roce_pkt read_of(uint32_t psn, uint32_t off, uint32_t len)
{
	struct roce_pkt pkt = request(RD(RDMA_READ_REQUEST), psn, 0);

	pkt.va = IOVA + off;
	pkt.rkey = rig.key;
	pkt.dma_len = len | IBV_MTU_1024 << SRD_MTU_SHIFT;
	return pkt;
}

static void reads_are_answered_as_often_as_asked(void)
{
	struct roce_pkt pkt;

	begin();
	rig_fill(rig.mem, 8 * MTU, 77);
	for (unsigned i = 0; i < 2; i++) {
		rx(read_of(1, 5, 2 * MTU + 1));
		pkt = tx_train(__FILE__, __LINE__, RD(RDMA_READ_RESPONSE_FIRST), RD(RDMA_READ_RESPONSE_LAST), 1, 3,
			       2 * MTU + 1);
		CHECK(pkt.flow == FLOW && !memcmp(pkt.payload, rig.mem + 5, 2 * MTU + 1));
	}
	rx(read_of(2, 5 + MTU, MTU));
	pkt = tx(RD(RDMA_READ_RESPONSE_ONLY), 2, MTU);
	CHECK(!memcmp(pkt.payload, rig.mem + 5 + MTU, MTU));
	rx(request(RD(RESYNC), 4, 0));
	ANSWERS(ACK, 4, 5);
	/* no room: it goes on when there is */
	fake_net_room(0);
	rx(read_of(5, 0, 0));
	TX_NONE();
	fake_net_room(-1);
	tx(RD(RDMA_READ_RESPONSE_ONLY), 5, 0);
	/* refused: beyond the region, too long for one request, of packets that we have not */
	rx(read_of(6, MEM_LEN - 1, 2));
	ANSWERS(AETH_NAK_REM_ACC_ERR, 6, 6);
	rx(read_of(6, 0, (SRD_READ_PKTS + 1) * MTU));
	ANSWERS(AETH_NAK_INVALID_REQ, 6, 6);
	pkt = read_of(6, 0, 10);
	pkt.dma_len = 10 | 7u << SRD_MTU_SHIFT;
	rx(pkt);
	ANSWERS(AETH_NAK_INVALID_REQ, 6, 6);
	pkt.dma_len = 10;
	rx(pkt);
	ANSWERS(AETH_NAK_INVALID_REQ, 6, 6);
}

static void one_that_ends_says_so(void)
{
	begin();
	hca_qp_destroy(rig.qp);
	ANSWERS(AETH_NAK_UNKNOWN_FLOW, 1, 1);
	CHECK_EQ(fake_paths, 0);
}

/* A worker looks for the way back to a source of a QP that is reset, or gone, by then. */
static void ends_while_the_way_back_is_sought(void)
{
	up();
	for (unsigned i = 0; i < 200; i++) {
		rx(request(RD(SEND_ONLY), 0, 33));
		if (i % 2)
			state(IBV_QPS_RESET, 0);
		hca_qp_destroy(rig.qp);
		new_qp();
		drain_tx();
	}
	hca_qp_destroy(rig.qp);
	rig_workers_idle();
	drain_tx();
	CHECK_EQ(fake_paths, 0);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(answered_in_any_order),
		TEST(lost_ones_go_again),
		TEST(waits_for_a_receive),
		TEST(an_error_is_one_request_s),
		TEST(silence_is_told),
		TEST(a_peer_that_forgot_us),
		TEST(writes_are_packets_of_their_own),
		TEST(reads_in_pieces),
		TEST(answers_that_cannot_be),
		TEST(what_is_not_taken),
		TEST(each_is_delivered_once),
		TEST(outside_the_window),
		TEST(what_is_refused),
		TEST(written_and_told_of),
		TEST(reads_are_answered_as_often_as_asked),
		TEST(one_that_ends_says_so),
		TEST(ends_while_the_way_back_is_sought),
		{0},
	};

	return rig_main(argc, argv, tests);
}
