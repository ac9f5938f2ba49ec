/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Children of an implicit region that come with a fault and are given back when their last page has gone: the
 * protocol of umem_implicit.c, on one gigabyte of addresses with one page. odp.pml has what a child does as a
 * region; here a fault just enters the page, and an invalidation takes it out.
 *
 * Properties: (1) nobody touches a child that has been freed; (2) what is freed is empty and not in use; (3) an
 * empty child that nobody uses is given back in the end; (4) nobody waits for ever. As in odp.pml each -DM_name
 * takes a step away, and must fail.
 */
#ifndef OPS
#define OPS 2
#endif
#define DEVICES 2
#define MOST	6

#define lock(l)	  atomic { !l -> l = true }
#define unlock(l) l = false
/* what is done under reap_lock touches only what it guards: one step each */

byte child = 0, made = 0; /* in the parent's table: 0, or its number; they are numbered as they are made */
bool alive[MOST], pt[MOST], in_tree[MOST], called_back[MOST], queued[MOST];
bool umem_mutex[MOST];
byte users[MOST];
bool parent_lock;
bool hazard[DEVICES];
byte done = 0;

#define ALL_QUIET (!hazard[0] && !hazard[1])

inline queue_reap(c)
{
	atomic { assert(alive[c]); queued[c] = true }
}

inline is_unused(c, unused)
{
	lock(umem_mutex[c]);
	unused = users[c] == 0 && !pt[c];
	unlock(umem_mutex[c])
}

/* ---- faults ---- */

inline child_get(c)
{
	lock(parent_lock);
	if
	:: child == 0 ->
		d_step { made++; assert(made < MOST); alive[made] = true; in_tree[made] = true };
		child = made
	:: else
	fi;
	c = child;
#ifndef M_USE_NOT_COUNTED
	users[c]++;
#endif
	unlock(parent_lock)
}

inline child_put(c)
{
	lock(parent_lock);
#ifndef M_USE_NOT_COUNTED
	users[c]--;
#endif
	is_unused(c, unused);
#ifdef M_PUT_QUEUES_UNLOCKED
	unlock(parent_lock);
#endif
	if
#ifndef M_PUT_DOES_NOT_QUEUE
	:: unused -> queue_reap(c)
#endif
	:: else
	fi
#ifndef M_PUT_QUEUES_UNLOCKED
	;
	unlock(parent_lock)
#endif
}

proctype device(byte id)
{
	byte n = 0, c;
	bool unused;

	do
	:: n == OPS -> break
	:: n < OPS ->
		n++;
		/* mr_begin(), way(), the copy */
		hazard[id] = true;
		c = child;
		if
		:: c != 0 ->
			assert(alive[c]);
			if
			:: pt[c] -> assert(alive[c])
			:: else
			fi
		:: else
		fi;
		hazard[id] = false;
		if
		:: true ->
			child_get(c);
			assert(alive[c]);
			lock(umem_mutex[c]);
			assert(alive[c]);
			if
			:: pt[c] = true
			:: true /* there was nothing to be had */
			fi;
			unlock(umem_mutex[c]);
			child_put(c)
		:: true
		fi
	od;
	done++
}

/* ---- invalidations ---- */

/* mmu_notifier_invalidate_range_start() walks what is in the tree; who removes from it waits for that */
proctype application()
{
	byte n = 0, c;
	bool gone;

	do
	:: n == OPS -> break
	:: n < OPS ->
		n++;
		atomic {
			c = child;
			if
			:: c != 0 && in_tree[c] -> called_back[c] = true
			:: else -> c = 0
			fi
		};
		if
		:: c != 0 ->
			lock(umem_mutex[c]);
			pt[c] = false;
			ALL_QUIET;
			gone = !pt[c];
			assert(alive[c]);
			unlock(umem_mutex[c]);
			if
			:: gone -> queue_reap(c)
			:: else
			fi;
			called_back[c] = false
		:: else
		fi
	od;
	done++
}

/* ---- giving back ---- */

inline child_destroy(c)
{
	assert(alive[c] && users[c] == 0 && !pt[c]);
	/* mmu_interval_notifier_remove() */
#ifdef M_REMOVE_DOES_NOT_WAIT
	in_tree[c] = false;
#else
	atomic { !called_back[c] -> in_tree[c] = false };
#endif
#ifndef M_NOT_UNQUEUED
	queued[c] = false;
#endif
	alive[c] = false
}

inline reap(c)
{
	assert(alive[c]);
	lock(parent_lock);
#ifdef M_UNUSED_NOT_SEEN_AGAIN
	unused = true;
#else
	is_unused(c, unused);
#endif
#ifdef M_WAIT_BEFORE_OUT
	if
	:: unused -> ALL_QUIET
	:: else
	fi;
#endif
	if
	:: unused -> child = 0
	:: else
	fi;
	unlock(parent_lock);
	if
	:: unused ->
#if !defined(M_NO_WAIT_FOR_ACCESS) && !defined(M_WAIT_BEFORE_OUT)
		ALL_QUIET;
#endif
		child_destroy(c)
	:: else
	fi
}

proctype reaper()
{
	byte c;
	bool unused;

end_idle:
	do
	:: atomic { queued[1] -> c = 1; queued[1] = false }; reap(c)
	:: atomic { queued[2] -> c = 2; queued[2] = false }; reap(c)
	:: atomic { queued[3] -> c = 3; queued[3] = false }; reap(c)
	:: atomic { queued[4] -> c = 4; queued[4] = false }; reap(c)
	:: atomic { queued[5] -> c = 5; queued[5] = false }; reap(c)
	od
}

init {
	atomic {
		run device(0);
		run device(1);
		run application();
		run reaper()
	};
	timeout;
	assert(done == DEVICES + 1);
	assert(child == 0 || pt[child]) /* what is empty has been given back */
}
