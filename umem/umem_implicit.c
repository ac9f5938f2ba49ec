/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Implicit on-demand regions: all of the address space under one key. At registration there is nothing.
 * The first fault in a gigabyte of addresses makes a child for it, an on-demand region like any other;
 * when its last page goes it is given back. A child watches the mappings that faults meet in it, not all
 * of its addresses (mmu_interval_notifier_ops.lazy), so that its making costs the same among 65,000
 * mappings as among three.
 *
 * Children are looked up without a lock, inside a hazard. Who gives one back takes it out of the table
 * of children first and then waits for the accesses in its range. He must be a thread of our own: an
 * invalidation, which finds out that a child is empty, may free nothing. It puts the child on a list; so
 * does a fault that leaves one empty. Whether it is still empty, and nobody faults in it, is looked at
 * again under the region's lock.
 *
 * What the device itself has mapped (mm_is_private) is not reached through such a region, for a peer
 * that can write anywhere should break the program at most, and not the card.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <urcu/list.h>
#include "umem/umem.h"
#include "umem/umem_internal.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/provoke.h"

#define CHILD_SHIFT  30
#define CHILD_BYTES  (1ull << CHILD_SHIFT)
#define ADDRESS_BITS 47 /* what the kernel gives to those that do not ask for more */
/* An empty child is kept for a while: what discards its memory and uses it again needs no new one. */
#define REAP_AFTER_NS 20000000ull
#define MAX_CHILDREN (1u << (ADDRESS_BITS - CHILD_SHIFT))

struct implicit {
	struct ib_umem umem;   /* its first member */
	struct fl_mutex lock;  /* LOCK_UMEM_CHILDREN: children come and go, and are used by faults */
	struct child **child;  /* by address >> CHILD_SHIFT; written under lock, read without */
	bool dying;	       /* reap_lock */
	unsigned being_reaped; /* reap_lock */
};

struct child {
	struct ib_umem_odp odp; /* its first member */
	struct implicit *parent;
	unsigned users; /* faults under way, by the parent's lock */
	bool queued;	/* reap_lock */
	uint64_t queued_at; /* ns */
	struct cds_list_head node;
};

/* reap_lock: the list of children that may be given back */
static struct fl_mutex reap_lock = FL_MUTEX_INIT(LOCK_LEAF);
static pthread_cond_t reaped = PTHREAD_COND_INITIALIZER;
static CDS_LIST_HEAD(reap_list);
static sem_t reap_wanted;
/* start_lock: whether the reaper runs. Not reap_lock, under which nothing is allocated. */
static struct fl_mutex start_lock = FL_MUTEX_INIT(LOCK_UMEM_CHILDREN);
static bool reaper_runs;

void umem_implicit_init(void)
{
	fl_mutex_init(&reap_lock, LOCK_LEAF);
	fl_mutex_init(&start_lock, LOCK_UMEM_CHILDREN);
	pthread_cond_init(&reaped, NULL);
	CDS_INIT_LIST_HEAD(&reap_list);
	sem_init(&reap_wanted, 0, 0);
	reaper_runs = false;
}

static struct implicit *to_implicit(const struct ib_umem *umem)
{
	return (struct implicit *)umem;
}

static void count_children(struct ib_umem *umem, int n)
{
	__atomic_fetch_add(&umem->dev->stat->counter[FL_CNT_odp_children], (uint64_t)(int64_t)n,
			   __ATOMIC_RELAXED);
	UMEM_MR_ADD(umem, children, (uint64_t)(int64_t)n);
}

/* ---- giving back ---- */

/* Allocates nothing, and waits for nobody who does. The child does not go away meanwhile. */
static void queue_reap(struct child *c)
{
	bool wake = false;

	fl_lock(&reap_lock);
	if (!c->queued && !c->parent->dying) {
		c->queued = wake = true;
		c->queued_at = now_ns();
		cds_list_add_tail(&c->node, &reap_list);
	}
	fl_unlock(&reap_lock);
	if (wake)
		sem_post(&reap_wanted);
}

static void unqueue(struct child *c)
{
	fl_lock(&reap_lock);
	if (c->queued)
		cds_list_del(&c->node);
	c->queued = false;
	fl_unlock(&reap_lock);
}

static bool is_unused(struct child *c)
{
	bool unused;

	fl_lock(&c->odp.umem_mutex);
	unused = !c->users && !c->odp.mapped;
	fl_unlock(&c->odp.umem_mutex);
	return unused;
}

/* Nobody finds it any more. */
static void child_destroy(struct child *c)
{
	struct implicit *parent = c->parent;

	umem_odp_destroy(&c->odp);
	unqueue(c); /* a last callback may have put it there */
	count_children(&parent->umem, -1);
	free(c);
}

static void reap(struct child *c)
{
	struct implicit *parent = c->parent;
	uint64_t start = c->odp.umem.address;
	bool unused;

	fl_lock(&parent->lock);
	unused = is_unused(c);
	if (unused) /* seq_cst: before the look at the hazards; pairs with find() */
		__atomic_store_n(&parent->child[start >> CHILD_SHIFT], NULL, __ATOMIC_SEQ_CST);
	fl_unlock(&parent->lock);
	if (unused) {
		provoke_race(PROVOKE_CHILD_OUT);
		dma_wait_range(start, start + CHILD_BYTES);
		child_destroy(c);
	}
}

/* until it is time for the first child of the list; those behind it came later */
static void wait_for_first(void)
{
	uint64_t now = now_ns(), at = now;

	fl_lock(&reap_lock);
	if (!cds_list_empty(&reap_list))
		at = cds_list_first_entry(&reap_list, struct child, node)->queued_at + REAP_AFTER_NS;
	fl_unlock(&reap_lock);
	if (at > now)
		nanosleep(&(struct timespec){.tv_nsec = (long)(at - now)}, NULL);
}

static void *reaper(void *arg)
{
	for (;;) {
		struct implicit *parent = NULL;
		struct child *c = NULL;

		if (sem_wait(&reap_wanted))
			continue;
		wait_for_first();
		fl_lock(&reap_lock);
		if (!cds_list_empty(&reap_list)) {
			c = cds_list_first_entry(&reap_list, struct child, node);
			cds_list_del(&c->node);
			c->queued = false;
			parent = c->parent;
			parent->being_reaped++; /* its release waits for us */
		}
		fl_unlock(&reap_lock);
		if (!c)
			continue;
		provoke_race(PROVOKE_CHILD_TAKEN);
		reap(c);
		fl_lock(&reap_lock);
		parent->being_reaped--;
		pthread_cond_broadcast(&reaped);
		fl_unlock(&reap_lock);
	}
	return NULL;
}

static int start_reaper(void)
{
	pthread_t t;
	int err = 0;

	fl_lock(&start_lock);
	if (!reaper_runs) {
		err = mm_thread(&t, NULL, reaper, NULL, "fl-implicit");
		reaper_runs = !err;
	}
	fl_unlock(&start_lock);
	return err;
}

/* ---- children ---- */

static bool invalidate(struct mmu_interval_notifier *mni, const struct mmu_notifier_range *range,
		       unsigned long cur_seq)
{
	struct child *c = caa_container_of(mni, struct child, odp.notifier);

	if (umem_odp_invalidate(&c->odp, range, cur_seq))
		queue_reap(c);
	return true;
}

static const struct mmu_interval_notifier_ops notifier_ops = {
	.lazy = true, .invalidate = invalidate, .holds = umem_odp_holds};

/* the parent's lock held */
static struct child *ib_umem_odp_alloc_child(struct implicit *parent, uint64_t index)
{
	struct child *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->odp.umem = parent->umem;
	c->odp.umem.ops = NULL; /* nobody meets it but through its parent */
	c->odp.umem.address = index << CHILD_SHIFT;
	c->odp.umem.length = CHILD_BYTES;
	c->parent = parent;
	if (umem_odp_init(&c->odp, &notifier_ops)) {
		free(c);
		return NULL;
	}
	count_children(&parent->umem, 1);
	return c;
}

/* Inside a hazard that covers addr, or with the child in use; NULL: there is none. */
static struct child *find(const struct implicit *im, uint64_t addr)
{
	if (addr >> ADDRESS_BITS)
		return NULL;
	/* pairs with reap(), after the announcement */
	return __atomic_load_n(&im->child[addr >> CHILD_SHIFT], __ATOMIC_SEQ_CST);
}

/* NULL: there is none, or none can be made */
static struct child *child_get(struct implicit *im, uint64_t addr, bool make)
{
	struct child *c;

	if (addr >> ADDRESS_BITS)
		return NULL;
	fl_lock(&im->lock);
	c = im->child[addr >> CHILD_SHIFT];
	if (!c && make) {
		c = ib_umem_odp_alloc_child(im, addr >> CHILD_SHIFT);
		if (c) /* whole before it is seen; pairs with find() */
			__atomic_store_n(&im->child[addr >> CHILD_SHIFT], c, __ATOMIC_RELEASE);
	}
	if (c)
		c->users++;
	fl_unlock(&im->lock);
	return c;
}

static void child_put(struct implicit *im, struct child *c)
{
	fl_lock(&im->lock);
	c->users--;
	if (is_unused(c))
		queue_reap(c); /* under the lock: after it the child may be gone */
	fl_unlock(&im->lock);
}

/* how much of [addr, addr + len) is in addr's child */
static uint64_t part(uint64_t addr, uint64_t len)
{
	uint64_t left = CHILD_BYTES - (addr & (CHILD_BYTES - 1));

	return len < left ? len : left;
}

/* ---- as a region ---- */

static enum umem_way way(const struct ib_umem *umem, uint64_t addr, size_t len, bool write, bool failed)
{
	enum umem_way all = UMEM_BY_ADDRESS;

	for (uint64_t n; len; addr += n, len -= n) {
		const struct child *c = find(to_implicit(umem), addr);
		enum umem_way one;

		n = part(addr, len);
		one = c ? umem_odp_way(&c->odp.umem, addr, n, write, failed) : UMEM_FAULT;
		if (one == UMEM_FAULT)
			return one;
		if (one == UMEM_BY_COPY)
			all = one;
	}
	return all;
}

/* Within one child. mm_private_add() enters first and then invalidates: either we see it, or it sees us. */
static int fault_part(struct child *c, uint64_t addr, uint64_t len, unsigned flags)
{
	uint64_t start = addr & PAGE_MASK, end = (addr + len + PAGE_SIZE - 1) & PAGE_MASK;
	int n;

	if (mm_is_private(start, end))
		return -EFAULT;
	n = ib_umem_odp_map_dma_and_lock(&c->odp, addr, len, flags);
	if (n < 0)
		return n;
	if (mm_is_private(start, end)) {
		ib_umem_odp_unmap_dma_pages(&c->odp, start, end);
		n = -EFAULT;
	}
	ib_umem_odp_unlock(&c->odp);
	return n;
}

static int fault(struct ib_umem *umem, uint64_t addr, size_t len, unsigned flags)
{
	struct implicit *im = to_implicit(umem);
	int fresh = 0;

	for (uint64_t n; len; addr += n, len -= n) {
		struct child *c;
		int rc;

		n = part(addr, len);
		if (addr >> ADDRESS_BITS)
			return -EFAULT;
		c = child_get(im, addr, true);
		if (!c)
			return -ENOMEM;
		rc = fault_part(c, addr, n, flags);
		child_put(im, c);
		if (rc < 0)
			return rc;
		fresh += rc;
	}
	return fresh;
}

static int copy(struct ib_umem *umem, uint32_t key, uint64_t addr, void *buf, size_t len, bool to_pages)
{
	int rc = 0;

	for (uint64_t n; len && !rc; addr += n, len -= n) {
		struct child *c = child_get(to_implicit(umem), addr, false);

		n = part(addr, len);
		if (!c)
			return -EFAULT;
		rc = umem_odp_copy(&c->odp.umem, key, addr, buf, n, to_pages);
		child_put(to_implicit(umem), c);
		buf = (char *)buf + n;
	}
	return rc;
}

static int atomic(struct ib_umem *umem, uint32_t key, uint64_t addr, bool cmpswap, uint64_t swap_add,
		  uint64_t compare, uint64_t *orig)
{
	struct child *c = child_get(to_implicit(umem), addr, false);
	int rc;

	if (!c)
		return -EFAULT;
	rc = umem_odp_atomic(&c->odp.umem, key, addr, cmpswap, swap_add, compare, orig);
	child_put(to_implicit(umem), c);
	return rc;
}

static int unpin(struct ib_umem *umem, uint64_t addr, size_t len)
{
	int rc = 0;

	for (uint64_t n; len && !rc; addr += n, len -= n) {
		struct child *c = child_get(to_implicit(umem), addr, false);

		n = part(addr, len);
		if (!c)
			return -EINVAL;
		rc = umem_odp_unpin(&c->odp.umem, addr, n);
		child_put(to_implicit(umem), c);
	}
	return rc;
}

static int pin(struct ib_umem *umem, uint64_t addr, size_t len)
{
	uint64_t at = addr, end = addr + len;
	int rc = len ? 0 : -EINVAL;

	if (end < addr || end >> ADDRESS_BITS)
		return -EFAULT;
	while (at < end && !rc) {
		uint64_t n = part(at, end - at);
		struct child *c;

		if (mm_is_private(at & PAGE_MASK, (at + n + PAGE_SIZE - 1) & PAGE_MASK)) {
			rc = -EFAULT;
			break;
		}
		c = child_get(to_implicit(umem), at, true);
		rc = c ? umem_odp_pin(&c->odp.umem, at, n) : -ENOMEM;
		if (c)
			child_put(to_implicit(umem), c);
		at += rc ? 0 : n;
	}
	if (rc && at > addr)
		unpin(umem, addr, at - addr);
	return rc;
}

static void release(struct ib_umem *umem)
{
	struct implicit *im = to_implicit(umem);
	struct child *c, *next;

	/* no child is queued any more, and the reaper has none of ours in hand, when this is through */
	fl_lock(&reap_lock);
	im->dying = true;
	cds_list_for_each_entry_safe(c, next, &reap_list, node) {
		if (c->parent == im) {
			cds_list_del(&c->node);
			c->queued = false;
		}
	}
	while (im->being_reaped)
		fl_cond_wait(&reaped, &reap_lock);
	fl_unlock(&reap_lock);
	for (unsigned i = 0; i < MAX_CHILDREN; i++)
		if (im->child[i])
			child_destroy(im->child[i]);
	mm_private_remove(im->child);
	munmap(im->child, MAX_CHILDREN * sizeof(im->child[0]));
	fl_mutex_destroy(&im->lock);
	free(im);
}

static const struct umem_ops implicit_ops = {
	.kind = UMEM_ODP_IMPLICIT,
	.way = way,
	.fault = fault,
	.copy = copy,
	.atomic = atomic,
	.pin = pin,
	.unpin = unpin,
	.release = release,
};

int ib_umem_odp_alloc_implicit(struct umem_device *dev, unsigned access, struct ib_umem **out)
{
	struct implicit *im = calloc(1, sizeof(*im));
	int err;

	if (!im)
		return -ENOMEM;
	err = start_reaper();
	if (err)
		goto err_free;
	/* sparse: a page of it for 512 GiB of addresses with children */
	im->child = mmap(NULL, MAX_CHILDREN * sizeof(im->child[0]), PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (im->child == MAP_FAILED) {
		err = -ENOMEM;
		goto err_free;
	}
	mm_private_add(im->child, MAX_CHILDREN * sizeof(im->child[0]));
	fl_mutex_init(&im->lock, LOCK_UMEM_CHILDREN);
	im->umem.ops = &implicit_ops;
	im->umem.dev = dev;
	im->umem.length = SIZE_MAX;
	im->umem.writable = umem_writable(access);
	*out = &im->umem;
	return 0;

err_free:
	free(im);
	return err;
}
