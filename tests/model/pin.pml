/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pages of an on-demand region that are pinned and unpinned, against invalidations, faults and accesses: the
 * protocol of umem_odp_pin.c and umem_odp.c, on one page. Sequence and notifier are reduced to what odp.pml shows
 * them to be: who begins waits while an invalidation runs, and sees under umem_mutex whether one came since.
 *
 * Ghosts: an entry, and a pin, say which mapping they were made for. Properties: (1) no access is made by the
 * address for an entry whose mapping has gone and whose munmap() has returned; (2) what is pinned is what the
 * entry is for, and a stale page's access finds its pin; (3) nothing is entered that was not populated; (4) nobody
 * waits for ever. Each -DM_name takes a step away, and must fail.
 *
 * What a process knows of a round is forgotten at its end, so that rounds that differ in nothing else are one.
 */
#ifndef CYCLES
#define CYCLES 1
#endif

#define lock(l)	  atomic { !l -> l = true }
#define unlock(l) l = false

bool mapped = true, invalidating = false;
byte gen = 1, returned = 0, seq = 0;
bool umem_mutex, pins_lock, hazard;
byte pt = 0;
bool pinned = false, stale = false;
byte pin = 0, pins_moved = 0; /* pin: the mapping whose pages it holds; 0: none */

/* preload/hooks.c: unmaps, and maps anew or not */
proctype application()
{
	byte n = 0;

	do
	:: n == CYCLES -> break
	:: n < CYCLES ->
		n++;
		invalidating = true;
		/* umem_odp_invalidate() */
		lock(umem_mutex);
		seq++;
		if
		:: pinned ->
#ifndef M_PIN_NOT_STALE
			stale = true
#else
			skip
#endif
		:: else -> pt = 0
		fi;
#ifdef M_NO_WAIT_FOR_PINNED
		if
		:: !pinned -> !hazard
		:: else
		fi;
#else
		!hazard;
#endif
		unlock(umem_mutex);
		atomic { mapped = false; returned = gen };
		invalidating = false;
		if
		:: true -> atomic { mapped = true; gen++ }
		:: n == CYCLES
		fi
	od
}

/* pin_part(), and drop() */
proctype pinner()
{
	byte n = 0, began, got;

	do
	:: n == CYCLES -> break
	:: n < CYCLES ->
		n++;
		lock(pins_lock);
again:		atomic { !invalidating -> began = seq };
		/* pin_user_pages() */
		atomic {
			if
			:: mapped -> got = gen
			:: else -> got = 0
			fi
		};
		if
		:: got != 0 ->
			lock(umem_mutex);
#ifndef M_PIN_NO_RETRY
			if
			:: seq != began -> unlock(umem_mutex); goto again
			:: else
			fi;
#endif
			pt = got;
			pin = got;
			pinned = true;
			pins_moved++;
			unlock(umem_mutex);
			unlock(pins_lock);
			/* and unpins */
			lock(pins_lock);
			lock(umem_mutex);
#ifdef M_UNPIN_LEAVES_STALE
			stale = false;
#endif
			if
			:: stale -> pt = 0
			:: else
			fi;
			atomic { pinned = false; stale = false };
			pins_moved++;
			!hazard; /* of what was stale: it is out */
			unlock(umem_mutex);
			pin = 0
		:: else
		fi;
		began = 0;
		got = 0;
		unlock(pins_lock)
	od
}

/* ib_umem_odp_map_dma_and_lock() */
proctype worker()
{
	byte n = 0, began, moved, made_for;

	do
	:: n == CYCLES -> break
	:: n < CYCLES ->
		n++;
again:		atomic { !invalidating -> began = seq };
		moved = pins_moved;
		/* populate(): what is not pinned */
		atomic {
			made_for = 0;
			if
			:: pinned || !mapped
			:: else -> made_for = gen
			fi
		};
		if
		:: pinned || made_for != 0 ->
			lock(umem_mutex);
			if
#ifdef M_PINS_NOT_SEEN_MOVED
			:: seq != began -> unlock(umem_mutex); goto again
#else
			:: seq != began || moved != pins_moved -> unlock(umem_mutex); goto again
#endif
			:: else
			fi;
			/* enter() */
			if
#ifdef M_FAULT_ENTERS_PINNED
			:: true -> pt = made_for
#else
			:: !pinned -> assert(made_for != 0); pt = made_for
#endif
			:: else
			fi;
			unlock(umem_mutex)
		:: else
		fi;
		began = 0;
		moved = 0;
		made_for = 0
	od
}

/* umem_odp_way(), and the access by that way */
proctype device()
{
	byte n = 0, admitted;

	do
	:: n == CYCLES * 2 -> break
	:: n < CYCLES * 2 ->
		n++;
		hazard = true;
		atomic {
			admitted = 0;
			if
			:: pt != 0 && !stale -> admitted = pt
			:: else
			fi
		};
		if
		:: admitted != 0 -> /* from its first byte to its last */
			assert(admitted > returned);
			/* while it is announced nothing returns: the last byte, and the end of it, are one */
			atomic { assert(admitted > returned); hazard = false; admitted = 0 }
		:: else ->
			hazard = false;
			/* umem_odp_copy(): get_pin() */
			lock(umem_mutex);
			if
			:: pinned && stale -> assert(pin != 0 && pt == pin)
			:: else
			fi;
			unlock(umem_mutex)
		fi
	od
}

init {
	atomic {
		run application();
		run pinner();
		run worker();
		run device()
	}
}
