/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The congestion window: small at first and doubled each round trip; a packet more each round trip after a
 * loss; one loss counted once; a time-out leaves the least; a congestion notification is as a loss, but
 * nothing is sent again; a marked packet is answered by one, not each.
 */
#include "rig.h"

#define MANY (4u << 20)

static uint32_t next_psn, oldest;

/* Takes what was sent; returns how many packets, in order. */
static uint32_t flight(void)
{
	struct roce_pkt pkt;
	uint32_t n = 0;

	while (fake_tx_pop(&pkt)) {
		CHECK_EQ(pkt.psn, next_psn);
		next_psn = psn_add(next_psn, pkt.npkts);
		n += pkt.npkts;
	}
	return n;
}

/* all that is out is acknowledged; returns how many go out then */
static uint32_t round_trip(void)
{
	rx_ack(psn_add(next_psn, ROCE_PSN_MASK));
	oldest = next_psn;
	return flight();
}

static void up(void)
{
	fake_link = "udp";
	fake_udp_window = 512u << 10;
	rig_up();
	next_psn = oldest = 100;
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_WRITE, 1, 0, MANY)), 0);
}

/* the packet at psn did not arrive */
static uint32_t loss(uint32_t psn)
{
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, psn);
	next_psn = oldest = psn;
	return flight();
}

static void doubles_up_to_what_the_peer_takes(void)
{
	up();
	CHECK_EQ(flight(), 64);
	CHECK_EQ(round_trip(), 128);
	CHECK_EQ(round_trip(), 256);
	CHECK_EQ(round_trip(), 512);
	CHECK_EQ(round_trip(), 512);
}

static void a_loss_takes_three_tenths(void)
{
	uint32_t first;

	up();
	flight();
	CHECK_EQ(round_trip(), 128);
	first = oldest;
	/* the first of the flight is lost: from there on again, but no more than the window */
	CHECK_EQ(loss(first), 128 - 38);
	/* another packet of the same flight: the same congestion */
	CHECK_EQ(loss(psn_add(first, 10)), 128 - 38);
	/* a packet more each round trip */
	CHECK_EQ(round_trip(), 91);
	CHECK_EQ(round_trip(), 92);
	CHECK_EQ(round_trip(), 93);
	CHECK_EQ(loss(oldest), 93 - 27);
}

static void a_time_out_leaves_the_least(void)
{
	up();
	flight();
	CHECK_EQ(round_trip(), 128);
	rig_advance((4096ull << opt.timeout) + 1); /* there was progress since it began */
	rig_advance((4096ull << opt.timeout) + 1);
	next_psn = oldest;
	CHECK_EQ(flight(), 8);
	CHECK_EQ(round_trip(), 16); /* doubles, up to half of what was too much */
	CHECK_EQ(round_trip(), 32);
	CHECK_EQ(round_trip(), 64);
	CHECK_EQ(round_trip(), 65);
}

static struct roce_pkt cnp(void)
{
	static const uint8_t zero[ROCE_CNP_PAYLOAD];
	struct roce_pkt pkt = {.opcode = ROCE_OPCODE_CNP, .opcode_last = ROCE_OPCODE_CNP, .pkey = 0xffff,
			       .dest_qpn = rig.qp->qpn, .npkts = 1, .payload = zero, .payload_len = sizeof(zero)};

	return pkt;
}

static void a_notification_is_a_loss_without_one(void)
{
	up();
	flight();
	CHECK_EQ(round_trip(), 128);
	rx(cnp());
	rx(cnp()); /* of the same flight */
	CHECK_EQ(flight(), 0);
	CHECK_EQ(cnt(FL_CNT_rp_cnp_handled), 2);
	CHECK_EQ(cnt(FL_CNT_completer_retry_err), 0);
	CHECK_EQ(round_trip(), 91);
	CHECK_EQ(round_trip(), 92);
}

static void a_mark_is_answered_now_and_then(void)
{
	struct roce_pkt pkt, w;
	unsigned i;

	rig_up();
	rig_advance(MS);
	for (i = 0; i < 20; i++) {
		w = WRITE(ONLY, psn_add(opt.rq_psn, i), 0, 64, 64, pattern);
		w.ce = true;
		rx_later(w);
	}
	rx_now();
	CHECK(fake_tx_pop(&pkt));
	CHECK_EQ(pkt.opcode, ROCE_OPCODE_CNP);
	CHECK_EQ(pkt.dest_qpn, opt.dest_qpn);
	CHECK_EQ(pkt.payload_len, ROCE_CNP_PAYLOAD);
	TX_ACK(psn_add(opt.rq_psn, 19));
	TX_NONE();
	CHECK_EQ(cnt(FL_CNT_rx_ecn_marked), 20);
	CHECK_EQ(cnt(FL_CNT_np_cnp_sent), 1);
	rig_advance(60000);
	w.psn = psn_add(opt.rq_psn, 20);
	rx(w);
	CHECK(fake_tx_pop(&pkt));
	CHECK_EQ(pkt.opcode, ROCE_OPCODE_CNP);
}

/* to the peer it must be all old or all new, so the window has no say in it */
static void a_read_asked_again_ends_where_it_did(void)
{
	struct roce_pkt pkt;

	fake_link = "udp";
	fake_udp_window = 512u << 10;
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, MANY / 4)), 0);
	pkt = TX(RDMA_READ_REQUEST, 100, 1, 0);
	CHECK_EQ(pkt.dma_len, 64 * 1024);
	rig_advance((4096ull << opt.timeout) + 1);
	rig_advance((4096ull << opt.timeout) + 1);
	CHECK_EQ(rig.qp->req.cwnd.now, 8);
	pkt = TX(RDMA_READ_REQUEST, 100, 1, 0);
	CHECK_EQ(pkt.dma_len, 64 * 1024);
	TX_NONE();
}

static void links_that_lose_nothing_begin_in_full(void)
{
	rig_up();
	next_psn = oldest = 100;
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_WRITE, 1, 0, MANY)), 0);
	CHECK_EQ(flight(), 1024);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(doubles_up_to_what_the_peer_takes), TEST(a_loss_takes_three_tenths),
		TEST(a_time_out_leaves_the_least), TEST(a_notification_is_a_loss_without_one),
		TEST(a_mark_is_answered_now_and_then), TEST(links_that_lose_nothing_begin_in_full),
		TEST(a_read_asked_again_ends_where_it_did),
		{NULL, NULL}};

	return rig_main(argc, argv, tests);
}
