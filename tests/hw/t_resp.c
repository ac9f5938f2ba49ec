/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder, row by row as the kernel's soft RoCE was seen to behave, and where that is a quirk as
 * the specification has it: good requests, duplicates, gaps, and all that a peer should not send.
 */
#include "rig.h"

#define R 200 /* the PSN expected first */

static void is_mem(uint32_t off, const void *data, uint32_t len)
{
	CHECK(!memcmp(rig.mem + off, data, len));
}

/* ---- good requests ---- */

static void sends_of_all_lengths(void)
{
	static const uint32_t lens[] = {0, 1, 1023, 1024, 1025, 4096, 5001};
	uint32_t psn = R, len, n, i;
	struct ibv_wc wc;

	rig_up();
	for (i = 0; i < 7; i++) {
		len = lens[i];
		n = len ? (len + 1023) / 1024 : 1;
		CHECK_EQ(post_recv(i, 10000 + i, 6000), 0);
		rx(n == 1 ? REQ(SEND_ONLY, psn, len, pattern + i)
			  : REQ2(SEND_FIRST, SEND_LAST, psn, len, pattern + i));
		psn += n;
		TX_ACK(psn - 1);
		wc = RWC(SUCCESS, i);
		CHECK_EQ(wc.byte_len, len);
		CHECK_EQ(wc.opcode, IBV_WC_RECV);
		CHECK_EQ(wc.wc_flags, 0);
		is_mem(10000 + i, pattern + i, len);
	}
	TX_NONE();
}

static void packet_by_packet(void)
{
	rig_up();
	CHECK_EQ(post_recv(1, 3, 4000), 0);
	rx(REQ(SEND_FIRST, R, 1024, pattern));
	rx(REQ(SEND_MIDDLE, R + 1, 1024, pattern + 1024));
	wc_none(rig.rcq);
	rx(REQ(SEND_LAST_WITH_IMMEDIATE, R + 2, 5, pattern + 2048));
	TX_ACK(R);
	TX_ACK(R + 1);
	TX_ACK(R + 2);
	CHECK_EQ(RWC(SUCCESS, 1).byte_len, 2053);
	is_mem(3, pattern, 2053);
}

static void immediate_data(void)
{
	struct ibv_wc wc;

	rig_up();
	CHECK_EQ(post_recv(1, 0, 64), 0);
	CHECK_EQ(post_recv(2, 0, 0), 0);
	rx(REQ(SEND_ONLY_WITH_IMMEDIATE, R, 8, pattern));
	wc = RWC(SUCCESS, 1);
	CHECK_EQ(wc.imm_data, 0x55667788);
	CHECK_EQ(wc.wc_flags, IBV_WC_WITH_IMM);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.src_qp, PEER_QPN);
	rx(WRITE2(FIRST, LAST_WITH_IMMEDIATE, R + 1, 500, 3000, 3000, pattern));
	wc = RWC(SUCCESS, 2);
	CHECK_EQ(wc.imm_data, 0x55667788);
	CHECK_EQ(wc.wc_flags, IBV_WC_WITH_IMM);
	CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK_EQ(wc.byte_len, 3000);
	is_mem(500, pattern, 3000);
}

static void writes(void)
{
	rig_up();
	rx(WRITE(ONLY, R, 77, 1000, 1000, pattern));
	TX_ACK(R);
	is_mem(77, pattern, 1000);
	rx(WRITE2(FIRST, LAST, R + 1, 5001, 9999, 9999, pattern + 1));
	TX_ACK(R + 10);
	is_mem(5001, pattern + 1, 9999);
	wc_none(rig.rcq);
}

static void one_ack_for_a_batch(void)
{
	int i;

	rig_up();
	for (i = 0; i < 10; i++)
		rx_later(WRITE(ONLY, R + i, 8 * i, 8, 8, pattern));
	rx_now();
	TX_ACK(R + 9);
	TX_NONE();
}

static void no_ack_where_none_is_asked_for(void)
{
	struct roce_pkt pkt;

	rig_up();
	pkt = WRITE(FIRST, R, 0, 2048, 1024, pattern);
	pkt.ackreq = false;
	rx(pkt);
	TX_NONE();
}

static void reads(void)
{
	struct roce_pkt pkt;

	fake_max_train = 4096;
	rig_up();
	rx(pkt_read(R, 33, 9000));
	pkt = TX2(RDMA_READ_RESPONSE_FIRST, RDMA_READ_RESPONSE_MIDDLE, R, 4, 4096);
	CHECK_EQ(pkt.syndrome, AETH_ACK_NO_CREDIT);
	CHECK_EQ(pkt.msn, 1);
	CHECK(!memcmp(pkt.payload, rig.mem + 33, 4096));
	pkt = TX(RDMA_READ_RESPONSE_MIDDLE, R + 4, 4, 4096);
	CHECK(!memcmp(pkt.payload, rig.mem + 33 + 4096, 4096));
	pkt = TX(RDMA_READ_RESPONSE_LAST, R + 8, 1, 808);
	CHECK(!memcmp(pkt.payload, rig.mem + 33 + 8192, 808));
	TX_NONE();
	rx(pkt_read(R + 9, 1, 1024));
	TX(RDMA_READ_RESPONSE_ONLY, R + 9, 1, 1024);
	rx(pkt_read(R + 10, 0, 0));
	TX(RDMA_READ_RESPONSE_ONLY, R + 10, 1, 0);
	TX_NONE();
}

static void atomics(void)
{
	uint64_t v = 0x1122334455667788;
	struct roce_pkt pkt;

	rig_up();
	memcpy(rig.mem + 64, &v, 8);
	rx(pkt_atomic(true, R, 64, 99, v));
	pkt = TX(ATOMIC_ACKNOWLEDGE, R, 1, 0);
	CHECK_EQ(pkt.atomic_orig, v);
	CHECK_EQ(pkt.syndrome, AETH_ACK_NO_CREDIT);
	rx(pkt_atomic(true, R + 1, 64, 1, 98)); /* does not match */
	CHECK_EQ(TX(ATOMIC_ACKNOWLEDGE, R + 1, 1, 0).atomic_orig, 99);
	rx(pkt_atomic(false, R + 2, 64, 3, 0));
	CHECK_EQ(TX(ATOMIC_ACKNOWLEDGE, R + 2, 1, 0).atomic_orig, 99);
	memcpy(&v, rig.mem + 64, 8);
	CHECK_EQ(v, 102);
}

static void msn_counts_messages(void)
{
	struct roce_pkt pkt;

	rig_up();
	CHECK_EQ(post_recv(1, 0, 5000), 0);
	rx(REQ(SEND_FIRST, R, 1024, pattern));
	fake_tx_pop(&pkt);
	CHECK_EQ(pkt.msn, 0);
	rx(REQ(SEND_LAST, R + 1, 1, pattern));
	fake_tx_pop(&pkt);
	CHECK_EQ(pkt.msn, 1);
	rx(WRITE(ONLY, R + 2, 0, 8, 8, pattern));
	fake_tx_pop(&pkt);
	CHECK_EQ(pkt.msn, 2);
	rx(pkt_read(R + 3, 0, 3000));
	fake_tx_pop(&pkt);
	CHECK_EQ(pkt.msn, 3);
	rx(pkt_atomic(false, R + 6, 0, 1, 0));
	fake_tx_pop(&pkt);
	CHECK_EQ(pkt.msn, 4);
	rx(pkt_atomic(false, R + 6, 0, 1, 0)); /* a duplicate counts nothing */
	fake_tx_pop(&pkt);
	CHECK_EQ(pkt.msn, 4);
}

static void psn_wraps(void)
{
	opt.rq_psn = 0xfffffe;
	rig_up();
	rx(WRITE2(FIRST, LAST, 0xfffffe, 0, 4000, 4000, pattern));
	TX_ACK(1);
	rx(pkt_read(2, 0, 10));
	TX(RDMA_READ_RESPONSE_ONLY, 2, 1, 10);
	rx(pkt_read(0xfffffe, 0, 10)); /* a duplicate from before the wrap */
	TX(RDMA_READ_RESPONSE_ONLY, 0xfffffe, 1, 10);
}

static void order_of_answers(void)
{
	rig_up();
	rx_later(WRITE(ONLY, R, 0, 8, 8, pattern));
	rx_later(pkt_read(R + 1, 0, 3000));
	rx_later(WRITE(ONLY, R + 4, 8, 8, 8, pattern));
	rx_later(pkt_atomic(false, R + 5, 64, 1, 0));
	rx_later(WRITE(ONLY, R + 6, 8, 8, 8, pattern));
	rx_now();
	TX2(RDMA_READ_RESPONSE_FIRST, RDMA_READ_RESPONSE_LAST, R + 1, 3, 3000);
	TX(ATOMIC_ACKNOWLEDGE, R + 5, 1, 0);
	TX_ACK(R + 6);
	TX_NONE();
}

static void solicited_and_events(void)
{
	struct roce_pkt pkt;

	rig_up();
	CHECK_EQ(post_recv(1, 0, 64), 0);
	CHECK_EQ(post_recv(2, 0, 64), 0);
	hca_cq_req_notify(rig.rcq, true);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	CHECK_EQ(ev_comp, 0);
	pkt = REQ(SEND_ONLY, R + 1, 8, pattern);
	pkt.se = true;
	rx(pkt);
	CHECK_EQ(ev_comp, 1);
}

static void comm_est(void)
{
	rig_node();
	rig.qp = rig_qp_new();
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_INIT), 0);
	CHECK_EQ(post_recv(1, 0, 64), 0);
	rx(REQ(SEND_ONLY, R, 8, pattern)); /* not ready */
	CHECK_EQ(ev_qp[IBV_EVENT_COMM_EST], 0);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTR), 0);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	rx(REQ(SEND_ONLY, R + 1, 8, pattern));
	CHECK_EQ(ev_qp[IBV_EVENT_COMM_EST], 1);
	RWC(SUCCESS, 1);
	TX_ACK(R);
	TX_NAK(AETH_RNR_NAK | 12, R + 1);
}

/* ---- silently dropped ---- */

static void dropped(struct roce_pkt pkt)
{
	rx(pkt);
	TX_NONE();
	wc_none(rig.rcq);
	wc_none(rig.scq);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

static void silently_dropped(void)
{
	static const uint8_t ops[] = {0x24, 0x2a, 0x20, 0x64, 0x81, 0xc0, 0xff};
	struct roce_pkt pkt;
	unsigned i;

	rig_up();
	CHECK_EQ(post_recv(1, 0, 64), 0);
	pkt = REQ(SEND_ONLY, R, 8, pattern);
	pkt.pkey = 0x1234;
	dropped(pkt);
	pkt = REQ(SEND_ONLY, R, 8, pattern);
	pkt.dest_qpn += 1;
	dropped(pkt);
	pkt.dest_qpn = 0;
	dropped(pkt);
	pkt.dest_qpn = 0xffffff;
	dropped(pkt);
	for (i = 0; i < sizeof(ops); i++) {
		pkt = REQ(SEND_ONLY, R, 8, pattern);
		pkt.opcode = pkt.opcode_last = ops[i];
		dropped(pkt);
	}
	pkt = REQ(SEND_ONLY, R, 8, pattern);
	pkt.pkey = 0x7fff; /* a limited member of the default partition is let in */
	rx(pkt);
	RWC(SUCCESS, 1);
}

static void reserved_opcode_is_dropped(void)
{
	static const uint8_t ops[] = {0x15, 0x18, 0x1f};
	struct roce_pkt pkt;
	unsigned i;

	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 8)), 0);
	TX(SEND_ONLY, 100, 1, 8);
	for (i = 0; i < sizeof(ops); i++) {
		pkt = REQ(SEND_ONLY, 100, 0, NULL);
		pkt.opcode = pkt.opcode_last = ops[i];
		dropped(pkt);
	}
}

static void nothing_for_a_qp_in_error(void)
{
	rig_up();
	rig_modify_state(rig.qp, IBV_QPS_ERR);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	rx(pkt_read(R, 0, 8));
	TX_NONE();
	rig_is(rig.mem, 64, 0);
}

/* trains whose parts do not agree */
static void hostile_trains(void)
{
	struct roce_pkt pkt, good;

	rig_up();
	CHECK_EQ(post_recv(1, 0, 65536), 0);
	good = WRITE2(FIRST, LAST, R, 0, 3000, 3000, pattern);
	pkt = good;
	pkt.npkts = 0;
	dropped(pkt);
	pkt = good;
	pkt.npkts = 2;
	dropped(pkt);
	pkt = good;
	pkt.npkts = 4;
	dropped(pkt);
	pkt = good;
	pkt.npkts = 0xffffffff;
	dropped(pkt);
	pkt = good;
	pkt.mtu = 0;
	dropped(pkt);
	pkt = good;
	pkt.mtu = 0x80000000;
	pkt.npkts = 2;
	dropped(pkt);
	pkt = good;
	pkt.npkts = 1; /* FIRST and LAST at once */
	dropped(pkt);
	pkt = pkt_read(R, 0, 8); /* a train of READ requests */
	pkt.npkts = 2;
	dropped(pkt);
	pkt = pkt_atomic(false, R, 0, 1, 0);
	pkt.npkts = 3;
	pkt.payload = pattern;
	pkt.payload_len = 3000;
	dropped(pkt);
	rig_is(rig.mem, 4096, 0);
	rx(good);
	TX_ACK(R + 2);
}

static void train_of_requests_and_answers(void)
{
	struct roce_pkt pkt;

	rig_up();
	pkt = WRITE2(FIRST, LAST, R, 0, 3000, 3000, pattern);
	pkt.opcode_last = IBV_OPCODE_RC_RDMA_READ_RESPONSE_LAST;
	rx(pkt);
	rig_is(rig.mem, 4096, 0);
	wc_none(rig.scq);
}

/* ---- duplicates and gaps ---- */

static void duplicates(void)
{
	uint64_t v = 5;
	struct roce_pkt pkt;

	rig_up();
	CHECK_EQ(post_recv(1, 9000, 64), 0);
	memcpy(rig.mem + 8000, &v, 8);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	rx(WRITE(ONLY, R + 1, 0, 8, 8, pattern));
	rx(pkt_read(R + 2, 100, 4000));
	rx(pkt_atomic(false, R + 6, 8000, 1, 0));
	rx(WRITE(ONLY, R + 7, 0, 8, 8, pattern));
	while (fake_tx_pop(&pkt))
		;
	RWC(SUCCESS, 1);
	rx(REQ(SEND_ONLY, R, 8, pattern + 100)); /* acknowledged with the newest PSN, not executed */
	TX_ACK(R + 7);
	rx(WRITE(ONLY, R + 1, 0, 8, 8, pattern + 100));
	TX_ACK(R + 7);
	is_mem(0, pattern, 8);
	is_mem(9000, pattern, 8);
	rx(pkt_read(R + 2, 100, 4000)); /* executed again */
	TX2(RDMA_READ_RESPONSE_FIRST, RDMA_READ_RESPONSE_LAST, R + 2, 4, 4000);
	rx(pkt_read(R + 4, 100 + 2048, 4000 - 2048)); /* the rest of it */
	pkt = TX2(RDMA_READ_RESPONSE_FIRST, RDMA_READ_RESPONSE_LAST, R + 4, 2, 4000 - 2048);
	CHECK(!memcmp(pkt.payload, rig.mem + 100 + 2048, 4000 - 2048));
	rx(pkt_atomic(false, R + 6, 8000, 1, 0)); /* its result is remembered */
	CHECK_EQ(TX(ATOMIC_ACKNOWLEDGE, R + 6, 1, 0).atomic_orig, 5);
	memcpy(&v, rig.mem + 8000, 8);
	CHECK_EQ(v, 6);
	rx(pkt_read(R + 6, 0, 4000)); /* reaches into what has not come */
	TX_NONE();
	rx(WRITE(ONLY, R + 8 + 0x800000, 0, 8, 8, pattern + 50)); /* half the circle is behind */
	TX_ACK(R + 7);
	CHECK_EQ(cnt(FL_CNT_duplicate_request), 7);
	TX_NONE();
}

static void duplicate_read_checks_the_key_again(void)
{
	struct roce_pkt pkt;

	rig_up();
	rx(pkt_read(R, 0, 8));
	TX(RDMA_READ_RESPONSE_ONLY, R, 1, 8);
	pkt = pkt_read(R, 0, 8);
	pkt.rkey ^= 1;
	dropped(pkt);
}

static void duplicate_read_keeps_the_ack(void)
{
	rig_up();
	rx(pkt_read(R, 0, 8));
	TX(RDMA_READ_RESPONSE_ONLY, R, 1, 8);
	rx_later(WRITE(ONLY, R + 1, 0, 8, 8, pattern));
	rx_later(pkt_read(R, 0, 8));
	rx_now();
	TX(RDMA_READ_RESPONSE_ONLY, R, 1, 8);
	TX_ACK(R + 1);
}

static void atomics_are_remembered_as_many_as_agreed(void)
{
	uint64_t v = 0;
	unsigned i;

	opt.max_dest_rd_atomic = 3;
	rig_up();
	memcpy(rig.mem, &v, 8);
	for (i = 0; i < 5; i++) {
		rx(pkt_atomic(false, R + i, 0, 1, 0));
		CHECK_EQ(TX(ATOMIC_ACKNOWLEDGE, R + i, 1, 0).atomic_orig, i);
	}
	for (i = 2; i < 5; i++) {
		rx(pkt_atomic(false, R + i, 0, 1, 0));
		CHECK_EQ(TX(ATOMIC_ACKNOWLEDGE, R + i, 1, 0).atomic_orig, i);
	}
	rx(pkt_atomic(false, R, 0, 1, 0)); /* too old: never executed twice */
	TX_NONE();
	CHECK_EQ(*(uint64_t *)rig.mem, 5);
}

static void psn_ahead(void)
{
	rig_up();
	rx(WRITE(ONLY, R + 1, 0, 8, 8, pattern));
	TX_NAK(AETH_NAK_PSN_SEQ_ERROR, R);
	rx(WRITE(ONLY, R + 2, 0, 8, 8, pattern));
	rx(WRITE(ONLY, R + 1, 0, 8, 8, pattern));
	TX_NONE(); /* one NAK for a gap */
	rig_is(rig.mem, 64, 0);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	TX_ACK(R);
	rx(WRITE(ONLY, R + 2, 0, 8, 8, pattern)); /* the next gap */
	TX_NAK(AETH_NAK_PSN_SEQ_ERROR, R + 1);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	CHECK_EQ(cnt(FL_CNT_out_of_seq_request), 4);
}

static void nak_after_an_ack_in_one_batch(void)
{
	rig_up();
	rx_later(WRITE(ONLY, R, 0, 8, 8, pattern));
	rx_later(WRITE(ONLY, R + 2, 0, 8, 8, pattern));
	rx_now();
	TX_NAK(AETH_NAK_PSN_SEQ_ERROR, R + 1); /* acknowledges R as well */
	TX_NONE();
}

static void trains_partly_had(void)
{
	rig_up();
	CHECK_EQ(post_recv(1, 20000, 8000), 0);
	rx(WRITE(FIRST, R, 10, 5000, 1024, pattern));
	rx(WRITE(MIDDLE, R + 1, 0, 0, 1024, pattern + 1024));
	TX_ACK(R);
	TX_ACK(R + 1);
	rig_fill(rig.mem + 10, 2048, 9);
	rx(WRITE2(FIRST, LAST, R, 10, 5000, 5000, pattern));
	TX_ACK(R + 4);
	rig_is(rig.mem + 10, 2048, 9); /* what was had is not placed again */
	is_mem(10 + 2048, pattern + 2048, 5000 - 2048);

	rx(REQ2(SEND_FIRST, SEND_MIDDLE, R + 5, 2048, pattern));
	TX_ACK(R + 6);
	rx(REQ2(SEND_MIDDLE, SEND_LAST_WITH_IMMEDIATE, R + 6, 1024 + 7, pattern + 1024));
	TX_ACK(R + 7);
	CHECK_EQ(RWC(SUCCESS, 1).byte_len, 2055);
	is_mem(20000, pattern, 2055);
}

/* ---- RNR ---- */

static void rnr(void)
{
	rig_up();
	rx(REQ(SEND_ONLY, R, 8, pattern));
	TX_NAK(AETH_RNR_NAK | 12, R);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	TX_NAK(AETH_RNR_NAK | 12, R);
	rx(WRITE(ONLY_WITH_IMMEDIATE, R, 0, 8, 8, pattern));
	TX_NAK(AETH_RNR_NAK | 12, R);
	rig_is(rig.mem, 64, 0); /* no data is placed */
	CHECK_EQ(post_recv(1, 0, 64), 0);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	TX_ACK(R);
	RWC(SUCCESS, 1);
	CHECK_EQ(cnt(FL_CNT_send_rnr_err), 3);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

/* what the peer is asked to wait is what the QP was set up with (9.7.5.2.8) */
static void rnr_says_how_long(void)
{
	rig_node();
	for (opt.min_rnr_timer = 0; opt.min_rnr_timer < 32; opt.min_rnr_timer++) {
		rig.qp = rig_qp_new();
		CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_INIT), 0);
		CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTR), 0);
		rx(REQ(SEND_ONLY, R, 8, pattern));
		TX_NAK(AETH_RNR_NAK | opt.min_rnr_timer, R);
		hca_qp_destroy(rig.qp);
	}
}

static void rnr_at_the_end_of_a_write(void)
{
	rig_up();
	rx(WRITE(FIRST, R, 0, 1032, 1024, pattern));
	TX_ACK(R);
	rx(WRITE(LAST_WITH_IMMEDIATE, R + 1, 0, 0, 8, pattern + 1024));
	TX_NAK(AETH_RNR_NAK | 12, R + 1);
	CHECK_EQ(post_recv(1, 0, 0), 0);
	rx(WRITE(LAST_WITH_IMMEDIATE, R + 1, 0, 0, 8, pattern + 1024));
	TX_ACK(R + 1);
	CHECK_EQ(RWC(SUCCESS, 1).byte_len, 1032);
	is_mem(0, pattern, 1032);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(sends_of_all_lengths), TEST(packet_by_packet), TEST(immediate_data), TEST(writes),
		TEST(one_ack_for_a_batch), TEST(no_ack_where_none_is_asked_for), TEST(reads),
		TEST(atomics), TEST(msn_counts_messages), TEST(psn_wraps), TEST(order_of_answers),
		TEST(solicited_and_events), TEST(comm_est), TEST(silently_dropped),
		TEST(reserved_opcode_is_dropped), TEST(nothing_for_a_qp_in_error), TEST(hostile_trains),
		TEST(train_of_requests_and_answers), TEST(duplicates),
		TEST(duplicate_read_checks_the_key_again), TEST(duplicate_read_keeps_the_ack),
		TEST(atomics_are_remembered_as_many_as_agreed), TEST(psn_ahead),
		TEST(nak_after_an_ack_in_one_batch), TEST(trains_partly_had), TEST(rnr),
		TEST(rnr_says_how_long), TEST(rnr_at_the_end_of_a_write), {NULL, NULL}};

	return rig_main(argc, argv, tests);
}
