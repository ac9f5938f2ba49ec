/* SPDX-License-Identifier: BSD-2-Clause */
/* See provoke.h. Random numbers: xorshift64*, a state a thread, from the seed and the thread's turn. */
#include "util/provoke.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct provoke provoke;
bool provoke_accesses;

static const char *const point_name[] = {
#define PROVOKE_X(id, name, where) name,
	FL_PROVOKE_POINTS(PROVOKE_X)
#undef PROVOKE_X
};

_Static_assert(PROVOKE_POINTS <= 32, "a bit each");

/* ---- settings ---- */

static bool is(const char *item, size_t len, const char *name)
{
	return len == strlen(name) && !memcmp(item, name, len);
}

static bool number(const char *v, size_t len, uint64_t max, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(v, &end, 0);
	return len && *v >= '0' && *v <= '9' && !errno && end == v + len && *out <= max;
}

/* "1%", "0.01%", "100%" */
static bool percent(const char *v, size_t len, uint32_t *of_2_32)
{
	char *end;
	double p;

	if (!len || *v < '0' || *v > '9')
		return false;
	p = strtod(v, &end);
	if (*end != '%' || end + 1 != v + len || !(p >= 0 && p <= 100))
		return false;
	*of_2_32 = p >= 100 ? UINT32_MAX : (uint32_t)(p / 100 * 4294967296.0);
	return true;
}

static bool races(const char *v, size_t len, uint32_t *bits)
{
	for (const char *end = v + len, *next; v <= end; v = next + 1) {
		int i;

		next = memchr(v, '+', (size_t)(end - v));
		if (!next)
			next = end;
		if (is(v, (size_t)(next - v), "all")) {
			*bits |= (1u << PROVOKE_POINTS) - 1;
			continue;
		}
		for (i = 0; i < PROVOKE_POINTS && !is(v, (size_t)(next - v), point_name[i]); i++)
			;
		if (i == PROVOKE_POINTS)
			return false;
		*bits |= 1u << i;
	}
	return true;
}

static const char *parse_item(const char *item, size_t len, struct provoke *p)
{
	const char *eq = memchr(item, '=', len), *v = eq ? eq + 1 : item + len;
	size_t name = eq ? (size_t)(eq - item) : len, vlen = len - (size_t)(v - item);
	uint64_t n = 0;

	if (!eq && is(item, len, "fault-every")) {
		p->fault_every = true;
		return NULL;
	}
	if (is(item, name, "invalidate"))
		return percent(v, vlen, &p->invalidate) ? NULL
							: "has an 'invalidate' that is no percentage, such as 1%";
	if (is(item, name, "delay")) {
		p->delay_mlx5 = is(v, vlen, "mlx5");
		if (!p->delay_mlx5 && !number(v, vlen, 100000000, &n))
			return "has a 'delay' that is neither mlx5 nor a number of microseconds";
		p->delay_us = (uint32_t)n;
		return NULL;
	}
	if (is(item, name, "queue")) {
		if (!number(v, vlen, 1 << 20, &n) || !n)
			return "has a 'queue' that is no number of faults from 1 on";
		p->queue = (uint32_t)n;
		return NULL;
	}
	if (is(item, name, "race"))
		return races(v, vlen, &p->races) ? NULL
						 : "has a 'race' that names none (see faultline.conf(5))";
	if (is(item, name, "seed"))
		return number(v, vlen, UINT64_MAX, &p->seed) ? NULL : "has a 'seed' that is no number";
	return "has something else than fault-every, invalidate=, delay=, queue=, race=, seed=";
}

const char *provoke_parse(const char *list, struct provoke *p)
{
	memset(p, 0, sizeof(*p));
	while (*list) {
		size_t len = strcspn(list, ",");
		const char *wrong = parse_item(list, len, p);

		if (wrong)
			return wrong;
		list += len + (list[len] == ',');
	}
	return NULL;
}

void provoke_set(const struct provoke *p)
{
	provoke = *p;
	provoke_accesses = p->fault_every || p->invalidate;
}

/* ---- chance ---- */

static uint64_t chance(void)
{
	static uint64_t threads;
	static __thread uint64_t state __attribute__((tls_model("initial-exec")));

	if (!state) {
		uint64_t turn = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);

		state = (provoke.seed + turn) * 0x9e3779b97f4a7c15ull | 1;
	}
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dull;
}

void provoke_sleep(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

	/* by number: the C library's would be a cancellation point */
	while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &t, &t) < 0 && errno == EINTR)
		;
}

/* Mostly past, sometimes after others had the core, sometimes after a while. */
void provoke_wait(void)
{
	int err = errno;
	uint64_t r = chance();

	if (!(r >> 61))
		provoke_sleep(r >> 8 & 0x1ffff);
	else if (!(r >> 62))
		sched_yield();
	errno = err;
}

/*
 * An access that was made to fault comes again when the fault is resolved, by whatever thread, and must get
 * through then: the second time in a row at a place it does.
 */
static bool first_time(uint32_t key, uint64_t addr)
{
	static uint64_t last[256];
	uint64_t tag = ((uint64_t)key << 32 ^ addr) * 0x9e3779b97f4a7c15ull | 1;
	uint64_t *place = &last[tag >> 56];

	if (__atomic_exchange_n(place, tag, __ATOMIC_RELAXED) != tag)
		return true;
	__atomic_store_n(place, 0, __ATOMIC_RELAXED);
	return false;
}

enum provoke_access provoke_choose(uint32_t key, uint64_t addr)
{
	if (provoke.invalidate && chance() >> 32 < provoke.invalidate)
		return PROVOKE_INVALIDATE;
	return provoke.fault_every && first_time(key, addr) ? PROVOKE_FAULT : PROVOKE_NOTHING;
}

/*
 * Lesokhin et al. (ASPLOS 2017) measured 220 us for a message of 4 KiB and 350 us for one of 4 MiB, most of
 * it in the firmware. Between the two by length; a tail as such things have it: one of 16 takes up to twice
 * as long, one of 256 up to five times.
 */
uint64_t mlx5_fault_ns(uint64_t len)
{
	uint64_t base = 220000 + (len < (4u << 20) ? len : 4u << 20) * 130000 / (4u << 20);
	uint64_t r = chance();

	base += (base >> 4) * (r & 0xf) / 16;
	if (!(r >> 8 & 0xff))
		base += base * (r >> 16 & 0xff) / 64;
	else if (!(r >> 8 & 0xf))
		base += base * (r >> 16 & 0xff) / 256;
	return base;
}

uint64_t provoke_fault_ns(uint64_t len)
{
	return provoke.delay_mlx5 ? mlx5_fault_ns(len) : provoke.delay_us * 1000ull;
}
