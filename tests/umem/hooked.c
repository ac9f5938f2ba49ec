/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Invalidations that the preloaded hooks tell of: done when the call returns, without an event; what
 * is faulted in again is watched again, so that a change no hook sees is told of as well; shared
 * memory that is detached, which nobody else tells of.
 */
#include <sys/shm.h>
#include "tests/umem/umemtest.h"
#include "util/log.h"

#define PAGES 16

static bool has(struct ib_umem_odp *odp, char *at)
{
	return ib_umem_odp_present(odp, (uintptr_t)at, 1, true);
}

static bool stale(struct ib_umem *u, char *at)
{
	return ib_umem_pinned_stale(u, (uintptr_t)at, 1);
}

static void on_demand(void)
{
	char *m = anon(PAGES * P), *s;
	struct ib_umem_odp *odp = odp_get(m, PAGES * P), *shm_odp;
	int shm = shmget(IPC_PRIVATE, 4 * P, 0600);

	CHECK(fault(odp, m, PAGES * P, UMEM_FAULT_WRITE) == PAGES);
	CHECK(!munmap(m, P) && !has(odp, m) && has(odp, m + P));
	CHECK(cnt(FL_CNT_page_invalidations) == 1);
	CHECK(!madvise(m + 2 * P, 2 * P, MADV_DONTNEED) && !has(odp, m + 2 * P) && !has(odp, m + 3 * P));
	CHECK(mmap(m + 5 * P, P, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m + 5 * P);
	CHECK(!has(odp, m + 5 * P) && has(odp, m + 6 * P));
	CHECK(mremap(m + 7 * P, P, P, MREMAP_MAYMOVE | MREMAP_FIXED, m + 9 * P) == m + 9 * P);
	CHECK(!has(odp, m + 7 * P) && has(odp, m + 8 * P) && !has(odp, m + 9 * P) && has(odp, m + 10 * P));
	CHECK(odp->mapped == PAGES - 6);

	/* watched anew by the fault: by whatever changes it */
	CHECK(fault(odp, m + 2 * P, P, UMEM_FAULT_WRITE) == 1 && has(odp, m + 2 * P));
	CHECK(fault(odp, m + 5 * P, P, UMEM_FAULT_WRITE) == 1);
	CHECK(fault(odp, m + 9 * P, P, UMEM_FAULT_WRITE) == 1);
	if (odp->notifier.watched) {
		CHECK(!syscall(SYS_madvise, m + 2 * P, P, MADV_DONTNEED));
		CHECK(!syscall(SYS_munmap, m + 5 * P, P) && !syscall(SYS_munmap, m + 9 * P, P));
		mm_wait_start_dma();
		CHECK(!has(odp, m + 2 * P) && !has(odp, m + 5 * P) && !has(odp, m + 9 * P));
	}
	ib_umem_release(&odp->umem);
	munmap(m, PAGES * P);

	s = shmat(shm, NULL, 0);
	shmctl(shm, IPC_RMID, NULL);
	CHECK(s != (void *)-1);
	shm_odp = odp_get(s + P, 2 * P);
	CHECK(fault(shm_odp, s + P, 2 * P, UMEM_FAULT_WRITE) == 2);
	CHECK(!shmdt(s) && !has(shm_odp, s + P) && !has(shm_odp, s + 2 * P) && !shm_odp->mapped);
	ib_umem_release(&shm_odp->umem);
}

static void pinned(void)
{
	char *m = anon(PAGES * P), b[8] = "";
	struct ib_umem *u, *v;

	CHECK(!ib_umem_get(&dev, (uintptr_t)m, 8 * P, IBV_ACCESS_LOCAL_WRITE, &u));
	CHECK(!ib_umem_get(&dev, (uintptr_t)m + 4 * P, 8 * P, IBV_ACCESS_LOCAL_WRITE, &v));
	memcpy(m + 5 * P, "before", 7);
	CHECK(!u->stale && !munmap(m + 5 * P, P));
	CHECK(u->stale && v->stale && stale(u, m + 5 * P) && stale(v, m + 5 * P));
	CHECK(!stale(u, m + 4 * P) && !stale(v, m + 6 * P));
	if (strcmp(pin_how(u->pin), "mlock")) {
		CHECK(!u->ops->copy(u, KEY, (uintptr_t)m + 5 * P, b, 7, false) && !strcmp(b, "before"));
		CHECK(!v->ops->copy(v, KEY, (uintptr_t)m + 5 * P, b, 7, false) && !strcmp(b, "before"));
	} else {
		CHECK(u->ops->copy(u, KEY, (uintptr_t)m + 5 * P, b, 7, false) == -EACCES);
	}
	ib_umem_release(u);
	if (strcmp(pin_how(v->pin), "mlock"))
		CHECK(!madvise(m + 6 * P, P, MADV_DONTNEED) && stale(v, m + 6 * P));
	else
		CHECK(madvise(m + 6 * P, P, MADV_DONTNEED) && !stale(v, m + 6 * P));
	ib_umem_release(v);
	munmap(m, PAGES * P);
}

int main(void)
{
	alarm(60);
	fl_log_level = LOG_ERR;
	umem_start();
	on_demand();
	pinned();
	mm_start("mlock"); /* pinned so, what is taken away is out of reach, and an error */
	pinned();
	CHECK(cnt(FL_CNT_dma_maps) == cnt(FL_CNT_dma_unmaps));
	return 0;
}
