/* SPDX-License-Identifier: BSD-2-Clause */
/* The responder's refusals: which NAK, which state, which event, which receive completion. */
#include "rig.h"

#define R 200

static void refused(struct roce_pkt pkt, uint8_t syndrome)
{
	bool access = syndrome == AETH_NAK_REM_ACC_ERR;

	rx(pkt);
	TX_NAK(syndrome, pkt.psn);
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
	CHECK_EQ(ev_qp[IBV_EVENT_QP_ACCESS_ERR], access);
	wc_none(rig.scq);
}

#define INVALID(pkt) refused(pkt, AETH_NAK_INVALID_REQ)
#define DENIED(pkt)  refused(pkt, AETH_NAK_REM_ACC_ERR)

/* ---- invalid request ---- */

static void middle_without_first(void)
{
	rig_up();
	CHECK_EQ(post_recv(1, 0, 4096), 0);
	INVALID(REQ(SEND_MIDDLE, R, 1024, pattern));
	RWC(WR_FLUSH_ERR, 1);
}

static void last_without_first(void)
{
	rig_up();
	INVALID(REQ(SEND_LAST, R, 8, pattern));
}

static void write_last_without_first(void)
{
	rig_up();
	INVALID(WRITE(LAST, R, 0, 8, 8, pattern));
}

static void first_then(struct roce_pkt pkt)
{
	rx(REQ(SEND_FIRST, R, 1024, pattern));
	TX_ACK(R);
	INVALID(pkt);
	RWC(REM_INV_REQ_ERR, 1);
	RWC(WR_FLUSH_ERR, 2);
	wc_none(rig.rcq);
}

static void first_up(void)
{
	rig_up();
	CHECK_EQ(post_recv(1, 0, 4096), 0);
	CHECK_EQ(post_recv(2, 0, 4096), 0);
}

static void first_then_only(void)
{
	first_up();
	first_then(REQ(SEND_ONLY, R + 1, 8, pattern));
}

static void first_then_first(void)
{
	first_up();
	first_then(REQ(SEND_FIRST, R + 1, 1024, pattern));
}

static void send_first_then_write_middle(void)
{
	first_up();
	first_then(WRITE(MIDDLE, R + 1, 0, 0, 1024, pattern));
}

static void send_first_then_read(void)
{
	first_up();
	first_then(pkt_read(R + 1, 0, 8));
}

static void send_first_then_atomic(void)
{
	first_up();
	first_then(pkt_atomic(false, R + 1, 0, 1, 0));
}

static void last_of_0_bytes(void)
{
	first_up();
	first_then(REQ(SEND_LAST, R + 1, 0, NULL));
}

static void short_first(void)
{
	rig_up();
	CHECK_EQ(post_recv(1, 0, 4096), 0);
	INVALID(REQ(SEND_FIRST, R, 1020, pattern));
}

static void short_middle(void)
{
	first_up();
	first_then(REQ(SEND_MIDDLE, R + 1, 4, pattern));
}

static void long_only(void)
{
	rig_up();
	CHECK_EQ(post_recv(1, 0, 4096), 0);
	INVALID(REQ(SEND_ONLY, R, 1025, pattern));
}

static void long_last(void)
{
	first_up();
	first_then(REQ(SEND_LAST, R + 1, 1028, pattern));
}

static void write_shorter_than_its_reth(void)
{
	rig_up();
	INVALID(WRITE(ONLY, R, 0, 100, 96, pattern));
	rig_is(rig.mem, 128, 0);
}

static void write_longer_than_its_reth(void)
{
	rig_up();
	INVALID(WRITE(ONLY, R, 0, 96, 100, pattern));
	rig_is(rig.mem, 128, 0);
}

static void write_train_longer_than_its_reth(void)
{
	rig_up();
	INVALID(WRITE2(FIRST, LAST, R, 0, 2999, 3000, pattern));
	rig_is(rig.mem, 4096, 0);
}

static void write_middle_beyond_its_reth(void)
{
	rig_up();
	rx(WRITE(FIRST, R, 0, 1500, 1024, pattern));
	TX_ACK(R);
	INVALID(WRITE(MIDDLE, R + 1, 0, 0, 1024, pattern));
	CHECK(memcmp(rig.mem + 1024, pattern, 64)); /* not placed */
}

static void write_of_the_wrong_mtu(void)
{
	struct roce_pkt pkt;

	rig_up();
	pkt = WRITE2(FIRST, LAST, R, 0, 4096, 4096, pattern);
	pkt.mtu = 2048;
	pkt.npkts = 2;
	INVALID(pkt);
}

static void write_too_long(void)
{
	rig_up();
	INVALID(WRITE(FIRST, R, 0, (1u << 31) + 1, 1024, pattern));
}

static void read_too_long(void)
{
	rig_up();
	INVALID(pkt_read(R, 0, (1u << 31) + 1));
}

static void unaligned_atomic(void)
{
	rig_up();
	INVALID(pkt_atomic(false, R, 4, 1, 0));
}

static void no_remote_write(void)
{
	opt.qp_access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	rig_up();
	INVALID(WRITE(ONLY, R, 0, 8, 8, pattern));
}

static void no_remote_read(void)
{
	opt.qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	rig_up();
	INVALID(pkt_read(R, 0, 8));
}

static void no_remote_atomic(void)
{
	opt.qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	rig_up();
	INVALID(pkt_atomic(true, R, 0, 1, 1));
}

static void read_with_no_resources(void)
{
	opt.max_dest_rd_atomic = 0;
	rig_up();
	INVALID(pkt_read(R, 0, 8));
}

static void more_reads_than_agreed_are_served(void)
{
	unsigned i;

	opt.max_dest_rd_atomic = 1;
	rig_up();
	for (i = 0; i < 3; i++)
		rx_later(pkt_read(R + i, 0, 8));
	rx_now();
	for (i = 0; i < 3; i++)
		TX(RDMA_READ_RESPONSE_ONLY, R + i, 1, 8);
}

static void send_with_invalidate_is_refused(void)
{
	struct roce_pkt pkt;

	rig_up();
	CHECK_EQ(post_recv(1, 0, 64), 0);
	pkt = REQ(SEND_ONLY, R, 8, pattern);
	pkt.opcode = pkt.opcode_last = 0x17;
	pkt.rkey = rig.key;
	INVALID(pkt);
}

/* ---- remote access ---- */

static void with_key(uint32_t key)
{
	struct roce_pkt pkt;

	rig_up();
	pkt = WRITE(ONLY, R, 0, 8, 8, pattern);
	pkt.rkey = key;
	DENIED(pkt);
	rig_is(rig.mem, 64, 0);
	CHECK_EQ(cnt(FL_CNT_remote_access_err), 1);
}

static void key_0(void)
{
	with_key(0);
}

static void key_unknown(void)
{
	with_key(0x1234500);
}

static void key_beyond_the_table(void)
{
	with_key(0xffffffff);
}

static void key_of_the_wrong_variant(void)
{
	struct roce_pkt pkt;

	rig_up();
	pkt = pkt_read(R, 0, 8);
	pkt.rkey ^= 0x80;
	DENIED(pkt);
}

static void key_of_another_pd(void)
{
	static uint8_t other[4096] __attribute__((aligned(4096)));
	struct hca_mr *mr;
	struct roce_pkt pkt;

	rig_up();
	mr = rig_mr(other, sizeof(other), IOVA, IBV_ACCESS_REMOTE_READ, PD + 1, false);
	pkt = pkt_read(R, 0, 8);
	pkt.rkey = hca_mr_key(mr);
	DENIED(pkt);
}

static void key_deregistered(void)
{
	rig_up();
	hca_mr_destroy(rig.mr);
	DENIED(pkt_read(R, 0, 8));
}

static void denied_at(uint64_t va, uint32_t len)
{
	struct roce_pkt pkt;

	rig_up();
	pkt = pkt_read(R, 0, len);
	pkt.va = va;
	DENIED(pkt);
}

static void before_the_start(void)
{
	denied_at(IOVA - 1, 8);
}

static void beyond_the_end(void)
{
	denied_at(IOVA + MEM_LEN - 7, 8);
}

static void address_wraps(void)
{
	denied_at(UINT64_MAX - 3, 8);
}

static void address_0(void)
{
	denied_at(0, 8);
}

static void longer_than_the_mr(void)
{
	denied_at(IOVA, MEM_LEN + 1);
}

static void right_missing(unsigned access, struct roce_pkt (*make)(void))
{
	static uint8_t other[4096] __attribute__((aligned(4096)));
	struct roce_pkt pkt;

	rig_up();
	pkt = make();
	pkt.rkey = hca_mr_key(rig_mr(other, sizeof(other), IOVA, access, PD, false));
	DENIED(pkt);
}

static struct roce_pkt make_write(void)
{
	return WRITE(ONLY, R, 0, 8, 8, pattern);
}

static struct roce_pkt make_read(void)
{
	return pkt_read(R, 0, 8);
}

static struct roce_pkt make_atomic(void)
{
	return pkt_atomic(false, R, 0, 1, 0);
}

static void mr_without_remote_write(void)
{
	right_missing(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC, make_write);
}

static void mr_without_remote_read(void)
{
	right_missing(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, make_read);
}

static void mr_without_remote_atomic(void)
{
	right_missing(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, make_atomic);
}

static void nothing_asked_of_a_bad_key(void)
{
	struct roce_pkt pkt;

	rig_up();
	pkt = WRITE(ONLY, R, 0, 0, 0, NULL);
	pkt.rkey = 0x999;
	rx(pkt);
	TX_ACK(R);
	pkt = pkt_read(R + 1, 0, 0);
	pkt.rkey = 0;
	rx(pkt);
	TX(RDMA_READ_RESPONSE_ONLY, R + 1, 1, 0);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

/* a message whose key dies between its packets */
static void key_dies_in_a_message(void)
{
	rig_up();
	rx(WRITE(FIRST, R, 0, 2048, 1024, pattern));
	TX_ACK(R);
	hca_mr_destroy(rig.mr);
	DENIED(WRITE(LAST, R + 1, 0, 0, 1024, pattern));
}

/* ---- receives that do not fit ---- */

static void recv_error(struct roce_pkt pkt, enum ibv_wc_status status)
{
	/* too long is an invalid request (9.9.3.1.2), a receive that cannot be written is ours */
	uint8_t syndrome = status == IBV_WC_LOC_LEN_ERR ? AETH_NAK_INVALID_REQ : AETH_NAK_REM_OP_ERR;

	rx(pkt);
	TX_NAK(syndrome, pkt.psn);
	TX_NONE();
	wc_next(rig.rcq, status, 1);
	RWC(WR_FLUSH_ERR, 2);
	wc_none(rig.rcq);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
	CHECK_EQ(ev_qp[IBV_EVENT_QP_ACCESS_ERR], 0);
}

static void recv_too_short(void)
{
	rig_up();
	CHECK_EQ(post_recv(1, 0, 7), 0);
	CHECK_EQ(post_recv(2, 0, 64), 0);
	recv_error(REQ(SEND_ONLY, R, 8, pattern), IBV_WC_LOC_LEN_ERR);
}

static void recv_too_short_for_a_train(void)
{
	rig_up();
	CHECK_EQ(post_recv(1, 0, 3000), 0);
	CHECK_EQ(post_recv(2, 0, 64), 0);
	recv_error(REQ2(SEND_FIRST, SEND_LAST, R, 3001, pattern), IBV_WC_LOC_LEN_ERR);
}

static void recv_with_a_bad_key(void)
{
	struct ibv_sge sge = {IOVA, 64, 0x77};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	rig_up();
	CHECK_EQ(hca_post_recv(rig.qp, &wr, &bad), 0);
	CHECK_EQ(post_recv(2, 0, 64), 0);
	recv_error(REQ(SEND_ONLY, R, 8, pattern), IBV_WC_LOC_PROT_ERR);
}

static void recv_without_local_write(void)
{
	static uint8_t other[4096] __attribute__((aligned(4096)));
	struct ibv_sge sge = {IOVA, 64, 0};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	rig_up();
	sge.lkey = hca_mr_key(rig_mr(other, sizeof(other), IOVA, IBV_ACCESS_REMOTE_READ, PD, false));
	CHECK_EQ(hca_post_recv(rig.qp, &wr, &bad), 0);
	CHECK_EQ(post_recv(2, 0, 64), 0);
	recv_error(REQ(SEND_ONLY, R, 8, pattern), IBV_WC_LOC_PROT_ERR);
}

/* ---- what is nobody's: dropped, counted, and not a word ---- */

static void dropped(struct roce_pkt pkt)
{
	uint64_t before = cnt(FL_CNT_rx_unknown_qp) + cnt(FL_CNT_rx_malformed);

	rx(pkt);
	TX_NONE();
	CHECK_EQ(cnt(FL_CNT_rx_unknown_qp) + cnt(FL_CNT_rx_malformed), before + 1);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

/* reserved ones, those of other transports, and of a congestion notification nothing but that it came */
static void every_opcode_that_is_not_of_rc(void)
{
	struct roce_pkt pkt;
	unsigned op;

	rig_up();
	for (op = 0; op < 256; op++) {
		if (op < 0x20 && roce_opcode[op].flags & ROCE_F_VALID)
			continue;
		pkt = WRITE(ONLY, R, 0, 8, 8, pattern);
		pkt.opcode = pkt.opcode_last = op;
		if (op != ROCE_OPCODE_CNP) {
			dropped(pkt);
			continue;
		}
		rx(pkt);
		TX_NONE();
		CHECK_EQ(cnt(FL_CNT_rp_cnp_handled), 1);
	}
	rig_is(rig.mem, 64, 0);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	TX_ACK(R);
}

static void every_qpn_that_is_not_there(void)
{
	struct roce_pkt pkt;
	unsigned bit;

	rig_up();
	for (bit = 0; bit < 24; bit++) {
		pkt = WRITE(ONLY, R, 0, 8, 8, pattern);
		pkt.dest_qpn ^= 1u << bit; /* of other slots too: its place in the table is ours */
		dropped(pkt);
	}
	rig_is(rig.mem, 64, 0);
}

/* once refused, the connection is over: what comes behind is not even looked at */
static void nothing_after_a_nak(void)
{
	uint64_t before;
	unsigned i;

	rig_up();
	INVALID(REQ(SEND_LAST, R, 8, pattern));
	before = cnt(FL_CNT_rx_unknown_qp);
	for (i = 0; i < 3; i++)
		rx(WRITE(ONLY, R + i, 0, 8, 8, pattern));
	rx(pkt_read(R, 0, 8));
	rx_nak(AETH_NAK_REM_OP_ERR, 100);
	TX_NONE();
	rig_is(rig.mem, 64, 0);
	CHECK(cnt(FL_CNT_rx_unknown_qp) >= before + 4);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
}

/* ---- guesses ---- */

/* who does not know the PSN writes nothing and breaks nothing: of what is behind it is said what was had, of
 * what is ahead once what is missing */
static void forged_psns(void)
{
	uint32_t d, naks = 0;
	struct roce_pkt pkt;

	rig_up();
	for (d = 1; d <= ROCE_PSN_MASK; d += 4099) {
		rx(WRITE(ONLY, R + d, 0, 8, 8, pattern));
		while (fake_tx_pop(&pkt)) {
			CHECK_EQ(pkt.opcode, IBV_OPCODE_RC_ACKNOWLEDGE);
			CHECK_EQ(pkt.psn, pkt.syndrome == AETH_NAK_PSN_SEQ_ERROR ? R : R - 1);
			naks += pkt.syndrome == AETH_NAK_PSN_SEQ_ERROR;
		}
	}
	CHECK_EQ(naks, 1);
	rig_is(rig.mem, 64, 0);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	TX_ACK(R);
	CHECK(!memcmp(rig.mem, pattern, 8));
}

/* every variant of a live key's place, and the places beside it */
static void forged_keys(void)
{
	struct roce_pkt pkt;
	unsigned v;

	rig_up();
	for (v = 0; v < 3 * 256; v++) {
		pkt = WRITE(ONLY, R, 0, 8, 8, pattern);
		pkt.rkey = ((rig.key >> 8) - 1 + v / 256) << 8 | (v & 255);
		if (pkt.rkey == rig.key)
			continue;
		ev_qp[IBV_EVENT_QP_ACCESS_ERR] = 0;
		DENIED(pkt);
		rig_modify_state(rig.qp, IBV_QPS_RESET);
		CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_INIT), 0);
		CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTR), 0);
		CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTS), 0);
	}
	rig_is(rig.mem, 64, 0);
	CHECK_EQ(cnt(FL_CNT_remote_access_err), 3 * 256 - 1);
}

/* answers to nothing that was asked, of every syndrome: no completion, no error */
static void answers_to_nothing(void)
{
	unsigned s, d;

	rig_up();
	for (s = 0; s < 256; s++)
		for (d = 0; d < 3; d++)
			rx_nak(s, 99 + d); /* before, at, behind the next to be sent */
	rx_read(100, 8, pattern);
	rx_read(100, 3000, pattern);
	rx_atomic_ack(100, 1);
	TX_NONE();
	wc_none(rig.scq);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_WRITE, 1, 0, 8)), 0);
	TX(RDMA_WRITE_ONLY, 100, 1, 8);
	rx_ack(100);
	SWC(SUCCESS, 1);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(middle_without_first), TEST(last_without_first), TEST(write_last_without_first),
		TEST(first_then_only), TEST(first_then_first), TEST(send_first_then_write_middle),
		TEST(send_first_then_read), TEST(send_first_then_atomic), TEST(last_of_0_bytes),
		TEST(short_first), TEST(short_middle), TEST(long_only), TEST(long_last),
		TEST(write_shorter_than_its_reth), TEST(write_longer_than_its_reth),
		TEST(write_train_longer_than_its_reth), TEST(write_middle_beyond_its_reth),
		TEST(write_of_the_wrong_mtu), TEST(write_too_long), TEST(read_too_long),
		TEST(unaligned_atomic), TEST(no_remote_write), TEST(no_remote_read),
		TEST(no_remote_atomic), TEST(read_with_no_resources),
		TEST(more_reads_than_agreed_are_served), TEST(send_with_invalidate_is_refused),
		TEST(key_0), TEST(key_unknown), TEST(key_beyond_the_table),
		TEST(key_of_the_wrong_variant), TEST(key_of_another_pd), TEST(key_deregistered),
		TEST(before_the_start), TEST(beyond_the_end), TEST(address_wraps), TEST(address_0),
		TEST(longer_than_the_mr), TEST(mr_without_remote_write), TEST(mr_without_remote_read),
		TEST(mr_without_remote_atomic), TEST(nothing_asked_of_a_bad_key),
		TEST(key_dies_in_a_message), TEST(recv_too_short), TEST(recv_too_short_for_a_train),
		TEST(recv_with_a_bad_key), TEST(recv_without_local_write),
		TEST(every_opcode_that_is_not_of_rc), TEST(every_qpn_that_is_not_there),
		TEST(nothing_after_a_nak), TEST(forged_psns), TEST(forged_keys), TEST(answers_to_nothing),
		{NULL, NULL}};

	return rig_main(argc, argv, tests);
}
