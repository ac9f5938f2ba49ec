/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester of SRD. Each flow has a window of PSNs that are out, and of each it is known where it came
 * from, so that any one can be sent again, alone. A packet counts as lost when three that were sent after it are
 * answered (of the same kind: a READ's response takes as long as its data), all do when nothing was heard
 * for some round trips (srd_comp.c). A PSN whose work request has ended otherwise goes again as a RESYNC, so that the
 * responder's window moves on.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "hw/srd.h"

#define WINDOW_FIRST 16u
#define RTO_FIRST_NS 20000000ull /* nothing was measured yet */
#define RTO_LEAST_NS 5000000ull  /* threads of the peer's may well need that to be scheduled; */
#define RTO_CALM_NS  20000000ull /* and where nothing is lost there is no haste */
#define RTO_MOST_NS  300000000ull

static struct srd_wqe *first_of(struct cds_list_head *list)
{
	return cds_list_empty(list) ? NULL : cds_list_first_entry(list, struct srd_wqe, node);
}

/* ---- flows ---- */

/* One of a process's is never met again: what lingers on the wire, or at a peer, is of no other. */
static uint32_t new_number(void)
{
	static _Atomic uint32_t next;
	uint32_t none = 0, seed;

	if (!atomic_load(&next)) {
		if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
			seed = now_ns();
		atomic_compare_exchange_strong(&next, &none, seed | 1);
	}
	return atomic_fetch_add(&next, 1) & 0xffffff;
}

static struct cds_list_head *dest_bucket(struct hca_srd *srd, const struct net_path *path, uint32_t qpn)
{
	uint64_t h = ((uintptr_t)path ^ (uint64_t)qpn << 32) * 0x9e3779b97f4a7c15ull;

	return &srd->by_dest[(h >> 32) % SRD_BUCKETS];
}

static void flow_init(struct hca_qp *qp, struct srd_flow *f)
{
	uint32_t most = net_path_window(f->path, qp->mtu);

	f->loses = most != UINT32_MAX;
	f->threshold = most < SRD_WINDOW ? most : SRD_WINDOW;
	f->window = f->loses && WINDOW_FIRST < f->threshold ? WINDOW_FIRST : f->threshold;
	f->number = new_number();
}

static bool idle(struct srd_flow *f)
{
	return f->una == f->psn && cds_list_empty(&f->todo);
}

/* Room for one more: the one that was not used for longest goes. */
static bool make_room(struct hca_qp *qp)
{
	struct srd_flow *f;

	if (qp->srd->num_flows < SRD_FLOWS_MAX)
		return true;
	cds_list_for_each_entry(f, &qp->srd->flows, lru) {
		if (idle(f)) {
			srd_flow_free(qp, f);
			return true;
		}
	}
	return false;
}

static struct srd_flow *flow_new(struct hca_qp *qp, struct net_path *path, uint32_t dest_qpn)
{
	struct hca_srd *srd = qp->srd;
	struct srd_flow *f = make_room(qp) ? calloc(1, sizeof(*f)) : NULL;

	if (!f)
		return NULL;
	f->path = path;
	f->dest_qpn = dest_qpn;
	CDS_INIT_LIST_HEAD(&f->todo);
	CDS_INIT_LIST_HEAD(&f->sent);
	flow_init(qp, f);
	cds_list_add(&f->by_dest, dest_bucket(srd, path, dest_qpn));
	cds_list_add(&f->by_number, &srd->by_number[f->number % SRD_BUCKETS]);
	cds_list_add_tail(&f->lru, &srd->flows);
	srd->num_flows++;
	return f;
}

void srd_flow_free(struct hca_qp *qp, struct srd_flow *f)
{
	cds_list_splice(&f->todo, &qp->srd->free);
	cds_list_splice(&f->sent, &qp->srd->free);
	cds_list_del(&f->by_dest);
	cds_list_del(&f->by_number);
	cds_list_del(&f->lru);
	if (f->is_active)
		cds_list_del(&f->active);
	qp->srd->num_flows--;
	free(f);
}

struct srd_flow *srd_flow_get(struct hca_qp *qp, struct net_path *path, uint32_t dest_qpn)
{
	struct srd_flow *f;
	uint64_t now = now_ns();

	cds_list_for_each_entry(f, dest_bucket(qp->srd, path, dest_qpn), by_dest) {
		if (f->path != path || f->dest_qpn != dest_qpn)
			continue;
		if (!idle(f) || now - f->used_at < SRD_IDLE_NS) {
			f->used_at = now;
			srd_move_to_end(&f->lru, &qp->srd->flows);
			return f;
		}
		srd_flow_free(qp, f); /* the peer may have forgotten it */
		break;
	}
	f = flow_new(qp, path, dest_qpn);
	if (f)
		f->used_at = now;
	return f;
}

static uint64_t rto(const struct srd_flow *f)
{
	uint64_t ns = f->srtt ? f->srtt + 4 * f->var : RTO_FIRST_NS, least = f->loses ? RTO_LEAST_NS : RTO_CALM_NS;

	ns = (ns > least ? ns : least) << f->backoff;
	return ns < RTO_MOST_NS ? ns : RTO_MOST_NS;
}

/* After anything was done: it is among those that have work, or not, and the timer knows of it. */
static void settle(struct hca_qp *qp, struct srd_flow *f)
{
	bool busy = !idle(f);

	if (busy != f->is_active) {
		if (busy)
			cds_list_add_tail(&f->active, &qp->srd->active);
		else
			cds_list_del(&f->active);
		f->is_active = busy;
	}
	if (f->in_flight)
		timer_arm(qp, f->progress_at + rto(f));
	if (f->next_rnr)
		timer_arm(qp, f->next_rnr);
}

/* ---- the end of work requests ---- */

/* It ends in error: what of it is out is given up. */
void srd_fail_slot(struct hca_qp *qp, struct srd_flow *f, uint32_t slot, enum srd_status status)
{
	struct srd_pkt *p;
	uint64_t now = now_ns();

	for (uint32_t psn = f->una; psn != f->psn; psn = psn_add(psn, 1)) {
		p = srd_pkt_at(f, psn);
		if (p->slot != slot || p->state == SRD_PKT_DONE)
			continue;
		p->slot = SRD_NO_SLOT;
		p->read = false;
		p->first_at = now;
		srd_set_state(f, p, SRD_PKT_LOST);
	}
	srd_complete(qp, slot, status);
}

void srd_flow_fail(struct hca_qp *qp, struct srd_flow *f, enum srd_status status)
{
	struct srd_wqe *s;

	while ((s = first_of(&f->sent)) || (s = first_of(&f->todo)))
		srd_complete(qp, srd_slot(qp, s), status);
	srd_flow_free(qp, f);
}

/* ---- sending ---- */

struct data_fill {
	struct hca_qp *qp;
	const struct send_wqe *w;
	uint32_t off;
	struct mr_miss miss;
};

static int fill_data(void *arg, uint8_t *dst, uint32_t off, uint32_t len)
{
	struct data_fill *a = arg;

	if (a->w->inline_data) {
		memcpy(dst, a->w->data + a->off + off, len);
		return 0;
	}
	return mr_copy_sges(a->qp->pd, a->w->sge, a->w->num_sge, (uint64_t)a->off + off, dst, len, MR_FROM_MEM,
			    &a->miss);
}

/* 0: it is on its way, or lost; -EAGAIN: no room; -EINPROGRESS: its data must be waited for; -EACCES */
static int xmit(struct hca_qp *qp, struct srd_flow *f, struct roce_pkt *pkt, const struct send_wqe *w, uint32_t off)
{
	struct data_fill fill = {.qp = qp, .w = w, .off = off};
	int rc;

	pkt->opcode_last = pkt->opcode;
	while ((rc = net_xmit(f->path, pkt, pkt->payload_len ? fill_data : NULL, &fill)) == -EFAULT) {
		rc = qp->faulting[ROLE_REQ] ? -EINPROGRESS : pf_fault(qp, ROLE_REQ, &fill.miss);
		if (rc)
			break;
	}
	if (rc == -EAGAIN) {
		qp->req.blocked = true;
		return rc;
	}
	if (rc == -EACCES)
		cnt_inc(qp->dev->stat, FL_CNT_local_access_err);
	if (rc == -EACCES || rc == -EINPROGRESS)
		return rc;
	pf_done(qp, ROLE_REQ);
	cnt_inc(qp->dev->stat, rc ? FL_CNT_send_err : FL_CNT_sent_pkts);
	cnt_add(qp->dev->stat, FL_CNT_sent_bytes, rc ? 0 : pkt->payload_len);
	return 0;
}

static struct roce_pkt packet(const struct hca_qp *qp, const struct srd_flow *f, uint8_t opcode, uint32_t psn)
{
	return (struct roce_pkt){.opcode = opcode,
				 .pkey = 0xffff,
				 .ackreq = true,
				 .dest_qpn = f->dest_qpn,
				 .psn = psn,
				 .npkts = 1,
				 .mtu = qp->mtu,
				 .flow = f->number,
				 .src_qpn = qp->qpn};
}

static int send_data(struct hca_qp *qp, struct srd_flow *f, uint32_t psn, const struct srd_pkt *p)
{
	static const uint8_t opcode[] = {
		[IBV_WR_SEND] = IBV_OPCODE_RD_SEND_ONLY,
		[IBV_WR_SEND_WITH_IMM] = IBV_OPCODE_RD_SEND_ONLY_WITH_IMMEDIATE,
		[IBV_WR_RDMA_WRITE] = IBV_OPCODE_RD_RDMA_WRITE_ONLY,
		[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_OPCODE_RD_RDMA_WRITE_ONLY_WITH_IMMEDIATE,
	};
	const struct send_wqe *w = sq_wqe(qp, p->slot);
	bool last = p->off + p->len == w->length;
	struct roce_pkt pkt = packet(qp, f, last ? opcode[w->opcode] : IBV_OPCODE_RD_RDMA_WRITE_ONLY, psn);

	pkt.qkey = qp->srd->wqe[p->slot].qkey;
	pkt.va = w->remote_addr + p->off;
	pkt.rkey = w->rkey;
	/* with the immediate data goes the length of the message, for the completion */
	pkt.dma_len = last && w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? w->length : p->len;
	pkt.imm = w->imm;
	pkt.payload_len = p->len;
	return xmit(qp, f, &pkt, w, p->off);
}

static int send_read(struct hca_qp *qp, struct srd_flow *f, uint32_t psn, uint32_t slot, uint32_t off, uint32_t len)
{
	const struct send_wqe *w = sq_wqe(qp, slot);
	struct roce_pkt pkt = packet(qp, f, IBV_OPCODE_RD_RDMA_READ_REQUEST, psn);

	pkt.qkey = qp->srd->wqe[slot].qkey;
	pkt.va = w->remote_addr + off;
	pkt.rkey = w->rkey;
	pkt.dma_len = len | srd_mtu_code(qp->mtu) << SRD_MTU_SHIFT;
	return xmit(qp, f, &pkt, NULL, 0);
}

static void went(struct srd_flow *f, struct srd_pkt *p, uint64_t now)
{
	if (!f->in_flight) /* the wire was idle */
		f->progress_at = now;
	srd_set_state(f, p, SRD_PKT_OUT);
	p->again = p->first_at;
	if (!p->first_at)
		p->first_at = now;
	p->sent_at = now;
	p->order = f->order++;
}

static int send_again(struct hca_qp *qp, struct srd_flow *f, uint32_t psn)
{
	struct srd_pkt *p = srd_pkt_at(f, psn);
	struct roce_pkt pkt;
	int rc;

	if (p->slot == SRD_NO_SLOT) {
		pkt = packet(qp, f, IBV_OPCODE_RD_RESYNC, psn);
		rc = xmit(qp, f, &pkt, NULL, 0);
	} else if (p->read) {
		rc = send_read(qp, f, psn, p->slot, p->off, p->len);
	} else {
		rc = send_data(qp, f, psn, p);
	}
	if (!rc)
		went(f, p, now_ns());
	return rc;
}

/* The PSNs from f->psn on are of this part of the work request; it has gone. */
static void took_psns(struct hca_qp *qp, struct srd_flow *f, uint32_t slot, uint32_t len, bool read)
{
	struct send_wqe *w = sq_wqe(qp, slot);
	struct srd_wqe *s = &qp->srd->wqe[slot];
	uint64_t now = now_ns();
	uint32_t n = roce_npkts(len, qp->mtu), end = w->sent + len;

	while (n--) {
		struct srd_pkt *p = srd_pkt_at(f, f->psn);
		uint32_t left = end - w->sent;

		*p = (struct srd_pkt){.slot = slot, .read = read, .off = w->sent,
				      .len = left < qp->mtu ? left : qp->mtu};
		went(f, p, now);
		w->sent += p->len;
		s->out++;
		f->psn = psn_add(f->psn, 1);
	}
	if (!w->started) {
		w->started = true;
		qp->srd->started++;
	}
	if (w->sent == w->length)
		srd_move_to_end(&s->node, &f->sent);
}

/* The next part of the oldest work request that is not all sent. -EBUSY: it waits for what is out. */
static int send_next(struct hca_qp *qp, struct srd_flow *f, uint32_t slot)
{
	struct send_wqe *w = sq_wqe(qp, slot);
	uint32_t left = w->length - w->sent, room = f->window - f->in_flight;
	uint32_t window = SRD_WINDOW - srd_psns_out(f), len;
	struct srd_pkt p;
	int rc;

	if (wqe_is_read(w)) {
		room = room < window ? room : window;
		room = room < SRD_READ_PKTS ? room : SRD_READ_PKTS;
		len = left < room * qp->mtu ? left : room * qp->mtu;
		rc = send_read(qp, f, f->psn, slot, w->sent, len);
	} else {
		len = left < qp->mtu ? left : qp->mtu;
		/* what the immediate data tells of must be there */
		if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && len == left && qp->srd->wqe[slot].out)
			return -EBUSY;
		p = (struct srd_pkt){.slot = slot, .off = w->sent, .len = len};
		rc = send_data(qp, f, f->psn, &p);
	}
	if (!rc)
		took_psns(qp, f, slot, len, wqe_is_read(w));
	return rc;
}

static bool may_send(const struct hca_qp *qp, const struct srd_flow *f)
{
	return (qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD) && !qp->faulting[ROLE_REQ] &&
	       !qp->req.blocked && f->in_flight < f->window;
}

static void run_lost(struct hca_qp *qp, struct srd_flow *f)
{
	for (uint32_t psn = f->una; psn != f->psn && f->lost && may_send(qp, f); psn = psn_add(psn, 1)) {
		struct srd_pkt *p = srd_pkt_at(f, psn);

		if (p->state != SRD_PKT_LOST)
			continue;
		cnt_inc(qp->dev->stat, FL_CNT_completer_retry_err);
		/* its memory has gone: what is out of it is given up, from the first on */
		if (send_again(qp, f, psn) == -EACCES) {
			srd_fail_slot(qp, f, p->slot, SRD_INVALID_LKEY);
			psn = psn_add(f->una, ROCE_PSN_MASK);
		}
	}
}

void srd_flow_run(struct hca_qp *qp, struct srd_flow *f)
{
	struct srd_wqe *s;
	uint32_t slot;
	int rc;

	run_lost(qp, f);
	while (!f->lost && may_send(qp, f) && srd_psns_out(f) < SRD_WINDOW && (s = first_of(&f->todo))) {
		slot = srd_slot(qp, s);
		if (!sq_wqe(qp, slot)->started && qp->state == IBV_QPS_SQD)
			break;
		rc = send_next(qp, f, slot);
		if (rc == -EACCES)
			srd_fail_slot(qp, f, slot, SRD_INVALID_LKEY);
		else if (rc)
			break;
	}
	settle(qp, f);
}

void srd_flow_add(struct hca_qp *qp, struct srd_flow *f, uint32_t slot)
{
	srd_move_to_end(&qp->srd->wqe[slot].node, &f->todo);
	srd_flow_run(qp, f);
}

/* ---- the timer ---- */

static void wake_rnr(struct srd_flow *f, uint64_t now)
{
	f->next_rnr = 0;
	for (uint32_t psn = f->una; psn != f->psn; psn = psn_add(psn, 1)) {
		struct srd_pkt *p = srd_pkt_at(f, psn);

		if (p->state != SRD_PKT_RNR)
			continue;
		if (p->due <= now)
			srd_set_state(f, p, SRD_PKT_LOST);
		else if (!f->next_rnr || p->due < f->next_rnr)
			f->next_rnr = p->due;
	}
}

/*
 * Patience has an end: with the peer, if it was not heard for as long, else with what it does not answer to.
 * false: the flow is gone.
 */
static bool still_patient(struct hca_qp *qp, struct srd_flow *f, uint64_t now)
{
	for (uint32_t psn = f->una; psn != f->psn; psn = psn_add(psn, 1)) {
		struct srd_pkt *p = srd_pkt_at(f, psn);

		if (p->state == SRD_PKT_DONE || p->state == SRD_PKT_RNR || now - p->first_at < SRD_PATIENCE_NS)
			continue;
		if (p->slot != SRD_NO_SLOT && now - f->heard_at < SRD_PATIENCE_NS) {
			srd_fail_slot(qp, f, p->slot, SRD_UNRESP_REMOTE);
			continue;
		}
		cnt_inc(qp->dev->stat, FL_CNT_retry_exceeded_err);
		fl_warn("QP 0x%06x: no answer from QP 0x%06x for %.1f s (link %s): the peer is gone, unreachable, or "
			"its QP is not ready",
			qp->qpn, f->dest_qpn, (now - p->first_at) / 1e9, net_path_link(f->path));
		srd_flow_fail(qp, f, f->heard_at ? SRD_UNRESP_REMOTE : SRD_UNREACH_REMOTE);
		return false;
	}
	return true;
}

static void timed_out(struct srd_flow *f, uint64_t now)
{
	for (uint32_t psn = f->una; psn != f->psn; psn = psn_add(psn, 1))
		if (srd_pkt_at(f, psn)->state == SRD_PKT_OUT)
			srd_set_state(f, srd_pkt_at(f, psn), SRD_PKT_LOST);
	srd_shrink_window(f, f->order, 0);
	if (rto(f) < RTO_MOST_NS)
		f->backoff++;
	f->progress_at = now;
}

void srd_timer(struct hca_qp *qp)
{
	struct srd_flow *f, *next;
	uint64_t now = now_ns(); /* with the QP locked: nothing of it is later */

	if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD)
		return;
	cds_list_for_each_entry_safe(f, next, &qp->srd->active, active) {
		if (f->next_rnr && now >= f->next_rnr)
			wake_rnr(f, now);
		if (f->in_flight && now >= f->progress_at + rto(f)) {
			if (!still_patient(qp, f, now))
				continue;
			timed_out(f, now);
		}
		srd_flow_run(qp, f);
	}
}
