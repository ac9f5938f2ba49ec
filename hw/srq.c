/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared receive queues. Each has a number, by which the peers of XRC targets name one of the target's domain
 * with each message (annex A14); a QP of another kind has the one that it was made with.
 *
 * A target holds no reference to the SRQs it may be asked for: one can be destroyed at any time. Its number is
 * taken away first. Then each target is locked in turn, and what it was receiving into that SRQ fails; who
 * looks for the number after that does not find it.
 */
#include <errno.h>
#include <stdlib.h>
#include "hw/hw.h"

static void srq_init(struct numbered *n)
{
	struct hca_srq *srq = (struct hca_srq *)n;

	fl_mutex_init(&srq->rq.lock, LOCK_RQ);
}

int hca_srq_create(struct hca_dev *dev, const struct hca_srq_init *init, struct hca_srq **srq)
{
	struct hca_node *node = hca_node;
	struct hca_srq *s;
	int rc;

	if (!hca_dev_alive(dev))
		return -EIO;
	s = (struct hca_srq *)number_claim(&node->srqs, sizeof(*s), srq_init);
	if (!s)
		return -EAGAIN;
	fl_lock(&s->rq.lock);
	rc = rq_alloc(&s->rq, init->max_wr, init->max_sge);
	s->limit = 0;
	fl_unlock(&s->rq.lock);
	if (rc) {
		number_release(&node->srqs, &s->n);
		return rc;
	}
	s->dev = dev;
	s->pd = init->pd;
	s->cq = init->cq;
	s->xrcd = init->xrcd;
	s->uobject = init->uobject;
	/* last; pairs with srq_find(): who sees the number sees the rest */
	atomic_store_explicit(&s->srqn, net_slot(node->net) << QP_INDEX_BITS | s->n.index, memory_order_seq_cst);
	*srq = s;
	return 0;
}

uint32_t hca_srq_num(const struct hca_srq *srq)
{
	return srq->srqn;
}

struct hca_srq *srq_find(const struct hca_qp *qp, uint32_t srqn)
{
	struct hca_srq *s = (struct hca_srq *)number_get(&hca_node->srqs, srqn);

	/* pairs with hca_srq_create(), and with hca_srq_destroy(), which waits for us or is seen here */
	if (!s || !srqn || atomic_load_explicit(&s->srqn, memory_order_seq_cst) != srqn)
		return NULL;
	return s->cq && s->dev == qp->dev && s->xrcd == qp->xrcd ? s : NULL;
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

/*
 * Sequential, as are the stores and loads of srqn and those of the table: of a QP that is not yet in the table
 * when we look, srq_find() comes after our store.
 */
static void srq_detach_qps(struct hca_srq *srq)
{
	struct hca_qp *qp;
	uint32_t i;

	for (i = QP_FIRST; i < QP_MAX; i++) {
		qp = (struct hca_qp *)number_get(&hca_node->qps, i);
		if (!qp)
			continue;
		fl_lock(&qp->lock);
		if (qp->resp.srq == srq)
			resp_srq_gone(qp);
		fl_unlock(&qp->lock);
	}
}

void hca_srq_destroy(struct hca_srq *srq)
{
	if (!hca_dev_alive(srq->dev))
		return; /* a forked parent's: it is not ours to end */
	atomic_store_explicit(&srq->srqn, 0, memory_order_seq_cst);
	if (srq->cq)
		srq_detach_qps(srq);
	fl_lock(&srq->rq.lock);
	rq_free(&srq->rq);
	fl_unlock(&srq->rq.lock);
	number_release(&hca_node->srqs, &srq->n);
}

int hca_post_srq_recv(struct hca_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	if (!hca_dev_alive(srq->dev)) {
		*bad = wr;
		return EIO;
	}
	return rq_post(&srq->rq, wr, bad);
}
