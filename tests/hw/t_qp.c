/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs: states, draining, reset, destruction, shared receive queues, timers of many, cost of many. */
#include <errno.h>
#include <malloc.h>
#include "rig.h"

#define R 200

static struct hca_qp *ready_qp(void)
{
	struct hca_qp *qp = rig_qp_new();

	CHECK_EQ(rig_qp_to(qp, IBV_QPS_INIT), 0);
	CHECK_EQ(rig_qp_to(qp, IBV_QPS_RTR), 0);
	CHECK_EQ(rig_qp_to(qp, IBV_QPS_RTS), 0);
	return qp;
}

/* ---- SQD ---- */

static void sqd_when_idle(void)
{
	rig_up();
	rig_modify_state(rig.qp, IBV_QPS_SQD);
	CHECK_EQ(ev_qp[IBV_EVENT_SQ_DRAINED], 1);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 8)), 0);
	TX_NONE();
	rig_modify_state(rig.qp, IBV_QPS_RTS);
	TX(SEND_ONLY, 100, 1, 8);
	rx_ack(100);
	SWC(SUCCESS, 1);
	CHECK_EQ(ev_qp[IBV_EVENT_SQ_DRAINED], 1);
}

static void sqd_ends_what_was_begun(void)
{
	struct ibv_qp_attr attr;
	uint32_t bytes = 0, psn = 100;
	struct roce_pkt pkt;

	fake_link = "udp";
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 100 * 1024)), 0); /* more than the window */
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 0, 8)), 0);
	while (fake_tx_pop(&pkt)) {
		bytes += pkt.payload_len;
		psn += pkt.npkts;
	}
	rig_modify_state(rig.qp, IBV_QPS_SQD);
	hca_qp_query(rig.qp, &attr);
	CHECK(attr.sq_draining);
	CHECK_EQ(ev_qp[IBV_EVENT_SQ_DRAINED], 0);
	rx_ack(psn - 1); /* the rest of the first may go, the second may not */
	while (fake_tx_pop(&pkt)) {
		bytes += pkt.payload_len;
		psn += pkt.npkts;
	}
	CHECK_EQ(bytes, 100 * 1024);
	CHECK_EQ(ev_qp[IBV_EVENT_SQ_DRAINED], 0);
	rx_ack(psn - 1);
	CHECK_EQ(ev_qp[IBV_EVENT_SQ_DRAINED], 1);
	SWC(SUCCESS, 1);
	wc_none(rig.scq);
	TX_NONE();
	hca_qp_query(rig.qp, &attr);
	CHECK(!attr.sq_draining);
	rig_modify_state(rig.qp, IBV_QPS_RTS);
	TX(SEND_ONLY, psn, 1, 8);
}

static void responder_works_in_sqd(void)
{
	rig_up();
	rig_modify_state(rig.qp, IBV_QPS_SQD);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	TX_ACK(R);
}

/* ---- RESET ---- */

static void reset_forgets(void)
{
	struct ibv_qp_attr attr;
	unsigned i;

	rig_up();
	CHECK_EQ(post_recv(1, 0, 64), 0);
	for (i = 0; i < 3; i++)
		CHECK_EQ(post(wr_data(IBV_WR_SEND, i, 0, 8)), 0);
	rx_ack(100);
	rx(REQ(SEND_FIRST, R, 1024, pattern));
	rig_modify_state(rig.qp, IBV_QPS_RESET);
	wc_none(rig.scq); /* completions, too */
	wc_none(rig.rcq);
	CHECK_EQ(fake_paths, 0);
	hca_qp_query(rig.qp, &attr);
	CHECK_EQ(attr.qp_state, IBV_QPS_RESET);
	CHECK_EQ(attr.cap.max_send_wr, opt.sq_depth);
	rig_advance(100000 * MS);
	while (fake_tx_count()) {
		struct roce_pkt pkt;

		fake_tx_pop(&pkt);
	}
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_INIT), 0);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTR), 0);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTS), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 7, 0, 8)), 0);
	TX(SEND_ONLY, 100, 1, 8);
	rx_ack(100);
	SWC(SUCCESS, 7);
	rx(REQ(SEND_ONLY, R, 8, pattern)); /* the receive posted before is gone */
	TX_NAK(AETH_RNR_NAK | 12, R);
}

static void reset_in_an_rnr_wait_and_no_room(void)
{
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 8)), 0);
	TX(SEND_ONLY, 100, 1, 8);
	rx_nak(AETH_RNR_NAK | 31, 100);
	fake_net_room(0);
	rx(pkt_read(R, 0, 5000)); /* owes a response */
	rig_modify_state(rig.qp, IBV_QPS_RESET);
	fake_net_room(-1);
	TX_NONE();
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_INIT), 0);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTR), 0);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTS), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 0, 8)), 0);
	TX(SEND_ONLY, 100, 1, 8);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	TX_ACK(R);
}

/* ---- the responder finds no room ---- */

static void no_room_for_answers(void)
{
	uint64_t v = 3;
	unsigned i;

	fake_max_train = 2048;
	rig_up();
	memcpy(rig.mem + 64, &v, 8);
	fake_net_room(0);
	rx(WRITE(ONLY, R, 4096, 8, 8, pattern));
	rx(pkt_atomic(false, R + 1, 64, 1, 0));
	rx(pkt_read(R + 2, 0, 3000));
	rx(WRITE(ONLY, R + 5, 4096, 8, 8, pattern));
	rx(pkt_atomic(false, R + 6, 64, 1, 0));
	for (i = 0; i < 8; i++)
		fake_net_room(1);
	CHECK_EQ(TX(ATOMIC_ACKNOWLEDGE, R + 1, 1, 0).atomic_orig, 3);
	TX2(RDMA_READ_RESPONSE_FIRST, RDMA_READ_RESPONSE_MIDDLE, R + 2, 2, 2048);
	TX(RDMA_READ_RESPONSE_LAST, R + 4, 1, 952);
	CHECK_EQ(TX(ATOMIC_ACKNOWLEDGE, R + 6, 1, 0).atomic_orig, 4);
	TX_NONE();
	memcpy(&v, rig.mem + 64, 8);
	CHECK_EQ(v, 5);
}

static void no_room_for_an_ack(void)
{
	rig_up();
	fake_net_room(0);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	rx(WRITE(ONLY, R + 1, 0, 8, 8, pattern));
	fake_net_room(-1);
	TX_ACK(R + 1);
	TX_NONE();
}

static void no_room_for_a_nak(void)
{
	rig_up();
	fake_net_room(0);
	rx(WRITE(ONLY, R + 1, 0, 8, 8, pattern));
	fake_net_room(-1);
	TX_NAK(AETH_NAK_PSN_SEQ_ERROR, R);
	TX_NONE();
}

static void no_room_for_a_fatal_nak(void)
{
	rig_up();
	fake_net_room(0);
	rx(WRITE(LAST, R, 0, 8, 8, pattern));
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
	fake_net_room(-1);
	TX_NAK(AETH_NAK_INVALID_REQ, R);
	TX_NONE();
}

/* ---- the end ---- */

static void destroy_takes_completions_along(void)
{
	struct hca_qp *other;
	uint32_t qpn;

	rig_up();
	other = rig.qp;
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 8)), 0);
	rx_ack(100);
	rig.qp = ready_qp();
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 0, 8)), 0);
	rx_ack(100);
	qpn = hca_qp_num(rig.qp);
	hca_qp_destroy(rig.qp);
	rig.qp = other;
	SWC(SUCCESS, 1);
	wc_none(rig.scq);
	rig.qp = ready_qp();
	CHECK(hca_qp_num(rig.qp) != qpn); /* a number does not come back at once */
	hca_qp_destroy(rig.qp);
	hca_qp_destroy(other);
	CHECK_EQ(fake_paths, 0);
}

static void packets_for_a_destroyed_qp(void)
{
	struct roce_pkt pkt;

	rig_up();
	pkt = WRITE(ONLY, R, 0, 8, 8, pattern);
	hca_qp_destroy(rig.qp);
	rx(pkt);
	TX_NONE();
	rig_is(rig.mem, 8, 0);
	CHECK_EQ(cnt(FL_CNT_rx_unknown_qp), 1);
}

static void owed_ack_of_a_destroyed_qp(void)
{
	rig_up();
	fake_net_room(0);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	hca_qp_destroy(rig.qp);
	fake_net_room(-1);
	TX_NONE();
	rig.qp = ready_qp();
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	TX_ACK(R);
}

static void timer_of_a_destroyed_qp(void)
{
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 8)), 0);
	TX(SEND_ONLY, 100, 1, 8);
	hca_qp_destroy(rig.qp);
	CHECK_EQ(timers_run(rig_now() + 1000000 * MS), UINT64_MAX);
	TX_NONE();
}

static void all_numbers_in_use(void)
{
	struct hca_qp_open open[QP_MAX];
	struct hca_qp_init init = {.type = IBV_QPT_RC, .pd = PD, .open = open};
	struct hca_qp *qp, *last = NULL;
	uint32_t n = 0;
	int rc;

	opt.sq_depth = opt.rq_depth = 1;
	rig_node();
	init.send_cq = init.recv_cq = rig.scq;
	while (!(rc = hca_qp_create(rig.dev, &init, &qp))) {
		last = qp;
		init.open = &open[++n];
	}
	CHECK_EQ(rc, -EAGAIN);
	CHECK_EQ(n, QP_MAX - QP_FIRST);
	hca_qp_destroy(last);
	CHECK_EQ(hca_qp_create(rig.dev, &init, &qp), 0);
	init.type = IBV_QPT_RAW_PACKET;
	CHECK_EQ(hca_qp_create(rig.dev, &init, &qp), -EOPNOTSUPP);
}

/* ---- SRQ ---- */

static void srq_receives(void)
{
	struct ibv_srq_attr attr = {.srq_limit = 2};
	unsigned i;

	opt.use_srq = true;
	rig_up();
	for (i = 0; i < 4; i++)
		CHECK_EQ(post_recv(i, 64 * i, 64), 0);
	CHECK_EQ(hca_srq_modify(rig.srq, &attr, IBV_SRQ_LIMIT), 0);
	for (i = 0; i < 4; i++) {
		rx(REQ(SEND_ONLY, R + i, 8, pattern));
		RWC(SUCCESS, i);
		TX_ACK(R + i);
		CHECK_EQ(ev_srq_limit, i >= 2);
	}
	hca_srq_query(rig.srq, &attr);
	CHECK_EQ(attr.srq_limit, 0);
	CHECK_EQ(attr.max_wr, opt.rq_depth);
	rx(REQ(SEND_ONLY, R + 4, 8, pattern));
	TX_NAK(AETH_RNR_NAK | 12, R + 4);
	CHECK_EQ(hca_post_recv(rig.qp, NULL, &(struct ibv_recv_wr *){NULL}), EINVAL);
}

static void srq_last_wqe_event(void)
{
	opt.use_srq = true;
	rig_up();
	CHECK_EQ(post_recv(1, 0, 64), 0);
	rig_modify_state(rig.qp, IBV_QPS_ERR);
	CHECK_EQ(ev_qp[IBV_EVENT_QP_LAST_WQE_REACHED], 1);
	wc_none(rig.rcq); /* what is in the SRQ belongs to others */
	rig_modify_state(rig.qp, IBV_QPS_ERR);
	CHECK_EQ(ev_qp[IBV_EVENT_QP_LAST_WQE_REACHED], 1);
}

static void srq_last_wqe_event_of_an_error(void)
{
	opt.use_srq = true;
	rig_up();
	rx(WRITE(LAST, R, 0, 8, 8, pattern));
	CHECK_EQ(ev_qp[IBV_EVENT_QP_LAST_WQE_REACHED], 1);
}

/* ---- many ---- */

static void timers_of_a_thousand(void)
{
	enum { N = 1000 };
	static struct hca_qp *qps[N];
	uint64_t start, next, last = 0;
	uint32_t x = 1, i;

	opt.sq_depth = opt.rq_depth = 1;
	opt.retry_cnt = 0;
	rig_node();
	start = rig_now();
	for (i = 0; i < N; i++) {
		x = x * 1103515245 + 12345;
		opt.timeout = 1 + (x >> 16) % 16;
		rig.qp = qps[i] = ready_qp();
		CHECK_EQ(post(wr_data(IBV_WR_SEND, i, 0, 1)), 0);
		if (x & 1 << 20) {
			rx_ack(100);
			SWC(SUCCESS, i);
		}
		if (i % 7 == 0) {
			hca_qp_destroy(qps[i]);
			qps[i] = NULL;
		}
	}
	for (i = 0; i < 3 * N; i++) { /* one deadline after the other, never back in time */
		next = timers_run(rig_now());
		if (next == UINT64_MAX)
			break;
		CHECK(next > rig_now());
		CHECK(next >= last);
		last = next;
		rig_advance(next - rig_now());
	}
	CHECK_EQ(timers_run(rig_now()), UINT64_MAX);
	CHECK(rig_now() - start <= 4 * (4096ull << 16));
	for (i = 0; i < N; i++)
		if (qps[i])
			hca_qp_destroy(qps[i]);
}

static void ten_thousand_qps(void)
{
	enum { N = SANITIZED ? 1000 : 10000 };
	static struct hca_qp *qps[N];
	size_t before, used;
	uint32_t i, round;

	opt.sq_depth = opt.rq_depth = 16;
	rig_node();
	before = mallinfo2().uordblks;
	for (round = 0; round < 3; round++) {
		for (i = 0; i < N; i++)
			qps[i] = ready_qp();
		used = mallinfo2().uordblks - before;
		if (!round && used) /* sanitizers have a malloc of their own */
			printf("     a QP with 16 + 16 work requests takes %zu bytes\n", used / N);
		for (i = 0; i < N; i++) {
			rig.qp = qps[i];
			rx(WRITE(ONLY, R, 0, 8, 8, pattern));
			TX_ACK(R);
		}
		for (i = 0; i < N; i++)
			hca_qp_destroy(qps[i]);
	}
	CHECK_EQ(fake_paths, 0);
	used = mallinfo2().uordblks - before;
	if (used)
		printf("     and leaves %zu once it was there\n", used / N);
	CHECK(used / N < 4096);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(sqd_when_idle), TEST(sqd_ends_what_was_begun), TEST(responder_works_in_sqd),
		TEST(reset_forgets), TEST(reset_in_an_rnr_wait_and_no_room), TEST(no_room_for_answers),
		TEST(no_room_for_an_ack), TEST(no_room_for_a_nak), TEST(no_room_for_a_fatal_nak),
		TEST(destroy_takes_completions_along), TEST(packets_for_a_destroyed_qp),
		TEST(owed_ack_of_a_destroyed_qp), TEST(timer_of_a_destroyed_qp),
		TEST(all_numbers_in_use), TEST(srq_receives), TEST(srq_last_wqe_event),
		TEST(srq_last_wqe_event_of_an_error), TEST(timers_of_a_thousand),
		TEST(ten_thousand_qps), {NULL, NULL}};

	return rig_main(argc, argv, tests);
}
