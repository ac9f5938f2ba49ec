/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What libefa.so.1 calls: the direct verbs of EFA (<infiniband/efadv.h>; rdma-core's providers/efa/verbs.c says what
 * is refused and how). Its structures grow from release to release; a caller says how long its own is, and what
 * it has beyond those known here must be zero. The structures below are those of the release they name, for the
 * header that we build with may be older.
 */
#include "native/native.h"
#include "verbs/verbs.h"

#include <infiniband/efadv.h>

#define CAPS_RDMA_WRITE (1 << 3) /* EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE, of rdma-core 47 */

/* struct efadv_device_attr, efadv_qp_init_attr and efadv_mr_attr of rdma-core 60 */
struct device_attr {
	uint64_t comp_mask;
	uint32_t max_sq_wr, max_rq_wr;
	uint16_t max_sq_sge, max_rq_sge;
	uint16_t inline_buf_size, inline_buf_size_ex;
	uint32_t device_caps;
	uint32_t max_rdma_size;
};

struct qp_init_attr {
	uint64_t comp_mask;
	uint32_t driver_qp_type;
	uint16_t flags;
	uint8_t sl, reserved;
	uint64_t wr_flags;
};

struct cq_init_attr {
	uint64_t comp_mask;
	uint64_t wc_flags;
	uint64_t flags;
};

struct mr_attr {
	uint64_t comp_mask;
	uint16_t ic_id_validity, recv_ic_id, rdma_read_ic_id, rdma_recv_ic_id;
};

_Static_assert(offsetof(struct device_attr, max_rdma_size) == offsetof(struct efadv_device_attr, max_rdma_size), "");
_Static_assert(offsetof(struct qp_init_attr, driver_qp_type) == offsetof(struct efadv_qp_init_attr, driver_qp_type), "");
_Static_assert(offsetof(struct cq_init_attr, wc_flags) == offsetof(struct efadv_cq_init_attr, wc_flags), "");
_Static_assert(offsetof(struct efa_cq, wc_read_sgid) == offsetof(struct efadv_cq, wc_read_sgid), "");

/* the caller's structure reaches to the end of this member */
#define REACHES(type, member, inlen) ((inlen) >= offsetof(type, member) + sizeof(((type *)NULL)->member))

static const struct hca_profile *profile_of(struct ibv_context *context)
{
	return to_fl_context(context)->ib->device->profile;
}

static bool is_efa(struct ibv_context *context)
{
	return profile_of(context)->srd_max_rdma_size;
}

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* an answer in a structure of the caller's, which may be of an older release or of a newer one */
static void give(void *attr, uint32_t inlen, const void *full, size_t size)
{
	memset(attr, 0, inlen);
	memcpy(attr, full, min_size(size, inlen));
}

/* a question in one; false: it asks for what is not known here */
static bool take(void *full, size_t size, const void *attr, uint32_t inlen)
{
	const uint8_t *p = attr;

	memset(full, 0, size);
	memcpy(full, attr, min_size(size, inlen));
	for (size_t i = size; i < inlen; i++) {
		if (p[i])
			return false;
	}
	return true;
}

static int query_device(struct ibv_context *context, void *attr, uint32_t inlen)
{
	const struct hca_profile *p = profile_of(context);
	struct device_attr full = {
		.max_sq_wr = (uint32_t)p->attr.max_qp_wr,
		.max_rq_wr = (uint32_t)p->attr.max_qp_wr,
		.max_sq_sge = (uint16_t)p->attr.max_sge,
		.max_rq_sge = (uint16_t)p->attr.max_sge,
		.inline_buf_size = (uint16_t)p->max_inline_data,
		.inline_buf_size_ex = (uint16_t)p->max_inline_data,
		.device_caps = EFADV_DEVICE_ATTR_CAPS_RDMA_READ | EFADV_DEVICE_ATTR_CAPS_RNR_RETRY |
			       EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID | CAPS_RDMA_WRITE,
		.max_rdma_size = p->srd_max_rdma_size,
	};

	if (!is_efa(context))
		return EOPNOTSUPP;
	if (!REACHES(struct device_attr, inline_buf_size, inlen))
		return EINVAL;
	give(attr, inlen, &full, sizeof(full));
	return 0;
}

static int query_ah(struct ibv_ah *ah, void *attr, uint32_t inlen)
{
	struct efadv_ah_attr full = {.ahn = fl_av(ah)->ahn};

	if (!is_efa(ah->context))
		return EOPNOTSUPP;
	if (!REACHES(struct efadv_ah_attr, ahn, inlen))
		return EINVAL;
	give(attr, inlen, &full, sizeof(full));
	return 0;
}

/* no interconnect lies between this device and memory: nothing of the answer is valid, and it says so */
static int query_mr(struct ibv_mr *mr, void *attr, uint32_t inlen)
{
	struct mr_attr full = {0};

	if (!is_efa(mr->context))
		return EOPNOTSUPP;
	if (!REACHES(struct mr_attr, rdma_recv_ic_id, inlen))
		return EINVAL;
	give(attr, inlen, &full, sizeof(full));
	return 0;
}

/* ---- completion queues ---- */

/* the sender's address, of one for whose address there is no handle: else its number is in slid */
static int wc_read_sgid(struct efa_cq *efa, union ibv_gid *sgid)
{
	const struct hca_cqe *cqe = &FL_CAST(verbs_cq, efa, efa)->cur;

	if (cqe->wc.slid != UINT16_MAX)
		return -ENOENT;
	memcpy(sgid->raw, cqe->sgid, sizeof(sgid->raw));
	return 0;
}

static bool wc_is_unsolicited(struct efa_cq *efa)
{
	return false;
}

static struct ibv_cq_ex *create_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr,
				   const void *efa_attr, uint32_t inlen)
{
	struct cq_init_attr full;
	struct ibv_cq_ex *cqx;
	struct verbs_cq *cq;

	if (!is_efa(context))
		return fail_null(-EOPNOTSUPP);
	if (!REACHES(struct cq_init_attr, wc_flags, inlen) || !take(&full, sizeof(full), efa_attr, inlen) ||
	    full.comp_mask)
		return fail_null(-EINVAL);
	if ((full.wc_flags & ~(uint64_t)EFADV_WC_EX_WITH_SGID) || full.flags)
		return fail_null(-EOPNOTSUPP);
	cqx = fl_create_cq_ex(context, attr);
	if (!cqx)
		return NULL;
	cq = FL_CAST(verbs_cq, cqx, cqx);
	if (full.wc_flags & EFADV_WC_EX_WITH_SGID)
		cq->efa.wc_read_sgid = wc_read_sgid;
	cq->efa.wc_is_unsolicited = wc_is_unsolicited;
	return cqx;
}

static void *cq_from_ibv_cq_ex(struct ibv_cq_ex *cqx)
{
	return &FL_CAST(verbs_cq, cqx, cqx)->efa;
}

/* ---- queue pairs ---- */

static struct ibv_qp *create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr, uint32_t type)
{
	bool builders = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

	if (type != EFADV_QP_DRIVER_TYPE_SRD ||
	    (attr->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)))
		return fail_null(-EOPNOTSUPP);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context)
		return fail_null(-EINVAL);
	if (builders && (attr->send_ops_flags & ~fl_qp_ex_ops(profile_of(context), IBV_QPT_DRIVER)))
		return fail_null(-EOPNOTSUPP);
	if (attr->srq)
		return fail_null(-EINVAL);
	/* the extended structure begins with the whole of the plain one */
	return fl_create_qp(context, attr->pd, NULL, (struct ibv_qp_init_attr *)attr, builders);
}

static struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
				   const void *efa_attr, uint32_t inlen)
{
	struct qp_init_attr full;

	if (!is_efa(context))
		return fail_null(-EOPNOTSUPP);
	if (attr->qp_type != IBV_QPT_DRIVER || !REACHES(struct qp_init_attr, driver_qp_type, inlen) ||
	    !take(&full, sizeof(full), efa_attr, inlen) || full.comp_mask || full.reserved)
		return fail_null(-EINVAL);
	/* a service level is taken, and means nothing on this wire */
	if (full.flags || full.wr_flags)
		return fail_null(-EOPNOTSUPP);
	return create_qp(context, attr, full.driver_qp_type);
}

static struct ibv_qp *create_driver_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, uint32_t type)
{
	struct ibv_qp_init_attr_ex full = {0};
	struct ibv_qp *qp;

	if (!is_efa(pd->context))
		return fail_null(-EOPNOTSUPP);
	if (attr->qp_type != IBV_QPT_DRIVER)
		return fail_null(-EINVAL);
	memcpy(&full, attr, sizeof(*attr));
	full.comp_mask = IBV_QP_INIT_ATTR_PD;
	full.pd = pd;
	qp = create_qp(pd->context, &full, type);
	if (qp)
		attr->cap = full.cap;
	return qp;
}

const struct faultline_native_efa fl_native_efa = {
	.size = sizeof(fl_native_efa),
	.query_device = query_device,
	.query_ah = query_ah,
	.query_mr = query_mr,
	.create_cq = create_cq,
	.cq_from_ibv_cq_ex = cq_from_ibv_cq_ex,
	.create_driver_qp = create_driver_qp,
	.create_qp_ex = create_qp_ex,
};
