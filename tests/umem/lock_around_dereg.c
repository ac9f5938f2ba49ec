/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that unmap with a lock held, which the program also takes around deregistration: no deadlock. */
#include "tests/umem/umemtest.h"

#define PAGES 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the program's own */
static char *m;
static int stop;

static void *unmaps(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	unsigned long n = 0;

	for (; !__atomic_load_n(&stop, __ATOMIC_RELAXED); n++) {
		char *at = m + (size_t)rand_r(&seed) % PAGES * P;

		pthread_mutex_lock(&lock);
		CHECK(!munmap(at, P));
		CHECK(mmap(at, P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
		pthread_mutex_unlock(&lock);
		usleep(20);
	}
	CHECK(n > 10);
	return NULL;
}

int main(void)
{
	pthread_t t[2];
	unsigned n = 0;

	alarm(60);
	umem_start();
	m = anon(PAGES * P);
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&t[i], NULL, unmaps, (void *)(uintptr_t)(i + 1)));
	for (double end = now() + 1.5; now() < end; n++) {
		struct ib_umem_odp *odp = odp_get(m, PAGES * P);

		fault(odp, m, PAGES * P, UMEM_FAULT_WRITE);
		pthread_mutex_lock(&lock);
		ib_umem_release(&odp->umem);
		pthread_mutex_unlock(&lock);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	CHECK(n > 10 && cnt(FL_CNT_dma_maps) == cnt(FL_CNT_dma_unmaps) && ib_dma_mapped(&dev) == 0);
	return 0;
}
