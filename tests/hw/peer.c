/* SPDX-License-Identifier: BSD-2-Clause */
/* See rig.h: what the test, as the peer, sends and expects. */
#include <errno.h>
#include "rig.h"

/* ---- posting ---- */

static struct ibv_sge sge_store[64];
static unsigned sge_next;

static struct ibv_sge *sge_of(uint32_t off, uint32_t len)
{
	struct ibv_sge *s = &sge_store[sge_next++ % 64];

	*s = (struct ibv_sge){.addr = IOVA + off, .length = len, .lkey = rig.key};
	return s;
}

struct ibv_send_wr wr_data(enum ibv_wr_opcode op, uint64_t id, uint32_t off, uint32_t len)
{
	return (struct ibv_send_wr){.wr_id = id,
				    .opcode = op,
				    .sg_list = sge_of(off, len),
				    .num_sge = 1,
				    .imm_data = 0x11223344,
				    .wr.rdma = {REMOTE_VA, REMOTE_KEY}};
}

struct ibv_send_wr wr_atomic(bool cas, uint64_t id, uint64_t add_or_compare, uint64_t swap)
{
	return (struct ibv_send_wr){
		.wr_id = id,
		.opcode = cas ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD,
		.sg_list = sge_of(64, 8),
		.num_sge = 1,
		.wr.atomic = {.remote_addr = REMOTE_VA,
			      .rkey = REMOTE_KEY,
			      .compare_add = add_or_compare,
			      .swap = swap}};
}

int post(struct ibv_send_wr wr)
{
	struct ibv_send_wr untouched, *bad = &untouched;
	int rc = hca_post_send(rig.qp, &wr, &bad);

	CHECK(bad == (rc ? &wr : &untouched)); /* there are programs that go by it */
	return rc;
}

int post_recv(uint64_t id, uint32_t off, uint32_t len)
{
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = sge_of(off, len), .num_sge = 1}, untouched, *bad = &untouched;
	int rc = rig.srq ? hca_post_srq_recv(rig.srq, &wr, &bad) : hca_post_recv(rig.qp, &wr, &bad);

	CHECK(bad == (rc ? &wr : &untouched));
	return rc;
}

/* ---- completions ---- */

struct ibv_wc wc_next(struct hca_cq *cq, enum ibv_wc_status status, uint64_t id)
{
	struct ibv_wc wc;

	if (hca_cq_poll(cq, 1, &wc) != 1)
		FAIL("no completion of WR %llu in the CQ", (unsigned long long)id);
	if (wc.status != status || wc.wr_id != id || wc.qp_num != hca_qp_num(rig.qp))
		FAIL("completion of WR %llu, status %d, QP %#x; expected WR %llu, status %d",
		     (unsigned long long)wc.wr_id, wc.status, wc.qp_num, (unsigned long long)id, status);
	return wc;
}

void wc_none(struct hca_cq *cq)
{
	struct ibv_wc wc;

	if (hca_cq_poll(cq, 1, &wc))
		FAIL("unexpected completion of WR %llu, status %d", (unsigned long long)wc.wr_id,
		     wc.status);
}

static uint8_t transport(void)
{
	return qp_transport(rig.qp) == IBV_OPCODE_XRC ? IBV_OPCODE_XRC : 0;
}

/* ---- what was sent ---- */

struct roce_pkt tx_train(const char *file, int line, uint8_t op, uint8_t op_last, uint32_t psn,
			 uint32_t npkts, uint32_t len)
{
	struct roce_pkt pkt;

	op |= transport();
	op_last |= transport();
	if (!fake_tx_pop(&pkt))
		FAIL("%s:%d: nothing was sent; expected %s psn %#x", file, line, roce_opcode[op].name,
		     psn);
	if (pkt.opcode != op || pkt.opcode_last != op_last || pkt.psn != psn || pkt.npkts != npkts ||
	    pkt.payload_len != len)
		FAIL("%s:%d: sent %s..%s psn %#x syndrome %#x, %u packets, %u bytes; expected %s..%s "
		     "psn %#x, %u packets, %u bytes",
		     file, line, roce_opcode[pkt.opcode].name, roce_opcode[pkt.opcode_last].name,
		     pkt.psn, pkt.syndrome, pkt.npkts, pkt.payload_len, roce_opcode[op].name,
		     roce_opcode[op_last].name, psn, npkts, len);
	if (pkt.dest_qpn != PEER_QPN || pkt.pkey != 0xffff)
		FAIL("%s:%d: to QP %#x, pkey %#x", file, line, pkt.dest_qpn, pkt.pkey);
	return pkt;
}

void tx_aeth(const char *file, int line, uint8_t syndrome, uint32_t psn)
{
	struct roce_pkt pkt;

	if (!fake_tx_pop(&pkt))
		FAIL("%s:%d: nothing was sent; expected an ACK or NAK %#x, psn %#x", file, line,
		     syndrome, psn);
	if (pkt.opcode != (transport() | IBV_OPCODE_RC_ACKNOWLEDGE) || pkt.syndrome != syndrome || pkt.psn != psn)
		FAIL("%s:%d: sent %s, syndrome %#x, psn %#x; expected an ACK or NAK %#x, psn %#x", file,
		     line, roce_opcode[pkt.opcode].name, pkt.syndrome, pkt.psn, syndrome, psn);
}

void tx_none_at(const char *file, int line)
{
	struct roce_pkt pkt;

	if (fake_tx_pop(&pkt))
		FAIL("%s:%d: unexpectedly sent %s..%s, syndrome %#x, psn %#x, %u bytes", file, line,
		     roce_opcode[pkt.opcode].name, roce_opcode[pkt.opcode_last].name, pkt.syndrome,
		     pkt.psn, pkt.payload_len);
}

/* ---- what comes in ---- */

void rx_later(struct roce_pkt pkt)
{
	fake_rx(&pkt);
}

void rx_now(void)
{
	while (engine_poll())
		;
}

void rx(struct roce_pkt pkt)
{
	rx_later(pkt);
	rx_now();
}

static uint32_t mtu_bytes(void)
{
	return 128u << opt.mtu;
}

static struct roce_pkt pkt_base(uint8_t op, uint8_t op_last, uint32_t psn, uint32_t len,
				const void *data)
{
	return (struct roce_pkt){.opcode = op | transport(),
				 .opcode_last = op_last | transport(),
				 .srqn = rig.srq ? hca_srq_num(rig.srq) : 0,
				 .ackreq = true,
				 .pkey = 0xffff,
				 .dest_qpn = hca_qp_num(rig.qp),
				 .psn = psn & ROCE_PSN_MASK,
				 .npkts = op == op_last ? 1 : roce_npkts(len, mtu_bytes()),
				 .mtu = mtu_bytes(),
				 .payload = data,
				 .payload_len = len};
}

void rx_ack(uint32_t psn)
{
	rx_nak(AETH_ACK_NO_CREDIT, psn);
}

void rx_nak(uint8_t syndrome, uint32_t psn)
{
	struct roce_pkt pkt = pkt_base(IBV_OPCODE_RC_ACKNOWLEDGE, IBV_OPCODE_RC_ACKNOWLEDGE, psn, 0, NULL);

	pkt.syndrome = syndrome;
	rx(pkt);
}

struct roce_pkt pkt_read_resp(uint8_t op, uint8_t op_last, uint32_t psn, uint32_t len, const void *data)
{
	struct roce_pkt pkt = pkt_base(op, op_last, psn, len, data);

	pkt.syndrome = AETH_ACK_NO_CREDIT;
	return pkt;
}

void rx_read(uint32_t psn, uint32_t len, const void *data)
{
	uint8_t op = IBV_OPCODE_RC_RDMA_READ_RESPONSE_FIRST, last = IBV_OPCODE_RC_RDMA_READ_RESPONSE_LAST;

	if (len <= mtu_bytes())
		op = last = IBV_OPCODE_RC_RDMA_READ_RESPONSE_ONLY;
	rx(pkt_read_resp(op, last, psn, len, data));
}

void rx_atomic_ack(uint32_t psn, uint64_t orig)
{
	struct roce_pkt pkt = pkt_base(IBV_OPCODE_RC_ATOMIC_ACKNOWLEDGE,
				       IBV_OPCODE_RC_ATOMIC_ACKNOWLEDGE, psn, 0, NULL);

	pkt.syndrome = AETH_ACK_NO_CREDIT;
	pkt.atomic_orig = orig;
	rx(pkt);
}

struct roce_pkt pkt_req(uint8_t op, uint8_t op_last, uint32_t psn, uint32_t len, const void *data)
{
	struct roce_pkt pkt = pkt_base(op, op_last, psn, len, data);

	pkt.imm = 0x55667788;
	return pkt;
}

struct roce_pkt pkt_write(uint8_t op, uint8_t op_last, uint32_t psn, uint32_t off, uint32_t dma_len,
			  uint32_t len, const void *data)
{
	struct roce_pkt pkt = pkt_req(op, op_last, psn, len, data);

	pkt.va = IOVA + off;
	pkt.rkey = rig.key;
	pkt.dma_len = dma_len;
	return pkt;
}

struct roce_pkt pkt_read(uint32_t psn, uint32_t off, uint32_t len)
{
	return pkt_write(IBV_OPCODE_RC_RDMA_READ_REQUEST, IBV_OPCODE_RC_RDMA_READ_REQUEST, psn, off, len,
			 0, NULL);
}

struct roce_pkt pkt_atomic(bool cas, uint32_t psn, uint32_t off, uint64_t swap_add, uint64_t compare)
{
	uint8_t op = cas ? IBV_OPCODE_RC_COMPARE_SWAP : IBV_OPCODE_RC_FETCH_ADD;
	struct roce_pkt pkt = pkt_write(op, op, psn, off, 0, 0, NULL);

	pkt.swap_add = swap_add;
	pkt.compare = compare;
	return pkt;
}
