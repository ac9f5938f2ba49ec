/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One table for the process, a place for each of 64 Ki pages, that costs memory only where it was
 * written: who went last there, and when. Neighbours in a region have neighbouring places, so of a
 * region nothing is lost until more than 64 Ki of its pages (256 MiB) go within the second; several
 * regions may push each other out. What is pushed out is not counted when it comes back: the count of
 * refaults is never too high (but for two pages with the same 32-bit tag in one place), and too low only
 * when it is in the tens of thousands. A second is one to within the clock's tick, 4 ms as a rule.
 *
 * Memory of its own and no allocation: notes are made by those who take memory away.
 */
#include "umem/refault.h"
#include "util/clock.h"

#define PLACES	  (1u << 16)
#define WINDOW_MS 1000u

/* tag in the upper half, the time in the lower; atomic, since regions have a lock each */
static uint64_t place[PLACES];
static uint64_t last_note; /* the same: 1 and the time; 0: there never was one */

uint32_t refault_now(void)
{
	return (uint32_t)now_ms_coarse();
}

static uint64_t *place_of(uint32_t region, uint64_t page)
{
	return &place[(page + region * 0x9e37u) % PLACES];
}

/* odd, so that it is not the tag of a place that nobody took */
static uint32_t tag_of(uint32_t region, uint64_t page)
{
	return (uint32_t)((page * 0x9e3779b97f4a7c15ull + region * 0xc2b2ae3d27d4eb4full) >> 32) | 1;
}

void refault_note(uint32_t region, uint64_t page, uint32_t now)
{
	uint64_t note = 1ull << 32 | now;

	__atomic_store_n(place_of(region, page), (uint64_t)tag_of(region, page) << 32 | now, __ATOMIC_RELAXED);
	if (__atomic_load_n(&last_note, __ATOMIC_RELAXED) != note)
		__atomic_store_n(&last_note, note, __ATOMIC_RELAXED);
}

bool refault_any(uint32_t now)
{
	uint64_t note = __atomic_load_n(&last_note, __ATOMIC_RELAXED);

	return note && now - (uint32_t)note < WINDOW_MS;
}

bool refault_take(uint32_t region, uint64_t page, uint32_t now)
{
	uint64_t *p = place_of(region, page), was = __atomic_load_n(p, __ATOMIC_RELAXED);

	if (was >> 32 != tag_of(region, page))
		return false;
	__atomic_store_n(p, 0, __ATOMIC_RELAXED);
	return now - (uint32_t)was < WINDOW_MS;
}
