/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester: send WQEs become request packets.
 *
 * Three counters walk the send queue: head (next to post), send (being sent) and tail (oldest not
 * retired). A WQE gets its PSNs when its sending starts and keeps them, so going back after a loss is
 * moving `send` and the PSN back to a place that req_go_back() finds again. A READ takes the PSNs of
 * its response (9.7.3.1); a long one is asked for in pieces, as the window allows, each a request of
 * its own to the peer, so that a response never exceeds what we can take.
 *
 * What ends a run: nothing to send, a window full of unacknowledged packets, no room on the link
 * (tx_ready resumes), a page fault on the source (the worker resumes), an RNR wait (the timer).
 */
#include <errno.h>
#include <string.h>
#include "hw/fault_model.h"
#include "hw/hw.h"
#include "hw/ud.h"

static enum ibv_wc_opcode wc_opcode(uint8_t wr_opcode)
{
	switch (wr_opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	default:
		return IBV_WC_SEND;
	}
}

void req_count_done(struct hca_qp *qp, const struct send_wqe *w)
{
	struct faultline_device *st = qp->dev->stat;

	if (wqe_is_read(w))
		cnt_inc(st, FL_CNT_rdma_reads);
	else if (wqe_is_atomic(w))
		cnt_inc(st, FL_CNT_rdma_atomics);
	else if (w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		cnt_inc(st, FL_CNT_rdma_writes);
	else
		cnt_inc(st, FL_CNT_rdma_sends);
}

void req_retire(struct hca_qp *qp, enum ibv_wc_status status, uint32_t vendor_err)
{
	struct send_wqe *w = sq_wqe(qp, qp->sq_tail);
	struct ibv_wc wc = {
		.wr_id = w->wr_id,
		.status = status,
		.opcode = wc_opcode(w->opcode),
		.vendor_err = vendor_err,
		.byte_len = w->length,
		.qp_num = qp->qpn,
	};
	bool tell = w->signaled || status != IBV_WC_SUCCESS;

	if (w->asked && qp->req.rd_atomic)
		qp->req.rd_atomic--;
	if (status == IBV_WC_SUCCESS)
		req_count_done(qp, w);
	if (qp->sq_send == qp->sq_tail)
		qp->sq_send++;
	qp->sq_tail++;
	if (tell)
		hca_cq_push(qp->send_cq, &wc, false);
}

/* ---- sending ---- */

int req_fill_from_wqe(void *arg, uint8_t *dst, uint32_t off, uint32_t len)
{
	struct req_fill *a = arg;
	struct send_wqe *w = a->wqe;

	if (w->inline_data) {
		memcpy(dst, w->data + w->sent + off, len);
		return 0;
	}
	return mr_copy_sges(a->qp->pd, w->sge, w->num_sge, (uint64_t)w->sent + off, dst, len,
			    MR_FROM_MEM, &a->miss);
}

/* the opcodes of a train: of a message that is whole, or a part of it */
static void set_opcodes(struct roce_pkt *pkt, bool start, bool end, uint8_t first, uint8_t middle,
			uint8_t last, uint8_t only)
{
	if (pkt->npkts == 1)
		pkt->opcode = pkt->opcode_last = start ? (end ? only : first) : end ? last : middle;
	else {
		pkt->opcode = start ? first : middle;
		pkt->opcode_last = end ? last : middle;
	}
}

static void set_data_opcodes(const struct hca_qp *qp, struct roce_pkt *pkt,
			     const struct send_wqe *w, bool start, bool end)
{
	switch (w->opcode) {
	case IBV_WR_SEND:
		set_opcodes(pkt, start, end, IBV_OPCODE_RC_SEND_FIRST, IBV_OPCODE_RC_SEND_MIDDLE,
			    IBV_OPCODE_RC_SEND_LAST, IBV_OPCODE_RC_SEND_ONLY);
		break;
	case IBV_WR_SEND_WITH_IMM:
		set_opcodes(pkt, start, end, IBV_OPCODE_RC_SEND_FIRST, IBV_OPCODE_RC_SEND_MIDDLE,
			    IBV_OPCODE_RC_SEND_LAST_WITH_IMMEDIATE,
			    IBV_OPCODE_RC_SEND_ONLY_WITH_IMMEDIATE);
		break;
	case IBV_WR_RDMA_WRITE:
		set_opcodes(pkt, start, end, IBV_OPCODE_RC_RDMA_WRITE_FIRST,
			    IBV_OPCODE_RC_RDMA_WRITE_MIDDLE, IBV_OPCODE_RC_RDMA_WRITE_LAST,
			    IBV_OPCODE_RC_RDMA_WRITE_ONLY);
		break;
	default:
		set_opcodes(pkt, start, end, IBV_OPCODE_RC_RDMA_WRITE_FIRST,
			    IBV_OPCODE_RC_RDMA_WRITE_MIDDLE,
			    IBV_OPCODE_RC_RDMA_WRITE_LAST_WITH_IMMEDIATE,
			    IBV_OPCODE_RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE);
		break;
	}
	/* the transports number the same operations alike (9.2.1, table 35), and RC's part is 0 */
	pkt->opcode |= qp_transport(qp);
	pkt->opcode_last |= qp_transport(qp);
}

static void wqe_start(struct hca_qp *qp, struct send_wqe *w)
{
	uint32_t n = wqe_is_atomic(w) ? 1 : roce_npkts(w->length, qp->mtu);

	w->started = true;
	w->first_psn = qp->req.psn;
	w->last_psn = psn_add(w->first_psn, n - 1);
}

static uint32_t window_left(const struct hca_qp *qp)
{
	uint32_t out = (qp->req.psn - qp->req.una) & ROCE_PSN_MASK;
	uint32_t window = qp->req.probe.out ? 1 : qp->req.cwnd.now;

	return out < window ? window - out : 0;
}

static uint64_t ack_period(const struct hca_qp *qp)
{
	return qp->attr.timeout ? 4096ull << qp->attr.timeout : 0;
}

static int xmit(struct hca_qp *qp, const struct send_wqe *w, const struct roce_pkt *pkt, net_fill_fn fill,
		void *arg)
{
	if (w->dammed) {
		cnt_inc(qp->dev->stat, FL_CNT_send_err);
		return 0;
	}
	return net_xmit(qp->path, pkt, fill, arg);
}

/* After a train is on its way. */
static void sent(struct hca_qp *qp, const struct roce_pkt *pkt, uint32_t psns)
{
	struct faultline_device *st = qp->dev->stat;

	bool silence = qp->req.una == qp->req.psn;

	if (silence) { /* the wire was idle: the timer's period begins now */
		qp->req.progress = true;
		if (qp->attr.timeout && (!qp->deadline || qp->watched)) {
			qp->req.ack_at = now_ns() + ack_period(qp);
			timer_arm(qp, qp->req.ack_at);
		}
	}
	qp->req.psn = psn_add(qp->req.psn, psns);
	if (psn_cmp(qp->req.psn, qp->req.psn_high) > 0)
		qp->req.psn_high = qp->req.psn;
	if (!qp_reliable(qp))
		qp->req.una = qp->req.psn;
	probe_sent(qp, silence);
	cnt_add(st, FL_CNT_sent_pkts, pkt->npkts);
	cnt_add(st, FL_CNT_sent_bytes, pkt->payload_len);
}

static void wqe_sent(struct hca_qp *qp, struct send_wqe *w)
{
	w->done = true;
	if (qp_reliable(qp))
		qp->sq_send++;
	else
		req_retire(qp, IBV_WC_SUCCESS, 0); /* nobody will acknowledge it */
}

/* A SEND or WRITE, the next train of it. 0: go on. */
static int send_data(struct hca_qp *qp, struct send_wqe *w)
{
	struct req_fill arg = {.qp = qp, .wqe = w};
	uint32_t max = net_path_max_train(qp->path), left = w->length - w->sent, room;
	struct roce_pkt pkt = {.pkey = 0xffff, .dest_qpn = qp->attr.dest_qp_num, .mtu = qp->mtu};
	bool start = w->sent == 0, end;
	int rc;

	room = window_left(qp);
	if (!room)
		return -EBUSY;
	max -= max % qp->mtu;
	if (max > room * qp->mtu)
		max = room * qp->mtu;
	pkt.payload_len = left < max ? left : max;
	end = pkt.payload_len == left;
	pkt.npkts = roce_npkts(pkt.payload_len, qp->mtu);
	pkt.psn = qp->req.psn;
	pkt.ackreq = qp_reliable(qp);
	pkt.se = end && w->solicited;
	pkt.va = w->remote_addr;
	pkt.rkey = w->rkey;
	pkt.dma_len = w->length;
	pkt.imm = w->imm;
	pkt.srqn = w->srqn;
	set_data_opcodes(qp, &pkt, w, start, end);
	rc = xmit(qp, w, &pkt, req_fill_from_wqe, &arg);
	if (rc == -EFAULT)
		return pf_fault(qp, ROLE_REQ, &arg.miss);
	if (rc)
		return rc;
	pf_done(qp, ROLE_REQ);
	w->sent += pkt.payload_len;
	sent(qp, &pkt, pkt.npkts);
	if (end)
		wqe_sent(qp, w);
	return 0;
}

/* Asks for the next piece of a READ. */
static int send_read(struct hca_qp *qp, struct send_wqe *w)
{
	uint8_t opcode = qp_transport(qp) | IBV_OPCODE_RDMA_READ_REQUEST;
	struct roce_pkt pkt = {.opcode = opcode,
			       .opcode_last = opcode,
			       .srqn = w->srqn,
			       .pkey = 0xffff,
			       .dest_qpn = qp->attr.dest_qp_num,
			       .npkts = 1,
			       .mtu = qp->mtu,
			       .ackreq = true};
	uint32_t left = w->length - w->sent, room = window_left(qp), len;
	int rc;

	if (!room || (!w->asked && qp->req.rd_atomic >= qp->attr.max_rd_atomic))
		return -EBUSY;
	/* the peer may hold resources for one READ only: a piece waits for the answer to the one before */
	if (w->sent != w->acked)
		return -EBUSY;
	/*
	 * What is asked for again ends where it did, whatever the window is by now: to the peer it is all old, or
	 * all new (9.7.5.1.5).
	 */
	if (w->sent < w->asked_bytes)
		len = w->asked_bytes - w->sent;
	else
		len = left < room * qp->mtu ? left : room * qp->mtu;
	pkt.psn = qp->req.psn;
	pkt.va = w->remote_addr + w->sent;
	pkt.rkey = w->rkey;
	pkt.dma_len = len;
	rc = xmit(qp, w, &pkt, NULL, NULL);
	if (rc)
		return rc;
	if (!w->asked)
		qp->req.rd_atomic++;
	w->sent += len;
	if (w->sent > w->asked_bytes)
		w->asked_bytes = w->sent;
	w->asked = true;
	sent(qp, &pkt, roce_npkts(len, qp->mtu));
	if (w->sent == w->length)
		wqe_sent(qp, w);
	return 0;
}

static int send_atomic(struct hca_qp *qp, struct send_wqe *w)
{
	bool cas = w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	uint8_t opcode = qp_transport(qp) | (cas ? IBV_OPCODE_COMPARE_SWAP : IBV_OPCODE_FETCH_ADD);
	struct roce_pkt pkt = {.opcode = opcode,
			       .opcode_last = opcode,
			       .srqn = w->srqn,
			       .pkey = 0xffff,
			       .dest_qpn = qp->attr.dest_qp_num,
			       .psn = qp->req.psn,
			       .npkts = 1,
			       .mtu = qp->mtu,
			       .ackreq = true,
			       .va = w->remote_addr,
			       .rkey = w->rkey,
			       .swap_add = cas ? w->swap : w->compare_add,
			       .compare = cas ? w->compare_add : 0};
	int rc;

	if (!window_left(qp) || qp->req.rd_atomic >= qp->attr.max_rd_atomic)
		return -EBUSY;
	rc = xmit(qp, w, &pkt, NULL, NULL);
	if (rc)
		return rc;
	qp->req.rd_atomic++;
	w->asked = true;
	w->sent = w->length;
	sent(qp, &pkt, 1);
	wqe_sent(qp, w);
	return 0;
}

/* May WQE w begin now? 10.8.3.3: a fence waits for READs and atomics before it. */
static bool may_begin(const struct hca_qp *qp, const struct send_wqe *w)
{
	return !(w->fence && qp->req.rd_atomic);
}

static bool may_run(const struct hca_qp *qp)
{
	return (qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD) && qp->path &&
	       !qp->req.rnr_wait && !qp->req.local_error && !qp->faulting[ROLE_REQ];
}

/*
 * The WQE being sent has a local error (10.7.2): those before it must complete first, by their ACKs,
 * so it waits for its turn to be the oldest; nothing after it is sent.
 */
static void local_error(struct hca_qp *qp)
{
	if (qp->type == IBV_QPT_UC)
		sq_error(qp, IBV_WC_LOC_PROT_ERR);
	else if (qp->sq_send == qp->sq_tail)
		qp_error(qp, IBV_WC_LOC_PROT_ERR, 0);
	else
		qp->req.local_error = true;
}

void req_run(struct hca_qp *qp)
{
	struct send_wqe *w;
	int rc;

	if (qp->srd) {
		srd_run(qp);
		return;
	}
	if (qp->ud) {
		ud_run(qp);
		return;
	}
	qp->req.blocked = false;
	while (may_run(qp) && qp->sq_send != qp->sq_head) {
		w = sq_wqe(qp, qp->sq_send);
		if (!w->started) {
			if (qp->state == IBV_QPS_SQD || !may_begin(qp, w))
				return;
			if (direct_place(qp, w))
				continue;
			direct_sending(qp);
			wqe_start(qp, w);
		}
		if (wqe_is_read(w))
			rc = send_read(qp, w);
		else if (wqe_is_atomic(w))
			rc = send_atomic(qp, w);
		else
			rc = send_data(qp, w);
		if (!rc)
			continue;
		if (rc == -EACCES) {
			cnt_inc(qp->dev->stat, FL_CNT_local_access_err);
			local_error(qp);
		} else if (rc == -EAGAIN) {
			qp->req.blocked = true;
		}
		return;
	}
}

void req_check_drained(struct hca_qp *qp)
{
	struct send_wqe *w;

	if (qp->state != IBV_QPS_SQD || qp->req.drained_said)
		return;
	if (qp->sq_tail != qp->sq_head) {
		w = sq_wqe(qp, qp->sq_tail);
		if (w->started)
			return;
	}
	if (qp->srd && !srd_drained(qp))
		return;
	qp->req.drained_said = true;
	qp_event(qp, IBV_EVENT_SQ_DRAINED);
}

/* ---- going back ---- */

void req_go_back(struct hca_qp *qp, uint32_t psn)
{
	struct send_wqe *w;
	uint32_t i;

	for (i = qp->sq_tail; i != qp->sq_head; i++) {
		w = sq_wqe(qp, i);
		if (!w->started)
			break;
		if (psn_cmp(psn, w->last_psn) > 0)
			continue;
		if (w->asked && qp->req.rd_atomic)
			qp->req.rd_atomic--;
		w->done = w->asked = false;
		w->sent = psn_cmp(psn, w->first_psn) > 0
				  ? ((psn - w->first_psn) & ROCE_PSN_MASK) * qp->mtu
				  : 0;
		if (psn_cmp(psn, w->first_psn) < 0)
			continue; /* after the place: all of it goes again */
		qp->sq_send = i;
	}
	qp->req.psn = psn;
	probe_void(qp);
	qp->req.local_error = false; /* it will be met again */
	pf_done(qp, ROLE_REQ);
	cnt_inc(qp->dev->stat, FL_CNT_completer_retry_err);
}

/* A time-out or a gap has found out what was never sent. */
void req_undam(struct hca_qp *qp)
{
	for (uint32_t i = qp->sq_tail; i != qp->sq_head; i++)
		sq_wqe(qp, i)->dammed = false;
}

/* The retries are used up: why, as far as can be told, to the user in words. */
void req_give_up(struct hca_qp *qp)
{
	uint32_t first = qp->req.una, last = psn_add(qp->req.psn_high, ROCE_PSN_MASK), peer = qp->attr.dest_qp_num;
	const char *link = net_path_link(qp->path);
	double ms = ack_period(qp) / 1e6;

	cnt_inc(qp->dev->stat, FL_CNT_retry_exceeded_err);
	if (qp->req.heard_alive) {
		fl_warn("QP 0x%06x: PSN 0x%06x to 0x%06x not acknowledged after %u retries of %.1f ms, and QP 0x%06x "
			"said meanwhile that it lives and is done up to PSN 0x%06x: the peer is stuck in a page "
			"fault; see its messages (link %s)",
			qp->qpn, first, last, qp->attr.retry_cnt, ms, peer, psn_add(first, ROCE_PSN_MASK), link);
		qp_error(qp, IBV_WC_RETRY_EXC_ERR, VENDOR_ERR_PEER_STUCK);
	} else if (qp->req.heard_gap) {
		fl_warn("QP 0x%06x: PSN 0x%06x to 0x%06x not acknowledged after %u retries of %.1f ms, and QP 0x%06x "
			"asked meanwhile for PSN 0x%06x again: the peer is there, and packets are lost on the way "
			"(link %s)",
			qp->qpn, first, last, qp->attr.retry_cnt, ms, peer, qp->req.heard_gap_psn, link);
		qp_error(qp, IBV_WC_RETRY_EXC_ERR, VENDOR_ERR_LOST);
	} else if (qp->req.heard_rnr) {
		fl_warn("QP 0x%06x: PSN 0x%06x to 0x%06x not acknowledged after %u retries of %.1f ms; QP 0x%06x was "
			"not ready for PSN 0x%06x before (RNR NAK) and has not answered since: it is stuck in a page "
			"fault, or was gone before it had a receive (link %s)",
			qp->qpn, first, last, qp->attr.retry_cnt, ms, peer, first, link);
		qp_error(qp, IBV_WC_RETRY_EXC_ERR, VENDOR_ERR_PEER_STUCK);
	} else {
		fl_warn("QP 0x%06x: no answer from QP 0x%06x to PSN 0x%06x to 0x%06x after %u retries of %.1f ms "
			"(link %s): the peer is gone, unreachable, or its QP is not ready",
			qp->qpn, peer, first, last, qp->attr.retry_cnt, ms, link);
		qp_error(qp, IBV_WC_RETRY_EXC_ERR, VENDOR_ERR_NO_ANSWER);
	}
}

static void retry(struct hca_qp *qp)
{
	if (!qp->req.retry_left) {
		req_give_up(qp);
		return;
	}
	qp->req.retry_left--;
	qp->req.seq_nak_taken = false;
	cwnd_timed_out(qp);
	req_undam(qp);
	req_go_back(qp, qp->req.una);
	req_run(qp);
}

static void ack_timer(struct hca_qp *qp, uint64_t now)
{
	if (now < qp->req.ack_at)
		return;
	/* paused for a fault, it is we who are not ready for the answer */
	if (!qp->req.progress && !qp->faulting[ROLE_COMP])
		retry(qp);
	qp->req.progress = false;
	qp->req.ack_at = now + ack_period(qp);
}

/* The timer looks (9.7.6.1.3): it is as late as it must be when nothing moved since it last did. */
void req_timer(struct hca_qp *qp, uint64_t now)
{
	if (qp->srd) {
		srd_timer(qp);
		return;
	}
	if (qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD)
		probe_timer(qp, now);
	if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD)
		return;
	if (qp->req.ask_again_at && now >= qp->req.ask_again_at) {
		/* as published: blindly, whether the page is there or not, and no retry counts */
		qp->req.ask_again_at = now + fault_model->ask_again_ns;
		req_go_back(qp, qp->req.una);
		req_run(qp);
	}
	if (qp->req.ask_again_at)
		timer_arm(qp, qp->req.ask_again_at);
	if (qp->req.rnr_wait) {
		if (now < qp->req.rnr_deadline) {
			timer_arm(qp, qp->req.rnr_deadline);
			return;
		}
		qp->req.rnr_wait = false;
		qp->req.ack_at = now + ack_period(qp);
		req_run(qp);
	} else if (qp->attr.timeout && qp->req.una != qp->req.psn) {
		ack_timer(qp, now);
	}
	if (qp->attr.timeout && qp->req.una != qp->req.psn && qp->state != IBV_QPS_ERR)
		timer_arm(qp, qp->req.ack_at);
}
