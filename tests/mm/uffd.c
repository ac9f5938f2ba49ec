/* SPDX-License-Identifier: BSD-2-Clause */
/* Every way by which a mapping changes reaches the callback of who watches it, with the right range, by
 * raw system calls that no hook sees; and others' changes do not. */
#include "mm/mm_internal.h"
#include "tests/mm/mmtest.h"

static struct {
	uint64_t start, end;
	enum mmu_notifier_event event;
} got[64];
static unsigned num_got;
static unsigned long last_seq;

static bool invalidate(struct mmu_interval_notifier *mni, const struct mmu_notifier_range *range,
		       unsigned long seq)
{
	unsigned i = __atomic_load_n(&num_got, __ATOMIC_RELAXED) % 64;

	mmu_interval_set_seq(mni, seq);
	last_seq = seq;
	got[i].start = range->start;
	got[i].end = range->end;
	got[i].event = range->event;
	__atomic_store_n(&num_got, num_got + 1, __ATOMIC_RELEASE);
	return true;
}

static const struct mmu_interval_notifier_ops ops = {.invalidate = invalidate};

/* The system call returns when the event was read; the callback may come a little after. */
static void expect(char *start, size_t len, enum mmu_notifier_event event)
{
	double end = now() + 5;
	unsigned n;

	while (!(n = __atomic_load_n(&num_got, __ATOMIC_ACQUIRE)) && now() < end)
		;
	CHECK(n);
	usleep(2000); /* mremap sends two */
	mm_wait_start_dma();
	n = __atomic_load_n(&num_got, __ATOMIC_ACQUIRE);
	for (unsigned i = 0; i < n; i++) {
		CHECK(got[i].start == (uintptr_t)start && got[i].end == (uintptr_t)start + len);
		CHECK(got[i].event == event);
	}
	__atomic_store_n(&num_got, 0, __ATOMIC_RELEASE);
}

static struct mmu_interval_notifier mni;

static char *watch(char *m, size_t n)
{
	CHECK(!mmu_interval_notifier_insert(&mni, (uintptr_t)m, n, &ops));
	if (!mni.watched)
		SKIP("no userfaultfd here");
	return m;
}

static void nothing(void)
{
	usleep(20000);
	CHECK(__atomic_load_n(&num_got, __ATOMIC_ACQUIRE) == 0);
}

static void unwatch(void)
{
	mmu_interval_notifier_remove(&mni);
	__atomic_store_n(&num_got, 0, __ATOMIC_RELEASE);
}

static void fault_in(char *at, size_t n)
{
	struct hmm_range r;
	int err;

	do {
		r = (struct hmm_range){.notifier = &mni, .start = (uintptr_t)at,
				       .end = (uintptr_t)at + n, .write = true};
		r.notifier_seq = mmu_interval_read_begin(&mni);
		err = hmm_range_fault(&r);
	} while (err == -EBUSY);
	CHECK(!err);
}

int main(void)
{
	char *m, *to;
	int fd;

	mm_start("auto");

	m = watch(anon(8 * P), 8 * P);
	memset(m, 1, 8 * P);
	CHECK(!syscall(SYS_munmap, m + P, P));
	expect(m + P, P, MMU_NOTIFY_UNMAP);
	CHECK(!syscall(SYS_madvise, m + 3 * P, 2 * P, MADV_DONTNEED));
	expect(m + 3 * P, 2 * P, MMU_NOTIFY_CLEAR);
	/* map over */
	CHECK(syscall(SYS_mmap, m + 5 * P, P, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) > 0);
	expect(m + 5 * P, P, MMU_NOTIFY_UNMAP);
	/* it is new, and watched once it has been faulted in */
	fault_in(m + 5 * P, P);
	CHECK(!syscall(SYS_munmap, m + 5 * P, P));
	expect(m + 5 * P, P, MMU_NOTIFY_UNMAP);
	/* map into the hole */
	CHECK(syscall(SYS_mmap, m + P, P, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) > 0);
	fault_in(m, 3 * P);
	CHECK(!syscall(SYS_madvise, m + P, P, MADV_DONTNEED));
	expect(m + P, P, MMU_NOTIFY_CLEAR);
	/* move away, and what has moved is not ours any more after another call */
	to = gone(16 * P); /* more than a hole in m takes */
	CHECK(syscall(SYS_mremap, m + 6 * P, P, P, MREMAP_MAYMOVE | MREMAP_FIXED, to) == (long)to);
	expect(m + 6 * P, P, MMU_NOTIFY_UNMAP);
	CHECK(!munmap(to, P));
	nothing();
	to = anon(4 * P); /* shrink in place: the tail goes */
	munmap(m + 7 * P, P);
	expect(m + 7 * P, P, MMU_NOTIFY_UNMAP);
	unwatch();
	CHECK(!munmap(m, 5 * P));
	nothing();

	m = watch(to, 4 * P);
	memset(m, 1, 4 * P);
	CHECK(syscall(SYS_mremap, m, 4 * P, 2 * P, 0, 0) == (long)m);
	expect(m + 2 * P, 2 * P, MMU_NOTIFY_UNMAP);
#ifdef MREMAP_DONTUNMAP
	if (syscall(SYS_mremap, m, 2 * P, 2 * P, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0) > 0)
		expect(m, 2 * P, MMU_NOTIFY_UNMAP);
#endif
	unwatch();

	/* shared memory: pages and whole */
	fd = memfd_create("t", 0);
	CHECK(!ftruncate(fd, 4 * P));
	m = mmap(NULL, 4 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	watch(m, 4 * P);
	memset(m, 1, 4 * P);
	CHECK(!madvise(m + P, P, MADV_REMOVE));
	expect(m + P, P, MMU_NOTIFY_CLEAR);
	CHECK(!madvise(m, P, MADV_DONTNEED));
	expect(m, P, MMU_NOTIFY_CLEAR);
	CHECK(!munmap(m, 4 * P));
	expect(m, 4 * P, MMU_NOTIFY_UNMAP);
	unwatch();

	/* a private mapping of a file */
	fd = open("/proc/self/exe", O_RDONLY);
	m = mmap(NULL, P, PROT_READ, MAP_PRIVATE, fd, 0);
	watch(m, P);
	CHECK(!munmap(m, P));
	expect(m, P, MMU_NOTIFY_UNMAP);
	unwatch();

	/* the heap's end */
	m = (char *)syscall(SYS_brk, 0);
	m = (char *)(((uintptr_t)m + P - 1) & ~(P - 1));
	CHECK((char *)syscall(SYS_brk, m + 4 * P) == m + 4 * P);
	watch(m, 4 * P);
	memset(m, 1, 4 * P);
	CHECK((char *)syscall(SYS_brk, m + P) == m + P);
	expect(m + P, 3 * P, MMU_NOTIFY_UNMAP);
	unwatch();

	/* two that share a page: the one that stays still hears of it */
	struct mmu_interval_notifier other;

	m = watch(anon(4 * P), 3 * P);
	CHECK(!mmu_interval_notifier_insert(&other, (uintptr_t)m + 2 * P, 2 * P, &ops));
	mmu_interval_notifier_remove(&mni);
	CHECK(!munmap(m, 2 * P));
	nothing();
	CHECK(!munmap(m + 2 * P, P));
	expect(m + 2 * P, P, MMU_NOTIFY_UNMAP);
	mmu_interval_notifier_remove(&other);

	/* what is mapped into a hole is not watched till a fault has it watched; a range is only as a whole */
	m = anon(4 * P);
	CHECK(!munmap(m + P, P));
	watch(m, 4 * P);
	CHECK(mmap(m + P, P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m + P);
	memset(m, 1, 4 * P);
	if (uffd_is_async() && mm_probe_pagemap_scan()) {
		CHECK(vma_all_watched((uintptr_t)m + 2 * P, (uintptr_t)m + 4 * P));
		CHECK(!vma_all_watched((uintptr_t)m, (uintptr_t)m + 4 * P));
		CHECK(uffd_register((uintptr_t)m, (uintptr_t)m + 4 * P) == UFFD_WATCHED);
		CHECK(vma_all_watched((uintptr_t)m, (uintptr_t)m + 4 * P));
	}
	unwatch();
	return 0;
}
