/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Page faults on the wire: what each fault model answers, that a peer's RNR retries are spared, that what is
 * stuck is named, why retries ran out; and the page-fault queue when it is full.
 */
#include <unistd.h>
#include "rig.h"

#define R      200
#define PERIOD (4096ull << 10)

static bool pinned; /* our memory does not fault: it is the peer's that does */
static char log_file[] = "/tmp/faultline-model-XXXXXX";

static void up(const char *model)
{
	opt.odp = !pinned;
	opt.fault_model = model;
	rig_up();
	fake_sleeps.start = (uintptr_t)rig.mem;
	fake_sleeps.end = fake_sleeps.start + 64 * 4096;
}

/* the worker ends its fault, and what comes of it is seen */
static void wake(void)
{
	fake_gate_wait(1);
	fake_gate_open(0);
	rig_workers_idle();
	rx_now();
}

static void log_to_file(void)
{
	close(mkstemp(log_file));
	setenv("VERBS_LOG_FILE", log_file, 1);
	setenv("FAULTLINE_LOG", "warn", 1);
	fl_log_init();
}

static bool log_says(const char *what)
{
	char buf[8192];
	FILE *f = fopen(log_file, "r");
	size_t n = f ? fread(buf, 1, sizeof(buf) - 1, f) : 0;

	buf[n] = '\0';
	if (f)
		fclose(f);
	return strstr(buf, what);
}

/* ---- connectx ---- */

#define RNR (AETH_RNR_NAK | 12)

static void connectx_write_is_nakked_and_dropped(void)
{
	up("connectx");
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	TX_NAK(RNR, R);
	rx(WRITE(ONLY, R + 1, 8192, 8, 8, pattern)); /* behind it: dropped, and the gap is not told again */
	TX_NONE();
	rx(WRITE(ONLY, R, 0, 8, 8, pattern)); /* too early */
	TX_NAK(RNR, R);
	wake();
	TX_NONE(); /* nothing was kept */
	rig_is(rig.mem, 8, 0);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	TX_ACK(R);
	CHECK(!memcmp(rig.mem, pattern, 8));
	CHECK_EQ(cnt(FL_CNT_send_rnr_page_fault), 2);
	CHECK_EQ(hca_mr_stat(rig.mr)->send_rnr_page_fault, 2);
	CHECK_EQ(cnt(FL_CNT_rx_backlog_drop), 0);
}

static void connectx_read_and_atomic_are_nakked(void)
{
	up("connectx");
	rx(pkt_read(R, 0, 3000));
	TX_NAK(RNR, R);
	wake();
	rx(pkt_read(R, 0, 3000));
	TX2(RDMA_READ_RESPONSE_FIRST, RDMA_READ_RESPONSE_LAST, R, 3, 3000);
	fake_gate_close();
	rx(pkt_atomic(false, R + 3, 8 * 4096, 1, 0));
	TX_NAK(RNR, R + 3);
	wake();
	rx(pkt_atomic(false, R + 3, 8 * 4096, 1, 0));
	TX(ATOMIC_ACKNOWLEDGE, R + 3, 1, 0);
}

static void connectx_answer_is_dropped_and_asked_for_again(void)
{
	up("connectx");
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 2000)), 0);
	TX(RDMA_READ_REQUEST, 100, 1, 0);
	rx_read(100, 2000, pattern);
	for (int i = 0; i < 3; i++) {
		rig_advance(MS / 2);
		TX(RDMA_READ_REQUEST, 100, 1, 0);
		rx_read(100, 2000, pattern); /* in vain */
		wc_none(rig.scq);
	}
	wake();
	wc_none(rig.scq);
	rig_advance(MS / 2);
	TX(RDMA_READ_REQUEST, 100, 1, 0);
	rx_read(100, 2000, pattern);
	SWC(SUCCESS, 1);
	CHECK(!memcmp(rig.mem, pattern, 2000));
	rig_advance(MS);
	TX_NONE();
}

/* packet damming: what is posted in the wait counts as sent; the time-out finds out */
static void connectx_dams(void)
{
	pinned = true;
	up("connectx");
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 70 * 4096, 64)), 0);
	TX(RDMA_READ_REQUEST, 100, 1, 0);
	rx_nak(AETH_RNR_NAK | 1, 100); /* 10 us, and 3.5 times that */
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 2, 71 * 4096, 64)), 0);
	rig_advance(34999);
	TX_NONE();
	rig_advance(1);
	TX(RDMA_READ_REQUEST, 100, 1, 0);
	TX_NONE(); /* not the second */
	rx_read(100, 64, pattern);
	SWC(SUCCESS, 1);
	rig_advance(PERIOD);
	rig_advance(PERIOD);
	TX(RDMA_READ_REQUEST, 101, 1, 0);
	rx_read(101, 64, pattern);
	SWC(SUCCESS, 2);
}

/* and so does a NAK, when a third request makes the peer notice */
static void connectx_dam_is_broken_by_a_gap(void)
{
	pinned = true;
	up("connectx");
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 70 * 4096, 64)), 0);
	TX(RDMA_READ_REQUEST, 100, 1, 0);
	rx_nak(AETH_RNR_NAK | 1, 100);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 2, 71 * 4096, 64)), 0);
	rig_advance(35000);
	TX(RDMA_READ_REQUEST, 100, 1, 0);
	rx_read(100, 64, pattern);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 3, 72 * 4096, 64)), 0);
	TX(RDMA_READ_REQUEST, 102, 1, 0);
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 101);
	TX(RDMA_READ_REQUEST, 101, 1, 0);
	TX(RDMA_READ_REQUEST, 102, 1, 0);
}

static void ideal_does_not_dam(void)
{
	up("ideal");
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 70 * 4096, 64)), 0);
	TX(RDMA_READ_REQUEST, 100, 1, 0);
	rx_nak(AETH_RNR_NAK | 1, 100);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 2, 71 * 4096, 64)), 0);
	rig_advance(10000);
	TX(RDMA_READ_REQUEST, 100, 1, 0);
	TX(RDMA_READ_REQUEST, 101, 1, 0);
}

/* an answer to what the peer was not ready for ends the wait: its page came */
static void answer_ends_the_rnr_wait(void)
{
	up("ideal");
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 70 * 4096, 8)), 0);
	TX(SEND_ONLY, 100, 1, 8);
	rx_nak(AETH_RNR_NAK | 31, 100); /* 491 ms */
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 70 * 4096, 8)), 0);
	TX_NONE();
	rx_ack(100);
	SWC(SUCCESS, 1);
	TX(SEND_ONLY, 101, 1, 8);
}

/* ---- ideal: a fault that lasts ---- */

static void rnr_naks_after_the_bound(uint8_t rnr_retry, unsigned naks)
{
	opt.rnr_retry = rnr_retry;
	up("ideal");
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	TX_ACK(R - 1); /* within the bound: we live */
	rig_advance(101 * MS);
	for (unsigned i = 0; i < naks; i++) {
		rx(WRITE(ONLY, R, 0, 8, 8, pattern));
		TX_NAK(RNR, R);
	}
	if (rnr_retry != 7) {
		rx(WRITE(ONLY, R, 0, 8, 8, pattern));
		TX_ACK(R - 1);
	}
	CHECK_EQ(cnt(FL_CNT_send_rnr_page_fault), naks);
	CHECK_EQ(hca_mr_stat(rig.mr)->send_rnr_page_fault, naks);
	wake();
	TX_ACK(R); /* what was kept, at once */
	TX_NONE();
}

static void rnr_naks_without_end_for_who_has_no_end(void)
{
	rnr_naks_after_the_bound(7, 20);
}

static void rnr_naks_leave_the_peer_some(void)
{
	rnr_naks_after_the_bound(5, 3);
}

static void no_rnr_naks_for_who_has_none(void)
{
	rnr_naks_after_the_bound(0, 0);
}

static void patience_ends(void)
{
	up("ideal");
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	rig_advance(60001 * MS);
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	TX_NONE();
	wake();
	TX_ACK(R);
}

static void stuck_is_named_once(void)
{
	char key[32], at[32];

	log_to_file();
	up("ideal");
	rx(WRITE(ONLY, R, 4096, 8, 8, pattern));
	fake_gate_wait(1);
	rig_advance(1999 * MS);
	CHECK(!log_says("stuck"));
	rig_advance(2 * MS);
	snprintf(key, sizeof(key), "key 0x%x:", rig.key);
	snprintf(at, sizeof(at), "at 0x%lx,", (uintptr_t)rig.mem + 4096);
	CHECK(log_says("stuck for 2.0 s") && log_says(key) && log_says(at) && log_says("(RTS)"));
	CHECK_EQ(truncate(log_file, 0), 0);
	rig_advance(10000 * MS);
	CHECK(!log_says("stuck"));
	wake();
	TX_ACK(R);
	unlink(log_file);
}

/* ---- why the retries ran out ---- */

static void run_out(void (*each)(void))
{
	opt.retry_cnt = 2;
	log_to_file();
	up("ideal");
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 70 * 4096, 8)), 0);
	for (int i = 0; i < 8 && qp_state() == IBV_QPS_RTS; i++) {
		struct roce_pkt pkt;

		while (fake_tx_pop(&pkt))
			;
		if (each)
			each();
		rig_advance(PERIOD);
	}
}

static void vendor_err_is(uint32_t err, const char *words)
{
	struct ibv_wc wc = SWC(RETRY_EXC_ERR, 1);

	CHECK_EQ(wc.vendor_err, err);
	CHECK(log_says(words) && log_says("0x000064"));
	CHECK_EQ(cnt(FL_CNT_retry_exceeded_err), 1);
	unlink(log_file);
}

static void peer_gone(void)
{
	run_out(NULL);
	vendor_err_is(VENDOR_ERR_NO_ANSWER, "the peer is gone");
}

static void nak_gap(void)
{
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 100);
}

static void packets_lost(void)
{
	run_out(nak_gap);
	vendor_err_is(VENDOR_ERR_LOST, "packets are lost");
}

static unsigned alive_for = 4;

static void say_alive(void)
{
	if (alive_for && alive_for--)
		rx_ack(99);
}

static void peer_stuck(void)
{
	run_out(say_alive);
	vendor_err_is(VENDOR_ERR_PEER_STUCK, "stuck in a page fault");
}

/* the peer was stuck, asked again and was not ready, and then it was done; of the next request it says nothing */
static void what_it_said_before_is_no_reason(void)
{
	struct roce_pkt pkt;

	opt.retry_cnt = 2;
	up("ideal");
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 70 * 4096, 8)), 0);
	rig_advance(PERIOD);
	rig_advance(PERIOD);
	rx_ack(99);
	CHECK(rig.qp->req.heard_alive);
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 100);
	rx_nak(AETH_RNR_NAK | 1, 100);
	rig_advance(MS);
	rx_ack(100);
	SWC(SUCCESS, 1);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 70 * 4096, 8)), 0);
	for (int i = 0; i < 16 && qp_state() == IBV_QPS_RTS; i++) {
		rig_advance(PERIOD);
		while (fake_tx_pop(&pkt))
			;
	}
	CHECK_EQ(SWC(RETRY_EXC_ERR, 2).vendor_err, VENDOR_ERR_NO_ANSWER);
}

/* ---- the queue ---- */

static void overflow_loses_nothing(void)
{
	struct hca_qp *qp[12];

	opt.provoke = "queue=2";
	up("ideal");
	for (unsigned i = 0; i < 12; i++) {
		qp[i] = rig_qp_new();
		CHECK_EQ(rig_qp_to(qp[i], IBV_QPS_INIT), 0);
		CHECK_EQ(rig_qp_to(qp[i], IBV_QPS_RTR), 0);
		CHECK_EQ(rig_qp_to(qp[i], IBV_QPS_RTS), 0);
		rig.qp = qp[i];
		rx(WRITE(ONLY, R, i * 4096, 8, 8, pattern));
	}
	fake_gate_wait(2); /* no more than that */
	hca_qp_destroy(qp[5]); /* one of those in line */
	fake_gate_open(0);
	rig_workers_idle();
	for (unsigned i = 0; i < 11; i++)
		TX_ACK(R);
	TX_NONE();
	CHECK_EQ(rig.mr->pf_refs, 0);
}

static void same_fault_is_taken_once(void)
{
	unsigned before;

	up("ideal");
	before = fake_faults;
	for (unsigned i = 0; i < 4; i++) {
		rig.qp = rig_qp_new();
		CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_INIT), 0);
		CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTR), 0);
		CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTS), 0);
		rx(WRITE(ONLY, R, 8 * i, 8, 8, pattern + 8 * i));
	}
	/* the looks that may not sleep are each QP's own; of those that may there is one for a place */
	fake_gate_wait(1);
	wake();
	for (unsigned i = 0; i < 4; i++)
		TX_ACK(R);
	CHECK(!memcmp(rig.mem, pattern, 32));
	CHECK(fake_faults - before <= 4 + 4);
	CHECK_EQ(rig.mr->pf_refs, 0);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(connectx_write_is_nakked_and_dropped), TEST(connectx_read_and_atomic_are_nakked),
		TEST(connectx_answer_is_dropped_and_asked_for_again), TEST(connectx_dams),
		TEST(connectx_dam_is_broken_by_a_gap), TEST(ideal_does_not_dam), TEST(answer_ends_the_rnr_wait),
		TEST(rnr_naks_without_end_for_who_has_no_end), TEST(rnr_naks_leave_the_peer_some),
		TEST(no_rnr_naks_for_who_has_none), TEST(patience_ends), TEST(stuck_is_named_once),
		TEST(peer_gone), TEST(packets_lost), TEST(peer_stuck), TEST(what_it_said_before_is_no_reason), TEST(overflow_loses_nothing),
		TEST(same_fault_is_taken_once), {NULL, NULL}};

	return rig_main(argc, argv, tests);
}
