/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What munmap() and madvise(MADV_DONTNEED) of memory cost that the device has mapped, against memory it
 * has not: run it alone (userfaultfd tells) and under `faultline run` (the preloaded hooks do). Median
 * microseconds a call, the two in turns; "name value" a line, of which bench.py makes a table.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE	 4096ul
#define REPEATS 401

static struct ibv_pd *pd;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* the call on `pages` in the middle of a mapping of `around`, with or without a region on all of it */
static double cost(int discard, int mapped, size_t pages, size_t around)
{
	size_t size = around * PAGE;
	char *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *at = m + (around - pages) / 2 * PAGE;
	struct ibv_mr *mr = NULL;
	double t;

	if (m == MAP_FAILED)
		die("mmap");
	memset(m, 1, size);
	if (mapped) {
		struct ibv_sge sge = {.addr = (uintptr_t)m, .length = (uint32_t)size};

		mr = ibv_reg_mr(pd, m, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
		if (!mr)
			die("ibv_reg_mr");
		sge.lkey = mr->lkey;
		if (ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1))
			die("ibv_advise_mr");
	}
	t = now();
	if (discard ? madvise(at, pages * PAGE, MADV_DONTNEED) : munmap(at, pages * PAGE))
		die("madvise or munmap");
	t = now() - t;
	if (mr)
		ibv_dereg_mr(mr);
	munmap(m, size);
	return t;
}

static double median(double *t)
{
	qsort(t, REPEATS, sizeof(t[0]), by_value);
	return t[REPEATS / 2];
}

int main(void)
{
	static const struct {
		size_t pages, around;
	} cases[] = {{1, 1}, {1, 64}, {64, 64}, {512, 512}};
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;

	pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	if (!pd)
		die("no device");
	for (int discard = 0; discard < 2; discard++)
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			static double plain[REPEATS], mapped[REPEATS];
			const char *name = discard ? "dontneed" : "munmap";

			for (int n = 0; n < REPEATS; n++) {
				plain[n] = cost(discard, 0, cases[i].pages, cases[i].around);
				mapped[n] = cost(discard, 1, cases[i].pages, cases[i].around);
			}
			printf("%s_%zu_%zu_plain %f\n", name, cases[i].pages, cases[i].around, median(plain));
			printf("%s_%zu_%zu_mapped %f\n", name, cases[i].pages, cases[i].around, median(mapped));
		}
	return 0;
}
