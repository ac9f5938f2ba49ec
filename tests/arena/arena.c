/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An arena: everything allocated lies in the one MR and the device reaches it; what is freed leaves memory
 * and the device's tables; it is full in an orderly way; threads share it; the program's own malloc() is not
 * touched; arenas come and go.
 */
#include <faultline/arena.h>
#include <malloc.h>
#include <pthread.h>
#include "tests/e2e/rc.h"

#define MIB  (1ul << 20)
#define SPAN (256 * MIB)

static size_t resident(const struct faultline_arena *a)
{
	static unsigned char in[SPAN / PAGE + 1];
	size_t n = 0;

	CHECK(!mincore(a->base, a->size, in), "mincore: %s", strerror(errno));
	for (size_t i = 0; i < a->size / PAGE; i++)
		n += in[i] & 1;
	return n;
}

static void inside(const struct faultline_arena *a, const void *p, size_t size)
{
	const char *c = p, *base = a->base;

	CHECK(p && c >= base && c + size <= base + a->size, "%p is not of the arena", p);
}

static void whole_life(struct rc_side *s)
{
	enum { N = 64 };
	struct faultline_arena *a = faultline_arena_create(s->pd, SPAN, ALL_ACCESS);
	struct mallinfo2 before = mallinfo2();
	struct ibv_wc wc;
	uint8_t *p[N], *q;
	char *plain;

	CHECK(a, "faultline_arena_create: %s", strerror(errno));
	CHECK(a->size >= SPAN && a->mr->length == a->size && a->mr->addr == a->base, "the MR is not the span");
	CHECK(resident(a) == 0, "%zu pages before anything was allocated", resident(a));
	for (int i = 0; i < N; i++) {
		p[i] = faultline_arena_alloc(a, MIB);
		inside(a, p[i], MIB);
	}
	/* from one allocation to the next, through the device, both cold */
	rc_fill(p[0], MIB, 0, 5);
	for (int i = 0; i < N - 1; i++) {
		CHECK(!rc_post(s, IBV_WR_RDMA_WRITE, (uintptr_t)p[i], MIB, a->mr->lkey, (uintptr_t)p[i + 1],
			       a->mr->rkey),
		      "post");
		CHECK(rc_poll(s, &wc, 20) && wc.status == IBV_WC_SUCCESS, "WRITE %d: %s", i,
		      ibv_wc_status_str(wc.status));
	}
	CHECK(rc_differs(p[N - 1], MIB, 0, 5) == UINT64_MAX, "data");
	CHECK(resident(a) >= N * MIB / PAGE, "it is not resident");

	q = faultline_arena_realloc(a, p[1], 3 * MIB);
	inside(a, q, 3 * MIB);
	CHECK(rc_differs(q, MIB, 0, 5) == UINT64_MAX, "data after realloc()");
	p[1] = q;
	q = faultline_arena_aligned(a, 64 << 10, 100);
	inside(a, q, 100);
	CHECK(!((uintptr_t)q & 0xffff), "not aligned: %p", (void *)q);
	faultline_arena_free(a, q);
	errno = 0;
	CHECK(!faultline_arena_aligned(a, 3, 1) && errno == EINVAL, "an alignment of 3");

	for (int i = 0; i < N; i++)
		faultline_arena_free(a, p[i]);
	/* without a trim no more than the slack stays */
	CHECK(resident(a) * PAGE <= FAULTLINE_ARENA_SLACK + MIB, "%zu pages stay", resident(a));
	faultline_arena_trim(a);
	CHECK(resident(a) == 0, "%zu pages after a trim", resident(a));
	faultline_arena_free(a, NULL);

	plain = malloc(100);
	CHECK(plain < (char *)a->base || plain >= (char *)a->base + a->size, "malloc() allocates of the arena");
	free(plain);
	CHECK(mallinfo2().uordblks >= before.uordblks / 2, "malloc() is not the C library's any more");
	CHECK(!faultline_arena_destroy(a), "destroy");
}

static void full(struct rc_side *s)
{
	struct faultline_arena *a = faultline_arena_create(s->pd, 16 * MIB, IBV_ACCESS_LOCAL_WRITE);
	void *p[64];
	int n = 0;

	CHECK(a, "faultline_arena_create: %s", strerror(errno));
	while (n < 64 && (p[n] = faultline_arena_alloc(a, MIB)))
		n++;
	CHECK(n >= 12 && n <= 16 && errno == ENOMEM, "%d MiB of 16, %s", n, strerror(errno));
	CHECK(!faultline_arena_alloc(a, 17 * MIB) && !faultline_arena_alloc(a, SIZE_MAX / 2), "more than all");
	for (int round = 0; round < 100; round++) {
		faultline_arena_free(a, p[round % n]);
		p[round % n] = faultline_arena_alloc(a, MIB);
		CHECK(p[round % n], "what was freed cannot be had again");
	}
	/* with all of it in use */
	CHECK(!faultline_arena_destroy(a), "destroy");
	errno = 0;
	CHECK(!faultline_arena_create(s->pd, 0, 0) && errno == EINVAL, "of size 0");
}

static struct faultline_arena *shared;
static void *mailbox[64]; /* blocks go from thread to thread */

static void *worker(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < 20000; i++) {
		size_t size = 16 + (size_t)rand_r(&seed) % (i % 50 ? 3000 : 200000);
		uint64_t *p = faultline_arena_alloc(shared, size);

		CHECK(p, "alloc: %s", strerror(errno));
		inside(shared, p, size);
		p[0] = size;
		p[size / 8 - 1] = p[0];
		p = __atomic_exchange_n(&mailbox[rand_r(&seed) % 64], p, __ATOMIC_ACQ_REL);
		if (!p)
			continue;
		CHECK(p[p[0] / 8 - 1] == p[0], "another wrote into it");
		if (!(i % 7)) {
			p = faultline_arena_realloc(shared, p, 2 * p[0]);
			CHECK(p && p[p[0] / 8 - 1] == p[0], "realloc");
		}
		faultline_arena_free(shared, p);
	}
	return NULL;
}

static void threads(struct rc_side *s)
{
	pthread_t t[4];

	shared = faultline_arena_create(s->pd, SPAN, IBV_ACCESS_LOCAL_WRITE);
	CHECK(shared, "faultline_arena_create: %s", strerror(errno));
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, worker, (void *)i);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	CHECK(!faultline_arena_destroy(shared), "destroy");
}

int main(int argc, char **argv)
{
	struct rc_side s;

	rc_main(argc, argv);
	rc_open(&s);
	rc_make_qp(&s, &rc_default);
	rc_connect(&s, &s.me); /* to itself */
	whole_life(&s);
	full(&s);
	threads(&s);
	for (int i = 0; i < 200; i++) {
		struct faultline_arena *a = faultline_arena_create(s.pd, 64 * MIB, IBV_ACCESS_LOCAL_WRITE);

		CHECK(a && faultline_arena_alloc(a, 1000), "round %d: %s", i, strerror(errno));
		CHECK(!faultline_arena_destroy(a), "destroy");
	}
	rc_close(&s);
	return 0;
}
