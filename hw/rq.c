/* SPDX-License-Identifier: BSD-2-Clause */
/* Receive queues: of a QP, or shared by many (SRQ); and how a receive ends. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "hw/hw.h"

int rq_alloc(struct hca_rq *rq, uint32_t depth, uint32_t max_sge)
{
	rq->head = rq->tail = rq->mask = 0;
	rq->wqes = NULL;
	rq->depth = depth;
	rq->max_sge = max_sge;
	rq->stride = sizeof(struct recv_wqe) + max_sge * sizeof(struct ibv_sge);
	if (depth) {
		rq->mask = pow2_at_least(depth) - 1;
		rq->wqes = calloc((size_t)rq->mask + 1, rq->stride);
		if (!rq->wqes)
			return -ENOMEM;
	}
	return 0;
}

void rq_free(struct hca_rq *rq)
{
	free(rq->wqes);
	rq->wqes = NULL;
}

int rq_init(struct hca_rq *rq, uint32_t depth, uint32_t max_sge)
{
	fl_mutex_init(&rq->lock, LOCK_RQ);
	return rq_alloc(rq, depth, max_sge);
}

void rq_destroy(struct hca_rq *rq)
{
	fl_mutex_destroy(&rq->lock);
	rq_free(rq);
}

static struct recv_wqe *rq_wqe(struct hca_rq *rq, uint32_t i)
{
	return (struct recv_wqe *)(rq->wqes + (size_t)(i & rq->mask) * rq->stride);
}

int rq_take(struct hca_rq *rq, struct recv_wqe *wqe, uint32_t *left)
{
	struct recv_wqe *w;

	fl_lock(&rq->lock);
	if (rq->head == rq->tail) {
		fl_unlock(&rq->lock);
		return -ENOENT;
	}
	w = rq_wqe(rq, rq->head);
	memcpy(wqe, w, sizeof(*w) + w->num_sge * sizeof(w->sge[0]));
	rq->head++;
	*left = rq->tail - rq->head;
	fl_unlock(&rq->lock);
	return 0;
}

static int rq_post_one(struct hca_rq *rq, const struct ibv_recv_wr *wr)
{
	struct recv_wqe *w;
	int i;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
		return EINVAL;
	if (rq->tail - rq->head >= rq->depth)
		return ENOMEM;
	w = rq_wqe(rq, rq->tail);
	w->wr_id = wr->wr_id;
	w->num_sge = wr->num_sge;
	w->length = 0;
	for (i = 0; i < wr->num_sge; i++) {
		w->sge[i] = wr->sg_list[i];
		w->length += wr->sg_list[i].length;
	}
	rq->tail++;
	return 0;
}

int rq_post(struct hca_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int rc = 0;

	fl_lock(&rq->lock);
	for (; wr; wr = wr->next) {
		rc = rq_post_one(rq, wr);
		if (rc) {
			*bad = wr;
			break;
		}
	}
	fl_unlock(&rq->lock);
	return rc;
}

void recv_complete(struct hca_qp *qp, struct hca_cq *cq, struct ibv_wc *wc, const struct roce_pkt *pkt,
		   bool solicited, const uint8_t *sgid)
{
	wc->wr_id = qp->resp.wqe->wr_id;
	wc->qp_num = qp->qpn;
	if (wc->status == IBV_WC_SUCCESS) {
		if (roce_opcode[pkt->opcode_last].flags & ROCE_F_IMMDT) {
			wc->wc_flags |= IBV_WC_WITH_IMM;
			wc->imm_data = pkt->imm;
		}
		cnt_inc(qp->dev->stat, FL_CNT_rdma_recvs);
	}
	qp->resp.have_wqe = false;
	hca_cq_push_from(cq, wc, solicited, sgid);
}
