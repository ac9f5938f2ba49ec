/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for remote access without registering each piece: one span of addresses is reserved and
 * registered once, on demand, and the application allocates from it. Any address in it is good for the
 * one MR. What is freed is given back to the system, and so leaves the device's tables as well.
 *
 * Link with -lfaultline-arena. It makes plain verbs calls only, and so works on every device that has
 * on-demand paging, Faultline or not. All calls are thread-safe, but for faultline_arena_destroy().
 */
#ifndef FAULTLINE_ARENA_H
#define FAULTLINE_ARENA_H

#include <infiniband/verbs.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct faultline_arena {
	struct ibv_mr *mr; /* all of it; its address is the span's */
	void *base;
	size_t size;
};

/*
 * Reserves size bytes (rounded up to pages, and a page), which cost nothing until they are used, and registers them;
 * access: IBV_ACCESS_*, IBV_ACCESS_ON_DEMAND need not be said. NULL with errno: EINVAL: size 0 or absurd;
 * ENOMEM: no such span, or no memory; or what ibv_reg_mr() says (EOPNOTSUPP, EINVAL: the device has no
 * on-demand paging).
 */
struct faultline_arena *faultline_arena_create(struct ibv_pd *pd, size_t size, int access);

/*
 * Deregisters and unmaps all of it, with what is still allocated. No other call on the arena may run.
 * 0, or the errno of ibv_dereg_mr(), and then nothing has changed.
 */
int faultline_arena_destroy(struct faultline_arena *arena);

/* As malloc(), aligned_alloc() (alignment: a power of two), realloc() and free(). NULL with errno. */
void *faultline_arena_alloc(struct faultline_arena *arena, size_t size);
void *faultline_arena_aligned(struct faultline_arena *arena, size_t alignment, size_t size);
void *faultline_arena_realloc(struct faultline_arena *arena, void *p, size_t size);
void faultline_arena_free(struct faultline_arena *arena, void *p);

/*
 * Gives all free pages back to the system now. Else it is done whenever FAULTLINE_ARENA_SLACK bytes have
 * been freed since the last time.
 */
#define FAULTLINE_ARENA_SLACK (4u << 20)
void faultline_arena_trim(struct faultline_arena *arena);

#ifdef __cplusplus
}
#endif
#endif
