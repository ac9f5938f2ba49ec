/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A signal handler that unmaps what the access it has interrupted works on, while another thread takes
 * memory of the region away, too: nobody waits for ever. argument: by system calls that no hook sees.
 */
#include <sys/syscall.h>
#include "tests/umem/umemtest.h"

#define PAGES 8

static bool raw;
static char *m;
static struct ib_umem_odp *odp;
static int at_work; /* 1: the access is under way; 2: the other thread unmaps */

static void discard(char *at)
{
	if (raw)
		syscall(SYS_madvise, at, P, MADV_DONTNEED);
	else
		madvise(at, P, MADV_DONTNEED);
}

/* what a handler is to the access below it: between its announcement and its end */
static void *accesses(void *arg)
{
	struct faultline_hazard *h = dma_begin((uintptr_t)m, (uintptr_t)m + PAGES * P, KEY);

	__atomic_store_n(&at_work, 1, __ATOMIC_SEQ_CST);
	if (arg) {
		while (__atomic_load_n(&at_work, __ATOMIC_SEQ_CST) != 2)
			sched_yield();
		usleep(20000); /* it waits for us by now */
	}
	discard(m + P);
	dma_end(h);
	return NULL;
}

static void round_of(bool with_other)
{
	pthread_t t;

	CHECK(fault(odp, m, PAGES * P, UMEM_FAULT_WRITE) >= 0);
	at_work = 0;
	CHECK(!pthread_create(&t, NULL, accesses, with_other ? &t : NULL));
	if (with_other) {
		while (!__atomic_load_n(&at_work, __ATOMIC_SEQ_CST))
			sched_yield();
		__atomic_store_n(&at_work, 2, __ATOMIC_SEQ_CST);
		discard(m + 3 * P);
	}
	CHECK(!pthread_join(t, NULL));
	mm_wait_start_dma();
	if (odp->notifier.watched)
		CHECK(!ib_umem_odp_present(odp, (uintptr_t)m + P, 1, false));
}

int main(int argc, char **argv)
{
	raw = argc > 1;
	alarm(60);
	umem_start();
	m = anon(PAGES * P);
	odp = odp_get(m, PAGES * P);
	for (int i = 0; i < 20; i++)
		round_of(i & 1);
	ib_umem_release(&odp->umem);
	return 0;
}
