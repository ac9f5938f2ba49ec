/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registering on demand touches, pins and charges nothing, and takes no longer for 256 GiB than for
 * a page; what is accessed then comes in page by page.
 */
#include "rc.h"

#include <unistd.h>

#define SIZE (256ul << 20)

static struct rc_side a, b;

static long status_kb(const char *field)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long v = -1;

	CHECK(f, "/proc/self/status");
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, field, strlen(field)))
			v = atol(line + strlen(field));
	fclose(f);
	CHECK(v >= 0, "no %s in /proc/self/status", field);
	return v;
}

static size_t resident(void *p, size_t size)
{
	size_t pages = size / PAGE, n = 0;
	unsigned char *vec = malloc(pages);

	CHECK(vec && !mincore(p, size, vec), "mincore: %s", strerror(errno));
	for (size_t i = 0; i < pages; i++)
		n += vec[i] & 1;
	free(vec);
	return n;
}

static double best_registration(size_t size)
{
	double best = 1;
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(p != MAP_FAILED, "mmap of %zu GiB: %s", size >> 30, strerror(errno));
	for (int i = 0; i < 20; i++) {
		double t = rc_now();
		struct ibv_mr *mr = rc_reg(&a, p, size, ALL_ACCESS | ODP);

		t = rc_now() - t;
		best = t < best ? t : best;
		CHECK(!ibv_dereg_mr(mr), "dereg");
	}
	munmap(p, size);
	return best;
}

int main(int argc, char **argv)
{
	rc_open(&a);
	rc_open(&b);
	rc_pair(&a, &b, &rc_default);
	uint8_t *mem = rc_map(SIZE), *src = rc_map(PAGE);

	struct ibv_mr *smr = rc_reg(&a, src, PAGE, ALL_ACCESS);
	long rss = status_kb("VmRSS:"), lck = status_kb("VmLck:"), pin = status_kb("VmPin:");
	struct ibv_mr *mr = rc_reg(&b, mem, SIZE, ALL_ACCESS | ODP);

	CHECK(resident(mem, SIZE) == 0, "registration touched %zu pages", resident(mem, SIZE));
	CHECK(status_kb("VmLck:") == lck && status_kb("VmPin:") == pin,
	      "registration locked or pinned memory");
	CHECK(status_kb("VmRSS:") - rss < 1024, "VmRSS grew by %ld kB", status_kb("VmRSS:") - rss);

	/* one byte written brings in one page (a huge page at most), one read may bring in the zero
	 * page */
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)src, 1, smr->lkey,
		       (uintptr_t)mem + (SIZE / 2) + 7, mr->rkey),
	      "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(resident(mem, SIZE) <= 512 && resident(mem + SIZE / 2, PAGE) == 1,
	      "%zu pages for a byte", resident(mem, SIZE));
	CHECK(status_kb("VmLck:") == lck && status_kb("VmPin:") == pin,
	      "an access locked or pinned memory");
	CHECK(!ibv_dereg_mr(mr), "dereg");

	double huge = best_registration(256ul << 30);

	CHECK(huge < 1e-3, "registering 256 GiB took %.0f us", huge * 1e6);
	CHECK(!ibv_dereg_mr(smr), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
