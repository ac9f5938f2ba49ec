/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder, of the requests whose answer carries data: READs and atomics.
 *
 * A READ's response is state of the QP (resp.read), not of a request: it is sent as far as the link has
 * room and the pages are there, and taken up again where it stopped. An atomic's result is kept, for a
 * request that comes again must not be executed again (9.4.5).
 */
#include <errno.h>
#include "hw/fault_model.h"
#include "hw/resp.h"

/* ---- READ ---- */

struct read_arg {
	struct hca_qp *qp;
	struct mr_miss miss;
};

static int fill_from_read(void *arg, uint8_t *dst, uint32_t off, uint32_t len)
{
	struct read_arg *a = arg;

	return mr_copy(a->qp->resp.read.pd, a->qp->resp.read.rkey,
		       a->qp->resp.read.va + a->qp->resp.read.off + off, dst, len, MR_FROM_MEM,
		       IBV_ACCESS_REMOTE_READ, &a->miss);
}

static void read_opcodes(struct roce_pkt *pkt, uint8_t transport, bool start, bool end)
{
	uint8_t middle = transport | IBV_OPCODE_RDMA_READ_RESPONSE_MIDDLE;
	uint8_t last = end ? transport | IBV_OPCODE_RDMA_READ_RESPONSE_LAST : middle;

	if (pkt->npkts == 1 && start && end)
		pkt->opcode = pkt->opcode_last = transport | IBV_OPCODE_RDMA_READ_RESPONSE_ONLY;
	else {
		pkt->opcode_last = last;
		pkt->opcode = start ? transport | IBV_OPCODE_RDMA_READ_RESPONSE_FIRST : middle;
		if (pkt->npkts == 1)
			pkt->opcode_last = pkt->opcode = start ? pkt->opcode : last;
	}
}

void resp_read_run(struct hca_qp *qp)
{
	struct read_arg arg = {.qp = qp};
	uint32_t max = net_path_max_train(qp->path);
	struct roce_pkt pkt;
	uint32_t off, left;
	int rc;

	max -= max % qp->mtu;
	while (qp->resp.read.active) {
		off = qp->resp.read.off;
		left = qp->resp.read.len - off;
		pkt = (struct roce_pkt){.pkey = 0xffff,
					.dest_qpn = qp->attr.dest_qp_num,
					.psn = psn_add(qp->resp.read.psn, off / qp->mtu),
					.mtu = qp->mtu,
					.syndrome = AETH_ACK_NO_CREDIT,
					.msn = qp->resp.msn,
					.payload_len = left < max ? left : max};
		pkt.npkts = roce_npkts(pkt.payload_len, qp->mtu);
		read_opcodes(&pkt, qp_transport(qp), off == 0, pkt.payload_len == left);
		rc = net_xmit(qp->path, &pkt, fill_from_read, &arg);
		if (rc == -EFAULT) {
			arg.miss.want = left;
			rc = pf_fault(qp, ROLE_RESP, &arg.miss) ?: 1;
		}
		if (rc == 1)
			continue;
		if (rc == -EAGAIN)
			qp->resp.blocked = true;
		if (rc == -EAGAIN || rc == -EINPROGRESS)
			return;
		if (rc && pkt.npkts > 1) {
			max = qp->mtu; /* what can be read goes, packet by packet */
			continue;
		}
		if (rc) {
			qp->resp.read.active = false;
			if (!qp->resp.read.dup)
				resp_fatal(qp, &pkt, AETH_NAK_REM_ACC_ERR, pkt.psn, IBV_WC_REM_ACCESS_ERR);
			return;
		}
		pf_done(qp, ROLE_RESP);
		cnt_add(qp->dev->stat, FL_CNT_sent_pkts, pkt.npkts);
		cnt_add(qp->dev->stat, FL_CNT_sent_bytes, pkt.payload_len);
		qp->resp.read.off += pkt.payload_len;
		if (pkt.payload_len == left)
			qp->resp.read.active = false;
	}
}

void resp_read_begin(struct hca_qp *qp, const struct roce_pkt *pkt, uint32_t pd, bool dup)
{
	if (!dup)
		qp->resp.ack_pending = false; /* the response acknowledges what is before it */
	qp->resp.read.active = true;
	qp->resp.read.dup = dup;
	qp->resp.read.pd = pd;
	qp->resp.read.va = pkt->va;
	qp->resp.read.rkey = pkt->rkey;
	qp->resp.read.len = pkt->dma_len;
	qp->resp.read.off = 0;
	qp->resp.read.psn = pkt->psn;
	resp_read_run(qp);
}

enum resp_result resp_read(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	struct mr_miss miss;
	uint32_t pd;

	if (qp->resp.in_msg || !(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) ||
	    !qp->attr.max_dest_rd_atomic || pkt->dma_len > qp->dev->profile->max_msg_sz)
		return resp_invalid(qp, pkt);
	if (!resp_pkt_pd(qp, pkt, &pd))
		return resp_no_srq(qp, pkt);
	if (pkt->dma_len &&
	    mr_check(pd, pkt->rkey, pkt->va, pkt->dma_len, IBV_ACCESS_REMOTE_READ))
		return resp_denied(qp, pkt);
	if (fault_model->rnr_nak && pkt->dma_len &&
	    mr_ready(pd, pkt->rkey, pkt->va, pkt->dma_len, IBV_ACCESS_REMOTE_READ, &miss) == -EFAULT &&
	    pf_fault(qp, ROLE_RESP, &miss) == -EINPROGRESS)
		return resp_faulted(qp);
	qp->resp.psn = psn_add(pkt->psn, roce_npkts(pkt->dma_len, qp->mtu));
	qp->resp.msn = psn_add(qp->resp.msn, 1);
	resp_read_begin(qp, pkt, pd, false);
	return RESP_DONE;
}

/* ---- atomics ---- */

void resp_atomic_ack(struct hca_qp *qp, uint32_t psn, uint64_t orig)
{
	if (resp_send_aeth(qp, IBV_OPCODE_ATOMIC_ACKNOWLEDGE, AETH_ACK_NO_CREDIT, psn, orig))
		return;
	qp->resp.atomic_owed = true;
	qp->resp.atomic_psn = psn;
	qp->resp.atomic_orig = orig;
}

/* 9.4.5: the result is kept for a request that comes again */
static void save_atomic(struct hca_qp *qp, uint32_t psn, uint64_t orig)
{
	qp->resp.atomics[qp->resp.next_atomic] =
		(struct saved_atomic){.valid = true, .psn = psn, .orig = orig};
	qp->resp.next_atomic = (qp->resp.next_atomic + 1) % qp->resp.num_atomics;
}

enum resp_result resp_atomic(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	bool cas = pkt->opcode == (qp_transport(qp) | IBV_OPCODE_COMPARE_SWAP);
	struct mr_miss miss;
	uint64_t orig;
	uint32_t pd;
	int rc;

	if (qp->resp.in_msg || qp->dev->profile->attr.atomic_cap == IBV_ATOMIC_NONE ||
	    !(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) ||
	    !qp->attr.max_dest_rd_atomic || (pkt->va & 7))
		return resp_invalid(qp, pkt);
	if (!resp_pkt_pd(qp, pkt, &pd))
		return resp_no_srq(qp, pkt);
	do {
		rc = mr_atomic(pd, pkt->rkey, pkt->va, cas, pkt->swap_add, pkt->compare, &orig,
			       &miss);
		if (rc == -EFAULT)
			rc = pf_fault(qp, ROLE_RESP, &miss) ?: -EAGAIN;
	} while (rc == -EAGAIN);
	if (rc == -EINPROGRESS)
		return resp_faulted(qp);
	if (rc == -EINVAL)
		return resp_invalid(qp, pkt);
	if (rc)
		return resp_denied(qp, pkt);
	pf_done(qp, ROLE_RESP);
	save_atomic(qp, pkt->psn, orig);
	qp->resp.psn = psn_add(pkt->psn, 1);
	qp->resp.msn = psn_add(qp->resp.msn, 1);
	qp->resp.ack_pending = false; /* its answer acknowledges what is before it */
	resp_atomic_ack(qp, pkt->psn, orig);
	return RESP_DONE;
}
