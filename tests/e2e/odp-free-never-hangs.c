/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All of the heap is registered on demand, and the device uses it all the time, while threads allocate, free and
 * trim it, which unmaps what the device has in its tables from inside of the allocator, with its lock held. Who
 * tells the device of that must not need the allocator: nobody hangs, and what threads keep is theirs.
 * Argument: seconds (2).
 */
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>
#include "rc.h"

#define THREADS 3

static struct rc_side a, b;
static int stop;
static uint64_t rounds[THREADS];
static uint8_t *look[THREADS]; /* where something is allocated, or was */

static void *allocates(void *arg)
{
	size_t me = (size_t)(uintptr_t)arg;
	unsigned seed = (unsigned)me + 1;
	uint8_t *p[32] = {NULL};
	size_t size[32] = {0};

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		size_t i = (size_t)rand_r(&seed) % 32;

		if (p[i])
			CHECK(p[i][0] == (uint8_t)i && p[i][size[i] - 1] == (uint8_t)i, "memory was overwritten");
		free(p[i]);
		size[i] = 64 + (size_t)rand_r(&seed) % (i % 8 ? 20000 : 600000);
		p[i] = malloc(size[i]);
		CHECK(p[i], "malloc");
		memset(p[i], (int)i, size[i]);
		__atomic_store_n(&look[me], p[i], __ATOMIC_RELAXED);
		if (!(rand_r(&seed) % 64))
			malloc_trim(0);
		__atomic_fetch_add(&rounds[me], 1, __ATOMIC_RELAXED);
	}
	for (size_t i = 0; i < 32; i++)
		free(p[i]);
	return NULL;
}

int main(int argc, char **argv)
{
	double end, seconds = argc > 1 ? atof(argv[1]) : 2;
	pthread_t t[THREADS];
	uint64_t reads = 0;

	rc_main(argc, argv);
	rc_open(&a);
	rc_open(&b);
	mallopt(M_TRIM_THRESHOLD, 64 << 10);
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	/* the heap that brk() moves, and all that malloc() maps */
	struct ibv_mr *all = ibv_reg_mr(b.pd, NULL, SIZE_MAX, IBV_ACCESS_REMOTE_READ | ODP);

	if (!all)
		rc_skip("this device has no implicit regions");
	uint8_t *to = rc_map(PAGE);
	struct ibv_mr *to_mr = rc_reg(&a, to, PAGE, ALL_ACCESS);

	for (size_t i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, allocates, (void *)(uintptr_t)i), "thread");
	alarm((unsigned)seconds + 60);
	rc_pair(&a, &b, &rc_default);
	for (end = rc_now() + seconds; rc_now() < end; reads++) {
		const uint8_t *at = __atomic_load_n(&look[reads % THREADS], __ATOMIC_RELAXED);
		enum ibv_wc_status s;

		if (!at)
			continue;
		CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)to, 64, to_mr->lkey, (uintptr_t)at, all->rkey), "post");
		s = rc_wait(&a);
		CHECK(s == IBV_WC_SUCCESS || s == IBV_WC_REM_ACCESS_ERR, "READ: %s", ibv_wc_status_str(s));
		if (s != IBV_WC_SUCCESS) /* freed and unmapped meanwhile */
			rc_pair(&a, &b, &rc_default);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (size_t i = 0; i < THREADS; i++) {
		CHECK(!pthread_join(t[i], NULL), "join");
		CHECK(rounds[i] > 20, "thread %zu allocated %lu times", i, rounds[i]);
	}
	CHECK(reads > 100, "%lu READs", reads);
	CHECK(!ibv_dereg_mr(all) && !ibv_dereg_mr(to_mr), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
