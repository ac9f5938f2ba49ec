/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When munmap() has returned nothing of an access through an on-demand region lands in what is mapped there
 * next, as long as nothing faults there anew: here only the unmapping thread faults, before it unmaps. By
 * hooks, and (argument) by system calls that only userfaultfd tells of.
 */
#include <sys/syscall.h>
#include "tests/umem/umemtest.h"

#define PAGES 16

static char *m;
static struct ib_umem_odp *odp;
static int stop;
static uint64_t landed;

static void *writer(void *arg)
{
	char b[PAGES * P];

	memset(b, 0xff, sizeof(b));
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		if (!dev_access(odp, m, b, sizeof(b), true))
			__atomic_fetch_add(&landed, 1, __ATOMIC_RELAXED);
		else
			usleep(20);
	return NULL;
}

int main(int argc, char **argv)
{
	bool raw = argc > 1;
	pthread_t t[2];
	unsigned rounds = 0;

	alarm(60);
	umem_start();
	m = anon(PAGES * P);
	odp = odp_get(m, PAGES * P);
	if (raw && !odp->notifier.watched)
		SKIP("nobody tells of unmapping here");
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&t[i], NULL, writer, NULL));
	for (double end = now() + 2; now() < end; rounds++) {
		uint64_t before = __atomic_load_n(&landed, __ATOMIC_RELAXED);

		CHECK(fault(odp, m, PAGES * P, UMEM_FAULT_WRITE) >= 0);
		for (int i = 0; i < 1000 && __atomic_load_n(&landed, __ATOMIC_RELAXED) == before; i++)
			sched_yield();
		CHECK(!(raw ? (int)syscall(SYS_munmap, m, PAGES * P) : munmap(m, PAGES * P)));
		CHECK(mmap(m, PAGES * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			   0) == m);
		usleep(100);
		for (size_t i = 0; i < PAGES * P; i += 64)
			CHECK(!__atomic_load_n(&m[i], __ATOMIC_RELAXED));
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	fprintf(stderr, "%u rounds, %llu writes\n", rounds, (unsigned long long)landed);
	CHECK(rounds && landed > 10);
	ib_umem_release(&odp->umem);
	return 0;
}
