/* SPDX-License-Identifier: BSD-2-Clause */
/* See fake_mem.h. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fake_mem.h"

struct fake_odp {
	struct ib_umem_odp odp;
	uint64_t first, pages;
	uint8_t *pt; /* UMEM_PT_*, read without a lock */
};

struct fake_range fake_sleeps, fake_denied, fake_broken;
unsigned fake_faults, fake_forced, fake_may_sleep, fake_released, fake_key_waits;

/* a slot a thread; good for as many threads as a test has */
static struct faultline_hazard hazards[64];
static unsigned hazards_given;
static __thread struct faultline_hazard *mine, *announced;

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_moved = PTHREAD_COND_INITIALIZER;
static struct ib_umem *odp_region;
static unsigned gate_waiting;
static bool gate_is_open;
static int gate_rc;

/* not the wrapped one, which counts idle workers */
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);

static bool touches(const struct fake_range *r, uint64_t start, uint64_t len)
{
	return start < r->end && start + len > r->start;
}

void ib_umem_release(struct ib_umem *umem)
{
	umem->ops->release(umem);
}

static void set_pages(struct fake_odp *u, uint64_t start, uint64_t end, uint8_t v)
{
	uint64_t p;

	for (p = start >> PAGE_SHIFT; p < (end + PAGE_SIZE - 1) >> PAGE_SHIFT; p++)
		if (p >= u->first && p - u->first < u->pages)
			__atomic_store_n(&u->pt[p - u->first], v, __ATOMIC_RELEASE);
}

void fake_invalidate(struct ib_umem *umem, uint64_t start, uint64_t end)
{
	set_pages((struct fake_odp *)umem, start, end, UMEM_PT_NONE);
}

static enum umem_way odp_way(const struct ib_umem *umem, uint64_t addr, size_t len, bool write, bool failed)
{
	const struct fake_odp *u = (const struct fake_odp *)umem;
	uint8_t need = write ? UMEM_PT_WRITE : UMEM_PT_READ;
	uint64_t p;

	for (p = addr >> PAGE_SHIFT; p <= (addr + len - 1) >> PAGE_SHIFT; p++)
		if (failed || (__atomic_load_n(&u->pt[p - u->first], __ATOMIC_ACQUIRE) & need) != need)
			return UMEM_FAULT;
	return UMEM_BY_ADDRESS;
}

/* nothing that is pinned here is ever taken away, and what is broken is so for the pin as well */
int mm_stop_dma;

/* of all regions on demand that overlap it: there is one */
void mmu_notifier_invalidate_range_start(const struct mmu_notifier_range *range)
{
	if (odp_region)
		fake_invalidate(odp_region, range->start, range->end);
}

void mmu_notifier_invalidate_range_end(const struct mmu_notifier_range *range)
{
}

void mm_wait_start_dma(void)
{
}

static enum umem_way pinned_way(const struct ib_umem *umem, uint64_t addr, size_t len, bool write,
				bool failed)
{
	return failed ? UMEM_BY_COPY : UMEM_BY_ADDRESS;
}

static int pinned_copy(struct ib_umem *umem, uint32_t key, uint64_t addr, void *buf, size_t len, bool to_pages)
{
	return -EACCES;
}

static int pinned_atomic(struct ib_umem *umem, uint32_t key, uint64_t addr, bool cmpswap, uint64_t swap_add,
			 uint64_t compare, uint64_t *orig)
{
	return -EACCES;
}

int mm_thread(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg, const char *name)
{
	int err = pthread_create(thread, attr, fn, arg);

	if (!err)
		pthread_detach(*thread);
	return -err;
}

static int at_gate(void)
{
	int rc;

	pthread_mutex_lock(&gate);
	gate_waiting++;
	pthread_cond_broadcast(&gate_moved);
	while (!gate_is_open)
		__real_pthread_cond_wait(&gate_moved, &gate);
	gate_waiting--;
	rc = gate_rc;
	pthread_mutex_unlock(&gate);
	return rc;
}

void fake_gate_wait(unsigned workers)
{
	pthread_mutex_lock(&gate);
	while (gate_waiting < workers)
		__real_pthread_cond_wait(&gate_moved, &gate);
	pthread_mutex_unlock(&gate);
}

void fake_gate_open(int rc)
{
	pthread_mutex_lock(&gate);
	gate_is_open = true;
	gate_rc = rc;
	pthread_cond_broadcast(&gate_moved);
	pthread_mutex_unlock(&gate);
}

void fake_gate_close(void)
{
	pthread_mutex_lock(&gate);
	gate_is_open = false;
	pthread_mutex_unlock(&gate);
}

static int odp_fault(struct ib_umem *umem, uint64_t addr, size_t len, unsigned flags)
{
	struct fake_odp *u = (struct fake_odp *)umem;
	int rc;

	if (announced) {
		fprintf(stderr, "a fault is resolved inside an announced access\n");
		abort();
	}
	__atomic_fetch_add(&fake_faults, 1, __ATOMIC_RELAXED);
	if (flags & UMEM_FAULT_FORCE)
		__atomic_fetch_add(&fake_forced, 1, __ATOMIC_RELAXED);
	if (!(flags & UMEM_FAULT_NOSLEEP))
		__atomic_fetch_add(&fake_may_sleep, 1, __ATOMIC_RELAXED);
	if (touches(&fake_denied, addr, len))
		return -EFAULT;
	if (touches(&fake_sleeps, addr, len)) {
		if (flags & UMEM_FAULT_NOSLEEP)
			return -EAGAIN;
		rc = at_gate();
		if (rc)
			return rc;
	}
	fl_lock(&u->odp.umem_mutex);
	set_pages(u, addr, addr + len, flags & UMEM_FAULT_WRITE ? UMEM_PT_WRITE : UMEM_PT_READ);
	fl_unlock(&u->odp.umem_mutex);
	return 1;
}

static void fake_release(struct ib_umem *umem)
{
	struct fake_odp *u = (struct fake_odp *)umem;

	__atomic_fetch_add(&fake_released, 1, __ATOMIC_RELAXED);
	free(u->pt);
	free(u);
}

static const struct umem_ops pinned_ops = {.kind = UMEM_PINNED,
					   .way = pinned_way,
					   .copy = pinned_copy,
					   .atomic = pinned_atomic,
					   .release = fake_release};
static const struct umem_ops odp_ops = {
	.kind = UMEM_ODP, .way = odp_way, .fault = odp_fault, .release = fake_release};

struct ib_umem *fake_umem(void *addr, size_t len, bool odp)
{
	struct fake_odp *u = calloc(1, sizeof(*u));
	struct ib_umem *umem = &u->odp.umem;

	if (!u)
		abort();
	umem->address = (uintptr_t)addr;
	umem->length = len;
	umem->writable = true;
	umem->ops = odp ? &odp_ops : &pinned_ops;
	if (odp) {
		odp_region = umem;
		u->first = umem->address >> PAGE_SHIFT;
		u->pages = ((umem->address + len - 1) >> PAGE_SHIFT) - u->first + 1;
		u->pt = calloc(u->pages, 1);
		fl_mutex_init(&u->odp.umem_mutex, LOCK_UMEM_MUTEX);
	}
	return umem;
}

/* ---- accesses ---- */

bool dma_peer_joined(uint32_t slot, int sock)
{
	return true;
}

void dma_peer_left(uint32_t slot, int sock)
{
}

void dma_wait_peers(void)
{
}

void ib_umem_pinned_publish(struct ib_umem *umem)
{
}

void dma_init(struct seg *seg)
{
}

struct faultline_hazard *dma_begin(uint64_t start, uint64_t end, uint32_t key)
{
	if (announced || start >= end || !key) {
		fprintf(stderr, "dma_begin: nested, or of nothing: %#lx..%#lx\n", start, end);
		abort();
	}
	if (!mine)
		mine = &hazards[__atomic_fetch_add(&hazards_given, 1, __ATOMIC_RELAXED) % 64];
	/* pairs with dma_wait_key() */
	__atomic_store_n(&mine->key, key, __ATOMIC_SEQ_CST);
	announced = mine;
	return announced;
}

void dma_end(struct faultline_hazard *h)
{
	if (announced != h)
		abort();
	announced = NULL;
	__atomic_store_n(&h->key, 0, __ATOMIC_RELEASE);
}

void dma_wait_key(uint32_t key)
{
	unsigned i;

	__atomic_fetch_add(&fake_key_waits, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 64; i++)
		while (__atomic_load_n(&hazards[i].key, __ATOMIC_SEQ_CST) == key)
			sched_yield();
}

size_t copy_guarded(void *dst, const void *src, size_t len)
{
	uint64_t d = (uintptr_t)dst, s = (uintptr_t)src;

	if (!announced) {
		fprintf(stderr, "memory is touched without announcing it\n");
		abort();
	}
	if (touches(&fake_broken, d, len) || touches(&fake_broken, s, len))
		return len;
	memcpy(dst, src, len);
	return 0;
}

int cmpxchg64_guarded(uint64_t *p, uint64_t compare, uint64_t swap, uint64_t *orig)
{
	if (!announced || ((uintptr_t)p & 7))
		abort();
	if (touches(&fake_broken, (uintptr_t)p, 8))
		return -EFAULT;
	*orig = compare;
	__atomic_compare_exchange_n(p, orig, swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return 0;
}

int fetch_add64_guarded(uint64_t *p, uint64_t add, uint64_t *orig)
{
	if (!announced || ((uintptr_t)p & 7))
		abort();
	if (touches(&fake_broken, (uintptr_t)p, 8))
		return -EFAULT;
	*orig = __atomic_fetch_add(p, add, __ATOMIC_SEQ_CST);
	return 0;
}
