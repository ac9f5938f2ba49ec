/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pinned memory against munmap() and mmap() at the same place: a device writes to the region without
 * a pause, by address while it may and through the pin from then on. Once munmap() has returned no byte
 * lands in what is mapped there next, and the pinned pages have every write. argument: rounds.
 */
#include "tests/umem/umemtest.h"
#include "util/log.h"

#define PAGES 4

static struct ib_umem *umem;
static char *m;
static int stop;
static uint64_t by_address, by_pin;

/* What the device does: announce, look, copy; else through the pin. */
static void dev_write(char *at, const void *buf, size_t n)
{
	struct faultline_hazard *h = dma_begin((uintptr_t)at, (uintptr_t)at + n, KEY);
	bool intact = umem->ops->way(umem, (uintptr_t)at, n, false, false) == UMEM_BY_ADDRESS;
	bool stale = ib_umem_pinned_stale(umem, (uintptr_t)at, n);
	bool done = intact && !copy_guarded(at, buf, n);

	dma_end(h);
	if (done) {
		__atomic_fetch_add(&by_address, 1, __ATOMIC_RELAXED);
		return;
	}
	if (!intact && !stale) { /* all access holds off */
		mm_wait_start_dma();
		dev_write(at, buf, n);
		return;
	}
	CHECK(!umem->ops->copy(umem, KEY, (uintptr_t)at, (void *)(uintptr_t)buf, n, true));
	__atomic_fetch_add(&by_pin, 1, __ATOMIC_RELAXED);
}

static void *device(void *arg)
{
	char buf[PAGES * P];

	memset(buf, 0x5a, sizeof(buf));
	for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		size_t at = i % 7 * 900;

		dev_write(m + at, buf, 64 + i % 3 * 3000);
	}
	return NULL;
}

/* false: another thread's mapping came to lie there first, and the place is not ours */
static bool take(int how)
{
	if (how == 0) {
		CHECK(!syscall(SYS_munmap, m, PAGES * P));
		return mmap(m, PAGES * P, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == m;
	} else if (how == 1) {
		/* without a hook it is told of when the new mapping is there: what was under way may land
		 * in it before mmap() returns, nothing after */
		CHECK(mmap(m, PAGES * P, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m);
		memset(m, 0, PAGES * P);
	} else {
		CHECK(!madvise(m, PAGES * P, MADV_DONTNEED));
	}
	return true;
}

static void round_of(int how)
{
	char copy[64];
	pthread_t t;
	bool ours;

	stop = 0;
	m = anon(PAGES * P);
	CHECK(!ib_umem_get(&dev, (uintptr_t)m, PAGES * P, IBV_ACCESS_LOCAL_WRITE, &umem));
	if (!strcmp(pin_how(umem->pin), "mlock"))
		SKIP("io_uring does not pin here");
	CHECK(!pthread_create(&t, NULL, device, NULL));
	usleep(300);
	ours = take(how);
	usleep(200);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	for (size_t i = 0; ours && i < PAGES * P; i++)
		CHECK(!m[i]);
	dev_write(m + 10, "pinned pages", 12);
	CHECK(!umem->ops->copy(umem, KEY, (uintptr_t)m + 10, copy, 12, false));
	CHECK(!memcmp(copy, "pinned pages", 12) && (!ours || !m[10]));
	ib_umem_release(umem);
	if (ours)
		munmap(m, PAGES * P);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 300;
	struct ib_umem_odp *odp;

	alarm(100);
	fl_log_level = LOG_ERR;
	umem_start();
	odp = odp_get(anon(P), P);
	if (!odp->notifier.watched)
		SKIP("nothing tells of changes here");
	ib_umem_release(&odp->umem);
	for (int i = 0; i < rounds; i++)
		round_of(i % 3);
	CHECK(by_address && by_pin);
	CHECK(cnt(FL_CNT_mr_pinned_stale) >= by_pin);
	CHECK(cnt(FL_CNT_dma_maps) == cnt(FL_CNT_dma_unmaps));
	fprintf(stderr, "%lu writes by address, %lu through the pin\n", by_address, by_pin);
	return 0;
}
