/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The page-fault queue and its workers.
 *
 * A fault in it holds the MR's umem (mr_get), not the QPs that wait for it: one that is reset or destroyed
 * meanwhile has another generation and is left alone. Who faults where a fault is already under way waits
 * for that one. The queue has a fixed number of places; a role that finds none waits, in line, for one to
 * be free and then does again what made it fault, so that overflow costs time and loses nothing. For that
 * each role of a QP has a node of its own (struct pf_wait), and nothing is allocated.
 *
 * The workers grow with what is waiting, to the fault model's limit: a fault may sleep for as long as it
 * likes, and must not keep others. Prefetches that are not waited for (advise.c) are work for the same
 * threads.
 */
#include <errno.h>
#include "hw/fault_model.h"
#include "hw/pf.h"
#include "mm/mm.h"
#include "util/provoke.h"

#define PF_QUEUE 256 /* faults at a time */

struct pf {
	struct pf_work work;
	struct cds_list_head node; /* free, or under way */
	struct cds_list_head waiters; /* struct pf_wait */
	struct hca_mr *mr;
	struct mr_miss miss;
	uint64_t began; /* now_ns() of the fault */
};

static struct {
	struct fl_mutex lock; /* LOCK_PF_QUEUE */
	pthread_cond_t cond;
	struct cds_list_head list;  /* work for the workers */
	struct cds_list_head under_way, free; /* struct pf */
	struct cds_list_head overflow; /* struct pf_wait */
	struct pf pf[PF_QUEUE];
	unsigned workers, busy, queued, faults, max; /* max: 0 until the first fault */
} pfq = {.lock = FL_MUTEX_INIT(LOCK_PF_QUEUE),
	 .cond = PTHREAD_COND_INITIALIZER,
	 .list = CDS_LIST_HEAD_INIT(pfq.list)};

/*
 * A QP that a worker resumes faults again, as a rule, and that worker is free at once: nobody is woken for this
 * one fault. owed: so it is.
 */
static __thread struct {
	bool worker, owed;
} self __attribute__((tls_model("initial-exec")));

static void *worker(void *arg);

/* One more worker, if so much work is queued that those who are not busy do not do. Locked. */
static int enough_workers(unsigned busy, unsigned queued)
{
	pthread_t thread;
	int rc;

	if (busy + queued <= pfq.workers || pfq.workers >= fault_model->workers)
		return 0;
	rc = mm_thread(&thread, NULL, worker, NULL, "faultline-pf");
	if (!rc)
		pfq.workers++;
	return rc;
}

/* The worker has something else to do first, which may be long: another is to do what it has queued. Locked. */
static void hand_over(void)
{
	if (!self.owed)
		return;
	self.owed = false;
	enough_workers(pfq.busy, pfq.queued); /* without one it is done late */
	pthread_cond_signal(&pfq.cond);
}

static void count_time(struct hca_mr *mr, enum faultline_histogram h, uint64_t since)
{
	cnt_time(mr->dev->stat, mr->ent, h, now_ns() - since);
}

/* The oldest of the list, as it was; the node may be used again when the lock is free. */
static bool take_waiter(struct cds_list_head *list, struct pf_wait *out)
{
	struct pf_wait *w;

	if (cds_list_empty(list))
		return false;
	w = cds_list_first_entry(list, struct pf_wait, node);
	cds_list_del(&w->node);
	w->listed = false;
	*out = *w;
	return true;
}

/*
 * Who found no place does again what made it fault. Until all are taken or none is left: one that needs
 * none any more must not keep the next from being called.
 */
static void call_overflow(void)
{
	struct pf_wait w;
	bool any;

	do {
		fl_lock(&pfq.lock);
		any = pfq.faults < pfq.max && take_waiter(&pfq.overflow, &w);
		if (any)
			hand_over();
		fl_unlock(&pfq.lock);
		if (any)
			pf_resume(w.qp, w.role, w.generation, NULL, 0);
	} while (any);
}

static void run_fault(struct pf_work *work)
{
	struct pf *pf = (struct pf *)work; /* its first member */
	struct mr_miss miss = pf->miss;
	struct hca_mr *mr = pf->mr;
	uint64_t ns = provoke_fault_ns(miss.len);
	struct cds_list_head waiters;
	struct pf_wait w;
	int rc;

	provoke_race(PROVOKE_FAULT_QUEUED);
	if (fault_model->service_ns)
		ns += fault_model->service_ns(miss.len);
	if (ns)
		provoke_sleep(ns);
	/* the access comes with the QP locked, and whoever has a packet for the QP waits for that */
	rc = pf_resolve(mr, &miss, UMEM_FAULT_TOUCH);
	count_time(mr, FL_HIST_fault_time, pf->began);
	provoke_race(PROVOKE_FAULT_RESUME);

	/* nobody joins any more, and another may have the place */
	fl_lock(&pfq.lock);
	CDS_INIT_LIST_HEAD(&waiters);
	cds_list_splice(&pf->waiters, &waiters);
	cds_list_del(&pf->node);
	cds_list_add(&pf->node, &pfq.free);
	pfq.faults--;
	while (take_waiter(&waiters, &w)) {
		hand_over();
		fl_unlock(&pfq.lock); /* LOCK_QP comes before it */
		count_time(mr, FL_HIST_stall_time, w.since);
		pf_resume(w.qp, w.role, w.generation, &miss, rc);
		fl_lock(&pfq.lock);
	}
	fl_unlock(&pfq.lock);
	mr_put(mr);
	call_overflow();
}

static void *worker(void *arg)
{
	struct pf_work *work;

	self.worker = true;
	for (;;) {
		fl_lock(&pfq.lock);
		while (cds_list_empty(&pfq.list))
			fl_cond_wait(&pfq.cond, &pfq.lock);
		work = cds_list_first_entry(&pfq.list, struct pf_work, node);
		cds_list_del(&work->node);
		pfq.queued--;
		pfq.busy++;
		fl_unlock(&pfq.lock);

		pf_begin_pass();
		work->run(work);

		fl_lock(&pfq.lock);
		pfq.busy--;
		self.owed = false;
		fl_unlock(&pfq.lock);
	}
	return NULL;
}

/* locked */
static int queue_work(struct pf_work *work)
{
	int rc = enough_workers(pfq.busy - self.worker, pfq.queued + 1);

	if (!pfq.workers)
		return rc;
	cds_list_add_tail(&work->node, &pfq.list);
	pfq.queued++;
	if (self.worker && !self.owed)
		self.owed = true;
	else
		pthread_cond_signal(&pfq.cond);
	return 0;
}

int pf_queue_work(struct pf_work *work)
{
	int rc;

	fl_lock(&pfq.lock);
	rc = queue_work(work);
	fl_unlock(&pfq.lock);
	return rc;
}

/* One that will bring what this one needs, too. What a table promised in vain is looked into anew. */
static struct pf *find_same(const struct hca_mr *mr, const struct mr_miss *miss)
{
	struct pf *pf;

	if (!miss->force)
		cds_list_for_each_entry(pf, &pfq.under_way, node)
			if (pf->mr == mr && pf->miss.write >= miss->write && pf->miss.addr <= miss->addr &&
			    pf->miss.addr + pf->miss.len >= miss->addr + miss->len)
				return pf;
	return NULL;
}

static void prepare(void)
{
	CDS_INIT_LIST_HEAD(&pfq.under_way);
	CDS_INIT_LIST_HEAD(&pfq.free);
	CDS_INIT_LIST_HEAD(&pfq.overflow);
	pfq.max = provoke.queue && provoke.queue < PF_QUEUE ? provoke.queue : PF_QUEUE;
	for (unsigned i = 0; i < PF_QUEUE; i++)
		cds_list_add_tail(&pfq.pf[i].node, &pfq.free);
}

int pf_queue_fault(struct hca_qp *qp, enum qp_role role, struct hca_mr *mr, const struct mr_miss *miss,
		   uint64_t began)
{
	struct pf_wait *w = &qp->pf_wait[role];
	struct pf *pf;
	int rc = 0;

	fl_lock(&pfq.lock);
	if (!pfq.max)
		prepare();
	if (w->listed) /* of an earlier generation */
		cds_list_del(&w->node);
	*w = (struct pf_wait){.listed = true,
			      .qp = qp,
			      .role = role,
			      .generation = qp->generation,
			      .since = now_ns(),
			      .addr = miss->addr,
			      .len = miss->len,
			      .key = miss->key};
	pf = find_same(mr, miss);
	if (pf) {
		cds_list_add_tail(&w->node, &pf->waiters);
	} else if (pfq.faults < pfq.max) {
		pf = cds_list_first_entry(&pfq.free, struct pf, node);
		cds_list_del(&pf->node);
		pf->work.run = run_fault;
		pf->mr = mr;
		pf->miss = *miss;
		pf->began = began;
		CDS_INIT_LIST_HEAD(&pf->waiters);
		rc = queue_work(&pf->work);
		if (!rc) {
			cds_list_add_tail(&w->node, &pf->waiters);
			cds_list_add(&pf->node, &pfq.under_way);
			pfq.faults++;
			mr = NULL; /* the reference is the fault's now */
		} else {
			cds_list_add(&pf->node, &pfq.free);
			w->listed = false;
		}
	} else {
		cds_list_add_tail(&w->node, &pfq.overflow);
	}
	fl_unlock(&pfq.lock);
	if (!rc && mr)
		mr_put(mr);
	return rc;
}

/* The parent's workers are not here, and what they were to do is not ours. */
void pf_fork_child(void)
{
	fl_mutex_init(&pfq.lock, LOCK_PF_QUEUE);
	pthread_cond_init(&pfq.cond, NULL);
	CDS_INIT_LIST_HEAD(&pfq.list);
	pfq.workers = pfq.busy = pfq.queued = pfq.faults = pfq.max = 0;
}
