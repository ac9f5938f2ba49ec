/* SPDX-License-Identifier: BSD-2-Clause */
/* Implicit regions: children come and go, across their borders, with memory that comes later; what is the
 * device's own is left out; children given back race with faults and with the region's end. */
#include "tests/sanitize.h"
#include "tests/umem/umemtest.h"

#define GIB (1ul << 30)

static struct ib_umem *everything(void)
{
	struct ib_umem *u;

	CHECK(!ib_umem_odp_alloc_implicit(&dev, IBV_ACCESS_LOCAL_WRITE, &u));
	return u;
}

/* as the device does it: 0, or the errno of a fault */
static int do_access(struct ib_umem *u, void *at, void *buf, size_t n, bool write)
{
	for (;;) {
		struct faultline_hazard *h = dma_begin((uintptr_t)at, (uintptr_t)at + n, KEY);
		enum umem_way way = u->ops->way(u, (uintptr_t)at, n, write, false);
		bool failed = way != UMEM_BY_ADDRESS;
		int rc;

		if (!failed)
			failed = copy_guarded(write ? at : buf, write ? buf : at, n);
		dma_end(h);
		if (!failed)
			return 0;
		CHECK(way == UMEM_FAULT || way == UMEM_BY_ADDRESS);
		rc = u->ops->fault(u, (uintptr_t)at, n,
				   (write ? UMEM_FAULT_WRITE : 0) |
					   (way == UMEM_BY_ADDRESS ? UMEM_FAULT_FORCE : 0));
		if (rc < 0)
			return rc;
	}
}

static void no_children(void)
{
	for (int i = 0; i < 5000 && cnt(FL_CNT_odp_children); i++)
		usleep(1000);
	CHECK(cnt(FL_CNT_odp_children) == 0);
}

static bool events_come(void)
{
	struct ib_umem_odp *odp = odp_get(anon(P), P);
	bool yes = odp->notifier.watched;

	ib_umem_release(&odp->umem);
	return yes;
}

static void basics(void)
{
	struct ib_umem *u = everything();
	char *hole = gone(3 * GIB), b[64] = "hello", *edge, *m = anon(4 * P), *ro = anon(P);

	CHECK(cnt(FL_CNT_odp_children) == 0);
	CHECK(!do_access(u, m + P - 3, b, 6, true) && !strcmp(m + P - 3, "hello"));
	CHECK(cnt(FL_CNT_odp_children) == 1 && cnt(FL_CNT_mapped_pages) == 2);
	/* nothing is there; and then there is; and it reaches from one child into the next */
	edge = (char *)(((uintptr_t)hole + GIB) & ~(GIB - 1));
	CHECK(do_access(u, edge - 4, b, 8, true) == -EFAULT);
	CHECK(mmap(edge - 4 * P, 8 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
	      MAP_FAILED);
	CHECK(!do_access(u, edge - 4, b, 8, true) && edge[-4] == 'h' && edge[0] == 'o');
	CHECK(!do_access(u, edge - 4, b + 32, 8, false) && !memcmp(b, b + 32, 8));
	mprotect(ro, P, PROT_READ);
	CHECK(do_access(u, ro, b, 4, true) == -EFAULT && !do_access(u, ro, b, 4, false));
	CHECK(do_access(u, (void *)(uintptr_t)basics, b, 4, true) == -EFAULT); /* text */
	CHECK(!do_access(u, (void *)(uintptr_t)basics, b, 4, false));
	CHECK(do_access(u, (void *)(1ul << 47), b, 4, false) == -EFAULT);
	CHECK(do_access(u, NULL, b, 4, false) == -EFAULT);
	CHECK(!do_access(u, b, m, 4, true)); /* the stack */
	/* the device's own */
	CHECK(do_access(u, seg.s, b, 8, false) == -EFAULT);
	mm_private_add(m + 2 * P, P);
	CHECK(do_access(u, m + 2 * P, b, 1, true) == -EFAULT && !do_access(u, m + 3 * P, b, 1, true));
	mm_private_remove(m + 2 * P);
	CHECK(!do_access(u, m + 2 * P, b, 1, true));
	if (events_come()) {
		CHECK(!munmap(edge - 4 * P, 8 * P));
		mm_wait_start_dma();
		CHECK(do_access(u, edge - 4, b, 8, true) == -EFAULT);
		CHECK(do_access(u, edge, b, 8, false) == -EFAULT);
	}
	/* parts pinned, over a border */
	CHECK(mmap(edge - 4 * P, 8 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
	      MAP_FAILED);
	CHECK(!ib_umem_pin(u, (uintptr_t)edge - P, 2 * P) && cnt(FL_CNT_pinned_pages) == 2);
	CHECK(ib_umem_unpin(u, (uintptr_t)edge - 2 * P, P) == -EINVAL);
	CHECK(!ib_umem_unpin(u, (uintptr_t)edge - P, 2 * P) && cnt(FL_CNT_pinned_pages) == 0);
	ib_umem_release(u);
	no_children();
	CHECK(cnt(FL_CNT_mapped_pages) == 0 && ib_dma_mapped(&dev) == 0);
	munmap(m, 4 * P);
	munmap(ro, P);
	munmap(edge - 4 * P, 8 * P);
}

/* what is touched far apart, and taken away, leaves nothing */
static void sparse(unsigned chunks)
{
	size_t stride = GIB, n = chunks * stride;
	char *at = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), b[8];
	struct ib_umem *u = everything();

	if (at == MAP_FAILED || !events_come()) { /* a small address space */
		ib_umem_release(u);
		return;
	}
	munmap(at, n);
	for (unsigned i = 0; i < chunks; i++) {
		char *m = at + i * stride;

		CHECK(mmap(m, P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m);
		b[0] = (char)i;
		CHECK(!do_access(u, m, b, 1, true) && *m == (char)i);
	}
	CHECK(cnt(FL_CNT_odp_children) == chunks);
	for (unsigned i = 0; i < chunks; i++)
		munmap(at + i * stride, P);
	no_children();
	CHECK(cnt(FL_CNT_mapped_pages) == 0);
	ib_umem_release(u);
}

/* ---- what is the device's own ---- */

#define MOST 4096
static struct {
	uint64_t start, end;
} mapped[2][MOST];

/* mappings that may be written; how many */
static unsigned list_mappings(unsigned which)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[4500], perms[5];
	unsigned n = 0;

	CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		CHECK(n < MOST);
		CHECK(sscanf(line, "%lx-%lx %4s", &mapped[which][n].start, &mapped[which][n].end, perms) == 3);
		n += perms[1] == 'w' && !strstr(line, "[heap]");
	}
	fclose(f);
	return n;
}

static bool was_mapped(uint64_t at, unsigned before)
{
	for (unsigned i = 0; i < before; i++)
		if (mapped[0][i].start <= at && at < mapped[0][i].end)
			return true;
	return false;
}

/* Whatever comes to be with the first regions is not reached by one: the threads' stacks, its table. */
static void own_mappings(void)
{
	char *m = anon(P);
	unsigned before = list_mappings(0), after, new = 0;
	struct ib_umem_odp *odp = odp_get(m, P);
	struct ib_umem *u = everything();

	after = list_mappings(1);
	for (unsigned i = 0; i < after; i++) {
		uint64_t first = mapped[1][i].start, last = mapped[1][i].end - P;

		CHECK(was_mapped(first, before) || mm_is_private(first, first + P));
		CHECK(was_mapped(last, before) || mm_is_private(last, last + P));
		new += !was_mapped(first, before);
	}
	CHECK(new);
	ib_umem_release(u);
	ib_umem_release(&odp->umem);
}

/* ---- races ---- */

static int released;

static void *releases(void *u)
{
	ib_umem_release(u);
	__atomic_store_n(&released, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* A child is to be given back, some 20 ms after its last page went, and an access in its range has begun: the child
 * stays until that has ended, and so does its region. */
static void given_back_amid_an_access(void)
{
	struct ib_umem *u = everything();
	struct faultline_hazard *h;
	pthread_t t;
	double from;
	char b = 1, *m;

	do {
		no_children();
		m = gone(2 * GIB);
		CHECK(mmap(m, P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == m);
		CHECK(!do_access(u, m, &b, 1, true) && cnt(FL_CNT_odp_children) == 1);
		from = now();
		munmap(m, P);
		h = dma_begin((uintptr_t)m, (uintptr_t)m + P, KEY);
		if (now() - from < 0.015)
			break; /* in time, before anybody looked for accesses */
		dma_end(h);
	} while (true);
	usleep(60000);
	CHECK(cnt(FL_CNT_odp_children) == 1);
	CHECK(!pthread_create(&t, NULL, releases, u));
	usleep(30000);
	CHECK(!__atomic_load_n(&released, __ATOMIC_SEQ_CST));
	dma_end(h);
	pthread_join(t, NULL);
	CHECK(cnt(FL_CNT_odp_children) == 0);
}

static int stop;
static char *arena;

static void *mapper(void *arg)
{
	char *m = arena + (size_t)(uintptr_t)arg * GIB;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		CHECK(mmap(m, 4 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m);
		sched_yield();
		munmap(m, 4 * P);
	}
	return NULL;
}

struct toucher {
	struct ib_umem *u;
	unsigned seed;
	uint64_t good, denied;
};

static void *toucher(void *arg)
{
	struct toucher *t = arg;
	char b[16] = "0123456789abcdef";

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		char *at = arena + rand_r(&t->seed) % 2 * GIB + (size_t)rand_r(&t->seed) % (4 * P - 16);
		int rc = do_access(t->u, at, b, 16, rand_r(&t->seed) & 1);

		CHECK(!rc || rc == -EFAULT);
		t->good += !rc;
		t->denied += rc != 0;
	}
	return NULL;
}

/* a child given back, while a fault wants it, while its region goes */
static void races(int rounds)
{
	for (int i = 0; i < rounds; i++) {
		struct ib_umem *u = everything();
		struct toucher t[2] = {{u, 1 + (unsigned)i, 0, 0}, {u, 77 + (unsigned)i, 0, 0}};
		pthread_t m[2], w[2];

		arena = gone(4 * GIB);
		__atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
		for (int k = 0; k < 2; k++) {
			pthread_create(&m[k], NULL, mapper, (void *)(uintptr_t)k);
			pthread_create(&w[k], NULL, toucher, &t[k]);
		}
		usleep(i < 2 ? 300000 : 3000);
		__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
		for (int k = 0; k < 2; k++)
			pthread_join(w[k], NULL);
		ib_umem_release(u); /* while the others' last events still come */
		for (int k = 0; k < 2; k++)
			pthread_join(m[k], NULL);
		if (i < 2)
			CHECK(t[0].denied && t[1].denied && t[0].good && t[1].good);
		no_children();
		CHECK(cnt(FL_CNT_dma_maps) == cnt(FL_CNT_dma_unmaps) && cnt(FL_CNT_mapped_pages) == 0);
	}
}

int main(int argc, char **argv)
{
	alarm(100);
	umem_start();
	mm_private_add(seg.s, seg.map_size);
	if (!SANITIZED)
		own_mappings();
	basics();
	sparse(argc > 1 ? (unsigned)atol(argv[1]) : 2000);
	if (events_come())
		given_back_amid_an_access();
	races(20);
	return 0;
}
