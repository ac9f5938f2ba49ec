/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libfaultline-arena.so.1: an allocator whose memory is one MR. The allocator is jemalloc, which can be
 * told where an arena's memory comes from: a pointer that moves up through the span. It keeps its own
 * data outside of the span, so that a peer who writes where it should not spoils the application's data and
 * never the allocator; pages that come free are given back by madvise(), of which the device learns
 * as of any other.
 *
 * jemalloc is linked in with all of its symbols hidden (private-jemalloc.sh): the program's malloc() is none
 * of our business. Its thread-local data must be there when the program starts, which is why this is a
 * library of its own: a program that loads libfaultline.so.1 later, as Python does, can.
 */
#include "faultline/arena.h"

#include <errno.h>
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FL_API __attribute__((visibility("default")))
#define PAGE   4096ul

/* what jemalloc 5.3's "experimental.arenas_create_ext" takes; no header has it */
struct arena_config {
	extent_hooks_t *hooks;
	bool metadata_use_hooks;
};

struct arena {
	struct faultline_arena pub;
	extent_hooks_t hooks;
	pthread_mutex_t lock; /* top; a leaf */
	uintptr_t top;	      /* what lies above was never handed out */
	unsigned index;
	int flags;
	size_t freed; /* since the last trim; atomic */
};

static struct arena *arena_of(struct faultline_arena *pub)
{
	return (struct arena *)pub; /* its first member */
}

/* ---- where jemalloc's memory comes from ---- */

static void *extent_alloc(extent_hooks_t *hooks, void *new_addr, size_t size, size_t alignment, bool *zero,
			  bool *commit, unsigned index)
{
	struct arena *a = (struct arena *)((char *)hooks - offsetof(struct arena, hooks));
	uintptr_t at, end = (uintptr_t)a->pub.base + a->pub.size;

	pthread_mutex_lock(&a->lock);
	at = (a->top + alignment - 1) & ~(alignment - 1);
	if (at < a->top || at > end || size > end - at || (new_addr && (uintptr_t)new_addr != at))
		at = 0;
	else
		a->top = at + size;
	pthread_mutex_unlock(&a->lock);
	if (at)
		*zero = *commit = true;
	return (void *)at;
}

static bool extent_purge(extent_hooks_t *hooks, void *addr, size_t size, size_t offset, size_t length, unsigned index)
{
	return madvise((char *)addr + offset, length, MADV_DONTNEED) != 0;
}

static bool extent_split(extent_hooks_t *hooks, void *addr, size_t size, size_t a, size_t b, bool committed,
			 unsigned index)
{
	return false;
}

static bool extent_merge(extent_hooks_t *hooks, void *a, size_t a_size, void *b, size_t b_size, bool committed,
			 unsigned index)
{
	return false;
}

/* ---- an arena of jemalloc's ---- */

/* arena.<index>.<what> */
static void control(struct arena *a, const char *what, void *value, size_t len)
{
	char name[64];

	snprintf(name, sizeof(name), "arena.%u.%s", a->index, what);
	mallctl(name, NULL, NULL, value, len);
}

/*
 * jemalloc asks for a little at a time, and never merges what it got at one time with what it got at another:
 * so let it have most of the span at once. The largest size it has that fits; nothing of it is touched.
 */
static void seed(struct arena *a)
{
	size_t unit = 1;

	while (unit <= (a->pub.size - PAGE) / 2)
		unit *= 2;
	for (size_t quarters = 8; quarters-- > 4;) {
		size_t want = unit / 4 * quarters;
		void *all = want && want <= a->pub.size - PAGE ? mallocx(want, a->flags) : NULL;

		if (all) {
			dallocx(all, a->flags);
			control(a, "purge", NULL, 0);
			return;
		}
	}
}

static int make_arena(struct arena *a)
{
	struct arena_config config = {.hooks = &a->hooks, .metadata_use_hooks = false};
	size_t len = sizeof(a->index);
	ssize_t never = -1, at_once = 0;
	int err;

	a->hooks = (extent_hooks_t){.alloc = extent_alloc,
				    .purge_forced = extent_purge,
				    .split = extent_split,
				    .merge = extent_merge};
	err = mallctl("experimental.arenas_create_ext", &a->index, &len, &config, sizeof(config));
	if (err)
		return err == EAGAIN ? ENOMEM : err;
	/* when is ours to say: by time alone an idle program would keep all it has freed */
	control(a, "dirty_decay_ms", &never, sizeof(never));
	control(a, "muzzy_decay_ms", &at_once, sizeof(at_once));
	a->flags = MALLOCX_ARENA(a->index) | MALLOCX_TCACHE_NONE;
	seed(a);
	return 0;
}

FL_API struct faultline_arena *faultline_arena_create(struct ibv_pd *pd, size_t size, int access)
{
	struct arena *a;
	int err = EINVAL;

	if (size > SIZE_MAX / 2)
		size = 0;
	size = (size + PAGE - 1) & ~(PAGE - 1);
	if (!size)
		goto err;
	size += PAGE; /* jemalloc adds one to what is large */
	err = ENOMEM;
	a = calloc(1, sizeof(*a));
	if (!a)
		goto err;
	a->pub.size = size;
	a->pub.base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (a->pub.base == MAP_FAILED)
		goto err_free;
	a->top = (uintptr_t)a->pub.base;
	pthread_mutex_init(&a->lock, NULL);
	err = make_arena(a);
	if (err)
		goto err_unmap;
	errno = 0;
	a->pub.mr = ibv_reg_mr(pd, a->pub.base, size, access | IBV_ACCESS_ON_DEMAND);
	if (a->pub.mr)
		return &a->pub;

	err = errno ? errno : EINVAL;
	control(a, "destroy", NULL, 0);
err_unmap:
	pthread_mutex_destroy(&a->lock);
	munmap(a->pub.base, size);
err_free:
	free(a);
err:
	errno = err;
	return NULL;
}

FL_API int faultline_arena_destroy(struct faultline_arena *pub)
{
	struct arena *a = arena_of(pub);
	int err = ibv_dereg_mr(pub->mr);

	if (err)
		return err;
	control(a, "destroy", NULL, 0);
	munmap(pub->base, pub->size);
	pthread_mutex_destroy(&a->lock);
	free(a);
	return 0;
}

/* ---- the application's calls ---- */

static void *or_enomem(void *p)
{
	if (!p)
		errno = ENOMEM;
	return p;
}

FL_API void *faultline_arena_alloc(struct faultline_arena *arena, size_t size)
{
	return or_enomem(mallocx(size ? size : 1, arena_of(arena)->flags));
}

FL_API void *faultline_arena_aligned(struct faultline_arena *arena, size_t alignment, size_t size)
{
	if (!alignment || alignment & (alignment - 1)) {
		errno = EINVAL;
		return NULL;
	}
	return or_enomem(mallocx(size ? size : 1, arena_of(arena)->flags | MALLOCX_ALIGN(alignment)));
}

FL_API void faultline_arena_trim(struct faultline_arena *arena)
{
	struct arena *a = arena_of(arena);

	__atomic_store_n(&a->freed, 0, __ATOMIC_RELAXED);
	control(a, "purge", NULL, 0);
}

static void count_freed(struct faultline_arena *arena, size_t size)
{
	if (__atomic_add_fetch(&arena_of(arena)->freed, size, __ATOMIC_RELAXED) >= FAULTLINE_ARENA_SLACK)
		faultline_arena_trim(arena);
}

FL_API void faultline_arena_free(struct faultline_arena *arena, void *p)
{
	size_t size;

	if (!p)
		return;
	size = sallocx(p, 0);
	dallocx(p, arena_of(arena)->flags);
	count_freed(arena, size);
}

FL_API void *faultline_arena_realloc(struct faultline_arena *arena, void *p, size_t size)
{
	size_t before;
	void *q;

	if (!p)
		return faultline_arena_alloc(arena, size);
	before = sallocx(p, 0);
	q = or_enomem(rallocx(p, size ? size : 1, arena_of(arena)->flags));
	if (q && (q != p || size < before))
		count_freed(arena, q != p ? before : before - size);
	return q;
}
