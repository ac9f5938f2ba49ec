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

/* 100 to 104 have gone to and fro, in 100 us; 105 to 109 are out, and a look finds that something moved */
static void up(void)
{
	fake_link = "udp";
	fake_udp_window = 512u << 10;
	opt.timeout = 17; /* 537 ms */
	rig_up();
	send_five(100);
	rig_advance(MS / 10);
	rx_ack(104);
	done_five(100);
	send_five(105);
	rig_advance(FIRST_LOOK);
	TX_NONE();
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

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(a_tail_that_is_lost), TEST(an_answer_that_is_late), TEST(a_retransmission_that_is_lost),
		TEST(a_silent_peer_gets_a_few), TEST(a_paused_peer_gets_no_more),
		TEST(the_ack_timer_is_as_it_was), TEST(nothing_out_nobody_looks),
		TEST(links_that_lose_nothing_have_none),
		{NULL, NULL}};

	return rig_main(argc, argv, tests);
}
