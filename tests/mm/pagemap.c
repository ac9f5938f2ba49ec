/* SPDX-License-Identifier: BSD-2-Clause */
/* A question about addresses that nobody can have is answered, and does not make the kernel look like an older one. */
#include "tests/mm/mmtest.h"

int main(void)
{
	uint64_t from, to, page = (uintptr_t)&from & ~(P - 1);
	static const uint64_t absurd[] = {1ull << 62, 1ull << 63, -2 * P};

	mm_start("auto");
	if (!mm_probe_pagemap_scan())
		SKIP("no PAGEMAP_SCAN (Linux 6.7)");
	for (size_t i = 0; i < sizeof(absurd) / sizeof(absurd[0]); i++) {
		CHECK(!mm_next_present(absurd[i], absurd[i] + P, &from, &to));
		CHECK(mm_probe_pagemap_scan());
	}
	CHECK(mm_next_present(page, page + P, &from, &to) && from == page && to == page + P);
	return 0;
}
