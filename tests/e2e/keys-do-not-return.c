/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The key of a region that is gone does not become another's soon, so that a peer that still uses
 * it is refused and does not write into a stranger's memory. Registering and deregistering over and
 * over (as often as the argument says) leaves the process with as many mappings as before.
 */
#include "rc.h"

#define RECENT 100

static struct rc_side a;

static int mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	int c, n = 0;

	CHECK(f, "/proc/self/maps");
	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 20000, before = 0;
	uint32_t recent[2][RECENT] = {{0}};
	uint8_t *m[2];

	rc_open(&a);
	CHECK(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED, "ibv_is_fork_initialized: %d",
	      ibv_is_fork_initialized());
	m[0] = rc_map(64 * PAGE);
	m[1] = rc_map(64 * PAGE);
	for (int i = 0; i < rounds; i++) {
		int odp = i & 1;
		uint64_t offset = (uint64_t)(i * 7919l % (long)(60 * PAGE));
		struct ibv_mr *mr = rc_reg(&a, m[odp] + offset, 1 + (uint64_t)i % (3 * PAGE),
					   ALL_ACCESS | (odp ? ODP : 0));

		for (int k = 0; k < RECENT; k++)
			CHECK(recent[0][k] != mr->rkey && recent[1][k] != mr->rkey,
			      "round %d: key %#x is back after fewer than %d others", i, mr->rkey,
			      RECENT);
		recent[odp][i / 2 % RECENT] = mr->rkey;
		CHECK(!ibv_dereg_mr(mr), "dereg");
		if (i == 100)
			before = mappings();
	}
	CHECK(mappings() <= before + 16, "%d mappings after %d registrations, %d before",
	      mappings(), rounds, before);
	rc_close(&a);
	return 0;
}
