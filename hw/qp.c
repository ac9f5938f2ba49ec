/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: their numbers, their states, their end. core/ has checked what a modify asks for; this
 * does it. In ERR every work request completes with WR_FLUSH_ERR, those posted later too (10.3.1).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "hw/fault_model.h"
#include "hw/hw.h"
#include "hw/ud.h"

void pkt_queue_init(struct pkt_queue *q)
{
	CDS_INIT_LIST_HEAD(&q->list);
	q->bytes = 0;
}

void pkt_queue_clear(struct pkt_queue *q)
{
	struct kept_pkt *k, *next;

	cds_list_for_each_entry_safe(k, next, &q->list, node)
		free(k);
	pkt_queue_init(q);
}

static uint64_t kept_bytes(const struct roce_pkt *pkt)
{
	return sizeof(struct kept_pkt) + pkt->payload_len + (pkt->grh ? GRH_BYTES : 0);
}

/* The oldest leaves the queue; the caller frees it, or puts it back. NULL: none. */
struct kept_pkt *pkt_queue_take(struct pkt_queue *q)
{
	struct kept_pkt *k;

	if (cds_list_empty(&q->list))
		return NULL;
	k = cds_list_first_entry(&q->list, struct kept_pkt, node);
	cds_list_del(&k->node);
	q->bytes -= kept_bytes(&k->pkt);
	return k;
}

void pkt_queue_put_back(struct pkt_queue *q, struct kept_pkt *k)
{
	q->bytes += kept_bytes(&k->pkt);
	cds_list_add(&k->node, &q->list);
}

/* A train of which the first n packets were had before: what is new of it. */
void pkt_trim(struct roce_pkt *pkt, uint32_t n)
{
	pkt->opcode = roce_pkt_opcode(pkt, n);
	pkt->psn = psn_add(pkt->psn, n);
	pkt->npkts -= n;
	pkt->payload += (size_t)n * pkt->mtu;
	pkt->payload_len -= n * pkt->mtu;
}

/* Keeps a copy. front: it is the packet being worked on, and is to be taken up first. */
bool pkt_queue_add(struct pkt_queue *q, const struct roce_pkt *pkt, bool front)
{
	struct kept_pkt *k;

	if (!front && q->bytes + kept_bytes(pkt) > RESP_BACKLOG_BYTES)
		return false;
	k = malloc(kept_bytes(pkt));
	if (!k)
		return false;
	k->pkt = *pkt;
	if (pkt->payload_len)
		memcpy(k->payload, pkt->payload, pkt->payload_len);
	k->pkt.payload = k->payload;
	if (pkt->grh)
		k->pkt.grh = memcpy(k->payload + pkt->payload_len, pkt->grh, GRH_BYTES);
	q->bytes += kept_bytes(pkt);
	if (front)
		cds_list_add(&k->node, &q->list);
	else
		cds_list_add_tail(&k->node, &q->list);
	return true;
}

struct hca_qp *qp_lookup_lock(uint32_t qpn)
{
	struct hca_node *node = hca_node;
	struct hca_qp *qp;

	if (!node || qpn >> QP_INDEX_BITS != net_slot(node->net))
		return NULL;
	qp = (struct hca_qp *)number_get(&node->qps, qpn);
	if (!qp)
		return NULL;
	fl_lock(&qp->lock);
	if (qp->qpn == qpn)
		return qp;
	fl_unlock(&qp->lock);
	return NULL;
}

void qp_unlock(struct hca_qp *qp)
{
	fl_unlock(&qp->lock);
}

void qp_event(struct hca_qp *qp, enum ibv_event_type event)
{
	struct hca_qp_open *open;

	cds_list_for_each_entry (open, &qp->opens, node)
		hca_event_ops.qp_async(open->uobject, event);
}

void hca_qp_open(struct hca_qp *qp, struct hca_qp_open *open)
{
	fl_lock(&qp->lock);
	cds_list_add_tail(&open->node, &qp->opens);
	fl_unlock(&qp->lock);
}

void hca_qp_close(struct hca_qp *qp, struct hca_qp_open *open)
{
	fl_lock(&qp->lock);
	cds_list_del(&open->node);
	fl_unlock(&qp->lock);
}

static void qp_init(struct numbered *n)
{
	struct hca_qp *qp = (struct hca_qp *)n;

	fl_mutex_init(&qp->lock, LOCK_QP);
}

static int qp_alloc_queues(struct hca_qp *qp, const struct hca_qp_init *init)
{
	uint32_t room = init->cap.max_send_sge * sizeof(struct ibv_sge), recv_sge = init->cap.max_recv_sge;

	if (room < init->cap.max_inline_data)
		room = init->cap.max_inline_data;
	qp->sq_depth = init->cap.max_send_wr;
	qp->sq_stride = (sizeof(struct send_wqe) + room + 7) & ~7u;
	qp->sq_mask = pow2_at_least(qp->sq_depth) - 1;
	qp->sq = calloc((size_t)qp->sq_mask + 1, qp->sq_stride);
	qp->num_saved_max = qp->dev->profile->attr.max_qp_rd_atom;
	qp->resp.atomics = calloc(qp->num_saved_max, sizeof(*qp->resp.atomics));
	if (init->srq)
		recv_sge = init->srq->rq.max_sge;
	else if (init->type == IBV_QPT_XRC_RECV) /* of any SRQ that there may be */
		recv_sge = qp->dev->profile->attr.max_srq_sge;
	qp->resp.wqe = calloc(1, sizeof(struct recv_wqe) + recv_sge * sizeof(struct ibv_sge));
	if (rq_init(&qp->rq, init->srq ? 0 : init->cap.max_recv_wr, init->cap.max_recv_sge) ||
	    !qp->sq || !qp->resp.atomics || !qp->resp.wqe)
		return -ENOMEM;
	if (init->type == IBV_QPT_UD || init->type == IBV_QPT_DRIVER) {
		qp->ud = ud_paths_new();
		if (!qp->ud)
			return -ENOMEM;
	}
	if (init->type == IBV_QPT_DRIVER) {
		qp->srd = srd_new(qp->sq_depth);
		if (!qp->srd)
			return -ENOMEM;
	}
	return 0;
}

static void qp_free_queues(struct hca_qp *qp)
{
	free(qp->sq);
	free(qp->resp.atomics);
	free(qp->resp.wqe);
	rq_destroy(&qp->rq);
	srd_free(qp->srd);
	qp->srd = NULL;
	ud_paths_free(qp->ud);
	qp->ud = NULL;
	qp->sq = NULL;
	qp->resp.atomics = NULL;
	qp->resp.wqe = NULL;
}

int hca_qp_create(struct hca_dev *dev, const struct hca_qp_init *init, struct hca_qp **out)
{
	struct hca_node *node = hca_node;
	struct hca_qp *qp;
	int rc;

	if (!hca_dev_alive(dev))
		return -EIO;
	if (init->type != IBV_QPT_RC && init->type != IBV_QPT_UC && init->type != IBV_QPT_UD &&
	    init->type != IBV_QPT_XRC_SEND && init->type != IBV_QPT_XRC_RECV &&
	    init->type != IBV_QPT_DRIVER)
		return -EOPNOTSUPP;
	rc = engine_start(node);
	if (rc)
		return rc;
	qp = (struct hca_qp *)number_claim(&node->qps, sizeof(*qp), qp_init);
	if (!qp)
		return -EAGAIN;
	fl_lock(&qp->lock);
	qp->dev = dev;
	qp->type = init->type;
	qp->pd = init->pd;
	qp->send_cq = init->send_cq;
	qp->recv_cq = init->recv_cq;
	qp->srq = init->srq;
	qp->xrcd = init->xrcd;
	qp->cap = init->cap;
	qp->sq_sig_all = init->sq_sig_all;
	qp->port_mtu = init->port_mtu;
	qp->state = IBV_QPS_RESET;
	memset(&qp->attr, 0, sizeof(qp->attr));
	rc = qp_alloc_queues(qp, init);
	if (rc) {
		qp_free_queues(qp);
		fl_unlock(&qp->lock);
		number_release(&node->qps, &qp->n);
		return rc;
	}
	CDS_INIT_LIST_HEAD(&qp->opens);
	cds_list_add_tail(&init->open->node, &qp->opens);
	pkt_queue_init(&qp->backlog);
	pkt_queue_init(&qp->answers);
	qp_reset(qp);
	qp->qpn = net_slot(node->net) << QP_INDEX_BITS | qp->n.index;
	fl_unlock(&qp->lock);
	*out = qp;
	return 0;
}

uint32_t hca_qp_num(const struct hca_qp *qp)
{
	return qp->qpn;
}

void hca_qp_query(struct hca_qp *qp, struct ibv_qp_attr *attr)
{
	if (!hca_dev_alive(qp->dev)) {
		memset(attr, 0, sizeof(*attr));
		attr->qp_state = attr->cur_qp_state = IBV_QPS_ERR;
		return;
	}
	fl_lock(&qp->lock);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->cap = qp->cap;
	attr->sq_draining = qp->state == IBV_QPS_SQD && !qp->req.drained_said;
	if (qp->state >= IBV_QPS_RTR)
		attr->rq_psn = qp->resp.psn;
	if (qp->state >= IBV_QPS_RTS)
		attr->sq_psn = qp->req.psn;
	fl_unlock(&qp->lock);
}

/* RESET: nothing is outstanding, nothing is remembered; queues are empty. Locked. */
void qp_reset(struct hca_qp *qp)
{
	direct_withdraw(qp);
	if (qp->srd)
		srd_reset(qp);
	qp->sq_head = qp->sq_send = qp->sq_tail = 0;
	memset(&qp->req, 0, sizeof(qp->req));
	resp_reset(qp);
	pkt_queue_clear(&qp->backlog);
	pkt_queue_clear(&qp->answers);
	/* faults still under way find the generation changed */
	qp->generation++;
	memset(qp->faulting, 0, sizeof(qp->faulting));
	memset(qp->failed, 0, sizeof(qp->failed));
	memset(qp->force_tries, 0, sizeof(qp->force_tries));
	fl_lock(&qp->rq.lock);
	qp->rq.head = qp->rq.tail;
	fl_unlock(&qp->rq.lock);
	memset(&qp->direct, 0, sizeof(qp->direct));
	qp->deadline = 0;
	timer_remove(qp);
}

static void flush_recv(struct hca_qp *qp, uint64_t wr_id)
{
	struct ibv_wc wc = {.wr_id = wr_id,
			    .status = IBV_WC_WR_FLUSH_ERR,
			    .opcode = IBV_WC_RECV,
			    .qp_num = qp->qpn};

	hca_cq_push(resp_cq(qp), &wc, false);
}

/* Everything in both queues completes as flushed. Locked, in ERR. */
void qp_flush(struct hca_qp *qp)
{
	uint32_t left;

	while (qp->sq_tail != qp->sq_head)
		req_retire(qp, IBV_WC_WR_FLUSH_ERR, 0);
	qp->sq_send = qp->sq_tail;
	if (qp->srd)
		srd_flush(qp);
	if (qp->resp.have_wqe) {
		qp->resp.have_wqe = false;
		flush_recv(qp, qp->resp.wqe->wr_id);
	}
	qp->resp.srq = NULL;
	while (!qp->srq && !rq_take(&qp->rq, qp->resp.wqe, &left))
		flush_recv(qp, qp->resp.wqe->wr_id);
	pkt_queue_clear(&qp->backlog);
	pkt_queue_clear(&qp->answers);
	qp->generation++;
	memset(qp->faulting, 0, sizeof(qp->faulting));
	memset(qp->failed, 0, sizeof(qp->failed));
	memset(qp->force_tries, 0, sizeof(qp->force_tries));
	qp->resp.read.active = false;
	qp->resp.atomic_owed = false;
	qp->resp.ack_pending = false;
	qp->deadline = 0;
}

void qp_error(struct hca_qp *qp, enum ibv_wc_status status, uint32_t vendor_err)
{
	bool srq_last = (qp->srq || qp->type == IBV_QPT_XRC_RECV) && qp->state != IBV_QPS_ERR;

	direct_withdraw(qp);
	qp->state = IBV_QPS_ERR;
	if (status != IBV_WC_SUCCESS && qp->sq_tail != qp->sq_head)
		req_retire(qp, status, vendor_err);
	qp_flush(qp);
	if (srq_last)
		qp_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

static void merge_attr(struct ibv_qp_attr *to, const struct ibv_qp_attr *a, int mask)
{
	if (mask & IBV_QP_ACCESS_FLAGS)
		to->qp_access_flags = a->qp_access_flags;
	if (mask & IBV_QP_PKEY_INDEX)
		to->pkey_index = a->pkey_index;
	if (mask & IBV_QP_PORT)
		to->port_num = a->port_num;
	if (mask & IBV_QP_QKEY)
		to->qkey = a->qkey;
	if (mask & IBV_QP_AV)
		to->ah_attr = a->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		to->path_mtu = a->path_mtu;
	if (mask & IBV_QP_TIMEOUT)
		to->timeout = a->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		to->retry_cnt = a->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		to->rnr_retry = a->rnr_retry;
	if (mask & IBV_QP_RQ_PSN)
		to->rq_psn = a->rq_psn & ROCE_PSN_MASK;
	if (mask & IBV_QP_SQ_PSN)
		to->sq_psn = a->sq_psn & ROCE_PSN_MASK;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = a->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = a->max_dest_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = a->min_rnr_timer;
	if (mask & IBV_QP_DEST_QPN)
		to->dest_qp_num = a->dest_qp_num & ROCE_QPN_MASK;
	if (mask & IBV_QP_PATH_MIG_STATE)
		to->path_mig_state = a->path_mig_state;
	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		to->en_sqd_async_notify = a->en_sqd_async_notify;
}

static void set_window(struct hca_qp *qp)
{
	uint32_t path = qp->path ? net_path_window(qp->path, qp->mtu) : 0;
	uint32_t ours = REQ_WINDOW_BYTES / qp->mtu;
	bool loses = path != UINT32_MAX && qp_reliable(qp);

	/* a link that says how much it bears may lose what is more; the others lose nothing */
	cwnd_init(&qp->req.cwnd, path < ours ? path : ours, loses);
	probe_init(&qp->req.probe, loses && !fault_model->rnr_nak); /* NICs as published have no probes */
}

/* What a change of state starts. Locked; attributes are merged. */
static void enter_state(struct hca_qp *qp, enum ibv_qp_state state)
{
	enum ibv_qp_state old = qp->state;

	if (state != IBV_QPS_ERR) /* qp_error() wants to know what it was */
		qp->state = state;
	switch (state) {
	case IBV_QPS_RESET:
		qp_reset(qp);
		memset(&qp->attr, 0, sizeof(qp->attr));
		break;
	case IBV_QPS_INIT:
		if (qp->srd)
			qp->attr.rnr_retry = 7; /* without end, unless something else is asked for */
		break;
	case IBV_QPS_RTR:
		qp->mtu = qp->ud ? qp->port_mtu : 128u << qp->attr.path_mtu;
		qp->resp.psn = qp->backlog.next_psn = qp->attr.rq_psn;
		qp->resp.num_atomics = qp->attr.max_dest_rd_atomic;
		if (!qp->resp.num_atomics || qp->resp.num_atomics > qp->num_saved_max)
			qp->resp.num_atomics = qp->num_saved_max;
		break;
	case IBV_QPS_RTS:
		if (old == IBV_QPS_RTR) {
			qp->req.psn = qp->req.una = qp->req.psn_high = qp->attr.sq_psn;
			set_window(qp);
			qp->req.retry_left = qp->attr.retry_cnt;
			qp->req.rnr_left = qp->attr.rnr_retry;
		}
		req_run(qp);
		break;
	case IBV_QPS_SQD:
		qp->req.drained_said = false;
		req_check_drained(qp);
		break;
	case IBV_QPS_ERR:
		qp_error(qp, IBV_WC_SUCCESS, 0);
		break;
	default:
		break;
	}
}

static void clean_cqs(struct hca_qp *qp, uint32_t qpn)
{
	if (qp->send_cq)
		hca_cq_clean(qp->send_cq, qpn);
	if (qp->recv_cq)
		hca_cq_clean(qp->recv_cq, qpn);
}

int hca_qp_modify(struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask,
		  const uint8_t sgid[16])
{
	struct net_path *path = NULL, *old = NULL;
	struct ud_path *ud_paths = NULL;
	uint32_t ud_slots = 0;
	bool reset = (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET;

	if (!hca_dev_alive(qp->dev))
		return -EIO;
	if (mask & IBV_QP_AV) {
		struct net_path_attr pa = {
			.qpn = qp->qpn,
			.dest_qpn = mask & IBV_QP_DEST_QPN ? attr->dest_qp_num & ROCE_QPN_MASK
							   : qp->attr.dest_qp_num,
			.tclass = attr->ah_attr.grh.traffic_class,
			.hop_limit = attr->ah_attr.grh.hop_limit,
			.flow_label = attr->ah_attr.grh.flow_label,
		};
		int rc;

		memcpy(pa.sgid, sgid, 16);
		memcpy(pa.dgid, attr->ah_attr.grh.dgid.raw, 16);
		rc = net_path_open(hca_node->net, &pa, &path);
		if (rc)
			return rc;
	}
	fl_lock(&qp->lock);
	resp_send_ack(qp);
	if (path || reset) {
		old = qp->path;
		qp->path = path;
	}
	if (qp->ud && reset)
		ud_paths = ud_paths_take(qp->ud, &ud_slots);
	merge_attr(&qp->attr, attr, mask);
	if (mask & IBV_QP_STATE)
		enter_state(qp, attr->qp_state);
	qp->direct.usable = qp->path && net_path_is_direct(qp->path);
	direct_publish(qp);
	if (old && path) { /* who waited for room waited for it on the old path */
		resp_resume(qp);
		req_run(qp);
	}
	fl_unlock(&qp->lock);
	if (reset)
		clean_cqs(qp, qp->qpn);
	if (old)
		net_path_close(old);
	ud_paths_close(ud_paths, ud_slots);
	return 0;
}

void hca_qp_destroy(struct hca_qp *qp)
{
	struct net_path *path;
	struct ud_path *ud_paths = NULL;
	uint32_t qpn = qp->qpn, ud_slots = 0;

	if (!hca_dev_alive(qp->dev))
		return; /* a forked parent's: it is not ours to end */
	fl_lock(&qp->lock);
	resp_send_ack(qp); /* a completion that was seen must not look lost to the peer */
	qp_reset(qp);
	qp->qpn = 0;
	path = qp->path;
	qp->path = NULL;
	if (qp->ud)
		ud_paths = ud_paths_take(qp->ud, &ud_slots);
	qp_free_queues(qp);
	fl_unlock(&qp->lock);
	if (path)
		net_path_close(path);
	ud_paths_close(ud_paths, ud_slots);
	clean_cqs(qp, qpn);
	number_release(&hca_node->qps, &qp->n);
}

int hca_post_recv(struct hca_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int rc;

	if (!hca_dev_alive(qp->dev)) {
		*bad = wr;
		return EIO;
	}
	/* a hint: RESET and ERR are left and entered under LOCK_QP, below */
	if (qp->state == IBV_QPS_RESET || qp->srq || !qp->recv_cq) {
		*bad = wr;
		return EINVAL;
	}
	rc = rq_post(&qp->rq, wr, bad);
	if (qp->state == IBV_QPS_ERR) {
		fl_lock(&qp->lock);
		if (qp->state == IBV_QPS_ERR)
			qp_flush(qp);
		fl_unlock(&qp->lock);
	}
	return rc;
}
