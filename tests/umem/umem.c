/* SPDX-License-Identifier: BSD-2-Clause */
/* Pinned and on-demand regions: refusals, counts, and the table at every depth. */
#include "tests/umem/umemtest.h"

static void pinned(void)
{
	struct ib_umem *u;
	char *m = anon(8 * P);
	uint64_t maps = cnt(FL_CNT_dma_maps);

	CHECK(ib_umem_get(&dev, (uintptr_t)m, 0, 0, &u) == -EINVAL);
	CHECK(ib_umem_get(&dev, -8192ul, 16384, 0, &u) == -EINVAL);
	CHECK(ib_umem_get(&dev, -8192ul, 8191, 0, &u) == -EINVAL);
	CHECK(!ib_umem_get(&dev, (uintptr_t)m + P - 1, P + 2, IBV_ACCESS_LOCAL_WRITE, &u));
	/* not before: the first registration maps something, which may come to lie there */
	struct ib_umem *hole;

	CHECK(ib_umem_get(&dev, (uintptr_t)gone(16 * P), P, 0, &hole) == -EFAULT);
	CHECK(u->npages == 3 && u->writable && u->ops->kind == UMEM_PINNED);
	CHECK(cnt(FL_CNT_pinned_pages) == 3 && cnt(FL_CNT_dma_maps) == maps + 3);
	ib_umem_release(u);
	CHECK(cnt(FL_CNT_pinned_pages) == 0);
	CHECK(!ib_umem_get(&dev, (uintptr_t)m, P, IBV_ACCESS_REMOTE_READ, &u) && !u->writable);
	ib_umem_release(u);
	CHECK(!ib_umem_get(&dev, (uintptr_t)m, P, IBV_ACCESS_MW_BIND, &u) && u->writable);
	ib_umem_release(u);
	CHECK(cnt(FL_CNT_dma_maps) == cnt(FL_CNT_dma_unmaps));
}

static void on_demand(void)
{
	struct ib_umem *u;
	struct ib_umem_odp *odp;
	struct faultline_mr mr = {0};
	char *m = anon(8 * P), b[2 * P];
	uint64_t inval = cnt(FL_CNT_page_invalidations);

	CHECK(ib_umem_odp_get(&dev, (uintptr_t)m, 0, 0, &u) == -EINVAL);
	CHECK(ib_umem_odp_get(&dev, -8192ul, 16384, 0, &u) == -EOVERFLOW);

	odp = odp_get(m + 100, 6 * P);
	odp->umem.stat = &mr;
	CHECK(!ib_umem_odp_present(odp, (uintptr_t)m + 100, 1, false));
	CHECK(fault(odp, m, P, 0) == -EFAULT);		      /* before its first byte */
	CHECK(fault(odp, m + 100, 6 * P + 1, 0) == -EFAULT);  /* after its last */
	CHECK(fault(odp, m + 200, P, 0) == 2);
	CHECK(ib_umem_odp_present(odp, (uintptr_t)m + 100, P, false));
	CHECK(!ib_umem_odp_present(odp, (uintptr_t)m + 100, P, true));
	CHECK(!ib_umem_odp_present(odp, (uintptr_t)m + 100, 2 * P, false));
	CHECK(fault(odp, m + 200, P, UMEM_FAULT_WRITE) == 0); /* more right, no more pages */
	CHECK(ib_umem_odp_present(odp, (uintptr_t)m + 100, P, true));
	CHECK(fault(odp, m + 200, 3 * P, UMEM_FAULT_WRITE | UMEM_FAULT_NOSLEEP) == 2);
	CHECK(fault(odp, m + 200, P, 0) == 0);
	CHECK(ib_umem_odp_present(odp, (uintptr_t)m + 100, P, true)); /* not less by a fault to read */
	CHECK(odp->mapped == 4 && mr.page_faults == 4 && mr.mapped_pages == 4);
	memset(b, 0x5a, sizeof(b));
	CHECK(dev_access(odp, m + 3000, b, 2 * P, true) == 0);
	CHECK((unsigned char)m[3000] == 0x5a && m[2999] == 0 && m[3000 + 2 * P] == 0);
	CHECK(dev_access(odp, m + 4 * P, b, P, true) == 1);

	if (odp->notifier.watched) {
		CHECK(!munmap(m + P, P));
		CHECK(!ib_umem_odp_present(odp, (uintptr_t)m + P, 1, false));
		mm_wait_start_dma();
		CHECK(ib_umem_odp_present(odp, (uintptr_t)m + 2 * P, P, true));
		CHECK(cnt(FL_CNT_page_invalidations) == inval + 1 && mr.page_invalidations == 1);
		CHECK(odp->mapped == 3 && mr.mapped_pages == 3);
		CHECK(fault(odp, m + P, 1, 0) == -EFAULT);
		CHECK(mmap(m + P, P, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m + P);
		CHECK(fault(odp, m + P, 1, 0) == 1);
	}
	/* no event comes for this: the access fails, and the fault knows better than the table */
	mprotect(m + 2 * P, P, PROT_NONE);
	CHECK(dev_access(odp, m + 2 * P, b, 8, false) == -1);
	CHECK(fault(odp, m + 2 * P, 8, 0) == 0);
	CHECK(fault(odp, m + 2 * P, 8, UMEM_FAULT_FORCE) == -EFAULT);
	CHECK(!ib_umem_odp_present(odp, (uintptr_t)m + 2 * P, 8, false));
	mprotect(m + 2 * P, P, PROT_READ);
	CHECK(fault(odp, m + 2 * P, 8, UMEM_FAULT_WRITE) == -EFAULT);
	CHECK(fault(odp, m + 2 * P, 8, 0) == 1);
	ib_umem_release(&odp->umem);
	CHECK(mr.mapped_pages == 0 && cnt(FL_CNT_mapped_pages) == 0);
	CHECK(cnt(FL_CNT_dma_maps) == cnt(FL_CNT_dma_unmaps));

	CHECK(!ib_umem_odp_get(&dev, (uintptr_t)m, P, IBV_ACCESS_REMOTE_READ, &u));
	CHECK(fault(to_ib_umem_odp(u), m, 8, UMEM_FAULT_WRITE) == -EPERM);
	CHECK(fault(to_ib_umem_odp(u), m, 8, 0) == 1);
	ib_umem_release(u);
}

/* 16 TiB: at once, and small; and a table that works at both its ends and across chunks */
static void huge(void)
{
	static const size_t sizes[] = {16ul << 20, (16ul << 20) + 1, 8ul << 30, (8ul << 30) + P,
				       16ul << 40};
	char b[1];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t n = sizes[i];
		char *m = mmap(NULL, n + P, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		struct ib_umem_odp *odp;
		double t = now(), best = 1;

		if (m == MAP_FAILED) /* vm.overcommit_memory=2, a small address space */
			continue;
		for (int k = 0; k < 5; k++) {
			t = now();
			odp = odp_get(m, n);
			t = now() - t;
			best = t < best ? t : best;
			if (k < 4)
				ib_umem_release(&odp->umem);
		}
		fprintf(stderr, "%zu MiB registered in %.0f us\n", n >> 20, best * 1e6);
		CHECK(best < 0.002);
		CHECK(fault(odp, m, 64, UMEM_FAULT_WRITE) == 1);
		CHECK(fault(odp, m + n - 1, 1, UMEM_FAULT_WRITE) == 1);
		b[0] = 7;
		CHECK(dev_access(odp, m + n - 1, b, 1, true) == 0 && m[n - 1] == 7);
		CHECK(fault(odp, m + (16ul << 20) - 5 * P, n > (17ul << 20) ? 10 * P : P, 0) > 0);
		if (n > 17ul << 20)
			CHECK(ib_umem_odp_present(odp, (uintptr_t)m + (16ul << 20) - 5 * P, 10 * P, false));
		CHECK(!ib_umem_odp_present(odp, (uintptr_t)m + n / 2, P, false));
		if (odp->notifier.watched) {
			CHECK(!munmap(m, n));
			mm_wait_start_dma();
			CHECK(odp->mapped == 0);
		}
		ib_umem_release(&odp->umem);
	}
}

static void *idle_thread(void *arg)
{
	struct faultline_hazard *h = dma_begin(P, 2 * P, KEY);

	dma_end(h);
	pthread_barrier_wait(arg);
	pthread_barrier_wait(arg);
	h = dma_begin(P, 2 * P, KEY);
	dma_end(h);
	return NULL;
}

/* more threads than slots: those that come late share one, and slots come back */
static void slots(void)
{
	enum { N = FAULTLINE_MAX_HAZARDS + 20 };
	static pthread_t t[N];
	pthread_barrier_t b;
	pthread_attr_t a;
	unsigned owned = 0;

	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 64 << 10);
	for (int round = 0; round < 2; round++) {
		pthread_barrier_init(&b, NULL, N + 1);
		for (int i = 0; i < N; i++)
			CHECK(!pthread_create(&t[i], &a, idle_thread, &b));
		pthread_barrier_wait(&b);
		pthread_barrier_wait(&b);
		for (int i = 0; i < N; i++)
			pthread_join(t[i], NULL);
	}
	for (int i = 0; i < FAULTLINE_MAX_HAZARDS - 1; i++)
		owned += seg.s->hazard[i].owner != 0;
	CHECK(owned == 1); /* this thread's */
}

static int entered;

static void *holder(void *arg)
{
	struct faultline_hazard *h = dma_begin(16 * P, 17 * P, KEY);

	__atomic_store_n(&entered, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&entered, __ATOMIC_SEQ_CST) == 1)
		sched_yield();
	usleep(20000);
	__atomic_store_n(&entered, 3, __ATOMIC_SEQ_CST);
	dma_end(h);
	return NULL;
}

static void waits(void)
{
	pthread_t t;

	for (int i = 0; i < 2; i++) {
		entered = 0;
		pthread_create(&t, NULL, holder, NULL);
		while (!__atomic_load_n(&entered, __ATOMIC_SEQ_CST))
			;
		dma_wait_range(15 * P, 16 * P); /* beside it */
		dma_wait_range(17 * P, 18 * P);
		dma_wait_key(KEY + 1);
		CHECK(__atomic_exchange_n(&entered, 2, __ATOMIC_SEQ_CST) == 1);
		if (i)
			dma_wait_range(0, 16 * P + 1);
		else
			dma_wait_key(KEY);
		CHECK(__atomic_load_n(&entered, __ATOMIC_SEQ_CST) == 3);
		pthread_join(t, NULL);
	}
}

/* a debugger's access that faults is an event, as any other, also when it is denied */
static void looked_at(void)
{
	char *m = anon(4 * P), c;
	struct ib_umem_odp *odp = odp_get(m, 4 * P);
	uint64_t events = cnt(FL_CNT_page_fault_events), pages = cnt(FL_CNT_page_faults);
	uint64_t denied = cnt(FL_CNT_page_faults_denied);

	CHECK(!ib_umem_copy_from(&c, &odp->umem, KEY, P - 1, 1) && !ib_umem_copy_from(&c, &odp->umem, KEY, 0, 1));
	CHECK(!ib_umem_copy_to(&odp->umem, KEY, P, m, 2 * P));
	CHECK(cnt(FL_CNT_page_fault_events) == events + 2 && cnt(FL_CNT_page_faults) == pages + 3);
	CHECK(cnt(FL_CNT_page_faults_denied) == denied);
	munmap(m + 3 * P, P);
	mm_wait_start_dma();
	CHECK(ib_umem_copy_from(&c, &odp->umem, KEY, 3 * P, 1) == -EFAULT);
	CHECK(cnt(FL_CNT_page_fault_events) == events + 3 && cnt(FL_CNT_page_faults_denied) == denied + 1);
	ib_umem_release(&odp->umem);
}

int main(void)
{
	umem_start();
	pinned();
	on_demand();
	huge();
	waits();
	slots();
	looked_at();
	return 0;
}
