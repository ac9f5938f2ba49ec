/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Collision of faults and invalidations: threads take memory away and put other memory in its place
 * while others fault and access it as the device does, and one looks for reclaimed pages. The property: once
 * munmap() has returned and the place is mapped anew, no page of it is present in the table that was not
 * faulted in since, and so no access goes to the new memory by an old entry. argument: seconds to run.
 */
#include "tests/umem/umemtest.h"

#define CHANGERS 2
#define PAGES	 8

static struct ib_umem_odp *odp;
static char *base;
static int stop;
static uint64_t accesses, faults, checks;

/* Each changer has pages of its own; the device's thread is told to leave them while it looks. */
static struct area {
	pthread_mutex_t lock; /* shared by accesses (try) and the look after the change */
	char *m;
} area[CHANGERS];

static void *device(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	char buf[3 * P];

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		size_t off = (size_t)rand_r(&seed) % ((CHANGERS * PAGES - 3) * P), n = 1 + (size_t)rand_r(&seed) % (2 * P);
		bool write = rand_r(&seed) & 1;
		int r = dev_access(odp, base + off, buf, n, write);

		__atomic_fetch_add(&accesses, 1, __ATOMIC_RELAXED);
		if (r) {
			fault(odp, base + off, n,
			      (write ? UMEM_FAULT_WRITE : 0) | (r < 0 ? UMEM_FAULT_FORCE : 0));
			__atomic_fetch_add(&faults, 1, __ATOMIC_RELAXED);
		}
	}
	return NULL;
}

/* faults and accesses only its changer's area, and only when that does not look */
static void *polite(void *arg)
{
	struct area *a = arg;
	unsigned seed = (unsigned)(uintptr_t)arg;
	char buf[P];

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		char *at = a->m + (size_t)rand_r(&seed) % (PAGES * P - 64);

		pthread_mutex_lock(&a->lock);
		int r = dev_access(odp, at, buf, 64, true);

		if (r)
			fault(odp, at, 64, UMEM_FAULT_WRITE | (r < 0 ? UMEM_FAULT_FORCE : 0));
		pthread_mutex_unlock(&a->lock);
		__atomic_fetch_add(&accesses, 1, __ATOMIC_RELAXED);
		if (!(rand_r(&seed) & 15))
			usleep(1);
	}
	return NULL;
}

static void *changer(void *arg)
{
	struct area *a = arg;
	unsigned seed = (unsigned)(uintptr_t)arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		size_t p = (size_t)rand_r(&seed) % PAGES, n = 1 + (size_t)rand_r(&seed) % (PAGES - p);
		char *at = a->m + p * P;

		switch (rand_r(&seed) % 4) {
		case 0:
			madvise(at, n * P, MADV_DONTNEED);
			break;
		case 1:
			CHECK(mmap(at, n * P, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
			break;
		default:
			pthread_mutex_lock(&a->lock); /* polite threads keep out; munmap meets old copies */
			CHECK(!syscall(SYS_munmap, at, n * P));
			CHECK(mmap(at, n * P, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
			if (__atomic_load_n(&odp->notifier.watched, __ATOMIC_RELAXED))
				for (size_t i = 0; i < n; i++)
					CHECK(!ib_umem_odp_present(odp, (uintptr_t)at + i * P, 1, false));
			__atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED);
			pthread_mutex_unlock(&a->lock);
		}
	}
	return NULL;
}

/* what the kernel has reclaimed, and what it only seems so: pages that are gone or not there yet */
static void *reclaimer(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		mm_reclaim_scan();
	return NULL;
}

static void run(bool rude, double seconds)
{
	pthread_t t[CHANGERS * 2], scan;

	for (int i = 0; i < CHANGERS; i++) {
		pthread_create(&t[i], NULL, changer, &area[i]);
		pthread_create(&t[CHANGERS + i], NULL, rude ? device : polite, &area[i]);
	}
	pthread_create(&scan, NULL, reclaimer, NULL);
	usleep((unsigned)(seconds * 1e6));
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(scan, NULL);
	for (int i = 0; i < CHANGERS * 2; i++)
		pthread_join(t[i], NULL);
}

static void *registrar(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct ib_umem_odp *o = odp_get(base + 3 * P, 5 * P);

		fault(o, base + 3 * P, 5 * P, 0);
		ib_umem_release(&o->umem);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 2;
	pthread_t t;

	alarm((unsigned)seconds * 20 + 60);
	umem_start();
	base = anon(CHANGERS * PAGES * P);
	odp = odp_get(base, CHANGERS * PAGES * P);
	for (int i = 0; i < CHANGERS; i++) {
		pthread_mutex_init(&area[i].lock, NULL);
		area[i].m = base + (size_t)i * PAGES * P;
	}
	bool watched = odp->notifier.watched;

	run(false, seconds / 2);
	CHECK(checks > 0 && accesses > 0);
	/* what had gone when it was to be watched again did not pass for what cannot be watched */
	CHECK(odp->notifier.watched == watched);

	/* all at once, registrations too: nothing to assert but that it lives, and the books balance.
	 * The look after munmap needs the others to keep out, and so is not made. */
	odp->notifier.watched = false;
	__atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
	pthread_create(&t, NULL, registrar, NULL);
	run(true, seconds / 2);
	pthread_join(t, NULL);
	odp->notifier.watched = watched;

	munmap(base, CHANGERS * PAGES * P);
	mm_wait_start_dma();
	if (watched)
		CHECK(odp->mapped == 0);
	ib_umem_release(&odp->umem);
	CHECK(cnt(FL_CNT_dma_maps) == cnt(FL_CNT_dma_unmaps));
	CHECK(cnt(FL_CNT_mapped_pages) == 0);
	CHECK(cnt(FL_CNT_reclaim_scans) > 0);
	fprintf(stderr, "%lu accesses, %lu looks, %lu pages faulted, %lu invalidated, %lu looks for reclaimed ones\n",
		accesses, checks, cnt(FL_CNT_page_faults), cnt(FL_CNT_page_invalidations), cnt(FL_CNT_reclaim_scans));
	return 0;
}
