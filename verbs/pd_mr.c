/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains and memory regions. */
#include "verbs/verbs.h"

#include <stdlib.h>

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct verbs_pd *pd = calloc(1, sizeof(*pd));
	int err;

	if (!pd)
		return fail_null(-ENOMEM);
	err = ib_alloc_pd(to_fl_context(context)->ib, &pd->ib);
	if (err) {
		free(pd);
		return fail_null(err);
	}
	pd->pd.context = context;
	pd->pd.handle = pd->ib->uobj.handle;
	return &pd->pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int err = ib_dealloc_pd(to_fl_pd(pd)->ib);

	if (err)
		return fail_errno(err);
	free(to_fl_pd(pd));
	return 0;
}

/* The region that the core has made, or its error, as verbs have it; takes over mr. */
static struct ibv_mr *mr_made(struct verbs_mr *mr, int err, struct ibv_pd *pd, void *addr, size_t length)
{
	if (err) {
		free(mr);
		return fail_null(err);
	}
	mr->mr.context = pd->context;
	mr->mr.pd = pd;
	mr->mr.addr = addr;
	mr->mr.length = length;
	mr->mr.handle = mr->ib->uobj.handle;
	mr->mr.lkey = mr->ib->lkey;
	mr->mr.rkey = mr->ib->rkey;
	return &mr->mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	struct verbs_mr *mr = calloc(1, sizeof(*mr));
	int err = -ENOMEM;

	if (mr)
		err = ib_reg_user_mr(to_fl_pd(pd)->ib, (uintptr_t)addr, length, iova, access, &mr->ib);
	return mr_made(mr, err, pd, addr, length);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	struct verbs_mr *mr = calloc(1, sizeof(*mr));
	int err = -ENOMEM;

	if (mr)
		err = ib_reg_user_mr_dmabuf(to_fl_pd(pd)->ib, offset, length, iova, fd, (unsigned int)access,
					    &mr->ib);
	/* as rdma-core: its address is its offset in the buffer */
	return mr_made(mr, err, pd, (void *)(uintptr_t)offset, length);
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	errno = EOPNOTSUPP;
	return IBV_REREG_MR_ERR_CMD;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct verbs_mr *m = FL_CAST(verbs_mr, mr, mr);
	int err = ib_dereg_mr(m->ib);

	if (err)
		return fail_errno(err);
	free(m);
	return 0;
}

int fl_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		 struct ibv_sge *sg_list, uint32_t num_sge)
{
	return fail_errno(ib_advise_mr(to_fl_pd(pd)->ib, advice, flags, sg_list, num_sge));
}
