/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable datagrams (9.8.3): each message is one packet, to wherever its address handle points, and
 * nobody answers. So a send is complete when the link has it, in the order of the queue, and there is
 * neither window nor timer.
 *
 * A QP that speaks to many keeps a path to each place: a table, which grows. Opening one may take a
 * while and takes locks that rank before the QP's, so posting opens what is missing beforehand, without
 * the QP's lock, and finds it again under it. Paths go when the QP is reset or destroyed.
 *
 * A receive begins with 40 bytes of the packet's GRH (or IPv4 header, A17.4.5.2). A datagram that meets
 * a page fault in its buffer waits in the backlog with its GRH, those after it behind it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "hw/ud.h"

#define UD_PATHS_MAX   4096
#define UD_PATHS_FIRST 8
#define QKEY_OF_QP     0x80000000u /* 10.2.5: in a work request, the QP's own is meant */

struct ud_path {
	struct net_path *path;
	struct net_path_attr attr;
};

struct ud_paths {
	struct fl_mutex lock; /* LOCK_LEAF: all of it */
	struct ud_path *v;    /* open addressing, a power of two, at most half full */
	uint32_t n, mask;
	uint32_t last; /* where the one before was found: most QPs go on with the same */
};

/* ---- paths ---- */

struct ud_paths *ud_paths_new(void)
{
	struct ud_paths *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	fl_mutex_init(&t->lock, LOCK_LEAF);
	return t;
}

/* All of them, out of the table, to be closed without a lock. QP locked. */
struct ud_path *ud_paths_take(struct ud_paths *t, uint32_t *slots)
{
	struct ud_path *v;

	fl_lock(&t->lock);
	v = t->v;
	*slots = v ? t->mask + 1 : 0;
	t->v = NULL;
	t->n = t->mask = t->last = 0;
	fl_unlock(&t->lock);
	return v;
}

void ud_paths_close(struct ud_path *v, uint32_t slots)
{
	uint32_t i;

	for (i = 0; i < slots; i++)
		if (v[i].path)
			net_path_close(v[i].path);
	free(v);
}

void ud_paths_free(struct ud_paths *t)
{
	if (!t)
		return;
	fl_mutex_destroy(&t->lock);
	free(t);
}

/* What a path depends on: of the peer's QPN its process's slot alone. Compared as bytes, so no holes. */
static void path_attr(const struct hca_qp *qp, const struct ibv_send_wr *wr, const struct hca_av *av,
		      struct net_path_attr *a)
{
	memset(a, 0, sizeof(*a));
	memcpy(a->sgid, av->sgid, sizeof(a->sgid));
	memcpy(a->dgid, av->dgid, sizeof(a->dgid));
	a->qpn = qp->qpn;
	a->dest_qpn = wr->wr.ud.remote_qpn & ROCE_QPN_MASK & ~(QP_MAX - 1);
	a->tclass = av->tclass;
	a->hop_limit = av->hop_limit;
	a->flow_label = av->flow_label;
}

static bool same_path(const struct ud_path *p, const struct net_path_attr *a)
{
	return p->path && !memcmp(&p->attr, a, sizeof(*a));
}

static uint32_t path_hash(const struct net_path_attr *a)
{
	uint64_t w[4], h = a->dest_qpn ^ (uint64_t)a->flow_label << 32 ^ (uint64_t)a->tclass << 56;
	int i;

	memcpy(w, a->sgid, 16);
	memcpy(w + 2, a->dgid, 16);
	for (i = 0; i < 4; i++)
		h = (h ^ w[i]) * 0x9e3779b97f4a7c15ull;
	return h >> 32;
}

/* The place of a path, or where it would go; the table is not full. Locked. */
static struct ud_path *path_find(struct ud_paths *t, const struct net_path_attr *a)
{
	uint32_t i;

	if (same_path(&t->v[t->last], a))
		return &t->v[t->last];
	for (i = path_hash(a) & t->mask; t->v[i].path && !same_path(&t->v[i], a); i = (i + 1) & t->mask)
		;
	t->last = i;
	return &t->v[i];
}

static struct net_path *path_get(struct ud_paths *t, const struct net_path_attr *a)
{
	struct net_path *path = NULL;

	fl_lock(&t->lock);
	if (t->v)
		path = path_find(t, a)->path;
	fl_unlock(&t->lock);
	return path;
}

/* Room for one more. Locked. */
static int paths_grow(struct ud_paths *t)
{
	uint32_t old = t->v ? t->mask + 1 : 0, slots = old ? old * 2 : UD_PATHS_FIRST, i;
	struct ud_path *v = t->v, *to;

	if (t->n >= UD_PATHS_MAX)
		return -ENOMEM;
	if (2 * (t->n + 1) <= old)
		return 0;
	to = calloc(slots, sizeof(*to));
	if (!to)
		return -ENOMEM;
	t->v = to;
	t->mask = slots - 1;
	t->last = 0;
	for (i = 0; i < old; i++)
		if (v[i].path)
			*path_find(t, &v[i].attr) = v[i];
	free(v);
	return 0;
}

/* The path passes to the table, unless another is there already, which *path is then not any more. */
static int path_enter(struct ud_paths *t, const struct net_path_attr *a, struct net_path **path)
{
	struct ud_path *p;
	int rc;

	fl_lock(&t->lock);
	rc = paths_grow(t);
	if (!rc) {
		p = path_find(t, a);
		if (!p->path) { /* else another thread was there first */
			p->path = *path;
			p->attr = *a;
			t->n++;
			*path = NULL;
		}
	}
	fl_unlock(&t->lock);
	return rc;
}

static int path_open(struct ud_paths *t, const struct net_path_attr *a)
{
	struct net_path *path;
	int rc = net_path_open(hca_node->net, a, &path);

	if (rc)
		return rc;
	rc = path_enter(t, a, &path);
	if (path)
		net_path_close(path);
	return rc;
}

struct net_path *ud_path_find(struct hca_qp *qp, const struct net_path_attr *a)
{
	return path_get(qp->ud, a);
}

int ud_path_enter(struct hca_qp *qp, const struct net_path_attr *a, struct net_path **path)
{
	return path_enter(qp->ud, a, path);
}

void ud_path_back(const struct hca_qp *qp, const uint8_t grh[GRH_BYTES], uint32_t src_qpn, struct net_path_attr *a)
{
	memset(a, 0, sizeof(*a));
	grh_dgid(grh, a->sgid);
	grh_sgid(grh, a->dgid);
	a->qpn = qp->qpn;
	a->dest_qpn = src_qpn & ~(QP_MAX - 1);
}

/* of SRD an RDMA operation has an address handle, too */
static const struct hca_av *wr_av(const struct hca_qp *qp, const struct ibv_send_wr *wr)
{
	bool has = qp->srd || wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM;

	return has && wr->wr.ud.ah ? hca_event_ops.av(wr->wr.ud.ah) : NULL;
}

int ud_open_paths(struct hca_qp *qp, struct ibv_send_wr *wr, const struct ibv_send_wr *end, struct ibv_send_wr **stop)
{
	const struct hca_av *av;
	struct net_path_attr a;
	int rc;

	for (; wr != end; wr = wr->next) {
		av = wr_av(qp, wr);
		if (!av || av->pd != qp->pd)
			continue; /* posting, or sending, says what it thinks of it */
		path_attr(qp, wr, av, &a);
		if (path_get(qp->ud, &a))
			continue;
		rc = path_open(qp->ud, &a);
		if (rc) {
			*stop = wr;
			return -rc;
		}
	}
	return 0;
}

/* ---- requester ---- */

int ud_check_wr(const struct hca_qp *qp, const struct ibv_send_wr *wr)
{
	return wr_av(qp, wr) ? 0 : EINVAL;
}

uint32_t ud_wr_qkey(const struct hca_qp *qp, const struct ibv_send_wr *wr)
{
	return wr->wr.ud.remote_qkey & QKEY_OF_QP ? qp->attr.qkey : wr->wr.ud.remote_qkey;
}

struct net_path *ud_wr_path(struct hca_qp *qp, const struct ibv_send_wr *wr)
{
	const struct hca_av *av = wr_av(qp, wr);
	struct net_path_attr a;

	if (av->pd != qp->pd)
		return NULL;
	path_attr(qp, wr, av, &a);
	return path_get(qp->ud, &a);
}

void ud_fill_wqe(struct hca_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr)
{
	w->dest_qpn = wr->wr.ud.remote_qpn & ROCE_QPN_MASK;
	w->qkey = ud_wr_qkey(qp, wr);
	w->path = ud_wr_path(qp, wr);
}

void sq_error(struct hca_qp *qp, enum ibv_wc_status status)
{
	qp->state = IBV_QPS_SQE;
	req_retire(qp, status, 0);
	ud_flush_sends(qp);
}

void ud_flush_sends(struct hca_qp *qp)
{
	while (qp->sq_tail != qp->sq_head)
		req_retire(qp, IBV_WC_WR_FLUSH_ERR, 0);
}

static int send_datagram(struct hca_qp *qp, struct send_wqe *w)
{
	struct req_fill fill = {.qp = qp, .wqe = w};
	struct roce_pkt pkt = {.opcode = w->opcode == IBV_WR_SEND
						 ? IBV_OPCODE_UD_SEND_ONLY
						 : IBV_OPCODE_UD_SEND_ONLY_WITH_IMMEDIATE,
			       .se = w->solicited,
			       .pkey = 0xffff,
			       .dest_qpn = w->dest_qpn,
			       .psn = qp->req.psn,
			       .npkts = 1,
			       .mtu = qp->mtu,
			       .imm = w->imm,
			       .qkey = w->qkey,
			       .src_qpn = qp->qpn,
			       .payload_len = w->length};
	int rc;

	pkt.opcode_last = pkt.opcode;
	rc = net_xmit(w->path, &pkt, req_fill_from_wqe, &fill);
	if (rc == -EFAULT) {
		rc = pf_fault(qp, ROLE_REQ, &fill.miss);
		return rc ? rc : -EINTR;
	}
	if (rc)
		return rc;
	pf_done(qp, ROLE_REQ);
	qp->req.psn = psn_add(qp->req.psn, 1);
	cnt_inc(qp->dev->stat, FL_CNT_sent_pkts);
	cnt_add(qp->dev->stat, FL_CNT_sent_bytes, pkt.payload_len);
	req_retire(qp, IBV_WC_SUCCESS, 0);
	return 0;
}

static bool ud_may_run(const struct hca_qp *qp)
{
	return (qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD) && !qp->faulting[ROLE_REQ] &&
	       qp->sq_send != qp->sq_head;
}

void ud_run(struct hca_qp *qp)
{
	struct send_wqe *w;
	int rc;

	qp->req.blocked = false;
	while (ud_may_run(qp)) {
		w = sq_wqe(qp, qp->sq_send);
		if (!w->started && qp->state == IBV_QPS_SQD)
			break;
		w->started = true;
		/*
		 * 11.6.2: a datagram longer than the port's MTU is a local length error, told by its
		 * completion; so do ConnectX adapters. An address handle of another PD: as rxe has it.
		 */
		if (w->length > qp->mtu)
			rc = -EMSGSIZE;
		else
			rc = w->path ? send_datagram(qp, w) : -EPERM;
		if (rc == -EAGAIN)
			qp->req.blocked = true;
		if (rc == -EAGAIN || rc == -EINPROGRESS)
			return;
		if (!rc || rc == -EINTR)
			continue;
		if (rc == -EACCES)
			cnt_inc(qp->dev->stat, FL_CNT_local_access_err);
		sq_error(qp, rc == -EMSGSIZE ? IBV_WC_LOC_LEN_ERR
			       : rc == -EACCES ? IBV_WC_LOC_PROT_ERR
					       : IBV_WC_LOC_QP_OP_ERR);
	}
	req_check_drained(qp);
}

/* ---- responder ---- */

void hca_listen(struct hca_dev *dev, const uint8_t gid[16])
{
	if (hca_dev_alive(dev))
		net_listen(hca_node->net, gid);
}

/*
 * A CQE of ConnectX has for RoCE, where InfiniBand has the service level: a bit for "with UDP", and the kind of header
 * (enum of mlx5/device.h: 1 IPv6, 2 IPv4). UCX goes by it.
 */
static uint8_t recv_sl(const struct hca_qp *qp, const struct roce_pkt *pkt)
{
	if (!qp->dev->profile->ud_sl_is_l3)
		return 0;
	return 8 | (pkt->grh[0] >> 4 == 6 ? 1 : 2);
}

static void recv_done(struct hca_qp *qp, enum ibv_wc_status status, const struct roce_pkt *pkt)
{
	struct ibv_wc wc = {
		.status = status,
		.opcode = IBV_WC_RECV,
		.byte_len = GRH_BYTES + pkt->payload_len,
		.src_qp = pkt->src_qpn,
		.wc_flags = IBV_WC_GRH,
		.sl = recv_sl(qp, pkt),
	};

	recv_complete(qp, qp->recv_cq, &wc, pkt, pkt->se, NULL);
}

static int place(struct hca_qp *qp, const void *buf, uint32_t len, uint64_t off)
{
	const struct recv_wqe *wqe = qp->resp.wqe;
	struct mr_miss miss;
	int rc;

	if (!len)
		return 0;
	do {
		rc = mr_copy_sges(qp->srq ? qp->srq->pd : qp->pd, wqe->sge, wqe->num_sge, off,
				  (void *)buf, len, MR_TO_MEM, &miss);
		if (rc == -EFAULT)
			rc = pf_fault(qp, ROLE_RESP, &miss) ?: -EAGAIN;
	} while (rc == -EAGAIN);
	if (!rc)
		pf_done(qp, ROLE_RESP);
	return rc;
}

/* What is wrong with this receive makes all of them void (10.3.1): the QP is in error. */
static void recv_error(struct hca_qp *qp, enum ibv_wc_status status, const struct roce_pkt *pkt)
{
	recv_done(qp, status, pkt);
	qp_error(qp, IBV_WC_SUCCESS, 0);
}

/* false: paused, it is to be done again */
static bool deliver(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	int rc;

	if (pkt->qkey != qp->attr.qkey) {
		cnt_inc(qp->dev->stat, FL_CNT_rx_qkey_err);
		return true;
	}
	if (resp_take_wqe(qp)) {
		cnt_inc(qp->dev->stat, FL_CNT_rx_no_recv);
		return true;
	}
	if (GRH_BYTES + (uint64_t)pkt->payload_len > qp->resp.wqe->length) {
		recv_error(qp, IBV_WC_LOC_LEN_ERR, pkt);
		return true;
	}
	rc = place(qp, pkt->grh, GRH_BYTES, 0);
	if (!rc)
		rc = place(qp, pkt->payload, pkt->payload_len, GRH_BYTES);
	if (rc == -EINPROGRESS)
		return false;
	if (rc) {
		cnt_inc(qp->dev->stat, FL_CNT_local_access_err);
		recv_error(qp, IBV_WC_LOC_PROT_ERR, pkt);
		return true;
	}
	recv_done(qp, IBV_WC_SUCCESS, pkt);
	return true;
}

void ud_rx(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	bool paused = qp->faulting[ROLE_RESP] || !cds_list_empty(&qp->backlog.list);

	if (!resp_listens(qp)) {
		cnt_inc(qp->dev->stat, FL_CNT_rx_unknown_qp);
		return;
	}
	if (!pkt->grh) {
		cnt_inc(qp->dev->stat, FL_CNT_rx_malformed);
		return;
	}
	if (!paused && deliver(qp, pkt))
		return;
	if (!pkt_queue_add(&qp->backlog, pkt, !paused))
		cnt_inc(qp->dev->stat, FL_CNT_rx_backlog_drop);
}

void ud_resume(struct hca_qp *qp)
{
	struct kept_pkt *k;

	while (!qp->faulting[ROLE_RESP] && resp_listens(qp) && (k = pkt_queue_take(&qp->backlog))) {
		if (!deliver(qp, &k->pkt)) {
			pkt_queue_put_back(&qp->backlog, k);
			return;
		}
		free(k);
	}
}
