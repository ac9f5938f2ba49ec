/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues and completion channels. */
#include "verbs/verbs.h"

#include <stdlib.h>

int fl_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	return hca_cq_poll(to_fl_cq(cq)->hca, num_entries, wc);
}

int fl_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	hca_cq_req_notify(to_fl_cq(cq)->hca, solicited_only);
	return 0;
}

static void channel_ref(struct ibv_comp_channel *channel, int by)
{
	pthread_mutex_lock(&channel->context->mutex);
	channel->refcnt += by;
	pthread_mutex_unlock(&channel->context->mutex);
}

static struct verbs_cq *create_cq(struct ibv_context *context, int cqe, void *cq_context,
				  struct ibv_comp_channel *channel, int comp_vector, bool timestamps)
{
	struct verbs_cq *cq = calloc(1, sizeof(*cq));
	int err;

	if (!cq)
		return fail_null(-ENOMEM);
	/* complete before the HCA knows it: an event may come at once */
	cq->cq.context = context;
	cq->cq.channel = channel;
	cq->cq.cq_context = cq_context;
	pthread_mutex_init(&cq->cq.mutex, NULL);
	pthread_cond_init(&cq->cq.cond, NULL);
	pthread_mutex_init(&cq->poll_lock, NULL);
	event_source_init(&cq->comp);
	event_source_init(&cq->async);
	if (channel)
		channel_ref(channel, 1);
	err = ib_create_cq(to_fl_context(context)->ib, cqe, comp_vector, timestamps, cq, &cq->ib);
	if (err) {
		if (channel)
			channel_ref(channel, -1);
		free(cq);
		return fail_null(err);
	}
	cq->hca = cq->ib->hca;
	cq->cq.handle = cq->ib->uobj.handle;
	cq->cq.cqe = cq->ib->cqe;
	return cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	struct verbs_cq *cq = create_cq(context, cqe, cq_context, channel, comp_vector, false);

	return cq ? &cq->cq : NULL;
}

struct ibv_cq_ex *fl_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	const uint64_t stamps = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
				IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	const struct hca_profile *p = to_fl_context(context)->ib->device->profile;
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	uint64_t supported = p->wc_flags | (p->completion_timestamp_mask ? stamps : 0);
	struct verbs_cq *cq;

	if (!p->wc_flags || (attr->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS) ||
	    (flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED) || (attr->wc_flags & ~supported))
		return fail_null(-EOPNOTSUPP);
	if (attr->cqe > INT32_MAX || attr->comp_vector > INT32_MAX)
		return fail_null(-EINVAL);
	cq = create_cq(context, (int)attr->cqe, attr->cq_context, attr->channel, (int)attr->comp_vector,
		       attr->wc_flags & stamps);
	if (!cq)
		return NULL;
	cq->single_threaded = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	cq->ts_mask = p->completion_timestamp_mask;
	cq->ts_khz = p->hca_core_clock;
	fl_cq_ex_fill(cq);
	return &cq->cqx;
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	int err = ib_resize_cq(to_fl_cq(cq)->ib, cqe);

	if (!err)
		cq->cqe = to_fl_cq(cq)->ib->cqe;
	return fail_errno(err);
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct verbs_cq *c = to_fl_cq(cq);
	struct ibv_comp_channel *channel = cq->channel;
	uint32_t comp = 0, async;
	int err = ib_destroy_cq(c->ib);

	if (err)
		return fail_errno(err);
	if (channel)
		comp = event_purge(&to_fl_channel(channel)->events, &c->comp);
	async = event_purge(&to_fl_context(cq->context)->async, &c->async);

	/* not before the consumer is done with the events it fetched */
	pthread_mutex_lock(&cq->mutex);
	while (cq->comp_events_completed != comp || cq->async_events_completed != async)
		pthread_cond_wait(&cq->cond, &cq->mutex);
	pthread_mutex_unlock(&cq->mutex);
	if (channel)
		channel_ref(channel, -1);
	pthread_mutex_destroy(&cq->mutex);
	pthread_cond_destroy(&cq->cond);
	pthread_mutex_destroy(&c->poll_lock);
	free(c);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct verbs_channel *ch;
	int err;

	if (!ib_ucontext_alive(to_fl_context(context)->ib))
		return fail_null(-EIO);
	ch = calloc(1, sizeof(*ch));
	if (!ch)
		return fail_null(-ENOMEM);
	err = event_queue_init(&ch->events);
	if (err) {
		free(ch);
		return fail_null(err);
	}
	ch->channel.context = context;
	ch->channel.fd = ch->events.fd;
	return &ch->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct ibv_context *context = channel->context;
	int refcnt;

	pthread_mutex_lock(&context->mutex);
	refcnt = channel->refcnt;
	pthread_mutex_unlock(&context->mutex);
	if (refcnt)
		return EBUSY;
	event_queue_destroy(&to_fl_channel(channel)->events);
	free(to_fl_channel(channel));
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct event_source *s;

	if (!ib_ucontext_alive(to_fl_context(channel->context)->ib)) {
		errno = EIO;
		return -1;
	}
	if (event_fetch(&to_fl_channel(channel)->events, &s, NULL))
		return -1;
	*cq = &FL_CAST(verbs_cq, comp, s)->cq;
	*cq_context = (*cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += nevents;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}
