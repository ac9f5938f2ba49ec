/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations and deregistrations, pinned and on demand, of parts of a mapping, also touched by the device: the
 * process has as many mappings after them as before the first of that mapping, and fork needs no help. Argument: how
 * many (200000).
 */
#include "rc.h"

static struct rc_side a, b;

static unsigned mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned n = 0;
	int c;

	CHECK(f, "/proc/self/maps");
	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

/*
 * The i'th of a part of 128 pages at m: by turns anything of the lower half, and every other page of the upper one: what
 * is left of those cannot merge.
 */
static void cycle(unsigned long i, uint8_t *m, uint8_t *src, struct ibv_mr *src_mr)
{
	bool apart = i / 4 % 2;
	size_t at = (apart ? 64 + i * 7 % 32 * 2 : i * 7 % 50) * PAGE, len = (apart ? 1 : 1 + i % 13) * PAGE;
	struct ibv_mr *mr = rc_reg(&b, m + at + i % 100, len - i % 100, ALL_ACCESS | (i % 4 ? ODP : 0));

	if (i % 16 == 1) {
		CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)src, 64, src_mr->lkey, (uintptr_t)m + at + i % 100, mr->rkey),
		      "post");
		rc_expect(&a, IBV_WC_SUCCESS);
	}
	CHECK(!ibv_dereg_mr(mr), "dereg");
}

int main(int argc, char **argv)
{
	unsigned long cycles = argc > 1 ? strtoul(argv[1], NULL, 10) : 200000;
	unsigned before, most = 0, n;
	uint8_t *m, *other, *src;

	rc_main(argc, argv);
	CHECK(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED, "ibv_is_fork_initialized: %d", ibv_is_fork_initialized());
	rc_open(&a);
	rc_open(&b);
	rc_pair(&a, &b, &rc_default);
	m = rc_map(128 * PAGE);
	other = rc_map(128 * PAGE);
	src = rc_map(PAGE);
	memset(m, 1, 128 * PAGE);
	struct ibv_mr *src_mr = rc_reg(&a, src, PAGE, ALL_ACCESS);

	/* all that is made once is made, and nothing of m has been registered: it could be split into 65 and no more */
	for (unsigned long i = 0; i < 1000; i++)
		cycle(i, other, src, src_mr);
	before = mappings();
	for (unsigned long i = 0; i < cycles; i++) {
		cycle(i, m, src, src_mr);
		if (i % (cycles / 10) == 0 && (n = mappings()) > most)
			most = n;
	}
	n = mappings();
	/* what malloc() maps comes and goes; a mapping that is left by each would be thousands */
	CHECK(n <= before + 16 && most <= before + 16, "%u mappings, then %u, at last %u", before, most, n);
	CHECK(!ibv_dereg_mr(src_mr), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
