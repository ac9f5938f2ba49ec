/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that unmap with a lock held, which the program also takes around deregistration, while the device faults on
 * the same memory: no deadlock. One unmaps by a call that hooks see, one by one that the kernel alone tells of.
 * Argument: seconds (1.5).
 */
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "rc.h"

#define PAGES 16u
#define LEN   (PAGES * PAGE)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the program's own */
static uint8_t *m;
static int stop;

static void *unmaps(void *arg)
{
	bool raw = arg;
	unsigned seed = 1 + raw;
	unsigned long n = 0;

	for (; !__atomic_load_n(&stop, __ATOMIC_RELAXED); n++) {
		uint8_t *at = m + (size_t)rand_r(&seed) % PAGES * PAGE;

		pthread_mutex_lock(&lock);
		CHECK(!(raw ? (int)syscall(SYS_munmap, at, PAGE) : munmap(at, PAGE)), "munmap");
		CHECK(mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at, "mmap");
		pthread_mutex_unlock(&lock);
		usleep(20);
	}
	CHECK(n > 10, "%lu rounds", n);
	return NULL;
}

static bool arrived(struct rc_side *a)
{
	enum ibv_wc_status s = rc_wait(a);

	CHECK(s == IBV_WC_SUCCESS || s == IBV_WC_REM_ACCESS_ERR, "WRITE: %s", ibv_wc_status_str(s));
	return s == IBV_WC_SUCCESS;
}

int main(int argc, char **argv)
{
	double end = rc_now() + (argc > 1 ? atof(argv[1]) : 1.5);
	struct rc_side a, b;
	unsigned n, good = 0;
	pthread_t t[2];

	rc_main(argc, argv);
	alarm(100); /* a hang is a failure */
	rc_open(&a);
	rc_open(&b);
	m = rc_map(LEN);
	uint8_t *src = rc_map(LEN);
	struct ibv_mr *src_mr = rc_reg(&a, src, LEN, ALL_ACCESS);

	rc_pair(&a, &b, &rc_default);
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&t[i], NULL, unmaps, i ? m : NULL), "thread");
	for (n = 0; rc_now() < end; n++) {
		struct ibv_mr *mr = rc_reg(&b, m, LEN, ALL_ACCESS | ODP);
		bool whole = false;

		/* all of it, which may be unmapped in part: that is an error, and a new connection */
		CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)src, LEN, src_mr->lkey, (uintptr_t)m, mr->rkey), "post");
		if (n & 1)
			whole = arrived(&a);
		pthread_mutex_lock(&lock);
		CHECK(!ibv_dereg_mr(mr), "dereg"); /* also amid the WRITE */
		pthread_mutex_unlock(&lock);
		if (!(n & 1))
			whole = arrived(&a);
		good += whole;
		if (!whole)
			rc_pair(&a, &b, &rc_default);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	CHECK(n > 10 && good, "%u rounds, %u WRITEs arrived whole", n, good);
	CHECK(!ibv_dereg_mr(src_mr), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
