/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues. */
#include "verbs/verbs.h"

#include <stdlib.h>

int fl_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	return hca_post_srq_recv(to_fl_srq(srq)->hca, wr, bad_wr);
}

static void free_srq(struct verbs_srq *srq)
{
	pthread_mutex_destroy(&srq->srq.mutex);
	pthread_cond_destroy(&srq->srq.cond);
	free(srq);
}

/* xrcd, cq: of XRC's; attr becomes what was granted */
static struct ibv_srq *create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr, enum ibv_srq_type type,
				  struct ibv_xrcd *xrcd, struct ibv_cq *cq)
{
	struct ib_srq_init_attr init = {.attr = attr->attr, .srq_type = type};
	struct verbs_srq *srq = calloc(1, sizeof(*srq));
	int err;

	if (!srq)
		return fail_null(-ENOMEM);
	srq->srq.context = pd->context;
	srq->srq.srq_context = attr->srq_context;
	srq->srq.pd = pd;
	pthread_mutex_init(&srq->srq.mutex, NULL);
	pthread_cond_init(&srq->srq.cond, NULL);
	event_source_init(&srq->async);
	init.uobject = srq;
	init.xrcd = xrcd ? to_fl_xrcd(xrcd)->ib : NULL;
	init.cq = cq ? to_fl_cq(cq)->ib : NULL;
	err = ib_create_srq(to_fl_pd(pd)->ib, &init, &srq->ib);
	if (err) {
		free_srq(srq);
		return fail_null(err);
	}
	srq->hca = srq->ib->hca;
	srq->srq.handle = srq->ib->uobj.handle;
	attr->attr.max_wr = srq->ib->max_wr;
	attr->attr.max_sge = srq->ib->max_sge;
	return &srq->srq;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	return create_srq(pd, attr, IBV_SRQT_BASIC, NULL, NULL);
}

struct ibv_srq *fl_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	const struct hca_profile *p = to_fl_context(context)->ib->device->profile;
	const uint32_t of_xrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	/* the extended structure begins with the whole of the plain one */
	struct ibv_srq_init_attr *plain = (struct ibv_srq_init_attr *)attr;
	enum ibv_srq_type type =
		attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type : IBV_SRQT_BASIC;

	if (attr->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED || type == IBV_SRQT_TM ||
	    (type != IBV_SRQT_BASIC && !ib_has_xrc(p)))
		return fail_null(-EOPNOTSUPP);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context)
		return fail_null(-EINVAL);
	if (type == IBV_SRQT_BASIC)
		return create_srq(attr->pd, plain, type, NULL, NULL);
	if (type != IBV_SRQT_XRC || (attr->comp_mask & of_xrc) != of_xrc || !attr->xrcd || !attr->cq)
		return fail_null(-EINVAL);
	return create_srq(attr->pd, plain, type, attr->xrcd, attr->cq);
}

int fl_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num)
{
	if (!ib_has_xrc(to_fl_context(srq->context)->ib->device->profile))
		return fail_errno(-EOPNOTSUPP);
	*srq_num = hca_srq_num(to_fl_srq(srq)->hca);
	return 0;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	return fail_errno(ib_modify_srq(to_fl_srq(srq)->ib, attr, mask));
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	return fail_errno(ib_query_srq(to_fl_srq(srq)->ib, attr));
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct verbs_srq *s = to_fl_srq(srq);
	uint32_t events;
	int err = ib_destroy_srq(s->ib);

	if (err)
		return fail_errno(err);
	events = event_purge(&to_fl_context(srq->context)->async, &s->async);
	pthread_mutex_lock(&srq->mutex);
	while (srq->events_completed != events)
		pthread_cond_wait(&srq->cond, &srq->mutex);
	pthread_mutex_unlock(&srq->mutex);
	free_srq(s);
	return 0;
}
