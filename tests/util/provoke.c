/* SPDX-License-Identifier: BSD-2-Clause */
/* Provocations: what the list says, that a seed gives the same choices, and that all of it ends. */
#include "test.h"

#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "util/provoke.h"

static void test_list(void **state)
{
	struct provoke p;

	assert_null(provoke_parse("", &p));
	assert_false(p.fault_every);
	assert_null(provoke_parse("fault-every,invalidate=1%,delay=mlx5,queue=4,race=all,seed=7", &p));
	assert_true(p.fault_every);
	assert_in_range(p.invalidate, 42949672, 42949673);
	assert_true(p.delay_mlx5);
	assert_int_equal(p.queue, 4);
	assert_int_equal(p.races, (1u << PROVOKE_POINTS) - 1);
	assert_int_equal(p.seed, 7);
	assert_null(provoke_parse("delay=350,invalidate=0.5%,race=fault-locked+dereg-key-dead", &p));
	assert_int_equal(p.delay_us, 350);
	assert_false(p.delay_mlx5);
	assert_int_equal(p.races, 1u << PROVOKE_FAULT_LOCKED | 1u << PROVOKE_DEREG_KEY_DEAD);
}

static void test_wrong_lists(void **state)
{
	static const char *const wrong[] = {"fault-every=1", "faults",	      "invalidate=1",	"invalidate=101%",
					    "invalidate=",   "invalidate=nan%", "delay=",	"delay=mlx4",
					    "delay=-1",	     "queue=0",	      "queue=x",	"race=",
					    "race=nowhere",  "race=fault-locked+", "seed=0x",	"seed= 1",
					    ",",	     "fault-every,,", "race"};
	struct provoke p;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		if (!provoke_parse(wrong[i], &p))
			fail_msg("\"%s\" is taken", wrong[i]);
}

/* the choices that a process makes, as bits */
static uint64_t choices(const char *list)
{
	uint64_t bits = 0;
	struct provoke p;
	int fd[2];

	assert_int_equal(pipe(fd), 0);
	if (!fork()) {
		if (provoke_parse(list, &p))
			_exit(1);
		provoke_set(&p);
		for (unsigned i = 0; i < 64; i++)
			bits |= (uint64_t)(provoke_access(1, i) == PROVOKE_INVALIDATE) << i;
		_exit(write(fd[1], &bits, sizeof(bits)) != sizeof(bits));
	}
	assert_int_equal(read(fd[0], &bits, sizeof(bits)), sizeof(bits));
	wait(NULL);
	close(fd[0]);
	close(fd[1]);
	return bits;
}

static void test_seeded(void **state)
{
	uint64_t half = choices("invalidate=50%,seed=7");

	assert_int_equal(half, choices("invalidate=50%,seed=7"));
	assert_int_not_equal(half, choices("invalidate=50%,seed=8"));
	assert_in_range(__builtin_popcountll(half), 12, 52);
	assert_int_equal(choices("invalidate=0%"), 0);
	assert_int_equal(__builtin_popcountll(choices("invalidate=100%")), 64);
}

static void test_an_access_gets_through_the_second_time(void **state)
{
	struct provoke p;

	assert_int_equal(provoke_access(1, 4096), PROVOKE_NOTHING); /* off */
	assert_null(provoke_parse("fault-every", &p));
	provoke_set(&p);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(provoke_access(1, 4096), PROVOKE_FAULT);
		assert_int_equal(provoke_access(1, 4096), PROVOKE_NOTHING);
	}
	memset(&p, 0, sizeof(p));
	provoke_set(&p);
}

static void test_times_of_an_mlx5(void **state)
{
	uint64_t sum[2] = {0}, len[2] = {4096, 4u << 20}, most = 0;

	for (int i = 0; i < 2; i++)
		for (int k = 0; k < 4096; k++) {
			uint64_t ns = mlx5_fault_ns(len[i]);

			assert_true(ns >= (i ? 350000 : 220000));
			sum[i] += ns;
			most = ns > most ? ns : most;
		}
	assert_in_range(sum[0] / 4096, 220000, 260000);
	assert_in_range(sum[1] / 4096, 350000, 410000);
	assert_in_range(most, 2 * 350000, 6 * 350000); /* the tail */
}

static void test_a_race_point_waits(void **state)
{
	struct provoke p = {.races = 1u << PROVOKE_FAULT_BEGUN};
	struct timespec a, b;
	uint64_t ns[2];

	provoke_set(&p);
	for (int on = 0; on < 2; on++) {
		clock_gettime(CLOCK_MONOTONIC, &a);
		for (int i = 0; i < 400; i++)
			provoke_race(on ? PROVOKE_FAULT_BEGUN : PROVOKE_FAULT_LOCKED);
		clock_gettime(CLOCK_MONOTONIC, &b);
		ns[on] = (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000 + (uint64_t)b.tv_nsec - (uint64_t)a.tv_nsec;
	}
	assert_true(ns[1] > 1000000); /* some 50 waits of 65 us on average */
	assert_true(ns[1] > 10 * ns[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_wrong_lists),
		cmocka_unit_test(test_seeded),
		cmocka_unit_test(test_an_access_gets_through_the_second_time),
		cmocka_unit_test(test_times_of_an_mlx5),
		cmocka_unit_test(test_a_race_point_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
