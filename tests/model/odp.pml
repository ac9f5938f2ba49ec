/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults against invalidations, accesses in flight, deregistration and paused QPs: the protocol of
 * umem_odp.c, dma.c, mmu_notifier.c, uffd.c, hooks.c, hw/mr.c and hw/pf.c, on one page of one region.
 *
 * The steps are those of the code, one statement each where another thread may come between; names are
 * the code's. Memory is a place that is mapped or a hole, and a number that says which mapping it is:
 * the application unmaps it and maps anew. Ghosts (what the code does not have) say of a table entry
 * which mapping it was made for, and up to which mapping munmap() has returned.
 *
 * Properties: (1) no access is made by an entry whose mapping has gone and whose munmap() has returned,
 * from its first byte to its last; (2) nothing of the region is touched after deregistration returned;
 * (3) a QP goes on only after its fault was resolved, and always does: spin calls it an invalid end
 * state if one waits for ever, and so for every lock and every wait.
 *
 * Each -DM_name takes a step away or misplaces it; run.py has them all, and each must fail.
 * Memory is sequentially consistent here, as the code asks for; M_RELAXED_ANNOUNCE gives the
 * announcement a store buffer.
 */
#ifndef DEVICES
#define DEVICES 1
#endif
#ifndef OPS
#define OPS 2
#endif
#ifndef CYCLES
#define CYCLES 1
#endif
#define PROCS 12

#define lock(l)	  atomic { !l -> l = true }
#define unlock(l) l = false
/* What is done under tree_lock and pfq_lock touches only what they guard: one step each. */

/* ---- the place ---- */
bool mapped = true;
#ifdef NO_USERFAULTFD
bool watched = false; /* hooks alone tell */
#else
bool watched = true; /* by userfaultfd */
#endif
byte gen = 1;	     /* which mapping is there, or was last */
byte returned = 0;   /* ghost: mappings up to this one are gone, and who unmapped them knows */

/* ---- the notifier (mmu_notifier.c) ---- */
bool watch_lock;
byte invalidate_seq = 2, active_ranges = 0;
byte sub_seq = 1; /* the subscription's */
bool in_tree = true, deferred = false, gaps = false;
bool asleep[PROCS]; /* on seq_moved */

/* ---- the region (umem_odp.c, hw/mr.c) ---- */
bool umem_mutex;
byte pt = 0; /* the entry: 0, or the mapping it was made for (a ghost, the code has a bit) */
bool key = true, freed = false;
byte refs = 0;

/* ---- accesses in flight (dma.c, uffd.c) ---- */
bool hazard[DEVICES];
bool buffered[DEVICES];
bool stop_dma = false;
bool event = false; /* who unmapped sleeps until it is read */

/* ---- QPs and the page-fault queue (hw/pf.c) ---- */
bool qp_lock[DEVICES], faulting[DEVICES], failed[DEVICES], forced[DEVICES];
bool resolved[DEVICES]; /* ghost */
bool pfq_sleeps, queued[DEVICES];
#if DEVICES == 2
#define ALL_QUIET  (!hazard[0] && !hazard[1])
#define NONE_QUEUED (!queued[0] && !queued[1])
#else
#define ALL_QUIET   (!hazard[0])
#define NONE_QUEUED (!queued[0])
#endif

inline wait_while_seq(seq)
{
	do
	:: atomic { invalidate_seq == seq -> asleep[_pid] = true };
		!asleep[_pid]
	:: atomic { else -> break }
	od
}

inline broadcast()
{
#ifndef M_NO_BROADCAST
	i = 0;
	do
	:: i < PROCS -> asleep[i] = false; i++
	:: else -> i = 0; break
	od
#else
	skip
#endif
}

/* ib_umem_odp_unmap_dma_pages(): umem_mutex held */
inline unmap_dma_pages()
{
#ifdef M_WAIT_BEFORE_CLEAR
	ALL_QUIET;
	pt = 0
#else
	pt = 0;
#ifndef M_NO_WAIT_FOR_ACCESS
	ALL_QUIET
#else
	skip
#endif
#endif
}

inline callback(seq)
{
	assert(!freed);
	lock(umem_mutex);
	assert(!freed);
#if !defined(M_SET_SEQ_AFTER_UNLOCK) && !defined(M_NO_SET_SEQ)
	sub_seq = seq;
#endif
	unmap_dma_pages();
	assert(!freed);
	unlock(umem_mutex);
#ifdef M_SET_SEQ_AFTER_UNLOCK
	sub_seq = seq;
#endif
}

inline invalidate_range_start(seq, hit)
{
	d_step {
		active_ranges++;
		hit = in_tree;
		if
		:: hit -> invalidate_seq = invalidate_seq | 1
		:: else
		fi;
		seq = invalidate_seq
	};
	if
	:: hit -> gaps = true; callback(seq)
	:: else
	fi
}

inline invalidate_range_end()
{
	d_step {
		active_ranges--;
		if
		:: active_ranges == 0 && (invalidate_seq & 1) ->
#ifndef M_NO_NEW_SEQ
			invalidate_seq++;
#endif
			if
			:: deferred -> in_tree = !in_tree; deferred = false
			:: else
			fi;
			broadcast()
		:: else
		fi
	}
}

/* ---- the application ---- */

inline sys_munmap()
{
	atomic {
		mine = gen;
		mapped = false;
		event = watched;
		watched = false
	};
	!event;
	returned = mine
}

inline sys_mmap()
{
	atomic { mapped = true; gen++; watched = false }
}

/* unmaps the place and maps it anew, by a call that is hooked or by one that is not */
proctype application()
{
	byte n = 0, i, seq, mine;
	bool hit;

	do
	:: n == CYCLES -> break
	:: n < CYCLES ->
		n++;
		if
		:: true -> /* preload/hooks.c */
			invalidate_range_start(seq, hit);
			watched = false;
#ifdef M_HOOK_ENDS_EARLY
			invalidate_range_end();
#endif
			sys_munmap();
#ifndef M_HOOK_ENDS_EARLY
			invalidate_range_end()
#endif
#ifndef NO_USERFAULTFD
		:: true ->
			sys_munmap()
#endif
		fi;
		if
		:: n < CYCLES -> sys_mmap()
		:: true -> sys_mmap()
		:: true /* the hole stays */
		fi
	od
}

/* discards memory there meanwhile: a second invalidation */
proctype discarder()
{
	byte i, seq;
	bool hit;

	invalidate_range_start(seq, hit);
	watched = false;
	invalidate_range_end()
}

#ifdef OTHER_MAPS
/* mmap(NULL) of another thread finds the hole while munmap() still sleeps: see run.py */
proctype other()
{
end_idle:
	atomic { !mapped -> mapped = true; returned = gen; gen++; watched = false }
}
#endif

/* uffd.c: event_thread() */
proctype event_thread()
{
	byte i, seq;
	bool hit;

end_idle:
	do
	:: event ->
#ifdef M_READ_BEFORE_STOP
		event = false;
#endif
		stop_dma = true;
#ifndef M_NO_QUIESCE
		ALL_QUIET;
#endif
#ifndef M_READ_BEFORE_STOP
		event = false;
#endif
#ifdef M_START_BEFORE_INVALIDATE
		stop_dma = false;
#endif
		invalidate_range_start(seq, hit);
		invalidate_range_end();
		stop_dma = false
	od
}

/* ---- faults ---- */

inline read_begin(seq)
{
	seq = sub_seq;
#ifndef M_READ_BEGIN_DOES_NOT_WAIT
	wait_while_seq(seq) /* equal only while it is odd */
#endif
}

/* notifier_watch_again(); without a mapping it fails, and all begins anew */
inline watch_again()
{
	busy = false;
#if !defined(M_NO_WATCH_AGAIN) && !defined(NO_USERFAULTFD)
	if
	:: gaps ->
		lock(watch_lock);
		atomic {
			if
			:: mapped -> watched = true; made_for = gen /* what was mapped unseen is what the entry is for */
			:: else -> busy = true
			fi
		};
		unlock(watch_lock)
	:: else
	fi
#endif
}

/* ib_umem_odp_map_dma_and_lock() and unlock: error says whether there was nothing to be had */
inline resolve(id, force, error)
{
	error = false;
	assert(!freed);
	do
	:: true ->
		!stop_dma;
		read_begin(seq);
		if
		:: !force && pt != 0 ->
			lock(umem_mutex);
			if
			:: pt != 0 -> unlock(umem_mutex); break
			:: else -> unlock(umem_mutex); goto again
			fi
		:: else
		fi;
		if
		:: sub_seq != seq -> goto again
		:: else
		fi;
		/* MADV_POPULATE */
		atomic {
			if
			:: mapped -> made_for = gen
			:: else -> error = true
			fi
		};
		if
		:: error && force ->
			lock(umem_mutex);
			unmap_dma_pages();
#ifndef M_FORGETS_TO_UNLOCK
			unlock(umem_mutex);
#endif
			break
		:: error && !force -> break
		:: else
		fi;
		watch_again();
		if
		:: busy -> goto again
		:: else
		fi;
#ifdef M_RETRY_OUTSIDE_LOCK
		if
		:: sub_seq != seq -> goto again
		:: else
		fi;
#endif
		lock(umem_mutex);
#if !defined(M_NO_RETRY) && !defined(M_RETRY_OUTSIDE_LOCK)
		if
		:: sub_seq != seq -> unlock(umem_mutex); goto again
		:: else
		fi;
#endif
		assert(!freed);
		pt = made_for;
		unlock(umem_mutex);
		break;
again:		skip
	od;
	resolved[id] = true
}

/* ---- references (hw/mr.c) ---- */

inline mr_put()
{
#ifndef M_PUT_FORGOTTEN
	refs--
#else
	skip
#endif
}

inline mr_get(got)
{
	got = false;
	if
	:: key ->
		refs++;
#ifdef M_GET_WITHOUT_LOOK
		got = true
#else
		if
		:: key -> got = true
		:: else -> refs--
		fi
#endif
	:: else
	fi
}

proctype deregister()
{
	byte seq;

#ifndef M_KEY_DIES_LAST
	key = false;
#endif
#ifndef M_NO_WAIT_FOR_KEY
	ALL_QUIET;
#endif
#ifndef M_NO_WAIT_FOR_REFS
	refs == 0;
#endif
#ifdef M_KEY_DIES_LAST
	key = false;
#endif
	/* mmu_interval_notifier_remove() */
	lock(watch_lock);
	if
	:: atomic { !(invalidate_seq & 1) -> in_tree = false }
	:: atomic { else -> deferred = true; seq = invalidate_seq };
#ifndef M_REMOVE_DOES_NOT_WAIT
		wait_while_seq(seq)
#endif
	fi;
	watched = false;
	unlock(watch_lock);
	freed = true
}

/* ---- the page-fault worker ---- */

proctype worker()
{
	byte seq, made_for, id;
	bool busy, error;

	do
	:: true ->
		if
#ifdef M_QUEUE_SEEN_WITHOUT_LOCK
		:: NONE_QUEUED ->
			pfq_sleeps = true;
#else
		:: atomic { NONE_QUEUED -> pfq_sleeps = true };
#endif
end_idle:		!pfq_sleeps
		:: else
		fi;
		atomic {
			if
			:: queued[0] -> id = 0; queued[0] = false
#if DEVICES == 2
			:: queued[1] -> id = 1; queued[1] = false
#endif
			fi
		};
#ifdef M_WAKE_BEFORE_RESOLVED
		faulting[id] = false;
#endif
		resolve(id, forced[id], error);
		mr_put();
		lock(qp_lock[id]);
		failed[id] = error;
#ifndef M_NO_RESUME
		faulting[id] = false;
#endif
		unlock(qp_lock[id])
	od
}

/* ---- a QP's role: its thread tries, pauses, and is resumed ---- */

inline announce(id)
{
#ifdef M_RELAXED_ANNOUNCE
	buffered[id] = true
#else
	hazard[id] = true
#endif
}

inline retract(id)
{
#ifdef M_RELAXED_ANNOUNCE
	!buffered[id]; /* stores leave in order */
#endif
	hazard[id] = false
}

#ifdef M_RELAXED_ANNOUNCE
proctype store_buffer(byte id)
{
end_idle:
	do
	:: atomic { buffered[id] -> hazard[id] = true; buffered[id] = false }
	od
}
#endif

#ifdef M_NO_LOOK_AT_STOP
#define PRESENT (pt != 0)
#else
#define PRESENT (!stop_dma && pt != 0)
#endif

proctype device(byte id)
{
	byte n = 0, seq, made_for, admitted;
	bool busy, error, got;

	do
	:: n == OPS -> break
	:: n < OPS ->
		lock(qp_lock[id]);
		admitted = 0;
		/* mr_begin() */
		if
		:: !key -> goto refused
		:: else
		fi;
#ifdef M_ANNOUNCE_AFTER_LOOK
		if
		:: key && PRESENT -> admitted = pt
		:: else
		fi;
		announce(id);
#else
		announce(id);
#ifdef M_KEY_NOT_SEEN_AGAIN
		if
#else
		if
		:: !key -> retract(id); goto refused
		:: else
		fi;
		if
#endif
		:: atomic { PRESENT -> admitted = pt }
		:: else
		fi;
#endif
		forced[id] = false;
		if
		:: admitted != 0 ->
			/* the copy's first byte, and its last */
			assert(!freed && admitted > returned);
			if
			:: mapped
			:: !mapped -> forced[id] = true
			fi;
			assert(!freed && admitted > returned)
		:: else
		fi;
		retract(id);
		if
		:: admitted != 0 && !forced[id] -> n++; unlock(qp_lock[id])
		:: else ->
			/* pf_fault() */
			mr_get(got);
			if
			:: !got || failed[id] ->
				if
				:: got -> mr_put()
				:: else
				fi;
				goto refused
			:: else
			fi;
			resolved[id] = false;
			if
			:: true -> /* at once */
				resolve(id, forced[id], error);
				mr_put();
				if
				:: error -> goto refused
				:: else -> unlock(qp_lock[id])
				fi
			:: true -> /* it would sleep */
#ifdef M_PAUSED_AFTER_QUEUED
				unlock(qp_lock[id]);
#else
				faulting[id] = true;
#endif
				atomic { queued[id] = true; pfq_sleeps = false };
#ifdef M_PAUSED_AFTER_QUEUED
				faulting[id] = true;
#else
				unlock(qp_lock[id]);
#endif
				!faulting[id];
				assert(resolved[id])
			fi
		fi;
		goto next;
refused:	/* completes in error */
		failed[id] = false;
		n++;
		unlock(qp_lock[id]);
next:		skip
	od
}

init {
	atomic {
		run application();
		run event_thread();
		run worker();
		run device(0);
#if DEVICES == 2
		run device(1);
#endif
#ifdef DISCARD
		run discarder();
#endif
#ifdef DEREG
		run deregister();
#endif
#ifdef OTHER_MAPS
		run other();
#endif
#ifdef M_RELAXED_ANNOUNCE
		run store_buffer(0);
#endif
	}
}
