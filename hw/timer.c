/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Timers of QPs: one heap, one entry a QP. They are lazy: a deadline that moves later leaves the entry
 * where it is, and the look at the old time finds out. So the data path, which moves deadlines with
 * every acknowledgement, touches neither heap nor clock.
 */
#include "hw/hw.h"

static void heap_set(struct hca_timer_heap *h, uint32_t i, struct hca_qp *qp)
{
	h->v[i] = qp;
	qp->heap_pos = i;
}

static void sift_up(struct hca_timer_heap *h, uint32_t i)
{
	struct hca_qp *qp = h->v[i];

	while (i > 1 && h->v[i / 2]->heap_deadline > qp->heap_deadline) {
		heap_set(h, i, h->v[i / 2]);
		i /= 2;
	}
	heap_set(h, i, qp);
}

static void sift_down(struct hca_timer_heap *h, uint32_t i)
{
	struct hca_qp *qp = h->v[i];
	uint32_t c;

	while ((c = 2 * i) <= h->n) {
		if (c < h->n && h->v[c + 1]->heap_deadline < h->v[c]->heap_deadline)
			c++;
		if (h->v[c]->heap_deadline >= qp->heap_deadline)
			break;
		heap_set(h, i, h->v[c]);
		i = c;
	}
	heap_set(h, i, qp);
}

static void heap_remove(struct hca_timer_heap *h, struct hca_qp *qp)
{
	uint32_t i = qp->heap_pos;
	struct hca_qp *last = h->v[h->n--];

	qp->heap_pos = 0;
	if (last == qp)
		return;
	heap_set(h, i, last);
	sift_up(h, i);
	sift_down(h, last->heap_pos);
}

void timer_arm(struct hca_qp *qp, uint64_t deadline)
{
	struct hca_timer_heap *h = &hca_node->timers;
	bool kick = false;

	if (qp->deadline && qp->deadline <= deadline)
		return;
	qp->deadline = deadline;
	fl_lock(&h->lock);
	if (!qp->heap_pos) {
		qp->heap_deadline = deadline;
		h->v[++h->n] = qp;
		sift_up(h, h->n);
	} else if (deadline < qp->heap_deadline) {
		qp->heap_deadline = deadline;
		sift_up(h, qp->heap_pos);
	}
	if (deadline < h->wake_at) {
		h->wake_at = deadline;
		kick = true;
	}
	fl_unlock(&h->lock);
	if (kick)
		engine_kick();
}

void timer_remove(struct hca_qp *qp)
{
	struct hca_timer_heap *h = &hca_node->timers;

	fl_lock(&h->lock);
	if (qp->heap_pos)
		heap_remove(h, qp);
	fl_unlock(&h->lock);
}

uint64_t timers_run(uint64_t now)
{
	struct hca_timer_heap *h = &hca_node->timers;
	struct hca_qp *qp;
	uint64_t next;

	for (;;) {
		fl_lock(&h->lock);
		qp = h->n ? h->v[1] : NULL;
		if (!qp || qp->heap_deadline > now) {
			next = qp ? qp->heap_deadline : UINT64_MAX;
			h->wake_at = next;
			fl_unlock(&h->lock);
			return next;
		}
		heap_remove(h, qp);
		fl_unlock(&h->lock);
		/* It may be destroyed, even be another by now: type-stable, its deadline tells. */
		fl_lock(&qp->lock);
		if (qp->deadline > now) {
			next = qp->deadline;
			qp->deadline = 0;
			timer_arm(qp, next);
		} else if (qp->deadline) {
			qp->deadline = 0;
			pf_timer(qp, now);
			req_timer(qp, now);
		}
		fl_unlock(&qp->lock);
	}
}
