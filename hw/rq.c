/* SPDX-License-Identifier: BSD-2-Clause */
/* Receive queues: of a QP, or shared by many (SRQ). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "hw/hw.h"

int rq_init(struct hca_rq *rq, uint32_t depth, uint32_t max_sge)
{
	memset(rq, 0, sizeof(*rq));
	fl_mutex_init(&rq->lock, LOCK_RQ);
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

void rq_destroy(struct hca_rq *rq)
{
	fl_mutex_destroy(&rq->lock);
	free(rq->wqes);
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

int hca_srq_create(struct hca_dev *dev, uint32_t pd, uint32_t max_wr, uint32_t max_sge,
		   void *uobject, struct hca_srq **srq)
{
	struct hca_srq *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	if (rq_init(&s->rq, max_wr, max_sge)) {
		free(s);
		return -ENOMEM;
	}
	s->dev = dev;
	s->pd = pd;
	s->uobject = uobject;
	*srq = s;
	return 0;
}

/* 10.2.9.3: the limit event fires once, when fewer are left, and must be armed anew */
void srq_taken(struct hca_srq *srq, uint32_t left)
{
	bool fire;

	fl_lock(&srq->rq.lock);
	fire = srq->limit && left < srq->limit;
	if (fire)
		srq->limit = 0;
	fl_unlock(&srq->rq.lock);
	if (fire)
		hca_event_ops.srq_async(srq->uobject, IBV_EVENT_SRQ_LIMIT_REACHED);
}

int hca_srq_modify(struct hca_srq *srq, const struct ibv_srq_attr *attr, int mask)
{
	int rc = 0;

	if (mask & IBV_SRQ_MAX_WR)
		return -EOPNOTSUPP;
	fl_lock(&srq->rq.lock);
	if (mask & IBV_SRQ_LIMIT) {
		if (attr->srq_limit > srq->rq.depth)
			rc = -EINVAL;
		else
			srq->limit = attr->srq_limit;
	}
	fl_unlock(&srq->rq.lock);
	return rc;
}

void hca_srq_query(struct hca_srq *srq, struct ibv_srq_attr *attr)
{
	fl_lock(&srq->rq.lock);
	attr->max_wr = srq->rq.depth;
	attr->max_sge = srq->rq.max_sge;
	attr->srq_limit = srq->limit;
	fl_unlock(&srq->rq.lock);
}

void hca_srq_destroy(struct hca_srq *srq)
{
	rq_destroy(&srq->rq);
	free(srq);
}

int hca_post_srq_recv(struct hca_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	if (!hca_dev_alive(srq->dev)) {
		*bad = wr;
		return EIO;
	}
	return rq_post(&srq->rq, wr, bad);
}
