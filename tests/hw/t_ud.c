/* SPDX-License-Identifier: BSD-2-Clause */
/* Unreliable datagrams: addresses, Q_Keys, the GRH before the data, and what is dropped. */
#include <errno.h>
#include "rig.h"

#define QKEY	 0x11111111
#define QKEY_OWN 0x80000000u /* in a work request: the QP's */
#define SRC_QPN	 0x31313
#define MTU	 1024u
#define UD(op)	 IBV_OPCODE_UD_##op

static struct hca_av avs[6000];
static uint8_t grh[GRH_BYTES];

static const struct hca_av *av_of(struct ibv_ah *ah)
{
	return (const struct hca_av *)ah;
}

static struct ibv_ah *ah_to(uint32_t n)
{
	struct hca_av *av = &avs[n];

	*av = (struct hca_av){.pd = PD,
			      .sgid = {[10] = 0xff, 0xff, 10, 0, 0, 1},
			      .dgid = {[10] = 0xff, 0xff, 10, 1, n >> 8, n}};
	return (struct ibv_ah *)av;
}

static void state(enum ibv_qp_state s, int mask)
{
	struct ibv_qp_attr attr = {.qp_state = s, .qkey = QKEY, .port_num = 1, .sq_psn = opt.sq_psn};
	static const uint8_t gid[16];

	CHECK_EQ(hca_qp_modify(rig.qp, &attr, IBV_QP_STATE | mask, gid), 0);
}

static void to_rts(void)
{
	state(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	state(IBV_QPS_RTR, 0);
	state(IBV_QPS_RTS, IBV_QP_SQ_PSN);
}

static void up(void)
{
	struct hca_event_ops ops;
	uint32_t i;

	opt.type = IBV_QPT_UD;
	rig_node();
	ops = hca_event_ops;
	ops.av = av_of;
	hca_set_event_ops(&ops);
	rig.qp = rig_qp_new();
	to_rts();
	for (i = 0; i < GRH_BYTES; i++)
		grh[i] = 0xa0 + i;
}

static struct ibv_send_wr wr_to(uint32_t n, uint64_t id, uint32_t off, uint32_t len)
{
	struct ibv_send_wr wr = wr_data(IBV_WR_SEND, id, off, len);

	wr.wr.ud.ah = ah_to(n);
	wr.wr.ud.remote_qpn = PEER_QPN;
	wr.wr.ud.remote_qkey = 0x22222222;
	return wr;
}

static struct roce_pkt tx(uint8_t op, uint32_t psn, uint32_t len)
{
	return tx_train(__FILE__, __LINE__, op, op, psn, 1, len);
}

static struct roce_pkt datagram(uint8_t op, uint32_t len, const void *data)
{
	struct roce_pkt pkt = pkt_req(op, op, 4711, len, data);

	pkt.npkts = 1;
	pkt.qkey = QKEY;
	pkt.src_qpn = SRC_QPN;
	pkt.grh = grh;
	return pkt;
}

/* ---- requester ---- */

static void sent_is_done(void)
{
	struct ibv_send_wr wr;
	struct roce_pkt pkt;

	up();
	CHECK_EQ(post(wr_to(1, 1, 3, 1001)), 0);
	SWC(SUCCESS, 1);
	pkt = tx(UD(SEND_ONLY), 100, 1001);
	CHECK(!memcmp(pkt.payload, rig.mem + 3, 1001));
	CHECK_EQ(pkt.qkey, 0x22222222);
	CHECK_EQ(pkt.src_qpn, hca_qp_num(rig.qp));
	CHECK(!pkt.ackreq && !pkt.se);
	wr = wr_to(1, 2, 0, 0);
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.num_sge = 0;
	wr.send_flags = IBV_SEND_SOLICITED;
	wr.wr.ud.remote_qkey = QKEY_OWN | 5;
	CHECK_EQ(post(wr), 0);
	SWC(SUCCESS, 2);
	pkt = tx(UD(SEND_ONLY_WITH_IMMEDIATE), 101, 0);
	CHECK_EQ(pkt.imm, 0x11223344);
	CHECK_EQ(pkt.qkey, QKEY);
	CHECK(pkt.se);
	rig_advance(1000000 * MS);
	TX_NONE();
}

static void inline_and_several_sges(void)
{
	struct ibv_sge sge[3] = {{IOVA + 5, 7, 0}, {IOVA + 1000, 0, 0}, {IOVA + 4093, 11, 0}};
	struct ibv_send_wr wr;
	struct roce_pkt pkt;
	char buf[100];

	up();
	sge[0].lkey = sge[1].lkey = sge[2].lkey = rig.key;
	wr = wr_to(1, 1, 0, 0);
	wr.sg_list = sge;
	wr.num_sge = 3;
	CHECK_EQ(post(wr), 0);
	pkt = tx(UD(SEND_ONLY), 100, 18);
	CHECK(!memcmp(pkt.payload, rig.mem + 5, 7) && !memcmp(pkt.payload + 7, rig.mem + 4093, 11));

	fake_net_room(0);
	memset(buf, 'x', sizeof(buf));
	sge[0] = (struct ibv_sge){.addr = (uintptr_t)buf, .length = sizeof(buf)};
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_INLINE;
	CHECK_EQ(post(wr), 0);
	memset(buf, 'y', sizeof(buf)); /* it is ours again */
	fake_net_room(-1);
	pkt = tx(UD(SEND_ONLY), 101, sizeof(buf));
	memset(buf, 'x', sizeof(buf));
	CHECK(!memcmp(pkt.payload, buf, sizeof(buf)));
}

static void as_long_as_the_mtu(void)
{
	up();
	CHECK_EQ(post(wr_to(1, 1, 0, MTU)), 0);
	SWC(SUCCESS, 1);
	tx(UD(SEND_ONLY), 100, MTU);
}

/* What follows an error is flushed, receives go on, and the QP comes back to RTS. */
static void in_error(enum ibv_wc_status status, struct ibv_send_wr bad)
{
	struct ibv_send_wr second = wr_to(1, 2, 8192, 8), *out;

	bad.next = &second;
	CHECK_EQ(hca_post_send(rig.qp, &bad, &out), 0);
	wc_next(rig.scq, status, 1);
	SWC(WR_FLUSH_ERR, 2);
	CHECK_EQ(qp_state(), IBV_QPS_SQE);
	TX_NONE();
	CHECK_EQ(post(wr_to(1, 3, 8192, 8)), 0);
	SWC(WR_FLUSH_ERR, 3);
	CHECK_EQ(post_recv(9, 9000, 100), 0);
	rx(datagram(UD(SEND_ONLY), 8, pattern));
	RWC(SUCCESS, 9);
	rig_modify_state(rig.qp, IBV_QPS_RTS);
	CHECK_EQ(post(wr_to(1, 4, 8192, 8)), 0);
	SWC(SUCCESS, 4);
	tx(UD(SEND_ONLY), 100, 8);
}

static void too_long(void)
{
	up();
	in_error(IBV_WC_LOC_LEN_ERR, wr_to(1, 1, 0, MTU + 1));
}

static void address_of_another_pd(void)
{
	struct ibv_send_wr wr;

	up();
	wr = wr_to(2, 1, 0, 8);
	avs[2].pd = PD + 1;
	in_error(IBV_WC_LOC_QP_OP_ERR, wr);
}

static void bad_lkey(void)
{
	struct ibv_send_wr wr;

	up();
	wr = wr_to(1, 1, 0, 8);
	wr.sg_list[0].lkey = 1;
	in_error(IBV_WC_LOC_PROT_ERR, wr);
	CHECK_EQ(cnt(FL_CNT_local_access_err), 1);
}

static void refused_at_once(void)
{
	struct ibv_send_wr wr;

	up();
	wr = wr_to(1, 1, 0, 8);
	wr.wr.ud.ah = NULL;
	CHECK_EQ(post(wr), EINVAL);
	wr = wr_to(1, 1, 0, 8);
	wr.opcode = IBV_WR_RDMA_WRITE;
	CHECK_EQ(post(wr), EINVAL);
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK_EQ(post(wr), EINVAL);
	rig_modify_state(rig.qp, IBV_QPS_RESET);
	CHECK_EQ(post(wr_to(1, 1, 0, 8)), EINVAL);
	wc_none(rig.scq);
	CHECK_EQ(fake_paths, 0);
}

static void no_room(void)
{
	up();
	fake_net_room(0);
	CHECK_EQ(post(wr_to(1, 1, 0, 8)), 0);
	CHECK_EQ(post(wr_to(2, 2, 0, 8)), 0);
	wc_none(rig.scq);
	fake_net_room(1);
	SWC(SUCCESS, 1);
	wc_none(rig.scq);
	fake_net_room(-1);
	SWC(SUCCESS, 2);
}

static void drains(void)
{
	up();
	fake_net_room(0);
	CHECK_EQ(post(wr_to(1, 1, 0, 8)), 0);
	rig_modify_state(rig.qp, IBV_QPS_SQD);
	CHECK_EQ(post(wr_to(1, 2, 0, 8)), 0);
	CHECK_EQ(ev_qp[IBV_EVENT_SQ_DRAINED], 0);
	fake_net_room(-1);
	SWC(SUCCESS, 1);
	wc_none(rig.scq); /* it was not begun, so it waits */
	CHECK_EQ(ev_qp[IBV_EVENT_SQ_DRAINED], 1);
	rig_modify_state(rig.qp, IBV_QPS_RTS);
	SWC(SUCCESS, 2);
}

/* ---- paths ---- */

static void goes_where_the_handle_says(void)
{
	struct roce_pkt pkt;
	uint32_t round, i;

	up();
	for (round = 0; round < 2; round++) {
		for (i = 0; i < 600; i++) {
			CHECK_EQ(post(wr_to(i, i, i, 8)), 0);
			SWC(SUCCESS, i);
			pkt = tx(UD(SEND_ONLY), 100 + round * 600 + i, 8);
			CHECK(!memcmp(pkt.payload, rig.mem + i, 8));
			CHECK(!memcmp(fake_tx_attr.dgid, avs[i].dgid, 16));
			CHECK(!memcmp(fake_tx_attr.sgid, avs[i].sgid, 16));
		}
		CHECK_EQ(fake_paths, 600);
	}
	rig_modify_state(rig.qp, IBV_QPS_RESET);
	CHECK_EQ(fake_paths, 0);
	to_rts();
	CHECK_EQ(post(wr_to(5, 1, 0, 8)), 0);
	CHECK_EQ(fake_paths, 1);
	hca_qp_destroy(rig.qp);
	CHECK_EQ(fake_paths, 0);
}

static void peers_at_one_address_by_their_slot(void)
{
	struct ibv_send_wr wr;

	up();
	wr = wr_to(1, 1, 0, 8);
	CHECK_EQ(post(wr), 0);
	wr.wr.ud.remote_qpn ^= 1; /* another QP of the same process */
	CHECK_EQ(post(wr), 0);
	CHECK_EQ(fake_paths, 1);
	wr.wr.ud.remote_qpn ^= 1 << FAULTLINE_QPN_SLOT_SHIFT;
	CHECK_EQ(post(wr), 0);
	CHECK_EQ(fake_paths, 2);
}

static void not_without_end(void)
{
	struct roce_pkt pkt;
	uint32_t i;

	up();
	for (i = 0; i < 4096; i++) {
		CHECK_EQ(post(wr_to(i, i, 0, 8)), 0);
		SWC(SUCCESS, i);
		CHECK(fake_tx_pop(&pkt));
	}
	CHECK_EQ(post(wr_to(4096, 1, 0, 8)), ENOMEM);
	CHECK_EQ(fake_paths, 4096);
	CHECK_EQ(post(wr_to(4095, 1, 0, 8)), 0);
}

/* ---- a list: up to the bad one, or nothing ---- */

static void lists(void)
{
	struct ibv_send_wr wr[40], *bad;
	struct roce_pkt pkt;
	unsigned i;

	up();
	for (i = 0; i < 40; i++) {
		wr[i] = wr_to(1, i, 0, 8);
		wr[i].next = i < 39 ? &wr[i + 1] : NULL;
	}
	fake_net_room(0);
	CHECK_EQ(hca_post_send_all(rig.qp, wr, &bad), ENOMEM); /* of 32 */
	CHECK(bad == &wr[32]);
	fake_net_room(-1);
	wc_none(rig.scq);
	TX_NONE();
	wr[31].next = NULL;
	wr[7].opcode = IBV_WR_RDMA_WRITE;
	CHECK_EQ(hca_post_send_all(rig.qp, wr, &bad), EINVAL);
	CHECK(bad == &wr[7]);
	wc_none(rig.scq);
	CHECK_EQ(hca_post_send(rig.qp, wr, &bad), EINVAL);
	CHECK(bad == &wr[7]);
	for (i = 0; i < 7; i++)
		SWC(SUCCESS, i);
	wc_none(rig.scq);
	wr[7].opcode = IBV_WR_SEND;
	CHECK_EQ(hca_post_send_all(rig.qp, wr, &bad), 0);
	for (i = 0; i < 32; i++)
		SWC(SUCCESS, i);
	for (i = 0; i < 39; i++)
		CHECK(fake_tx_pop(&pkt));
	TX_NONE();
}

/* ---- responder ---- */

static void grh_then_data(void)
{
	struct ibv_wc wc;

	up();
	CHECK_EQ(post_recv(1, 4093, 2000), 0);
	rx(datagram(UD(SEND_ONLY), 777, pattern));
	wc = RWC(SUCCESS, 1);
	CHECK_EQ(wc.byte_len, 817);
	CHECK_EQ(wc.wc_flags, IBV_WC_GRH);
	CHECK_EQ(wc.src_qp, SRC_QPN);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK(!memcmp(rig.mem + 4093, grh, 40) && !memcmp(rig.mem + 4133, pattern, 777));
	CHECK_EQ(post_recv(2, 0, 40), 0);
	rx(datagram(UD(SEND_ONLY_WITH_IMMEDIATE), 0, NULL));
	wc = RWC(SUCCESS, 2);
	CHECK_EQ(wc.byte_len, 40);
	CHECK_EQ(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	CHECK_EQ(wc.imm_data, 0x55667788);
	CHECK_EQ(cnt(FL_CNT_rdma_recvs), 2);
	TX_NONE();
}

static void dropped(void)
{
	struct roce_pkt pkt = {0};

	up();
	rx(datagram(UD(SEND_ONLY), 8, pattern));
	CHECK_EQ(cnt(FL_CNT_rx_no_recv), 1);
	CHECK_EQ(post_recv(1, 0, 1000), 0);
	pkt = datagram(UD(SEND_ONLY), 8, pattern);
	pkt.qkey++;
	rx(pkt);
	CHECK_EQ(cnt(FL_CNT_rx_qkey_err), 1);
	pkt = datagram(UD(SEND_ONLY), 8, pattern);
	pkt.grh = NULL;
	rx(pkt);
	CHECK_EQ(cnt(FL_CNT_rx_malformed), 1);
	rx(pkt_req(IBV_OPCODE_RC_SEND_ONLY, IBV_OPCODE_RC_SEND_ONLY, 200, 8, pattern));
	CHECK_EQ(cnt(FL_CNT_rx_unknown_qp), 1);
	wc_none(rig.rcq);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	rx(datagram(UD(SEND_ONLY), 8, pattern));
	RWC(SUCCESS, 1); /* PSNs are of no meaning, and none of those took it */
	TX_NONE();
}

static void receive_too_small(void)
{
	up();
	CHECK_EQ(post_recv(1, 0, 47), 0);
	CHECK_EQ(post_recv(2, 0, 100), 0);
	rx(datagram(UD(SEND_ONLY), 8, pattern));
	RWC(LOC_LEN_ERR, 1);
	RWC(WR_FLUSH_ERR, 2);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
	rig_is(rig.mem, 100, 0);
}

static void receive_with_a_bad_key(void)
{
	struct ibv_sge sge = {.addr = IOVA, .length = 100, .lkey = 1};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	up();
	CHECK_EQ(hca_post_recv(rig.qp, &wr, &bad), 0);
	rx(datagram(UD(SEND_ONLY), 8, pattern));
	RWC(LOC_PROT_ERR, 1);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
	CHECK_EQ(cnt(FL_CNT_local_access_err), 1);
}

static void shared_receives(void)
{
	struct ibv_srq_attr attr = {.srq_limit = 1};

	opt.use_srq = true;
	up();
	CHECK_EQ(hca_srq_modify(rig.srq, &attr, IBV_SRQ_LIMIT), 0);
	CHECK_EQ(post_recv(1, 0, 1000), 0);
	rx(datagram(UD(SEND_ONLY), 500, pattern));
	CHECK_EQ(RWC(SUCCESS, 1).byte_len, 540);
	CHECK(!memcmp(rig.mem + 40, pattern, 500));
	CHECK_EQ(ev_srq_limit, 1);
}

/* ---- on demand ---- */

static void odp_send_waits(void)
{
	struct roce_pkt pkt;

	opt.odp = true;
	up();
	fake_sleeps.start = (uintptr_t)rig.mem;
	fake_sleeps.end = fake_sleeps.start + 4096;
	CHECK_EQ(post(wr_to(1, 1, 100, 1000)), 0);
	CHECK_EQ(post(wr_to(2, 2, 8192, 8)), 0); /* behind it, in order */
	wc_none(rig.scq);
	TX_NONE();
	fake_gate_wait(1);
	fake_gate_open(0);
	rig_workers_idle();
	pkt = tx(UD(SEND_ONLY), 100, 1000);
	CHECK(!memcmp(pkt.payload, rig.mem + 100, 1000));
	tx(UD(SEND_ONLY), 101, 8);
	SWC(SUCCESS, 1);
	SWC(SUCCESS, 2);
}

static void odp_send_denied(void)
{
	opt.odp = true;
	up();
	fake_denied.start = (uintptr_t)rig.mem;
	fake_denied.end = fake_denied.start + 4096;
	in_error(IBV_WC_LOC_PROT_ERR, wr_to(1, 1, 100, 8));
}

/* Each keeps its own GRH while they wait; who asks in vain is dropped; sending goes on. */
static void odp_receive_waits(void)
{
	uint8_t first[GRH_BYTES];
	uint32_t i;

	opt.odp = true;
	up();
	fake_sleeps.start = (uintptr_t)rig.mem + 4096;
	fake_sleeps.end = fake_sleeps.start + 4096;
	CHECK_EQ(post_recv(1, 4096 - 50, 1000), 0); /* the GRH fits in before, the data does not */
	CHECK_EQ(post_recv(2, 20001, 1000), 0);
	rx(datagram(UD(SEND_ONLY), 300, pattern));
	memcpy(first, grh, sizeof(first));
	memset(grh, 0x5a, sizeof(grh));
	rx(datagram(UD(SEND_ONLY_WITH_IMMEDIATE), 333, pattern + 1000));
	memset(grh, 0x77, sizeof(grh));
	rx(datagram(UD(SEND_ONLY), 1, pattern));
	wc_none(rig.rcq);
	CHECK_EQ(post(wr_to(1, 9, 30000, 8)), 0);
	SWC(SUCCESS, 9);
	fake_gate_wait(1);
	fake_gate_open(0);
	rig_workers_idle();
	CHECK_EQ(RWC(SUCCESS, 1).byte_len, 340);
	CHECK(!memcmp(rig.mem + 4096 - 50, first, 40) && !memcmp(rig.mem + 4096 - 10, pattern, 300));
	CHECK_EQ(RWC(SUCCESS, 2).byte_len, 373);
	for (i = 0; i < GRH_BYTES; i++)
		CHECK_EQ(rig.mem[20001 + i], 0x5a);
	CHECK(!memcmp(rig.mem + 20041, pattern + 1000, 333));
	CHECK_EQ(cnt(FL_CNT_rx_no_recv), 1);
}

static void odp_receive_denied(void)
{
	opt.odp = true;
	up();
	fake_denied.start = (uintptr_t)rig.mem;
	fake_denied.end = fake_denied.start + 4096;
	CHECK_EQ(post_recv(1, 0, 1000), 0);
	rx(datagram(UD(SEND_ONLY), 8, pattern));
	RWC(LOC_PROT_ERR, 1);
	CHECK_EQ(qp_state(), IBV_QPS_ERR);
}

static void odp_backlog_has_an_end(void)
{
	unsigned i, fit = (8u << 20) / (sizeof(struct kept_pkt) + MTU + GRH_BYTES);

	opt.odp = true;
	up();
	fake_sleeps.start = (uintptr_t)rig.mem;
	fake_sleeps.end = fake_sleeps.start + 4096;
	CHECK_EQ(post_recv(1, 0, 2000), 0);
	for (i = 0; i < fit + 10; i++)
		rx(datagram(UD(SEND_ONLY), MTU, pattern));
	CHECK_EQ(cnt(FL_CNT_rx_backlog_drop), 10);
	rig_modify_state(rig.qp, IBV_QPS_RESET);
	fake_gate_wait(1);
	fake_gate_open(0);
	rig_workers_idle();
	wc_none(rig.rcq);
}

static const struct test tests[] = {
	TEST(sent_is_done),
	TEST(inline_and_several_sges),
	TEST(as_long_as_the_mtu),
	TEST(too_long),
	TEST(address_of_another_pd),
	TEST(bad_lkey),
	TEST(refused_at_once),
	TEST(no_room),
	TEST(drains),
	TEST(goes_where_the_handle_says),
	TEST(peers_at_one_address_by_their_slot),
	TEST(not_without_end),
	TEST(lists),
	TEST(grh_then_data),
	TEST(dropped),
	TEST(receive_too_small),
	TEST(receive_with_a_bad_key),
	TEST(shared_receives),
	TEST(odp_send_waits),
	TEST(odp_send_denied),
	TEST(odp_receive_waits),
	TEST(odp_receive_denied),
	TEST(odp_backlog_has_an_end),
	{0},
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, tests);
}
