/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys, and every access to memory that goes through one.
 *
 * A key is index << 8 | variant. The MR at an index is type-stable; a key's life ends when its MR's
 * `key` is cleared. An access reads the MR's fields, announces itself (dma_begin) and reads the key
 * again: unchanged, what it read was of one registration, and deregistration, which clears the key
 * first and then waits for announced accesses, cannot get past it. Freed indexes queue at the end of
 * a long line and come back with another variant, so that a stale key stays an error for long.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "hw/hw.h"
#include "util/provoke.h"

#define MR_CHUNK 1024

/* what an access reads before it knows that its key is alive */
#define MR_GET(field)	 __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define MR_SET(field, v) __atomic_store_n(&(field), v, __ATOMIC_RELAXED)

static struct {
	struct fl_mutex lock; /* LOCK_MR_TABLE */
	struct hca_mr *_Atomic *chunks; /* of MR_CHUNK; set once, never freed */
	uint32_t *line; /* ring of free indexes */
	uint32_t entries, first, count, fresh; /* fresh: the lowest index never used */
} mrs = {.lock = FL_MUTEX_INIT(LOCK_MR_TABLE)};

/* Faults take a reference, deregistration waits for them: a fault may sleep, so this may, too. */
static struct fl_mutex ref_lock = FL_MUTEX_INIT(LOCK_LEAF);
static pthread_cond_t ref_cond = PTHREAD_COND_INITIALIZER;

/* In a new process, or the child of a fork, which forgets the parent's. */
int mr_table_init(uint32_t entries)
{
	struct hca_mr *_Atomic *parents = mrs.chunks;

	fl_mutex_init(&mrs.lock, LOCK_MR_TABLE);
	fl_mutex_init(&ref_lock, LOCK_LEAF);
	pthread_cond_init(&ref_cond, NULL);
	free(mrs.line);
	mrs.chunks = calloc(entries / MR_CHUNK + 1, sizeof(*mrs.chunks));
	mrs.line = malloc(entries * sizeof(*mrs.line));
	if (!mrs.chunks || !mrs.line)
		return -ENOMEM;
	/* the parent's objects point into its MRs: they are kept, behind ours */
	mrs.chunks[entries / MR_CHUNK] = (struct hca_mr *)(void *)parents;
	mrs.entries = entries;
	mrs.first = mrs.count = 0;
	mrs.fresh = 1; /* no key is 0, nor a small number that a user's bug would hit */
	return 0;
}

static struct hca_mr *mr_at(uint32_t index)
{
	struct hca_mr *chunk;

	if (index >= mrs.entries)
		return NULL;
	/* pairs with the release store in mr_index(): the chunk is zeroed when it can be seen */
	chunk = atomic_load_explicit(&mrs.chunks[index / MR_CHUNK], memory_order_acquire);
	return chunk ? &chunk[index % MR_CHUNK] : NULL;
}

static struct hca_mr *mr_of_key(uint32_t key)
{
	struct hca_mr *mr = mr_at(key >> MR_KEY_SHIFT);

	return mr && key && atomic_load(&mr->key) == key ? mr : NULL;
}

/*
 * A fresh index as long as there are any, up to 64 Ki of them, and then the longest free: so a key
 * comes back after at least that many registrations, 256 times that with its variant.
 */
#define MR_FRESH_FIRST (1u << 16)

static int mr_index(uint32_t *index)
{
	if (mrs.count && mrs.fresh >= MR_FRESH_FIRST) {
		*index = mrs.line[mrs.first];
		mrs.first = (mrs.first + 1) % mrs.entries;
		mrs.count--;
		return 0;
	}
	if (mrs.fresh < mrs.entries) {
		struct hca_mr *_Atomic *chunk = &mrs.chunks[mrs.fresh / MR_CHUNK];

		if (!atomic_load_explicit(chunk, memory_order_relaxed)) {
			struct hca_mr *mem = calloc(MR_CHUNK, sizeof(*mem));

			if (!mem)
				return -ENOMEM;
			atomic_store_explicit(chunk, mem, memory_order_release);
		}
		*index = mrs.fresh++;
		return 0;
	}
	return -ENOMEM;
}

static const uint32_t kinds[] = {
	[UMEM_PINNED] = FAULTLINE_MR_PINNED,
	[UMEM_ODP] = FAULTLINE_MR_ODP,
	[UMEM_ODP_IMPLICIT] = FAULTLINE_MR_IMPLICIT,
	[UMEM_DMABUF] = FAULTLINE_MR_DMABUF,
};

static void mr_publish(struct hca_mr *mr, uint32_t index, uint32_t key)
{
	struct faultline_mr *ent = mr->ent;

	ent->pd = mr->pd;
	ent->access = mr->access;
	ent->kind = kinds[mr->umem->ops->kind];
	ent->iova = mr->iova;
	ent->addr = mr->umem->address;
	ent->length = mr->length;
	ent->device = mr->dev->index;
	/* the counters are last */
	memset(&ent->page_faults, 0, sizeof(*ent) - offsetof(struct faultline_mr, page_faults));
	if (mr->umem->ops->kind == UMEM_ODP) {
		ent->pt = to_ib_umem_odp(mr->umem)->pt_root;
		ent->pt_levels = to_ib_umem_odp(mr->umem)->pt_levels;
	} else {
		ent->pt = 0;
		ent->pt_levels = 0;
		ent->dma_maps = ent->pinned_pages = mr->umem->npages;
	}
	mr->last_key = key;
	/* the key goes last: who sees it sees the rest (pairs with the loads in mr_of_key(), and with
	 * those of readers of the segment) */
	__atomic_store_n(&ent->key, key, __ATOMIC_RELEASE);
	atomic_store(&mr->key, key);
}

/*
 * The first is 0, the same for all: UCX 1.13, when it gives an implicit region back, takes its own record of it for the
 * parameters of the call, and a key that is odd for a pointer that is there.
 */
static uint32_t next_variant(const struct hca_mr *mr)
{
	return mr->last_key ? (mr->last_key + 1) & 0xff : 0;
}

int hca_mr_create(struct hca_dev *dev, uint32_t pd, struct ib_umem *umem, uint64_t iova,
		  unsigned access, struct hca_mr **out)
{
	struct hca_mr *mr;
	uint32_t index;

	fl_lock(&mrs.lock);
	if (mr_index(&index)) {
		fl_unlock(&mrs.lock);
		return -ENOMEM;
	}
	fl_unlock(&mrs.lock);
	mr = mr_at(index);
	mr->dev = dev;
	MR_SET(mr->pd, pd);
	MR_SET(mr->access, access);
	MR_SET(mr->iova, iova);
	MR_SET(mr->length, umem->length);
	MR_SET(mr->addr, umem->address);
	mr->umem = umem;
	mr->ent = (struct faultline_mr *)seg_ptr(dev->node->seg, dev->node->seg->s->mr_table) + index;
	mr->ent->stale = 0;
	__atomic_store_n(&umem->stat, mr->ent, __ATOMIC_SEQ_CST); /* the event thread counts by it */
	if (umem->ops->kind == UMEM_PINNED)
		ib_umem_pinned_publish(umem);
	mr_publish(mr, index, index << MR_KEY_SHIFT | next_variant(mr));
	*out = mr;
	return 0;
}

struct ib_umem *hca_mr_umem(const struct hca_mr *mr)
{
	return mr->umem;
}

const struct faultline_mr *hca_mr_stat(const struct hca_mr *mr)
{
	return mr->ent;
}

uint32_t hca_mr_key(const struct hca_mr *mr)
{
	return mr->last_key;
}

void mr_put(struct hca_mr *mr)
{
	fl_lock(&ref_lock);
	if (atomic_fetch_sub(&mr->pf_refs, 1) == 1)
		pthread_cond_broadcast(&ref_cond);
	fl_unlock(&ref_lock);
}

static void mr_wait_refs(struct hca_mr *mr)
{
	fl_lock(&ref_lock);
	while (atomic_load(&mr->pf_refs))
		fl_cond_wait(&ref_cond, &ref_lock);
	fl_unlock(&ref_lock);
}

void hca_mr_revoke(struct hca_mr *mr)
{
	/* seq_cst: pairs with the announcement in dma_begin() and with the reference in mr_get(): either they
	 * see it dead, or we see them and wait. */
	atomic_store(&mr->key, 0);
	__atomic_store_n(&mr->ent->key, 0, __ATOMIC_SEQ_CST);
	provoke_race(PROVOKE_DEREG_KEY_DEAD);
	dma_wait_key(mr->last_key);
}

void hca_mr_destroy(struct hca_mr *mr)
{
	hca_mr_revoke(mr); /* the key dies first */
	mr_wait_refs(mr);
	__atomic_store_n(&mr->umem->stat, NULL, __ATOMIC_RELAXED);
	ib_umem_release(mr->umem);
	mr->umem = NULL;
	fl_lock(&mrs.lock);
	mrs.line[(mrs.first + mrs.count++) % mrs.entries] = mr->last_key >> MR_KEY_SHIFT;
	fl_unlock(&mrs.lock);
}

struct hca_mr *mr_get(uint32_t key)
{
	struct hca_mr *mr = mr_of_key(key);

	if (!mr)
		return NULL;
	atomic_fetch_add(&mr->pf_refs, 1);
	provoke_race(PROVOKE_MR_REFERENCED);
	if (atomic_load(&mr->key) == key) /* pairs with hca_mr_destroy() */
		return mr;
	mr_put(mr);
	return NULL;
}

/* what an access may touch, for as long as its hazard stands */
struct mr_span {
	struct ib_umem *umem;
	uint64_t addr;
	struct faultline_hazard *hazard;
};

static int mr_begin(uint32_t pd, uint32_t key, uint64_t iova, uint64_t len, unsigned access,
		    struct mr_span *span)
{
	struct hca_mr *mr = mr_of_key(key);
	uint64_t off, start, length;

	/* Relaxed, and good only if the key is the same after dma_begin(): see the head of this file. */
	if (!mr || MR_GET(mr->pd) != pd || (MR_GET(mr->access) & access) != access)
		return -EACCES;
	start = MR_GET(mr->iova);
	length = MR_GET(mr->length);
	off = iova - start;
	if (iova < start || off > length || len > length - off)
		return -EACCES;
	span->addr = MR_GET(mr->addr) + off;
	provoke_race(PROVOKE_ACCESS_UNANNOUNCED);
	span->hazard = dma_begin(span->addr, span->addr + len, key);
	provoke_race(PROVOKE_ACCESS_ANNOUNCED);
	if (atomic_load(&mr->key) != key) { /* pairs with hca_mr_destroy() */
		dma_end(span->hazard);
		return -EACCES;
	}
	span->umem = mr->umem;
	return 0;
}

int mr_check(uint32_t pd, uint32_t key, uint64_t iova, uint64_t len, unsigned access)
{
	struct mr_span span;
	int rc = mr_begin(pd, key, iova, len, access, &span);

	if (!rc)
		dma_end(span.hazard);
	return rc;
}

/* An access to pages that are there may be made to fault (util/provoke.h): true. */
static bool mr_provoked(struct mr_span *span, uint32_t key, uint64_t len)
{
	struct mmu_notifier_range range = {
		.start = span->addr & PAGE_MASK, .end = span->addr + len, .event = MMU_NOTIFY_MIGRATE};

	provoke_race(PROVOKE_ACCESS_CHECKED);
	switch (provoke_access(key, span->addr)) {
	case PROVOKE_INVALIDATE:
		dma_end(span->hazard); /* or it would be waited for */
		mmu_notifier_invalidate_range_start(&range);
		mmu_notifier_invalidate_range_end(&range);
		span->hazard = dma_begin(span->addr, span->addr + len, key);
		return true;
	case PROVOKE_FAULT:
		return true;
	default:
		return false;
	}
}

/*
 * As mr_begin(), and says how to go on (umem.h, enum umem_way but UMEM_WAIT); only for UMEM_BY_ADDRESS the
 * hazard stands. Negative: as mr_begin().
 */
static int mr_begin_way(uint32_t pd, uint32_t key, uint64_t iova, uint64_t len, unsigned access, bool write,
			struct mr_span *span)
{
	for (;;) {
		enum umem_way way;
		int rc = mr_begin(pd, key, iova, len, access, span);

		if (rc)
			return rc;
		way = span->umem->ops->way(span->umem, span->addr, len, write, false);
		if (way == UMEM_BY_ADDRESS && umem_faults(span->umem) && mr_provoked(span, key, len))
			way = UMEM_FAULT;
		if (way == UMEM_BY_ADDRESS)
			return way;
		dma_end(span->hazard);
		if (way != UMEM_WAIT)
			return way;
		mm_wait_start_dma();
	}
}

/* An access by address is done; how to go on when it failed. */
static enum umem_way mr_end(const struct mr_span *span, uint64_t len, bool write, bool failed)
{
	enum umem_way way = UMEM_BY_ADDRESS;

	if (failed)
		way = span->umem->ops->way(span->umem, span->addr, len, write, true);
	dma_end(span->hazard);
	return way;
}

static int mr_missed(const struct mr_span *span, uint32_t key, uint64_t len, bool write, bool force,
		     struct mr_miss *miss)
{
	*miss = (struct mr_miss){
		.key = key, .addr = span->addr, .len = len, .write = write,
		.force = force || provoke.fault_every};
	return -EFAULT;
}

/* All of it again, also what was copied by address before that failed: it is the same memory. */
static int mr_slow_copy(const struct mr_span *span, uint32_t key, void *buf, uint32_t len, bool write,
			struct mr_miss *miss)
{
	struct hca_mr *mr = mr_get(key); /* the same registration: a key does not come back so soon */
	bool force;
	int rc;

	if (!mr)
		return -EACCES;
	rc = mr->umem->ops->copy(mr->umem, key, span->addr, buf, len, write);
	/* a dma-buf that has just moved: what its table says is right */
	force = mr->umem->ops->kind != UMEM_DMABUF;
	mr_put(mr);
	return rc == -EFAULT ? mr_missed(span, key, len, write, force, miss) : rc;
}

int mr_copy(uint32_t pd, uint32_t key, uint64_t iova, void *buf, uint32_t len, enum mr_dir dir,
	    unsigned access, struct mr_miss *miss)
{
	bool write = dir == MR_TO_MEM, failed = false;
	struct mr_span span;
	int way = mr_begin_way(pd, key, iova, len, access, write, &span);

	if (way < 0)
		return way;
	if (way == UMEM_BY_ADDRESS) {
		void *mem = (void *)(uintptr_t)span.addr;

		failed = write ? copy_guarded(mem, buf, len) : copy_guarded(buf, mem, len);
		way = mr_end(&span, len, write, failed);
		if (!failed)
			return 0;
	}
	return way == UMEM_FAULT ? mr_missed(&span, key, len, write, failed, miss)
				 : mr_slow_copy(&span, key, buf, len, write, miss);
}

int mr_ready(uint32_t pd, uint32_t key, uint64_t iova, uint64_t len, unsigned access, struct mr_miss *miss)
{
	struct mr_span span;
	int way = mr_begin_way(pd, key, iova, len, access, false, &span);

	if (way < 0)
		return way;
	if (way == UMEM_BY_ADDRESS)
		dma_end(span.hazard);
	return way == UMEM_FAULT ? mr_missed(&span, key, len, false, false, miss) : 0;
}

static int mr_slow_atomic(const struct mr_span *span, uint32_t key, bool cmpswap, uint64_t swap_add,
			  uint64_t compare, uint64_t *orig, struct mr_miss *miss)
{
	struct hca_mr *mr = mr_get(key);
	bool force;
	int rc;

	if (!mr)
		return -EACCES;
	rc = mr->umem->ops->atomic(mr->umem, key, span->addr, cmpswap, swap_add, compare, orig);
	force = mr->umem->ops->kind != UMEM_DMABUF;
	mr_put(mr);
	return rc == -EFAULT ? mr_missed(span, key, 8, true, force, miss) : rc;
}

int mr_atomic(uint32_t pd, uint32_t key, uint64_t iova, bool cmpswap, uint64_t swap_add,
	      uint64_t compare, uint64_t *orig, struct mr_miss *miss)
{
	bool failed = false;
	struct mr_span span;
	int way = mr_begin_way(pd, key, iova, 8, IBV_ACCESS_REMOTE_ATOMIC, true, &span);

	if (way < 0)
		return way;
	if ((span.addr & 7) || (iova & 7)) {
		if (way == UMEM_BY_ADDRESS)
			dma_end(span.hazard);
		return -EINVAL;
	}
	if (way == UMEM_BY_ADDRESS) {
		uint64_t *p = (uint64_t *)(uintptr_t)span.addr;

		failed = cmpswap ? cmpxchg64_guarded(p, compare, swap_add, orig)
				 : fetch_add64_guarded(p, swap_add, orig);
		way = mr_end(&span, 8, true, failed);
		if (!failed)
			return 0;
	}
	return way == UMEM_FAULT
		       ? mr_missed(&span, key, 8, true, failed, miss)
		       : mr_slow_atomic(&span, key, cmpswap, swap_add, compare, orig, miss);
}

int mr_copy_sges(uint32_t pd, const struct ibv_sge *sge, uint32_t num_sge, uint64_t off, void *buf,
		 uint32_t len, enum mr_dir dir, struct mr_miss *miss)
{
	unsigned access = dir == MR_TO_MEM ? IBV_ACCESS_LOCAL_WRITE : 0;
	uint32_t i, n;
	int rc;

	for (i = 0; i < num_sge && len; i++) {
		if (off >= sge[i].length) {
			off -= sge[i].length;
			continue;
		}
		n = sge[i].length - off < len ? sge[i].length - off : len;
		rc = mr_copy(pd, sge[i].lkey, sge[i].addr + off, buf, n, dir, access, miss);
		if (rc == -EFAULT)
			miss->want = sge[i].length - off;
		if (rc)
			return rc;
		buf = (char *)buf + n;
		len -= n;
		off = 0;
	}
	return len ? -EACCES : 0;
}
