/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ibv_advise_mr(): pages of on-demand regions come into the device's tables before an access needs
 * them. With FLUSH the call does the work and tells what it cannot; without, keys are checked, the rest
 * is a worker's (pf_queue.c), and what cannot be had is had by nobody: an access will tell.
 *
 * The work is done in chunks. It holds its region by a reference, which deregistration waits for, and
 * looks at the key before each chunk: so deregistration waits for one chunk at most.
 */
#include <errno.h>
#include <stdlib.h>
#include "hw/hw.h"
#include "util/provoke.h"

#define CHUNK_BYTES (2ull << 20)

struct prefetch {
	struct pf_work work;
	struct hca_mr *mr;
	uint32_t key;
	uint64_t addr, len; /* virtual, within the MR */
	enum ibv_advise_mr_advice advice;
};

/* FORCE: nobody tells of mprotect(), and the caller wants to know */
static int map(const struct prefetch *p, uint64_t addr, uint64_t len, unsigned flags)
{
	int n = p->mr->umem->ops->fault(p->mr->umem, addr, len,
					flags | UMEM_FAULT_PREFETCH | UMEM_FAULT_FORCE);

	return n < 0 ? n : 0;
}

/* What the CPU has, and nothing else; to read, for that changes nothing on the CPU's side. */
static int map_present(const struct prefetch *p, uint64_t addr, uint64_t len)
{
	uint64_t at = addr & PAGE_MASK, end = ((addr + len - 1) & PAGE_MASK) + PAGE_SIZE, from, to;

	for (; at < end && mm_next_present(at, end, &from, &to); at = to) {
		uint64_t first = from > addr ? from : addr, last = to < addr + len ? to : addr + len;

		/* what went since the look would have to be waited for, or is an error: both are left */
		map(p, first, last - first, UMEM_FAULT_NOSLEEP);
	}
	return 0;
}

static int prefetch_chunk(const struct prefetch *p, uint64_t addr, uint64_t len)
{
	int rc;

	switch (p->advice) {
	case IBV_ADVISE_MR_ADVICE_PREFETCH:
		return map(p, addr, len, 0);
	case IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE:
		rc = map(p, addr, len, UMEM_FAULT_WRITE);
		/* there, but not to be written? */
		return rc == -EFAULT && !map(p, addr, len, 0) ? -EPERM : rc;
	default:
		/* a dma-buf has no addresses of the CPU's to look at, and is mapped as a whole */
		return p->mr->umem->ops->kind == UMEM_DMABUF ? map(p, addr, len, 0) : map_present(p, addr, len);
	}
}

static int prefetch(const struct prefetch *p)
{
	uint64_t at = p->addr, left = p->len, n;
	int rc = 0;

	/* by what is left: of an implicit region the last chunk may end where addresses do */
	for (; left && !rc; at += n, left -= n) {
		n = CHUNK_BYTES - (at & (CHUNK_BYTES - 1));
		n = n < left ? n : left;
		provoke_race(PROVOKE_ADVISE_CHUNK);
		if (atomic_load(&p->mr->key) != p->key) /* hca_mr_destroy() waits for us */
			return -EINVAL;
		rc = prefetch_chunk(p, at, n);
	}
	return rc;
}

static void run_prefetch(struct pf_work *work)
{
	struct prefetch *p = (struct prefetch *)work; /* its first member */

	prefetch(p);
	mr_put(p->mr);
	free(p);
}

/* A reference to the MR of an SGE whose key is good for this: NULL: it is not. */
static struct hca_mr *mr_to_advise(uint32_t pd, const struct ibv_sge *sg)
{
	struct hca_mr *mr = mr_get(sg->lkey);

	if (mr && (mr->pd != pd || !(mr->access & IBV_ACCESS_LOCAL_WRITE))) {
		mr_put(mr);
		return NULL;
	}
	return mr;
}

/* fills *p in; -EFAULT: pinned, or not within the MR; -EINVAL: of no length */
static int prefetch_init(struct prefetch *p, struct hca_mr *mr, const struct ibv_sge *sg,
			 enum ibv_advise_mr_advice advice)
{
	uint64_t off = sg->addr - mr->iova;

	if (!sg->length)
		return -EINVAL;
	if (!umem_faults(mr->umem) || sg->addr < mr->iova || off > mr->length || sg->length > mr->length - off)
		return -EFAULT;
	*p = (struct prefetch){.work.run = run_prefetch,
			       .mr = mr,
			       .key = sg->lkey,
			       .addr = mr->addr + off,
			       .len = sg->length,
			       .advice = advice};
	return 0;
}

static int advise_now(uint32_t pd, enum ibv_advise_mr_advice advice, const struct ibv_sge *sg)
{
	struct hca_mr *mr = mr_to_advise(pd, sg);
	struct prefetch p;
	int rc;

	if (!mr)
		return EINVAL;
	rc = prefetch_init(&p, mr, sg, advice);
	if (!rc)
		rc = prefetch(&p);
	mr_put(mr);
	return -rc;
}

static int advise_later(uint32_t pd, enum ibv_advise_mr_advice advice, const struct ibv_sge *sg)
{
	struct hca_mr *mr = mr_to_advise(pd, sg);
	struct prefetch *p;
	int rc = 0;

	if (!mr)
		return EINVAL;
	p = malloc(sizeof(*p));
	if (!p)
		rc = -ENOMEM;
	else if (!prefetch_init(p, mr, sg, advice))
		rc = pf_queue_work(&p->work);
	else
		goto out; /* nothing to do, and nobody to tell */
	if (!rc)
		return 0; /* the reference is the work's now */
out:
	free(p);
	mr_put(mr);
	return -rc;
}

int hca_mr_advise(struct hca_dev *dev, uint32_t pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		  struct ibv_sge *sg, uint32_t num_sge)
{
	bool flush = flags & IBV_ADVISE_MR_FLAG_FLUSH;
	int rc = 0;

	if (!(dev->profile->odp.general_caps & IBV_ODP_SUPPORT))
		return EOPNOTSUPP;
	if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH || !num_sge || !sg)
		return EINVAL;
	if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
	    advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return EOPNOTSUPP;
	/* all keys before anything is begun, so that a list that is wrong does nothing */
	for (uint32_t i = 0; i < num_sge; i++) {
		struct hca_mr *mr = mr_to_advise(pd, &sg[i]);

		if (!mr)
			return EINVAL;
		mr_put(mr);
	}
	for (uint32_t i = 0; i < num_sge && !rc; i++)
		rc = flush ? advise_now(pd, advice, &sg[i]) : advise_later(pd, advice, &sg[i]);
	return rc;
}
