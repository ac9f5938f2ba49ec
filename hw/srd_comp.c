/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The completer of SRD: what is answered, what is not and counts as lost for that, and what became of work
 * requests. With it goes how many packets may be out, where the path may lose them: as TCP has it, the window
 * grows with what is answered (RFC 5681), and shrinks by a loss or a mark.
 */
#include <errno.h>
#include "hw/srd.h"

#define WINDOW_LEAST 2u
#define REORDERED    3 /* answers that overtake one before it counts as lost */
#define RNR_NS	     320000ull /* and twice that each time, up to */
#define RNR_SHIFT_MOST 5

/* ---- the window ---- */

static void measured(struct srd_flow *f, uint64_t ns)
{
	uint64_t off = ns > f->srtt ? ns - f->srtt : f->srtt - ns;

	f->var = f->srtt ? (3 * f->var + off) / 4 : ns / 2;
	f->srtt = f->srtt ? (7 * f->srtt + ns) / 8 : ns;
}

static void grow_window(struct srd_flow *f)
{
	if (!f->loses)
		return;
	if (f->window < f->threshold) {
		f->window++;
	} else if (f->window < SRD_WINDOW && ++f->acked >= f->window) {
		f->window++;
		f->acked = 0;
	}
}

/* Once for what was sent before the last time. */
void srd_shrink_window(struct srd_flow *f, uint32_t order, uint32_t to)
{
	if (!f->loses || (int32_t)(order - f->recover) < 0)
		return;
	f->recover = f->order;
	f->window = to > WINDOW_LEAST ? to : WINDOW_LEAST;
	f->threshold = f->window;
}

/* ---- answers ---- */

static struct srd_flow *by_number(struct hca_srd *srd, uint32_t number)
{
	struct srd_flow *f;

	cds_list_for_each_entry(f, &srd->by_number[number % SRD_BUCKETS], by_number)
		if (f->number == number)
			return f;
	return NULL;
}

static void answered(struct hca_qp *qp, struct srd_flow *f, struct srd_pkt *p, uint64_t now)
{
	uint32_t slot = p->slot;
	struct srd_wqe *s;
	struct send_wqe *w;

	if (p->state == SRD_PKT_OUT && !p->again)
		measured(f, now - p->sent_at);
	srd_set_state(f, p, SRD_PKT_DONE);
	f->progress_at = now;
	f->backoff = 0;
	grow_window(f);
	if (slot == SRD_NO_SLOT)
		return;
	s = &qp->srd->wqe[slot];
	w = sq_wqe(qp, slot);
	if (!--s->out && w->sent == w->length)
		srd_complete(qp, slot, SRD_OK);
}

/* What was sent well before something that is answered by now. */
static void find_lost(struct hca_qp *qp, struct srd_flow *f, uint32_t order, bool read)
{
	for (uint32_t psn = f->una; psn != f->psn; psn = psn_add(psn, 1)) {
		struct srd_pkt *p = srd_pkt_at(f, psn);

		if (p->state != SRD_PKT_OUT || p->read != read || (int32_t)(order - p->order) <= REORDERED)
			continue;
		srd_set_state(f, p, SRD_PKT_LOST);
		srd_shrink_window(f, p->order, f->window - f->window * 3 / 10);
	}
}

static void move_on(struct srd_flow *f)
{
	while (f->una != f->psn && srd_pkt_at(f, f->una)->state == SRD_PKT_DONE)
		f->una = psn_add(f->una, 1);
}

/* A PSN of a READ is answered by its data alone. */
static bool ack_one(struct hca_qp *qp, struct srd_flow *f, uint32_t psn, uint64_t now, uint32_t *order)
{
	struct srd_pkt *p = srd_pkt_at(f, psn);

	if (!srd_is_out(f, psn) || p->read || p->state == SRD_PKT_DONE)
		return false;
	if ((int32_t)(p->order - *order) > 0)
		*order = p->order;
	answered(qp, f, p, now);
	return true;
}

static void ack(struct hca_qp *qp, struct srd_flow *f, const struct roce_pkt *pkt, uint64_t now)
{
	uint32_t before = (pkt->msn - f->una) & ROCE_PSN_MASK, order = f->order - SRD_WINDOW * 2, psn;
	bool any = false;

	if ((pkt->syndrome & AETH_KIND_MASK) == AETH_ACK)
		any |= ack_one(qp, f, pkt->psn, now, &order);
	if (before <= srd_psns_out(f))
		for (psn = f->una; psn != pkt->msn; psn = psn_add(psn, 1))
			any |= ack_one(qp, f, psn, now, &order);
	if (pkt->se)
		srd_shrink_window(f, f->order - 1, f->window - f->window * 3 / 10);
	move_on(f);
	if (any && f->una != f->psn)
		find_lost(qp, f, order, false);
}

static void rnr(struct hca_qp *qp, struct srd_flow *f, struct srd_pkt *p, uint64_t now)
{
	struct srd_wqe *s = &qp->srd->wqe[p->slot];
	uint32_t shift = s->rnrs < RNR_SHIFT_MOST ? s->rnrs : RNR_SHIFT_MOST;

	cnt_inc(qp->dev->stat, FL_CNT_rcvd_rnr_err);
	if (p->state == SRD_PKT_RNR)
		return; /* the network's copy of the one that we obey */
	if (qp->attr.rnr_retry != 7 && s->rnrs >= qp->attr.rnr_retry) {
		cnt_inc(qp->dev->stat, FL_CNT_retry_rnr_exceeded_err);
		srd_fail_slot(qp, f, p->slot, SRD_RNR);
		return;
	}
	s->rnrs++;
	srd_set_state(f, p, SRD_PKT_RNR);
	p->first_at = now; /* the peer lives */
	p->due = now + (RNR_NS << shift);
	f->progress_at = now;
	if (!f->next_rnr || p->due < f->next_rnr)
		f->next_rnr = p->due;
}

/* false: the flow is gone */
static bool nak(struct hca_qp *qp, struct srd_flow *f, const struct roce_pkt *pkt, uint64_t now)
{
	struct srd_pkt *p = srd_pkt_at(f, pkt->psn);

	if (pkt->syndrome == AETH_NAK_UNKNOWN_FLOW) {
		srd_flow_fail(qp, f, SRD_ABORT);
		return false;
	}
	if (!srd_is_out(f, pkt->psn) || p->state == SRD_PKT_DONE || p->slot == SRD_NO_SLOT)
		return true;
	if ((pkt->syndrome & AETH_KIND_MASK) == AETH_RNR_NAK) {
		rnr(qp, f, p, now);
		return true;
	}
	switch (pkt->syndrome) {
	case AETH_NAK_INVALID_REQ:
		srd_fail_slot(qp, f, p->slot, SRD_BAD_LENGTH);
		break;
	case AETH_NAK_REM_ACC_ERR:
		srd_fail_slot(qp, f, p->slot, SRD_BAD_ADDRESS);
		break;
	case AETH_NAK_INVALID_RD_REQ:
		srd_fail_slot(qp, f, p->slot, SRD_BAD_DEST_QPN);
		break;
	default:
		srd_fail_slot(qp, f, p->slot, SRD_BAD_STATUS);
		break;
	}
	return true;
}

/* 0, or why not: -EINPROGRESS: it is asked for again; -EACCES */
static int scatter(struct hca_qp *qp, const struct send_wqe *w, uint32_t off, const uint8_t *data, uint32_t len)
{
	struct mr_miss miss;
	int rc = 0;

	while (len && (rc = mr_copy_sges(qp->pd, w->sge, w->num_sge, off, (void *)data, len, MR_TO_MEM, &miss)) == -EFAULT) {
		rc = qp->faulting[ROLE_COMP] ? -EINPROGRESS : pf_fault(qp, ROLE_COMP, &miss);
		if (rc)
			break;
	}
	if (!rc)
		pf_done(qp, ROLE_COMP);
	return rc;
}

static void read_response(struct hca_qp *qp, struct srd_flow *f, const struct roce_pkt *pkt, uint64_t now)
{
	uint32_t order = f->order - SRD_WINDOW * 2, off = 0, len, i;
	struct srd_pkt *p;
	int rc;

	for (i = 0; i < pkt->npkts; i++, off += len) {
		uint32_t psn = psn_add(pkt->psn, i);

		len = i == pkt->npkts - 1 ? pkt->payload_len - off : pkt->mtu;
		p = srd_pkt_at(f, psn);
		if (!srd_is_out(f, psn) || !p->read || p->state == SRD_PKT_DONE || p->len != len)
			continue;
		rc = scatter(qp, sq_wqe(qp, p->slot), p->off, pkt->payload + off, len);
		if (rc == -EACCES) {
			cnt_inc(qp->dev->stat, FL_CNT_local_access_err);
			srd_fail_slot(qp, f, p->slot, SRD_INVALID_LKEY);
		} else if (!rc) {
			if ((int32_t)(p->order - order) > 0)
				order = p->order;
			answered(qp, f, p, now);
		}
	}
	move_on(f);
	find_lost(qp, f, order, true);
}

void srd_answer(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	struct srd_flow *f = by_number(qp->srd, pkt->flow);
	uint64_t now = now_ns();

	if (!f)
		return; /* of what has ended */
	f->heard_at = now;
	if (roce_opcode[pkt->opcode].flags & ROCE_F_READ) {
		read_response(qp, f, pkt, now);
	} else {
		ack(qp, f, pkt, now);
		if ((pkt->syndrome & AETH_KIND_MASK) != AETH_ACK && !nak(qp, f, pkt, now))
			return;
	}
	srd_flow_run(qp, f);
}
