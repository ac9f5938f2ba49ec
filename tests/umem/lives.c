/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions that come and go leave no mapping split; a forked child has nothing and the parent goes on; a
 * region over the heap does not deadlock with its allocator. argument: cycles of the first (4000). */
#include <malloc.h>
#include "tests/umem/umemtest.h"

static void flat(long cycles)
{
	char *m = anon(64 * P), *f;
	unsigned before, at_end;
	int fd = memfd_create("t", 0);

	CHECK(!ftruncate(fd, 16 * P));
	f = mmap(NULL, 16 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ib_umem_release(&odp_get(m, P)->umem);
	before = mappings();
	for (long i = 0; i < cycles; i++) {
		size_t o = (size_t)(i * 7 % 50) * P, n = (1 + (size_t)i % 13) * P;
		struct ib_umem_odp *a = odp_get(m + o, n), *b = odp_get(m + o + P / 2, n / 2),
				   *c = odp_get(f + i % 8 * P, P);

		if (!(i % 3))
			CHECK(fault(a, m + o, n, UMEM_FAULT_WRITE) >= 0);
		ib_umem_release(&a->umem);
		ib_umem_release(&c->umem);
		ib_umem_release(&b->umem);
	}
	at_end = mappings();
	if (at_end > before + 1) {
		fprintf(stderr, "mappings: %u, then %u\n", before, at_end);
		_exit(1);
	}

	/* grown in place and moved by mremap() meanwhile: let go all the same */
	for (int i = 0; i < 200; i++) {
		char *g = gone(16 * P), *to = gone(64 * P) + 20 * P;
		struct ib_umem_odp *a;

		CHECK(mmap(g, 4 * P, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == g);
		a = odp_get(g, 4 * P);
		mremap(g, 4 * P, 8 * P, 0);
		CHECK(mremap(g, 2 * P, 2 * P, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
		ib_umem_release(&a->umem);
		munmap(g, 16 * P);
		munmap(to, 2 * P);
	}
	CHECK(mappings() <= before + 1);
}

/* ---- fork ---- */

static char *forked_base;
static struct ib_umem_odp *forked_odp;

static void child(void *arg)
{
	struct ib_umem_odp *mine;
	char b[8] = "child";

	mm_fork_child();
	seg_destroy(&seg);
	/* of the parent's watch nothing is left: this would hang if it waited for a thread */
	CHECK(!munmap(forked_base + P, P));
	umem_start();
	mine = odp_get(forked_base + 4 * P, 4 * P);
	CHECK(fault(mine, forked_base + 4 * P, P, UMEM_FAULT_WRITE) == 1);
	CHECK(!dev_access(mine, forked_base + 4 * P, b, 8, true));
	CHECK(!madvise(forked_base + 4 * P, P, MADV_DONTNEED));
	mm_wait_start_dma();
	if (mine->notifier.watched)
		CHECK(!ib_umem_odp_present(mine, (uintptr_t)forked_base + 4 * P, 8, false));
	ib_umem_release(&mine->umem);
	CHECK(cnt(FL_CNT_dma_maps) == 1 && cnt(FL_CNT_dma_unmaps) == 1);
}

static void forks(void)
{
	forked_base = anon(8 * P);
	forked_odp = odp_get(forked_base, 8 * P);
	CHECK(fault(forked_odp, forked_base, 8 * P, UMEM_FAULT_WRITE) == 8);
	for (int i = 0; i < 3; i++)
		CHECK(in_child(child, NULL) == 0);
	CHECK(ib_umem_odp_present(forked_odp, (uintptr_t)forked_base, 8 * P, true));
	CHECK(forked_base[4 * P] == 0);
	CHECK(!munmap(forked_base, P));
	mm_wait_start_dma();
	if (forked_odp->notifier.watched)
		CHECK(!ib_umem_odp_present(forked_odp, (uintptr_t)forked_base, 1, false));
	ib_umem_release(&forked_odp->umem);
}

/* ---- the heap ---- */

static int stop;
static uint64_t rounds;

static void *allocator(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	void *p[64] = {NULL};

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		unsigned i = (unsigned)rand_r(&seed) % 64;

		free(p[i]);
		p[i] = malloc(100 + (size_t)rand_r(&seed) % (i % 8 ? 20000 : 400000));
		if (p[i])
			memset(p[i], 1, 100);
		if (!(rand_r(&seed) % 256))
			malloc_trim(0);
		__atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED);
	}
	for (int i = 0; i < 64; i++)
		free(p[i]);
	return NULL;
}

static void heap(void)
{
	char *low = sbrk(0) - (1 << 20), b[64];
	struct ib_umem_odp *odp = odp_get(low, 64 << 20);
	pthread_t t[2];
	unsigned seed = 1;

	mallopt(M_TRIM_THRESHOLD, 64 << 10);
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	stop = 0;
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, allocator, (void *)(uintptr_t)(i + 1));
	for (double end = now() + 1.5; now() < end;) {
		char *at = low + (size_t)rand_r(&seed) % (2 << 20);
		struct ib_umem_odp *more = odp_get(at, 3 * P); /* allocates, among it all */

		if (dev_access(odp, at, b, 64, false))
			fault(odp, at, 64, UMEM_FAULT_FORCE);
		fault(more, at, P, 0);
		ib_umem_release(&more->umem);
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	ib_umem_release(&odp->umem);
	CHECK(rounds > 100);
	CHECK(cnt(FL_CNT_dma_maps) == cnt(FL_CNT_dma_unmaps));
}

int main(int argc, char **argv)
{
	alarm(100);
	umem_start();
	flat(argc > 1 ? atol(argv[1]) : 4000);
	forks();
	heap();
	return 0;
}
