/* SPDX-License-Identifier: BSD-2-Clause */
/* Reservations: several at once without a deadlock, fences by their use; the rest of it is in rules.c. */
#include "importer.h"

static void uncontended(void **state)
{
	struct ww_acquire_ctx ctx;
	struct dma_resv a, b;

	dma_resv_init(&a);
	dma_resv_init(&b);
	assert_false(dma_resv_held(&a));
	assert_int_equal(dma_resv_lock(&a, NULL), 0);
	assert_true(dma_resv_held(&a));
	dma_resv_unlock(&a);
	ww_acquire_init(&ctx);
	assert_int_equal(dma_resv_lock(&b, &ctx), 0);
	assert_int_equal(dma_resv_lock(&a, &ctx), 0);
	assert_int_equal(dma_resv_lock(&a, &ctx), -EALREADY);
	dma_resv_unlock(&b);
	assert_false(dma_resv_held(&b));
	assert_true(dma_resv_held(&a));
	dma_resv_unlock(&a);
	ww_acquire_fini(&ctx);
	assert_true(dma_resv_trylock(&a));
	dma_resv_unlock(&a);
	dma_resv_fini(&a);
	dma_resv_fini(&b);
}

struct younger {
	struct dma_resv *mine, *theirs;
	struct ww_acquire_ctx ctx;
	int has; /* atomic */
	int err;
};

static void *younger_thread(void *arg)
{
	struct younger *y = arg;

	dma_resv_lock(y->mine, &y->ctx);
	__atomic_store_n(&y->has, 1, __ATOMIC_RELEASE);
	usleep(20000); /* the older waits for it by then */
	y->err = dma_resv_lock(y->theirs, &y->ctx); /* held by an older one that will want mine */
	dma_resv_unlock(y->mine);
	if (y->err == -EDEADLK) {
		dma_resv_lock_slow(y->theirs, &y->ctx);
		dma_resv_unlock(y->theirs);
	}
	return NULL;
}

/* the younger backs off, the older waits for it, and not the other way round */
static void younger_dies(void **state)
{
	struct ww_acquire_ctx old;
	struct younger y = {0};
	struct dma_resv a, b;
	pthread_t t;

	dma_resv_init(&a);
	dma_resv_init(&b);
	ww_acquire_init(&old);
	ww_acquire_init(&y.ctx);
	y.mine = &b;
	y.theirs = &a;
	dma_resv_lock(&a, &old);
	assert_int_equal(pthread_create(&t, NULL, younger_thread, &y), 0);
	while (!__atomic_load_n(&y.has, __ATOMIC_ACQUIRE))
		usleep(100);
	assert_int_equal(dma_resv_lock(&b, &old), 0);
	dma_resv_unlock(&b);
	dma_resv_unlock(&a);
	pthread_join(t, NULL);
	assert_int_equal(y.err, -EDEADLK);
	ww_acquire_fini(&old);
	ww_acquire_fini(&y.ctx);
	dma_resv_fini(&a);
	dma_resv_fini(&b);
}

#define RESVS	5
#define THREADS 4
#define ROUNDS	4000

static struct dma_resv storm[RESVS];
static unsigned long guarded[RESVS]; /* each by its reservation, with no other means */

static void *storm_thread(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	unsigned long backoffs = 0;

	for (int round = 0; round < ROUNDS; round++) {
		unsigned first = (unsigned)rand_r(&seed) % RESVS, n = 2 + (unsigned)rand_r(&seed) % 2;
		unsigned step = 1 + (unsigned)rand_r(&seed) % (RESVS - 1); /* 5 is prime: all differ */
		int contended = -1, held[3];
		struct ww_acquire_ctx ctx;
		unsigned i;

		ww_acquire_init(&ctx);
	retry:
		for (i = 0; i < n; i++)
			held[i] = 0;
		if (contended >= 0) {
			dma_resv_lock_slow(&storm[contended], &ctx);
			for (i = 0; i < n; i++)
				if ((int)((first + i * step) % RESVS) == contended)
					held[i] = 1;
		}
		for (i = 0; i < n; i++) {
			unsigned r = (first + i * step) % RESVS;

			if (held[i])
				continue;
			if (dma_resv_lock(&storm[r], &ctx)) {
				for (unsigned j = 0; j < n; j++)
					if (held[j])
						dma_resv_unlock(&storm[(first + j * step) % RESVS]);
				contended = (int)r;
				backoffs++;
				goto retry;
			}
			held[i] = 1;
			if (!(rand_r(&seed) % 8))
				sched_yield();
		}
		for (i = 0; i < n; i++)
			guarded[(first + i * step) % RESVS]++;
		for (i = 0; i < n; i++)
			dma_resv_unlock(&storm[(first + i * step) % RESVS]);
		ww_acquire_fini(&ctx);
		if (!(round % 16)) { /* and somebody who wants only one */
			dma_resv_lock(&storm[first], NULL);
			guarded[first]++;
			dma_resv_unlock(&storm[first]);
		}
	}
	return (void *)backoffs;
}

static void storm_ends(void **state)
{
	pthread_t t[THREADS];
	unsigned long backoffs = 0;

	for (int i = 0; i < RESVS; i++)
		dma_resv_init(&storm[i]);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, storm_thread, (void *)(i + 1)), 0);
	for (int i = 0; i < THREADS; i++) {
		void *r;

		pthread_join(t[i], &r);
		backoffs += (unsigned long)r;
	}
	assert_true(backoffs > 0); /* or nothing was contended, and nothing shown */
	for (int i = 0; i < RESVS; i++)
		dma_resv_fini(&storm[i]);
}

static void *queueing_thread(void *arg)
{
	struct younger *q = arg;

	dma_resv_lock(q->mine, NULL);
	q->has = 1;
	dma_resv_unlock(q->mine);
	return NULL;
}

/* who gives it back and wants it again comes after who waits for it */
static void queue_is_kept(void **state)
{
	struct dma_resv a;
	struct younger q = {.mine = &a};
	bool waits = false;
	pthread_t t;

	dma_resv_init(&a);
	dma_resv_lock(&a, NULL);
	assert_int_equal(pthread_create(&t, NULL, queueing_thread, &q), 0);
	while (!waits) {
		usleep(100);
		fl_lock(&a.lock);
		waits = a.tickets == a.served + 1;
		fl_unlock(&a.lock);
	}
	dma_resv_unlock(&a);
	dma_resv_lock(&a, NULL);
	assert_int_equal(q.has, 1);
	dma_resv_unlock(&a);
	pthread_join(t, NULL);
	dma_resv_fini(&a);
}

static void called(struct dma_fence *f, struct dma_fence_cb *cb)
{
	cb->func = NULL;
}

static void fences(void **state)
{
	struct dma_fence *f = dma_fence_create(dma_fence_context_alloc(1), 1);
	struct dma_fence_cb cb, off;

	assert_int_equal(dma_fence_get_status(f), 0);
	assert_int_equal(dma_fence_wait_timeout(f, 5), 0);
	assert_int_equal(dma_fence_add_callback(f, &cb, called), 0);
	assert_int_equal(dma_fence_add_callback(f, &off, called), 0);
	assert_true(dma_fence_remove_callback(f, &off));
	dma_fence_set_error(f, -EIO);
	assert_int_equal(dma_fence_signal(f), 0);
	assert_null(cb.func);
	assert_non_null(off.func);
	assert_int_equal(dma_fence_signal(f), -EINVAL);
	assert_int_equal(dma_fence_get_status(f), -EIO);
	assert_int_equal(dma_fence_add_callback(f, &cb, called), -ENOENT);
	assert_int_equal(dma_fence_wait_timeout(f, DMA_FENCE_FOREVER), 1);
	dma_fence_put(f);
}

static void *signal_soon(void *arg)
{
	usleep(20000);
	dma_fence_signal(arg);
	return NULL;
}

static void usages(void **state)
{
	struct dma_fence *read, *move, *later;
	uint64_t context = dma_fence_context_alloc(1);
	struct dma_resv r;
	pthread_t t;

	dma_resv_init(&r);
	dma_resv_lock(&r, NULL);
	read = dma_fence_create(dma_fence_context_alloc(1), 1);
	assert_int_equal(dma_resv_reserve_fences(&r, 1), 0);
	dma_resv_add_fence(&r, read, DMA_RESV_USAGE_READ);
	assert_true(dma_resv_test_signaled(&r, DMA_RESV_USAGE_WRITE));
	assert_false(dma_resv_test_signaled(&r, DMA_RESV_USAGE_READ));
	assert_int_equal(dma_resv_wait_timeout(&r, DMA_RESV_USAGE_KERNEL, 0), 1);
	assert_int_equal(dma_resv_wait_timeout(&r, DMA_RESV_USAGE_BOOKKEEP, 5), 0);
	dma_fence_signal(read);
	assert_int_equal(dma_resv_wait_timeout(&r, DMA_RESV_USAGE_BOOKKEEP, 5), 1);

	/* a later one of a timeline stands for the earlier */
	move = dma_fence_create(context, 1);
	later = dma_fence_create(context, 2);
	assert_int_equal(dma_resv_reserve_fences(&r, 1), 0);
	dma_resv_add_fence(&r, move, DMA_RESV_USAGE_KERNEL);
	dma_resv_add_fence(&r, later, DMA_RESV_USAGE_KERNEL);
	assert_int_equal(r.num_fences, 1);
	assert_int_equal(pthread_create(&t, NULL, signal_soon, later), 0);
	assert_int_equal(dma_resv_wait_timeout(&r, DMA_RESV_USAGE_KERNEL, DMA_FENCE_FOREVER), 1);
	pthread_join(t, NULL);
	dma_resv_unlock(&r);
	dma_fence_put(read);
	dma_fence_put(move);
	dma_fence_put(later);
	dma_resv_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uncontended), cmocka_unit_test(younger_dies), cmocka_unit_test(storm_ends),
		cmocka_unit_test(queue_is_kept),
		cmocka_unit_test(fences),      cmocka_unit_test(usages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
