/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs: what may be asked for, what is granted, and which values an attribute may have. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "core/internal.h"
#include "util/cancel.h"

#define SGE_BYTES 16 /* of a WQE; inline data goes where SGEs would */

/* rxe's rings keep a place empty, mlx5's do not */
static uint32_t queue_depth(const struct hca_profile *p, uint32_t wr)
{
	uint32_t depth;

	if (!wr)
		return 0;
	depth = p->cap_rounding_pow2 ? ib_roundup_pow2(wr + 1) - 1 : ib_roundup_pow2(wr);
	return depth > (uint32_t)p->attr.max_qp_wr ? (uint32_t)p->attr.max_qp_wr : depth;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static bool is_xrc(enum ibv_qp_type type)
{
	return type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

/* *cap becomes what is granted: never less than what was asked for, of queues that the QP has */
static int grant_cap(const struct hca_profile *p, struct ibv_qp_cap *cap, const struct ib_qp_init_attr *init)
{
	uint32_t max_wr = (uint32_t)p->attr.max_qp_wr, max_sge = (uint32_t)p->attr.max_sge;

	if (init->srq || is_xrc(init->qp_type))
		cap->max_recv_wr = cap->max_recv_sge = 0;
	if (init->qp_type == IBV_QPT_XRC_RECV)
		cap->max_send_wr = cap->max_send_sge = cap->max_inline_data = 0;
	if (cap->max_send_wr > max_wr || cap->max_recv_wr > max_wr || cap->max_send_sge > max_sge ||
	    cap->max_recv_sge > max_sge || cap->max_inline_data > p->max_inline_data)
		return -EINVAL;

	uint32_t sge = cap->max_send_sge, inl = cap->max_inline_data;

	cap->max_send_sge = min_u32(max_u32(sge, (inl + SGE_BYTES - 1) / SGE_BYTES), max_sge);
	cap->max_inline_data = min_u32(max_u32(inl, sge * SGE_BYTES), p->max_inline_data);
	cap->max_send_wr = queue_depth(p, cap->max_send_wr);
	cap->max_recv_wr = queue_depth(p, cap->max_recv_wr);
	return 0;
}

/* What a QP of this type is made with; of XRC's, what it has not is not looked at, as in the kernel. */
static void find_needs(struct ib_pd *pd, const struct ib_qp_init_attr *init, struct ib_needs *needs,
		       struct hca_qp_init *hi)
{
	if (init->qp_type == IBV_QPT_XRC_RECV) {
		ib_need(needs, &init->xrcd->uobj);
		hi->xrcd = ib_xrcd_number(init->xrcd);
		return;
	}
	ib_need(needs, &pd->uobj);
	ib_need(needs, &init->send_cq->uobj);
	hi->pd = pd->uobj.handle;
	hi->send_cq = init->send_cq->hca;
	if (init->qp_type == IBV_QPT_XRC_SEND)
		return;
	ib_need(needs, &init->recv_cq->uobj);
	hi->recv_cq = init->recv_cq->hca;
	if (init->srq) {
		ib_need(needs, &init->srq->uobj);
		hi->srq = init->srq->hca;
	}
}

/* IBV_QPT_DRIVER is SRD, the one such type there is */
static bool has_type(const struct hca_profile *p, enum ibv_qp_type type)
{
	if (type == IBV_QPT_DRIVER)
		return p->srd_max_rdma_size;
	return (unsigned)type < 32 && (p->qp_types & (1u << type));
}

int ib_create_qp(struct ib_pd *pd, const struct ib_qp_init_attr *init, struct ib_qp **qp)
{
	NO_CANCEL;
	struct ib_ucontext *uc = pd ? pd->uobj.ucontext : init->xrcd->uobj.ucontext;
	struct ib_device *dev = uc->device;
	const struct hca_profile *p = dev->profile;
	struct hca_qp_init hi = {.type = init->qp_type, .cap = init->cap, .sq_sig_all = init->sq_sig_all};
	struct ib_qp *q;
	int err;

	if (!ib_ucontext_alive(uc))
		return -EIO;
	if (!has_type(p, init->qp_type))
		return -(p->qp_type_refused ? p->qp_type_refused : EOPNOTSUPP);
	if (init->qp_type != IBV_QPT_XRC_RECV && (!pd || !init->send_cq))
		return -EINVAL;
	if (!is_xrc(init->qp_type) && (!init->recv_cq || (init->srq && init->srq->srq_type == IBV_SRQT_XRC)))
		return -EINVAL;
	err = grant_cap(p, &hi.cap, init);
	if (err)
		return err;

	err = ib_reserve(dev, IB_QP);
	if (err)
		return err;
	q = calloc(1, sizeof(*q));
	if (!q) {
		err = -ENOMEM;
		goto err_unreserve;
	}
	q->qp_type = init->qp_type;
	find_needs(pd, init, &q->needs, &hi);
	err = ib_needs_get(&q->needs, uc);
	if (err)
		goto err_free;
	q->open.uobject = init->uobject;
	hi.open = &q->open;
	fl_lock(&dev->lock);
	hi.port_mtu = 128u << ib_mtu_of_netdev(dev->netdev.mtu);
	fl_unlock(&dev->lock);
	err = hca_qp_create(dev->hca, &hi, &q->hca);
	if (err)
		goto err_put;

	if (q->qp_type == IBV_QPT_XRC_RECV) {
		err = ib_xrc_tgt_create(init->xrcd, q);
		if (err)
			goto err_destroy;
	}
	q->qp_num = hca_qp_num(q->hca);
	q->cap = hi.cap;
	q->sq_sig_all = init->sq_sig_all;
	CDS_INIT_LIST_HEAD(&q->mcast);
	ib_uobject_add(&q->uobj, uc, IB_QP);
	cnt_inc(dev->stat, FL_CNT_qp);
	*qp = q;
	return 0;

err_destroy:
	hca_qp_destroy(q->hca);
err_put:
	ib_needs_put(&q->needs);
err_free:
	free(q);
err_unreserve:
	ib_unreserve(dev, IB_QP);
	return err;
}

/* Values of attributes, each by the rule that binds it; masks have been checked. */
static int check_attr(struct ib_qp *qp, struct ibv_qp_attr *attr, int mask, uint8_t sgid[16])
{
	struct ib_ucontext *uc = qp->uobj.ucontext;
	const struct ibv_device_attr *max = &uc->device->profile->attr;
	int err;

	/* path migration needs a second port */
	if ((mask & IBV_QP_ALT_PATH) ||
	    ((mask & IBV_QP_PATH_MIG_STATE) && attr->path_mig_state != IBV_MIG_MIGRATED))
		return -EOPNOTSUPP;
	if ((mask & IBV_QP_PORT) && attr->port_num != 1)
		return -EINVAL;
	if ((mask & IBV_QP_PKEY_INDEX) && attr->pkey_index != 0)
		return -EINVAL;
	if ((mask & IBV_QP_PATH_MTU) &&
	    (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
		return -EINVAL;
	if ((mask & IBV_QP_DEST_QPN) && attr->dest_qp_num > ROCE_QPN_MASK)
		return -EINVAL;
	/* a timer is five bits in the QP context and on the wire, a retry counter three */
	if (((mask & IBV_QP_TIMEOUT) && attr->timeout > 31) ||
	    ((mask & IBV_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > 31) ||
	    ((mask & IBV_QP_RETRY_CNT) && attr->retry_cnt > 7) ||
	    ((mask & IBV_QP_RNR_RETRY) && attr->rnr_retry > 7))
		return -EINVAL;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > max->max_qp_init_rd_atom)
		return -EINVAL;
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > max->max_qp_rd_atom)
		return -EINVAL;
	if (mask & IBV_QP_AV) {
		err = ib_check_ah_attr(uc, &attr->ah_attr, sgid);
		if (err)
			return err;
	}
	attr->rq_psn &= ROCE_PSN_MASK;
	attr->sq_psn &= ROCE_PSN_MASK;
	return 0;
}

/* Datagrams may come to any of the port's addresses, before the QP has sent one. */
static void listen_to_all(struct ib_device *dev)
{
	uint8_t gid[NETDEV_MAX_GIDS][16];
	unsigned n;

	fl_lock(&dev->lock);
	n = dev->num_gids;
	memcpy(gid, dev->gid, sizeof(gid));
	fl_unlock(&dev->lock);
	for (unsigned i = 0; i < n; i++) {
		if (memcmp(gid[i], (uint8_t[16]){0}, 16))
			hca_listen(dev->hca, gid[i]);
	}
}

/* What an XRC QP, which is half a connection, does not have and may be given nevertheless, as in the kernel's uverbs. */
static int ignored_attr(enum ibv_qp_type type)
{
	if (type == IBV_QPT_XRC_SEND)
		return IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (type == IBV_QPT_XRC_RECV)
		return IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
	return 0;
}

int ib_modify_qp(struct ib_qp *qp, const struct ibv_qp_attr *user_attr, int mask)
{
	NO_CANCEL;
	struct ibv_qp_attr attr = *user_attr, now = {0};
	uint8_t sgid[16] = {0};
	enum ibv_qp_state next;
	int err;

	if (!ib_ucontext_alive(qp->uobj.ucontext))
		return -EIO;
	mask &= ~ignored_attr(qp->qp_type);
	hca_qp_query(qp->hca, &now);
	/* the consumer's idea of the current state must be right: it may have missed an error */
	if ((mask & IBV_QP_CUR_STATE) && attr.cur_qp_state != now.qp_state)
		return -EINVAL;
	next = mask & IBV_QP_STATE ? attr.qp_state : now.qp_state;
	if (!ib_modify_qp_is_ok(now.qp_state, next, qp->qp_type, mask))
		return -EINVAL;
	err = check_attr(qp, &attr, mask, sgid);
	if (err)
		return err;
	if ((qp->qp_type == IBV_QPT_UD || qp->qp_type == IBV_QPT_DRIVER) && next == IBV_QPS_RTR)
		listen_to_all(qp->uobj.ucontext->device);
	return hca_qp_modify(qp->hca, &attr, mask, sgid);
}

int ib_query_qp(struct ib_qp *qp, struct ibv_qp_attr *attr)
{
	if (!ib_ucontext_alive(qp->uobj.ucontext))
		return -EIO;
	memset(attr, 0, sizeof(*attr));
	hca_qp_query(qp->hca, attr);
	attr->cur_qp_state = attr->qp_state;
	attr->cap = qp->cap;
	return 0;
}

int ib_destroy_qp(struct ib_qp *qp)
{
	NO_CANCEL;
	struct ib_device *dev = qp->uobj.ucontext->device;
	int err;

	/* who joined a group must leave it, as the kernel has it */
	if (!cds_list_empty(&qp->mcast))
		return -EBUSY;
	err = ib_uobject_remove(&qp->uobj, IB_QP);
	if (err)
		return err;
	if (!qp->tgt || ib_xrc_tgt_close(qp))
		hca_qp_destroy(qp->hca);
	ib_needs_put(&qp->needs);
	cnt_dec(dev->stat, FL_CNT_qp);
	free(qp);
	return 0;
}
