/* SPDX-License-Identifier: BSD-2-Clause */
/* The sequence protocol, driven by hand: a fault that an invalidation crosses is told; one that begins
 * while it runs waits; subscriptions that come and go meanwhile are put off. */
#include "tests/mm/mmtest.h"

static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER;
static int calls;

static bool invalidate(struct mmu_interval_notifier *mni, const struct mmu_notifier_range *range,
		       unsigned long seq)
{
	pthread_mutex_lock(&owner);
	mmu_interval_set_seq(mni, seq);
	calls++;
	pthread_mutex_unlock(&owner);
	return true;
}

static const struct mmu_interval_notifier_ops ops = {.invalidate = invalidate};
static struct mmu_interval_notifier mni, late;
static int step;

static void *reader(void *arg)
{
	__atomic_store_n(&step, 1, __ATOMIC_SEQ_CST);
	mmu_interval_read_begin(arg);
	CHECK(__atomic_load_n(&step, __ATOMIC_SEQ_CST) == 2);
	return NULL;
}

static void *remover(void *arg)
{
	__atomic_store_n(&step, 1, __ATOMIC_SEQ_CST);
	mmu_interval_notifier_remove(arg);
	CHECK(__atomic_load_n(&step, __ATOMIC_SEQ_CST) == 2);
	return NULL;
}

static void *inserter(void *arg)
{
	CHECK(!mmu_interval_notifier_insert(&late, (uintptr_t)arg, P, &ops));
	return NULL;
}

/* runs fn(arg) in a thread that has to wait until the invalidation of r ends */
static void waits_for_end(void *(*fn)(void *), void *arg, struct mmu_notifier_range *r)
{
	pthread_t t;

	step = 0;
	CHECK(!pthread_create(&t, NULL, fn, arg));
	while (!__atomic_load_n(&step, __ATOMIC_SEQ_CST))
		usleep(100);
	usleep(20000);
	__atomic_store_n(&step, 2, __ATOMIC_SEQ_CST);
	mmu_notifier_invalidate_range_end(r);
	pthread_join(t, NULL);
}

/* while invalidations come and go: a fault that passes retry saw no callback in between */
static struct mmu_interval_notifier busy;
static uint64_t version, seen_by_callback;
static int stop;

static bool bump(struct mmu_interval_notifier *m, const struct mmu_notifier_range *range,
		 unsigned long seq)
{
	pthread_mutex_lock(&owner);
	mmu_interval_set_seq(m, seq);
	seen_by_callback++;
	pthread_mutex_unlock(&owner);
	return true;
}

static const struct mmu_interval_notifier_ops bump_ops = {.invalidate = bump};

static void *changer(void *arg)
{
	struct mmu_notifier_range r = {0x100000, 0x104000, MMU_NOTIFY_CLEAR};

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		mmu_notifier_invalidate_range_start(&r);
		__atomic_fetch_add(&version, 1, __ATOMIC_SEQ_CST);
		mmu_notifier_invalidate_range_end(&r);
		usleep(10);
	}
	return NULL;
}

static void stress(void)
{
	pthread_t t[2];
	unsigned good = 0;

	CHECK(!mmu_interval_notifier_insert(&busy, 0x100000, 4 * P, &bump_ops));
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, changer, NULL);
	for (double end = now() + 10; good < 2000 && now() < end;) {
		unsigned long seq = mmu_interval_read_begin(&busy);
		uint64_t v = __atomic_load_n(&version, __ATOMIC_SEQ_CST);

		if (good % 7 == 0)
			usleep(5);
		pthread_mutex_lock(&owner);
		if (!mmu_interval_read_retry(&busy, seq)) {
			/* no callback ran since, and what runs now must call back before it changes */
			CHECK(__atomic_load_n(&version, __ATOMIC_SEQ_CST) == v);
			good++;
		}
		pthread_mutex_unlock(&owner);
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	mmu_interval_notifier_remove(&busy);
	CHECK(good > 100);
}

int main(void)
{
	char *m = anon(16 * P);
	struct mmu_notifier_range r = {(uintptr_t)m + P, (uintptr_t)m + 2 * P, MMU_NOTIFY_CLEAR};
	struct mmu_notifier_range apart = {(uintptr_t)m + 8 * P, (uintptr_t)m + 9 * P, MMU_NOTIFY_CLEAR};
	unsigned long seq;
	pthread_t t;

	mm_start("auto");
	CHECK(mmu_interval_notifier_insert(&mni, (uintptr_t)m, 0, &ops) == -EOVERFLOW);
	CHECK(mmu_interval_notifier_insert(&mni, -P, 2 * P, &ops) == -EOVERFLOW);
	CHECK(!mmu_interval_notifier_insert(&mni, (uintptr_t)m + 5, 4 * P - 10, &ops));
	CHECK(mni.start == (uintptr_t)m && mni.end == (uintptr_t)m + 4 * P);

	seq = mmu_interval_read_begin(&mni);
	CHECK(!mmu_interval_read_retry(&mni, seq));
	mmu_notifier_invalidate_range_start(&apart); /* somewhere else: nobody's business */
	CHECK(!calls && !mmu_interval_read_retry(&mni, seq));
	CHECK(mmu_interval_read_begin(&mni) == seq);
	mmu_notifier_invalidate_range_end(&apart);
	CHECK(!mmu_interval_read_retry(&mni, seq));

	mmu_notifier_invalidate_range_start(&r);
	CHECK(calls == 1 && mmu_interval_read_retry(&mni, seq));
	waits_for_end(reader, &mni, &r);
	CHECK(mmu_interval_read_retry(&mni, seq));
	seq = mmu_interval_read_begin(&mni);
	CHECK(!mmu_interval_read_retry(&mni, seq));

	/* inserted while an invalidation runs: does not wait, is not called, but its faults wait */
	mmu_notifier_invalidate_range_start(&r);
	CHECK(!pthread_create(&t, NULL, inserter, m + 8 * P));
	pthread_join(t, NULL);
	mmu_notifier_invalidate_range_start(&apart);
	CHECK(calls == 2);
	mmu_notifier_invalidate_range_end(&apart);
	waits_for_end(reader, &late, &r);
	mmu_notifier_invalidate_range_start(&apart);
	CHECK(calls == 3);
	/* removed while one runs: comes back when it has ended */
	waits_for_end(remover, &late, &apart);
	mmu_notifier_invalidate_range_start(&apart);
	CHECK(calls == 3);
	mmu_notifier_invalidate_range_end(&apart);

	/* inserted and removed again within one */
	mmu_notifier_invalidate_range_start(&r);
	CHECK(!mmu_interval_notifier_insert(&late, (uintptr_t)m + 8 * P, P, &ops));
	mmu_interval_notifier_remove(&late);
	mmu_notifier_invalidate_range_end(&r);
	mmu_notifier_invalidate_range_start(&apart);
	CHECK(calls == 4);
	mmu_notifier_invalidate_range_end(&apart);

	mmu_interval_notifier_remove(&mni);
	stress();
	return 0;
}
