/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * WRITEs come into a pinned region without a pause while its memory is taken away and other memory put
 * in its place: not one byte of them shows there, once the call that took it has returned; mapping over
 * it, which with the preloaded hooks is one such call, included. Detached shared memory, a heap that
 * shrinks, and a file that loses pages by its descriptor are told by the hooks alone.
 *
 * Argument: what there is beside the kernel's notifications: "hooks" or nothing.
 */
#include "rc.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/shm.h>
#include <unistd.h>

#define SIZE (8 * PAGE)

static struct rc_side a, b;
static uint8_t *src, *m;
static struct ibv_mr *src_mr, *mr;
static int stop;
static uint64_t writes;

static void *network(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)src, SIZE, src_mr->lkey, (uintptr_t)m, mr->rkey),
		      "post");
		rc_expect(&a, IBV_WC_SUCCESS);
		__atomic_fetch_add(&writes, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* as long as so many WRITEs take */
static void let_write(unsigned n)
{
	uint64_t until = __atomic_load_n(&writes, __ATOMIC_RELAXED) + n;

	while (__atomic_load_n(&writes, __ATOMIC_RELAXED) < until)
		usleep(20);
}

static uint8_t *map_at(void *at)
{
	return mmap(at, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
}

static bool map_free(void *at)
{
	return mmap(at, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
	       at;
}

enum how { UNMAP, OVER, DISCARD, MOVE, DETACH, BREAK, PUNCH, CUT };

/* false: another thread's mapping came to lie there first, and the place is not ours */
static bool take(enum how how, uint8_t *aside, int file)
{
	switch (how) {
	case UNMAP:
		CHECK(!munmap(m, SIZE), "munmap");
		return map_free(m);
	case OVER:
		CHECK(map_at(m) == m, "mmap over");
		break;
	case DISCARD:
		CHECK(!madvise(m, SIZE, MADV_DONTNEED), "madvise");
		break;
	case MOVE:
		CHECK(mremap(m, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, aside) == aside, "mremap");
		return map_free(m);
	case DETACH:
		CHECK(!shmdt(m), "shmdt");
		return map_free(m);
	case PUNCH:
		CHECK(!fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE), "fallocate");
		break;
	case CUT:
		CHECK(!ftruncate(file, 0) && !ftruncate(file, SIZE), "ftruncate");
		break;
	case BREAK:
		if (sbrk(0) != (void *)(m + SIZE))
			return false; /* malloc() has taken what follows: the end is not ours to move */
		CHECK(sbrk(-(intptr_t)SIZE) != (void *)-1, "sbrk");
		return sbrk(SIZE) == (void *)m;
	}
	return true;
}

static void once(enum how how)
{
	int shm = shmget(IPC_PRIVATE, SIZE, 0600), file = memfd_create("e2e", MFD_CLOEXEC);
	uint8_t *aside = map_at(NULL);
	pthread_t t;
	bool ours;

	if (how == DETACH) {
		m = shmat(shm, NULL, 0);
	} else if (how == BREAK) {
		uintptr_t now = (uintptr_t)sbrk(0);

		CHECK(sbrk((intptr_t)(-now % PAGE)) != (void *)-1, "sbrk");
		m = sbrk(SIZE);
	} else if (how == PUNCH || how == CUT) {
		CHECK(!ftruncate(file, SIZE), "ftruncate");
		m = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	} else {
		m = map_at(NULL);
	}
	CHECK(m != MAP_FAILED, "memory");
	shmctl(shm, IPC_RMID, NULL);
	mr = rc_reg(&b, m, SIZE, ALL_ACCESS);
	rc_pair(&a, &b, &rc_default);
	stop = 0;
	pthread_create(&t, NULL, network, NULL);
	let_write(3);
	ours = take(how, aside, file);
	for (int i = 0; i < 3; i++) {
		let_write(2);
		for (size_t k = 0; ours && k < SIZE; k++)
			CHECK(!m[k], "case %d: byte %zu of new memory was written by the network", how, k);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	ibv_dereg_mr(mr);
	if (how == BREAK && sbrk(0) == (void *)(m + SIZE))
		CHECK(sbrk(-(intptr_t)SIZE) != (void *)-1, "sbrk");
	else if (how != BREAK && ours)
		munmap(m, SIZE);
	munmap(aside, SIZE);
	close(file);
}

int main(int argc, char **argv)
{
	bool hooks = argc > 1 && !strcmp(argv[1], "hooks");

	/* malloc() has enough of the heap not to move its end, which one of the cases does */
	mallopt(M_TOP_PAD, 32 << 20);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	free(malloc(1 << 16));
	rc_main(argc, argv);
	rc_open(&a);
	rc_open(&b);
	src = rc_map(SIZE);
	memset(src, 0x5a, SIZE);
	src_mr = rc_reg(&a, src, SIZE, ALL_ACCESS);
	for (int i = 0; i < 30; i++) {
		once(UNMAP);
		once(DISCARD);
		once(MOVE);
		if (hooks) {
			once(OVER);
			once(DETACH);
			once(BREAK);
			once(PUNCH);
			once(CUT);
		}
	}
	ibv_dereg_mr(src_mr);
	rc_close(&a);
	rc_close(&b);
	return 0;
}
