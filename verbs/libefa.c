/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libefa.so.1, the drop-in: what programs call for what only an EFA has. The real one takes an EFA for its own by
 * its driver's functions, and ours is not one of these. The device is in libibverbs.so.1 (verbs/efa.c), which this
 * library only looks for: on any other libibverbs there is no EFA.
 */
#include "native/native.h"

#include <errno.h>

struct efadv_ah_attr;
struct efadv_cq;
struct efadv_cq_init_attr;
struct efadv_device_attr;
struct efadv_mr_attr;
struct efadv_qp_init_attr;

#define EFA_API __attribute__((visibility("default")))

static const struct faultline_native_efa *efa(void)
{
	const struct faultline_native *n = faultline_native_get();

	return FL_NATIVE_HAS(n, efa) ? n->efa : NULL;
}

/* NULL, and errno */
static void *none(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

EFA_API int efadv_query_device(struct ibv_context *context, struct efadv_device_attr *attr, uint32_t inlen);
int efadv_query_device(struct ibv_context *context, struct efadv_device_attr *attr, uint32_t inlen)
{
	return efa() ? efa()->query_device(context, attr, inlen) : EOPNOTSUPP;
}

EFA_API int efadv_query_ah(struct ibv_ah *ah, struct efadv_ah_attr *attr, uint32_t inlen);
int efadv_query_ah(struct ibv_ah *ah, struct efadv_ah_attr *attr, uint32_t inlen)
{
	return efa() ? efa()->query_ah(ah, attr, inlen) : EOPNOTSUPP;
}

EFA_API int efadv_query_mr(struct ibv_mr *mr, struct efadv_mr_attr *attr, uint32_t inlen);
int efadv_query_mr(struct ibv_mr *mr, struct efadv_mr_attr *attr, uint32_t inlen)
{
	return efa() ? efa()->query_mr(mr, attr, inlen) : EOPNOTSUPP;
}

EFA_API struct ibv_cq_ex *efadv_create_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr,
					  struct efadv_cq_init_attr *efa_attr, uint32_t inlen);
struct ibv_cq_ex *efadv_create_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr,
				  struct efadv_cq_init_attr *efa_attr, uint32_t inlen)
{
	return efa() ? efa()->create_cq(context, attr, efa_attr, inlen) : none();
}

EFA_API struct efadv_cq *efadv_cq_from_ibv_cq_ex(struct ibv_cq_ex *cq);
struct efadv_cq *efadv_cq_from_ibv_cq_ex(struct ibv_cq_ex *cq)
{
	return efa() ? efa()->cq_from_ibv_cq_ex(cq) : none();
}

EFA_API struct ibv_qp *efadv_create_driver_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, uint32_t type);
struct ibv_qp *efadv_create_driver_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, uint32_t type)
{
	return efa() ? efa()->create_driver_qp(pd, attr, type) : none();
}

EFA_API struct ibv_qp *efadv_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
					  struct efadv_qp_init_attr *efa_attr, uint32_t inlen);
struct ibv_qp *efadv_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
				  struct efadv_qp_init_attr *efa_attr, uint32_t inlen)
{
	return efa() ? efa()->create_qp_ex(context, attr, efa_attr, inlen) : none();
}
