/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder: executes the peer's requests in PSN order, and answers.
 *
 * Answers leave in PSN order, too, so while a READ's response is on its way (it may be long, wait for
 * room on the link, or for a page) the requests behind it wait in the backlog. A request that meets a
 * page fault waits there as well, at the front, and is executed again from its start when the page is
 * there: nothing of the QP's state moves before all of it is done.
 *
 * The order of checks is that of 9.7.4.1 and 9.7.6: PSN, opcode sequence, opcode allowed, a receive
 * WQE, lengths, key.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "hw/fault_model.h"
#include "hw/resp.h"
#include "hw/ud.h"

void resp_reset(struct hca_qp *qp)
{
	struct saved_atomic *atomics = qp->resp.atomics;
	struct recv_wqe *wqe = qp->resp.wqe;
	bool queued = qp->resp.ack_queued;

	memset(&qp->resp, 0, sizeof(qp->resp));
	qp->resp.atomics = atomics;
	qp->resp.wqe = wqe;
	qp->resp.ack_queued = queued; /* it is on a thread's list still */
	if (atomics)
		memset(atomics, 0, qp->num_saved_max * sizeof(*atomics));
}

/* ---- answers ---- */

bool resp_send_aeth(struct hca_qp *qp, uint8_t opcode, uint8_t syndrome, uint32_t psn, uint64_t orig)
{
	struct roce_pkt pkt = {
		.opcode = qp_transport(qp) | opcode,
		.opcode_last = qp_transport(qp) | opcode,
		.pkey = 0xffff,
		.dest_qpn = qp->attr.dest_qp_num,
		.psn = psn & ROCE_PSN_MASK,
		.npkts = 1,
		.mtu = qp->mtu,
		.syndrome = syndrome,
		.msn = qp->resp.msn,
		.atomic_orig = orig,
	};

	if (net_xmit(qp->path, &pkt, NULL, NULL) == -EAGAIN) {
		qp->resp.blocked = true;
		return false;
	}
	cnt_inc(qp->dev->stat, FL_CNT_sent_pkts);
	return true;
}

void resp_send_ack(struct hca_qp *qp)
{
	if (qp->srd)
		srd_send_acks(qp);
	if (!qp->resp.ack_pending || !qp->path || qp->resp.blocked)
		return;
	if (resp_send_aeth(qp, IBV_OPCODE_ACKNOWLEDGE, AETH_ACK_NO_CREDIT, qp->resp.psn - 1, 0))
		qp->resp.ack_pending = false;
}

static void ack_later(struct hca_qp *qp)
{
	if (qp->resp.ack_pending)
		cnt_inc(qp->dev->stat, FL_CNT_ack_deferred);
	qp->resp.ack_pending = true;
	engine_defer_ack(qp);
}

static void send_nak(struct hca_qp *qp, uint8_t syndrome, uint32_t psn)
{
	if (resp_send_aeth(qp, IBV_OPCODE_ACKNOWLEDGE, syndrome, psn, 0))
		return;
	qp->resp.nak_owed = true;
	qp->resp.nak_syndrome = syndrome;
	qp->resp.nak_psn = psn;
}

/* One NAK for a gap, until what was expected comes (9.7.5.2.2); a NAK acknowledges what is before it. */
static void nak_once(struct hca_qp *qp, uint8_t syndrome)
{
	if (qp->resp.nak_sent)
		return;
	qp->resp.nak_sent = true;
	qp->resp.ack_pending = false;
	send_nak(qp, syndrome, qp->resp.psn);
}

static void recv_done(struct hca_qp *qp, enum ibv_wc_status status, const struct roce_pkt *pkt,
		      uint64_t bytes)
{
	uint32_t flags = roce_opcode[pkt->opcode_last].flags;
	struct ibv_wc wc = {
		.status = status,
		.opcode = flags & ROCE_F_WRITE ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.byte_len = bytes,
		.src_qp = qp->attr.dest_qp_num,
	};

	recv_complete(qp, resp_cq(qp), &wc, pkt, pkt->se, NULL);
}

void resp_fatal(struct hca_qp *qp, const struct roce_pkt *pkt, uint8_t syndrome, uint32_t psn,
		enum ibv_wc_status recv_status)
{
	if (qp->type == IBV_QPT_UC && recv_status != IBV_WC_LOC_PROT_ERR) {
		qp->resp.in_msg = false; /* 9.8.2.2: the message is dropped, and that is all */
		return;
	}
	qp->resp.ack_pending = false;
	if (qp_reliable(qp))
		send_nak(qp, syndrome, psn);
	if (qp->resp.have_wqe)
		recv_done(qp, recv_status, pkt, 0);
	if (syndrome == AETH_NAK_REM_ACC_ERR || syndrome == AETH_NAK_INVALID_RD_REQ) {
		cnt_inc(qp->dev->stat, FL_CNT_remote_access_err);
		qp_event(qp, IBV_EVENT_QP_ACCESS_ERR);
	}
	qp_error(qp, IBV_WC_SUCCESS, 0);
}

/* of the device, and of the MR that the responder waits for */
static void count_fault_rnr(struct hca_qp *qp)
{
	struct hca_mr *mr = mr_get(qp->pf_wait[ROLE_RESP].key);

	cnt_inc(qp->dev->stat, FL_CNT_send_rnr_page_fault);
	if (!mr)
		return;
	__atomic_fetch_add(&mr->ent->send_rnr_page_fault, 1, __ATOMIC_RELAXED);
	mr_put(mr);
}

enum resp_result resp_faulted(struct hca_qp *qp)
{
	if (!fault_model->rnr_nak || !qp_reliable(qp))
		return RESP_AGAIN;
	count_fault_rnr(qp);
	nak_once(qp, AETH_RNR_NAK | (qp->attr.min_rnr_timer & AETH_VALUE_MASK));
	return RESP_DROPPED;
}

enum resp_result resp_invalid(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	resp_fatal(qp, pkt, AETH_NAK_INVALID_REQ, pkt->psn, IBV_WC_REM_INV_REQ_ERR);
	return RESP_DONE;
}

enum resp_result resp_denied(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	resp_fatal(qp, pkt, AETH_NAK_REM_ACC_ERR, pkt->psn, IBV_WC_REM_ACCESS_ERR);
	return RESP_DONE;
}

/* ---- SEND and WRITE ---- */

/* 9.7.4.1.2 and .7: full packets but for the last, which is not empty in a message of several */
static bool sizes_ok(const struct hca_qp *qp, const struct roce_pkt *pkt, bool start, bool end)
{
	if (pkt->npkts > 1 && pkt->mtu != qp->mtu)
		return false;
	if (!end)
		return pkt->payload_len == pkt->npkts * qp->mtu;
	if (start && !pkt->payload_len)
		return true;
	return pkt->payload_len && roce_npkts(pkt->payload_len, qp->mtu) == pkt->npkts;
}

int resp_take_wqe(struct hca_qp *qp)
{
	struct hca_srq *srq = resp_srq(qp);
	struct hca_rq *rq = srq ? &srq->rq : &qp->rq;
	uint32_t left;
	int rc;

	if (qp->resp.have_wqe)
		return 0;
	rc = rq_take(rq, qp->resp.wqe, &left);
	if (rc)
		return rc;
	qp->resp.have_wqe = true;
	if (srq)
		srq_taken(srq, left);
	return 0;
}

static enum resp_result rnr(struct hca_qp *qp)
{
	if (qp->type == IBV_QPT_UC) {
		qp->resp.in_msg = false;
		return RESP_DONE;
	}
	cnt_inc(qp->dev->stat, FL_CNT_send_rnr_err);
	nak_once(qp, AETH_RNR_NAK | (qp->attr.min_rnr_timer & AETH_VALUE_MASK));
	return RESP_DONE;
}

/* First packet of a message: what it is, and whether it may be. true: answered already. */
static bool begin_message(struct hca_qp *qp, const struct roce_pkt *pkt, uint32_t kind)
{
	if (qp->type == IBV_QPT_XRC_RECV && resp_begin_srq(qp, pkt))
		return true;
	if (kind == ROCE_F_WRITE) {
		if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) ||
		    pkt->dma_len > qp->dev->profile->max_msg_sz) {
			resp_invalid(qp, pkt);
			return true;
		}
		if (pkt->dma_len &&
		    mr_check(resp_pd(qp), pkt->rkey, pkt->va, pkt->dma_len, IBV_ACCESS_REMOTE_WRITE)) {
			resp_denied(qp, pkt);
			return true;
		}
		qp->resp.va = pkt->va;
		qp->resp.rkey = pkt->rkey;
		qp->resp.remaining = pkt->dma_len;
	} else if (resp_take_wqe(qp)) {
		rnr(qp);
		qp->resp.srq = NULL;
		return true;
	}
	qp->resp.msg_kind = kind;
	qp->resp.offset = 0;
	return false;
}

/* Places the payload: 0, -EINPROGRESS, or -EACCES. */
static int place(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	struct hca_srq *srq = resp_srq(qp);
	struct mr_miss miss;
	int rc;

	if (!pkt->payload_len)
		return 0;
	do {
		if (qp->resp.msg_kind == ROCE_F_WRITE)
			rc = mr_copy(resp_pd(qp), qp->resp.rkey, qp->resp.va + qp->resp.offset,
				     (void *)pkt->payload, pkt->payload_len, MR_TO_MEM,
				     IBV_ACCESS_REMOTE_WRITE, &miss);
		else
			rc = mr_copy_sges(srq ? srq->pd : qp->pd, qp->resp.wqe->sge,
					  qp->resp.wqe->num_sge, qp->resp.offset,
					  (void *)pkt->payload, pkt->payload_len, MR_TO_MEM, &miss);
		if (rc == -EFAULT) {
			/* the rest of a receive may stay unused, and then untouched */
			miss.want = qp->resp.msg_kind == ROCE_F_WRITE ? qp->resp.remaining : 0;
			rc = pf_fault(qp, ROLE_RESP, &miss) ?: -EAGAIN;
		}
	} while (rc == -EAGAIN);
	if (!rc)
		pf_done(qp, ROLE_RESP);
	return rc;
}

static void end_message(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	uint64_t bytes = qp->resp.offset;

	qp->resp.in_msg = false;
	qp->resp.msn = psn_add(qp->resp.msn, 1);
	if (!(roce_opcode[pkt->opcode_last].flags & ROCE_F_RWR)) {
		if (!qp->resp.have_wqe)
			qp->resp.srq = NULL;
		return;
	}
	/*
	 * The ACK leaves before the completion can be seen: an application that answers at once (and from
	 * another thread) must not overtake it. Programs count on their send to complete before the reply.
	 */
	if (qp_reliable(qp) && pkt->ackreq) {
		qp->resp.ack_pending = true;
		resp_send_ack(qp);
	}
	recv_done(qp, IBV_WC_SUCCESS, pkt, bytes);
	qp->resp.srq = NULL;
}

static enum resp_result resp_data(struct hca_qp *qp, const struct roce_pkt *pkt);

/*
 * A train that cannot be placed as a whole: its packets up to the one that cannot be are, as on a wire, and
 * the NAK names that one. When it pauses amid this, what was placed is a duplicate the next time.
 */
static enum resp_result one_by_one(struct hca_qp *qp, const struct roce_pkt *train)
{
	enum resp_result result = RESP_DONE;
	struct roce_pkt pkt;
	uint32_t i, last = train->npkts - 1;

	for (i = 0; i <= last && result == RESP_DONE && qp->state != IBV_QPS_ERR; i++) {
		pkt = *train;
		pkt.opcode = pkt.opcode_last = roce_pkt_opcode(train, i);
		pkt.psn = psn_add(train->psn, i);
		pkt.npkts = 1;
		pkt.payload += (size_t)i * train->mtu;
		pkt.payload_len = i == last ? train->payload_len - last * train->mtu : train->mtu;
		pkt.se = i == last && train->se;
		pkt.ackreq = i == last && train->ackreq;
		result = resp_data(qp, &pkt);
	}
	return result;
}

/* A packet's size says which path MTU its sender has, if it is not ours. */
static void tell_mtu(struct hca_qp *qp, const struct roce_pkt *pkt, bool end)
{
	uint32_t theirs = pkt->npkts > 1 ? pkt->mtu : pkt->payload_len;

	if (theirs > qp->mtu || (theirs < qp->mtu && (pkt->npkts > 1 || !end)))
		fl_warn("QP 0x%06x: a packet of %u bytes from QP 0x%06x, where the path MTU is %u: the two ends "
			"were set up with different path MTUs (path_mtu of ibv_modify_qp)",
			qp->qpn, theirs, qp->attr.dest_qp_num, qp->mtu);
}

static enum resp_result resp_data(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	uint32_t first = roce_opcode[pkt->opcode].flags, last = roce_opcode[pkt->opcode_last].flags;
	uint32_t kind = first & (ROCE_F_SEND | ROCE_F_WRITE);
	bool start = first & ROCE_F_START, end = last & ROCE_F_END;
	uint32_t srqn;
	int rc;

	/* invalidation by the peer is for memory extensions, which are not claimed */
	if (kind != (last & (ROCE_F_SEND | ROCE_F_WRITE)) || (last & ROCE_F_IETH))
		return resp_invalid(qp, pkt);
	if (start ? qp->resp.in_msg : !qp->resp.in_msg || qp->resp.msg_kind != kind)
		return resp_invalid(qp, pkt);
	if (!start && first & ROCE_F_XRCETH && pkt->srqn != (srqn = qp->resp.srq->srqn))
		return srqn ? resp_invalid(qp, pkt) : resp_no_srq(qp, pkt); /* 0: it is being destroyed */
	if (!sizes_ok(qp, pkt, start, end)) {
		tell_mtu(qp, pkt, end);
		return resp_invalid(qp, pkt);
	}
	if (start && begin_message(qp, pkt, kind))
		return RESP_DONE;
	if (kind == ROCE_F_WRITE) {
		if (pkt->payload_len > qp->resp.remaining ||
		    (end && pkt->payload_len != qp->resp.remaining))
			return resp_invalid(qp, pkt);
		if ((last & ROCE_F_RWR) && resp_take_wqe(qp))
			return rnr(qp);
	} else if (qp->resp.offset + pkt->payload_len > qp->resp.wqe->length) {
		/* a length error is an invalid request to the peer (9.9.3.1.2); rxe answers 0x63 */
		resp_fatal(qp, pkt, AETH_NAK_INVALID_REQ, pkt->psn, IBV_WC_LOC_LEN_ERR);
		return RESP_DONE;
	}
	rc = place(qp, pkt);
	if (rc == -EINPROGRESS)
		return resp_faulted(qp);
	if (rc && pkt->npkts > 1)
		return one_by_one(qp, pkt);
	if (rc && kind == ROCE_F_WRITE)
		return resp_denied(qp, pkt);
	if (rc) {
		cnt_inc(qp->dev->stat, FL_CNT_local_access_err);
		resp_fatal(qp, pkt, AETH_NAK_REM_OP_ERR, pkt->psn, IBV_WC_LOC_PROT_ERR);
		return RESP_DONE;
	}
	qp->resp.in_msg = true;
	qp->resp.offset += pkt->payload_len;
	qp->resp.remaining -= kind == ROCE_F_WRITE ? pkt->payload_len : 0;
	qp->resp.psn = psn_add(pkt->psn, pkt->npkts);
	if (end)
		end_message(qp, pkt);
	if (pkt->ackreq && qp_reliable(qp) && !(end && (last & ROCE_F_RWR)))
		ack_later(qp);
	return RESP_DONE;
}

/* ---- the packet that comes in ---- */

/* 9.7.5.1.5: WRITEs and SENDs are acknowledged again, READs executed again, atomics answered again */
static void duplicate(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	uint32_t flags = roce_opcode[pkt->opcode].flags, pd, i;

	cnt_inc(qp->dev->stat, FL_CNT_duplicate_request);
	if (flags & ROCE_F_READ) {
		if (resp_pkt_pd(qp, pkt, &pd) && (qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) &&
		    psn_cmp(psn_add(pkt->psn, roce_npkts(pkt->dma_len, qp->mtu)), qp->resp.psn) <= 0 &&
		    pkt->dma_len <= qp->dev->profile->max_msg_sz &&
		    (!pkt->dma_len || !mr_check(pd, pkt->rkey, pkt->va, pkt->dma_len, IBV_ACCESS_REMOTE_READ)))
			resp_read_begin(qp, pkt, pd, true);
	} else if (flags & ROCE_F_ATOMIC) {
		for (i = 0; i < qp->resp.num_atomics; i++)
			if (qp->resp.atomics[i].valid && qp->resp.atomics[i].psn == pkt->psn)
				resp_atomic_ack(qp, pkt->psn, qp->resp.atomics[i].orig);
	} else {
		ack_later(qp);
	}
}

/*
 * Unreliable connection (9.8.2.2): a message that lost a packet is dropped, silently, up to the first
 * packet of another.
 */
static enum resp_result resp_process_uc(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	uint32_t flags = roce_opcode[pkt->opcode].flags;

	if (pkt->psn != qp->resp.psn || (flags & ROCE_F_START))
		qp->resp.in_msg = false;
	if (!(flags & ROCE_F_START) && !qp->resp.in_msg)
		return RESP_DONE;
	qp->resp.psn = pkt->psn;
	return resp_data(qp, pkt);
}

static enum resp_result resp_process(struct hca_qp *qp, const struct roce_pkt *in)
{
	struct roce_pkt pkt = *in;
	uint32_t flags = roce_opcode[pkt.opcode].flags;
	int32_t ahead = psn_cmp(pkt.psn, qp->resp.psn);

	if (qp->type == IBV_QPT_UC)
		return resp_process_uc(qp, in);
	if (ahead > 0) {
		cnt_inc(qp->dev->stat, FL_CNT_out_of_seq_request);
		nak_once(qp, AETH_NAK_PSN_SEQ_ERROR);
		return RESP_DONE;
	}
	if (ahead < 0) {
		if ((uint32_t)-ahead >= pkt.npkts) {
			duplicate(qp, &pkt);
			return RESP_DONE;
		}
		if (pkt.mtu != qp->mtu)
			return RESP_DONE;
		pkt_trim(&pkt, -ahead);
		flags = roce_opcode[pkt.opcode].flags;
	}
	qp->resp.nak_sent = false;
	if (flags & (ROCE_F_SEND | ROCE_F_WRITE))
		return resp_data(qp, &pkt);
	if (flags & ROCE_F_READ)
		return resp_read(qp, &pkt);
	if (flags & ROCE_F_ATOMIC)
		return resp_atomic(qp, &pkt);
	return resp_invalid(qp, &pkt);
}

static bool resp_busy(struct hca_qp *qp)
{
	return qp->faulting[ROLE_RESP] || qp->resp.read.active || qp->resp.atomic_owed ||
	       !cds_list_empty(&qp->backlog.list);
}

/* An ACK of what is answered so far: nothing new, but the peer's patience begins anew. */
static void say_alive(struct hca_qp *qp)
{
	uint32_t next = qp->resp.psn;

	if (qp->resp.read.active)
		next = psn_add(qp->resp.read.psn, qp->resp.read.off / qp->mtu);
	if (!qp->resp.blocked)
		resp_send_aeth(qp, IBV_OPCODE_ACKNOWLEDGE, AETH_ACK_NO_CREDIT, next - 1, 0);
}

#define FAULT_RNR_CODE 20 /* 10.24 ms: the longest wait that we ask for */

/*
 * The peer asks again for what waits for a page: its ACK timer went off, and its retries are going. An ACK of
 * what is complete tells one of ours, and any that goes by 9.7.6.1.3 loosely, that we live. Others count on,
 * and an RNR NAK has them wait; but it is paid for from their RNR retries, which we do not know. They are
 * most likely what ours are, for both ends of a connection are set up alike: 7 is without end; of fewer,
 * two are left to them, one for a receive that is late and one for the case that they have fewer. Its timer
 * is short, and the page's coming answers what was kept at once, so that the wait costs nothing. And a fault
 * that takes too long is not vouched for any more: the peer's retries run out, and its user is told.
 */
static void still_waiting(struct hca_qp *qp)
{
	const struct fl_config *cfg = hca_node->cfg;
	uint64_t ns = pf_waits_ns(qp, ROLE_RESP, now_ns());
	uint8_t budget = qp->attr.rnr_retry, code = qp->attr.min_rnr_timer & AETH_VALUE_MASK;

	if (cfg->fault_patience_ms && ns > cfg->fault_patience_ms * 1000000ull)
		return;
	if (ns <= cfg->fault_rnr_ms * 1000000ull || qp->resp.read.active || qp->resp.blocked ||
	    (budget != 7 && qp->resp.fault_rnrs + 2 >= budget)) {
		say_alive(qp);
		return;
	}
	if (budget != 7)
		qp->resp.fault_rnrs++;
	if (!code || code > FAULT_RNR_CODE)
		code = FAULT_RNR_CODE;
	count_fault_rnr(qp);
	resp_send_aeth(qp, IBV_OPCODE_ACKNOWLEDGE, AETH_RNR_NAK | code, qp->resp.psn, 0);
}

/*
 * While paused: what is next in order is kept; what was kept or had before says that the peer grows
 * impatient, and is told that we live, by an ACK of the last request that is complete. The peer sends
 * again what is not kept.
 */
static void keep(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	int32_t ahead;

	if (qp->type == IBV_QPT_UC) {
		if (!pkt_queue_add(&qp->backlog, pkt, false))
			cnt_inc(qp->dev->stat, FL_CNT_rx_backlog_drop);
		return;
	}
	if (cds_list_empty(&qp->backlog.list))
		qp->backlog.next_psn = qp->resp.psn;
	ahead = psn_cmp(pkt->psn, qp->backlog.next_psn);
	if (ahead < 0) {
		cnt_inc(qp->dev->stat, FL_CNT_duplicate_request);
		still_waiting(qp);
		return;
	}
	if (ahead > 0 || !pkt_queue_add(&qp->backlog, pkt, false)) {
		cnt_inc(qp->dev->stat, FL_CNT_rx_backlog_drop);
		return;
	}
	qp->backlog.next_psn = psn_add(pkt->psn, roce_opcode[pkt->opcode].flags & ROCE_F_READ
							 ? roce_npkts(pkt->dma_len, qp->mtu)
							 : pkt->npkts);
}

void resp_rx(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	if (!resp_listens(qp)) {
		cnt_inc(qp->dev->stat, FL_CNT_rx_unknown_qp);
		return;
	}
	if (!qp->resp.comm_est && qp->state == IBV_QPS_RTR) {
		qp->resp.comm_est = true;
		qp_event(qp, IBV_EVENT_COMM_EST);
	}
	if (qp->faulting[ROLE_RESP] && fault_model->rnr_nak && qp_reliable(qp) && !qp->resp.read.active) {
		if (pkt->psn == qp->resp.psn) { /* the peer has waited, and asks again */
			qp->resp.nak_sent = false;
			resp_faulted(qp);
		}
		return;
	}
	if (resp_busy(qp)) {
		keep(qp, pkt);
		return;
	}
	if (resp_process(qp, pkt) != RESP_AGAIN)
		return;
	qp->backlog.next_psn = psn_add(pkt->psn, pkt->npkts);
	if (!pkt_queue_add(&qp->backlog, pkt, true))
		cnt_inc(qp->dev->stat, FL_CNT_rx_backlog_drop);
}

/* Room again, or a page: pay what is owed, end what was begun, take up what waits. */
void resp_resume(struct hca_qp *qp)
{
	struct kept_pkt *k;

	if (qp->srd) {
		srd_resume(qp);
		return;
	}
	if (qp->ud) {
		ud_resume(qp);
		return;
	}
	if (!qp->path)
		return;
	qp->resp.blocked = false;
	if (qp->resp.nak_owed) {
		qp->resp.nak_owed = false;
		send_nak(qp, qp->resp.nak_syndrome, qp->resp.nak_psn);
	}
	if (!resp_listens(qp))
		return;
	if (qp->resp.atomic_owed) {
		qp->resp.atomic_owed = false;
		resp_atomic_ack(qp, qp->resp.atomic_psn, qp->resp.atomic_orig);
	}
	if (qp->faulting[ROLE_RESP])
		return;
	qp->resp.fault_rnrs = 0;
	resp_read_run(qp);
	while (!qp->resp.read.active && !qp->resp.atomic_owed && !qp->faulting[ROLE_RESP] &&
	       resp_listens(qp) && (k = pkt_queue_take(&qp->backlog))) {
		if (resp_process(qp, &k->pkt) == RESP_AGAIN) {
			pkt_queue_put_back(&qp->backlog, k);
			return;
		}
		free(k);
	}
	resp_send_ack(qp);
}
