/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs. */
#include "verbs/verbs.h"

#include <stdlib.h>

int fl_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	return hca_post_send(to_fl_qp(qp)->hca, wr, bad_wr);
}

int fl_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	return hca_post_recv(to_fl_qp(qp)->hca, wr, bad_wr);
}

void fl_qp_free(struct verbs_qp *qp)
{
	fl_qp_ex_free(qp);
	pthread_mutex_destroy(&qp->qp.mutex);
	pthread_cond_destroy(&qp->qp.cond);
	free(qp);
}

struct verbs_qp *fl_qp_alloc(struct ibv_context *context, void *qp_context, enum ibv_qp_type type)
{
	struct verbs_qp *qp = calloc(1, sizeof(*qp));

	if (!qp)
		return NULL;
	qp->qp.context = context;
	qp->qp.qp_context = qp_context;
	qp->qp.qp_type = type;
	qp->qp.state = IBV_QPS_RESET;
	pthread_mutex_init(&qp->qp.mutex, NULL);
	pthread_cond_init(&qp->qp.cond, NULL);
	event_source_init(&qp->async);
	return qp;
}

struct ibv_qp *fl_create_qp(struct ibv_context *context, struct ibv_pd *pd, struct ibv_xrcd *xrcd,
			    struct ibv_qp_init_attr *attr, bool builders)
{
	struct ib_qp_init_attr init = {.qp_type = attr->qp_type, .cap = attr->cap,
				       .sq_sig_all = attr->sq_sig_all};
	struct verbs_qp *qp = fl_qp_alloc(context, attr->qp_context, attr->qp_type);
	int err;

	if (!qp)
		return fail_null(-ENOMEM);
	init.xrcd = xrcd ? to_fl_xrcd(xrcd)->ib : NULL;
	/* of XRC's, what it has not may be anything */
	if (!xrcd)
		init.send_cq = attr->send_cq ? to_fl_cq(attr->send_cq)->ib : NULL;
	if (!xrcd && attr->qp_type != IBV_QPT_XRC_SEND) {
		init.recv_cq = attr->recv_cq ? to_fl_cq(attr->recv_cq)->ib : NULL;
		init.srq = attr->srq ? to_fl_srq(attr->srq)->ib : NULL;
	}
	init.uobject = qp;
	qp->qp.pd = pd;
	qp->qp.send_cq = attr->send_cq;
	qp->qp.recv_cq = attr->recv_cq;
	qp->qp.srq = attr->srq;
	err = builders ? fl_qp_ex_init(qp) : 0;
	if (!err)
		err = ib_create_qp(pd ? to_fl_pd(pd)->ib : NULL, &init, &qp->ib);
	if (err) {
		fl_qp_free(qp);
		return fail_null(err);
	}
	qp->hca = qp->ib->hca;
	qp->qp.handle = qp->ib->uobj.handle;
	qp->qp.qp_num = qp->ib->qp_num;
	attr->cap = qp->ib->cap;
	return &qp->qp;
}

/* one that is made by the driver's own call (efa.c) */
static bool is_drivers_own(const struct hca_profile *p, enum ibv_qp_type type)
{
	return type == IBV_QPT_DRIVER && p->srd_max_rdma_size;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	const struct hca_profile *p = to_fl_context(pd->context)->ib->device->profile;

	if (is_drivers_own(p, attr->qp_type))
		return fail_null(-EOPNOTSUPP);
	/* it cannot be told the domain */
	if (attr->qp_type == IBV_QPT_XRC_RECV && ib_has_xrc(p))
		return fail_null(-EINVAL);
	return fl_create_qp(pd->context, pd, NULL, attr, false);
}

/* The target of an XRC domain: it has no PD, and sends nothing that could be built. */
static struct ibv_qp *create_xrc_target(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		return fail_null(-EOPNOTSUPP);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !attr->xrcd || attr->xrcd->context != context)
		return fail_null(-EINVAL);
	return fl_create_qp(context, NULL, attr->xrcd, (struct ibv_qp_init_attr *)attr, false);
}

struct ibv_qp *fl_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	const struct hca_profile *p = to_fl_context(context)->ib->device->profile;
	bool builders = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	uint32_t mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

	if (ib_has_xrc(p))
		mask |= IBV_QP_INIT_ATTR_XRCD;
	if (is_drivers_own(p, attr->qp_type) || (attr->comp_mask & ~mask) ||
	    ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags) ||
	    (builders && (!p->qp_builders ||
			  (attr->send_ops_flags & ~fl_qp_ex_ops(p, attr->qp_type)))))
		return fail_null(-EOPNOTSUPP);
	if (attr->qp_type == IBV_QPT_XRC_RECV && ib_has_xrc(p))
		return create_xrc_target(context, attr);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context)
		return fail_null(-EINVAL);
	/* the extended structure begins with the whole of the plain one */
	return fl_create_qp(context, attr->pd, NULL, (struct ibv_qp_init_attr *)attr, builders);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
{
	int err = ib_modify_qp(to_fl_qp(qp)->ib, attr, attr_mask);

	if (!err && (attr_mask & IBV_QP_STATE))
		qp->state = attr->qp_state;
	return fail_errno(err);
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
		 struct ibv_qp_init_attr *init_attr)
{
	struct verbs_qp *q = to_fl_qp(qp);
	int err = ib_query_qp(q->ib, attr);

	if (err)
		return fail_errno(err);
	if (attr_mask & IBV_QP_STATE)
		qp->state = attr->qp_state;
	*init_attr = (struct ibv_qp_init_attr){
		.qp_context = qp->qp_context,
		.send_cq = qp->send_cq,
		.recv_cq = qp->recv_cq,
		.srq = qp->srq,
		.cap = q->ib->cap,
		.qp_type = qp->qp_type,
		.sq_sig_all = q->ib->sq_sig_all,
	};
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct verbs_qp *q = to_fl_qp(qp);
	uint32_t events;
	int err = ib_destroy_qp(q->ib);

	if (err)
		return fail_errno(err);
	events = event_purge(&to_fl_context(qp->context)->async, &q->async);
	pthread_mutex_lock(&qp->mutex);
	while (qp->events_completed != events)
		pthread_cond_wait(&qp->cond, &qp->mutex);
	pthread_mutex_unlock(&qp->mutex);
	fl_qp_free(q);
	return 0;
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	/* a retransmission writes what is there already once more, from the start: no promise */
	return 0;
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return fail_errno(-EOPNOTSUPP);
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return fail_errno(-EOPNOTSUPP);
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return fail_errno(ib_attach_mcast(to_fl_qp(qp)->ib, gid));
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return fail_errno(ib_detach_mcast(to_fl_qp(qp)->ib, gid));
}
