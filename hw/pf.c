/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Page faults of the device. A fault whose pages are resident or zero-fill is resolved at once, by the
 * thread that met it. One that would sleep (swapped out, a file that is not cached) or is long goes to
 * the page-fault queue; the role of the QP that met it pauses, everything else runs on; a worker
 * resolves it and resumes the role.
 *
 * Prefetches that are not waited for (advise.c) are work for the same threads.
 *
 * A fault in the queue is an object of its own that holds the MR's umem (mr_get), not the QP: a QP
 * that is reset or destroyed meanwhile has another generation, and the worker leaves it alone.
 */
#include <errno.h>
#include <stdlib.h>
#include "hw/hw.h"
#include "util/probe.h"
#include "util/cancel.h"

#define PF_WORKERS_MAX 64 /* a fault may sleep for as long as it likes: it must not keep others */
#define PF_INLINE_MAX (1u << 20)
#define PF_FORCE_TRIES 64

struct pf {
	struct pf_work work;
	struct hca_qp *qp;
	uint32_t generation;
	enum qp_role role;
	struct hca_mr *mr;
	struct mr_miss miss;
	uint64_t began, paused; /* now_ns() of the fault, and of the role's pause */
};

static struct {
	struct fl_mutex lock; /* LOCK_PF_QUEUE */
	pthread_cond_t cond;
	struct cds_list_head list;
	unsigned workers, busy, queued;
} pfq = {.lock = FL_MUTEX_INIT(LOCK_PF_QUEUE),
	 .cond = PTHREAD_COND_INITIALIZER,
	 .list = CDS_LIST_HEAD_INIT(pfq.list)};

/* The pages come into the region's table: pages that are new in it, or negative errno. */
static int pf_resolve(struct hca_mr *mr, const struct mr_miss *miss, unsigned flags)
{
	if (miss->write)
		flags |= UMEM_FAULT_WRITE;
	if (miss->force)
		flags |= UMEM_FAULT_FORCE;
	return mr->umem->ops->fault(mr->umem, miss->addr, miss->len, flags);
}

/* mr: held. The device is that of the QP, whose PD the MR is of. */
static void count_time(struct hca_mr *mr, enum faultline_histogram h, uint64_t since)
{
	cnt_time(mr->dev->stat, mr->ent, h, now_ns() - since);
}

static void resume(struct pf *pf, int rc)
{
	struct hca_qp *qp = pf->qp;

	fl_lock(&qp->lock);
	if (qp->qpn && qp->generation == pf->generation) {
		qp->faulting[pf->role] = false;
		FL_PROBE4(page_fault_done, qp->qpn, pf->role, pf->miss.addr, rc);
		qp->failed[pf->role].key = rc < 0 ? pf->miss.key : 0;
		qp->failed[pf->role].addr = pf->miss.addr;
		qp->failed[pf->role].len = pf->miss.len;
		if (pf->role == ROLE_REQ)
			req_run(qp);
		else if (pf->role == ROLE_RESP)
			resp_resume(qp);
		else
			comp_resume(qp);
	}
	fl_unlock(&qp->lock);
	engine_flush_acks();
}

static void run_fault(struct pf_work *work)
{
	struct pf *pf = (struct pf *)work; /* its first member */
	int rc = pf_resolve(pf->mr, &pf->miss, 0);

	count_time(pf->mr, FL_HIST_fault_time, pf->began);
	count_time(pf->mr, FL_HIST_stall_time, pf->paused);
	mr_put(pf->mr);
	resume(pf, rc);
	free(pf);
}

static void *worker(void *arg)
{
	struct pf_work *work;

	for (;;) {
		fl_lock(&pfq.lock);
		while (cds_list_empty(&pfq.list))
			pthread_cond_wait(&pfq.cond, &pfq.lock.m);
		work = cds_list_first_entry(&pfq.list, struct pf_work, node);
		cds_list_del(&work->node);
		pfq.queued--;
		pfq.busy++;
		fl_unlock(&pfq.lock);

		work->run(work);

		fl_lock(&pfq.lock);
		pfq.busy--;
		fl_unlock(&pfq.lock);
	}
	return NULL;
}

int pf_queue_work(struct pf_work *work)
{
	pthread_t thread;
	int rc = 0;

	fl_lock(&pfq.lock);
	if (pfq.busy + pfq.queued >= pfq.workers && pfq.workers < PF_WORKERS_MAX) {
		rc = hca_thread(&thread, worker, NULL, "faultline-pf");
		if (!rc)
			pfq.workers++;
	}
	if (!pfq.workers) {
		fl_unlock(&pfq.lock);
		return rc;
	}
	cds_list_add_tail(&work->node, &pfq.list);
	pfq.queued++;
	pthread_cond_signal(&pfq.cond);
	fl_unlock(&pfq.lock);
	return 0;
}

static int pf_queue(struct hca_qp *qp, enum qp_role role, struct hca_mr *mr, const struct mr_miss *miss,
		    uint64_t began)
{
	struct pf *pf = malloc(sizeof(*pf));
	int rc;

	if (!pf)
		return -ENOMEM;
	*pf = (struct pf){.work.run = run_fault,
			  .qp = qp,
			  .generation = qp->generation,
			  .role = role,
			  .mr = mr,
			  .miss = *miss,
			  .began = began,
			  .paused = now_ns()};
	qp->faulting[role] = true; /* a worker that is quick waits for the QP's lock, which we hold */
	rc = pf_queue_work(&pf->work);
	if (rc) {
		qp->faulting[role] = false;
		free(pf);
	}
	return rc;
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

int pf_fault(struct hca_qp *qp, enum qp_role role, const struct mr_miss *miss)
{
	NO_CANCEL;
	struct hca_mr *mr = mr_get(miss->key);
	uint64_t began;
	int rc;

	/* what a worker has tried, or an access that fails again and again though its pages are said to be
	 * there */
	if (!mr || has_failed(qp, role, miss) ||
	    (miss->force && ++qp->force_tries[role] > PF_FORCE_TRIES))
		return denied(qp, mr);
	began = now_ns();
	cnt_inc(qp->dev->stat, FL_CNT_page_fault_events);
	FL_PROBE4(page_fault, qp->qpn, role, miss->addr, miss->len);
	rc = miss->len <= PF_INLINE_MAX ? pf_resolve(mr, miss, UMEM_FAULT_NOSLEEP) : -EAGAIN;
	if (rc == -EAGAIN) {
		FL_PROBE3(page_fault_queued, qp->qpn, role, miss->addr);
		rc = pf_queue(qp, role, mr, miss, began);
		if (!rc)
			return -EINPROGRESS; /* the reference is the fault's now */
	}
	FL_PROBE4(page_fault_done, qp->qpn, role, miss->addr, rc);
	count_time(mr, FL_HIST_fault_time, began);
	if (rc < 0)
		return denied(qp, mr);
	mr_put(mr);
	return 0;
}

/* The parent's workers are not here, and what they were to do is not ours. */
void pf_fork_child(void)
{
	fl_mutex_init(&pfq.lock, LOCK_PF_QUEUE);
	pthread_cond_init(&pfq.cond, NULL);
	CDS_INIT_LIST_HEAD(&pfq.list);
	pfq.workers = pfq.busy = pfq.queued = 0;
}
