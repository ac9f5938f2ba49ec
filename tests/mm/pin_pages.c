/* SPDX-License-Identifier: BSD-2-Clause */
/* Pinned pages that are reached through their pin: data both ways, any length, edges, atomics, forks. */
#include "tests/mm/mmtest.h"

static void fill(char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)rand_r(&seed);
}

int main(void)
{
	size_t n = 200 * P;
	char *m, *a = anon(n), *b = anon(n), *old;
	struct mm_pin *pin;
	uint64_t orig;
	int status;

	mm_start("auto");
	m = anon(n);
	fill(m, n, 1);
	fill(a, n, 1);
	CHECK(!pin_user_pages((uintptr_t)m + 100, n - 200, true, &pin));
	if (!strcmp(pin_how(pin), "mlock")) {
		CHECK(pin_copy(pin, (uintptr_t)m + 100, b, 8, false) == -EOPNOTSUPP);
		SKIP("io_uring does not pin here");
	}
	old = m;
	CHECK(!munmap(m, n));
	CHECK(!pin_copy(pin, (uintptr_t)old + 100, b, n - 200, false));
	CHECK(!memcmp(b, a + 100, n - 200));
	fill(a, n, 2);
	CHECK(!pin_copy(pin, (uintptr_t)old + 4095, a + 4095, 70 * P + 3, true));
	CHECK(!pin_copy(pin, (uintptr_t)old + 4095, b, 70 * P + 3, false));
	CHECK(!memcmp(b, a + 4095, 70 * P + 3));
	CHECK(!pin_copy(pin, (uintptr_t)old + 4094, b, 1, false) && b[0] != a[4094]);
	CHECK(pin_copy(pin, (uintptr_t)old + 100, gone(P), 8, false) == -EFAULT);

	orig = 5;
	CHECK(!pin_copy(pin, (uintptr_t)old + 8 * P, &orig, 8, true));
	CHECK(!pin_atomic(pin, (uintptr_t)old + 8 * P, false, 3, 0, &orig) && orig == 5);
	CHECK(!pin_atomic(pin, (uintptr_t)old + 8 * P, true, 100, 7, &orig) && orig == 8);
	CHECK(!pin_atomic(pin, (uintptr_t)old + 8 * P, true, 100, 8, &orig) && orig == 8);
	CHECK(!pin_copy(pin, (uintptr_t)old + 8 * P, &orig, 8, false) && orig == 100);

	/* a child has pins of its own, and its parent's are untouched */
	if (!fork()) {
		struct mm_pin *own;
		char *c = anon(P);

		mm_fork_child();
		mm_start("auto");
		CHECK(!pin_user_pages((uintptr_t)c, P, true, &own));
		munmap(c, P);
		orig = 77;
		CHECK(!pin_copy(own, (uintptr_t)c, &orig, 8, true));
		CHECK(!pin_copy(own, (uintptr_t)c, b, 8, false) && !memcmp(b, &orig, 8));
		_exit(0);
	}
	CHECK(wait(&status) > 0 && !status);
	CHECK(!pin_copy(pin, (uintptr_t)old + 8 * P, &orig, 8, false) && orig == 100);
	unpin_user_pages(pin);
	return 0;
}
