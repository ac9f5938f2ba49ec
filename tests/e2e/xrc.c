/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC between two sides: one initiator, one target, two SRQs behind it. Each operation arrives where it was
 * addressed to, pinned and on demand, at lengths around the MTU and past a train; a receive that is late is
 * waited for; an SRQ that is not there is said so.
 */
#include "rc.h"

#define SIZE	 (1ul << 20)
#define OFF	 4099u
#define SEND_IMM 0x01020304u

/* ---- at the peer ---- */

enum { OPEN, RECV, WAIT, DROP_SRQ, CLOSE };

static struct {
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq[2];
	struct ibv_cq *cq[2];
	struct ibv_qp *qp;
} x;

static void make_target(struct rc_side *s, struct rc_msg *m)
{
	struct ibv_xrcd_init_attr xa = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1};
	struct ibv_srq_init_attr_ex sa = {
		.attr = {.max_wr = 64, .max_sge = 1}, .srq_type = IBV_SRQT_XRC, .pd = s->pd,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_XRCD};
	struct ibv_qp_init_attr_ex qa = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD};
	uint32_t num;

	x.xrcd = sa.xrcd = qa.xrcd = ibv_open_xrcd(s->ctx, &xa);
	if (!x.xrcd && errno == EOPNOTSUPP)
		rc_skip("the device has no XRC");
	CHECK(x.xrcd, "ibv_open_xrcd: %s", strerror(errno));
	for (int i = 0; i < 2; i++) {
		x.cq[i] = sa.cq = ibv_create_cq(s->ctx, 128, NULL, NULL, 0);
		x.srq[i] = ibv_create_srq_ex(s->ctx, &sa);
		CHECK(x.cq[i] && x.srq[i] && !ibv_get_srq_num(x.srq[i], &num), "SRQ: %s", strerror(errno));
		m->arg[i] = num;
	}
	x.qp = ibv_create_qp_ex(s->ctx, &qa);
	CHECK(x.qp, "ibv_create_qp_ex: %s", strerror(errno));
	CHECK(!rc_to_init(x.qp, rc_default.qp_access) && !rc_to_rtr(x.qp, &rc_default, &m->hello) &&
		      !rc_to_rts(x.qp, &rc_default, 0),
	      "the target does not connect");
	m->hello = (struct rc_hello){.gid = s->me.gid, .qpn = x.qp->qp_num};
}

static void post_recv(struct rc_side *s, struct rc_msg *m)
{
	struct rc_buf *b = &s->buf[m->arg[2]];
	struct ibv_sge sge = {b->iova + OFF, (uint32_t)m->arg[3], b->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = m->arg[4], .sg_list = &sge, .num_sge = 1}, *bad;
	int err = ibv_post_srq_recv(x.srq[m->arg[1]], &wr, &bad);

	CHECK(!err, "ibv_post_srq_recv: %s", strerror(err));
}

/* the next completion of an SRQ, and none of the other's */
static void wait_recv(struct rc_msg *m)
{
	struct ibv_cq *cq = x.cq[m->arg[1]], *other = x.cq[!m->arg[1]];
	double end = rc_now() + 20;
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		CHECK(rc_now() < end, "no completion in SRQ %lu's CQ", (unsigned long)m->arg[1]);
	CHECK(wc.qp_num == x.qp->qp_num, "completion of QP %#x, the target is %#x", wc.qp_num, x.qp->qp_num);
	memcpy(m->arg, (uint64_t[5]){wc.status, wc.byte_len, wc.wr_id, be32toh(wc.imm_data), wc.src_qp},
	       5 * sizeof(m->arg[0]));
	CHECK(!ibv_poll_cq(other, 1, &wc), "a completion in the other CQ");
}

static void drop_srq(int i)
{
	if (x.srq[i])
		CHECK(!ibv_destroy_srq(x.srq[i]), "ibv_destroy_srq: %s", strerror(errno));
	x.srq[i] = NULL;
}

static void own(struct rc_side *s, struct rc_msg *m)
{
	switch (m->arg[0]) {
	case OPEN:
		make_target(s, m);
		break;
	case RECV:
		post_recv(s, m);
		break;
	case WAIT:
		wait_recv(m);
		break;
	case DROP_SRQ:
		drop_srq((int)m->arg[1]);
		break;
	case CLOSE:
		CHECK(!ibv_destroy_qp(x.qp), "ibv_destroy_qp: %s", strerror(errno));
		for (int i = 0; i < 2; i++) {
			drop_srq(i);
			CHECK(!ibv_destroy_cq(x.cq[i]), "ibv_destroy_cq: %s", strerror(errno));
		}
		CHECK(!ibv_close_xrcd(x.xrcd), "ibv_close_xrcd: %s", strerror(errno));
	}
}

/* ---- here ---- */

static struct rc_side s;
static struct rc_peer *peer;
static uint32_t srqn[2];
static struct ibv_mr *ours[2]; /* pinned, on demand */
static struct rc_remote theirs[2];

static void connect_initiator(void)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_XRC_SEND, .send_cq = s.cq,
					.cap = {.max_send_wr = 64, .max_send_sge = 1}};
	struct rc_msg m = {.op = RC_OWN, .arg = {OPEN}};

	s.qp = ibv_create_qp(s.pd, &attr);
	if (!s.qp && errno == EOPNOTSUPP)
		rc_skip("the device has no XRC");
	CHECK(s.qp, "ibv_create_qp: %s", strerror(errno));
	m.hello = (struct rc_hello){.gid = s.me.gid, .qpn = s.qp->qp_num, .psn = 0xfffff0};
	m = rc_call_msg(peer, m);
	srqn[0] = (uint32_t)m.arg[0];
	srqn[1] = (uint32_t)m.arg[1];
	CHECK(!rc_to_init(s.qp, 0) && !rc_to_rtr(s.qp, &rc_default, &m.hello) &&
		      !rc_to_rts(s.qp, &rc_default, 0xfffff0),
	      "the initiator does not connect");
}

static void post(enum ibv_wr_opcode opcode, int kind, uint32_t len, uint32_t to)
{
	struct ibv_sge sge = {(uintptr_t)ours[kind]->addr + OFF, len, ours[kind]->lkey};
	struct ibv_send_wr wr = {.opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
				 .imm_data = htobe32(SEND_IMM)}, *bad;
	int err;

	wr.wr.rdma.remote_addr = theirs[kind].iova + OFF;
	wr.wr.rdma.rkey = theirs[kind].key;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.addr = (uintptr_t)ours[kind]->addr;
		wr.wr.atomic.remote_addr = theirs[kind].iova + 8;
		wr.wr.atomic.compare_add = 3;
		wr.wr.atomic.rkey = theirs[kind].key;
	}
	wr.qp_type.xrc.remote_srqn = to;
	err = ibv_post_send(s.qp, &wr, &bad);
	CHECK(!err, "ibv_post_send: %s", strerror(err));
}

/* memory on demand is cold each time */
static void make_cold(int kind)
{
	if (!kind)
		return;
	CHECK(!madvise(ours[kind]->addr, SIZE, MADV_DONTNEED), "madvise: %s", strerror(errno));
	rc_call(peer, RC_DONTNEED, theirs[kind].buf, 0, SIZE);
}

static void arrived(int kind, uint32_t len, uint64_t seed)
{
	uint64_t bad = rc_call(peer, RC_DIFFERS, theirs[kind].buf, OFF, len, 0, seed);

	CHECK(bad == UINT64_MAX, "%u bytes, %s: byte %lu is wrong", len, kind ? "on demand" : "pinned",
	      (unsigned long)bad);
}

static void receives(int kind, uint32_t len, enum ibv_wr_opcode opcode)
{
	static uint64_t seed = 1;
	int i = seed & 1;
	struct rc_msg m = {.op = RC_OWN, .arg = {WAIT, (uint64_t)i}};

	make_cold(kind);
	rc_fill((uint8_t *)ours[kind]->addr + OFF, len, 0, ++seed);
	rc_call(peer, RC_OWN, RECV, i, theirs[kind].buf, len, seed);
	post(opcode, kind, len, srqn[i]);
	m = rc_call_msg(peer, m);
	CHECK(m.arg[0] == IBV_WC_SUCCESS && m.arg[1] == len && m.arg[2] == seed && m.arg[4] == s.qp->qp_num,
	      "SRQ %d: status %lu, %lu bytes, WR %lu, from QP %#lx", i, (unsigned long)m.arg[0],
	      (unsigned long)m.arg[1], (unsigned long)m.arg[2], (unsigned long)m.arg[4]);
	CHECK(opcode == IBV_WR_SEND || m.arg[3] == SEND_IMM, "immediate %#lx", (unsigned long)m.arg[3]);
	rc_expect(&s, IBV_WC_SUCCESS);
	arrived(kind, len, seed);
}

static void one_sided(int kind, uint32_t len)
{
	make_cold(kind);
	rc_fill((uint8_t *)ours[kind]->addr + OFF, len, 0, len);
	post(IBV_WR_RDMA_WRITE, kind, len, srqn[0]);
	rc_expect(&s, IBV_WC_SUCCESS);
	arrived(kind, len, len);
	make_cold(kind);
	rc_call(peer, RC_FILL, theirs[kind].buf, OFF, len, 0, len + 1);
	post(IBV_WR_RDMA_READ, kind, len, srqn[1]);
	rc_expect(&s, IBV_WC_SUCCESS);
	CHECK(rc_differs((uint8_t *)ours[kind]->addr + OFF, len, 0, len + 1) == UINT64_MAX, "READ of %u bytes", len);
}

static void atomic(int kind)
{
	rc_call(peer, RC_SET, theirs[kind].buf, 8, 39);
	post(IBV_WR_ATOMIC_FETCH_AND_ADD, kind, 8, srqn[0]);
	rc_expect(&s, IBV_WC_SUCCESS);
	CHECK(*(uint64_t *)ours[kind]->addr == 39 && rc_call(peer, RC_GET, theirs[kind].buf, 8) == 42, "atomic");
}

static void late_receive(void)
{
	struct rc_msg m = {.op = RC_OWN, .arg = {WAIT, 1}};

	post(IBV_WR_SEND, 0, 5000, srqn[1]);
	CHECK(!rc_poll(&s, &(struct ibv_wc){0}, 0.02), "a SEND without a receive is complete");
	rc_call(peer, RC_OWN, RECV, 1, theirs[0].buf, 5000, 77);
	m = rc_call_msg(peer, m);
	CHECK(m.arg[0] == IBV_WC_SUCCESS && m.arg[2] == 77, "status %lu", (unsigned long)m.arg[0]);
	rc_expect(&s, IBV_WC_SUCCESS);
}

static void no_such_srq(void)
{
	rc_call(peer, RC_OWN, DROP_SRQ, 1);
	post(IBV_WR_RDMA_WRITE, 0, 100, srqn[1]);
	post(IBV_WR_RDMA_WRITE, 0, 100, srqn[0]);
	rc_expect(&s, IBV_WC_REM_INV_RD_REQ_ERR);
	rc_expect(&s, IBV_WC_WR_FLUSH_ERR);
	CHECK(rc_call(peer, RC_EVENT, 5000) == IBV_EVENT_QP_ACCESS_ERR, "the target is not told");
}

int main(int argc, char **argv)
{
	static const uint32_t lens[] = {1, 1024, 1025, 3000, 300001};

	rc_own = own;
	rc_main(argc, argv);
	rc_open(&s);
	peer = rc_peer_start();
	connect_initiator();
	for (int kind = 0; kind < 2; kind++) {
		int access = ALL_ACCESS | (kind ? ODP : 0);

		ours[kind] = rc_reg(&s, rc_map(SIZE), SIZE, access);
		theirs[kind] = rc_peer_buf(peer, SIZE, access, kind ? 0x7654321000000ull : RC_SAME, RC_ANON);
		for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
			receives(kind, lens[i], IBV_WR_SEND);
			receives(kind, lens[i], IBV_WR_SEND_WITH_IMM);
			receives(kind, lens[i], IBV_WR_RDMA_WRITE_WITH_IMM);
			one_sided(kind, lens[i]);
		}
		atomic(kind);
	}
	late_receive();
	no_such_srq();
	rc_call(peer, RC_OWN, CLOSE);
	for (int kind = 0; kind < 2; kind++) {
		CHECK(!ibv_dereg_mr(ours[kind]), "ibv_dereg_mr");
		rc_call(peer, RC_UNBUF, theirs[kind].buf);
	}
	rc_peer_stop(peer);
	rc_close(&s);
	return 0;
}
