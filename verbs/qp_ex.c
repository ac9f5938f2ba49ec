/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The wr_* builders: between wr_start and wr_complete work requests pile up as ibv_send_wr, and
 * wr_complete posts them as one list. SGEs and inline data go into arrays that may move while they
 * grow, so until then a work request holds the index of its first SGE, an inline SGE the offset of
 * its data. The first error makes the rest of the batch void; wr_complete reports it.
 */
#include "verbs/verbs.h"

#include <stdlib.h>

static struct wr_builder *builder(struct ibv_qp_ex *qpx)
{
	return FL_CAST(verbs_qp, qpx, qpx)->builder;
}

/* Room for n more elements in an array; NULL and an error in b when there is none. */
static void *grow(struct wr_builder *b, void *array, size_t size, size_t used, size_t n, size_t *cap)
{
	size_t want = used + n, next = *cap ? *cap : 16;
	void *p;

	if (want <= *cap)
		return array;
	while (next < want)
		next *= 2;
	p = reallocarray(array, next, size);
	if (!p) {
		b->err = ENOMEM;
		return NULL;
	}
	*cap = next;
	return p;
}

/* Begins a work request; NULL after an error. */
static struct ibv_send_wr *add_wr(struct ibv_qp_ex *qpx, enum ibv_wr_opcode opcode)
{
	struct wr_builder *b = builder(qpx);
	struct ibv_send_wr *wr;
	void *p;

	if (b->err)
		return NULL;
	p = grow(b, b->wr, sizeof(*wr), b->num_wr, 1, &b->cap_wr);
	if (!p)
		return NULL;
	b->wr = p;
	wr = &b->wr[b->num_wr++];
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = qpx->wr_id;
	wr->opcode = opcode;
	wr->send_flags = qpx->wr_flags & ~(unsigned int)IBV_SEND_INLINE;
	return wr;
}

/* The work request that a setter is about; NULL after an error. */
static struct ibv_send_wr *last_wr(struct wr_builder *b)
{
	if (!b->err && !b->num_wr)
		b->err = EINVAL;
	return b->err ? NULL : &b->wr[b->num_wr - 1];
}

static void unsupported(struct ibv_qp_ex *qpx)
{
	struct wr_builder *b = builder(qpx);

	if (!b->err)
		b->err = EOPNOTSUPP;
}

/* ---- operations ---- */

static void wr_send(struct ibv_qp_ex *qpx)
{
	add_wr(qpx, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qpx, __be32 imm_data)
{
	struct ibv_send_wr *wr = add_wr(qpx, IBV_WR_SEND_WITH_IMM);

	if (wr)
		wr->imm_data = imm_data;
}

static void add_rdma(struct ibv_qp_ex *qpx, enum ibv_wr_opcode opcode, uint32_t rkey,
		     uint64_t remote_addr, __be32 imm_data)
{
	struct ibv_send_wr *wr = add_wr(qpx, opcode);

	if (!wr)
		return;
	wr->imm_data = imm_data;
	if (qpx->qp_base.qp_type == IBV_QPT_DRIVER) {
		hca_wr_set_place(wr, rkey, remote_addr);
		return;
	}
	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = remote_addr;
}

static void wr_rdma_read(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t remote_addr)
{
	add_rdma(qpx, IBV_WR_RDMA_READ, rkey, remote_addr, 0);
}

static void wr_rdma_write(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t remote_addr)
{
	add_rdma(qpx, IBV_WR_RDMA_WRITE, rkey, remote_addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t remote_addr,
			      __be32 imm_data)
{
	add_rdma(qpx, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr, imm_data);
}

static void add_atomic(struct ibv_qp_ex *qpx, enum ibv_wr_opcode opcode, uint32_t rkey,
		       uint64_t remote_addr, uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *wr = add_wr(qpx, opcode);

	if (!wr)
		return;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = remote_addr;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t remote_addr,
			      uint64_t compare, uint64_t swap)
{
	add_atomic(qpx, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t remote_addr, uint64_t add)
{
	add_atomic(qpx, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, add, 0);
}

/* ---- operations that this device does not have ---- */

static void wr_bind_mw(struct ibv_qp_ex *qpx, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *bind_info)
{
	unsupported(qpx);
}

static void wr_inv(struct ibv_qp_ex *qpx, uint32_t invalidate_rkey)
{
	unsupported(qpx);
}

static void wr_send_tso(struct ibv_qp_ex *qpx, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
	unsupported(qpx);
}

static void wr_atomic_write(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t remote_addr,
			    const void *atomic_wr)
{
	unsupported(qpx);
}

/* ---- setters ---- */

static void wr_set_ud_addr(struct ibv_qp_ex *qpx, struct ibv_ah *ah, uint32_t remote_qpn,
			   uint32_t remote_qkey)
{
	struct ibv_send_wr *wr = last_wr(builder(qpx));

	if (!wr)
		return;
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = remote_qpn;
	wr->wr.ud.remote_qkey = remote_qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *qpx, uint32_t remote_srqn)
{
	struct ibv_send_wr *wr = last_wr(builder(qpx));

	if (wr)
		wr->qp_type.xrc.remote_srqn = remote_srqn;
}

/* Gives the last work request n SGEs; sets its list to their index. NULL after an error. */
static struct ibv_sge *set_sges(struct wr_builder *b, size_t n)
{
	struct ibv_send_wr *wr = last_wr(b);
	void *p;

	if (!wr)
		return NULL;
	if (n > INT32_MAX) {
		b->err = EINVAL;
		return NULL;
	}
	p = grow(b, b->sge, sizeof(*b->sge), b->num_sge, n, &b->cap_sge);
	if (!p)
		return NULL;
	b->sge = p;
	wr->sg_list = (struct ibv_sge *)b->num_sge;
	wr->num_sge = (int)n;
	b->num_sge += n;
	return &b->sge[b->num_sge - n];
}

static void wr_set_sge_list(struct ibv_qp_ex *qpx, size_t num_sge, const struct ibv_sge *sg_list)
{
	struct ibv_sge *sge = set_sges(builder(qpx), num_sge);

	if (sge && num_sge)
		memcpy(sge, sg_list, num_sge * sizeof(*sge));
}

static void wr_set_sge(struct ibv_qp_ex *qpx, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {.addr = addr, .length = length, .lkey = lkey};

	wr_set_sge_list(qpx, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *qpx, size_t num_buf,
				    const struct ibv_data_buf *buf_list)
{
	struct wr_builder *b = builder(qpx);
	struct ibv_sge *sge = set_sges(b, 1);
	size_t total = 0, at = b->num_inl;
	uint8_t *p;

	if (!sge)
		return;
	for (size_t i = 0; i < num_buf; i++)
		total += buf_list[i].length;
	if (total > FL_CAST(verbs_qp, qpx, qpx)->ib->cap.max_inline_data) {
		b->err = EINVAL;
		return;
	}
	p = grow(b, b->inl, 1, at, total, &b->cap_inl);
	if (!p && total)
		return;
	b->inl = p;
	sge->addr = at;
	sge->length = (uint32_t)total;
	sge->lkey = 0;
	for (size_t i = 0; i < num_buf; i++) {
		if (buf_list[i].length)
			memcpy(b->inl + at, buf_list[i].addr, buf_list[i].length);
		at += buf_list[i].length;
	}
	b->num_inl = at;
	b->wr[b->num_wr - 1].send_flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *qpx, void *addr, size_t length)
{
	struct ibv_data_buf buf = {.addr = addr, .length = length};

	wr_set_inline_data_list(qpx, 1, &buf);
}

/* ---- the bracket ---- */

static void wr_start(struct ibv_qp_ex *qpx)
{
	struct wr_builder *b = builder(qpx);

	pthread_mutex_lock(&b->lock);
	b->num_wr = b->num_sge = b->num_inl = 0;
	b->err = 0;
}

static void wr_abort(struct ibv_qp_ex *qpx)
{
	pthread_mutex_unlock(&builder(qpx)->lock);
}

/* indexes become addresses: nothing moves any more */
static void link_batch(struct wr_builder *b)
{
	for (size_t i = 0; i < b->num_wr; i++) {
		struct ibv_send_wr *wr = &b->wr[i];

		wr->next = i + 1 < b->num_wr ? wr + 1 : NULL;
		if (!wr->num_sge)
			continue;
		wr->sg_list = &b->sge[(size_t)wr->sg_list];
		if (wr->send_flags & IBV_SEND_INLINE)
			wr->sg_list->addr += (uintptr_t)b->inl;
	}
}

static int wr_complete(struct ibv_qp_ex *qpx)
{
	struct wr_builder *b = builder(qpx);
	struct ibv_send_wr *bad;
	int err = b->err;

	if (!err && b->num_wr) {
		link_batch(b);
		err = hca_post_send_all(FL_CAST(verbs_qp, qpx, qpx)->hca, b->wr, &bad);
	}
	pthread_mutex_unlock(&b->lock);
	return err;
}

uint64_t fl_qp_ex_ops(const struct hca_profile *profile, enum ibv_qp_type type)
{
	const uint64_t send = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	const uint64_t write = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	const uint64_t atomic =
		profile->attr.atomic_cap == IBV_ATOMIC_NONE
			? 0
			: IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

	switch (type) {
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return send | write | IBV_QP_EX_WITH_RDMA_READ | atomic;
	case IBV_QPT_UC:
		return send | write;
	case IBV_QPT_UD:
		return send;
	case IBV_QPT_DRIVER: /* SRD */
		return send | write | IBV_QP_EX_WITH_RDMA_READ;
	default:
		return 0;
	}
}

int fl_qp_ex_init(struct verbs_qp *qp)
{
	struct ibv_qp_ex *x = &qp->qpx;

	qp->builder = calloc(1, sizeof(*qp->builder));
	if (!qp->builder)
		return -ENOMEM;
	pthread_mutex_init(&qp->builder->lock, NULL);
	x->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	x->wr_atomic_fetch_add = wr_atomic_fetch_add;
	x->wr_bind_mw = wr_bind_mw;
	x->wr_local_inv = wr_inv;
	x->wr_rdma_read = wr_rdma_read;
	x->wr_rdma_write = wr_rdma_write;
	x->wr_rdma_write_imm = wr_rdma_write_imm;
	x->wr_send = wr_send;
	x->wr_send_imm = wr_send_imm;
	x->wr_send_inv = wr_inv;
	x->wr_send_tso = wr_send_tso;
	x->wr_set_ud_addr = wr_set_ud_addr;
	x->wr_set_xrc_srqn = wr_set_xrc_srqn;
	x->wr_set_inline_data = wr_set_inline_data;
	x->wr_set_inline_data_list = wr_set_inline_data_list;
	x->wr_set_sge = wr_set_sge;
	x->wr_set_sge_list = wr_set_sge_list;
	x->wr_start = wr_start;
	x->wr_complete = wr_complete;
	x->wr_abort = wr_abort;
	x->wr_atomic_write = wr_atomic_write;
	for (int i = 0; i < QP_EX_NEWER_SLOTS; i++)
		qp->newer[i] = unsupported;
	return 0;
}

void fl_qp_ex_free(struct verbs_qp *qp)
{
	struct wr_builder *b = qp->builder;

	if (!b)
		return;
	pthread_mutex_destroy(&b->lock);
	free(b->wr);
	free(b->sge);
	free(b->inl);
	free(b);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct verbs_qp *q = to_fl_qp(qp);

	return q->builder ? &q->qpx : NULL;
}
