/* SPDX-License-Identifier: BSD-2-Clause */
/* Unreliable connections (9.8): nobody answers, nothing is sent twice, what is broken is dropped. */
#include <errno.h>
#include "rig.h"

#define R	  200
#define UC(op)	  (IBV_OPCODE_UC | IBV_OPCODE_##op)
#define UCREQ(op, psn, len, data) pkt_req(UC(op), UC(op), psn, len, data)

static void up(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = opt.mtu,
				   .rq_psn = R,
				   .dest_qp_num = PEER_QPN};
	static const uint8_t gid[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};

	opt.type = IBV_QPT_UC;
	opt.timeout = opt.retry_cnt = opt.rnr_retry = 0;
	rig_node();
	rig.qp = rig_qp_new();
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_INIT), 0);
	CHECK_EQ(hca_qp_modify(rig.qp, &attr,
			       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				       IBV_QP_RQ_PSN,
			       gid),
		 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = opt.sq_psn;
	CHECK_EQ(hca_qp_modify(rig.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN, gid), 0);
}

static struct roce_pkt uc_write(uint8_t op, uint8_t op_last, uint32_t psn, uint32_t off,
				uint32_t dma_len, uint32_t len, const void *data)
{
	return pkt_write(op, op_last, psn, off, dma_len, len, data);
}

static void sent_is_done(void)
{
	struct roce_pkt pkt;

	up();
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 3, 5000)), 0);
	SWC(SUCCESS, 1);
	pkt = tx_train(__FILE__, __LINE__, UC(SEND_FIRST), UC(SEND_LAST), 100, 5, 5000);
	CHECK(!pkt.ackreq);
	CHECK(!memcmp(pkt.payload, rig.mem + 3, 5000));
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, 8)), 0);
	tx_train(__FILE__, __LINE__, UC(RDMA_WRITE_ONLY_WITH_IMMEDIATE),
		 UC(RDMA_WRITE_ONLY_WITH_IMMEDIATE), 105, 1, 8);
	SWC(SUCCESS, 2);
	rig_advance(1000000 * MS);
	TX_NONE();
}

static void many_and_long(void)
{
	enum { N = SANITIZED ? 10 : 100 };
	uint32_t bytes = 0, psn = 100, i;
	struct roce_pkt pkt;

	up();
	for (i = 0; i < N; i++) {
		CHECK_EQ(post(wr_data(IBV_WR_RDMA_WRITE, i, 0, 3 << 20)), 0);
		SWC(SUCCESS, i);
		while (fake_tx_pop(&pkt)) {
			CHECK_EQ(pkt.psn, psn);
			psn = psn_add(psn, pkt.npkts);
			bytes += pkt.payload_len;
		}
		CHECK_EQ(bytes, (i + 1) * (3u << 20));
	}
}

static void no_reads_no_atomics(void)
{
	up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 8)), EINVAL);
	CHECK_EQ(post(wr_atomic(false, 1, 1, 0)), EINVAL);
}

static void no_room(void)
{
	up();
	fake_net_room(0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 8)), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 0, 8)), 0);
	wc_none(rig.scq);
	fake_net_room(1);
	SWC(SUCCESS, 1);
	wc_none(rig.scq);
	fake_net_room(-1);
	SWC(SUCCESS, 2);
}

/* 10.3.1: the send queue alone is in error, until the consumer says otherwise */
static void local_error(void)
{
	struct ibv_send_wr wr;

	up();
	wr = wr_data(IBV_WR_SEND, 1, 0, 8);
	wr.sg_list[0].lkey = 1;
	CHECK_EQ(post(wr), 0);
	SWC(LOC_PROT_ERR, 1);
	CHECK_EQ(qp_state(), IBV_QPS_SQE);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 0, 8)), 0);
	SWC(WR_FLUSH_ERR, 2);
	TX_NONE();
	CHECK_EQ(post_recv(3, 0, 8), 0);
	rx(UCREQ(SEND_ONLY, R, 8, pattern));
	RWC(SUCCESS, 3);
	rig_modify_state(rig.qp, IBV_QPS_RTS);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 4, 0, 8)), 0);
	SWC(SUCCESS, 4);
}

static void receives(void)
{
	up();
	CHECK_EQ(post_recv(1, 0, 8192), 0);
	rx(pkt_req(UC(SEND_FIRST), UC(SEND_LAST_WITH_IMMEDIATE), R, 5000, pattern));
	CHECK_EQ(RWC(SUCCESS, 1).imm_data, 0x55667788);
	CHECK(!memcmp(rig.mem, pattern, 5000));
	rx(uc_write(UC(RDMA_WRITE_ONLY), UC(RDMA_WRITE_ONLY), R + 5, 9000, 100, 100, pattern));
	CHECK(!memcmp(rig.mem + 9000, pattern, 100));
	TX_NONE();
}

static void a_lost_packet_drops_its_message(void)
{
	up();
	CHECK_EQ(post_recv(1, 0, 8192), 0);
	rx(UCREQ(SEND_FIRST, R, 1024, pattern));
	rx(UCREQ(SEND_LAST, R + 2, 8, pattern)); /* R + 1 is lost */
	wc_none(rig.rcq);
	rx(UCREQ(SEND_MIDDLE, R + 3, 1024, pattern));
	rx(UCREQ(SEND_LAST, R + 4, 8, pattern));
	wc_none(rig.rcq);
	rx(UCREQ(SEND_ONLY, R + 5, 9, pattern + 100)); /* the next one is good, and has the receive */
	CHECK_EQ(RWC(SUCCESS, 1).byte_len, 9);
	CHECK(!memcmp(rig.mem, pattern + 100, 9));
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
}

static void a_new_message_ends_the_old(void)
{
	up();
	CHECK_EQ(post_recv(1, 0, 8192), 0);
	rx(UCREQ(SEND_FIRST, R, 1024, pattern));
	rx(uc_write(UC(RDMA_WRITE_ONLY), UC(RDMA_WRITE_ONLY), R + 1, 9000, 8, 8, pattern));
	CHECK(!memcmp(rig.mem + 9000, pattern, 8));
	rx(UCREQ(SEND_LAST, R + 2, 8, pattern)); /* of none */
	wc_none(rig.rcq);
	rx(UCREQ(SEND_ONLY, R + 3, 8, pattern));
	RWC(SUCCESS, 1);
}

static void silent(struct roce_pkt pkt)
{
	rx(pkt);
	TX_NONE();
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	rig_is(rig.mem, 64, 0);
	CHECK_EQ(ev_qp[IBV_EVENT_QP_ACCESS_ERR], 0);
}

static void what_cannot_be_is_dropped(void)
{
	struct roce_pkt pkt;

	up();
	silent(UCREQ(SEND_ONLY, R, 8, pattern)); /* no receive */
	pkt = uc_write(UC(RDMA_WRITE_ONLY), UC(RDMA_WRITE_ONLY), R + 1, 0, 8, 8, pattern);
	pkt.rkey ^= 1;
	silent(pkt);
	silent(uc_write(UC(RDMA_WRITE_ONLY), UC(RDMA_WRITE_ONLY), R + 2, 0, 8, 4, pattern));
	silent(uc_write(UC(RDMA_WRITE_LAST), UC(RDMA_WRITE_LAST), R + 3, 0, 8, 8, pattern));
	silent(uc_write(UC(RDMA_WRITE_ONLY_WITH_IMMEDIATE), UC(RDMA_WRITE_ONLY_WITH_IMMEDIATE), R + 4, 0,
			8, 8, pattern));
	silent(WRITE(ONLY, R, 0, 8, 8, pattern)); /* another transport */
	silent(pkt_read(R, 0, 8));
	CHECK_EQ(post_recv(1, 0, 4), 0);
	silent(UCREQ(SEND_ONLY, R + 5, 8, pattern)); /* too long for the receive */
	wc_none(rig.rcq);
	rx(UCREQ(SEND_ONLY, R + 6, 4, pattern));
	RWC(SUCCESS, 1);
}

static void without_remote_write(void)
{
	opt.qp_access = 0;
	up();
	silent(uc_write(UC(RDMA_WRITE_ONLY), UC(RDMA_WRITE_ONLY), R, 0, 8, 8, pattern));
}

static void a_fault_keeps_the_order(void)
{
	opt.odp = true;
	up();
	fake_sleeps.start = (uintptr_t)rig.mem;
	fake_sleeps.end = fake_sleeps.start + 4096;
	CHECK_EQ(post_recv(1, 0, 64), 0);
	CHECK_EQ(post_recv(2, 8192, 64), 0);
	rx(UCREQ(SEND_ONLY, R, 8, pattern));
	rx(UCREQ(SEND_ONLY, R + 1, 8, pattern + 8));
	wc_none(rig.rcq);
	fake_gate_wait(1);
	fake_gate_open(0);
	rig_workers_idle();
	RWC(SUCCESS, 1);
	RWC(SUCCESS, 2);
	CHECK(!memcmp(rig.mem, pattern, 8));
	CHECK(!memcmp(rig.mem + 8192, pattern + 8, 8));
	TX_NONE();
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(sent_is_done), TEST(many_and_long), TEST(no_reads_no_atomics), TEST(no_room),
		TEST(local_error), TEST(receives), TEST(a_lost_packet_drops_its_message),
		TEST(a_new_message_ends_the_old), TEST(what_cannot_be_is_dropped),
		TEST(without_remote_write), TEST(a_fault_keeps_the_order), {NULL, NULL}};

	return rig_main(argc, argv, tests);
}
