/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Direct placement: a peer on this host does its RDMA WRITEs and READs on our memory itself, by
 * process_vm_writev(), and no thread of ours takes part. That is what one-sided means for a program
 * that polls memory and has its cores busy with that: a packet would wait for a thread to be scheduled.
 *
 * What the responder would check, the peer checks, in our segment: the QP (it is connected to the
 * peer's, and grants the access), the key (PD, bounds, rights), the pages (present in the table with
 * the right, or pinned and all in place). It announces range and key in its hazard before it looks and
 * clears it after the copy, as our own threads do (umem/dma.c); keys, pages and QPs are withdrawn
 * before we wait for hazards, so none is used after that.
 * Whatever is not plain goes by packet: a miss, an error, an atomic, immediate data, a long message.
 *
 * Order (9.5): only the oldest WQE of a queue with nothing under way is placed; what comes after it
 * is sent after it is done, and what was before has been acknowledged. PSNs count packets, and it has
 * none.
 *
 * A packet is quicker where the peer is polling its CQ (below 1 us, and many go at once), so placement
 * waits to be worth it: when the last messages sent from idle took long to be acknowledged, and the
 * application does not post one after the other without a look at the results.
 */
#include <errno.h>
#include <string.h>
#include "hw/hw.h"
#include "util/provoke.h"

#define DIRECT_MAX	8192	/* bytes; longer ones are a matter of rate, not of latency */
#define SLOW_ACK_NS	4000	/* twice what a placement takes */
#define SLOW_ACKS	3	/* in a row: one may be the scheduler's doing */
#define BURST_GAP_NS	1000	/* posted sooner after the last: a burst */
#define TRY_PACKET_EACH 1024	/* placements, to see whether the peer has begun to poll */
#define LEAF_PAGES	4096ull /* the shape of page-present tables: umem_odp.c */
#define INNER		512u

/* ---- the side that is placed at ---- */

static struct faultline_qp *entry(const struct hca_qp *qp)
{
	const struct seg *seg = qp->dev->node->seg;

	return (struct faultline_qp *)seg_ptr(seg, seg->s->qp_table) + qp->n.index;
}

void direct_withdraw(struct hca_qp *qp)
{
	if (!qp->direct.published)
		return;
	qp->direct.published = false;
	/* pairs with may_access(), which looks after the announcement: it sees this, or we wait for it */
	__atomic_store_n(&entry(qp)->qpn, 0, __ATOMIC_SEQ_CST);
	dma_wait_peers();
}

void direct_publish(struct hca_qp *qp)
{
	struct faultline_qp *e;

	direct_withdraw(qp);
	/* accesses that are to be disturbed must come by our own threads */
	if (provoke_accesses || qp->type != IBV_QPT_RC || (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD))
		return;
	e = entry(qp);
	__atomic_store_n(&e->dest_qpn, qp->attr.dest_qp_num, __ATOMIC_RELAXED);
	__atomic_store_n(&e->pd, qp->pd, __ATOMIC_RELAXED);
	__atomic_store_n(&e->access, qp->attr.qp_access_flags, __ATOMIC_RELAXED);
	__atomic_store_n(&e->qpn, qp->qpn, __ATOMIC_RELEASE); /* last; pairs with may_access() */
	qp->direct.published = true;
}

/* ---- the side that places ---- */

void direct_acked(struct hca_qp *qp)
{
	if (qp->direct.idle_sent && qp->req.una == qp->req.psn) {
		if (now_ns() - qp->direct.idle_sent <= SLOW_ACK_NS)
			qp->direct.slow_acks = 0;
		else if (qp->direct.slow_acks < SLOW_ACKS)
			qp->direct.slow_acks++;
		qp->direct.idle_sent = 0;
	}
}

void direct_sending(struct hca_qp *qp)
{
	if (qp->direct.usable)
		qp->direct.idle_sent = qp->req.una == qp->req.psn ? now_ns() : 0;
}

/* is the page in the peer's table, with the right? */
static bool page_present(const struct faultline_segment *s, uint64_t root, uint32_t levels,
			 uint64_t index, uint8_t need)
{
	const uint8_t *leaf;

	for (; levels > 1; levels--) {
		const uint64_t *inner = seg_peer_chunk(s, root);
		unsigned shift = 12 + 9 * (levels - 2); /* LEAF_PAGES, and INNER a level */

		if (!inner)
			return false;
		/* after our announcement: an owner that gives a chunk back waits for it (umem_pt.c) */
		root = __atomic_load_n(&inner[(index >> shift) % INNER], __ATOMIC_SEQ_CST);
		if (!root)
			return false;
	}
	leaf = seg_peer_chunk(s, root);
	/* what is pinned there and stale is not at its address */
	return leaf &&
	       (__atomic_load_n(&leaf[index % LEAF_PAGES], __ATOMIC_SEQ_CST) & (need | UMEM_PT_STALE)) == need;
}

static bool pages_there(const struct faultline_segment *s, const struct faultline_mr *mr, uint64_t start,
			uint64_t end, bool write)
{
	uint64_t root = __atomic_load_n(&mr->pt, __ATOMIC_RELAXED);
	uint32_t levels = __atomic_load_n(&mr->pt_levels, __ATOMIC_RELAXED);
	uint64_t first = __atomic_load_n(&mr->addr, __ATOMIC_RELAXED) >> PAGE_SHIFT;

	if (levels > 5)
		return false;
	for (uint64_t p = start >> PAGE_SHIFT; p <= (end - 1) >> PAGE_SHIFT; p++)
		if (!page_present(s, root, levels, p - first, write ? UMEM_PT_WRITE : UMEM_PT_READ))
			return false;
	return true;
}

/* Everything that is not the announcement's business; *addr in the peer. */
static bool may_begin(const struct hca_qp *qp, const struct send_wqe *w, const struct faultline_qp *q,
		      const struct faultline_mr *mr, uint64_t *addr)
{
	unsigned need = wqe_is_read(w) ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
	uint64_t iova = __atomic_load_n(&mr->iova, __ATOMIC_RELAXED);
	uint64_t length = __atomic_load_n(&mr->length, __ATOMIC_RELAXED);
	uint64_t off = w->remote_addr - iova;

	/* acquire, and what goes with each after it: pairs with direct_publish() and mr_publish() of the peer */
	if (__atomic_load_n(&q->qpn, __ATOMIC_ACQUIRE) != qp->attr.dest_qp_num ||
	    __atomic_load_n(&q->dest_qpn, __ATOMIC_RELAXED) != qp->qpn ||
	    !(__atomic_load_n(&q->access, __ATOMIC_RELAXED) & need))
		return false;
	if (__atomic_load_n(&mr->key, __ATOMIC_ACQUIRE) != w->rkey ||
	    __atomic_load_n(&mr->pd, __ATOMIC_RELAXED) != __atomic_load_n(&q->pd, __ATOMIC_RELAXED) ||
	    !(__atomic_load_n(&mr->access, __ATOMIC_RELAXED) & need))
		return false;
	if (w->remote_addr < iova || off > length || w->length > length - off)
		return false;
	*addr = __atomic_load_n(&mr->addr, __ATOMIC_RELAXED) + off;
	return true;
}

/* After the announcement: does all that was read still stand, and are the pages there? */
static bool may_access(const struct net_peer *peer, const struct hca_qp *qp, const struct send_wqe *w,
		       const struct faultline_qp *q, const struct faultline_mr *mr, uint64_t addr)
{
	uint64_t now;

	if (__atomic_load_n(&q->qpn, __ATOMIC_SEQ_CST) != qp->attr.dest_qp_num ||
	    __atomic_load_n(&mr->key, __ATOMIC_SEQ_CST) != w->rkey ||
	    __atomic_load_n(&peer->segment->stop_dma, __ATOMIC_SEQ_CST))
		return false;
	/* a QP that was given less rights, or another peer, is there again under its number; so is a key in time */
	if (!may_begin(qp, w, q, mr, &now) || now != addr)
		return false;
	switch (__atomic_load_n(&mr->kind, __ATOMIC_RELAXED)) {
	case FAULTLINE_MR_PINNED:
		return !__atomic_load_n(&mr->stale, __ATOMIC_SEQ_CST);
	case FAULTLINE_MR_ODP:
		return pages_there(peer->segment, mr, addr, addr + w->length, !wqe_is_read(w));
	default:
		return false;
	}
}

static bool access_peer(struct hca_qp *qp, const struct send_wqe *w, void *buf)
{
	struct net_peer *peer = net_path_peer(qp->path);
	const struct faultline_mr *mrs;
	const struct faultline_qp *qps;
	struct faultline_hazard *h;
	uint64_t num_mrs, num_qps, addr;
	uint32_t m = w->rkey >> MR_KEY_SHIFT, q = qp->attr.dest_qp_num % QP_MAX;
	bool done = false;

	if (!peer)
		return false;
	mrs = seg_peer_mrs(peer->segment, &num_mrs);
	qps = seg_peer_qps(peer->segment, &num_qps);
	if (m >= num_mrs || q >= num_qps || !may_begin(qp, w, &qps[q], &mrs[m], &addr))
		goto out;
	h = peer->hazard;
	__atomic_store_n(&h->key, w->rkey, __ATOMIC_RELAXED);
	__atomic_store_n(&h->start, addr, __ATOMIC_RELEASE);
	/* now it counts, as in dma_begin() */
	__atomic_store_n(&h->end, addr + w->length, __ATOMIC_SEQ_CST);
	if (may_access(peer, qp, w, &qps[q], &mrs[m], addr))
		done = !net_peer_access(peer, !wqe_is_read(w), buf, addr, w->length);
	/* the copy is done before this is seen; pairs with wait_peers() of umem/dma.c, there */
	__atomic_store_n(&h->end, addr, __ATOMIC_RELEASE);
out:
	net_peer_done(peer);
	return done;
}

static bool worth_it(struct hca_qp *qp, const struct send_wqe *w)
{
	if (!qp->direct.usable || qp->type != IBV_QPT_RC || qp->state != IBV_QPS_RTS ||
	    qp->req.una != qp->req.psn || qp->sq_send != qp->sq_tail)
		return false;
	if ((w->opcode != IBV_WR_RDMA_WRITE && w->opcode != IBV_WR_RDMA_READ) || !w->length ||
	    w->length > DIRECT_MAX || qp->direct.slow_acks < SLOW_ACKS)
		return false;
	if (++qp->direct.since_packet >= TRY_PACKET_EACH || now_ns() - qp->direct.last < BURST_GAP_NS) {
		qp->direct.since_packet = 0;
		return false;
	}
	return true;
}

bool direct_place(struct hca_qp *qp, struct send_wqe *w)
{
	struct req_fill arg = {.qp = qp, .wqe = w};
	uint8_t buf[DIRECT_MAX];
	bool done;

	if (!worth_it(qp, w))
		return false;
	/* what fails here, this side's memory with it, fails again as a packet, and is told there */
	done = (wqe_is_read(w) || !req_fill_from_wqe(&arg, buf, 0, w->length)) && access_peer(qp, w, buf);
	if (done && wqe_is_read(w))
		done = !mr_copy_sges(qp->pd, w->sge, w->num_sge, 0, buf, w->length, MR_TO_MEM, &arg.miss);
	qp->direct.last = now_ns();
	if (!done)
		return false;
	cnt_inc(qp->dev->stat, FL_CNT_direct_placements);
	req_retire(qp, IBV_WC_SUCCESS, 0);
	return true;
}
