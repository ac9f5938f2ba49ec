/* SPDX-License-Identifier: BSD-2-Clause */
/* SRD's responder: what arrives in any order, more than once, or cannot be executed. */
#include "srd_rig.h"

#define FLOW 0x123456 /* of the peer's */

static struct roce_pkt request(uint8_t op, uint32_t psn, uint32_t len)
{
	static uint8_t data[2 * MTU];
	struct roce_pkt pkt = pkt_req(op, op, psn, len, data);

	rig_fill(data, sizeof(data), psn);
	pkt.npkts = 1;
	pkt.qkey = QKEY;
	pkt.src_qpn = PEER_QPN;
	pkt.flow = FLOW;
	pkt.grh = srd_grh;
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
	srd_up();
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
	CHECK(!memcmp(fake_tx_attr.dgid, srd_peer_gid, 16) && !memcmp(fake_tx_attr.sgid, srd_my_gid, 16));
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
	CHECK_EQ(srd_tx(RD(ACKNOWLEDGE), 0, 0).flow, FLOW + 1);
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
	CHECK_EQ(srd_tx(RD(ACKNOWLEDGE), SRD_WINDOW, 0).syndrome, AETH_NAK_UNKNOWN_FLOW);
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
	ANSWERS(AETH_NAK_INVALID_RD_REQ, 1, 1);
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

static void a_receive_with_a_bad_key(void)
{
	struct ibv_sge sge = {IOVA, 64, 0x77};
	struct ibv_recv_wr wr = {.wr_id = 101, .sg_list = &sge, .num_sge = 1}, *bad;

	begin();
	CHECK_EQ(hca_post_recv(rig.qp, &wr, &bad), 0);
	rx(request(RD(SEND_ONLY), 1, 10));
	ANSWERS(AETH_NAK_REM_OP_ERR, 1, 1);
	RWC(LOC_PROT_ERR, 101);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

/* longer than the peer's flow lasts, or it would be delivered twice what was had once */
static void a_source_is_forgotten(void)
{
	struct roce_pkt pkt;

	begin();
	rig_advance(SRD_IDLE_NS);
	rx(request(RD(SEND_ONLY), 0, 33));
	ANSWERS(ACK, 0, 1); /* had before */
	wc_none(rig.rcq);
	rig_advance(SRD_FORGET_NS + 1);
	pkt = request(RD(SEND_ONLY), 0, 33);
	pkt.flow = FLOW + 1;
	rx(pkt); /* of another; there is no receive */
	CHECK_EQ(srd_tx(RD(ACKNOWLEDGE), 0, 0).syndrome, AETH_RNR_NAK);
	CHECK_EQ(rig.qp->srd->num_sources, 1);
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
	pkt = srd_tx(RD(RDMA_READ_RESPONSE_ONLY), 2, MTU);
	CHECK(!memcmp(pkt.payload, rig.mem + 5 + MTU, MTU));
	rx(request(RD(RESYNC), 4, 0));
	ANSWERS(ACK, 4, 5);
	/* no room: it goes on when there is */
	fake_net_room(0);
	rx(read_of(5, 0, 0));
	TX_NONE();
	fake_net_room(-1);
	srd_tx(RD(RDMA_READ_RESPONSE_ONLY), 5, 0);
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
	srd_up();
	for (unsigned i = 0; i < 200; i++) {
		rx(request(RD(SEND_ONLY), 0, 33));
		if (i % 2)
			srd_state(IBV_QPS_RESET, 0);
		hca_qp_destroy(rig.qp);
		srd_new_qp();
		srd_drain();
	}
	hca_qp_destroy(rig.qp);
	rig_workers_idle();
	srd_drain();
	CHECK_EQ(fake_paths, 0);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(each_is_delivered_once),
		TEST(outside_the_window),
		TEST(what_is_refused),
		TEST(a_receive_with_a_bad_key),
		TEST(a_source_is_forgotten),
		TEST(written_and_told_of),
		TEST(reads_are_answered_as_often_as_asked),
		TEST(one_that_ends_says_so),
		TEST(ends_while_the_way_back_is_sought),
		{0},
	};

	return rig_main(argc, argv, tests);
}
