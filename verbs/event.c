/* SPDX-License-Identifier: BSD-2-Clause */
/* Asynchronous events, and what the HCA calls to raise events of either kind. */
#include "verbs/verbs.h"

static struct event_queue *async_queue(struct ibv_context *context)
{
	return &to_fl_context(context)->async;
}

static void raise_comp(void *uobject)
{
	struct verbs_cq *cq = uobject;

	if (cq->cq.channel)
		event_raise(&to_fl_channel(cq->cq.channel)->events, &cq->comp);
}

static void raise_cq_async(void *uobject, enum ibv_event_type type)
{
	struct verbs_cq *cq = uobject;

	event_raise_async(async_queue(cq->cq.context), &cq->async, type);
}

static void raise_qp_async(void *uobject, enum ibv_event_type type)
{
	struct verbs_qp *qp = uobject;

	event_raise_async(async_queue(qp->qp.context), &qp->async, type);
}

static void raise_srq_async(void *uobject, enum ibv_event_type type)
{
	struct verbs_srq *srq = uobject;

	event_raise_async(async_queue(srq->srq.context), &srq->async, type);
}

const struct hca_event_ops fl_event_ops = {
	.comp = raise_comp,
	.cq_async = raise_cq_async,
	.qp_async = raise_qp_async,
	.srq_async = raise_srq_async,
	.av = fl_av,
};

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct event_source *s;

	if (!ib_ucontext_alive(to_fl_context(context)->ib)) {
		errno = EIO;
		return -1;
	}
	if (event_fetch(async_queue(context), &s, &event->event_type))
		return -1;
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		event->element.cq = &FL_CAST(verbs_cq, async, s)->cq;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		event->element.srq = &FL_CAST(verbs_srq, async, s)->srq;
		break;
	default:
		event->element.qp = &FL_CAST(verbs_qp, async, s)->qp;
	}
	return 0;
}

static void ack(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	(*completed)++;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR: {
		struct ibv_cq *cq = event->element.cq;

		ack(&cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	}
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED: {
		struct ibv_srq *srq = event->element.srq;

		ack(&srq->mutex, &srq->cond, &srq->events_completed);
		break;
	}
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED: {
		struct ibv_qp *qp = event->element.qp;

		ack(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	}
	default: /* of the port or device: nobody waits for it */
		break;
	}
}
