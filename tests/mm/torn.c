/* SPDX-License-Identifier: BSD-2-Clause */
/* A word that one thread changes while another copies it is whole, at every relative alignment; and
 * who polls on the last word of a copy sees all that came before it. */
#include "tests/mm/mmtest.h"

#define WORDS 160
#define TOTAL 30000

static uint64_t shared[WORDS + 8] __attribute__((aligned(64)));
static int stop;

/* every byte of a word is the same: a mixture is a tear */
static void *writer(void *arg)
{
	for (uint64_t v = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); v++)
		for (int i = 0; i < WORDS; i++)
			__atomic_store_n(&shared[i], (v & 0xff) * 0x0101010101010101ull, __ATOMIC_RELAXED);
	return NULL;
}

static void check(const unsigned char *p, size_t n, size_t phase)
{
	for (size_t i = (8 - phase) & 7; i + 8 <= n; i += 8)
		for (int k = 1; k < 8; k++)
			CHECK(p[i + k] == p[i]);
}

/* copies by the guard write words; a reader looks at them */
static void *loader(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		for (int i = 0; i < WORDS; i++) {
			uint64_t v = __atomic_load_n(&shared[i], __ATOMIC_RELAXED);

			CHECK(v == (v & 0xff) * 0x0101010101010101ull);
		}
	return NULL;
}

static uint64_t flag_area[WORDS] __attribute__((aligned(64)));

static void *poller(void *arg)
{
	size_t n = (size_t)(uintptr_t)arg;

	for (uint64_t want = 1; want <= 20000; want++) {
		while (__atomic_load_n(&flag_area[n - 1], __ATOMIC_ACQUIRE) < want)
			if (__atomic_load_n(&stop, __ATOMIC_RELAXED))
				return NULL;
		for (size_t i = 0; i < n - 1; i++)
			CHECK(__atomic_load_n(&flag_area[i], __ATOMIC_RELAXED) >= want);
	}
	return NULL;
}

int main(void)
{
	static unsigned char mine[WORDS * 8 + 64] __attribute__((aligned(64)));
	static uint64_t from[WORDS + 2];
	pthread_t t;

	mm_start("auto");
	pthread_create(&t, NULL, writer, NULL);
	for (int r = 0; r < TOTAL / 16; r++)
		for (size_t o = 0; o < 16; o++) {
			size_t skip = (size_t)r % 8, n = WORDS * 8 - skip - (size_t)r * 5 % 64;

			CHECK(!copy_guarded(mine + o, (char *)shared + skip, n));
			check(mine + o, n, skip);
		}
	stop = 1;
	pthread_join(t, NULL);

	stop = 0;
	memset(shared, 0, sizeof(shared));
	pthread_create(&t, NULL, loader, NULL);
	for (int r = 0; r < TOTAL; r++) {
		/* a source of any alignment, every byte alike */
		memset(mine, r, sizeof(mine));
		CHECK(!copy_guarded((char *)shared, mine + r % 16, WORDS * 8));
	}
	stop = 1;
	pthread_join(t, NULL);

	for (size_t n = 2; n <= WORDS; n = n * 2 + 1) {
		stop = 0;
		memset(flag_area, 0, sizeof(flag_area));
		pthread_create(&t, NULL, poller, (void *)(uintptr_t)n);
		for (uint64_t v = 1; v <= 20000; v++) {
			for (size_t i = 0; i < n; i++)
				from[i] = v;
			CHECK(!copy_guarded(flag_area, from, n * 8));
		}
		pthread_join(t, NULL);
	}
	return 0;
}
