/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SRD QPs from the front: posting, completing, states. srd.h tells of the protocol; srd_req.c, srd_comp.c and srd_resp.c
 * are its roles.
 *
 * Work requests complete in any order, so the send queue is not a ring here but slots, free or in use: one
 * that waits for a dead peer takes up its own slot and no other.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "hw/srd.h"
#include "hw/ud.h"

struct hca_srd *srd_new(uint32_t slots)
{
	struct hca_srd *srd = calloc(1, sizeof(*srd));
	unsigned i;

	if (!srd)
		return NULL;
	srd->wqe = calloc(slots, sizeof(*srd->wqe));
	if (!srd->wqe) {
		free(srd);
		return NULL;
	}
	CDS_INIT_LIST_HEAD(&srd->free);
	for (i = 0; i < slots; i++)
		cds_list_add_tail(&srd->wqe[i].node, &srd->free);
	for (i = 0; i < SRD_BUCKETS; i++) {
		CDS_INIT_LIST_HEAD(&srd->by_dest[i]);
		CDS_INIT_LIST_HEAD(&srd->by_number[i]);
		CDS_INIT_LIST_HEAD(&srd->sources[i]);
	}
	CDS_INIT_LIST_HEAD(&srd->active);
	CDS_INIT_LIST_HEAD(&srd->flows);
	CDS_INIT_LIST_HEAD(&srd->lru);
	CDS_INIT_LIST_HEAD(&srd->acks);
	CDS_INIT_LIST_HEAD(&srd->reading);
	return srd;
}

void srd_free(struct hca_srd *srd)
{
	if (!srd)
		return;
	free(srd->wqe);
	free(srd);
}

/* ---- the end of a work request ---- */

/* as to_ibv_status() of rdma-core's providers/efa */
static enum ibv_wc_status wc_status(enum srd_status status)
{
	switch (status) {
	case SRD_OK:
		return IBV_WC_SUCCESS;
	case SRD_FLUSHED:
		return IBV_WC_WR_FLUSH_ERR;
	case SRD_INVALID_AH:
		return IBV_WC_LOC_QP_OP_ERR;
	case SRD_INVALID_LKEY:
		return IBV_WC_LOC_PROT_ERR;
	case SRD_LOCAL_BAD_LENGTH:
		return IBV_WC_LOC_LEN_ERR;
	case SRD_BAD_ADDRESS:
		return IBV_WC_REM_ACCESS_ERR;
	case SRD_ABORT:
		return IBV_WC_REM_ABORT_ERR;
	case SRD_BAD_DEST_QPN:
		return IBV_WC_REM_INV_RD_REQ_ERR;
	case SRD_RNR:
		return IBV_WC_RNR_RETRY_EXC_ERR;
	case SRD_BAD_LENGTH:
		return IBV_WC_REM_INV_REQ_ERR;
	case SRD_BAD_STATUS:
		return IBV_WC_BAD_RESP_ERR;
	case SRD_UNRESP_REMOTE:
	case SRD_UNREACH_REMOTE:
		return IBV_WC_RESP_TIMEOUT_ERR;
	}
	return IBV_WC_GENERAL_ERR;
}

/* efa tells WRITEs from the rest; a READ is "a send", too, to its library (efa_wc_read_opcode()) */
static enum ibv_wc_opcode wc_opcode(uint8_t opcode)
{
	bool write = opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

	return write ? IBV_WC_RDMA_WRITE : IBV_WC_SEND;
}

void srd_complete(struct hca_qp *qp, uint32_t slot, enum srd_status status)
{
	struct send_wqe *w = sq_wqe(qp, slot);
	struct srd_wqe *s = &qp->srd->wqe[slot];
	struct ibv_wc wc = {
		.wr_id = w->wr_id,
		.status = wc_status(status),
		.opcode = wc_opcode(w->opcode),
		.vendor_err = status,
		.qp_num = qp->qpn,
	};

	if (status == SRD_OK)
		req_count_done(qp, w);
	if (w->started)
		qp->srd->started--;
	cds_list_del(&s->node);
	cds_list_add(&s->node, &qp->srd->free);
	hca_cq_push(qp->send_cq, &wc, false);
	req_check_drained(qp);
}

bool srd_drained(const struct hca_qp *qp)
{
	return !qp->srd->started;
}

/* Every work request ends in error; what they were sent with goes. */
void srd_flush(struct hca_qp *qp)
{
	struct srd_flow *f, *next;

	cds_list_for_each_entry_safe(f, next, &qp->srd->flows, lru)
		srd_flow_fail(qp, f, SRD_FLUSHED);
}

/* Nothing is outstanding, and nothing completes. */
void srd_reset(struct hca_qp *qp)
{
	struct hca_srd *srd = qp->srd;
	struct srd_flow *f, *next;

	cds_list_for_each_entry_safe(f, next, &srd->flows, lru)
		srd_flow_free(qp, f);
	srd_sources_free(qp);
	srd->started = 0;
}

/* ---- posting ---- */

static uint64_t wr_length(const struct ibv_send_wr *wr)
{
	uint64_t length = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	return length;
}

/* What efa's library checks: RDMA is for the builders alone, every work request is signaled. */
static int check_wr(const struct hca_qp *qp, const struct ibv_send_wr *wr, bool builder)
{
	bool in_line = wr->send_flags & IBV_SEND_INLINE;

	if ((wr->send_flags & ~(unsigned)(IBV_SEND_SIGNALED | IBV_SEND_INLINE)) ||
	    !((wr->send_flags & IBV_SEND_SIGNALED) || qp->sq_sig_all))
		return EINVAL;
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		break;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		if (!builder || in_line || wr->num_sge > qp->dev->profile->attr.max_sge_rd)
			return EINVAL;
		break;
	default:
		return EINVAL;
	}
	if (ud_check_wr(qp, wr) || wr->num_sge < 0)
		return EINVAL;
	if (in_line)
		return wr_length(wr) > qp->cap.max_inline_data ? EINVAL : 0;
	return (uint32_t)wr->num_sge > qp->cap.max_send_sge ? EINVAL : 0;
}

/* The first that cannot be posted, or NULL. */
static struct ibv_send_wr *first_bad(const struct hca_qp *qp, struct ibv_send_wr *wr, bool builder, int *rc)
{
	for (; wr; wr = wr->next) {
		*rc = check_wr(qp, wr, builder);
		if (*rc)
			return wr;
	}
	return NULL;
}

static bool is_send(const struct send_wqe *w)
{
	return w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM;
}

static bool too_long(const struct hca_qp *qp, const struct send_wqe *w, uint64_t length)
{
	return length > (is_send(w) ? qp->mtu : qp->dev->profile->srd_max_rdma_size);
}

static int post_one(struct hca_qp *qp, const struct ibv_send_wr *wr)
{
	struct net_path *path = ud_wr_path(qp, wr);
	struct srd_flow *f = NULL;
	struct srd_wqe *s;
	struct send_wqe *w;
	uint64_t length = wr_length(wr);
	uint32_t slot;

	if (cds_list_empty(&qp->srd->free))
		return ENOMEM;
	if (path) {
		f = srd_flow_get(qp, path, wr->wr.ud.remote_qpn & ROCE_QPN_MASK);
		if (!f)
			return ENOMEM;
	}
	s = cds_list_first_entry(&qp->srd->free, struct srd_wqe, node);
	slot = srd_slot(qp, s);
	w = sq_wqe(qp, slot);
	*w = (struct send_wqe){
		.wr_id = wr->wr_id,
		.opcode = wr->opcode,
		.num_sge = wr->num_sge,
		.inline_data = wr->send_flags & IBV_SEND_INLINE,
		.imm = wr->imm_data,
		.length = length,
	};
	if (!is_send(w)) {
		w->rkey = wr->bind_mw.rkey;
		w->remote_addr = wr->bind_mw.bind_info.addr;
	}
	s->qkey = ud_wr_qkey(qp, wr);
	s->out = s->rnrs = 0;
	if (!f) {
		srd_complete(qp, slot, SRD_INVALID_AH);
	} else if (too_long(qp, w, length)) {
		srd_complete(qp, slot, SRD_LOCAL_BAD_LENGTH);
	} else {
		send_wqe_fill_data(w, wr);
		srd_flow_add(qp, f, slot);
	}
	return 0;
}

static bool may_post(enum ibv_qp_state state)
{
	return state == IBV_QPS_RTS || state == IBV_QPS_SQD;
}

/* Of a list that is posted whole or not at all: the first for which there is no room, or NULL. */
static struct ibv_send_wr *beyond_room(const struct hca_qp *qp, struct ibv_send_wr *wr)
{
	const struct cds_list_head *pos = qp->srd->free.next;

	for (; wr && pos != &qp->srd->free; wr = wr->next)
		pos = pos->next;
	return wr;
}

/* *at: the first of the list; then the first not posted, which the errno is of */
static int post_list(struct hca_qp *qp, struct ibv_send_wr **at, bool all)
{
	struct ibv_send_wr *end, *stop = NULL, *full;
	int rc = 0, end_rc = 0, stop_rc = 0;

	if (!hca_dev_alive(qp->dev))
		return EIO;
	/* without the lock the state is a hint: it is looked at again */
	if (!may_post(qp->state))
		return EINVAL;
	end = first_bad(qp, *at, all, &end_rc);
	if (!end || !all)
		stop_rc = ud_open_paths(qp, *at, end, &stop);
	if (all && (end || stop)) {
		*at = end ? end : stop;
		return end ? end_rc : stop_rc;
	}
	fl_lock(&qp->lock);
	full = all ? beyond_room(qp, *at) : NULL;
	if (!may_post(qp->state)) {
		rc = EINVAL;
	} else if (full) {
		rc = ENOMEM;
		*at = full;
	} else {
		while (*at != end && !(rc = *at == stop ? stop_rc : post_one(qp, *at)))
			*at = (*at)->next;
		if (!rc)
			rc = end_rc;
	}
	fl_unlock(&qp->lock);
	return rc;
}

int srd_post(struct hca_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad, bool all)
{
	int rc = post_list(qp, &wr, all);

	if (rc)
		*bad = wr;
	return rc;
}

/* ---- what comes in, and what goes on ---- */

void srd_run(struct hca_qp *qp)
{
	struct srd_flow *f, *next;

	qp->req.blocked = false;
	cds_list_for_each_entry_safe(f, next, &qp->srd->active, active) {
		srd_flow_run(qp, f);
		if (qp->req.blocked)
			return;
	}
}

void srd_rx(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	if (roce_opcode[pkt->opcode].flags & ROCE_F_REQ) {
		if (resp_listens(qp) && pkt->grh)
			srd_request(qp, pkt);
		else
			cnt_inc(qp->dev->stat, pkt->grh ? FL_CNT_rx_unknown_qp : FL_CNT_rx_malformed);
	} else if (qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD) {
		srd_answer(qp, pkt);
	}
}
