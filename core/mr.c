/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory regions: which rights go together, and what they are counted as. umem/ does the work. */
#include <errno.h>
#include <stdlib.h>
#include "core/internal.h"
#include "umem/umem_dmabuf.h"
#include "util/cancel.h"
#include "util/log.h"

/* Rights a device may support but <infiniband/verbs.h> of today may not name yet. */
#define IB_ACCESS_FLUSH_GLOBAL	   (1u << 8)
#define IB_ACCESS_FLUSH_PERSISTENT (1u << 9)
#define IB_ACCESS_KNOWN                                                                            \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |                   \
	 IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IB_ACCESS_FLUSH_GLOBAL)

int ib_check_mr_access(const struct hca_profile *profile, unsigned access)
{
	unsigned needed = access & ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;

	/* the standard's rule: what the network may write, the consumer must be allowed to write itself */
	if ((needed & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(needed & IBV_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	/* persistence is not to be had from RAM */
	if (needed & ~IB_ACCESS_KNOWN)
		return -EINVAL;
	if ((needed & IBV_ACCESS_ON_DEMAND) && !(profile->odp.general_caps & IBV_ODP_SUPPORT))
		return -(profile->odp_refused ? profile->odp_refused : EOPNOTSUPP);
	if (needed & ~(profile->access_supported | IBV_ACCESS_ON_DEMAND))
		return -EOPNOTSUPP;
	return 0;
}

/* what a region of each kind counts as: regions now, ever, and bytes */
static const struct {
	enum faultline_counter now, total, bytes;
} counted[] = {
	[UMEM_PINNED] = {FL_CNT_mr_pinned, FL_CNT_mr_pinned_total, FL_CNT_mr_bytes_pinned},
	[UMEM_ODP] = {FL_CNT_mr_odp, FL_CNT_mr_odp_total, FL_CNT_mr_bytes_odp},
	[UMEM_ODP_IMPLICIT] = {FL_CNT_mr_odp, FL_CNT_mr_odp_total, FL_CNT_mr_bytes_odp},
	[UMEM_DMABUF] = {FL_CNT_mr_dmabuf, FL_CNT_mr_dmabuf_total, FL_CNT_mr_bytes_dmabuf},
};

/* A place for a region in its PD, nothing of which is to be seen yet. */
static int mr_begin(struct ib_pd *pd, struct ib_mr **mr)
{
	struct ib_ucontext *uc = pd->uobj.ucontext;
	struct ib_mr *m;
	int err = ib_reserve(uc->device, IB_MR);

	if (err)
		return err;
	m = calloc(1, sizeof(*m));
	err = m ? ib_uobject_get(&pd->uobj, uc) : -ENOMEM;
	if (err) {
		free(m);
		ib_unreserve(uc->device, IB_MR);
		return err;
	}
	m->pd = pd;
	*mr = m;
	return 0;
}

static void mr_abort(struct ib_mr *m)
{
	struct ib_device *dev = m->pd->uobj.ucontext->device;

	ib_uobject_put(&m->pd->uobj);
	free(m);
	ib_unreserve(dev, IB_MR);
}

/* It has its key. */
static void mr_add(struct ib_mr *m, enum umem_kind kind, uint64_t length)
{
	struct ib_ucontext *uc = m->pd->uobj.ucontext;
	struct faultline_device *stat = uc->device->stat;

	m->kind = kind;
	m->lkey = m->rkey = hca_mr_key(m->hca);
	ib_uobject_add(&m->uobj, uc, IB_MR);
	cnt_inc(stat, counted[kind].now);
	cnt_inc(stat, counted[kind].total);
	cnt_add(stat, counted[kind].bytes, length);
}

int ib_reg_user_mr(struct ib_pd *pd, uint64_t start, uint64_t length, uint64_t iova, unsigned access,
		   struct ib_mr **mr)
{
	NO_CANCEL;
	struct ib_device *dev = pd->uobj.ucontext->device;
	bool is_odp = access & IBV_ACCESS_ON_DEMAND, is_implicit = false;
	struct ib_umem *umem;
	struct ib_mr *m;
	int err;

	if (!ib_ucontext_alive(pd->uobj.ucontext))
		return -EIO;
	err = ib_check_mr_access(dev->profile, access);
	if (err)
		return err;
	/* (NULL, SIZE_MAX) is the whole address space */
	if (!start && length == SIZE_MAX) {
		if (!is_odp || iova || !(dev->profile->odp.general_caps & IBV_ODP_SUPPORT_IMPLICIT))
			return -EINVAL;
		is_implicit = true;
	}
	/* the translation is by pages: an offset inside a page cannot change */
	if ((iova & ~PAGE_MASK) != (start & ~PAGE_MASK) || length > dev->profile->attr.max_mr_size)
		return -EINVAL;

	err = mr_begin(pd, &m);
	if (err)
		return err;
	err = is_implicit ? ib_umem_odp_alloc_implicit(&dev->umem, access, &umem)
	      : is_odp	  ? ib_umem_odp_get(&dev->umem, start, length, access, &umem)
			  : ib_umem_get(&dev->umem, start, length, access, &umem);
	if (err)
		goto err_abort;
	err = hca_mr_create(dev->hca, pd->uobj.handle, umem, iova, access, &m->hca);
	if (err)
		goto err_release;
	mr_add(m, umem->ops->kind, is_implicit ? 0 : length); /* of everything no size is to be told */
	*mr = m;
	return 0;

err_release:
	ib_umem_release(umem);
err_abort:
	mr_abort(m);
	return err;
}

/* ---- on dma-bufs ---- */

static int dmabuf_get(struct ib_device *dev, uint64_t offset, uint64_t length, int fd, unsigned access,
		      struct ib_umem **umem)
{
	switch (dev->profile->dmabuf) {
	case HCA_DMABUF_DYNAMIC:
		return ib_umem_dmabuf_get(&dev->umem, offset, length, fd, access, umem);
	case HCA_DMABUF_PINNED:
		return ib_umem_dmabuf_get_pinned(&dev->umem, offset, length, fd, access, umem);
	case HCA_DMABUF_PINNED_REVOCABLE:
		return ib_umem_dmabuf_get_pinned_revocable_and_lock(&dev->umem, offset, length, fd, access, umem);
	default:
		return -EOPNOTSUPP;
	}
}

static void revoked(void *priv)
{
	struct ib_mr *m = priv;

	fl_warn("%s: the exporter has revoked the memory of the dma-buf MR with key 0x%x: every access to it "
		"is an error from now on",
		m->pd->uobj.ucontext->device->name, hca_mr_key(m->hca));
	hca_mr_revoke(m->hca);
}

/* what the kernel lets through to a driver's reg_user_mr_dmabuf() */
#define DMABUF_ACCESS                                                                              \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING)

int ib_reg_user_mr_dmabuf(struct ib_pd *pd, uint64_t offset, uint64_t length, uint64_t iova, int fd,
			  unsigned access, struct ib_mr **mr)
{
	NO_CANCEL;
	struct ib_device *dev = pd->uobj.ucontext->device;
	bool revocable = dev->profile->dmabuf == HCA_DMABUF_PINNED_REVOCABLE;
	struct ib_umem *umem;
	struct ib_mr *m;
	int err;

	if (!ib_ucontext_alive(pd->uobj.ucontext))
		return -EIO;
	/* callers fall back on exactly this error, and on no other */
	if (dev->profile->dmabuf == HCA_DMABUF_NONE)
		return -EOPNOTSUPP;
	if ((iova & ~PAGE_MASK) != (offset & ~PAGE_MASK) || access & ~(unsigned)DMABUF_ACCESS ||
	    length > dev->profile->attr.max_mr_size)
		return -EINVAL;
	err = ib_check_mr_access(dev->profile, access);
	if (err)
		return err;
	err = mr_begin(pd, &m);
	if (err)
		return err;
	err = dmabuf_get(dev, offset, length, fd, access, &umem);
	if (err)
		goto err_abort;
	err = hca_mr_create(dev->hca, pd->uobj.handle, umem, iova, access, &m->hca);
	if (!err)
		ib_umem_dmabuf_publish(umem);
	if (!err && revocable)
		ib_umem_dmabuf_set_revoke_locked(umem, revoked, m);
	if (revocable)
		ib_umem_dmabuf_revoke_unlock(umem);
	if (err)
		goto err_release;
	mr_add(m, umem->ops->kind, length);
	*mr = m;
	return 0;

err_release:
	ib_umem_release(umem);
err_abort:
	mr_abort(m);
	return err;
}

int ib_dereg_mr(struct ib_mr *mr)
{
	NO_CANCEL;
	struct ib_device *dev = mr->uobj.ucontext->device;
	int err = ib_uobject_remove(&mr->uobj, IB_MR);

	if (err)
		return err;
	hca_mr_destroy(mr->hca);
	cnt_dec(dev->stat, counted[mr->kind].now);
	ib_uobject_put(&mr->pd->uobj);
	free(mr);
	return 0;
}

int ib_advise_mr(struct ib_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		 struct ibv_sge *sg, uint32_t num_sge)
{
	NO_CANCEL;
	int err;

	if (!ib_ucontext_alive(pd->uobj.ucontext))
		return -EIO;
	err = hca_mr_advise(pd->uobj.ucontext->device->hca, pd->uobj.handle, advice, flags, sg, num_sge);
	return err > 0 ? -err : err;
}

/* ---- what verbs have no call for (include/faultline/odp.h) ---- */

int ib_mr_pin(struct ib_mr *mr, uint64_t addr, uint64_t length)
{
	NO_CANCEL;

	return ib_ucontext_alive(mr->uobj.ucontext) ? ib_umem_pin(hca_mr_umem(mr->hca), addr, length) : -EIO;
}

int ib_mr_unpin(struct ib_mr *mr, uint64_t addr, uint64_t length)
{
	NO_CANCEL;

	return ib_ucontext_alive(mr->uobj.ucontext) ? ib_umem_unpin(hca_mr_umem(mr->hca), addr, length) : -EIO;
}

int ib_mr_read(struct ib_mr *mr, void *dst, uint64_t offset, uint64_t length)
{
	NO_CANCEL;

	if (!ib_ucontext_alive(mr->uobj.ucontext))
		return -EIO;
	return ib_umem_copy_from(dst, hca_mr_umem(mr->hca), mr->lkey, offset, length);
}

int ib_mr_write(struct ib_mr *mr, uint64_t offset, const void *src, uint64_t length)
{
	NO_CANCEL;

	if (!ib_ucontext_alive(mr->uobj.ucontext))
		return -EIO;
	return ib_umem_copy_to(hca_mr_umem(mr->hca), mr->lkey, offset, src, length);
}

const struct faultline_mr *ib_mr_stat(const struct ib_mr *mr)
{
	return ib_ucontext_alive(mr->uobj.ucontext) ? hca_mr_stat(mr->hca) : NULL;
}
