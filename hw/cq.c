/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues: a ring of CQEs, one lock. head and tail are also read without it, for the empty
 * test that every poll begins with; a poll that then finds nothing makes progress for the process.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "hw/hw.h"

struct hca_event_ops hca_event_ops;

void hca_set_event_ops(const struct hca_event_ops *ops)
{
	hca_event_ops = *ops;
}

/* perftest makes a send CQ of one entry and has two in it when it uses events; NICs' rings hold two. */
static uint32_t capacity(uint32_t depth)
{
	return depth < 2 ? 2 : depth;
}

int hca_cq_create(struct hca_dev *dev, uint32_t depth, bool timestamps, void *uobject,
		  struct hca_cq **cq)
{
	struct hca_cq *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->ring = calloc(pow2_at_least(capacity(depth)), sizeof(*c->ring));
	if (!c->ring) {
		free(c);
		return -ENOMEM;
	}
	fl_mutex_init(&c->lock, LOCK_CQ);
	c->dev = dev;
	c->depth = capacity(depth);
	c->mask = pow2_at_least(c->depth) - 1;
	c->timestamps = timestamps;
	c->uobject = uobject;
	*cq = c;
	return 0;
}

/* 11.4.2.2, "Request Completion Notification": solicited means that, or not a success. */
static bool cq_fires(struct hca_cq *cq, const struct ibv_wc *wc, bool solicited)
{
	if (cq->armed == CQ_NOT_ARMED)
		return false;
	if (cq->armed == CQ_ARMED_SOLICITED && !solicited && wc->status == IBV_WC_SUCCESS)
		return false;
	cq->armed = CQ_NOT_ARMED;
	return true;
}

void hca_cq_push(struct hca_cq *cq, const struct ibv_wc *wc, bool solicited)
{
	hca_cq_push_from(cq, wc, solicited, NULL);
}

void hca_cq_push_from(struct hca_cq *cq, const struct ibv_wc *wc, bool solicited, const uint8_t sgid[16])
{
	uint32_t tail;
	bool fire, first;

	fl_lock(&cq->lock);
	tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	if (tail - atomic_load_explicit(&cq->head, memory_order_relaxed) >= cq->depth) {
		first = !cq->overflowed;
		cq->overflowed = true;
		fl_unlock(&cq->lock);
		if (first)
			fl_warn("CQ of %u entries overflowed: a completion of QP 0x%06x is lost; "
				"make the CQ as deep as all queues that use it together",
				cq->depth, wc->qp_num);
		hca_event_ops.cq_async(cq->uobject, IBV_EVENT_CQ_ERR);
		return;
	}
	cq->ring[tail & cq->mask].wc = *wc;
	if (sgid)
		memcpy(cq->ring[tail & cq->mask].sgid, sgid, 16);
	if (cq->timestamps) {
		cq->ring[tail & cq->mask].timestamp_ns = clock_ns(CLOCK_MONOTONIC);
		cq->ring[tail & cq->mask].realtime_ns = clock_ns(CLOCK_REALTIME);
	}
	/* pairs with cq_empty(): who sees the tail may take the lock and find the entry */
	atomic_store_explicit(&cq->tail, tail + 1, memory_order_release);
	fire = cq_fires(cq, wc, solicited);
	fl_unlock(&cq->lock);
	if (fire)
		hca_event_ops.comp(cq->uobject);
}

/* without the lock; pairs with hca_cq_push_from() */
static bool cq_empty(struct hca_cq *cq)
{
	return atomic_load_explicit(&cq->tail, memory_order_acquire) ==
	       atomic_load_explicit(&cq->head, memory_order_relaxed);
}

/* false: nothing there, even after a look at the links */
static bool cq_ready(struct hca_cq *cq)
{
	if (!cq_empty(cq))
		return true;
	if (!hca_dev_alive(cq->dev))
		return false;
	engine_poll();
	return !cq_empty(cq);
}

int hca_cq_poll(struct hca_cq *cq, int n, struct ibv_wc *wc)
{
	uint32_t head, tail;
	int got = 0;

	if (!cq_ready(cq))
		return 0;
	fl_lock(&cq->lock);
	head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	while (got < n && head != tail)
		wc[got++] = cq->ring[head++ & cq->mask].wc;
	atomic_store_explicit(&cq->head, head, memory_order_relaxed);
	fl_unlock(&cq->lock);
	return got;
}

int hca_cq_poll_one(struct hca_cq *cq, struct hca_cqe *cqe)
{
	uint32_t head;
	int got = 0;

	if (!cq_ready(cq))
		return 0;
	fl_lock(&cq->lock);
	head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	if (head != atomic_load_explicit(&cq->tail, memory_order_relaxed)) {
		*cqe = cq->ring[head & cq->mask];
		atomic_store_explicit(&cq->head, head + 1, memory_order_relaxed);
		got = 1;
	}
	fl_unlock(&cq->lock);
	return got;
}

void hca_cq_req_notify(struct hca_cq *cq, bool solicited_only)
{
	fl_lock(&cq->lock);
	if (!solicited_only)
		cq->armed = CQ_ARMED;
	else if (cq->armed == CQ_NOT_ARMED)
		cq->armed = CQ_ARMED_SOLICITED;
	fl_unlock(&cq->lock);
	if (hca_dev_alive(cq->dev))
		engine_app_sleeps();
}

/* Moves what is in the ring to ring[], keeping what keep() says; returns how many. Locked. */
static uint32_t cq_move(struct hca_cq *cq, struct hca_cqe *ring, uint32_t mask, uint32_t without_qpn)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	uint32_t to = head, i;

	for (i = head; i != tail; i++) {
		if (without_qpn && cq->ring[i & cq->mask].wc.qp_num == without_qpn)
			continue;
		ring[to++ & mask] = cq->ring[i & cq->mask];
	}
	return to;
}

/* a QP that is destroyed or reset takes its completions along (10.2.4.4, 11.2.5.5) */
void hca_cq_clean(struct hca_cq *cq, uint32_t qpn)
{
	fl_lock(&cq->lock);
	atomic_store_explicit(&cq->tail, cq_move(cq, cq->ring, cq->mask, qpn), memory_order_release);
	fl_unlock(&cq->lock);
}

int hca_cq_resize(struct hca_cq *cq, uint32_t depth)
{
	struct hca_cqe *ring = calloc(pow2_at_least(capacity(depth)), sizeof(*ring)), *old;
	int rc = 0;

	if (!ring)
		return -ENOMEM;
	fl_lock(&cq->lock);
	if (cq->tail - cq->head > depth) {
		old = ring;
		rc = -EINVAL;
	} else {
		cq_move(cq, ring, pow2_at_least(capacity(depth)) - 1, 0);
		old = cq->ring;
		cq->ring = ring;
		cq->depth = capacity(depth);
		cq->mask = pow2_at_least(cq->depth) - 1;
		cq->overflowed = false;
	}
	fl_unlock(&cq->lock);
	free(old);
	return rc;
}

void hca_cq_destroy(struct hca_cq *cq)
{
	fl_mutex_destroy(&cq->lock);
	free(cq->ring);
	free(cq);
}
