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

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
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
	err = ib_create_srq(to_fl_pd(pd)->ib, &attr->attr, srq, &srq->ib);
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
