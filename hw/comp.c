/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The completer: what the responder answered, and what that says of our send WQEs.
 *
 * `una` is the oldest PSN not acknowledged. A positive answer for a PSN acknowledges everything before
 * it as well (9.7.5.1.2), but a READ or an atomic is complete only with its own answer: an ACK that
 * passes over one says that the answer was lost, and we ask again from there.
 */
#include <errno.h>
#include <stdlib.h>
#include "hw/fault_model.h"
#include "hw/hw.h"

static void set_una(struct hca_qp *qp, uint32_t psn)
{
	uint32_t npkts = (psn - qp->req.una) & ROCE_PSN_MASK;

	qp->req.una = psn;
	cwnd_acked(qp, npkts);
	probe_acked(qp);
	qp->req.progress = true;
	qp->req.seq_nak_taken = false;
	qp->req.retry_left = qp->attr.retry_cnt;
	qp->req.rnr_left = qp->attr.rnr_retry;
	qp->req.rnr_wait = false; /* what the peer was not ready for it has done */
	qp->req.ask_again_at = 0;
	qp->req.heard_alive = qp->req.heard_gap = qp->req.heard_rnr = false;
	direct_acked(qp);
}

static struct send_wqe *oldest(struct hca_qp *qp)
{
	struct send_wqe *w;

	if (qp->sq_tail == qp->sq_head)
		return NULL;
	w = sq_wqe(qp, qp->sq_tail);
	return w->started ? w : NULL;
}

/* All up to psn is acknowledged. false: not quite, an answer to a READ or an atomic is missing. */
static bool ack_through(struct hca_qp *qp, uint32_t psn)
{
	struct send_wqe *w;

	while (psn_cmp(psn, qp->req.una) >= 0 && (w = oldest(qp))) {
		if (wqe_is_read(w) || wqe_is_atomic(w))
			return false;
		if (psn_cmp(w->last_psn, psn) > 0) {
			set_una(qp, psn_add(psn, 1));
			break;
		}
		set_una(qp, psn_add(w->last_psn, 1));
		req_retire(qp, IBV_WC_SUCCESS, 0);
	}
	return true;
}

/* Something was lost on the way to us, or to the peer: once for each gap, from una on. */
static void lost(struct hca_qp *qp, uint32_t psn)
{
	if (qp->req.seq_nak_taken)
		return;
	qp->req.seq_nak_taken = true;
	cwnd_reduce(qp);
	req_undam(qp);
	req_go_back(qp, psn);
}

static uint64_t rnr_timer_ns(uint8_t code)
{
	/* 9.7.5.2.8, table 45: in units of 10 us */
	static const uint32_t t[32] = {65536, 1,   2,	3,   4,	  6,   8,    12,   16,	 24,   32,
				       48,    64,  96,	128, 192, 256, 384,  512,  768,	 1024, 1536,
				       2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

	return t[code & AETH_VALUE_MASK] * 10000ull;
}

static void rnr_nak(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	cnt_inc(qp->dev->stat, FL_CNT_rcvd_rnr_err);
	qp->req.heard_rnr = true;
	if (qp->req.rnr_wait)
		return; /* the network's copy of the one we obey */
	if (!qp->req.rnr_left) {
		cnt_inc(qp->dev->stat, FL_CNT_retry_rnr_exceeded_err);
		qp_error(qp, IBV_WC_RNR_RETRY_EXC_ERR, pkt->syndrome);
		return;
	}
	if (qp->attr.rnr_retry != 7) /* 7: without end (9.7.5.2.8) */
		qp->req.rnr_left--;
	req_go_back(qp, pkt->psn);
	qp->req.rnr_wait = true;
	qp->req.progress = true; /* the peer lives; the ACK timer begins anew */
	qp->req.rnr_deadline = now_ns() + rnr_timer_ns(pkt->syndrome) * fault_model->rnr_percent / 100;
	timer_arm(qp, qp->req.rnr_deadline);
}

static void seq_nak(struct hca_qp *qp, uint32_t psn)
{
	cnt_inc(qp->dev->stat, FL_CNT_rcvd_seq_err);
	qp->req.heard_gap = true;
	qp->req.heard_gap_psn = psn;
	if (qp->req.seq_nak_taken || qp->req.rnr_wait)
		return;
	if (!qp->req.retry_left) {
		req_give_up(qp);
		return;
	}
	qp->req.retry_left--;
	lost(qp, psn);
}

static void nak(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	switch (pkt->syndrome) {
	case AETH_NAK_PSN_SEQ_ERROR:
		seq_nak(qp, pkt->psn);
		break;
	case AETH_NAK_INVALID_REQ:
		qp_error(qp, IBV_WC_REM_INV_REQ_ERR, pkt->syndrome);
		break;
	case AETH_NAK_REM_ACC_ERR:
		qp_error(qp, IBV_WC_REM_ACCESS_ERR, pkt->syndrome);
		break;
	case AETH_NAK_INVALID_RD_REQ: /* XRC has taken it over from RD */
		qp_error(qp, qp->type == IBV_QPT_XRC_SEND ? IBV_WC_REM_INV_RD_REQ_ERR : IBV_WC_REM_OP_ERR,
			 pkt->syndrome);
		break;
	default: /* remote operational, and what is reserved */
		qp_error(qp, IBV_WC_REM_OP_ERR, pkt->syndrome);
		break;
	}
}

static void comp_ack(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	uint8_t kind = pkt->syndrome & AETH_KIND_MASK;

	if (kind == AETH_ACK) {
		if (!ack_through(qp, pkt->psn))
			lost(qp, qp->req.una);
		return;
	}
	if (kind != AETH_NAK && kind != AETH_RNR_NAK)
		return; /* reserved: not an answer */
	/* a NAK acknowledges what is before its PSN */
	if (!ack_through(qp, psn_add(pkt->psn, ROCE_PSN_MASK))) {
		lost(qp, qp->req.una);
		return;
	}
	if (!oldest(qp))
		return;
	if (kind == AETH_RNR_NAK)
		rnr_nak(qp, pkt);
	else
		nak(qp, pkt);
}

/*
 * Scatters an answer to the oldest WQE's SGEs; -EINPROGRESS: paused for a page fault. The QP is in
 * error when it returns another error.
 */
static int scatter(struct hca_qp *qp, struct send_wqe *w, uint64_t off, const void *data, uint32_t len)
{
	struct mr_miss miss;
	int rc;

	do {
		rc = mr_copy_sges(qp->pd, w->sge, w->num_sge, off, (void *)data, len, MR_TO_MEM, &miss);
		if (rc == -EFAULT)
			rc = pf_fault(qp, ROLE_COMP, &miss) ?: -EAGAIN;
	} while (rc == -EAGAIN);
	if (!rc) {
		pf_done(qp, ROLE_COMP);
	} else if (rc != -EINPROGRESS) {
		cnt_inc(qp->dev->stat, FL_CNT_local_access_err);
		qp_error(qp, IBV_WC_LOC_PROT_ERR, 0);
	}
	return rc;
}

/* The oldest WQE, if this answers it: all before it is acknowledged on the way. */
static struct send_wqe *answered_wqe(struct hca_qp *qp, uint32_t psn)
{
	struct send_wqe *w;

	if (psn_cmp(psn, qp->req.una) > 0 && !ack_through(qp, psn_add(psn, ROCE_PSN_MASK))) {
		lost(qp, qp->req.una);
		return NULL;
	}
	w = oldest(qp);
	return w && psn == qp->req.una ? w : NULL;
}

static int comp_read(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	struct send_wqe *w = answered_wqe(qp, pkt->psn);
	uint32_t full = pkt->npkts * qp->mtu;
	int rc;

	if (!w || !wqe_is_read(w))
		return 0;
	/* 9.7.5.1.7: all but the last are full. A late answer may be to a request before the last. */
	if (pkt->payload_len > w->asked_bytes - w->acked ||
	    (pkt->payload_len != full && pkt->payload_len != w->length - w->acked) ||
	    roce_npkts(pkt->payload_len, qp->mtu) != pkt->npkts) {
		qp_error(qp, IBV_WC_BAD_RESP_ERR, 0);
		return 0;
	}
	rc = scatter(qp, w, w->acked, pkt->payload, pkt->payload_len);
	if (rc)
		return rc;
	w->acked += pkt->payload_len;
	set_una(qp, psn_add(pkt->psn, pkt->npkts));
	if (w->acked == w->length)
		req_retire(qp, IBV_WC_SUCCESS, 0);
	return 0;
}

static int comp_atomic(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	struct send_wqe *w = answered_wqe(qp, pkt->psn);
	int rc;

	if (!w || !wqe_is_atomic(w))
		return 0;
	rc = scatter(qp, w, 0, &pkt->atomic_orig, sizeof(pkt->atomic_orig));
	if (rc)
		return rc;
	set_una(qp, psn_add(pkt->psn, 1));
	req_retire(qp, IBV_WC_SUCCESS, 0);
	return 0;
}

/* After una moved: sending goes on behind it, where a retransmission was overtaken by a late answer. */
static void catch_up(struct hca_qp *qp)
{
	struct send_wqe *w;

	if (psn_cmp(qp->req.una, qp->req.psn) <= 0)
		return;
	qp->req.psn = qp->req.una;
	if (qp->sq_send == qp->sq_head)
		return;
	w = sq_wqe(qp, qp->sq_send);
	if (w->started)
		w->sent = ((qp->req.una - w->first_psn) & ROCE_PSN_MASK) * qp->mtu;
}

static int comp_process(struct hca_qp *qp, const struct roce_pkt *in)
{
	uint32_t flags = roce_opcode[in->opcode].flags;
	struct roce_pkt trimmed;
	const struct roce_pkt *pkt = in;
	int32_t had = -psn_cmp(in->psn, qp->req.una);
	int rc = 0;

	if (psn_cmp(pkt->psn, qp->req.psn_high) >= 0)
		return 0; /* of what was never sent */
	if (had > 0 && (uint32_t)had < in->npkts && in->mtu == qp->mtu) {
		trimmed = *in;
		pkt_trim(&trimmed, had);
		pkt = &trimmed;
	} else if (had > 0) {
		/* old news, but the peer lives: one that pauses for a fault answers retries so */
		if (flags & ROCE_F_AETH && (pkt->syndrome & AETH_KIND_MASK) == AETH_ACK) {
			if (qp->req.retry_left < qp->attr.retry_cnt)
				qp->req.heard_alive = true;
			qp->req.retry_left = qp->attr.retry_cnt;
			probe_alive(qp);
		}
		return 0;
	}
	if (flags & ROCE_F_ATMACK)
		rc = comp_atomic(qp, pkt);
	else if (flags & ROCE_F_READ)
		rc = comp_read(qp, pkt);
	else
		comp_ack(qp, pkt);
	if (qp->state == IBV_QPS_ERR)
		return 0;
	catch_up(qp);
	probe_answered(qp);
	if (qp->req.local_error && qp->sq_send == qp->sq_tail) {
		qp_error(qp, IBV_WC_LOC_PROT_ERR, 0);
		return 0;
	}
	req_check_drained(qp);
	if (!qp->req.blocked)
		req_run(qp);
	return rc;
}

static bool comp_listens(const struct hca_qp *qp)
{
	return qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
}

void comp_rx(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	if (!comp_listens(qp))
		return;
	if (fault_model->ask_again_ns) {
		if (!qp->faulting[ROLE_COMP] && comp_process(qp, pkt) != -EINPROGRESS)
			return;
		if (!qp->req.ask_again_at) {
			qp->req.ask_again_at = now_ns() + fault_model->ask_again_ns;
			timer_arm(qp, qp->req.ask_again_at);
		}
		return;
	}
	if (qp->faulting[ROLE_COMP] || !cds_list_empty(&qp->answers.list)) {
		if (!pkt_queue_add(&qp->answers, pkt, false))
			cnt_inc(qp->dev->stat, FL_CNT_rx_backlog_drop);
		return;
	}
	if (comp_process(qp, pkt) == -EINPROGRESS && !pkt_queue_add(&qp->answers, pkt, true))
		cnt_inc(qp->dev->stat, FL_CNT_rx_backlog_drop);
}

void comp_resume(struct hca_qp *qp)
{
	struct kept_pkt *k;

	while (comp_listens(qp) && !qp->faulting[ROLE_COMP] && (k = pkt_queue_take(&qp->answers))) {
		if (comp_process(qp, &k->pkt) == -EINPROGRESS) {
			pkt_queue_put_back(&qp->answers, k);
			return;
		}
		free(k);
	}
}
