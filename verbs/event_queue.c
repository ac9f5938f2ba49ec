/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queues of events. The semaphore's count is the number of events in the queue plus those that a
 * reader has paid for (its read() returned) and not fetched yet. Who destroys an object takes its
 * events out and as many tokens as it can get; a reader that holds a token for one of them finds the
 * queue empty and goes back to read().
 */
#include "verbs/verbs.h"
#include "util/cancel.h"

#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

int event_queue_init(struct event_queue *q)
{
	q->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (q->fd < 0)
		return -errno;
	fl_mutex_init(&q->lock, LOCK_EVENT);
	CDS_INIT_LIST_HEAD(&q->pending);
	return 0;
}

void event_queue_destroy(struct event_queue *q)
{
	close(q->fd);
	fl_mutex_destroy(&q->lock);
}

void event_source_init(struct event_source *s)
{
	CDS_INIT_LIST_HEAD(&s->list);
	s->count = s->types = s->reported = 0;
}

static bool waiting(const struct event_source *s)
{
	return s->count || s->types;
}

static void add_token(struct event_queue *q)
{
	NO_CANCEL;
	uint64_t one = 1;

	/* fails only when 2^64 events wait, or the application closed the descriptor under us */
	if (write(q->fd, &one, sizeof(one)) < 0)
		return;
}

void event_raise(struct event_queue *q, struct event_source *s)
{
	fl_lock(&q->lock);
	if (!waiting(s))
		cds_list_add_tail(&s->list, &q->pending);
	s->count++;
	add_token(q);
	fl_unlock(&q->lock);
}

void event_raise_async(struct event_queue *q, struct event_source *s, enum ibv_event_type type)
{
	uint32_t bit = 1u << type;

	fl_lock(&q->lock);
	if (!(s->types & bit)) {
		if (!waiting(s))
			cds_list_add_tail(&s->list, &q->pending);
		s->types |= bit;
		add_token(q);
	}
	fl_unlock(&q->lock);
}

/* LOCK_EVENT held. NULL: empty */
static struct event_source *take(struct event_queue *q, enum ibv_event_type *type)
{
	struct event_source *s;

	if (cds_list_empty(&q->pending))
		return NULL;
	s = cds_list_first_entry(&q->pending, struct event_source, list);
	if (type) {
		*type = (enum ibv_event_type)__builtin_ctz(s->types);
		s->types &= s->types - 1;
	} else {
		s->count--;
	}
	s->reported++;
	/* the rest of it waits behind the others' */
	cds_list_del(&s->list);
	if (waiting(s))
		cds_list_add_tail(&s->list, &q->pending);
	return s;
}

int event_fetch(struct event_queue *q, struct event_source **s, enum ibv_event_type *type)
{
	uint64_t token;

	do {
		if (read(q->fd, &token, sizeof(token)) != sizeof(token))
			return -1;
		fl_lock(&q->lock);
		*s = take(q, type);
		fl_unlock(&q->lock);
	} while (!*s);
	return 0;
}

uint32_t event_purge(struct event_queue *q, struct event_source *s)
{
	uint64_t token;
	struct iovec iov = {.iov_base = &token, .iov_len = sizeof(token)};
	uint32_t n, reported;
	NO_CANCEL;

	fl_lock(&q->lock);
	n = s->count + (uint32_t)__builtin_popcount(s->types);
	if (n)
		cds_list_del(&s->list);
	s->count = s->types = 0;
	while (n-- && preadv2(q->fd, &iov, 1, -1, RWF_NOWAIT) > 0)
		;
	reported = s->reported;
	fl_unlock(&q->lock);
	return reported;
}
