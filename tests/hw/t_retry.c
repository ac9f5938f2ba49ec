/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting and trying again: RNR, silence, a link without room; and the order in which all ends in error. */
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

/* ---- RNR ---- */

static void rnr_timer_by_the_table(void)
{
	static const uint32_t us10[32] = {65536, 1,   2,   3,	4,   6,	   8,	 12,   16,   24,   32,
					  48,	 64,  96,  128, 192, 256,  384,	 512,  768,  1024, 1536,
					  2048,	 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
	unsigned i;

	opt.rnr_retry = 7;
	opt.timeout = 0;
	rig_up();
	post_sends(1, 1);
	drain();
	for (i = 0; i < 32; i++) {
		rx_nak(AETH_RNR_NAK | i, 100);
		TX_NONE();
		rig_advance(us10[i] * 10000ull - 1);
		TX_NONE();
		rig_advance(1);
		TX(SEND_ONLY, 100, 1, 8);
		TX_NONE();
	}
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	rx_ack(100);
	SWC(SUCCESS, 1);
}

static void rnr_budget(uint8_t retries)
{
	unsigned i;

	opt.rnr_retry = retries;
	rig_up();
	post_sends(1, 2);
	drain();
	for (i = 0; i < retries; i++) {
		rx_nak(AETH_RNR_NAK | 1, 100);
		wc_none(rig.scq);
		rig_advance(MS / 100);
		TX(SEND_ONLY, 100, 1, 8);
		TX(SEND_ONLY, 101, 1, 8);
	}
	rx_nak(AETH_RNR_NAK | 1, 100);
	SWC(RNR_RETRY_EXC_ERR, 1);
	SWC(WR_FLUSH_ERR, 2);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
	TX_NONE();
}

static void rnr_retry_0(void)
{
	rnr_budget(0);
}

static void rnr_retry_1(void)
{
	rnr_budget(1);
}

static void rnr_retry_6(void)
{
	rnr_budget(6);
}

static void rnr_retry_7_is_without_end(void)
{
	unsigned i;

	opt.rnr_retry = 7;
	rig_up();
	post_sends(1, 1);
	for (i = 0; i < 100; i++) {
		rx_nak(AETH_RNR_NAK | 1, 100);
		rig_advance(MS / 100);
	}
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

static void rnr_budget_is_per_message(void)
{
	unsigned i;

	opt.rnr_retry = 1;
	rig_up();
	for (i = 0; i < 5; i++) {
		post_sends(1 + i, 1);
		rx_nak(AETH_RNR_NAK | 1, 100 + i);
		rig_advance(MS / 100);
		rx_ack(100 + i);
		SWC(SUCCESS, 1 + i);
	}
}

static void rnr_nak_twice_counts_once(void)
{
	opt.rnr_retry = 1;
	rig_up();
	post_sends(1, 1);
	drain();
	rx_nak(AETH_RNR_NAK | 1, 100);
	rx_nak(AETH_RNR_NAK | 1, 100);
	wc_none(rig.scq);
	rig_advance(MS / 100);
	TX(SEND_ONLY, 100, 1, 8);
	rx_ack(100);
	SWC(SUCCESS, 1);
}

/* what is posted, and sequence NAKs, during the wait send nothing; the ACK timer does not end it */
static void rnr_wait_is_a_wait(void)
{
	opt.timeout = 1; /* 8 us */
	opt.retry_cnt = 0;
	rig_up();
	post_sends(1, 1);
	drain();
	rx_nak(AETH_RNR_NAK | 20, 100); /* 10.24 ms */
	post_sends(2, 1);
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 100);
	rig_advance(10 * MS);
	TX_NONE();
	wc_none(rig.scq);
	rig_advance(MS);
	TX(SEND_ONLY, 100, 1, 8);
	TX(SEND_ONLY, 101, 1, 8);
	TX_NONE();
}

/* ---- silence ---- */

static void retries_then_error(void)
{
	uint64_t start;
	unsigned i;

	rig_up();
	start = rig_now();
	post_sends(1, 2);
	drain();
	for (i = 0; qp_state() != IBV_QPS_ERR && i < 100; i++) {
		rig_advance(PERIOD / 8);
		if (!fake_tx_count())
			continue;
		TX(SEND_ONLY, 100, 1, 8);
		TX(SEND_ONLY, 101, 1, 8);
		TX_NONE();
	}
	/* each wait between T and 4 T (9.7.6.1.3) */
	CHECK(rig_now() - start >= 4 * PERIOD);
	CHECK(rig_now() - start <= 16 * PERIOD);
	CHECK_EQ(cnt(FL_CNT_completer_retry_err), 3);
	CHECK_EQ(SWC(RETRY_EXC_ERR, 1).vendor_err, VENDOR_ERR_NO_ANSWER);
	SWC(WR_FLUSH_ERR, 2);
}

/* a READ that is asked for again is still the one the peer holds resources for */
static void going_back_keeps_the_count_of_reads(void)
{
	struct ibv_send_wr wr;

	opt.max_rd_atomic = 1;
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 8)), 0);
	CHECK_EQ(post(wr_atomic(false, 2, 1, 0)), 0);
	wr = wr_data(IBV_WR_SEND, 3, 0, 8);
	wr.send_flags = IBV_SEND_FENCE;
	CHECK_EQ(post(wr), 0);
	TX(RDMA_READ_REQUEST, 100, 1, 0);
	TX_NONE();
	rig_advance(2 * PERIOD);
	rig_advance(2 * PERIOD);
	TX(RDMA_READ_REQUEST, 100, 1, 0);
	TX_NONE();
	rx_read(100, 8, pattern);
	SWC(SUCCESS, 1);
	TX(FETCH_ADD, 101, 1, 0);
	TX_NONE();
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 101);
	TX(FETCH_ADD, 101, 1, 0);
	TX_NONE();
	rx_atomic_ack(101, 5);
	SWC(SUCCESS, 2);
	TX(SEND_ONLY, 102, 1, 8);
}

/* 7 is a number here, and not without end as of RNR */
static void retry_cnt_7(void)
{
	struct roce_pkt pkt;
	unsigned i, resent = 0;

	opt.retry_cnt = 7;
	rig_up();
	post_sends(1, 1);
	drain();
	for (i = 0; i < 200 && qp_state() == IBV_QPS_RTS; i++) {
		rig_advance(PERIOD / 4);
		while (fake_tx_pop(&pkt))
			resent++;
	}
	SWC(RETRY_EXC_ERR, 1);
	CHECK_EQ(resent, 7);
}

/* 4.096 us * 2^timeout, and at most four times that (9.7.6.1.3) */
static void ack_timer_of_every_value(void)
{
	uint64_t period, waited;

	rig_node();
	for (opt.timeout = 1; opt.timeout < 32; opt.timeout++) {
		period = 4096ull << opt.timeout;
		rig.qp = rig_qp_new();
		CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_INIT), 0);
		CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTR), 0);
		CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTS), 0);
		post_sends(1, 1);
		drain();
		rig_advance(period - 1);
		TX_NONE();
		for (waited = period - 1; !fake_tx_count(); waited += period / 8)
			rig_advance(period / 8);
		CHECK(waited <= 4 * period);
		TX(SEND_ONLY, 100, 1, 8);
		hca_qp_destroy(rig.qp);
	}
}

/* a NAK for a gap costs a retry as the timer does (9.9.2.1.1); what is acknowledged gives all back */
static void sequence_naks_are_retries(void)
{
	unsigned i;

	opt.timeout = 0;
	opt.retry_cnt = 1;
	rig_up();
	post_sends(1, 8);
	drain();
	for (i = 0; i < 7; i++) {
		rx_nak(AETH_NAK_PSN_SEQ_ERROR, 100 + i);
		if (i)
			SWC(SUCCESS, i);
		TX(SEND_ONLY, 100 + i, 1, 8);
		drain();
	}
	CHECK_EQ(rig.qp->req.retry_left, 0);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

static void sequence_nak_with_no_retry_left(void)
{
	opt.retry_cnt = 0;
	rig_up();
	post_sends(1, 4);
	drain();
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 102); /* acknowledges what is before it */
	SWC(SUCCESS, 1);
	SWC(SUCCESS, 2);
	CHECK_EQ(SWC(RETRY_EXC_ERR, 3).vendor_err, VENDOR_ERR_LOST);
	SWC(WR_FLUSH_ERR, 4);
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
}

static void retry_cnt_0(void)
{
	opt.retry_cnt = 0;
	rig_up();
	post_sends(1, 1);
	drain();
	rig_advance(4 * PERIOD);
	rig_advance(4 * PERIOD);
	TX_NONE();
	SWC(RETRY_EXC_ERR, 1);
}

static void timeout_0_is_never(void)
{
	unsigned i;

	opt.timeout = 0;
	rig_up();
	post_sends(1, 1);
	drain();
	for (i = 0; i < 40; i++)
		rig_advance(1000000 * MS);
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	rx_ack(100);
	SWC(SUCCESS, 1);
}

static void progress_resets_the_counter(void)
{
	unsigned i;

	opt.retry_cnt = 1;
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_WRITE, 1, 0, 20 * 1024)), 0);
	for (i = 0; i < 19; i++) {
		rig_advance(PERIOD);
		rig_advance(PERIOD);
		rx_ack(100 + i);
		CHECK_EQ(qp_state(), IBV_QPS_RTS);
	}
	rx_ack(119);
	SWC(SUCCESS, 1);
}

static void idle_time_is_no_silence(void)
{
	opt.retry_cnt = 0;
	rig_up();
	post_sends(1, 1);
	rx_ack(100);
	SWC(SUCCESS, 1);
	rig_advance(PERIOD * 10);
	post_sends(2, 1);
	rig_advance(PERIOD - 1);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	rx_ack(101);
	SWC(SUCCESS, 2);
}

/* a responder that pauses for a fault answers resends with an ACK of what it completed */
static void old_ack_says_that_the_peer_lives(void)
{
	unsigned i;

	rig_up();
	post_sends(1, 2);
	rx_ack(100);
	SWC(SUCCESS, 1);
	for (i = 0; i < 50; i++) {
		rig_advance(PERIOD);
		rx_ack(100);
	}
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	rx_ack(101);
	SWC(SUCCESS, 2);
}

/* ---- errors of our own ---- */

static struct ibv_send_wr bad_key(enum ibv_wr_opcode op, uint64_t id)
{
	struct ibv_send_wr wr = wr_data(op, id, 0, 8);

	wr.sg_list[0].lkey ^= 1;
	return wr;
}

static void local_error_at_once(void)
{
	rig_up();
	CHECK_EQ(post(bad_key(IBV_WR_SEND, 1)), 0);
	SWC(LOC_PROT_ERR, 1);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
	TX_NONE();
	post_sends(2, 1);
	SWC(WR_FLUSH_ERR, 2);
}

static void local_error_waits_its_turn(void)
{
	rig_up();
	post_sends(1, 2);
	CHECK_EQ(post(bad_key(IBV_WR_RDMA_WRITE, 3)), 0);
	post_sends(4, 1);
	TX(SEND_ONLY, 100, 1, 8);
	TX(SEND_ONLY, 101, 1, 8);
	TX_NONE(); /* nothing behind it is sent */
	wc_none(rig.scq);
	rx_ack(100);
	SWC(SUCCESS, 1);
	wc_none(rig.scq);
	rx_ack(101);
	SWC(SUCCESS, 2);
	SWC(LOC_PROT_ERR, 3);
	SWC(WR_FLUSH_ERR, 4);
}

static void local_error_is_met_again_after_going_back(void)
{
	rig_up();
	post_sends(1, 1);
	CHECK_EQ(post(bad_key(IBV_WR_SEND, 2)), 0);
	drain();
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 100);
	TX(SEND_ONLY, 100, 1, 8);
	TX_NONE();
	rx_ack(100);
	SWC(SUCCESS, 1);
	SWC(LOC_PROT_ERR, 2);
}

static void read_into_a_bad_key(void)
{
	rig_up();
	CHECK_EQ(post(bad_key(IBV_WR_RDMA_READ, 1)), 0);
	post_sends(2, 1);
	rx_read(100, 8, pattern);
	SWC(LOC_PROT_ERR, 1);
	SWC(WR_FLUSH_ERR, 2);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
}

static void flush_order(void)
{
	unsigned i;

	rig_up();
	for (i = 0; i < 3; i++)
		CHECK_EQ(post_recv(100 + i, 0, 64), 0);
	opt.unsignaled = true;
	post_sends(1, 3);
	rig_modify_state(rig.qp, IBV_QPS_ERR);
	for (i = 0; i < 3; i++)
		SWC(WR_FLUSH_ERR, 1 + i);
	for (i = 0; i < 3; i++)
		RWC(WR_FLUSH_ERR, 100 + i);
	post_sends(4, 1);
	SWC(WR_FLUSH_ERR, 4);
	CHECK_EQ(post_recv(103, 0, 64), 0);
	RWC(WR_FLUSH_ERR, 103);
	rx_ack(102); /* for whom? */
	wc_none(rig.scq);
}

/* ---- the link has no room ---- */

static void no_room_for_any_train(void)
{
	unsigned i;

	fake_max_train = 2048;
	rig_up();
	fake_net_room(0);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_WRITE, 1, 3, 5000)), 0);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 2, 0, 100)), 0);
	CHECK_EQ(post(wr_atomic(true, 3, 1, 2)), 0);
	post_sends(4, 1);
	for (i = 0; i < 6; i++)
		fake_net_room(1); /* one at a time */
	TX2(RDMA_WRITE_FIRST, RDMA_WRITE_MIDDLE, 100, 2, 2048);
	TX(RDMA_WRITE_MIDDLE, 102, 2, 2048);
	TX(RDMA_WRITE_LAST, 104, 1, 904);
	TX(RDMA_READ_REQUEST, 105, 1, 0);
	TX(COMPARE_SWAP, 106, 1, 0);
	TX(SEND_ONLY, 107, 1, 8);
	TX_NONE();
}

static void no_room_and_no_timer(void)
{
	opt.retry_cnt = 0;
	rig_up();
	fake_net_room(0);
	post_sends(1, 1);
	rig_advance(100 * PERIOD); /* what did not leave is not unanswered */
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	fake_net_room(-1);
	TX(SEND_ONLY, 100, 1, 8);
	rig_advance(PERIOD - 1);
	rx_ack(100);
	SWC(SUCCESS, 1);
}

static void posting_while_blocked_does_not_hammer_the_link(void)
{
	unsigned before;

	rig_up();
	fake_net_room(0);
	post_sends(1, 1);
	before = fake_eagain;
	post_sends(2, 10);
	CHECK_EQ(fake_eagain, before);
	fake_net_room(-1);
	CHECK_EQ(fake_tx_count(), 11);
}

static void no_room_for_a_resend(void)
{
	rig_up();
	post_sends(1, 3);
	drain();
	fake_net_room(1);
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 100);
	TX(SEND_ONLY, 100, 1, 8);
	TX_NONE();
	fake_net_room(-1);
	TX(SEND_ONLY, 101, 1, 8);
	TX(SEND_ONLY, 102, 1, 8);
	rx_ack(102);
	SWC(SUCCESS, 1);
	SWC(SUCCESS, 2);
	SWC(SUCCESS, 3);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(rnr_timer_by_the_table), TEST(rnr_retry_0), TEST(rnr_retry_1),
		TEST(rnr_retry_6), TEST(rnr_retry_7_is_without_end),
		TEST(rnr_budget_is_per_message), TEST(rnr_nak_twice_counts_once),
		TEST(rnr_wait_is_a_wait), TEST(retries_then_error), TEST(retry_cnt_0),
		TEST(retry_cnt_7), TEST(ack_timer_of_every_value), TEST(sequence_naks_are_retries),
		TEST(sequence_nak_with_no_retry_left),
		TEST(going_back_keeps_the_count_of_reads),
		TEST(timeout_0_is_never), TEST(progress_resets_the_counter),
		TEST(idle_time_is_no_silence), TEST(old_ack_says_that_the_peer_lives),
		TEST(local_error_at_once), TEST(local_error_waits_its_turn),
		TEST(local_error_is_met_again_after_going_back), TEST(read_into_a_bad_key),
		TEST(flush_order), TEST(no_room_for_any_train), TEST(no_room_and_no_timer),
		TEST(posting_while_blocked_does_not_hammer_the_link), TEST(no_room_for_a_resend),
		{NULL, NULL}};

	return rig_main(argc, argv, tests);
}
