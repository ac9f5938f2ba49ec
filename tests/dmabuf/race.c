/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Buffers of a small GPU, written and read by importers of all kinds while they are moved, evicted, pinned, mapped
 * by the CPU, closed and allocated anew. Every buffer's words are each one importer's, who counts in it: a word
 * that is lost, torn or another's is seen at its next access. One kind of importer copies without a lock, and covers a
 * copy under way by a fence. And vfio buffers that are revoked under access.
 */
#include "importer.h"

#include <sys/mman.h>

#define PAGE	4096ul
#define BUFFERS 6
#define PAGES	8ul
#define VRAM	(28 * PAGE) /* three of six and a half: somebody is always out */
#define SECONDS 2

static struct faultline_dmabuf_device *gpu;
static int bufs[BUFFERS];
static int over; /* atomic */
static unsigned long copies, moves, pins, evictions, revocations;

/* in threads, where cmocka's own way of failing does not lead out of */
#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static void wrong(const char *who, uint64_t is, uint64_t should)
{
	fprintf(stderr, "%s: %lu instead of %lu\n", who, is, should);
	abort();
}

static bool done(void)
{
	return __atomic_load_n(&over, __ATOMIC_RELAXED);
}

static void add(unsigned long *n)
{
	__atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
}

/* ---- an importer that copies with no lock held, and covers it by a fence ---- */

struct fenced {
	struct dma_buf_dev dev;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attach;
	struct sg_table *sgt; /* under resv */
	bool stale;	      /* under resv: to be unmapped, and mapped again */
	pthread_mutex_t lock; /* below */
	bool usable;
	struct dma_fence *running; /* a copy's */
	uint64_t context, seqno;
};

static void fenced_invalidate(struct dma_buf_attachment *attach)
{
	struct fenced *f = attach->importer_priv;
	struct dma_fence *fence;

	pthread_mutex_lock(&f->lock);
	f->usable = false;
	fence = f->running ? dma_fence_get(f->running) : NULL;
	pthread_mutex_unlock(&f->lock);
	f->stale = f->sgt;
	if (!fence)
		return;
	CHECK(dma_resv_reserve_fences(attach->dmabuf->resv, 1) == 0);
	dma_resv_add_fence(attach->dmabuf->resv, fence, DMA_RESV_USAGE_BOOKKEEP);
	dma_fence_put(fence);
}

static const struct dma_buf_attach_ops fenced_ops = {.allow_peer2peer = true,
						     .invalidate_mappings = fenced_invalidate};

static void fenced_drop_locked(struct fenced *f)
{
	if (f->sgt)
		dma_buf_unmap_attachment(f->attach, f->sgt, DMA_BIDIRECTIONAL);
	f->sgt = NULL;
	f->stale = false;
}

static void fenced_map(struct fenced *f)
{
	dma_resv_lock(f->dmabuf->resv, NULL);
	if (f->stale)
		fenced_drop_locked(f);
	if (!f->sgt && !dma_buf_map_attachment(f->attach, DMA_BIDIRECTIONAL, &f->sgt)) {
		dma_resv_wait_timeout(f->dmabuf->resv, DMA_RESV_USAGE_KERNEL, DMA_FENCE_FOREVER);
		dma_buf_assert_usable(f->attach);
		pthread_mutex_lock(&f->lock);
		f->usable = true;
		pthread_mutex_unlock(&f->lock);
	}
	dma_resv_unlock(f->dmabuf->resv);
}

static void *fenced_thread(void *arg)
{
	size_t word = 200;
	struct fenced f[BUFFERS];
	uint64_t count[BUFFERS] = {0};

	memset(f, 0, sizeof(f));
	for (int i = 0; i < BUFFERS; i++) {
		f[i].dev.name = "fenced";
		f[i].context = dma_fence_context_alloc(1);
		pthread_mutex_init(&f[i].lock, NULL);
		CHECK(dma_buf_get(bufs[i], &f[i].dmabuf) == 0);
		CHECK(dma_buf_dynamic_attach(f[i].dmabuf, &f[i].dev, &fenced_ops, &f[i], &f[i].attach) == 0);
	}
	for (unsigned n = 0; !done(); n++) {
		struct fenced *m = &f[n % BUFFERS];
		struct dma_fence *fence;
		volatile uint64_t *at;
		struct sg_table *t;

		pthread_mutex_lock(&m->lock);
		if (!m->usable) {
			pthread_mutex_unlock(&m->lock);
			fenced_map(m);
			continue;
		}
		fence = m->running = dma_fence_create(m->context, ++m->seqno);
		t = m->sgt; /* stays mapped while it is this thread that unmaps */
		pthread_mutex_unlock(&m->lock);

		at = (volatile uint64_t *)(uintptr_t)t->sgl[0].dma_address + word;
		if (*at != count[n % BUFFERS])
			wrong("fenced", *at, count[n % BUFFERS]);
		if (!(n % 7))
			sched_yield();
		*at = ++count[n % BUFFERS];
		add(&copies);

		pthread_mutex_lock(&m->lock);
		m->running = NULL;
		pthread_mutex_unlock(&m->lock);
		dma_fence_signal(fence);
		dma_fence_put(fence);
	}
	for (int i = 0; i < BUFFERS; i++) {
		dma_resv_lock(f[i].dmabuf->resv, NULL);
		pthread_mutex_lock(&f[i].lock);
		f[i].usable = false;
		pthread_mutex_unlock(&f[i].lock);
		fenced_drop_locked(&f[i]);
		dma_resv_unlock(f[i].dmabuf->resv);
		dma_buf_detach(f[i].dmabuf, f[i].attach);
		dma_buf_put(f[i].dmabuf);
		pthread_mutex_destroy(&f[i].lock);
	}
	return NULL;
}

/* ---- importers under a lock: one dynamic for long, and pinned ones that come and go ---- */

static void *dynamic_thread(void *arg)
{
	size_t at = (size_t)(uintptr_t)arg * 8;
	uint64_t count[BUFFERS] = {0}, seen;
	struct importer im[BUFFERS];

	for (int i = 0; i < BUFFERS; i++)
		CHECK(importer_get(&im[i], bufs[i], DYNAMIC) == 0);
	for (unsigned n = 0; !done(); n++) {
		unsigned i = n * 5 % BUFFERS;

		CHECK(importer_dma(&im[i], at, &seen, 8, false) == 0);
		if (seen != count[i])
			wrong("dynamic", seen, count[i]);
		count[i]++;
		CHECK(importer_dma(&im[i], at, &count[i], 8, true) == 0);
		add(&copies);
	}
	for (int i = 0; i < BUFFERS; i++)
		importer_release(&im[i]);
	return NULL;
}

static void *pinning_thread(void *arg)
{
	size_t at = (PAGES - 1) * PAGE + (size_t)(uintptr_t)arg * 8;
	uint64_t count[BUFFERS] = {0}, seen;
	unsigned seed = 5;

	while (!done()) {
		unsigned i = (unsigned)rand_r(&seed) % BUFFERS;
		enum importer_kind kind = rand_r(&seed) % 2 ? PINNED : REVOCABLE;
		struct importer im;
		unsigned told;
		uint64_t where;

		CHECK(importer_get(&im, bufs[i], kind) == 0);
		where = im.sgt->sgl[0].dma_address;
		told = im.told; /* of moves before the pin */
		for (int n = 0; n < 20; n++) {
			CHECK(importer_dma(&im, at, &seen, 8, false) == 0);
			if (seen != count[i])
				wrong("pinned", seen, count[i]);
			count[i]++;
			CHECK(importer_dma(&im, at, &count[i], 8, true) == 0);
		}
		CHECK(exporter_move(bufs[i], FAULTLINE_DMABUF_SYSTEM) == -EBUSY);
		CHECK(im.told == told);
		CHECK(im.sgt->sgl[0].dma_address == where);
		importer_release(&im);
		add(&pins);
		add(&copies);
	}
	return NULL;
}

/* ---- who moves ---- */

static void *mover_thread(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	while (!done()) {
		int fd = bufs[rand_r(&seed) % BUFFERS];
		int err = exporter_move(fd, rand_r(&seed) % 2 ? FAULTLINE_DMABUF_DEVICE : FAULTLINE_DMABUF_SYSTEM);

		CHECK(!err || err == -EBUSY || err == -ENOMEM);
		if (!err)
			add(&moves);
		usleep(200);
	}
	return NULL;
}

static void *evictor_thread(void *arg)
{
	unsigned seed = 77;

	while (!done()) {
		int fd, err = exporter_alloc(gpu, (1 + (size_t)rand_r(&seed) % 12) * PAGE, 0, &fd);
		char byte;

		CHECK(!err || err == -ENOMEM);
		if (!err) {
			/* its own bytes, never what was there before */
			CHECK(exporter_access(fd, 0, &byte, 1, false) == 0);
			CHECK(byte == 0);
			close(fd);
			add(&evictions);
		}
		err = exporter_evict(gpu, 16 * PAGE);
		CHECK(!err || err == -ENOSPC);
		usleep(500);
	}
	return NULL;
}

static void *cpu_thread(void *arg)
{
	size_t word = (size_t)(uintptr_t)arg;
	uint64_t count[BUFFERS] = {0}, seen;

	for (unsigned n = 0; !done(); n++) {
		unsigned i = n % BUFFERS;
		uint64_t *p;

		/* in turn by the device, and by the CPU */
		CHECK(exporter_access(bufs[i], word * 8, &seen, 8, false) == 0);
		if (seen != count[i])
			wrong("device", seen, count[i]);
		CHECK(exporter_mmap(bufs[i], 0, PAGE, PROT_READ | PROT_WRITE, (void **)&p) == 0);
		p[word] = ++count[i];
		CHECK(exporter_munmap(bufs[i], p, PAGE) == 0);
		usleep(300);
	}
	return NULL;
}

static void gpu_race(void **state)
{
	static void *(*const fn[])(void *) = {fenced_thread, dynamic_thread, dynamic_thread, pinning_thread,
					      mover_thread, mover_thread, evictor_thread, cpu_thread};
	pthread_t t[8];

	gpu = device(FAULTLINE_DMABUF_VRAM, VRAM, 0);
	for (int i = 0; i < BUFFERS; i++)
		bufs[i] = buffer(gpu, PAGES * PAGE);
	__atomic_store_n(&over, 0, __ATOMIC_RELAXED);
	for (uintptr_t i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&t[i], NULL, fn[i], (void *)(i + 1)), 0);
	sleep(SECONDS);
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	print_message("%lu copies, %lu moves, %lu pins, %lu allocations that evict, %lu evicted, %lu brought back\n",
		      copies, moves, pins, evictions, device_info(gpu).evictions, device_info(gpu).returns);
	/* or nothing was shown */
	assert_true(copies > 100 && moves > 3 && pins && evictions && device_info(gpu).evictions);
	for (int i = 0; i < BUFFERS; i++)
		close(bufs[i]);
	assert_int_equal(device_info(gpu).used, 0);
	assert_int_equal(device_info(gpu).stale, 0);
	assert_int_equal(exporter_close(gpu), 0);
	assert_nothing_left();
}

/* ---- revocation under access, and against a release that races with it ---- */

struct revoked {
	int fd;
	int started; /* atomic */
	enum importer_kind kind;
};

static void *accessing_thread(void *arg)
{
	struct revoked *r = arg;
	struct importer im;
	char b = 1;
	int err, n = 0;

	err = importer_get(&im, r->fd, r->kind);
	__atomic_fetch_add(&r->started, 1, __ATOMIC_RELEASE);
	if (err) {
		CHECK(err == -ENODEV); /* revoked before it came */
		return NULL;
	}
	/* one goes on until it is told; one goes away at about the same time */
	while (!(err = importer_dma(&im, r->kind, &b, 1, n & 1)) && (r->kind == DYNAMIC || n < 50))
		n++;
	CHECK(!err || err == -ENODEV);
	importer_release(&im);
	return NULL;
}

static void revoke_race(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VFIO, 0, 0);

	for (int round = 0; round < 200; round++) {
		struct revoked r[2] = {{.kind = DYNAMIC}, {.kind = REVOCABLE}};
		int fd = buffer(dev, PAGE);
		pthread_t t[2];
		struct faultline_dmabuf_info i;

		for (int n = 0; n < 2; n++) {
			r[n].fd = fd;
			assert_int_equal(pthread_create(&t[n], NULL, accessing_thread, &r[n]), 0);
		}
		while (round & 1 && !__atomic_load_n(&r[0].started, __ATOMIC_ACQUIRE))
			sched_yield();
		assert_int_equal(exporter_revoke(fd), 0);
		i = info_of(fd);
		assert_int_equal(i.maps + i.pins, 0); /* whoever is there still */
		add(&revocations);
		for (int n = 0; n < 2; n++)
			pthread_join(t[n], NULL);
		close(fd);
	}
	assert_int_equal(exporter_close(dev), 0);
	assert_nothing_left();
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(gpu_race), cmocka_unit_test(revoke_race)};

	alarm(100); /* a deadlock is a failure, too */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
