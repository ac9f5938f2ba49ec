/* SPDX-License-Identifier: BSD-2-Clause */
/* XRC domains, and QPs that stand for a target that is there already. */
#include "verbs/verbs.h"

#include <stdlib.h>

struct ibv_xrcd *fl_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct verbs_xrcd *xrcd;
	int err;

	if (!ib_has_xrc(to_fl_context(context)->ib->device->profile) ||
	    attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED)
		return fail_null(-EOPNOTSUPP);
	if ((attr->comp_mask & needed) != needed)
		return fail_null(-EINVAL);
	xrcd = calloc(1, sizeof(*xrcd));
	if (!xrcd)
		return fail_null(-ENOMEM);
	err = ib_open_xrcd(to_fl_context(context)->ib, attr->fd, attr->oflags, &xrcd->ib);
	if (err) {
		free(xrcd);
		return fail_null(err);
	}
	xrcd->xrcd.context = context;
	return &xrcd->xrcd;
}

int fl_close_xrcd(struct ibv_xrcd *xrcd)
{
	int err = ib_close_xrcd(to_fl_xrcd(xrcd)->ib);

	if (err)
		return fail_errno(err);
	free(to_fl_xrcd(xrcd));
	return 0;
}

struct ibv_qp *fl_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	const uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	struct verbs_qp *qp;
	int err;

	if (!ib_has_xrc(to_fl_context(context)->ib->device->profile) ||
	    attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED)
		return fail_null(-EOPNOTSUPP);
	if ((attr->comp_mask & needed) != needed || !attr->xrcd || attr->xrcd->context != context)
		return fail_null(-EINVAL);
	qp = fl_qp_alloc(context, attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT ? attr->qp_context : NULL,
			 attr->qp_type);
	if (!qp)
		return fail_null(-ENOMEM);
	err = ib_open_qp(to_fl_xrcd(attr->xrcd)->ib, attr->qp_type, attr->qp_num, qp, &qp->ib);
	if (err) {
		fl_qp_free(qp);
		return fail_null(err);
	}
	qp->hca = qp->ib->hca;
	qp->qp.handle = qp->ib->uobj.handle;
	qp->qp.qp_num = attr->qp_num;
	qp->qp.state = IBV_QPS_UNKNOWN;
	return &qp->qp;
}
