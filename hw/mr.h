/* SPDX-License-Identifier: BSD-2-Clause */
/* Keys, and access to memory through them. mr.c tells how a key's life ends while it is used. */
#ifndef FL_HW_MR_H
#define FL_HW_MR_H

#include <stdatomic.h>
#include "hw/hca.h"

#define MR_KEY_SHIFT 8 /* key = index << 8 | variant */

int mr_table_init(uint32_t entries);

struct hca_mr {
	_Atomic uint32_t key; /* 0: free */
	uint32_t last_key;    /* what it was, for the next variant */
	uint32_t pd;
	uint32_t access;
	uint64_t iova, length;
	uint64_t addr; /* virtual, of iova */
	struct ib_umem *umem; /* good only inside a hazard, or with a reference */
	struct hca_dev *dev;
	struct faultline_mr *ent;
	_Atomic uint32_t pf_refs; /* faults being resolved on its umem; see mr_get() */
};

/* what an access that must fault says about it */
struct mr_miss {
	uint32_t key;
	uint64_t addr; /* virtual */
	uint64_t len;
	bool write;
	bool force; /* the table had the page, the access failed */
	uint64_t want; /* what the message needs from addr on, if that is more than len */
};

enum mr_dir { MR_FROM_MEM, MR_TO_MEM };

/* the key is this PD's, alive, covers [iova, iova + len) and grants access: 0 or -EACCES */
int mr_check(uint32_t pd, uint32_t key, uint64_t iova, uint64_t len, unsigned access);
/*
 * Copies between memory under key and buf. -EACCES: as mr_check(), or memory that is not to be had;
 * -EFAULT: a page must be faulted in first, *miss says which (the whole of what this call needs).
 */
int mr_copy(uint32_t pd, uint32_t key, uint64_t iova, void *buf, uint32_t len, enum mr_dir dir,
	    unsigned access, struct mr_miss *miss);
/* the same for an 8-byte atomic; -EINVAL: not aligned */
int mr_atomic(uint32_t pd, uint32_t key, uint64_t iova, bool cmpswap, uint64_t swap_add,
	      uint64_t compare, uint64_t *orig, struct mr_miss *miss);
/* could mr_copy() from memory at once? 0, -EACCES, or -EFAULT with *miss */
int mr_ready(uint32_t pd, uint32_t key, uint64_t iova, uint64_t len, unsigned access, struct mr_miss *miss);
/* copy to or from a list of SGEs at byte offset off of the whole */
int mr_copy_sges(uint32_t pd, const struct ibv_sge *sge, uint32_t num_sge, uint64_t off, void *buf,
		 uint32_t len, enum mr_dir dir, struct mr_miss *miss);

/* Holds the MR's umem (not its key) for a fault; NULL: the key is dead. */
struct hca_mr *mr_get(uint32_t key);
void mr_put(struct hca_mr *mr);

#endif
