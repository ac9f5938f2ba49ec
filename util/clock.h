/* SPDX-License-Identifier: BSD-2-Clause */
/* Time, for intervals: never set back, and not of the day. */
#ifndef FL_UTIL_CLOCK_H
#define FL_UTIL_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static inline uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* to within the clock's tick, 4 ms as a rule, and a tenth of the price */
static inline uint64_t now_ms_coarse(void)
{
	return clock_ns(CLOCK_MONOTONIC_COARSE) / 1000000;
}

#endif
