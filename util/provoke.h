/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Provoking what is rare: page faults that happen always, invalidations out of nothing, faults that
 * take long, a page-fault queue that is full, races that are lost. Off, it costs a branch that is always
 * predicted. On, it is for tests and for those who debug their program (`faultline run --provoke`,
 * FAULTLINE_PROVOKE), a list with commas:
 *
 *   fault-every         every access to on-demand memory faults first, whatever the tables say
 *   invalidate=P%       before an access, with this probability, its pages are invalidated
 *   delay=US | mlx5     resolving a fault takes this long, in microseconds; mlx5: as published for one
 *   queue=N             the page-fault queue has room for so many faults (what overflows is not lost)
 *   race=all | NAME     a thread that comes to this point waits there for a while, now and then; several
 *                       with '+' between. Names: FL_PROVOKE_POINTS below
 *   seed=N              where the choices begin; the same seed gives each thread the same choices
 *
 * A test of a race: set race=NAME, or call provoke_set(); have both sides run in loops; the window at the
 * point is then some 10 to 200 us wide instead of some nanoseconds. A new point is a line in the table and
 * provoke_race(PROVOKE_...) in the code; it may stand where a thread may sleep in a system call, locks
 * held or not. Nothing here allocates, takes a lock, or is a cancellation point.
 */
#ifndef FL_UTIL_PROVOKE_H
#define FL_UTIL_PROVOKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(identifier, name, where it is) */
#define FL_PROVOKE_POINTS(X)                                                                       \
	X(FAULT_BEGUN, "fault-begun", "sequence taken, pages not yet present")                     \
	X(FAULT_POPULATED, "fault-populated", "pages present, the table's lock not yet taken")     \
	X(FAULT_LOCKED, "fault-locked", "sequence checked, the table not yet filled")              \
	X(FAULT_QUEUED, "fault-queued", "a worker has taken the fault, nothing is done yet")       \
	X(FAULT_RESUME, "fault-resume", "the fault is resolved, its QPs not yet resumed")          \
	X(INVALIDATE_BEGUN, "invalidate-begun", "sequence odd, no region told yet")                \
	X(INVALIDATE_CLEARED, "invalidate-cleared", "table cleared, accesses not yet waited for")  \
	X(EVENT_SEEN, "event-seen", "device access stopped, the event not yet read")               \
	X(ACCESS_UNANNOUNCED, "access-unannounced", "key read, hazard not yet announced")          \
	X(ACCESS_ANNOUNCED, "access-announced", "hazard announced, key and table not yet looked at") \
	X(ACCESS_CHECKED, "access-checked", "key and table were good, nothing is copied yet")      \
	X(DEREG_KEY_DEAD, "dereg-key-dead", "key cleared, accesses and faults not yet waited for") \
	X(MR_REFERENCED, "mr-referenced", "a fault's reference taken, the key not yet looked at")  \
	X(ADVISE_CHUNK, "advise-chunk", "prefetch: between two chunks, before the look at the key") \
	X(CHILD_TAKEN, "child-taken", "an empty child of an implicit region is to go, and still in its table") \
	X(CHILD_OUT, "child-out", "it is out of the table, accesses not yet waited for") \
	X(DMA_MAPPED, "dma-mapped", "a dma-buf is mapped for another process, which does not know it yet") \
	X(DMA_TOLD, "dma-told", "another process's dma-buf is to be unmapped, and is in use still")

enum provoke_point {
#define PROVOKE_X(id, name, where) PROVOKE_##id,
	FL_PROVOKE_POINTS(PROVOKE_X)
#undef PROVOKE_X
	PROVOKE_POINTS,
};

struct provoke {
	bool fault_every;
	uint32_t invalidate; /* of 2^32 */
	bool delay_mlx5;
	uint32_t delay_us;
	uint32_t queue; /* 0: as it is */
	uint32_t races; /* bit per enum provoke_point */
	uint64_t seed;
};

extern struct provoke provoke;
/* one of the two that concern every access is on */
extern bool provoke_accesses;

/* NULL: *p is filled in; or what is wrong with the list */
const char *provoke_parse(const char *list, struct provoke *p);
void provoke_set(const struct provoke *p);

void provoke_wait(void);
static inline void provoke_race(enum provoke_point point)
{
	if (__builtin_expect(provoke.races & 1u << point, 0))
		provoke_wait();
}

/* What is to become of an access to on-demand pages that are there. */
enum provoke_access { PROVOKE_NOTHING, PROVOKE_FAULT, PROVOKE_INVALIDATE };
enum provoke_access provoke_choose(uint32_t key, uint64_t addr);
static inline enum provoke_access provoke_access(uint32_t key, uint64_t addr)
{
	return __builtin_expect(provoke_accesses, 0) ? provoke_choose(key, addr) : PROVOKE_NOTHING;
}

/* how long resolving a fault of so many bytes is to take, nanoseconds; 0: as long as it takes */
uint64_t provoke_fault_ns(uint64_t len);
/* the same as published for a ConnectX: 220 us for 4 KiB, 350 us for 4 MiB, about */
uint64_t mlx5_fault_ns(uint64_t len);
/* sleeps, without being a cancellation point */
void provoke_sleep(uint64_t ns);

#endif
