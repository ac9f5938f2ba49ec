/* SPDX-License-Identifier: BSD-2-Clause */
/* The completer: what each answer and each lie of the peer does to our work requests. */
#include "rig.h"

#define PERIOD (4096ull << 10) /* opt.timeout */

static void drain(void)
{
	struct roce_pkt pkt;

	while (fake_tx_pop(&pkt))
		;
}

static void post_sends(unsigned first, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++)
		CHECK_EQ(post(wr_data(IBV_WR_SEND, first + i, i, 8)), 0);
}

/* ---- ACKs ---- */

static void one_ack_completes_many(void)
{
	unsigned i;

	rig_up();
	post_sends(1, 10);
	rx_ack(106);
	for (i = 1; i <= 7; i++)
		SWC(SUCCESS, i);
	wc_none(rig.scq);
	rx_ack(109);
	for (; i <= 10; i++)
		SWC(SUCCESS, i);
}

static void ack_in_the_middle_of_a_message(void)
{
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 5000)), 0);
	rx_ack(103);
	wc_none(rig.scq);
	rx_ack(104);
	SWC(SUCCESS, 1);
}

static void acks_of_the_future_are_ignored(void)
{
	rig_up();
	post_sends(1, 2);
	rx_ack(102);
	rx_ack(5000);
	rx_nak(AETH_NAK_REM_ACC_ERR, 102);
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 102);
	rx_nak(AETH_RNR_NAK | 1, 102);
	wc_none(rig.scq);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	rx_ack(101);
	SWC(SUCCESS, 1);
	SWC(SUCCESS, 2);
}

static void old_and_duplicate_acks(void)
{
	rig_up();
	post_sends(1, 3);
	drain();
	rx_ack(101);
	rx_ack(101);
	rx_ack(100);
	rx_ack(50);
	rx_nak(AETH_NAK_REM_ACC_ERR, 100); /* of what is acknowledged */
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 101);
	SWC(SUCCESS, 1);
	SWC(SUCCESS, 2);
	wc_none(rig.scq);
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

static void unsignaled(void)
{
	struct ibv_send_wr wr;

	opt.unsignaled = true;
	rig_up();
	post_sends(1, 2);
	wr = wr_data(IBV_WR_SEND, 3, 0, 8);
	wr.send_flags = IBV_SEND_SIGNALED;
	CHECK_EQ(post(wr), 0);
	post_sends(4, 2);
	rx_ack(104);
	SWC(SUCCESS, 3);
	wc_none(rig.scq);
}

static void ack_skips_a_read(void)
{
	struct roce_pkt pkt;

	rig_up();
	post_sends(1, 1);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 2, 0, 2000)), 0);
	post_sends(3, 1);
	drain();
	rx_ack(103); /* of the SEND behind the READ: its response is lost */
	SWC(SUCCESS, 1);
	wc_none(rig.scq);
	pkt = TX(RDMA_READ_REQUEST, 101, 1, 0);
	CHECK_EQ(pkt.va, REMOTE_VA);
	CHECK_EQ(pkt.dma_len, 2000);
	TX(SEND_ONLY, 103, 1, 8);
	rx_ack(103); /* again: once for each gap */
	TX_NONE();
	rx_read(101, 2000, pattern);
	SWC(SUCCESS, 2);
	wc_none(rig.scq);
	rx_ack(103);
	SWC(SUCCESS, 3);
	CHECK(!memcmp(rig.mem, pattern, 2000));
}

static void ack_of_a_read_or_atomic_is_no_answer(void)
{
	rig_up();
	CHECK_EQ(post(wr_atomic(false, 1, 1, 0)), 0);
	drain();
	rx_ack(100);
	wc_none(rig.scq);
	TX(FETCH_ADD, 100, 1, 0);
	rx_atomic_ack(100, 5);
	SWC(SUCCESS, 1);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 2, 0, 8)), 0);
	drain();
	rx_ack(101);
	wc_none(rig.scq);
	TX(RDMA_READ_REQUEST, 101, 1, 0);
}

static void answer_acknowledges_what_is_before_it(void)
{
	rig_up();
	post_sends(1, 3);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 4, 0, 8)), 0);
	rx_read(103, 8, pattern);
	SWC(SUCCESS, 1);
	SWC(SUCCESS, 2);
	SWC(SUCCESS, 3);
	SWC(SUCCESS, 4);
}

/* ---- READ responses ---- */

static void read_gap_is_asked_for_again(void)
{
	struct roce_pkt pkt;

	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 3, 10000)), 0);
	drain();
	rx(pkt_read_resp(IBV_OPCODE_RC_RDMA_READ_RESPONSE_FIRST, IBV_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE,
			 100, 3072, pattern));
	TX_NONE();
	/* 103 and 104 are lost */
	rx(pkt_read_resp(IBV_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE, IBV_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE,
			 105, 1024, pattern + 5120));
	pkt = TX(RDMA_READ_REQUEST, 103, 1, 0);
	CHECK_EQ(pkt.va, REMOTE_VA + 3072);
	CHECK_EQ(pkt.dma_len, 10000 - 3072);
	rx(pkt_read_resp(IBV_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE, IBV_OPCODE_RC_RDMA_READ_RESPONSE_LAST,
			 106, 10000 - 6144, pattern + 6144));
	TX_NONE(); /* asked already */
	wc_none(rig.scq);
	rx(pkt_read_resp(IBV_OPCODE_RC_RDMA_READ_RESPONSE_FIRST, IBV_OPCODE_RC_RDMA_READ_RESPONSE_LAST,
			 103, 10000 - 3072, pattern + 3072));
	SWC(SUCCESS, 1);
	CHECK(!memcmp(rig.mem + 3, pattern, 10000));
}

static void late_read_response_after_going_back(void)
{
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 3000)), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 0, 8)), 0);
	drain();
	rig_advance(PERIOD);
	rig_advance(PERIOD);
	TX(RDMA_READ_REQUEST, 100, 1, 0);
	TX(SEND_ONLY, 103, 1, 8);
	rx_read(100, 3000, pattern); /* the first answer, late */
	SWC(SUCCESS, 1);
	rx_ack(103);
	SWC(SUCCESS, 2);
	rx_read(100, 3000, pattern + 9); /* the second: nobody asks for it any more */
	CHECK(!memcmp(rig.mem, pattern, 3000));
	wc_none(rig.scq);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 3, 0, 8)), 0);
	TX(SEND_ONLY, 104, 1, 8);
}

/* ACKs of the first sending come when all was taken back to be sent again */
static void ghost_answers_overtake_the_resend(void)
{
	rig_up();
	post_sends(1, 3);
	drain();
	fake_net_room(0); /* the resend finds no room */
	rig_advance(PERIOD);
	rig_advance(PERIOD);
	rx_ack(101); /* of the first sending */
	SWC(SUCCESS, 1);
	SWC(SUCCESS, 2);
	fake_net_room(-1);
	TX(SEND_ONLY, 102, 1, 8); /* only what is not acknowledged */
	TX_NONE();
	rx_ack(102);
	SWC(SUCCESS, 3);
	post_sends(4, 1);
	TX(SEND_ONLY, 103, 1, 8);
}

static void ghost_ack_inside_a_message(void)
{
	struct roce_pkt pkt;

	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_WRITE, 1, 7, 5000)), 0);
	drain();
	fake_net_room(0);
	rig_advance(PERIOD);
	rig_advance(PERIOD);
	rx_ack(102);
	fake_net_room(-1);
	pkt = TX2(RDMA_WRITE_MIDDLE, RDMA_WRITE_LAST, 103, 2, 5000 - 3072);
	CHECK(!memcmp(pkt.payload, rig.mem + 7 + 3072, 5000 - 3072));
	rx_ack(104);
	SWC(SUCCESS, 1);
}

static void read_response_partly_had(void)
{
	opt.timeout = 0;
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 4096)), 0);
	rx(pkt_read_resp(IBV_OPCODE_RC_RDMA_READ_RESPONSE_FIRST, IBV_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE,
			 100, 2048, pattern));
	rx_read(100, 4096, pattern);
	SWC(SUCCESS, 1);
	CHECK(!memcmp(rig.mem, pattern, 4096));
}

static void bad_response(uint32_t asked, uint32_t npkts, uint32_t len)
{
	struct roce_pkt pkt;

	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, asked)), 0);
	pkt = pkt_read_resp(IBV_OPCODE_RC_RDMA_READ_RESPONSE_FIRST,
			    npkts == 1 ? IBV_OPCODE_RC_RDMA_READ_RESPONSE_FIRST
				       : IBV_OPCODE_RC_RDMA_READ_RESPONSE_LAST,
			    100, len, pattern);
	pkt.npkts = npkts;
	rx(pkt);
	SWC(BAD_RESP_ERR, 1);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
}

static void too_long(void)
{
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 1000)), 0);
	rx_read(100, 1001, pattern);
	SWC(BAD_RESP_ERR, 1);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
	rig_is(rig.mem, 2000, 0); /* untouched */
}

static void too_many_packets(void)
{
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 1000)), 0);
	rx_read(100, 5000, pattern);
	SWC(BAD_RESP_ERR, 1);
}

static void short_first(void)
{
	bad_response(5000, 1, 1000);
}

static void long_packet(void)
{
	bad_response(5000, 1, 5000);
}

static void longer_than_this_piece(void)
{
	fake_link = "udp";
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 1000000)), 0);
	rx_read(100, FAKE_UDP_WINDOW, pattern);
	drain();
	/* 357 packets more are out; these are beyond psn_high, so nothing of ours */
	rx_read(100 + 512, 1000, pattern);
	wc_none(rig.scq);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

static void answers_of_the_wrong_kind(void)
{
	rig_up();
	CHECK_EQ(post(wr_atomic(false, 1, 1, 0)), 0);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 2, 0, 8)), 0);
	post_sends(3, 1);
	rx_read(100, 8, pattern);	/* for an atomic */
	wc_none(rig.scq);
	rx_atomic_ack(100, 1);
	SWC(SUCCESS, 1);
	rx_atomic_ack(101, 1); /* for a READ */
	wc_none(rig.scq);
	rx_read(101, 8, pattern);
	SWC(SUCCESS, 2);
	rx_read(102, 8, pattern); /* for a SEND */
	rx_atomic_ack(102, 1);
	wc_none(rig.scq);
	rx_ack(102);
	SWC(SUCCESS, 3);
}

/* ---- NAKs ---- */

static void sequence_nak_goes_back_once(void)
{
	rig_up();
	post_sends(1, 5);
	drain();
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 102);
	SWC(SUCCESS, 1);
	SWC(SUCCESS, 2);
	TX(SEND_ONLY, 102, 1, 8);
	TX(SEND_ONLY, 103, 1, 8);
	TX(SEND_ONLY, 104, 1, 8);
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 102);
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 102);
	TX_NONE();
	rx_ack(104);
	SWC(SUCCESS, 3);
	SWC(SUCCESS, 4);
	SWC(SUCCESS, 5);
}

static void sequence_nak_into_a_message(void)
{
	struct roce_pkt pkt;

	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_WRITE_WITH_IMM, 1, 77, 4000)), 0);
	drain();
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 102);
	pkt = TX2(RDMA_WRITE_MIDDLE, RDMA_WRITE_LAST_WITH_IMMEDIATE, 102, 2, 4000 - 2048);
	CHECK(!memcmp(pkt.payload, rig.mem + 77 + 2048, 4000 - 2048));
}

static void fatal_nak(uint8_t syndrome, enum ibv_wc_status status)
{
	rig_up();
	post_sends(1, 4);
	rx_nak(syndrome, 102);
	SWC(SUCCESS, 1);
	SWC(SUCCESS, 2);
	CHECK_EQ(wc_next(rig.scq, status, 3).vendor_err, syndrome);
	SWC(WR_FLUSH_ERR, 4);
	wc_none(rig.scq);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
}

static void nak_invalid_request(void)
{
	fatal_nak(AETH_NAK_INVALID_REQ, IBV_WC_REM_INV_REQ_ERR);
}

static void nak_remote_access(void)
{
	fatal_nak(AETH_NAK_REM_ACC_ERR, IBV_WC_REM_ACCESS_ERR);
}

static void nak_remote_operational(void)
{
	fatal_nak(AETH_NAK_REM_OP_ERR, IBV_WC_REM_OP_ERR);
}

static void nak_of_a_code_for_rd(void)
{
	fatal_nak(0x64, IBV_WC_REM_OP_ERR);
}

static void reserved_syndrome_is_no_answer(void)
{
	rig_up();
	post_sends(1, 1);
	rx_nak(0x40, 100);
	rx_nak(0x80, 100);
	rx_nak(0xff, 100);
	wc_none(rig.scq);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

static void nak_behind_an_unanswered_read(void)
{
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 2000)), 0);
	post_sends(2, 1);
	drain();
	rx_nak(AETH_NAK_REM_ACC_ERR, 102); /* the READ's response was lost: it must be had first */
	wc_none(rig.scq);
	TX(RDMA_READ_REQUEST, 100, 1, 0);
	TX(SEND_ONLY, 102, 1, 8);
	rx_read(100, 2000, pattern);
	SWC(SUCCESS, 1);
	rx_nak(AETH_NAK_REM_ACC_ERR, 102);
	SWC(REM_ACCESS_ERR, 2);
}

static void nak_in_the_middle_of_a_read(void)
{
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 4000)), 0);
	rx(pkt_read_resp(IBV_OPCODE_RC_RDMA_READ_RESPONSE_FIRST, IBV_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE,
			 100, 2048, pattern));
	rx_nak(AETH_NAK_REM_ACC_ERR, 102);
	SWC(REM_ACCESS_ERR, 1);
	CHECK(!memcmp(rig.mem, pattern, 2048));
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(one_ack_completes_many), TEST(ack_in_the_middle_of_a_message),
		TEST(acks_of_the_future_are_ignored), TEST(old_and_duplicate_acks),
		TEST(unsignaled), TEST(ack_skips_a_read),
		TEST(ack_of_a_read_or_atomic_is_no_answer),
		TEST(answer_acknowledges_what_is_before_it), TEST(read_gap_is_asked_for_again),
		TEST(late_read_response_after_going_back), TEST(ghost_answers_overtake_the_resend),
		TEST(ghost_ack_inside_a_message), TEST(read_response_partly_had), TEST(too_long),
		TEST(too_many_packets), TEST(short_first), TEST(long_packet),
		TEST(longer_than_this_piece), TEST(answers_of_the_wrong_kind),
		TEST(sequence_nak_goes_back_once), TEST(sequence_nak_into_a_message),
		TEST(nak_invalid_request), TEST(nak_remote_access), TEST(nak_remote_operational),
		TEST(nak_of_a_code_for_rd), TEST(reserved_syndrome_is_no_answer),
		TEST(nak_behind_an_unanswered_read), TEST(nak_in_the_middle_of_a_read),
		{NULL, NULL}};

	return rig_main(argc, argv, tests);
}
