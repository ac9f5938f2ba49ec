/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Page faults: who pauses, what is kept meanwhile, in which order it goes on, and what becomes of a
 * fault whose QP is gone when it is resolved. A fault "sleeps" where fake_sleeps says, until the test
 * opens the gate.
 */
#include "rig.h"

#define R      200
#define PERIOD (4096ull << 10)

static void up(void)
{
	opt.odp = true;
	rig_up();
}

static void sleep_in(uint32_t off, uint32_t len)
{
	fake_sleeps.start = (uintptr_t)rig.mem + off;
	fake_sleeps.end = fake_sleeps.start + len;
}

static void wake(int rc)
{
	fake_gate_wait(1);
	fake_gate_open(rc);
	rig_workers_idle();
	rx_now();
}

/* ---- resolved at once ---- */

static void cold_pages_in_every_role(void)
{
	struct roce_pkt pkt;

	up();
	CHECK_EQ(post_recv(1, 100 * 4096 + 9, 5000), 0);
	rx(WRITE2(FIRST, LAST, R, 4096 - 100, 9000, 9000, pattern));
	TX_ACK(R + 8);
	CHECK(!memcmp(rig.mem + 4096 - 100, pattern, 9000));
	rx(pkt_read(R + 9, 20 * 4096 + 5, 3000));
	pkt = TX2(RDMA_READ_RESPONSE_FIRST, RDMA_READ_RESPONSE_LAST, R + 9, 3, 3000);
	CHECK(!memcmp(pkt.payload, rig.mem + 20 * 4096 + 5, 3000));
	rx(pkt_atomic(false, R + 12, 30 * 4096 + 8, 1, 0));
	TX(ATOMIC_ACKNOWLEDGE, R + 12, 1, 0);
	rx(REQ2(SEND_FIRST, SEND_LAST, R + 13, 4999, pattern));
	TX_ACK(R + 17);
	CHECK(!memcmp(rig.mem + 100 * 4096 + 9, pattern, 4999));
	RWC(SUCCESS, 1);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_WRITE, 2, 200 * 4096 + 1, 9000)), 0);
	pkt = TX2(RDMA_WRITE_FIRST, RDMA_WRITE_LAST, 100, 9, 9000);
	CHECK(!memcmp(pkt.payload, rig.mem + 200 * 4096 + 1, 9000));
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 3, 300 * 4096 + 1, 9000)), 0);
	TX(RDMA_READ_REQUEST, 109, 1, 0);
	rx_read(109, 9000, pattern);
	SWC(SUCCESS, 2);
	SWC(SUCCESS, 3);
	CHECK(!memcmp(rig.mem + 300 * 4096 + 1, pattern, 9000));
	CHECK(cnt(FL_CNT_page_fault_events) >= 6);
	CHECK_EQ(cnt(FL_CNT_page_faults_denied), 0);
}

static void read_then_write_of_a_page(void)
{
	up();
	rx(pkt_read(R, 0, 8)); /* comes in for reading */
	TX(RDMA_READ_RESPONSE_ONLY, R, 1, 8);
	rx(WRITE(ONLY, R + 1, 0, 8, 8, pattern)); /* must fault again */
	TX_ACK(R + 1);
	CHECK_EQ(fake_faults, 2);
	fake_invalidate(rig.umem, (uintptr_t)rig.mem, (uintptr_t)rig.mem + 4096);
	rx(WRITE(ONLY, R + 2, 0, 8, 8, pattern));
	TX_ACK(R + 2);
	CHECK_EQ(fake_faults, 3);
}

/* ---- that cannot be resolved ---- */

static void deny(uint32_t off, uint32_t len)
{
	fake_denied.start = (uintptr_t)rig.mem + off;
	fake_denied.end = fake_denied.start + len;
}

static void denied_write(void)
{
	up();
	deny(0, 4096);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	TX_NAK(AETH_NAK_REM_ACC_ERR, R);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
	CHECK_EQ(ev_qp[IBV_EVENT_QP_ACCESS_ERR], 1);
	CHECK_EQ(cnt(FL_CNT_page_faults_denied), 1);
}

static void denied_read_delivers_what_is_before(void)
{
	fake_max_train = 4096;
	up();
	deny(4096, 4096);
	rx(pkt_read(R, 0, 10000));
	TX2(RDMA_READ_RESPONSE_FIRST, RDMA_READ_RESPONSE_MIDDLE, R, 4, 4096);
	TX_NAK(AETH_NAK_REM_ACC_ERR, R + 4);
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
}

static void denied_atomic(void)
{
	up();
	deny(0, 4096);
	rx(pkt_atomic(false, R, 0, 1, 0));
	TX_NAK(AETH_NAK_REM_ACC_ERR, R);
}

static void denied_recv(void)
{
	up();
	deny(0, 4096);
	CHECK_EQ(post_recv(1, 0, 64), 0);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	TX_NAK(AETH_NAK_REM_OP_ERR, R);
	RWC(LOC_PROT_ERR, 1);
}

static void denied_gather(void)
{
	up();
	deny(0, 4096);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 8)), 0);
	SWC(LOC_PROT_ERR, 1);
	TX_NONE();
}

static void denied_sink(void)
{
	up();
	deny(0, 4096);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 8)), 0);
	rx_read(100, 8, pattern);
	SWC(LOC_PROT_ERR, 1);
}

/* the table has the page, the access fails none the less: forced faults, and not for ever */
static void broken_memory_is_an_error_in_the_end(void)
{
	up();
	fake_broken.start = (uintptr_t)rig.mem;
	fake_broken.end = fake_broken.start + 4096;
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	TX_NAK(AETH_NAK_REM_ACC_ERR, R);
	CHECK(fake_forced > 0);
	CHECK(fake_forced < 1000);
}

static void broken_pinned_memory_is_an_error_at_once(void)
{
	rig_up();
	fake_broken.start = (uintptr_t)rig.mem;
	fake_broken.end = fake_broken.start + 4096;
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	TX_NAK(AETH_NAK_REM_ACC_ERR, R);
	CHECK_EQ(fake_faults, 0);
}

/* ---- that sleep: the responder ---- */

static void requests_wait_in_order(void)
{
	uint64_t v = 5;
	struct roce_pkt pkt;

	up();
	memcpy(rig.mem + 8 * 4096, &v, 8);
	sleep_in(0, 4096);
	CHECK_EQ(post_recv(1, 4 * 4096, 64), 0);
	rx(WRITE(ONLY, R, 4096, 8, 8, pattern));
	TX_ACK(R);
	rx(WRITE(ONLY, R + 1, 0, 8, 8, pattern)); /* pauses */
	rx(pkt_read(R + 2, 0, 3000));
	rx(REQ(SEND_ONLY, R + 5, 8, pattern));
	rx(pkt_atomic(false, R + 6, 8 * 4096, 1, 0));
	rx(WRITE(ONLY, R + 7, 2 * 4096, 8, 8, pattern));
	TX_NONE();
	wc_none(rig.rcq);
	wake(0);
	pkt = TX2(RDMA_READ_RESPONSE_FIRST, RDMA_READ_RESPONSE_LAST, R + 2, 3, 3000);
	CHECK(!memcmp(pkt.payload, pattern, 8)); /* sees the WRITE before it */
	TX_ACK(R + 5); /* a receive's ACK is not put off */
	CHECK_EQ(TX(ATOMIC_ACKNOWLEDGE, R + 6, 1, 0).atomic_orig, 5);
	TX_ACK(R + 7);
	TX_NONE();
	RWC(SUCCESS, 1);
	CHECK_EQ(cnt(FL_CNT_rx_backlog_drop), 0);
}

static void duplicates_while_paused_hear_that_we_live(void)
{
	up();
	sleep_in(0, 4096);
	rx(WRITE(ONLY, R, 4096, 8, 8, pattern));
	TX_ACK(R);
	rx(WRITE(ONLY, R + 1, 0, 8, 8, pattern));
	TX_NONE();
	rx(WRITE(ONLY, R + 1, 0, 8, 8, pattern)); /* the peer's timer went off */
	TX_ACK(R);				   /* of the last that is complete */
	rx(WRITE(ONLY, R + 2, 8192, 8, 8, pattern));
	TX_NONE(); /* kept */
	rx(WRITE(ONLY, R + 2, 8192, 8, 8, pattern));
	TX_ACK(R);
	rx(WRITE(ONLY, R + 5, 8192, 8, 8, pattern)); /* ahead of what is kept: dropped, no NAK */
	TX_NONE();
	wake(0);
	TX_ACK(R + 2);
	TX_NONE();
	CHECK_EQ(cnt(FL_CNT_duplicate_request), 2);
	CHECK_EQ(cnt(FL_CNT_rx_backlog_drop), 1);
}

static void paused_in_the_middle_of_a_read(void)
{
	struct roce_pkt pkt;

	fake_max_train = 4096;
	up();
	sleep_in(4096, 4096);
	rx(pkt_read(R, 0, 12000));
	TX2(RDMA_READ_RESPONSE_FIRST, RDMA_READ_RESPONSE_MIDDLE, R, 4, 4096);
	rx(WRITE(ONLY, R + 12, 0, 8, 8, pattern));
	TX_NONE();
	rx(pkt_read(R, 0, 12000)); /* impatient: we live, but no ACK may say that the READ is done */
	TX_ACK(R + 3);
	TX_NONE();
	rig_is(rig.mem, 8, 0);
	wake(0);
	pkt = TX(RDMA_READ_RESPONSE_MIDDLE, R + 4, 4, 4096);
	CHECK(!memcmp(pkt.payload, rig.mem + 4096, 4096));
	TX2(RDMA_READ_RESPONSE_MIDDLE, RDMA_READ_RESPONSE_LAST, R + 8, 4, 12000 - 8192);
	TX_ACK(R + 12);
	TX_NONE();
}

static void the_fault_fails(void)
{
	up();
	sleep_in(0, 4096);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	rx(WRITE(ONLY, R + 1, 8192, 8, 8, pattern));
	wake(-14);
	TX_NAK(AETH_NAK_REM_ACC_ERR, R);
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
	CHECK(memcmp(rig.mem + 8192, pattern, 8)); /* what waited behind it is void */
}

static void recv_is_not_lost_by_a_fault(void)
{
	up();
	sleep_in(0, 4096);
	CHECK_EQ(post_recv(1, 0, 64), 0);
	CHECK_EQ(post_recv(2, 8192, 64), 0);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	rx(REQ(SEND_ONLY, R + 1, 8, pattern + 8));
	wake(0);
	TX_ACK(R);
	TX_ACK(R + 1);
	RWC(SUCCESS, 1);
	RWC(SUCCESS, 2);
	CHECK(!memcmp(rig.mem, pattern, 8));
}

static void recv_flushed_while_faulting(void)
{
	up();
	sleep_in(0, 4096);
	CHECK_EQ(post_recv(1, 0, 64), 0);
	CHECK_EQ(post_recv(2, 8192, 64), 0);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	rig_modify_state(rig.qp, IBV_QPS_ERR);
	RWC(WR_FLUSH_ERR, 1);
	RWC(WR_FLUSH_ERR, 2);
	wake(0);
	TX_NONE();
	wc_none(rig.rcq);
	rig_is(rig.mem, 8, 0);
}

static void reset_and_used_again_while_faulting(void)
{
	up();
	sleep_in(0, 4096);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	rx(WRITE(ONLY, R + 1, 8192, 8, 8, pattern));
	rig_modify_state(rig.qp, IBV_QPS_RESET);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_INIT), 0);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTR), 0);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTS), 0);
	rx(WRITE(ONLY, R, 16384, 8, 8, pattern)); /* not paused any more */
	TX_ACK(R);
	wake(0);
	TX_NONE();
	rig_is(rig.mem, 8, 0);
	rx(WRITE(ONLY, R + 1, 16384, 8, 8, pattern));
	TX_ACK(R + 1);
}

static void destroyed_while_faulting(void)
{
	struct hca_qp *again;

	up();
	sleep_in(0, 4096);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	rx(WRITE(ONLY, R + 1, 8192, 8, 8, pattern));
	fake_gate_wait(1);
	hca_qp_destroy(rig.qp);
	CHECK_EQ(fake_paths, 0);
	again = rig_qp_new();
	CHECK(again);
	wake(0);
	TX_NONE();
	rig_is(rig.mem, 8, 0);
}

static void deregistered_while_faulting(void)
{
	up();
	sleep_in(0, 4096);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	fake_gate_wait(1);
	fake_gate_open(0);
	hca_mr_destroy(rig.mr); /* waits for the fault */
	CHECK_EQ(fake_released, 1);
	rig_workers_idle();
	rx_now();
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
}

static void backlog_is_bounded_in_packets(void)
{
	uint32_t i;

	up();
	sleep_in(0, 4096);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	for (i = 1; i < 200000; i++)
		rx_later(WRITE(ONLY, R + i, 0, 0, 0, NULL));
	rx_now();
	CHECK(cnt(FL_CNT_rx_backlog_drop) > 0);
	wake(0);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

static void backlog_is_bounded_in_bytes(void)
{
	uint32_t i;

	up();
	sleep_in(0, 4096);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	for (i = 0; i < 200; i++)
		rx(WRITE2(FIRST, LAST, R + 1 + 64 * i, 8192, 65536, 65536, pattern));
	CHECK(cnt(FL_CNT_rx_backlog_drop) > 0);
	wake(0);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

/* the resolver stalls under a burst: what is dropped is counted, and the peer goes back for it */
static void burst_that_is_more_than_is_kept(void)
{
	enum { TRAINS = 200, PKTS = 64, LEN = PKTS * 1024 };
	uint32_t i, last = R, had;
	struct roce_pkt pkt;

	up();
	sleep_in(0, 4096);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	for (i = 0; i < TRAINS; i++)
		rx(WRITE2(FIRST, LAST, R + 1 + PKTS * i, 8192 + i % 8 * LEN, LEN, LEN, pattern + i));
	TX_NONE();
	had = TRAINS - cnt(FL_CNT_rx_backlog_drop);
	CHECK(had > 0 && had < TRAINS);
	wake(0);
	while (fake_tx_pop(&pkt)) {
		CHECK_EQ(pkt.syndrome, AETH_ACK_NO_CREDIT);
		last = pkt.psn;
	}
	CHECK_EQ(last, R + PKTS * had);
	/* go-back-N: the next is ahead of what was dropped */
	rx(WRITE(ONLY, R + 1 + PKTS * TRAINS, 0, 8, 8, pattern + 99));
	TX_NAK(AETH_NAK_PSN_SEQ_ERROR, last + 1);
	for (i = had; i < TRAINS; i++)
		rx_later(WRITE2(FIRST, LAST, R + 1 + PKTS * i, 8192 + i % 8 * LEN, LEN, LEN, pattern + i));
	rx_later(WRITE(ONLY, R + 1 + PKTS * TRAINS, 0, 8, 8, pattern + 99));
	rx_now();
	while (fake_tx_pop(&pkt)) {
		CHECK_EQ(pkt.syndrome, AETH_ACK_NO_CREDIT);
		last = pkt.psn;
	}
	CHECK_EQ(last, R + 1 + PKTS * TRAINS);
	for (i = TRAINS - 8; i < TRAINS; i++)
		CHECK(!memcmp(rig.mem + 8192 + i % 8 * LEN, pattern + i, LEN));
	CHECK(!memcmp(rig.mem, pattern + 99, 8));
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	CHECK_EQ(cnt(FL_CNT_rx_backlog_drop), TRAINS - had);
}

/* ---- that sleep: requester and completer ---- */

static void gather_pauses_only_the_requester(void)
{
	struct roce_pkt pkt;

	up();
	sleep_in(0, 4096);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 8192, 8)), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 0, 8)), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 3, 8192, 8)), 0);
	TX(SEND_ONLY, 100, 1, 8);
	TX_NONE();
	rx_ack(100); /* the completer works */
	SWC(SUCCESS, 1);
	rx(WRITE(ONLY, R, 8192, 8, 8, pattern)); /* and the responder */
	TX_ACK(R);
	rig_advance(100 * PERIOD); /* and no timer runs for what was not sent */
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	wake(0);
	pkt = TX(SEND_ONLY, 101, 1, 8);
	CHECK(!memcmp(pkt.payload, rig.mem, 8));
	TX(SEND_ONLY, 102, 1, 8);
	rx_ack(102);
	SWC(SUCCESS, 2);
	SWC(SUCCESS, 3);
}

static void sink_pauses_the_completer(void)
{
	up();
	sleep_in(0, 4096);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 2000)), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 8192, 8)), 0);
	rx_read(100, 2000, pattern);
	rx_ack(102);
	wc_none(rig.scq);
	rig_advance(PERIOD);
	rig_advance(PERIOD);
	rig_advance(PERIOD);
	wake(0);
	SWC(SUCCESS, 1);
	SWC(SUCCESS, 2);
	CHECK(!memcmp(rig.mem, pattern, 2000));
	CHECK_EQ(cnt(FL_CNT_completer_retry_err), 0); /* we were not ready, the peer was */
}

static void sink_fault_fails(void)
{
	up();
	sleep_in(0, 4096);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 2000)), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 8192, 8)), 0);
	rx_read(100, 2000, pattern);
	rx_ack(102);
	wake(-14);
	SWC(LOC_PROT_ERR, 1);
	SWC(WR_FLUSH_ERR, 2);
}

static void going_back_while_the_gather_sleeps(void)
{
	up();
	sleep_in(0, 4096);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 8192, 8)), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 0, 8)), 0);
	TX(SEND_ONLY, 100, 1, 8);
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 100);
	TX_NONE(); /* the requester is paused */
	wake(0);
	TX(SEND_ONLY, 100, 1, 8);
	TX(SEND_ONLY, 101, 1, 8);
	TX_NONE();
}

static void failed_fault_denies_only_its_own_access(void)
{
	up();
	sleep_in(0, 4096);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 8192, 8)), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 0, 8)), 0);
	TX(SEND_ONLY, 100, 1, 8);
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 100);
	fake_invalidate(rig.umem, (uintptr_t)rig.mem + 8192, (uintptr_t)rig.mem + 8192 + 4096);
	wake(-14);
	TX(SEND_ONLY, 100, 1, 8); /* its page faults in, all is well */
	TX_NONE();
	wc_none(rig.scq);
	rx_ack(100);
	SWC(SUCCESS, 1);
	SWC(LOC_PROT_ERR, 2);
}

static void error_while_the_gather_sleeps(void)
{
	up();
	sleep_in(0, 4096);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 8)), 0);
	rig_modify_state(rig.qp, IBV_QPS_ERR);
	SWC(WR_FLUSH_ERR, 1);
	wake(0);
	TX_NONE();
	wc_none(rig.scq);
}

/* ---- others ---- */

static void sleeping_faults_stall_no_other_qp(void)
{
	struct hca_qp *first, *qp;
	unsigned i;

	up();
	sleep_in(0, 16 * 4096);
	first = rig.qp;
	for (i = 0; i < 8; i++) {
		qp = rig_qp_new();
		CHECK_EQ(rig_qp_to(qp, IBV_QPS_INIT), 0);
		CHECK_EQ(rig_qp_to(qp, IBV_QPS_RTR), 0);
		CHECK_EQ(rig_qp_to(qp, IBV_QPS_RTS), 0);
		rig.qp = qp;
		rx(WRITE(ONLY, R, i * 4096, 8, 8, pattern));
	}
	fake_gate_wait(8); /* each has a worker of its own */
	rig.qp = first;
	rx(WRITE(ONLY, R, 32 * 4096, 8, 8, pattern));
	TX_ACK(R);
	fake_gate_open(0);
	rig_workers_idle();
	for (i = 0; i < 8; i++)
		TX_ACK(R);
}

/* a fault longer than is done at once goes to a worker though nothing sleeps */
static void long_fault(void)
{
	struct roce_pkt pkt;

	fake_max_train = 2 << 20;
	fake_gate_open(0);
	up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_WRITE, 1, 0, 1 << 20)), 0);
	rig_workers_idle();
	pkt = TX2(RDMA_WRITE_FIRST, RDMA_WRITE_LAST, 100, 1024, 1 << 20);
	CHECK(!memcmp(pkt.payload, rig.mem, 1 << 20));
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(cold_pages_in_every_role), TEST(read_then_write_of_a_page), TEST(denied_write),
		TEST(denied_read_delivers_what_is_before), TEST(denied_atomic), TEST(denied_recv),
		TEST(denied_gather), TEST(denied_sink), TEST(broken_memory_is_an_error_in_the_end),
		TEST(broken_pinned_memory_is_an_error_at_once), TEST(requests_wait_in_order),
		TEST(duplicates_while_paused_hear_that_we_live), TEST(paused_in_the_middle_of_a_read),
		TEST(the_fault_fails), TEST(recv_is_not_lost_by_a_fault),
		TEST(recv_flushed_while_faulting), TEST(reset_and_used_again_while_faulting),
		TEST(destroyed_while_faulting), TEST(deregistered_while_faulting),
		TEST(backlog_is_bounded_in_packets), TEST(backlog_is_bounded_in_bytes),
		TEST(burst_that_is_more_than_is_kept),
		TEST(gather_pauses_only_the_requester), TEST(sink_pauses_the_completer),
		TEST(sink_fault_fails), TEST(going_back_while_the_gather_sleeps),
		TEST(failed_fault_denies_only_its_own_access), TEST(error_while_the_gather_sleeps),
		TEST(sleeping_faults_stall_no_other_qp), TEST(long_fault), {NULL, NULL}};

	return rig_main(argc, argv, tests);
}
