/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder of SRD. Each packet is a whole request, executed when it comes, once: what was had before is
 * only answered again, but for READs, which may be executed as often as one likes. What cannot be executed
 * is answered and not kept, so that asking again is harmless.
 *
 * The way back to a new source may take a moment to be found and takes locks that rank before the QP's, so a
 * worker does it, and what comes meanwhile is kept. A page that is missing is brought in by a worker, too; the
 * request that met it is dropped, and comes again: EFA has no on-demand paging, and pinned pages are there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "hw/srd.h"
#include "hw/ud.h"

/* ---- answers ---- */

/* false: no room */
static bool send_aeth(struct hca_qp *qp, struct net_path *path, struct roce_pkt *pkt)
{
	pkt->opcode = pkt->opcode_last = IBV_OPCODE_RD_ACKNOWLEDGE;
	pkt->pkey = 0xffff;
	pkt->npkts = 1;
	pkt->mtu = qp->mtu;
	if (net_xmit(path, pkt, NULL, NULL) == -EAGAIN) {
		qp->resp.blocked = true;
		return false;
	}
	cnt_inc(qp->dev->stat, FL_CNT_sent_pkts);
	return true;
}

static bool answer(struct hca_qp *qp, struct srd_source *s, uint8_t syndrome, uint32_t psn)
{
	struct roce_pkt pkt = {.dest_qpn = s->qpn, .flow = s->number, .psn = psn, .msn = s->base,
			       .syndrome = syndrome, .se = s->ce};

	if (!send_aeth(qp, s->path, &pkt))
		return false;
	s->ce = false;
	return true;
}

/* One that finds no room is not kept: it will be asked for again. */
static void nak(struct hca_qp *qp, struct srd_source *s, uint8_t syndrome, uint32_t psn)
{
	answer(qp, s, syndrome, psn);
}

static void send_ack(struct hca_qp *qp, struct srd_source *s)
{
	if (qp->resp.blocked || !answer(qp, s, AETH_ACK_NO_CREDIT, s->ack_psn))
		return;
	s->ack_owed = false;
	cds_list_del(&s->acks);
}

static void owe_ack(struct hca_qp *qp, struct srd_source *s, uint32_t psn)
{
	s->ack_psn = psn;
	if (!s->ack_owed) {
		s->ack_owed = true;
		cds_list_add_tail(&s->acks, &qp->srd->acks);
	}
}

/* One answer for a batch: all before its MSN. What is behind a gap is told of for itself. */
static void ack(struct hca_qp *qp, struct srd_source *s, uint32_t psn)
{
	owe_ack(qp, s, psn);
	if (psn_cmp(psn, s->base) > 0)
		send_ack(qp, s);
	else
		engine_defer_ack(qp);
}

void srd_send_acks(struct hca_qp *qp)
{
	struct srd_source *s, *next;

	cds_list_for_each_entry_safe(s, next, &qp->srd->acks, acks)
		send_ack(qp, s);
}

/* ---- sources ---- */

static struct cds_list_head *bucket(struct hca_srd *srd, uint32_t qpn, uint32_t number)
{
	return &srd->sources[(number ^ qpn * 31) % SRD_BUCKETS];
}

static struct srd_source *source_find(struct hca_srd *srd, const uint8_t gid[16], uint32_t qpn, uint32_t number)
{
	struct srd_source *s;

	cds_list_for_each_entry(s, bucket(srd, qpn, number), hash)
		if (s->number == number && s->qpn == qpn && !memcmp(s->back.dgid, gid, 16))
			return s;
	return NULL;
}

static void source_free(struct hca_qp *qp, struct srd_source *s)
{
	cds_list_del(&s->hash);
	cds_list_del(&s->lru);
	if (s->ack_owed)
		cds_list_del(&s->acks);
	if (s->is_reading)
		cds_list_del(&s->reading);
	pkt_queue_clear(&s->kept);
	qp->srd->num_sources--;
	free(s->read);
	free(s);
}

void srd_sources_free(struct hca_qp *qp)
{
	struct srd_source *s, *next;

	cds_list_for_each_entry_safe(s, next, &qp->srd->lru, lru) {
		if (s->path)
			nak(qp, s, AETH_NAK_UNKNOWN_FLOW, s->base);
		source_free(qp, s);
	}
}

/* Those whose flows have ended go, one for each that comes. false: there are too many. */
static bool make_room(struct hca_qp *qp, uint64_t now)
{
	struct hca_srd *srd = qp->srd;
	struct srd_source *s;

	if (!cds_list_empty(&srd->lru)) {
		s = cds_list_first_entry(&srd->lru, struct srd_source, lru);
		if (now - s->used_at > SRD_FORGET_NS)
			source_free(qp, s);
	}
	return srd->num_sources < SRD_FLOWS_MAX;
}

/* ---- the way back ---- */

struct path_work {
	struct pf_work work;
	struct net_path_attr attr;
	uint32_t generation;
};

static void execute(struct hca_qp *qp, struct srd_source *s, const struct roce_pkt *pkt);

/* Sources that waited for this path; without one they are forgotten, and will be asked again. */
static void path_found(struct hca_qp *qp, const struct net_path_attr *attr, struct net_path *path)
{
	struct srd_source *s, *next;
	struct kept_pkt *k;

	cds_list_for_each_entry_safe(s, next, &qp->srd->lru, lru) {
		if (s->path || memcmp(&s->back, attr, sizeof(*attr)))
			continue;
		if (!path) {
			source_free(qp, s);
			continue;
		}
		s->path = path;
		while (resp_listens(qp) && (k = pkt_queue_take(&s->kept))) {
			execute(qp, s, &k->pkt);
			free(k);
		}
	}
}

static void open_path(struct pf_work *work)
{
	struct path_work *w = caa_container_of(work, struct path_work, work);
	struct net_path *path = NULL;
	struct hca_qp *qp;

	if (net_path_open(hca_node->net, &w->attr, &path))
		path = NULL;
	qp = qp_lookup_lock(w->attr.qpn);
	if (qp) {
		if (qp->srd && qp->generation == w->generation) {
			if (path)
				ud_path_enter(qp, &w->attr, &path);
			path_found(qp, &w->attr, ud_path_find(qp, &w->attr));
		}
		qp_unlock(qp);
	}
	engine_flush_acks();
	if (path)
		net_path_close(path);
	free(w);
}

static bool look_for_path(struct hca_qp *qp, struct srd_source *s)
{
	struct path_work *w;

	s->path = ud_path_find(qp, &s->back);
	if (s->path)
		return true;
	w = calloc(1, sizeof(*w)); /* paths are compared as bytes, holes and all */
	if (!w)
		return false;
	w->work.run = open_path;
	w->attr = s->back;
	w->generation = qp->generation;
	if (!pf_queue_work(&w->work))
		return true;
	free(w);
	return false;
}

/* A flow begins with PSN 0; what does not is of one that was forgotten, and that is said where it can be. */
static void unknown_flow(struct hca_qp *qp, const struct roce_pkt *pkt, const struct net_path_attr *back)
{
	struct roce_pkt answer = {.dest_qpn = pkt->src_qpn, .flow = pkt->flow, .psn = pkt->psn,
				  .syndrome = AETH_NAK_UNKNOWN_FLOW};
	struct net_path *path = ud_path_find(qp, back);

	if (path)
		send_aeth(qp, path, &answer);
}

static struct srd_source *source_new(struct hca_qp *qp, const struct roce_pkt *pkt, uint64_t now)
{
	struct srd_source *s;
	struct net_path_attr back;

	ud_path_back(qp, pkt->grh, pkt->src_qpn, &back);
	if (pkt->psn >= SRD_WINDOW) {
		unknown_flow(qp, pkt, &back);
		return NULL;
	}
	s = make_room(qp, now) ? calloc(1, sizeof(*s)) : NULL;
	if (!s)
		return NULL;
	s->back = back;
	s->qpn = pkt->src_qpn;
	s->number = pkt->flow;
	s->ahn_version = ah_version() - 1;
	pkt_queue_init(&s->kept);
	cds_list_add(&s->hash, bucket(qp->srd, s->qpn, s->number));
	cds_list_add_tail(&s->lru, &qp->srd->lru);
	qp->srd->num_sources++;
	if (look_for_path(qp, s))
		return s;
	source_free(qp, s);
	return NULL;
}

/* ---- which PSNs were had ---- */

static bool had(const struct srd_source *s, uint32_t psn)
{
	uint32_t i = psn % SRD_WINDOW;

	if (psn_cmp(psn, s->base) < 0)
		return true;
	return s->had[i / 64] >> i % 64 & 1;
}

static bool in_window(const struct srd_source *s, uint32_t psn, uint32_t n)
{
	return psn_cmp(psn_add(psn, n), psn_add(s->base, SRD_WINDOW)) <= 0;
}

static void have(struct srd_source *s, uint32_t psn, uint32_t n)
{
	uint32_t i;

	for (; n--; psn = psn_add(psn, 1)) {
		i = psn % SRD_WINDOW;
		if (psn_cmp(psn, s->base) >= 0)
			s->had[i / 64] |= 1ull << i % 64;
	}
	for (i = s->base % SRD_WINDOW; s->had[i / 64] >> i % 64 & 1; i = s->base % SRD_WINDOW) {
		s->had[i / 64] &= ~(1ull << i % 64);
		s->base = psn_add(s->base, 1);
	}
}

/* ---- SEND and WRITE ---- */

static void recv_done(struct hca_qp *qp, struct srd_source *s, const struct roce_pkt *pkt, enum ibv_wc_status status)
{
	uint32_t flags = roce_opcode[pkt->opcode].flags, version = ah_version();
	struct ibv_wc wc = {
		.status = status,
		.opcode = flags & ROCE_F_WRITE ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.vendor_err = status == IBV_WC_SUCCESS ? SRD_OK : SRD_INVALID_LKEY,
		.byte_len = flags & ROCE_F_WRITE ? pkt->dma_len : pkt->payload_len,
		.src_qp = s->qpn,
	};

	if (s->ahn_version != version) {
		s->ahn = ah_number(qp->pd, s->back.dgid);
		s->ahn_version = version;
	}
	wc.slid = s->ahn;
	recv_complete(qp, qp->recv_cq, &wc, pkt, false, s->back.dgid);
}

/* Places the payload: 0, -EINPROGRESS: dropped, -EACCES */
static int place(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	bool write = roce_opcode[pkt->opcode].flags & ROCE_F_WRITE;
	const struct recv_wqe *wqe = qp->resp.wqe;
	struct mr_miss miss;
	int rc;

	if (!pkt->payload_len)
		return 0;
	do {
		if (write)
			rc = mr_copy(qp->pd, pkt->rkey, pkt->va, (void *)pkt->payload, pkt->payload_len, MR_TO_MEM,
				     IBV_ACCESS_REMOTE_WRITE, &miss);
		else
			rc = mr_copy_sges(qp->pd, wqe->sge, wqe->num_sge, 0, (void *)pkt->payload,
					  pkt->payload_len, MR_TO_MEM, &miss);
		if (rc != -EFAULT)
			break;
		rc = qp->faulting[ROLE_RESP] ? -EINPROGRESS : pf_fault(qp, ROLE_RESP, &miss);
	} while (!rc);
	if (!rc)
		pf_done(qp, ROLE_RESP);
	return rc;
}

static void data(struct hca_qp *qp, struct srd_source *s, const struct roce_pkt *pkt)
{
	uint32_t flags = roce_opcode[pkt->opcode].flags;
	bool write = flags & ROCE_F_WRITE, receives = flags & ROCE_F_RWR;
	int rc;

	if (write && !receives && pkt->dma_len != pkt->payload_len) {
		nak(qp, s, AETH_NAK_INVALID_REQ, pkt->psn);
		return;
	}
	if (receives && resp_take_wqe(qp)) {
		cnt_inc(qp->dev->stat, FL_CNT_send_rnr_err);
		nak(qp, s, AETH_RNR_NAK, pkt->psn);
		return;
	}
	/* the receive that is too short stays, for a message that fits */
	if (!write && pkt->payload_len > qp->resp.wqe->length) {
		nak(qp, s, AETH_NAK_INVALID_REQ, pkt->psn);
		return;
	}
	rc = place(qp, pkt);
	if (rc == -EINPROGRESS)
		return;
	if (rc && write) {
		cnt_inc(qp->dev->stat, FL_CNT_remote_access_err);
		nak(qp, s, AETH_NAK_REM_ACC_ERR, pkt->psn);
		return;
	}
	if (rc) {
		cnt_inc(qp->dev->stat, FL_CNT_local_access_err);
		nak(qp, s, AETH_NAK_REM_OP_ERR, pkt->psn);
		recv_done(qp, s, pkt, IBV_WC_LOC_PROT_ERR);
		return;
	}
	have(s, pkt->psn, 1);
	if (!receives) {
		ack(qp, s, pkt->psn);
		return;
	}
	/* as in end_message() of resp.c: who answers what it received must not overtake the ACK */
	owe_ack(qp, s, pkt->psn);
	send_ack(qp, s);
	recv_done(qp, s, pkt, IBV_WC_SUCCESS);
}

/* ---- READ ---- */

struct read_fill {
	struct hca_qp *qp;
	const struct srd_read *r;
	struct mr_miss miss;
};

static int fill_read(void *arg, uint8_t *dst, uint32_t off, uint32_t len)
{
	struct read_fill *a = arg;

	return mr_copy(a->qp->pd, a->r->rkey, a->r->va + a->r->off + off, dst, len, MR_FROM_MEM,
		       IBV_ACCESS_REMOTE_READ, &a->miss);
}

static uint8_t response_opcode(bool start, bool end)
{
	if (start)
		return end ? IBV_OPCODE_RD_RDMA_READ_RESPONSE_ONLY : IBV_OPCODE_RD_RDMA_READ_RESPONSE_FIRST;
	return end ? IBV_OPCODE_RD_RDMA_READ_RESPONSE_LAST : IBV_OPCODE_RD_RDMA_READ_RESPONSE_MIDDLE;
}

/* The next train of the response: as net_xmit(), and -EINPROGRESS */
static int send_response(struct hca_qp *qp, struct srd_source *s, struct srd_read *r)
{
	struct read_fill fill = {.qp = qp, .r = r};
	uint32_t left = r->len - r->off, max = net_path_max_train(s->path), len;
	struct roce_pkt pkt = {.pkey = 0xffff, .dest_qpn = s->qpn, .flow = s->number, .mtu = r->mtu,
			       .syndrome = AETH_ACK_NO_CREDIT, .msn = s->base,
			       .psn = psn_add(r->psn, r->off / r->mtu)};
	int rc;

	max -= max % r->mtu;
	len = left < max ? left : max;
	pkt.payload_len = len;
	pkt.npkts = roce_npkts(len, r->mtu);
	pkt.opcode = response_opcode(!r->off, pkt.npkts == 1 && len == left);
	pkt.opcode_last = pkt.npkts == 1 ? pkt.opcode : response_opcode(false, len == left);
	while ((rc = net_xmit(s->path, &pkt, fill_read, &fill)) == -EFAULT) {
		rc = qp->faulting[ROLE_RESP] ? -EINPROGRESS : pf_fault(qp, ROLE_RESP, &fill.miss);
		if (rc)
			break;
	}
	if (rc)
		return rc;
	pf_done(qp, ROLE_RESP);
	cnt_add(qp->dev->stat, FL_CNT_sent_pkts, pkt.npkts);
	cnt_add(qp->dev->stat, FL_CNT_sent_bytes, len);
	r->off += len;
	return 0;
}

/* What is begun, as far as the link takes it. */
static void run_reads(struct hca_qp *qp, struct srd_source *s)
{
	struct srd_read *r;
	bool busy;
	int rc = 0;

	while (s->read_head != s->read_tail && !qp->resp.blocked) {
		r = &s->read[s->read_head % SRD_READS];
		do
			rc = send_response(qp, s, r);
		while (!rc && r->off < r->len);
		if (rc == -EAGAIN) {
			qp->resp.blocked = true;
			break;
		}
		if (rc == -EACCES) {
			cnt_inc(qp->dev->stat, FL_CNT_remote_access_err);
			nak(qp, s, AETH_NAK_REM_ACC_ERR, psn_add(r->psn, r->off / r->mtu));
		}
		s->read_head++;
	}
	busy = s->read_head != s->read_tail;
	if (busy == s->is_reading)
		return;
	s->is_reading = busy;
	if (busy)
		cds_list_add_tail(&s->reading, &qp->srd->reading);
	else
		cds_list_del(&s->reading);
}

static void read_request(struct hca_qp *qp, struct srd_source *s, const struct roce_pkt *pkt)
{
	uint32_t len = pkt->dma_len & SRD_LEN_MASK, code = pkt->dma_len >> SRD_MTU_SHIFT, mtu = 128u << code;
	uint32_t n = code ? roce_npkts(len, mtu) : 0;

	/* packets that our port cannot send are not what the peer can be given */
	if (!n || n > SRD_READ_PKTS || mtu > qp->mtu) {
		nak(qp, s, AETH_NAK_INVALID_REQ, pkt->psn);
		return;
	}
	if (len && mr_check(qp->pd, pkt->rkey, pkt->va, len, IBV_ACCESS_REMOTE_READ)) {
		cnt_inc(qp->dev->stat, FL_CNT_remote_access_err);
		nak(qp, s, AETH_NAK_REM_ACC_ERR, pkt->psn);
		return;
	}
	if (!s->read)
		s->read = calloc(SRD_READS, sizeof(*s->read));
	if (!in_window(s, pkt->psn, n) || !s->read || s->read_tail - s->read_head == SRD_READS) {
		cnt_inc(qp->dev->stat, FL_CNT_rx_backlog_drop);
		return;
	}
	have(s, pkt->psn, n);
	s->read[s->read_tail++ % SRD_READS] =
		(struct srd_read){.va = pkt->va, .rkey = pkt->rkey, .len = len, .psn = pkt->psn, .mtu = mtu};
	run_reads(qp, s);
}

/* ---- the packet that comes in ---- */

static void execute(struct hca_qp *qp, struct srd_source *s, const struct roce_pkt *pkt)
{
	uint32_t flags = roce_opcode[pkt->opcode].flags;

	s->ce |= pkt->ce;
	if (!in_window(s, pkt->psn, 1)) {
		cnt_inc(qp->dev->stat, FL_CNT_out_of_seq_request);
		return;
	}
	if (had(s, pkt->psn)) {
		cnt_inc(qp->dev->stat, FL_CNT_duplicate_request);
		if (!(flags & ROCE_F_READ)) {
			ack(qp, s, pkt->psn);
			return;
		}
	}
	if (pkt->opcode == IBV_OPCODE_RD_RESYNC) {
		have(s, pkt->psn, 1);
		ack(qp, s, pkt->psn);
	} else if (pkt->qkey != qp->attr.qkey) {
		cnt_inc(qp->dev->stat, FL_CNT_rx_qkey_err);
		nak(qp, s, AETH_NAK_INVALID_RD_REQ, pkt->psn);
	} else if (flags & ROCE_F_READ) {
		read_request(qp, s, pkt);
	} else {
		data(qp, s, pkt);
	}
}

void srd_request(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	struct srd_source *s;
	uint64_t now = now_ns();
	uint8_t gid[16];

	grh_sgid(pkt->grh, gid);
	s = source_find(qp->srd, gid, pkt->src_qpn, pkt->flow);
	if (!s)
		s = source_new(qp, pkt, now);
	if (!s)
		return;
	s->used_at = now;
	srd_move_to_end(&s->lru, &qp->srd->lru);
	if (s->path)
		execute(qp, s, pkt);
	else if (s->kept.bytes > SRD_KEPT_BYTES || !pkt_queue_add(&s->kept, pkt, false))
		cnt_inc(qp->dev->stat, FL_CNT_rx_backlog_drop);
}

void srd_resume(struct hca_qp *qp)
{
	struct srd_source *s, *next;

	qp->resp.blocked = false;
	srd_send_acks(qp);
	cds_list_for_each_entry_safe(s, next, &qp->srd->reading, reading)
		run_reads(qp, s);
}
