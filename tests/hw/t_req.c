/* SPDX-License-Identifier: BSD-2-Clause */
/* The requester: which packets a work request becomes, and how many may be out. */
#include <arpa/inet.h>
#include <errno.h>
#include "rig.h"

/* every length around the MTU, every opcode: PSNs, opcodes of first and last packet, payload */
static void one_length(enum ibv_wr_opcode op, uint32_t len, uint32_t psn)
{
	bool send = op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM;
	bool imm = op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
	uint32_t n = len ? (len + 1023) / 1024 : 1, off = 333 + len % 7;
	uint8_t first, last;
	struct roce_pkt pkt;

	if (n == 1) {
		first = send ? IBV_OPCODE_RC_SEND_ONLY : IBV_OPCODE_RC_RDMA_WRITE_ONLY;
		first += imm;
		last = first;
	} else {
		first = send ? IBV_OPCODE_RC_SEND_FIRST : IBV_OPCODE_RC_RDMA_WRITE_FIRST;
		last = (send ? IBV_OPCODE_RC_SEND_LAST : IBV_OPCODE_RC_RDMA_WRITE_LAST) + imm;
	}
	CHECK_EQ(post(wr_data(op, len, off, len)), 0);
	pkt = tx_train(__FILE__, __LINE__, first, last, psn, n, len);
	CHECK(pkt.ackreq);
	CHECK(!len || !memcmp(pkt.payload, rig.mem + off, len));
	if (!send) {
		CHECK_EQ(pkt.va, REMOTE_VA);
		CHECK_EQ(pkt.rkey, REMOTE_KEY);
		CHECK_EQ(pkt.dma_len, len);
	}
	if (imm)
		CHECK_EQ(pkt.imm, 0x11223344);
	TX_NONE();
	wc_none(rig.scq);
	rx_ack(psn + n - 1);
	CHECK_EQ(SWC(SUCCESS, len).opcode, send ? IBV_WC_SEND : IBV_WC_RDMA_WRITE);
}

static void lengths_around_the_mtu(void)
{
	static const uint32_t len[] = {0, 1, 3, 4, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 65535, 65536};
	static const enum ibv_wr_opcode ops[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
						 IBV_WR_RDMA_WRITE_WITH_IMM};
	uint32_t psn = opt.sq_psn;
	unsigned i, j;

	rig_up();
	for (i = 0; i < 4; i++) {
		for (j = 0; j < sizeof(len) / sizeof(len[0]); j++) {
			one_length(ops[i], len[j], psn);
			psn += len[j] ? (len[j] + 1023) / 1024 : 1;
		}
	}
}

static void long_message_is_several_trains(void)
{
	struct roce_pkt pkt;

	fake_max_train = 10000; /* nine packets of 1024 */
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_WRITE_WITH_IMM, 1, 5, 20000)), 0);
	pkt = TX2(RDMA_WRITE_FIRST, RDMA_WRITE_MIDDLE, 100, 9, 9216);
	CHECK(!memcmp(pkt.payload, rig.mem + 5, 9216));
	pkt = TX(RDMA_WRITE_MIDDLE, 109, 9, 9216);
	CHECK(!memcmp(pkt.payload, rig.mem + 5 + 9216, 9216));
	pkt = TX2(RDMA_WRITE_MIDDLE, RDMA_WRITE_LAST_WITH_IMMEDIATE, 118, 2, 1568);
	CHECK(!memcmp(pkt.payload, rig.mem + 5 + 18432, 1568));
	TX_NONE();
	rx_ack(119);
	SWC(SUCCESS, 1);
}

static void last_packet_alone_in_its_train(void)
{
	fake_max_train = 4096;
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 4097)), 0);
	TX2(SEND_FIRST, SEND_MIDDLE, 100, 4, 4096);
	TX(SEND_LAST, 104, 1, 1);
	TX_NONE();
}

static void several_sges_and_inline(void)
{
	struct ibv_sge sge[4] = {{IOVA + 10, 700, 0}, {IOVA + 5000, 0, 0}, {IOVA + 9001, 900, 0},
				 {IOVA + 20000, 1, 0}};
	struct ibv_send_wr wr = wr_data(IBV_WR_SEND, 1, 0, 0), *bad;
	struct roce_pkt pkt;
	char text[] = "inline, from memory without a key";
	int i;

	rig_up();
	for (i = 0; i < 4; i++)
		sge[i].lkey = rig.key;
	wr.sg_list = sge;
	wr.num_sge = 4;
	CHECK_EQ(post(wr), 0);
	pkt = TX2(SEND_FIRST, SEND_LAST, 100, 2, 1601);
	CHECK(!memcmp(pkt.payload, rig.mem + 10, 700));
	CHECK(!memcmp(pkt.payload + 700, rig.mem + 9001, 900));
	CHECK_EQ(pkt.payload[1600], rig.mem[20000]);

	sge[0] = (struct ibv_sge){(uintptr_t)text, 10, 99};
	sge[1] = (struct ibv_sge){(uintptr_t)text + 10, sizeof(text) - 10, 98};
	wr.num_sge = 2;
	wr.send_flags = IBV_SEND_INLINE;
	CHECK_EQ(hca_post_send(rig.qp, &wr, &bad), 0);
	memset(text, 0, sizeof(text)); /* the buffer is the application's again */
	pkt = TX(SEND_ONLY, 102, 1, sizeof(text));
	CHECK(!strcmp((const char *)pkt.payload, "inline, from memory without a key"));

	sge[0].length = 129; /* one more than the queue's cap */
	wr.num_sge = 1;
	CHECK_EQ(hca_post_send(rig.qp, &wr, &bad), EINVAL);
	CHECK(bad == &wr);
}

static void no_sge_at_all(void)
{
	struct ibv_send_wr wr = {.wr_id = 9, .opcode = IBV_WR_SEND}, *bad;
	struct ibv_recv_wr rwr = {.wr_id = 8}, *rbad;

	rig_up();
	CHECK_EQ(hca_post_send(rig.qp, &wr, &bad), 0);
	wr.send_flags = IBV_SEND_INLINE;
	CHECK_EQ(hca_post_send(rig.qp, &wr, &bad), 0);
	TX(SEND_ONLY, 100, 1, 0);
	TX(SEND_ONLY, 101, 1, 0);
	CHECK_EQ(hca_post_recv(rig.qp, &rwr, &rbad), 0);
	rx(REQ(SEND_ONLY, 200, 0, NULL));
	CHECK_EQ(RWC(SUCCESS, 8).byte_len, 0);
}

static void atomics(void)
{
	struct roce_pkt pkt;
	uint64_t v;

	rig_up();
	CHECK_EQ(post(wr_atomic(true, 1, 0x1111, 0x2222)), 0);
	CHECK_EQ(post(wr_atomic(false, 2, 5, 0)), 0);
	pkt = TX(COMPARE_SWAP, 100, 1, 0);
	CHECK_EQ(pkt.compare, 0x1111);
	CHECK_EQ(pkt.swap_add, 0x2222);
	CHECK_EQ(pkt.va, REMOTE_VA);
	CHECK_EQ(pkt.rkey, REMOTE_KEY);
	pkt = TX(FETCH_ADD, 101, 1, 0);
	CHECK_EQ(pkt.swap_add, 5);
	CHECK_EQ(pkt.compare, 0);
	TX_NONE();
	rx_atomic_ack(100, 0x0102030405060708);
	CHECK_EQ(SWC(SUCCESS, 1).opcode, IBV_WC_COMP_SWAP);
	memcpy(&v, rig.mem + 64, 8);
	CHECK_EQ(v, 0x0102030405060708);
	rx_atomic_ack(101, 77);
	CHECK_EQ(SWC(SUCCESS, 2).opcode, IBV_WC_FETCH_ADD);
	memcpy(&v, rig.mem + 64, 8);
	CHECK_EQ(v, 77);
}

static void atomic_arguments(void)
{
	struct ibv_send_wr wr;

	rig_up();
	wr = wr_atomic(true, 1, 1, 1);
	wr.wr.atomic.remote_addr += 4;
	CHECK_EQ(post(wr), EINVAL);
	wr = wr_atomic(true, 1, 1, 1);
	wr.sg_list[0].length = 7;
	CHECK_EQ(post(wr), EINVAL);
	wr = wr_atomic(true, 1, 1, 1);
	wr.send_flags = IBV_SEND_INLINE;
	CHECK_EQ(post(wr), EINVAL);
	wr = wr_data(IBV_WR_BIND_MW, 1, 0, 0);
	CHECK_EQ(post(wr), EINVAL);
	wr = wr_data(IBV_WR_SEND, 1, 0, 8);
	wr.num_sge = 5;
	CHECK_EQ(post(wr), EINVAL);
	TX_NONE();
}

/* the window: so many packets unacknowledged, and on when some are */
static void window(void)
{
	uint32_t psn = 100, bytes = 0;
	struct roce_pkt pkt;

	fake_link = "udp";
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_WRITE, 1, 0, 1000000)), 0);
	while (fake_tx_pop(&pkt)) {
		CHECK_EQ(pkt.psn, psn);
		psn += pkt.npkts;
		bytes += pkt.payload_len;
	}
	CHECK_EQ(bytes, FAKE_UDP_WINDOW);
	rx_ack(100); /* one packet is acknowledged: one more goes */
	TX(RDMA_WRITE_MIDDLE, psn, 1, 1024);
	TX_NONE();
	rx_ack(psn);
	pkt = TX(RDMA_WRITE_MIDDLE, psn + 1, 64, 65536);
	CHECK(!memcmp(pkt.payload, rig.mem + bytes + 1024, 65536));
}

static void read_in_pieces(void)
{
	static uint8_t buf[1000000];
	uint32_t psn = 100, va = 0, left = sizeof(buf), n;
	struct roce_pkt pkt;

	fake_link = "udp";
	rig_fill(buf, sizeof(buf), 3);
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 11, sizeof(buf))), 0);
	while (left) {
		n = left < FAKE_UDP_WINDOW ? left : FAKE_UDP_WINDOW;
		pkt = TX(RDMA_READ_REQUEST, psn, 1, 0);
		CHECK_EQ(pkt.va, REMOTE_VA + va);
		CHECK_EQ(pkt.dma_len, n);
		CHECK_EQ(pkt.rkey, REMOTE_KEY);
		TX_NONE();
		rx_read(psn, n, buf + va);
		psn += (n + 1023) / 1024;
		va += n;
		left -= n;
	}
	TX_NONE();
	CHECK_EQ(SWC(SUCCESS, 1).byte_len, sizeof(buf));
	CHECK(!memcmp(rig.mem + 11, buf, sizeof(buf)));
	/* the PSN after it is the one after its responses */
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 0, 1)), 0);
	TX(SEND_ONLY, psn, 1, 1);
}

static void max_rd_atomic(void)
{
	opt.max_rd_atomic = 2;
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 3000)), 0);
	CHECK_EQ(post(wr_atomic(false, 2, 1, 0)), 0);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 3, 0, 10)), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 4, 0, 10)), 0);
	TX(RDMA_READ_REQUEST, 100, 1, 0);
	TX(FETCH_ADD, 103, 1, 0);
	TX_NONE();
	rx_read(100, 3000, pattern);
	TX(RDMA_READ_REQUEST, 104, 1, 0);
	TX(SEND_ONLY, 105, 1, 10);
	TX_NONE();
	SWC(SUCCESS, 1);
	wc_none(rig.scq);
}

static void read_without_rd_atomic(void)
{
	opt.max_rd_atomic = 0;
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 10)), EINVAL);
	CHECK_EQ(post(wr_atomic(false, 1, 1, 0)), EINVAL);
}

static void zero_length_read(void)
{
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 0)), 0);
	CHECK_EQ(TX(RDMA_READ_REQUEST, 100, 1, 0).dma_len, 0);
	rx_read(100, 0, NULL);
	SWC(SUCCESS, 1);
}

static void fence(void)
{
	struct ibv_send_wr wr;

	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 1, 0, 3000)), 0);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_WRITE, 2, 0, 8)), 0); /* no fence: at once */
	wr = wr_data(IBV_WR_SEND, 3, 0, 8);
	wr.send_flags = IBV_SEND_FENCE;
	CHECK_EQ(post(wr), 0);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_WRITE, 4, 0, 8)), 0);
	TX(RDMA_READ_REQUEST, 100, 1, 0);
	TX(RDMA_WRITE_ONLY, 103, 1, 8);
	TX_NONE();
	rx(pkt_read_resp(IBV_OPCODE_RC_RDMA_READ_RESPONSE_FIRST, IBV_OPCODE_RC_RDMA_READ_RESPONSE_FIRST,
			 100, 1024, pattern));
	TX_NONE();
	rx(pkt_read_resp(IBV_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE, IBV_OPCODE_RC_RDMA_READ_RESPONSE_LAST,
			 101, 1976, pattern + 1024));
	SWC(SUCCESS, 1);
	TX(SEND_ONLY, 104, 1, 8);
	TX(RDMA_WRITE_ONLY, 105, 1, 8);
	TX_NONE();
}

static void psn_wraps(void)
{
	opt.sq_psn = 0xfffffe;
	rig_up();
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 5000)), 0);
	CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, 2, 0, 3000)), 0);
	TX2(SEND_FIRST, SEND_LAST, 0xfffffe, 5, 5000);
	TX(RDMA_READ_REQUEST, 3, 1, 0);
	rx_ack(0xffffff);
	wc_none(rig.scq);
	rx_nak(AETH_NAK_PSN_SEQ_ERROR, 1);
	TX2(SEND_MIDDLE, SEND_LAST, 1, 2, 5000 - 3072);
	TX(RDMA_READ_REQUEST, 3, 1, 0);
	rx_read(3, 3000, pattern);
	SWC(SUCCESS, 1);
	SWC(SUCCESS, 2);
	CHECK(!memcmp(rig.mem, pattern, 3000));
}

static void solicited_only_on_the_last_packet(void)
{
	struct ibv_send_wr wr;

	fake_max_train = 4096;
	rig_up();
	wr = wr_data(IBV_WR_SEND, 1, 0, 5000);
	wr.send_flags = IBV_SEND_SOLICITED;
	CHECK_EQ(post(wr), 0);
	CHECK(!TX2(SEND_FIRST, SEND_MIDDLE, 100, 4, 4096).se);
	CHECK(TX(SEND_LAST, 104, 1, 904).se);
}

/* the sender's own completion is not a solicited one: that is the receiver's matter */
static void solicited_send_does_not_wake_the_sender(void)
{
	struct ibv_send_wr wr;

	rig_up();
	hca_cq_req_notify(rig.scq, true);
	wr = wr_data(IBV_WR_SEND, 1, 0, 8);
	wr.send_flags = IBV_SEND_SOLICITED;
	CHECK_EQ(post(wr), 0);
	TX(SEND_ONLY, 100, 1, 8);
	rx_ack(100);
	SWC(SUCCESS, 1);
	CHECK_EQ(ev_comp, 0);
}

static void queue_full(void)
{
	unsigned i;

	opt.sq_depth = 3;
	opt.max_rd_atomic = 1;
	rig_up();
	for (i = 0; i < 3; i++)
		CHECK_EQ(post(wr_data(IBV_WR_SEND, i, 0, 1)), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 9, 0, 1)), ENOMEM);
	rx_ack(100);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 3, 0, 1)), 0);
	rx_ack(103);
	for (i = 0; i < 4; i++)
		SWC(SUCCESS, i);
}

/* a queue whose depth is no power of two, when its counters pass 2^32 */
static void queue_counters_wrap(void)
{
	unsigned i;

	opt.sq_depth = opt.rq_depth = 7;
	rig_up();
	rig.qp->sq_head = rig.qp->sq_send = rig.qp->sq_tail = 0xfffffff9;
	rig.qp->rq.head = rig.qp->rq.tail = 0xfffffff9;
	for (i = 0; i < 7; i++) {
		CHECK_EQ(post(wr_data(IBV_WR_SEND, i, i, 1)), 0);
		CHECK_EQ(post_recv(100 + i, i, 1), 0);
	}
	for (i = 0; i < 4; i++) {
		CHECK_EQ(TX(SEND_ONLY, 100 + i, 1, 1).payload[0], rig.mem[i]);
		rx_ack(100 + i);
		SWC(SUCCESS, i);
		CHECK_EQ(post(wr_data(IBV_WR_SEND, 7 + i, 7 + i, 1)), 0);
	}
	for (i = 4; i < 11; i++)
		CHECK_EQ(TX(SEND_ONLY, 100 + i, 1, 1).payload[0], rig.mem[i]);
	rx_ack(110);
	for (i = 4; i < 11; i++)
		SWC(SUCCESS, i);
	for (i = 0; i < 4; i++) {
		rx(REQ(SEND_ONLY, 200 + i, 1, pattern));
		RWC(SUCCESS, 100 + i);
		CHECK_EQ(post_recv(107 + i, i, 1), 0);
	}
	for (i = 4; i < 11; i++) {
		rx(REQ(SEND_ONLY, 200 + i, 1, pattern));
		RWC(SUCCESS, 100 + i);
	}
}

static void post_in_wrong_states(void)
{
	rig_node();
	rig.qp = rig_qp_new();
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 1)), EINVAL);
	CHECK_EQ(post_recv(1, 0, 8), EINVAL);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_INIT), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 1)), EINVAL);
	CHECK_EQ(post_recv(1, 0, 8), 0);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTR), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 1)), EINVAL);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTS), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 1)), 0);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(lengths_around_the_mtu), TEST(long_message_is_several_trains),
		TEST(last_packet_alone_in_its_train), TEST(several_sges_and_inline),
		TEST(no_sge_at_all), TEST(atomics), TEST(atomic_arguments), TEST(window),
		TEST(read_in_pieces), TEST(max_rd_atomic), TEST(read_without_rd_atomic),
		TEST(zero_length_read), TEST(fence), TEST(psn_wraps),
		TEST(solicited_only_on_the_last_packet), TEST(solicited_send_does_not_wake_the_sender),
		TEST(queue_full), TEST(queue_counters_wrap), TEST(post_in_wrong_states), {NULL, NULL}};

	return rig_main(argc, argv, tests);
}
