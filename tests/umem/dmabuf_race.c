/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dma-buf regions under the hands of their exporters: devices write, read and add without a pause, while one
 * thread moves the buffer, one evicts it, one pins it by a region of its own; and no byte is lost or torn. And
 * regions that are revoked while they are used and while they are released: from the return of the revocation on
 * no access succeeds, and what was told once is not told again. argument: seconds.
 */
#include "dmabuf/exporter.h"
#include "tests/umem/umemtest.h"
#include "umem/umem_dmabuf.h"
#include "util/provoke.h"

#define RW	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define DEVICES 3
#define PAGES	12ul
#define STRIPE	(PAGES * P / DEVICES - 64) /* a device's; not of whole pages, so they share some */

static struct faultline_dmabuf_device *gpu;
static struct ib_umem *umem;
static int fd, stop;
static uint64_t added, faults, moves, busy, pins;

static bool stopped(void)
{
	return __atomic_load_n(&stop, __ATOMIC_RELAXED);
}

static void count(uint64_t *what)
{
	__atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

static void pause_us(unsigned us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* as a device: where the memory is not to be had, it faults */
static void dev_copy(uint64_t at, void *buf, size_t n, bool write)
{
	while (umem->ops->copy(umem, KEY, at, buf, n, write)) {
		CHECK(umem->ops->fault(umem, at, n, write ? UMEM_FAULT_WRITE : 0) >= 0);
		count(&faults);
	}
}

static void dev_add(uint64_t at)
{
	uint64_t orig;

	while (umem->ops->atomic(umem, KEY, at, false, 1, 0, &orig)) {
		CHECK(umem->ops->fault(umem, at, 8, UMEM_FAULT_WRITE) >= 0);
		count(&faults);
	}
	count(&added);
}

static void *device_works(void *arg)
{
	uint64_t base = (uintptr_t)arg * STRIPE, seq = 0, buf[STRIPE / 8];

	while (!stopped()) {
		size_t from = seq * 40 % 4096, n = STRIPE - from;

		n -= seq % 3 * 1000 & ~7ul;
		for (size_t i = 0; i < n / 8; i++)
			buf[i] = seq << 32 | (uintptr_t)arg << 24 | i;
		dev_copy(base + from, buf, n & ~7ul, true);
		dev_add(PAGES * P - 8);
		memset(buf, 0, sizeof(buf));
		dev_copy(base + from, buf, n & ~7ul, false);
		for (size_t i = 0; i < n / 8; i++)
			CHECK(buf[i] == (seq << 32 | (uintptr_t)arg << 24 | i));
		seq++;
	}
	return NULL;
}

static void *mover(void *arg)
{
	for (unsigned i = 0; !stopped(); i++) {
		int err = exporter_move(fd, i & 1 ? FAULTLINE_DMABUF_DEVICE : FAULTLINE_DMABUF_SYSTEM);

		CHECK(!err || err == -EBUSY || err == -ENOMEM);
		count(err ? &busy : &moves);
		pause_us(100);
	}
	return NULL;
}

/* of another buffer's owner: it wants the room, and gives it back */
static void *evictor(void *arg)
{
	while (!stopped()) {
		int other, err = exporter_alloc(gpu, 10 * P, 0, &other);

		CHECK(!err || err == -ENOMEM); /* that: pinned there just now */
		if (!err)
			CHECK(!close(other));
		pause_us(200);
	}
	return NULL;
}

static void *pinner(void *arg)
{
	for (unsigned i = 0; !stopped(); i++) {
		struct ib_umem *u;
		uint64_t sum;

		if (i & 1) {
			CHECK(!ib_umem_dmabuf_get_pinned(&dev, 0, PAGES * P, fd, RW, &u));
		} else {
			CHECK(!ib_umem_dmabuf_get_pinned_revocable_and_lock(&dev, 0, PAGES * P, fd, RW, &u));
			ib_umem_dmabuf_revoke_unlock(u);
		}
		CHECK(exporter_move(fd, FAULTLINE_DMABUF_SYSTEM) == -EBUSY);
		CHECK(!u->ops->copy(u, KEY, PAGES * P - 8, &sum, 8, false));
		ib_umem_release(u);
		count(&pins);
		pause_us(400);
	}
	return NULL;
}

static void nothing_left(void)
{
	struct faultline_dmabuf_totals t;

	CHECK(!exporter_totals(&t));
	CHECK(!t.buffers && !t.attachments && !t.maps && !t.pins && !t.rule_breaks);
	CHECK(!ib_dma_mapped(&dev) && !cnt(FL_CNT_pinned_pages) && !cnt(FL_CNT_mapped_pages));
}

static void moves_under_traffic(double seconds)
{
	static void *(*const others[])(void *) = {mover, evictor, pinner};
	pthread_t t[DEVICES + 3];
	struct faultline_mr mr = {0};
	uint64_t sum;

	CHECK(!exporter_open(&(struct faultline_dmabuf_device_attr){.kind = FAULTLINE_DMABUF_VRAM, .size = 20 * P}, &gpu));
	CHECK(!exporter_alloc(gpu, PAGES * P, 0, &fd));
	CHECK(!ib_umem_dmabuf_get(&dev, 0, PAGES * P, fd, RW, &umem));
	umem->stat = &mr;
	ib_umem_dmabuf_publish(umem);
	stop = 0;
	for (uintptr_t i = 0; i < DEVICES; i++)
		CHECK(!pthread_create(&t[i], NULL, device_works, (void *)i));
	for (unsigned i = 0; i < 3; i++)
		CHECK(!pthread_create(&t[DEVICES + i], NULL, others[i], NULL));
	for (double until = now() + seconds; now() < until;)
		pause_us(10000);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < DEVICES + 3; i++)
		CHECK(!pthread_join(t[i], NULL));
	CHECK(!exporter_access(fd, PAGES * P - 8, &sum, 8, false) && sum == added);
	CHECK(mr.dma_maps - mr.dma_unmaps == mr.mapped_pages);
	ib_umem_release(umem);
	CHECK(!close(fd) && !exporter_close(gpu));
	nothing_left();
	fprintf(stderr, "%lu adds, %lu faults, %lu moves, %lu refused, %lu pins\n", added, faults, moves, busy, pins);
}

/* ---- revocation ---- */

static struct revocation {
	struct ib_umem *umem;
	uint32_t key; /* as hw's: 0 when dead */
	unsigned told;
	bool gone; /* the revocation has returned */
	uint64_t done;
	unsigned refused;
} rev;

/* what hca_mr_revoke() does */
static void key_dies(void *priv)
{
	__atomic_store_n(&rev.key, 0, __ATOMIC_SEQ_CST);
	dma_wait_key(KEY);
	rev.told++;
}

static void *uses_until_refused(void *arg)
{
	char buf[2 * P];
	int err = 0;

	memset(buf, 0x5a, sizeof(buf));
	do {
		bool gone = __atomic_load_n(&rev.gone, __ATOMIC_SEQ_CST);

		/* as mr_get(): no access begins by a dead key, or they would be waited for again and again */
		if (!gone && !__atomic_load_n(&rev.key, __ATOMIC_SEQ_CST))
			continue;
		err = rev.umem->ops->copy(rev.umem, KEY, 100, buf, sizeof(buf) - 200, true);
		CHECK(!err || err == -EACCES);
		CHECK(err || !gone);
		if (!err)
			__atomic_fetch_add(&rev.done, 1, __ATOMIC_RELAXED);
	} while (!err);
	__atomic_fetch_add(&rev.refused, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void *revokes(void *arg)
{
	pause_us((uintptr_t)arg);
	CHECK(!exporter_revoke(fd));
	__atomic_store_n(&rev.gone, true, __ATOMIC_SEQ_CST);
	return NULL;
}

/* with_dereg: nobody uses it, and it is released at about the same time */
static void revoke_once(struct faultline_dmabuf_device *d, unsigned round, bool with_dereg)
{
	pthread_t t[3];

	memset(&rev, 0, sizeof(rev));
	rev.key = KEY;
	CHECK(!exporter_alloc(d, 2 * P, 0, &fd));
	CHECK(!ib_umem_dmabuf_get_pinned_revocable_and_lock(&dev, 0, 2 * P, fd, RW, &rev.umem));
	ib_umem_dmabuf_set_revoke_locked(rev.umem, key_dies, NULL);
	ib_umem_dmabuf_revoke_unlock(rev.umem);
	CHECK(!pthread_create(&t[0], NULL, revokes, (void *)(uintptr_t)(round % 7 * 20)));
	for (unsigned i = 1; i < 3 && !with_dereg; i++)
		CHECK(!pthread_create(&t[i], NULL, uses_until_refused, NULL));
	if (with_dereg) {
		pause_us(round % 5 * 20);
		ib_umem_release(rev.umem);
	}
	for (unsigned i = 0; i < (with_dereg ? 1u : 3u); i++)
		CHECK(!pthread_join(t[i], NULL));
	if (!with_dereg) {
		CHECK(rev.told == 1 && !rev.key && rev.refused == 2);
		ib_umem_release(rev.umem);
	}
	CHECK(rev.told <= 1);
	CHECK(!close(fd));
	nothing_left();
}

static void revocations(unsigned rounds)
{
	struct faultline_dmabuf_device *d;
	uint64_t done = 0;
	unsigned told = 0;

	CHECK(!exporter_open(&(struct faultline_dmabuf_device_attr){.kind = FAULTLINE_DMABUF_VFIO}, &d));
	for (unsigned i = 0; i < rounds; i++) {
		revoke_once(d, i, false);
		done += rev.done;
		revoke_once(d, i, true);
		told += rev.told;
	}
	CHECK(!exporter_close(d));
	fprintf(stderr, "%u rounds: %lu accesses before; %u of the releases came second\n", rounds, done, told);
	CHECK(done);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1.0;
	struct provoke p = {.seed = 1, .races = 1u << PROVOKE_ACCESS_CHECKED};

	umem_start();
	moves_under_traffic(seconds);
	revocations(60);
	provoke_set(&p);
	added = 0; /* of the new buffer */
	moves_under_traffic(seconds);
	revocations(60);
	CHECK(added && faults && moves && busy && pins);
	return 0;
}
