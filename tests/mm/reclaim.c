/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel reclaims goes from the device's table at the next look, nothing else does, and the
 * access that comes is a fault that may sleep. With pages of a file, which any kernel drops on request;
 * with real swap; and with a memory limit, under which the look comes by itself.
 */
#include <sys/wait.h>
#include "tests/mm/swap.h"
#include "tests/umem/umemtest.h"

#define PAGES 64ul

static struct faultline_mr mr;

static unsigned absent(char *m, size_t pages)
{
	unsigned n = 0;
	uint64_t pte;
	int fd = open("/proc/self/pagemap", O_RDONLY);

	for (size_t i = 0; i < pages; i++) {
		CHECK(pread(fd, &pte, 8, (off_t)(((uintptr_t)m >> 12) + i) * 8) == 8);
		n += !(pte >> 63);
	}
	close(fd);
	return n;
}

/* the first half goes; write: the memory may be written */
static void goes_and_comes_back(char *m, bool write, const char *what)
{
	struct ib_umem_odp *odp = odp_get(m, PAGES * P);
	unsigned flags = write ? UMEM_FAULT_WRITE : 0, gone;
	uint64_t scans = cnt(FL_CNT_reclaim_scans), reclaims = cnt(FL_CNT_page_reclaims);

	memset(&mr, 0, sizeof(mr));
	odp->umem.stat = &mr;
	CHECK(fault(odp, m, PAGES * P, flags) == (int)PAGES);
	mm_reclaim_scan();
	CHECK(mr.page_reclaims == 0 && odp->mapped == PAGES); /* nothing has gone */

	if (madvise(m, PAGES / 2 * P, MADV_PAGEOUT)) {
		printf("%s: left out, no MADV_PAGEOUT\n", what);
		ib_umem_release(&odp->umem);
		return;
	}
	gone = absent(m, PAGES);
	CHECK(gone <= PAGES / 2);
	if (!gone) {
		printf("%s: left out, the kernel keeps the pages\n", what);
		ib_umem_release(&odp->umem);
		return;
	}
	CHECK(odp->mapped == PAGES); /* nobody told */
	mm_reclaim_scan();
	CHECK(mr.page_reclaims == gone && mr.page_invalidations == gone && mr.mapped_pages == PAGES - gone);
	CHECK(cnt(FL_CNT_page_reclaims) == reclaims + gone && cnt(FL_CNT_reclaim_scans) == scans + 2);
	CHECK(absent(m, PAGES) == gone); /* to look brings nothing back */
	for (size_t i = PAGES / 2; i < PAGES; i++)
		CHECK(ib_umem_odp_present(odp, (uintptr_t)m + i * P, P, write));

	CHECK(fault(odp, m, PAGES * P, flags | UMEM_FAULT_NOSLEEP) == -EAGAIN);
	CHECK(fault(odp, m, PAGES * P, flags) == (int)gone);
	CHECK(mr.page_faults_major == 1 && mr.page_refaults == gone);
	for (size_t i = 0; i < PAGES * P; i++)
		CHECK(m[i] == (char)(i / P + 1));
	ib_umem_release(&odp->umem);
	printf("%s: %u of %lu pages went and came back\n", what, gone, PAGES / 2);
}

static void fill(char *m)
{
	for (size_t i = 0; i < PAGES * P; i++)
		m[i] = (char)(i / P + 1);
}

/* at: NULL, or in place of what is there */
static char *map_file(char *at)
{
	char path[] = "/var/tmp/faultline-reclaim-XXXXXX";
	int fd = mkstemp(path);
	char *m;

	CHECK(fd >= 0);
	unlink(path);
	CHECK(!ftruncate(fd, PAGES * P));
	m = mmap(at, PAGES * P, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
	CHECK(m != MAP_FAILED);
	fill(m);
	CHECK(!fsync(fd)); /* what is dirty is not dropped */
	close(fd);
	return m;
}

static void of_a_file(void)
{
	char *m = map_file(NULL);

	goes_and_comes_back(m, false, "a file");
	munmap(m, PAGES * P);
}

/* what a fault has found out of a mapping does not hold for another that takes its place */
static void file_over_anonymous(void)
{
	char *m = anon(PAGES * P);
	struct ib_umem_odp *odp = odp_get(m, PAGES * P);

	for (size_t i = 0; i < 4; i++) /* from the second on by what the first has found out */
		CHECK(fault(odp, m + i * P, P, UMEM_FAULT_NOSLEEP) == 1);
	map_file(m);
	if (madvise(m, PAGES * P, MADV_PAGEOUT) || !absent(m, PAGES))
		printf("a file over anonymous memory: left out, the kernel keeps the pages\n");
	else
		CHECK(fault(odp, m, PAGES * P, UMEM_FAULT_NOSLEEP) == -EAGAIN);
	CHECK(fault(odp, m, PAGES * P, 0) >= 0);
	ib_umem_release(&odp->umem);
	munmap(m, PAGES * P);
}

/* Half as much again as the limit allows: the kernel must swap, and we learn of it with nobody's help. */
static void by_itself(void)
{
	const size_t n = 48ul << 20;
	char *m = anon(n);
	double end = now() + 30;
	struct ib_umem_odp *odp;

	CHECK(group_enter());
	mm_fork_child();
	umem_start();
	odp = odp_get(m, n);
	memset(&mr, 0, sizeof(mr));
	odp->umem.stat = &mr;
	/* by the CPU first: at the limit some kernels kill who populates new pages by madvise() */
	memset(m, 1, n);
	while (!mr.page_reclaims && now() < end)
		for (size_t i = 0; i < n; i += 16 * P) {
			CHECK(fault(odp, m + i, 16 * P, UMEM_FAULT_WRITE) >= 0);
			for (size_t k = 0; k < 16 * P; k += P) /* the program uses it, too */
				__atomic_fetch_add(&m[i + k], 1, __ATOMIC_RELAXED);
		}
	CHECK(mr.page_reclaims && cnt(FL_CNT_reclaim_scans));
	CHECK(mr.page_faults_major);
	printf("by itself: %lu pages in %lu looks\n", mr.page_reclaims, cnt(FL_CNT_reclaim_scans));
	ib_umem_release(&odp->umem);
	CHECK(cnt(FL_CNT_dma_maps) == cnt(FL_CNT_dma_unmaps));
}

int main(void)
{
	const char *why;
	char *m;
	int st;
	pid_t pid;

	setvbuf(stdout, NULL, _IOLBF, 0);
	umem_start();
	of_a_file();
	file_over_anonymous();

	why = swap_on(192ull << 20);
	if (why)
		SKIP(why);
	atexit(swap_off);
	/* from here on a failure must not leave the swap behind: in children */
	pid = fork();
	if (!pid) {
		mm_fork_child();
		umem_start();
		m = anon(PAGES * P);
		fill(m);
		goes_and_comes_back(m, true, "swap");
		_exit(0);
	}
	CHECK(waitpid(pid, &st, 0) == pid);
	if (!st) {
		why = group_make("faultline-reclaim", 32ull << 20);
		if (why) {
			swap_off();
			SKIP(why);
		}
		pid = fork();
		if (!pid) {
			alarm(60);
			by_itself();
			_exit(0);
		}
		CHECK(waitpid(pid, &st, 0) == pid);
		if (st)
			printf("by itself: ended with %#x\n", st);
		group_remove();
	}
	swap_off();
	return st != 0;
}
