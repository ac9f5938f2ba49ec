/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handles, use counts and limits of all objects, and the small objects: PD, CQ, SRQ, AH.
 *
 * The life of an object: a place is reserved against the device's limit, what it needs is taken hold
 * of (use counts), the HCA makes its part, and the object enters its context's list. It goes the other
 * way. An object that others use cannot leave the list, and one that has left cannot be found.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "core/internal.h"
#include "util/cancel.h"

#define MAX_XRCD 65536 /* no attribute tells it */

static uint32_t next_handle;

static int limit_of(const struct hca_profile *p, enum ib_kind kind)
{
	switch (kind) {
	case IB_QP:
		return p->attr.max_qp;
	case IB_MR:
		return p->attr.max_mr;
	case IB_AH:
		return p->attr.max_ah;
	case IB_SRQ:
		return p->attr.max_srq;
	case IB_XRCD:
		return MAX_XRCD;
	case IB_CQ:
		return p->attr.max_cq;
	default:
		return p->attr.max_pd;
	}
}

int ib_reserve(struct ib_device *dev, enum ib_kind kind)
{
	int err = 0;

	fl_lock(&dev->lock);
	if (dev->count[kind] >= limit_of(dev->profile, kind))
		err = -ENOMEM;
	else
		dev->count[kind]++;
	fl_unlock(&dev->lock);
	return err;
}

void ib_unreserve(struct ib_device *dev, enum ib_kind kind)
{
	fl_lock(&dev->lock);
	dev->count[kind]--;
	fl_unlock(&dev->lock);
}

static uint32_t new_handle(void)
{
	uint32_t h;

	/* 0 is what an empty struct holds: nobody's */
	do
		h = __atomic_add_fetch(&next_handle, 1, __ATOMIC_RELAXED);
	while (!h);
	return h;
}

void ib_uobject_add(struct ib_uobject *uobj, struct ib_ucontext *ucontext, enum ib_kind kind)
{
	uobj->handle = new_handle();
	uobj->ucontext = ucontext;
	fl_lock(&ucontext->device->lock);
	cds_list_add_tail(&uobj->list, &ucontext->objects[kind]);
	fl_unlock(&ucontext->device->lock);
}

int ib_uobject_remove(struct ib_uobject *uobj, enum ib_kind kind)
{
	struct ib_device *dev = uobj->ucontext->device;
	int err = 0;

	if (!ib_ucontext_alive(uobj->ucontext))
		return -EIO;
	fl_lock(&dev->lock);
	if (uobj->usecnt) {
		err = -EBUSY;
	} else {
		cds_list_del(&uobj->list);
		dev->count[kind]--;
	}
	fl_unlock(&dev->lock);
	return err;
}

int ib_uobject_get(struct ib_uobject *uobj, const struct ib_ucontext *ucontext)
{
	struct ib_device *dev = uobj->ucontext->device;

	if (uobj->ucontext != ucontext)
		return -EINVAL;
	fl_lock(&dev->lock);
	uobj->usecnt++;
	fl_unlock(&dev->lock);
	return 0;
}

void ib_uobject_put(struct ib_uobject *uobj)
{
	struct ib_device *dev = uobj->ucontext->device;

	fl_lock(&dev->lock);
	uobj->usecnt--;
	fl_unlock(&dev->lock);
}

void ib_need(struct ib_needs *needs, struct ib_uobject *uobj)
{
	if (uobj)
		needs->v[needs->n++] = uobj;
}

int ib_needs_get(const struct ib_needs *needs, const struct ib_ucontext *ucontext)
{
	struct ib_needs held = {.n = 0};
	int err;

	for (unsigned i = 0; i < needs->n; i++) {
		err = ib_uobject_get(needs->v[i], ucontext);
		if (err) {
			ib_needs_put(&held);
			return err;
		}
		ib_need(&held, needs->v[i]);
	}
	return 0;
}

void ib_needs_put(const struct ib_needs *needs)
{
	for (unsigned i = needs->n; i > 0; i--)
		ib_uobject_put(needs->v[i - 1]);
}

/* ---- PD ---- */

int ib_alloc_pd(struct ib_ucontext *ucontext, struct ib_pd **pd)
{
	NO_CANCEL;
	struct ib_device *dev = ucontext->device;
	struct ib_pd *p;
	int err;

	if (!ib_ucontext_alive(ucontext))
		return -EIO;
	err = ib_reserve(dev, IB_PD);
	if (err)
		return err;
	p = calloc(1, sizeof(*p));
	if (!p) {
		ib_unreserve(dev, IB_PD);
		return -ENOMEM;
	}
	ib_uobject_add(&p->uobj, ucontext, IB_PD);
	cnt_inc(dev->stat, FL_CNT_pd);
	*pd = p;
	return 0;
}

int ib_dealloc_pd(struct ib_pd *pd)
{
	NO_CANCEL;
	struct ib_device *dev = pd->uobj.ucontext->device;
	int err = ib_uobject_remove(&pd->uobj, IB_PD);

	if (err)
		return err;
	cnt_dec(dev->stat, FL_CNT_pd);
	free(pd);
	return 0;
}

/* ---- CQ ---- */

/* what is asked for, as this device grants it: 2^n - 1, since one place of a ring stays empty */
static int cq_depth(const struct hca_profile *p, int cqe)
{
	uint32_t depth = ib_roundup_pow2((uint32_t)cqe + 1) - 1;

	return depth > (uint32_t)p->attr.max_cqe ? p->attr.max_cqe : (int)depth;
}

int ib_create_cq(struct ib_ucontext *ucontext, int cqe, int comp_vector, bool timestamps,
		 void *uobject, struct ib_cq **cq)
{
	NO_CANCEL;
	struct ib_device *dev = ucontext->device;
	const struct hca_profile *p = dev->profile;
	struct ib_cq *c;
	int err;

	if (!ib_ucontext_alive(ucontext))
		return -EIO;
	if (cqe <= 0 || cqe > p->attr.max_cqe)
		return -EINVAL;
	if (comp_vector < 0 || (uint32_t)comp_vector >= p->num_comp_vectors)
		return -EINVAL;
	err = ib_reserve(dev, IB_CQ);
	if (err)
		return err;
	c = calloc(1, sizeof(*c));
	if (!c) {
		err = -ENOMEM;
		goto err_unreserve;
	}
	c->cqe = cq_depth(p, cqe);
	err = hca_cq_create(dev->hca, (uint32_t)c->cqe, timestamps, uobject, &c->hca);
	if (err)
		goto err_free;
	ib_uobject_add(&c->uobj, ucontext, IB_CQ);
	cnt_inc(dev->stat, FL_CNT_cq);
	*cq = c;
	return 0;

err_free:
	free(c);
err_unreserve:
	ib_unreserve(dev, IB_CQ);
	return err;
}

int ib_resize_cq(struct ib_cq *cq, int cqe)
{
	const struct hca_profile *p = cq->uobj.ucontext->device->profile;
	int depth, err;

	if (!ib_ucontext_alive(cq->uobj.ucontext))
		return -EIO;
	if (!p->cq_resize)
		return -EOPNOTSUPP;
	if (cqe <= 0 || cqe > p->attr.max_cqe)
		return -EINVAL;
	depth = cq_depth(p, cqe);
	err = hca_cq_resize(cq->hca, (uint32_t)depth);
	if (!err)
		cq->cqe = depth;
	return err;
}

int ib_destroy_cq(struct ib_cq *cq)
{
	NO_CANCEL;
	struct ib_device *dev = cq->uobj.ucontext->device;
	int err = ib_uobject_remove(&cq->uobj, IB_CQ);

	if (err)
		return err;
	hca_cq_destroy(cq->hca);
	cnt_dec(dev->stat, FL_CNT_cq);
	free(cq);
	return 0;
}

/* ---- SRQ ---- */

int ib_create_srq(struct ib_pd *pd, const struct ib_srq_init_attr *init, struct ib_srq **srq)
{
	NO_CANCEL;
	struct ib_ucontext *uc = pd->uobj.ucontext;
	struct ib_device *dev = uc->device;
	const struct ibv_device_attr *max = &dev->profile->attr;
	const struct ibv_srq_attr *attr = &init->attr;
	struct hca_srq_init hi = {.pd = pd->uobj.handle, .max_wr = attr->max_wr, .uobject = init->uobject};
	struct ib_srq *s;
	int err;

	if (!ib_ucontext_alive(uc))
		return -EIO;
	if (!max->max_srq)
		return -EOPNOTSUPP;
	if (!attr->max_wr || attr->max_wr > (uint32_t)max->max_srq_wr ||
	    attr->max_sge > (uint32_t)max->max_srq_sge)
		return -EINVAL;
	err = ib_reserve(dev, IB_SRQ);
	if (err)
		return err;
	s = calloc(1, sizeof(*s));
	if (!s) {
		err = -ENOMEM;
		goto err_unreserve;
	}
	ib_need(&s->needs, &pd->uobj);
	if (init->srq_type == IBV_SRQT_XRC) {
		ib_need(&s->needs, &init->xrcd->uobj);
		ib_need(&s->needs, &init->cq->uobj);
		hi.cq = init->cq->hca;
		hi.xrcd = ib_xrcd_number(init->xrcd);
	}
	err = ib_needs_get(&s->needs, uc);
	if (err)
		goto err_free;
	s->srq_type = init->srq_type;
	s->max_wr = attr->max_wr;
	s->max_sge = hi.max_sge = attr->max_sge ? attr->max_sge : 1;
	err = hca_srq_create(dev->hca, &hi, &s->hca);
	if (err)
		goto err_put;
	ib_uobject_add(&s->uobj, uc, IB_SRQ);
	cnt_inc(dev->stat, FL_CNT_srq);
	*srq = s;
	return 0;

err_put:
	ib_needs_put(&s->needs);
err_free:
	free(s);
err_unreserve:
	ib_unreserve(dev, IB_SRQ);
	return err;
}

int ib_modify_srq(struct ib_srq *srq, const struct ibv_srq_attr *attr, int mask)
{
	const struct ibv_device_attr *max = &srq->uobj.ucontext->device->profile->attr;
	uint32_t max_wr = mask & IBV_SRQ_MAX_WR ? attr->max_wr : srq->max_wr;
	int err;

	if (!ib_ucontext_alive(srq->uobj.ucontext))
		return -EIO;
	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return -EINVAL;
	if (!max_wr || max_wr > (uint32_t)max->max_srq_wr)
		return -EINVAL;
	if ((mask & IBV_SRQ_LIMIT) && attr->srq_limit > max_wr)
		return -EINVAL;
	err = hca_srq_modify(srq->hca, attr, mask);
	if (!err)
		srq->max_wr = max_wr;
	return err;
}

int ib_query_srq(struct ib_srq *srq, struct ibv_srq_attr *attr)
{
	if (!ib_ucontext_alive(srq->uobj.ucontext))
		return -EIO;
	memset(attr, 0, sizeof(*attr));
	hca_srq_query(srq->hca, attr);
	return 0;
}

int ib_destroy_srq(struct ib_srq *srq)
{
	NO_CANCEL;
	struct ib_device *dev = srq->uobj.ucontext->device;
	int err = ib_uobject_remove(&srq->uobj, IB_SRQ);

	if (err)
		return err;
	hca_srq_destroy(srq->hca);
	ib_needs_put(&srq->needs);
	cnt_dec(dev->stat, FL_CNT_srq);
	free(srq);
	return 0;
}

/* ---- AH ---- */

int ib_create_ah(struct ib_pd *pd, const struct ibv_ah_attr *attr, struct ib_ah **ah)
{
	NO_CANCEL;
	struct ib_ucontext *uc = pd->uobj.ucontext;
	struct ib_device *dev = uc->device;
	uint8_t sgid[16];
	struct ib_ah *a;
	int err;

	if (!ib_ucontext_alive(uc))
		return -EIO;
	err = ib_check_ah_attr(uc, attr, sgid);
	if (err)
		return err;
	err = ib_reserve(dev, IB_AH);
	if (err)
		return err;
	a = calloc(1, sizeof(*a));
	if (!a) {
		err = -ENOMEM;
		goto err_unreserve;
	}
	err = ib_uobject_get(&pd->uobj, uc);
	if (err)
		goto err_free;
	a->pd = pd;
	a->av = (struct hca_av){.pd = pd->uobj.handle,
				.tclass = attr->grh.traffic_class,
				.hop_limit = attr->grh.hop_limit,
				.flow_label = attr->grh.flow_label};
	memcpy(a->av.sgid, sgid, sizeof(a->av.sgid));
	memcpy(a->av.dgid, attr->grh.dgid.raw, sizeof(a->av.dgid));
	if (dev->profile->srd_max_rdma_size) {
		err = hca_ah_add(&a->av);
		if (err)
			goto err_put;
	}
	ib_uobject_add(&a->uobj, uc, IB_AH);
	cnt_inc(dev->stat, FL_CNT_ah);
	*ah = a;
	return 0;

err_put:
	ib_uobject_put(&pd->uobj);
err_free:
	free(a);
err_unreserve:
	ib_unreserve(dev, IB_AH);
	return err;
}

int ib_destroy_ah(struct ib_ah *ah)
{
	NO_CANCEL;
	struct ib_device *dev = ah->uobj.ucontext->device;
	int err = ib_uobject_remove(&ah->uobj, IB_AH);

	if (err)
		return err;
	if (dev->profile->srd_max_rdma_size)
		hca_ah_remove(&ah->av);
	ib_uobject_put(&ah->pd->uobj);
	cnt_dec(dev->stat, FL_CNT_ah);
	free(ah);
	return 0;
}
