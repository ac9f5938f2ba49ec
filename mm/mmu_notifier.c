/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MMU interval notifiers: who has copies of which part of the page tables, and how he learns that it
 * changes. The protocol is the kernel's (mm/mmu_notifier.c there).
 *
 * One counter, invalidate_seq, is odd while an invalidation that concerns a subscription runs, and
 * even otherwise. A fault takes the sequence of its subscription (read_begin), makes pages present,
 * takes its owner's lock and asks whether it moved (read_retry): it did if an invalidation called back
 * since, for the callback sets the subscription's sequence under that same lock. read_begin waits
 * while the subscription's own sequence is the running one.
 *
 * The tree does not change while the counter is odd, so that invalidations walk it without the lock;
 * insertions and removals that come meanwhile are put off to the end of the last invalidation.
 *
 * Two locks. watch_lock orders insertions and removals with what they tell userfaultfd (a second tree,
 * `covered`, says what must stay watched). tree_lock guards the sequence and the tree. The event
 * thread takes the second only: whoever holds the first may be asleep in the kernel.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include "mm/mm_internal.h"
#include "util/interval_tree.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/provoke.h"

/* what mni->node points to */
struct subscription {
	struct interval_node node;	/* in `subscriptions`, by tree_lock */
	struct interval_node cover;	/* in `covered`, by watch_lock */
	struct mmu_interval_notifier *mni;
	unsigned generation;
	bool in_tree;
	bool once; /* counts in num_once */
	uint64_t lazy_start, lazy_end; /* a part that is watched unless `gaps`; by watch_lock */
	bool gaps; /* atomic: something in it was not mapped, or was unmapped, since it was watched */
	struct vma known;	  /* by tree_lock; a hint */
	unsigned unmaps, known_at; /* what went so far, atomic; `known` is of this `unmaps` */
};

#define sub_of(n) caa_container_of(n, struct subscription, node)

static struct fl_mutex watch_lock = FL_MUTEX_INIT(LOCK_UMEM_RWSEM);
static struct interval_tree covered = INTERVAL_TREE_INIT;

static struct fl_mutex tree_lock = FL_MUTEX_INIT(LOCK_LEAF);
static pthread_cond_t seq_moved = PTHREAD_COND_INITIALIZER;
static struct interval_tree subscriptions = INTERVAL_TREE_INIT;
static unsigned long invalidate_seq = 2;
static unsigned long active_ranges;
static CDS_LIST_HEAD(deferred);

/*
 * Watching a part of a mapping cuts it in up to three, and the kernel allows 65,530 mappings of a process
 * by default. On-demand memory needs to be watched; for pinned memory the application must not run out.
 */
#define MAX_ONCE 8192u
#define GROWS_IN_PLACE (1ull << 17) /* of smaller ones realloc() makes no mappings */
static unsigned num_once; /* subscriptions of that kind that are watched; by watch_lock */

unsigned notifier_regions;

static unsigned generation; /* counts forks */
static void (*quiesce_fn)(uint64_t start, uint64_t end);

static bool is_invalidating(void)
{
	return invalidate_seq & 1;
}

/* tree_lock held; as long as the running sequence is `seq` */
static void wait_while_seq(unsigned long seq)
{
	while (invalidate_seq == seq)
		fl_cond_wait(&seq_moved, &tree_lock);
}

/* ---- invalidations ---- */

void mmu_notifier_invalidate_range_start(const struct mmu_notifier_range *range)
{
	struct interval_node *n = NULL;
	unsigned long seq;

	fl_lock(&tree_lock);
	active_ranges++;
	if (range->start < range->end)
		n = interval_first(&subscriptions, range->start, range->end);
	if (n)
		invalidate_seq |= 1;
	seq = invalidate_seq;
	fl_unlock(&tree_lock);

	provoke_race(PROVOKE_INVALIDATE_BEGUN);
	/* n: the sequence is odd and the tree stands still */
	for (; n; n = interval_next(n, range->start, range->end)) {
		struct subscription *s = sub_of(n);

		if (range->event == MMU_NOTIFY_UNMAP || range->unwatch)
			__atomic_store_n(&s->gaps, true, __ATOMIC_RELEASE);
		if (range->event == MMU_NOTIFY_UNMAP) /* the mapping, not only its pages */
			__atomic_fetch_add(&s->unmaps, 1, __ATOMIC_RELEASE); /* pairs with notifier_known() */
		s->mni->ops->invalidate(s->mni, range, seq);
	}
}

void mmu_notifier_invalidate_range_end(const struct mmu_notifier_range *range)
{
	struct mmu_interval_notifier *mni, *tmp;

	fl_lock(&tree_lock);
	if (--active_ranges || !is_invalidating()) {
		fl_unlock(&tree_lock);
		return;
	}
	invalidate_seq++;
	cds_list_for_each_entry_safe(mni, tmp, &deferred, deferred) {
		struct subscription *s = sub_of(mni->node);

		if (s->in_tree)
			interval_remove(&subscriptions, &s->node);
		else
			interval_insert(&subscriptions, &s->node);
		s->in_tree = !s->in_tree;
		cds_list_del_init(&mni->deferred);
	}
	pthread_cond_broadcast(&seq_moved);
	fl_unlock(&tree_lock);
}

bool notifier_overlaps(uint64_t start, uint64_t end)
{
	bool yes;

	/* A signal handler's thread may hold it below: the event that comes then does as well. */
	for (int i = 0; !fl_trylock(&tree_lock); i++) {
		if (i == 1000)
			return false;
		sched_yield();
	}
	yes = interval_first(&subscriptions, start, end) != NULL;
	fl_unlock(&tree_lock);
	return yes;
}

/* ---- for who looks at all that is watched (reclaim.c, hooks.c) ---- */

bool notifier_next(uint64_t at, bool forgets, uint64_t *start, uint64_t *end)
{
	struct interval_node *n;

	fl_lock(&tree_lock);
	n = interval_first(&subscriptions, at, UINT64_MAX);
	while (n && forgets && sub_of(n)->mni->ops->once)
		n = interval_next(n, at, UINT64_MAX);
	if (n) {
		*start = n->start > at ? n->start : at;
		*end = n->end;
	}
	fl_unlock(&tree_lock);
	return n != NULL;
}

bool notifier_holds(uint64_t start, uint64_t end)
{
	struct interval_node *n;
	bool yes = false;

	fl_lock(&tree_lock); /* what is in the tree is not released */
	for (n = interval_first(&subscriptions, start, end); n && !yes; n = interval_next(n, start, end)) {
		struct mmu_interval_notifier *mni = sub_of(n)->mni;

		yes = mni->ops->holds && mni->ops->holds(mni, start > n->start ? start : n->start,
							  end < n->end ? end : n->end);
	}
	fl_unlock(&tree_lock);
	return yes;
}

/* ---- subscriptions ---- */

static void tree_insert(struct mmu_interval_notifier *mni, struct subscription *s)
{
	fl_lock(&tree_lock);
	/* what a hook takes away now it lets go of as well, after we have it watched */
	if (active_ranges)
		__atomic_store_n(&s->gaps, true, __ATOMIC_RELEASE);
	if (active_ranges && is_invalidating()) {
		cds_list_add(&mni->deferred, &deferred);
		mni->invalidate_seq = invalidate_seq;
	} else {
		/* what runs now concerns nobody so far; it may concern this one, and so faults wait */
		if (active_ranges)
			invalidate_seq |= 1;
		interval_insert(&subscriptions, &s->node);
		s->in_tree = true;
		mni->invalidate_seq = active_ranges ? invalidate_seq : invalidate_seq - 1;
	}
	fl_unlock(&tree_lock);
}

static void tree_remove(struct mmu_interval_notifier *mni, struct subscription *s)
{
	fl_lock(&tree_lock);
	if (!is_invalidating()) {
		interval_remove(&subscriptions, &s->node);
	} else if (!s->in_tree) {
		cds_list_del_init(&mni->deferred); /* its insertion had been put off */
	} else {
		cds_list_add(&mni->deferred, &deferred);
		wait_while_seq(invalidate_seq);
	}
	fl_unlock(&tree_lock);
}

/* Is every page of [start, end) mapped? A look at a few mappings must do: false when in doubt. */
static bool all_mapped(uint64_t start, uint64_t end)
{
	struct vma v;

	for (int i = 0; i < 8; i++) {
		if (vma_find(start, &v) || v.start > start)
			return false;
		if (v.end >= end)
			return true;
		start = v.end;
	}
	return false;
}

/* watch_lock held. Where there is no userfaultfd at all, that has been said (uffd.c). */
static void say_unwatched(uint64_t start, uint64_t end)
{
	if (uffd_runs())
		fl_warn_once("on-demand memory in 0x%llx-0x%llx cannot be watched: %s (userfaultfd takes no mapping of "
			     "the kernel's own, as [vdso], and before Linux 6.7 no file's). When it is unmapped, only calls that `faultline run` "
			     "sees are told of; access stays safe",
			     (unsigned long long)start, (unsigned long long)end, uffd_unwatched_why());
}

int mmu_interval_notifier_insert(struct mmu_interval_notifier *mni, uint64_t start, uint64_t length,
				 const struct mmu_interval_notifier_ops *ops)
{
	uint64_t last = start + length - 1;
	struct subscription *s;

	if (!length || last < start)
		return -EOVERFLOW;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	start &= PAGE_MASK;
	mni->ops = ops;
	mni->start = start;
	mni->end = (last & PAGE_MASK) + PAGE_SIZE;
	if (!mni->end) /* the last page of all is never the application's */
		mni->end = last & PAGE_MASK;
	if (mni->end <= start) {
		free(s);
		return -EOVERFLOW;
	}
	mni->watched = false;
	mni->node = &s->node;
	CDS_INIT_LIST_HEAD(&mni->deferred);
	s->mni = mni;
	s->generation = generation;
	s->node.start = s->cover.start = start;
	s->node.end = s->cover.end = mni->end;

	fl_lock(&watch_lock);
	interval_insert(&covered, &s->cover);
	__atomic_fetch_add(&notifier_regions, 1, __ATOMIC_RELAXED);
	/* in the tree before it is watched: the first event finds it */
	tree_insert(mni, s);
	if (!ops->once)
		reclaim_start();
	if (!ops->once && uffd_start(true)) {
		uffd_drop_strays();
		mni->watched = ops->lazy || uffd_register(start, mni->end) != UFFD_UNWATCHED;
		if (ops->lazy || !all_mapped(start, mni->end))
			__atomic_store_n(&s->gaps, true, __ATOMIC_RELEASE);
		if (!mni->watched)
			say_unwatched(start, mni->end);
	}
	fl_unlock(&watch_lock);
	if (!ops->once) /* or pin_user_pages() does it */
		guard_recheck();
	return 0;
}

void mmu_interval_notifier_watch(struct mmu_interval_notifier *mni)
{
	struct subscription *s = sub_of(mni->node);

	fl_lock(&watch_lock);
	if (num_once < MAX_ONCE && uffd_start(false)) {
		uffd_drop_strays();
		mni->watched = uffd_register(mni->start, mni->end) != UFFD_UNWATCHED;
		num_once += s->once = true;
	}
	fl_unlock(&watch_lock);
}

/*
 * A mapping that mremap() has grown in place stays watched to its new end. Mappings that are watched do
 * not merge with others, so what lies behind our end in this one, up to another region, is ours to let go.
 */
static uint64_t grown_to(uint64_t end)
{
	struct interval_node *next;
	struct vma v;

	if (vma_find(end - 1, &v) || v.start >= end || v.end <= end)
		return end;
	next = interval_first(&covered, end, v.end);
	if (!next)
		return v.end;
	return next->start > end ? next->start : end;
}

void mmu_interval_notifier_remove(struct mmu_interval_notifier *mni)
{
	struct subscription *s = sub_of(mni->node);
	uint64_t end = mni->end;

	if (s->generation != generation) { /* of the process that forked us */
		free(s);
		mni->node = NULL;
		return;
	}
	fl_lock(&watch_lock);
	tree_remove(mni, s);
	interval_remove(&covered, &s->cover);
	num_once -= s->once;
	__atomic_fetch_sub(&notifier_regions, 1, __ATOMIC_RELAXED);
	if (mni->watched && (!mni->ops->once || end - mni->start >= GROWS_IN_PLACE))
		end = grown_to(end);
	if (mni->watched || !mni->ops->once)
		notifier_each_uncovered(mni->start, end, uffd_unregister);
	uffd_drop_strays();
	fl_unlock(&watch_lock);
	free(s);
	mni->node = NULL;
}

void notifier_each_uncovered(uint64_t start, uint64_t end, void (*fn)(uint64_t start, uint64_t end))
{
	uint64_t from, to;

	while (interval_next_gap(&covered, &start, end, &from, &to))
		fn(from, to);
}

/*
 * Has the mappings that [start, end) meets watched, each whole as far as it is in mni. watch_lock held. A
 * mapping that is watched stays so until an event tells that it went, and that sets `gaps`.
 */
static enum uffd_watch watch_mappings(struct mmu_interval_notifier *mni, uint64_t start, uint64_t end)
{
	struct subscription *s = sub_of(mni->node);
	enum uffd_watch ret = UFFD_NOTHING_MAPPED;
	struct vma v;
	int err = 0;

	/* before we look: what goes meanwhile sets it again */
	if (__atomic_exchange_n(&s->gaps, false, __ATOMIC_ACQ_REL))
		s->lazy_start = s->lazy_end = 0;
	if (start >= s->lazy_start && end <= s->lazy_end)
		return UFFD_WATCHED;
	uffd_start(true);
	while (start < end && !(err = vma_find(start, &v)) && v.start < end) {
		uint64_t from = v.start > mni->start ? v.start : mni->start;
		uint64_t to = v.end < mni->end ? v.end : mni->end;
		enum uffd_watch one = uffd_register(from, to);

		if (ret != UFFD_UNWATCHED)
			ret = one;
		if (one == UFFD_WATCHED && from == s->lazy_end) {
			s->lazy_end = to;
		} else if (one == UFFD_WATCHED) {
			s->lazy_start = from;
			s->lazy_end = to;
		}
		start = v.end;
	}
	/* no /proc: what is asked for, and no more */
	return err == -EACCES ? uffd_register(start, end) : ret;
}

bool notifier_watches(struct mmu_interval_notifier *mni, uint64_t start, uint64_t end)
{
	bool all;

	fl_lock(&watch_lock);
	all = watch_mappings(mni, start, end) != UFFD_UNWATCHED;
	fl_unlock(&watch_lock);
	return all;
}

unsigned notifier_known(struct mmu_interval_notifier *mni, struct vma *v)
{
	struct subscription *s = sub_of(mni->node);
	/* before the caller looks at a mapping: what goes meanwhile makes that worthless */
	unsigned unmaps = __atomic_load_n(&s->unmaps, __ATOMIC_ACQUIRE);

	fl_lock(&tree_lock);
	*v = s->known_at == unmaps ? s->known : (struct vma){0};
	fl_unlock(&tree_lock);
	return unmaps;
}

void notifier_knows(struct mmu_interval_notifier *mni, const struct vma *v, unsigned unmaps)
{
	struct subscription *s = sub_of(mni->node);

	if (!__atomic_load_n(&mni->watched, __ATOMIC_RELAXED)) /* nobody tells when it goes */
		return;
	fl_lock(&tree_lock);
	if (s->known.start != v->start || s->known.end != v->end || s->known_at != unmaps) {
		s->known = *v;
		s->known_at = unmaps;
	}
	fl_unlock(&tree_lock);
}

int notifier_watch_again(struct mmu_interval_notifier *mni, uint64_t start, uint64_t end)
{
	struct subscription *s = sub_of(mni->node);
	int ret = 0;

	/* set under an invalidation that a fault which began later has waited for */
	if (!mni->ops->lazy && !__atomic_load_n(&s->gaps, __ATOMIC_ACQUIRE))
		return 0;
	fl_lock(&watch_lock);
	switch (mni->ops->lazy ? watch_mappings(mni, start, end) : uffd_register(start, end)) {
	case UFFD_WATCHED:
		/* Over a hole it succeeds as well: a page that was unmapped, unwatched, since it was populated. */
		if (end - start > PAGE_SIZE && uffd_is_async() && !vma_all_watched(start, end)) {
			uffd_register(start, end);
			/* what cannot be had once must not be asked for without end */
			ret = vma_all_watched(start, end) || vma_absent(start, end) ? -EBUSY : 0;
		}
		break;
	case UFFD_NOTHING_MAPPED:
		ret = -EBUSY;
		break;
	case UFFD_UNWATCHED:
		__atomic_store_n(&mni->watched, false, __ATOMIC_RELAXED); /* faults look at it without the lock */
		say_unwatched(start, end);
		break;
	}
	fl_unlock(&watch_lock);
	return ret;
}

/* ---- the reader's side ---- */

unsigned long mmu_interval_read_begin(struct mmu_interval_notifier *mni)
{
	unsigned long seq;

	fl_lock(&tree_lock);
	seq = __atomic_load_n(&mni->invalidate_seq, __ATOMIC_RELAXED);
	/* an invalidation that called back here, or kept it from being inserted, still runs: it is not
	 * worth to begin before its end */
	if (is_invalidating())
		wait_while_seq(seq);
	fl_unlock(&tree_lock);
	return seq;
}

bool mmu_interval_read_retry(struct mmu_interval_notifier *mni, unsigned long seq)
{
	/* by the owner's lock; hmm_range_fault() looks without it, for a hint */
	return __atomic_load_n(&mni->invalidate_seq, __ATOMIC_RELAXED) != seq;
}

void mmu_interval_set_seq(struct mmu_interval_notifier *mni, unsigned long cur_seq)
{
	__atomic_store_n(&mni->invalidate_seq, cur_seq, __ATOMIC_RELAXED);
}

void mm_set_quiesce(void (*quiesce)(uint64_t start, uint64_t end))
{
	/* whole what it works on, when it can be called; pairs with notifier_quiesce() */
	__atomic_store_n(&quiesce_fn, quiesce, __ATOMIC_RELEASE);
}

void notifier_quiesce(void)
{
	void (*fn)(uint64_t, uint64_t) = __atomic_load_n(&quiesce_fn, __ATOMIC_ACQUIRE);

	if (fn)
		fn(0, UINT64_MAX);
}

void notifier_fork_child(void)
{
	generation++;
	fl_mutex_init(&watch_lock, LOCK_UMEM_RWSEM);
	fl_mutex_init(&tree_lock, LOCK_LEAF);
	seq_moved = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	covered = subscriptions = (struct interval_tree)INTERVAL_TREE_INIT;
	CDS_INIT_LIST_HEAD(&deferred);
	active_ranges = num_once = notifier_regions = 0;
	invalidate_seq = (invalidate_seq | 1) + 1;
}
