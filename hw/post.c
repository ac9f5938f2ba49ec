/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Posting sends: work requests are checked and copied into the send queue, and the requester runs at once, in
 * the caller's thread, as far as it can.
 */
#include <errno.h>
#include <string.h>
#include "hw/fault_model.h"
#include "hw/hw.h"
#include "hw/ud.h"

static int check_wr(const struct hca_qp *qp, const struct ibv_send_wr *wr, uint64_t *length)
{
	int i;

	if (qp->ud && ud_check_wr(qp, wr))
		return EINVAL;
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		break;
	case IBV_WR_RDMA_READ:
		if (!qp_reliable(qp) || (wr->send_flags & IBV_SEND_INLINE) || !qp->attr.max_rd_atomic)
			return EINVAL;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		if (!qp_reliable(qp) || qp->dev->profile->attr.atomic_cap == IBV_ATOMIC_NONE ||
		    (wr->send_flags & IBV_SEND_INLINE) || !qp->attr.max_rd_atomic)
			return EINVAL;
		if ((wr->wr.atomic.remote_addr & 7) || wr->num_sge != 1 || wr->sg_list[0].length < 8)
			return EINVAL;
		break;
	default:
		return EINVAL;
	}
	if (wr->num_sge < 0)
		return EINVAL;
	*length = 0;
	for (i = 0; i < wr->num_sge; i++)
		*length += wr->sg_list[i].length;
	if (wr->send_flags & IBV_SEND_INLINE) {
		if (*length > qp->cap.max_inline_data)
			return EINVAL;
	} else if ((uint32_t)wr->num_sge > qp->cap.max_send_sge) {
		return EINVAL;
	}
	if (*length > qp->dev->profile->max_msg_sz)
		return EINVAL;
	return 0;
}

void send_wqe_fill_data(struct send_wqe *w, const struct ibv_send_wr *wr)
{
	uint8_t *to = w->data;
	int i;

	if (!w->inline_data) {
		if (wr->num_sge)
			memcpy(w->sge, wr->sg_list, wr->num_sge * sizeof(w->sge[0]));
		return;
	}
	for (i = 0; i < wr->num_sge; i++) {
		if (wr->sg_list[i].length)
			memcpy(to, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		to += wr->sg_list[i].length;
	}
}

static int post_one(struct hca_qp *qp, const struct ibv_send_wr *wr)
{
	struct send_wqe *w;
	uint64_t length;
	int rc = check_wr(qp, wr, &length);

	if (rc)
		return rc;
	if (qp->sq_head - qp->sq_tail >= qp->sq_depth)
		return ENOMEM;
	w = sq_wqe(qp, qp->sq_head);
	*w = (struct send_wqe){
		.wr_id = wr->wr_id,
		.opcode = wr->opcode,
		.num_sge = wr->num_sge,
		.signaled = qp->sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED),
		.fence = wr->send_flags & IBV_SEND_FENCE,
		.solicited = wr->send_flags & IBV_SEND_SOLICITED,
		.inline_data = wr->send_flags & IBV_SEND_INLINE,
		.imm = wr->imm_data,
		.length = length,
		.srqn = qp->type == IBV_QPT_XRC_SEND ? wr->qp_type.xrc.remote_srqn & ROCE_QPN_MASK : 0,
	};
	if (qp->ud) {
		ud_fill_wqe(qp, w, wr);
	} else if (wqe_is_atomic(w)) {
		w->length = 8;
		w->remote_addr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		w->compare_add = wr->wr.atomic.compare_add;
		w->swap = wr->wr.atomic.swap;
	} else {
		w->remote_addr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
	}
	send_wqe_fill_data(w, wr);
	w->dammed = fault_model->dams && qp_reliable(qp) && (qp->req.rnr_wait || qp->req.ask_again_at);
	qp->sq_head++;
	return 0;
}

static bool may_post(enum ibv_qp_state state)
{
	return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE ||
	       state == IBV_QPS_ERR;
}

/* Can the whole list be posted? 0, or what posting its first bad one would say. */
static int check_list(const struct hca_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	uint32_t room = qp->sq_depth - (qp->sq_head - qp->sq_tail);
	uint64_t length;
	int rc;

	for (; wr; wr = wr->next) {
		rc = check_wr(qp, wr, &length);
		if (!rc && !room--)
			rc = ENOMEM;
		if (rc) {
			*bad = wr;
			return rc;
		}
	}
	return 0;
}

static int post_list(struct hca_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad, bool all)
{
	struct ibv_send_wr *stop = NULL;
	int rc = 0, stop_rc = 0;

	if (!hca_dev_alive(qp->dev)) {
		*bad = wr;
		return EIO;
	}
	/* without the lock the state is a hint: it is looked at again */
	if (qp->ud && may_post(qp->state))
		stop_rc = ud_open_paths(qp, wr, NULL, &stop);
	if (stop && all) {
		*bad = stop;
		return stop_rc;
	}
	fl_lock(&qp->lock);
	if (!may_post(qp->state)) {
		rc = EINVAL;
		*bad = wr;
	} else if (all) {
		rc = check_list(qp, wr, bad);
	}
	if (rc) {
		fl_unlock(&qp->lock);
		return rc;
	}
	for (; wr; wr = wr->next) {
		rc = wr == stop ? stop_rc : post_one(qp, wr);
		if (rc) {
			*bad = wr;
			break;
		}
	}
	if (qp->state == IBV_QPS_ERR)
		qp_flush(qp);
	else if (qp->state == IBV_QPS_SQE)
		ud_flush_sends(qp);
	else if (!qp->req.blocked)
		req_run(qp);
	fl_unlock(&qp->lock);
	return rc;
}

int hca_post_send(struct hca_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return qp->srd ? srd_post(qp, wr, bad, false) : post_list(qp, wr, bad, false);
}

int hca_post_send_all(struct hca_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return qp->srd ? srd_post(qp, wr, bad, true) : post_list(qp, wr, bad, true);
}
