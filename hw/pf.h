/* SPDX-License-Identifier: BSD-2-Clause */
/* What pf.c (faults) and pf_queue.c (those that wait for a worker) share. */
#ifndef FL_HW_PF_H
#define FL_HW_PF_H

#include "hw/hw.h"

/* The pages come into the region's table: pages that are new in it, or negative errno. */
int pf_resolve(struct hca_mr *mr, const struct mr_miss *miss, unsigned flags);
/* a worker has resolved it, or given up; or there is room in the queue, and the role is to try again (0) */
void pf_resume(struct hca_qp *qp, enum qp_role role, uint32_t generation, const struct mr_miss *miss, int rc);
/*
 * The role of the QP, which is locked, waits for this fault, whose reference to the MR passes. 0, or a
 * negative errno: there is nobody to do it, and the caller keeps the reference.
 */
int pf_queue_fault(struct hca_qp *qp, enum qp_role role, struct hca_mr *mr, const struct mr_miss *miss,
		   uint64_t began);

#endif
