/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Page faults of the device. A fault whose pages are resident or zero-fill is resolved at once, by the
 * thread that met it. One that would sleep (swapped out, a file that is not cached) or is long goes to
 * the page-fault queue (pf_queue.c); the role of the QP that met it pauses, everything else runs on; a
 * worker resolves it and resumes the role.
 *
 * A fault is for all that the message still needs at that place, not only for what the packet at hand does,
 * in steps that end at multiples of the step. For more than that no memory is allocated.
 */
#include <errno.h>
#include "hw/fault_model.h"
#include "hw/pf.h"
#include "util/cancel.h"
#include "util/probe.h"
#include "util/provoke.h"

#define PF_STEP	       (512ull << 10)
#define PF_INLINE_MAX  (1u << 20)
#define PF_FORCE_TRIES 64
#define PF_BURST       4
#define PF_ALONE       64
#define PF_CALM_NS     50000ull

int pf_resolve(struct hca_mr *mr, const struct mr_miss *miss, unsigned flags)
{
	if (miss->write)
		flags |= UMEM_FAULT_WRITE;
	if (miss->force)
		flags |= UMEM_FAULT_FORCE;
	return mr->umem->ops->fault(mr->umem, miss->addr, miss->len, flags);
}

void pf_resume(struct hca_qp *qp, enum qp_role role, uint32_t generation, const struct mr_miss *miss, int rc)
{
	fl_lock(&qp->lock);
	if (qp->qpn && qp->generation == generation && qp->faulting[role]) {
		qp->faulting[role] = false;
		if (miss) {
			FL_PROBE4(page_fault_done, qp->qpn, role, miss->addr, rc);
			qp->failed[role].key = rc < 0 ? miss->key : 0;
			qp->failed[role].addr = miss->addr;
			qp->failed[role].len = miss->len;
		}
		if (role == ROLE_REQ)
			req_run(qp);
		else if (role == ROLE_RESP)
			resp_resume(qp);
		else
			comp_resume(qp);
	}
	fl_unlock(&qp->lock);
	engine_flush_acks();
}

static int denied(struct hca_qp *qp, struct hca_mr *mr)
{
	cnt_inc(qp->dev->stat, FL_CNT_page_faults_denied);
	if (mr) {
		__atomic_fetch_add(&mr->ent->page_faults_denied, 1, __ATOMIC_RELAXED);
		mr_put(mr);
	}
	return -EACCES;
}

/*
 * A train that was denied is tried packet by packet: what failed for less fails for more, and that must be
 * remembered until the role succeeds or ends in error, or the two would ask for each other for ever.
 */
static bool has_failed(const struct hca_qp *qp, enum qp_role role, const struct mr_miss *miss)
{
	return qp->failed[role].key == miss->key && qp->failed[role].addr == miss->addr &&
	       miss->len >= qp->failed[role].len;
}

/* What the message needs behind this, as far as the step goes. Not after a failure: some of it may be bad. */
static void widen(const struct hca_qp *qp, enum qp_role role, struct mr_miss *miss)
{
	uint64_t to = ((miss->addr + PF_STEP) & ~(PF_STEP - 1)) - miss->addr;

	/* nor for what a datagram may leave of a receive */
	if (qp->failed[role].key || miss->force || (role == ROLE_RESP && qp->ud))
		return;
	if (to > miss->want)
		to = miss->want;
	if (to > miss->len)
		miss->len = to;
}

static int pause_role(struct hca_qp *qp, enum qp_role role, struct hca_mr *mr, const struct mr_miss *miss,
		      uint64_t began)
{
	uint32_t stuck_ms = hca_node->cfg->fault_stuck_ms;
	int rc;

	FL_PROBE3(page_fault_queued, qp->qpn, role, miss->addr);
	qp->faulting[role] = true; /* a worker that is quick waits for the QP's lock, which we hold */
	rc = pf_queue_fault(qp, role, mr, miss, began);
	if (rc) {
		qp->faulting[role] = false;
		return rc;
	}
	qp->stuck_told[role] = false;
	if (stuck_ms) {
		qp->watched = true;
		timer_arm(qp, began + stuck_ms * 1000000ull);
	}
	return 0;
}

/*
 * Who had a packet last, and how often that changed. Hints, without order: what they are wrong about is how
 * soon a fault is resolved.
 */
static struct {
	uint32_t qpn, turns;
} served;
/* of this thread; static TLS, as all that is looked at on the data path */
static __thread unsigned at_once __attribute__((tls_model("initial-exec")));

void pf_begin_pass(void)
{
	at_once = 0;
}

void pf_serves(const struct hca_qp *qp)
{
	uint32_t last = __atomic_load_n(&served.qpn, __ATOMIC_RELAXED);

	/* both ends of a connection within the process are one */
	if (last == qp->qpn || (last == qp->attr.dest_qp_num && !qp->ud))
		return;
	__atomic_store_n(&served.qpn, qp->qpn, __ATOMIC_RELAXED);
	__atomic_fetch_add(&served.turns, 1, __ATOMIC_RELAXED);
}

/*
 * Whoever takes packets in takes them in for every QP. One that faults again and again in a short time would
 * hold up the others: its faults are for the workers, until it was quiet for a while. When there are no others
 * to hold up, a few of each pass are resolved at once all the same: a worker has to be woken.
 */
static bool storms(struct hca_qp *qp, uint64_t now)
{
	uint32_t turns = __atomic_load_n(&served.turns, __ATOMIC_RELAXED);

	/* a clock that stands still, as in tests, says nothing of how fast they come */
	if (now - qp->fault_last > PF_CALM_NS || now == qp->fault_last)
		qp->fault_burst = 0;
	else if (qp->fault_burst < PF_BURST)
		qp->fault_burst++;
	qp->fault_last = now;
	if (turns != qp->fault_turns)
		qp->fault_alone = 0;
	else if (qp->fault_alone < PF_ALONE)
		qp->fault_alone++;
	qp->fault_turns = turns;
	if (qp->fault_burst < PF_BURST)
		return false;
	return qp->fault_alone < PF_ALONE || ++at_once > PF_BURST;
}

int pf_fault(struct hca_qp *qp, enum qp_role role, const struct mr_miss *missed)
{
	NO_CANCEL;
	struct mr_miss miss = *missed, all = miss;
	struct hca_mr *mr = mr_get(miss.key);
	uint64_t began;
	int rc = -EAGAIN;

	/* what a worker has tried, or an access that fails again and again though its pages are said to be
	 * there */
	if (!mr || has_failed(qp, role, &miss) ||
	    (miss.force && ++qp->force_tries[role] > PF_FORCE_TRIES))
		return denied(qp, mr);
	began = now_ns();
	cnt_inc(qp->dev->stat, FL_CNT_page_fault_events);
	FL_PROBE4(page_fault, qp->qpn, role, miss.addr, miss.len);
	widen(qp, role, &all);
	if (fault_model->at_once && !provoke.delay_us && !provoke.delay_mlx5 &&
	    !(role == ROLE_RESP && storms(qp, began))) {
		if (all.len <= PF_INLINE_MAX)
			rc = pf_resolve(mr, &all, UMEM_FAULT_NOSLEEP);
		/* what is needed now may be had where what is needed later may not */
		if (rc < 0 && all.len > miss.len && miss.len <= PF_INLINE_MAX)
			rc = pf_resolve(mr, &miss, UMEM_FAULT_NOSLEEP);
	}
	if (rc == -EAGAIN) {
		if (!pause_role(qp, role, mr, &miss, began))
			return -EINPROGRESS; /* the reference is the fault's now */
		rc = pf_resolve(mr, &miss, 0); /* no thread is to be had: then we sleep */
	}
	FL_PROBE4(page_fault_done, qp->qpn, role, miss.addr, rc);
	cnt_time(mr->dev->stat, mr->ent, FL_HIST_fault_time, now_ns() - began);
	if (rc < 0)
		return denied(qp, mr);
	mr_put(mr);
	return 0;
}

/* ---- the watchdog ---- */

uint64_t pf_waits_ns(const struct hca_qp *qp, enum qp_role role, uint64_t now)
{
	return qp->faulting[role] && now > qp->pf_wait[role].since ? now - qp->pf_wait[role].since : 0;
}

void pf_timer(struct hca_qp *qp, uint64_t now)
{
	static const char *const who[] = {[ROLE_REQ] = "its sends wait for their data",
					  [ROLE_RESP] = "the peer's requests wait",
					  [ROLE_COMP] = "what it reads waits for its place"};
	static const char *const state[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
	uint64_t limit = hca_node->cfg->fault_stuck_ms * 1000000ull;

	qp->watched = false;
	for (unsigned role = 0; role < ROLE_NUM; role++) {
		struct pf_wait *w = &qp->pf_wait[role];
		uint64_t ns = pf_waits_ns(qp, role, now);

		if (!qp->faulting[role] || qp->stuck_told[role] || !limit)
			continue;
		if (ns < limit) {
			qp->watched = true;
			timer_arm(qp, w->since + limit);
			continue;
		}
		qp->stuck_told[role] = true;
		fl_warn("QP 0x%06x (%s): stuck for %.1f s on a page fault at 0x%llx, %llu bytes, key 0x%x: %s. The "
			"memory does not come: swap, a file on a slow disk, or a pager of the application",
			qp->qpn, qp->state < 7 ? state[qp->state] : "?", ns / 1e9, (unsigned long long)w->addr,
			(unsigned long long)w->len, w->key, who[role]);
	}
}
