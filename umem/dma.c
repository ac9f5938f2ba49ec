/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Accesses in flight. A thread that is about to touch application memory announces range and key in
 * its slot of the segment, looks whether key and pages still stand, copies, and clears the slot. Who
 * takes a key or pages away clears them first and then waits for the slots that name them. Either the
 * access sees them gone, or who takes them sees the access: both sides store, then load, and all four
 * are seq_cst. Slots lie in the segment so that, one day, peers announce theirs the same way.
 *
 * A thread claims a slot at its first access and gives it back when it ends. When all are taken the
 * rest share the last one, with a lock held from begin to end.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "umem/umem.h"
#include "util/log.h"

#define SHARED_SLOT (FAULTLINE_MAX_HAZARDS - 1)
#define SPINS	    200

static struct faultline_hazard *hazards;
static unsigned generation; /* of `hazards`: counts dma_init() */
static unsigned used;	    /* slots ever claimed are below; atomic */
static unsigned claimed;    /* own slots taken now; atomic */
static struct fl_mutex shared_lock = FL_MUTEX_INIT(LOCK_LEAF);
static pthread_key_t exit_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* static TLS: no allocation at first touch, and quick */
#define IN_STATIC_TLS __attribute__((tls_model("initial-exec")))
static _Thread_local IN_STATIC_TLS struct {
	struct faultline_hazard *slot;
	unsigned generation;
} mine;

static void thread_exit(void *arg)
{
	struct faultline_hazard *h = mine.slot;

	mine.slot = NULL;
	if (!h || mine.generation != generation)
		return;
	__atomic_fetch_sub(&claimed, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&h->owner, 0, __ATOMIC_RELEASE); /* pairs with claim() */
}

static void make_key(void)
{
	if (pthread_key_create(&exit_key, thread_exit))
		fl_warn("no thread key: slots of threads that end stay taken");
}

void dma_init(struct seg *seg)
{
	pthread_once(&once, make_key);
	hazards = seg->s->hazard;
	fl_mutex_init(&shared_lock, LOCK_LEAF);
	used = claimed = 0;
	generation++;
	mm_set_quiesce(dma_wait_range);
	mm_count_scans(&seg->s->device[0].counter[FL_CNT_reclaim_scans]);
}

static void raise_used(unsigned to)
{
	unsigned cur = __atomic_load_n(&used, __ATOMIC_RELAXED);

	/* seq_cst: before the first announcement in the slot (see wait_for) */
	while (cur < to && !__atomic_compare_exchange_n(&used, &cur, to, false, __ATOMIC_SEQ_CST,
							__ATOMIC_RELAXED))
		;
}

static __attribute__((noinline)) struct faultline_hazard *claim(void)
{
	uint32_t tid = (uint32_t)syscall(SYS_gettid);

	for (unsigned i = 0; __atomic_load_n(&claimed, __ATOMIC_RELAXED) < SHARED_SLOT && i < SHARED_SLOT;
	     i++) {
		uint32_t nobody = 0;

		if (!__atomic_compare_exchange_n(&hazards[i].owner, &nobody, tid, false,
						 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			continue;
		__atomic_fetch_add(&claimed, 1, __ATOMIC_RELAXED);
		raise_used(i + 1);
		mine.slot = &hazards[i];
		mine.generation = generation;
		pthread_setspecific(exit_key, mine.slot);
		return mine.slot;
	}
	raise_used(FAULTLINE_MAX_HAZARDS);
	fl_lock(&shared_lock);
	__atomic_store_n(&hazards[SHARED_SLOT].owner, tid, __ATOMIC_RELAXED);
	return &hazards[SHARED_SLOT];
}

struct faultline_hazard *dma_begin(uint64_t start, uint64_t end, uint32_t key)
{
	struct faultline_hazard *h = mine.slot;

	if (__builtin_expect(!h || mine.generation != generation, 0))
		h = claim();
	__atomic_store_n(&h->key, key, __ATOMIC_RELAXED);
	__atomic_store_n(&h->start, start, __ATOMIC_RELEASE);
	/* now it counts; the caller's looks come after. Pairs with wait_for(). */
	__atomic_store_n(&h->end, end, __ATOMIC_SEQ_CST);
	return h;
}

void dma_end(struct faultline_hazard *h)
{
	/* the copy is done before this is seen */
	__atomic_store_n(&h->end, __atomic_load_n(&h->start, __ATOMIC_RELAXED), __ATOMIC_RELEASE);
	if (__builtin_expect(h == &hazards[SHARED_SLOT], 0))
		fl_unlock(&shared_lock);
}

/*
 * `end` is read first: it was stored last, so start and key are of the same announcement or a later
 * one, and a later one looked at keys and pages after they were cleared.
 */
static bool overlaps(const struct faultline_hazard *h, uint64_t start, uint64_t end)
{
	uint64_t e = __atomic_load_n(&h->end, __ATOMIC_SEQ_CST);
	uint64_t s = __atomic_load_n(&h->start, __ATOMIC_ACQUIRE);

	return s < e && s < end && e > start;
}

static bool uses(const struct faultline_hazard *h, uint32_t key)
{
	uint64_t e = __atomic_load_n(&h->end, __ATOMIC_SEQ_CST);
	uint64_t s = __atomic_load_n(&h->start, __ATOMIC_ACQUIRE);

	return s != e && __atomic_load_n(&h->key, __ATOMIC_RELAXED) == key;
}

static void relax(unsigned *spins)
{
	if (++*spins < SPINS) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
	} else {
		sched_yield(); /* its thread was put off the CPU amid a copy */
	}
}

void dma_wait_range(uint64_t start, uint64_t end)
{
	unsigned n = __atomic_load_n(&used, __ATOMIC_SEQ_CST), spins = 0;

	/* Not for our own: a signal handler that unmaps what the copy it interrupted works on. */
	for (unsigned i = 0; i < n; i++)
		while (&hazards[i] != mine.slot && overlaps(&hazards[i], start, end))
			relax(&spins);
}

void dma_wait_key(uint32_t key)
{
	unsigned n = __atomic_load_n(&used, __ATOMIC_SEQ_CST), spins = 0;

	for (unsigned i = 0; i < n; i++)
		while (uses(&hazards[i], key))
			relax(&spins);
}
