/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The target of XRC (annex A14): the initiator names an SRQ with each message; the target executes it with that
 * SRQ's receives, CQ and protection domain, or says why not.
 */
#include <errno.h>
#include <unistd.h>
#include "rig.h"

#define R	 200
#define OTHER_PD 8

static struct hca_cq *cq2;
static struct hca_srq *srq2;

static void target_up(void)
{
	opt.type = IBV_QPT_XRC_RECV;
	opt.use_srq = true;
	rig_up();
}

/* a second SRQ of the domain, with a CQ and a protection domain of its own */
static void second_srq(void)
{
	CHECK_EQ(hca_cq_create(rig.dev, opt.cq_depth, false, NULL, &cq2), 0);
	srq2 = rig_srq(OTHER_PD, XRCD, cq2);
}

static struct roce_pkt to(uint32_t srqn, struct roce_pkt pkt)
{
	pkt.srqn = srqn;
	return pkt;
}

/* ---- the target ---- */

static void receives(void)
{
	struct ibv_wc wc;

	target_up();
	CHECK_EQ(post_recv(1, 64, 8000), 0);
	CHECK_EQ(post_recv(2, 0, 8), 0);
	rx(REQ2(SEND_FIRST, SEND_LAST_WITH_IMMEDIATE, R, 5000, pattern));
	TX_ACK(R + 4);
	wc = RWC(SUCCESS, 1);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.byte_len, 5000);
	CHECK_EQ(wc.src_qp, PEER_QPN);
	CHECK_EQ(wc.wc_flags, IBV_WC_WITH_IMM);
	CHECK_EQ(wc.imm_data, 0x55667788);
	CHECK(!memcmp(rig.mem + 64, pattern, 5000));
	rx(WRITE(ONLY_WITH_IMMEDIATE, R + 5, 9000, 100, 100, pattern));
	TX_ACK(R + 5);
	wc = RWC(SUCCESS, 2);
	CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(!memcmp(rig.mem + 9000, pattern, 100));
	wc_none(rig.scq);
}

static void each_message_to_its_srq(void)
{
	struct ibv_sge sge = {.addr = IOVA + 4096, .length = 64};
	struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;
	struct hca_mr *mr;
	uint32_t i;

	target_up();
	second_srq();
	mr = rig_mr(rig.mem, MEM_LEN, IOVA, IBV_ACCESS_LOCAL_WRITE, OTHER_PD, false);
	sge.lkey = hca_mr_key(mr);
	for (i = 0; i < 8; i++) {
		CHECK_EQ(post_recv(1, 0, 64), 0);
		CHECK_EQ(hca_post_srq_recv(srq2, &wr, &bad), 0);
		rx(REQ(SEND_ONLY, R + 2 * i, 8, pattern + i));
		TX_ACK(R + 2 * i);
		RWC(SUCCESS, 1);
		CHECK(!memcmp(rig.mem, pattern + i, 8));
		rx(to(hca_srq_num(srq2), REQ(SEND_ONLY, R + 2 * i + 1, 9, pattern + i)));
		TX_ACK(R + 2 * i + 1);
		wc_none(rig.rcq);
		wc_next(cq2, IBV_WC_SUCCESS, 2);
		CHECK(!memcmp(rig.mem + 4096, pattern + i, 9));
	}
}

/* memory that READs, WRITEs and atomics name is looked for in the protection domain of the SRQ that they name */
static void rights_by_srq(void)
{
	uint64_t value = 41;

	target_up();
	second_srq();
	memcpy(rig.mem + 64, &value, 8);
	rx(WRITE2(FIRST, LAST, R, 4096, 3000, 3000, pattern));
	TX_ACK(R + 2);
	CHECK(!memcmp(rig.mem + 4096, pattern, 3000));
	rx(pkt_read(R + 3, 4096, 3000));
	CHECK(!memcmp(TX2(RDMA_READ_RESPONSE_FIRST, RDMA_READ_RESPONSE_LAST, R + 3, 3, 3000).payload, pattern, 3000));
	rx(pkt_atomic(false, R + 6, 64, 1, 0));
	CHECK_EQ(TX(ATOMIC_ACKNOWLEDGE, R + 6, 1, 0).atomic_orig, 41);
	memcpy(&value, rig.mem + 64, 8);
	CHECK_EQ(value, 42);
	/* asked for again: the READ is executed, the atomic is not; with an SRQ that is not there, nothing is */
	rx(pkt_read(R + 3, 4096, 3000));
	TX2(RDMA_READ_RESPONSE_FIRST, RDMA_READ_RESPONSE_LAST, R + 3, 3, 3000);
	rx(pkt_atomic(false, R + 6, 64, 1, 0));
	CHECK_EQ(TX(ATOMIC_ACKNOWLEDGE, R + 6, 1, 0).atomic_orig, 41);
	rx(to(1, pkt_read(R + 3, 4096, 3000)));
	rx(to(hca_srq_num(srq2), pkt_read(R + 3, 4096, 3000)));
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

/* how the QP is left, by a request that is refused; and brought back */
static void refused(struct roce_pkt pkt, uint8_t syndrome)
{
	unsigned events = ev_qp[IBV_EVENT_QP_ACCESS_ERR], last = ev_qp[IBV_EVENT_QP_LAST_WQE_REACHED];

	rx(pkt);
	TX_NAK(syndrome, pkt.psn);
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
	CHECK_EQ(ev_qp[IBV_EVENT_QP_ACCESS_ERR], events + (syndrome != AETH_NAK_INVALID_REQ));
	CHECK_EQ(ev_qp[IBV_EVENT_QP_LAST_WQE_REACHED], last + 1);
	rig_modify_state(rig.qp, IBV_QPS_RESET);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_INIT), 0);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTR), 0);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTS), 0);
}

static void other_pd_is_refused(void)
{
	uint32_t n;

	target_up();
	second_srq();
	n = hca_srq_num(srq2);
	refused(to(n, WRITE(ONLY, R, 0, 8, 8, pattern)), AETH_NAK_REM_ACC_ERR);
	refused(to(n, pkt_read(R, 0, 8)), AETH_NAK_REM_ACC_ERR);
	refused(to(n, pkt_atomic(true, R, 0, 1, 2)), AETH_NAK_REM_ACC_ERR);
}

/* no such SRQ, or one that is not of the domain: each kind of request, no receive taken */
static void not_of_the_domain(void)
{
	struct hca_srq *other_domain, *plain, *gone, *other_device;
	struct hca_dev *dev = rig.dev;
	uint32_t n[8], i;

	target_up();
	CHECK_EQ(post_recv(1, 0, 64), 0);
	other_domain = rig_srq(PD, XRCD + 1, rig.rcq);
	plain = rig_srq(PD, 0, NULL);
	gone = rig_srq(PD, XRCD, rig.rcq);
	dev = rig.dev;
	CHECK_EQ(hca_dev_create(opt.profile, rig.stat, 1, &rig.dev), 0);
	other_device = rig_srq(PD, XRCD, rig.rcq);
	rig.dev = dev;
	n[0] = 0;
	n[1] = ROCE_QPN_MASK;
	n[2] = hca_srq_num(other_domain);
	n[3] = hca_srq_num(plain);
	n[4] = hca_srq_num(gone);
	n[5] = hca_srq_num(other_device);
	n[6] = hca_srq_num(rig.srq) ^ 1u << QP_INDEX_BITS; /* another process's */
	n[7] = hca_qp_num(rig.qp) + 1000;
	hca_srq_destroy(gone);
	for (i = 0; i < 8; i++) {
		refused(to(n[i], REQ(SEND_ONLY, R, 8, pattern)), AETH_NAK_INVALID_RD_REQ);
		refused(to(n[i], REQ(SEND_FIRST, R, 1024, pattern)), AETH_NAK_INVALID_RD_REQ);
		refused(to(n[i], WRITE(ONLY, R, 0, 8, 8, pattern)), AETH_NAK_INVALID_RD_REQ);
		refused(to(n[i], pkt_read(R, 0, 8)), AETH_NAK_INVALID_RD_REQ);
		refused(to(n[i], pkt_atomic(false, R, 0, 1, 0)), AETH_NAK_INVALID_RD_REQ);
	}
	wc_none(rig.rcq);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	RWC(SUCCESS, 1);
}

/* a message is for one SRQ from its first packet to its last */
static void srq_changes_amid(void)
{
	target_up();
	second_srq();
	CHECK_EQ(post_recv(1, 0, 8000), 0);
	rx(REQ(SEND_FIRST, R, 1024, pattern));
	TX_ACK(R);
	refused(to(hca_srq_num(srq2), REQ(SEND_MIDDLE, R + 1, 1024, pattern)), AETH_NAK_INVALID_REQ);
	RWC(REM_INV_REQ_ERR, 1);
	rx(WRITE(FIRST, R, 0, 3000, 1024, pattern));
	TX_ACK(R);
	refused(to(0, WRITE(LAST, R + 1, 0, 0, 1000, pattern)), AETH_NAK_INVALID_REQ);
	wc_none(rig.rcq);
	wc_none(cq2);
}

static void no_receive(void)
{
	target_up();
	rx(REQ(SEND_ONLY, R, 8, pattern));
	TX_NAK(AETH_RNR_NAK | 12, R);
	rx(WRITE(FIRST, R, 0, 1500, 1024, pattern));
	TX_ACK(R);
	rx(WRITE(LAST_WITH_IMMEDIATE, R + 1, 0, 0, 476, pattern + 1024));
	TX_NAK(AETH_RNR_NAK | 12, R + 1);
	CHECK_EQ(post_recv(1, 0, 64), 0);
	rx(WRITE(LAST_WITH_IMMEDIATE, R + 1, 0, 0, 476, pattern + 1024));
	TX_ACK(R + 1);
	RWC(SUCCESS, 1);
	CHECK(!memcmp(rig.mem, pattern, 1500));
	rx(REQ(SEND_ONLY, R + 2, 8, pattern));
	TX_NAK(AETH_RNR_NAK | 12, R + 2);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

static void gap_is_told_once(void)
{
	target_up();
	rx(WRITE(ONLY, R + 1, 0, 8, 8, pattern));
	TX_NAK(AETH_NAK_PSN_SEQ_ERROR, R);
	rx(WRITE(ONLY, R + 2, 0, 8, 8, pattern));
	TX_NONE();
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	TX_ACK(R);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

/* the SRQ's receive cannot be written: the initiator is told that it is not its fault */
static void receive_with_a_bad_key(void)
{
	struct ibv_sge sge = {IOVA, 64, 0x77};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	target_up();
	CHECK_EQ(hca_post_srq_recv(rig.srq, &wr, &bad), 0);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	TX_NAK(AETH_NAK_REM_OP_ERR, R);
	RWC(LOC_PROT_ERR, 1);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
}

static void limit_is_told(void)
{
	struct ibv_srq_attr attr = {.srq_limit = 2};

	target_up();
	CHECK_EQ(hca_srq_modify(rig.srq, &attr, IBV_SRQ_LIMIT), 0);
	CHECK_EQ(post_recv(1, 0, 64) | post_recv(2, 0, 64), 0);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	TX_ACK(R);
	RWC(SUCCESS, 1);
	CHECK_EQ(ev_srq_limit, 1);
}

/* ---- an SRQ goes ---- */

static void destroyed_amid_a_message(void)
{
	uint32_t n;

	target_up();
	second_srq();
	CHECK_EQ(post_recv(1, 0, 8000), 0);
	rx(REQ(SEND_FIRST, R, 1024, pattern));
	TX_ACK(R);
	n = hca_srq_num(rig.srq);
	hca_srq_destroy(srq2); /* not this one's */
	TX_NONE();
	hca_srq_destroy(rig.srq);
	TX_NAK(AETH_NAK_INVALID_RD_REQ, R + 1);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
	CHECK_EQ(ev_qp[IBV_EVENT_QP_ACCESS_ERR], 1);
	hca_cq_destroy(rig.rcq); /* nothing comes there any more */
	rig.srq = NULL;
	rx(to(n, REQ(SEND_LAST, R + 1, 8, pattern)));
	TX_NONE();
}

static void destroyed_between_messages(void)
{
	uint32_t n;

	target_up();
	CHECK_EQ(post_recv(1, 0, 64) | post_recv(2, 0, 64), 0);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	TX_ACK(R);
	RWC(SUCCESS, 1);
	rx(WRITE(ONLY, R + 1, 0, 8, 8, pattern));
	TX_ACK(R + 1);
	n = hca_srq_num(rig.srq);
	hca_srq_destroy(rig.srq);
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	rig.srq = rig_srq(PD, XRCD, rig.rcq);
	CHECK(hca_srq_num(rig.srq) != n); /* not used again at once */
	CHECK_EQ(post_recv(3, 0, 64), 0);
	rx(REQ(SEND_ONLY, R + 2, 8, pattern));
	TX_ACK(R + 2);
	RWC(SUCCESS, 3);
	refused(to(n, REQ(SEND_ONLY, R + 3, 8, pattern)), AETH_NAK_INVALID_RD_REQ);
}

/* ---- an SRQ is going: it has no number any more, and the target has not been told yet ---- */

static int may_go_on, holds;

static void *hold_lock(void *qp)
{
	fl_lock(&((struct hca_qp *)qp)->lock);
	__atomic_store_n(&holds, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&may_go_on, __ATOMIC_SEQ_CST))
		usleep(100);
	fl_unlock(&((struct hca_qp *)qp)->lock);
	return NULL;
}

static void *destroy(void *srq)
{
	hca_srq_destroy(srq);
	return NULL;
}

/* QPs are told one after another: the one before ours is busy. Returns the number that it had. */
static uint32_t begin_to_destroy(struct hca_qp *before, pthread_t t[2])
{
	uint32_t n = hca_srq_num(rig.srq);

	CHECK(hca_qp_num(before) < hca_qp_num(rig.qp));
	t[0] = rig_thread(hold_lock, before);
	while (!__atomic_load_n(&holds, __ATOMIC_SEQ_CST))
		usleep(100);
	t[1] = rig_thread(destroy, rig.srq);
	while (hca_srq_num(rig.srq))
		usleep(100);
	return n;
}

static void end_of_destroy(pthread_t t[2])
{
	__atomic_store_n(&may_go_on, 1, __ATOMIC_SEQ_CST);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	rig.srq = NULL;
	TX_NONE(); /* it has been said */
}

static struct hca_qp *second_target(void)
{
	struct hca_qp *first = rig.qp;

	rig.qp = rig_qp_new();
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_INIT), 0);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTR), 0);
	return first;
}

static void going_amid_a_message(void)
{
	struct hca_qp *first;
	pthread_t t[2];
	uint32_t n;

	target_up();
	first = second_target();
	CHECK_EQ(post_recv(1, 0, 8000), 0);
	rx(REQ(SEND_FIRST, R, 1024, pattern));
	TX_ACK(R);
	n = begin_to_destroy(first, t);
	rx(to(n, REQ(SEND_MIDDLE, R + 1, 1024, pattern)));
	TX_NAK(AETH_NAK_INVALID_RD_REQ, R + 1); /* as between messages, and when it has gone */
	RWC(REM_INV_REQ_ERR, 1);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
	end_of_destroy(t);
}

/* the receive is held since a page fault */
static void going_when_a_request_comes_again(void)
{
	struct hca_qp *first;
	pthread_t t[2];
	uint32_t n;

	opt.odp = true;
	opt.fault_model = "connectx";
	target_up();
	first = second_target();
	fake_sleeps.start = (uintptr_t)rig.mem;
	fake_sleeps.end = fake_sleeps.start + 4096;
	CHECK_EQ(post_recv(1, 0, 64), 0);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	TX_NAK(AETH_RNR_NAK | 12, R);
	fake_gate_wait(1);
	fake_gate_open(0);
	rig_workers_idle();
	n = begin_to_destroy(first, t);
	rx(to(n, REQ(SEND_ONLY, R, 8, pattern)));
	TX_NAK(AETH_NAK_INVALID_RD_REQ, R);
	RWC(REM_INV_REQ_ERR, 1);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
	end_of_destroy(t);
}

static void sleeps(uint32_t off, uint32_t len)
{
	fake_sleeps.start = (uintptr_t)rig.mem + off;
	fake_sleeps.end = fake_sleeps.start + len;
	fake_gate_close();
}

static void page_fault_in_a_receive(void)
{
	opt.odp = true;
	target_up();
	sleeps(0, 1 << 16);
	CHECK_EQ(post_recv(1, 0, 20000), 0);
	CHECK_EQ(post_recv(2, 1 << 20, 64), 0);
	rx(REQ2(SEND_FIRST, SEND_LAST, R, 10000, pattern));
	rx(REQ(SEND_ONLY, R + 10, 8, pattern)); /* waits behind it */
	fake_gate_wait(1);
	TX_NONE();
	wc_none(rig.rcq);
	fake_gate_open(0);
	rig_workers_idle();
	RWC(SUCCESS, 1);
	RWC(SUCCESS, 2);
	TX_ACK(R + 9);
	TX_ACK(R + 10);
	CHECK(!memcmp(rig.mem, pattern, 10000));
}

static void page_fault_in_a_target_of_rdma(void)
{
	opt.odp = true;
	target_up();
	sleeps(0, 1 << 16);
	rx(WRITE2(FIRST, LAST, R, 0, 10000, 10000, pattern));
	fake_gate_wait(1);
	TX_NONE();
	fake_gate_open(0);
	rig_workers_idle();
	TX_ACK(R + 9);
	CHECK(!memcmp(rig.mem, pattern, 10000));
	rx(pkt_read(R + 10, 1 << 20, 100));
	TX(RDMA_READ_RESPONSE_ONLY, R + 10, 1, 100);
	rx(pkt_atomic(false, R + 11, 2 << 20, 1, 0));
	TX(ATOMIC_ACKNOWLEDGE, R + 11, 1, 0);
	CHECK_EQ(cnt(FL_CNT_page_faults_denied), 0);
}

static void destroyed_in_a_page_fault(void)
{
	opt.odp = true;
	target_up();
	sleeps(0, 4096);
	CHECK_EQ(post_recv(1, 0, 64), 0);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	fake_gate_wait(1);
	hca_srq_destroy(rig.srq);
	rig.srq = NULL;
	TX_NAK(AETH_NAK_INVALID_RD_REQ, R);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
	hca_cq_destroy(rig.rcq);
	fake_gate_open(0);
	rig_workers_idle();
	TX_NONE();
}

/* a fault that is answered by RNR NAK keeps the receive; the peer then asks for something else at that PSN */
static void another_request_after_a_fault(void)
{
	struct roce_pkt pkt;

	opt.odp = true;
	opt.fault_model = "connectx";
	target_up();
	second_srq();
	sleeps(0, 4096);
	CHECK_EQ(post_recv(1, 0, 64), 0);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	TX_NAK(AETH_RNR_NAK | 12, R);
	fake_gate_wait(1);
	fake_gate_open(0);
	rig_workers_idle();
	pkt = WRITE(ONLY, R, 0, 8, 8, pattern); /* of the same SRQ: the receive is kept */
	pkt.rkey = hca_mr_key(rig_mr(rig.mem + 8192, 4096, IOVA, IBV_ACCESS_REMOTE_WRITE, PD, false));
	rx(pkt);
	TX_ACK(R);
	rx(to(hca_srq_num(srq2), REQ(SEND_ONLY, R + 1, 8, pattern)));
	TX_NAK(AETH_NAK_INVALID_REQ, R + 1);
	RWC(REM_INV_REQ_ERR, 1);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
}

/* ---- what a target and an initiator are not ---- */

static void half_a_connection(void)
{
	struct ibv_recv_wr wr = {.wr_id = 1}, *bad;

	target_up();
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 8)), EINVAL);
	CHECK_EQ(post((struct ibv_send_wr){.opcode = IBV_WR_SEND}), ENOMEM);
	CHECK_EQ(hca_post_recv(rig.qp, &wr, &bad), EINVAL);
	rx_ack(100);
	rx(pkt_read_resp(IBV_OPCODE_RC_RDMA_READ_RESPONSE_ONLY, IBV_OPCODE_RC_RDMA_READ_RESPONSE_ONLY, 100, 8, pattern));
	CHECK_EQ(cnt(FL_CNT_rx_unknown_qp), 2);
	TX_NONE();
	rig_again();
	opt.use_srq = false;
	opt.type = IBV_QPT_XRC_SEND;
	rig_up();
	CHECK_EQ(hca_post_recv(rig.qp, &wr, &bad), EINVAL);
	rx(REQ(SEND_ONLY, R, 8, pattern));
	rx(WRITE(ONLY, R, 0, 8, 8, pattern));
	CHECK_EQ(cnt(FL_CNT_rx_unknown_qp), 2);
	TX_NONE();
}

/* every number from RC to the reserved ones: what is not XRC's is not for us */
static void other_transports(void)
{
	struct roce_pkt pkt;
	unsigned op, dropped = 0;

	target_up();
	for (op = 0; op < 0xa0; op++) {
		if (!(roce_opcode[op].flags & ROCE_F_VALID) || op == ROCE_OPCODE_CNP)
			continue;
		pkt = REQ(SEND_ONLY, R, 0, pattern);
		pkt.opcode = pkt.opcode_last = op;
		rx(pkt);
		CHECK_EQ(cnt(FL_CNT_rx_unknown_qp), ++dropped);
	}
	TX_NONE();
}

/* all who have it open are told, those who closed it are not */
static void every_open_is_told(void)
{
	struct hca_qp_open more[2] = {{.uobject = NULL}};

	target_up();
	hca_qp_open(rig.qp, &more[0]);
	hca_qp_open(rig.qp, &more[1]);
	rx(to(1, WRITE(ONLY, R, 0, 8, 8, pattern)));
	CHECK_EQ(ev_qp[IBV_EVENT_QP_ACCESS_ERR], 3);
	hca_qp_close(rig.qp, &more[0]);
	rig_modify_state(rig.qp, IBV_QPS_RESET);
	rig_modify_state(rig.qp, IBV_QPS_ERR);
	CHECK_EQ(ev_qp[IBV_EVENT_QP_LAST_WQE_REACHED], 3 + 2);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(receives), TEST(each_message_to_its_srq), TEST(rights_by_srq), TEST(other_pd_is_refused),
		TEST(not_of_the_domain), TEST(srq_changes_amid), TEST(no_receive), TEST(gap_is_told_once),
		TEST(receive_with_a_bad_key), TEST(limit_is_told),
		TEST(destroyed_amid_a_message), TEST(destroyed_between_messages), TEST(going_amid_a_message),
		TEST(going_when_a_request_comes_again), TEST(page_fault_in_a_receive),
		TEST(page_fault_in_a_target_of_rdma), TEST(destroyed_in_a_page_fault),
		TEST(another_request_after_a_fault), TEST(half_a_connection), TEST(other_transports),
		TEST(every_open_is_told), {NULL}};

	return rig_main(argc, argv, tests);
}
