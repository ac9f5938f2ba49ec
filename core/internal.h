/* SPDX-License-Identifier: BSD-2-Clause */
/* What core's files share: the bookkeeping of objects. */
#ifndef FL_CORE_INTERNAL_H
#define FL_CORE_INTERNAL_H

#include "core/core.h"

/*
 * Room for one more object of this kind on the device, or -ENOMEM. Counted at once, so that two
 * threads cannot both take the last place; ib_unreserve() gives it back.
 */
int ib_reserve(struct ib_device *dev, enum ib_kind kind);
void ib_unreserve(struct ib_device *dev, enum ib_kind kind);

/* Enters a reserved object into its context. */
void ib_uobject_add(struct ib_uobject *uobj, struct ib_ucontext *ucontext, enum ib_kind kind);
/*
 * Takes it out and gives its place back; -EBUSY while something uses it, -EIO in a fork's child. After
 * it nobody else can find the object, so that it can be taken down without the lock.
 */
int ib_uobject_remove(struct ib_uobject *uobj, enum ib_kind kind);

/* use counts; under no lock. get: -EINVAL when the object is of another context */
int ib_uobject_get(struct ib_uobject *uobj, const struct ib_ucontext *ucontext);
void ib_uobject_put(struct ib_uobject *uobj);

/* Adds what may be NULL to the list of needs; takes hold of all in it, or of none; lets go of them. */
void ib_need(struct ib_needs *needs, struct ib_uobject *uobj);
int ib_needs_get(const struct ib_needs *needs, const struct ib_ucontext *ucontext);
void ib_needs_put(const struct ib_needs *needs);

/* ---- xrc.c ---- */

/* The QP proper of an XRC target; LOCK_CORE but for what never changes. */
struct ib_xrc_tgt {
	struct cds_list_head list; /* of its domain's */
	struct hca_qp *hca;
	unsigned opens;
};

uint32_t ib_xrcd_number(const struct ib_xrcd *xrcd);
/* makes q, a target that is complete but for this, the first of its QPs: -ENOMEM */
int ib_xrc_tgt_create(struct ib_xrcd *xrcd, struct ib_qp *q);
/* q is closed; true: it was the last, and the QP proper is to be destroyed */
bool ib_xrc_tgt_close(struct ib_qp *q);

/* is_global, port, and a source GID that exists: -EINVAL, -ENODATA */
int ib_check_ah_attr(struct ib_ucontext *ucontext, const struct ibv_ah_attr *attr, uint8_t sgid[16]);

/* smallest 2^n >= v */
static inline uint32_t ib_roundup_pow2(uint32_t v)
{
	return v <= 1 ? 1 : 1u << (32 - __builtin_clz(v - 1));
}

#endif
