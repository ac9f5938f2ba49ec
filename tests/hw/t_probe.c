/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Probes: after some round trips without an answer the oldest packet is sent again, alone. Its answer tells a loss
 * from an answer that is late; a peer that is paused, or gone, gets a few; retries are not touched; nobody looks
 * while nothing is out.
 */
#include "rig.h"

#define FIRST_LOOK (10 * MS) /* before a round trip was measured */

static void send_five(unsigned psn)
{
	unsigned i;

	for (i = 0; i < 5; i++) {
		CHECK_EQ(post(wr_data(IBV_WR_SEND, psn + i, i, 8)), 0);
		TX(SEND_ONLY, psn + i, 1, 8);
	}
}

static void done_five(unsigned psn)
{
	unsigned i;

	for (i = 0; i < 5; i++)
		SWC(SUCCESS, psn + i);
}

/* 100 to 104 have gone to and fro, in 100 us */
static void measured(void)
{
	fake_link = "udp";
	fake_udp_window = 512u << 10;
	opt.timeout = 17; /* 537 ms */
	rig_up();
	send_five(100);
	rig_advance(MS / 10);
	rx_ack(104);
	done_five(100);
}

/* what is out now has moved, says the first look */
static void looked(void)
{
	rig_advance(FIRST_LOOK);
	TX_NONE();
}

/* 105 to 109 are out */
static void up(void)
{
	measured();
	send_five(105);
	looked();
}

static void a_tail_that_is_lost(void)
{
	uint32_t window;

	up();
	window = rig.qp->req.cwnd.now;
	rig_advance(MS - 1);
	TX_NONE();
	rig_advance(1);
	TX(SEND_ONLY, 105, 1, 8);
	TX_NONE();
	CHECK_EQ(cnt(FL_CNT_probes), 1);
	CHECK_EQ(rig.qp->req.retry_left, opt.retry_cnt);
	rx_ack(105); /* it, and no more, was expected */
	TX(SEND_ONLY, 106, 1, 8);
	TX(SEND_ONLY, 107, 1, 8);
	TX(SEND_ONLY, 108, 1, 8);
	TX(SEND_ONLY, 109, 1, 8);
	TX_NONE();
	CHECK_EQ(rig.qp->req.cwnd.now, (window + 1) / 2);
	rx_ack(109);
	done_five(105);
	TX_NONE();
}

static void an_answer_that_is_late(void)
{
	uint32_t window;

	up();
	window = rig.qp->req.cwnd.now;
	rig_advance(MS);
	TX(SEND_ONLY, 105, 1, 8);
	rx_ack(109);
	done_five(105);
	TX_NONE(); /* nothing again, and no smaller window */
	CHECK_EQ(rig.qp->req.cwnd.now, window + 5);
	send_five(110);
}

/* what was sent again is lost again: no second NAK comes for the gap */
static void a_retransmission_that_is_lost(void)
{
	up();
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 107);
	SWC(SUCCESS, 105);
	SWC(SUCCESS, 106);
	TX(SEND_ONLY, 107, 1, 8);
	TX(SEND_ONLY, 108, 1, 8);
	TX(SEND_ONLY, 109, 1, 8);
	rig_advance(MS);
	TX_NONE();
	rig_advance(50 * MS); /* the time out and back was long by now */
	TX(SEND_ONLY, 107, 1, 8);
	TX_NONE();
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 108); /* it came, and so did 109 */
	SWC(SUCCESS, 107);
	TX(SEND_ONLY, 108, 1, 8);
	TX(SEND_ONLY, 109, 1, 8);
	TX_NONE();
}

static unsigned probes_within(unsigned ms)
{
	struct roce_pkt pkt;
	unsigned i, n = 0;

	for (i = 0; i < ms; i++) {
		rig_advance(MS);
		while (fake_tx_pop(&pkt)) {
			CHECK_EQ(pkt.psn, 105);
			CHECK_EQ(pkt.npkts, 1);
			n++;
		}
	}
	return n;
}

static void a_silent_peer_gets_a_few(void)
{
	up();
	CHECK_EQ(probes_within(1), 1);
	CHECK_EQ(probes_within(2), 1);
	CHECK_EQ(probes_within(4), 1);
	CHECK_EQ(probes_within(300), 2);
	CHECK_EQ(rig.qp->req.retry_left, opt.retry_cnt);
	rx_ack(109);
	done_five(105);
	send_five(110); /* probed for anew */
	rig_advance(FIRST_LOOK);
	rig_advance(2000 * MS);
	CHECK(cnt(FL_CNT_probes) > 5);
}

static void a_paused_peer_gets_no_more(void)
{
	up();
	CHECK_EQ(probes_within(1), 1);
	rx_ack(104); /* it lives, and has what it had */
	CHECK_EQ(probes_within(300), 0);
	rx_ack(109);
	done_five(105);
	TX_NONE();
}

static void the_ack_timer_is_as_it_was(void)
{
	up();
	CHECK_EQ(probes_within(500), 5);
	rig_advance(40 * MS); /* it began with 105, and is looked at then; since then nothing moved */
	rig_advance(4096ull << opt.timeout);
	CHECK_EQ(rig.qp->req.retry_left, opt.retry_cnt - 1);
	TX(SEND_ONLY, 105, 1, 8);
	TX(SEND_ONLY, 106, 1, 8);
}

static void nothing_out_nobody_looks(void)
{
	up();
	rx_ack(109);
	done_five(105);
	rig_advance(FIRST_LOOK);
	rig_advance(4096ull << opt.timeout);
	CHECK_EQ(rig.qp->deadline, 0);
	CHECK_EQ(cnt(FL_CNT_probes), 0);
}

static void links_that_lose_nothing_have_none(void)
{
	opt.timeout = 17;
	rig_up();
	send_five(100);
	rig_advance(500 * MS);
	TX_NONE();
}

/* ---- READs and atomics: the oldest packet of a READ asks for all of its answer ---- */

/* Asks for len bytes from PSN 105 on, and a SEND is behind it. */
static void read_and_send(uint32_t len)
{
	uint32_t next = 105 + (len + 1023) / 1024;

	measured();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, len)), 0);
	CHECK_EQ(TX(RDMA_READ_REQUEST, 105, 1, 0).dma_len, len);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 0, 8)), 0);
	TX(SEND_ONLY, next, 1, 8);
	looked();
}

static void asked_again(uint32_t psn, uint32_t had, uint32_t len)
{
	struct roce_pkt pkt = TX(RDMA_READ_REQUEST, psn, 1, 0);

	CHECK_EQ(pkt.va, REMOTE_VA + had);
	CHECK_EQ(pkt.dma_len, len - had);
	TX_NONE(); /* what is behind it waits for what it finds out */
	CHECK_EQ(rig.qp->req.retry_left, opt.retry_cnt);
}

static void a_read_that_is_lost(void)
{
	read_and_send(3000);
	rig_advance(MS);
	asked_again(105, 0, 3000);
	rx_read(105, 3000, pattern);
	SWC(SUCCESS, 1);
	CHECK(!memcmp(rig.mem, pattern, 3000));
	TX(SEND_ONLY, 108, 1, 8);
	rx_ack(108);
	SWC(SUCCESS, 2);
	TX_NONE();
}

static void an_answer_that_is_lost_in_part(void)
{
	read_and_send(3000);
	rx(pkt_read_resp(IBV_OPCODE_RC_RDMA_READ_RESPONSE_FIRST, IBV_OPCODE_RC_RDMA_READ_RESPONSE_FIRST, 105, 1024,
			 pattern));
	rig_advance(MS);
	rig_advance(MS); /* since then nothing moved */
	asked_again(106, 1024, 3000);
	rx_read(106, 1976, pattern + 1024);
	SWC(SUCCESS, 1);
	CHECK(!memcmp(rig.mem, pattern, 3000));
	TX(SEND_ONLY, 108, 1, 8);
	rx_ack(108);
	SWC(SUCCESS, 2);
}

static void an_answer_to_a_read_that_is_late(void)
{
	read_and_send(3000);
	rig_advance(MS);
	asked_again(105, 0, 3000);
	rx_read(105, 3000, pattern);
	SWC(SUCCESS, 1);
	rx_ack(108); /* the SEND had come as well */
	SWC(SUCCESS, 2);
	rx_read(105, 3000, pattern + 1); /* the answer to the probe */
	wc_none(rig.scq);
	CHECK(!memcmp(rig.mem, pattern, 3000));
	TX(SEND_ONLY, 108, 1, 8); /* when the answer came, that was not known */
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

static void an_atomic_that_is_lost(void)
{
	measured();
	CHECK_EQ(post(wr_atomic(false, 1, 5, 0)), 0);
	TX(FETCH_ADD, 105, 1, 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 0, 8)), 0);
	TX(SEND_ONLY, 106, 1, 8);
	looked();
	rig_advance(MS);
	CHECK_EQ(TX(FETCH_ADD, 105, 1, 0).swap_add, 5);
	TX_NONE();
	rx_ack(106); /* the SEND had come: only the atomic's answer is lost, and is asked for */
	wc_none(rig.scq);
	TX(FETCH_ADD, 105, 1, 0);
	TX(SEND_ONLY, 106, 1, 8);
	rx_atomic_ack(105, 7);
	SWC(SUCCESS, 1);
	CHECK_EQ(*(uint64_t *)(rig.mem + 64), 7);
	rx_atomic_ack(105, 7); /* the answers to the probe and to what was sent after it */
	rx_ack(106);
	SWC(SUCCESS, 2);
	TX_NONE();
}

/* the peer holds resources for one: a probe is not a second one, nor does it give one back */
static void one_read_at_a_time(void)
{
	unsigned i;

	opt.max_rd_atomic = 1;
	measured();
	for (i = 0; i < 3; i++)
		CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, i, 0, 8)), 0);
	TX(RDMA_READ_REQUEST, 105, 1, 0);
	looked();
	for (i = 0; i < 3; i++) {
		rig_advance(MS);
		if (i) { /* a probe doubled the time, and its answer moved */
			rig_advance(MS);
			rig_advance(MS);
		}
		TX(RDMA_READ_REQUEST, 105 + i, 1, 0);
		TX_NONE();
		CHECK_EQ(rig.qp->req.rd_atomic, 1);
		rx_read(105 + i, 8, pattern);
		SWC(SUCCESS, i);
		if (i < 2)
			TX(RDMA_READ_REQUEST, 106 + i, 1, 0);
		TX_NONE();
	}
	CHECK_EQ(rig.qp->req.rd_atomic, 0);
	CHECK_EQ(cnt(FL_CNT_probes), 3);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(a_tail_that_is_lost), TEST(an_answer_that_is_late), TEST(a_retransmission_that_is_lost),
		TEST(a_silent_peer_gets_a_few), TEST(a_paused_peer_gets_no_more),
		TEST(the_ack_timer_is_as_it_was), TEST(nothing_out_nobody_looks),
		TEST(links_that_lose_nothing_have_none),
		TEST(a_read_that_is_lost), TEST(an_answer_that_is_lost_in_part),
		TEST(an_answer_to_a_read_that_is_late), TEST(an_atomic_that_is_lost), TEST(one_read_at_a_time),
		{NULL, NULL}};

	return rig_main(argc, argv, tests);
}
