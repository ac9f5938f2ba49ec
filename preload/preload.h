/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the preload library offers to libibverbs.so.1, which finds it by
 * dlsym(RTLD_DEFAULT, "faultline_preload_ops"); without `faultline run` there is none.
 *
 * Memory: only it sees calls that unmap or discard, in the thread that makes them.
 *
 * Signals: only a preloaded library sees the application's calls of sigaction(), signal() and their
 * relatives. After guard_install() such calls for that signal change and report a shadow and never
 * reach the kernel, where the guard (mm/guard.c) stays. The guard plays the shadow for every signal
 * that is not its own. The preload library re-installs the guard with SA_ONSTACK and SA_RESTART as the
 * shadow has them whenever the shadow changes (SA_ONSTACK also while it is SIG_DFL or SIG_IGN).
 */
#ifndef FL_PRELOAD_H
#define FL_PRELOAD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#define FAULTLINE_PRELOAD_VERSION 1

/* what the library gives in return: called around system calls that take memory away */
struct faultline_mm_ops {
	uint32_t size;		 /* of the structure */
	const unsigned *regions; /* atomic: how many regions watch memory; 0: no call is needed */
	/*
	 * [start, end), page aligned, is about to be unmapped or (discard) to lose its pages, by the call of
	 * that name, of that caller. end 0: the System V segment at start. true: end() is owed.
	 */
	bool (*begin)(uint64_t start, uint64_t end, bool discard, const char *by, const void *caller);
	void (*end)(void);
	/*
	 * [start, end) of a file, page aligned, is about to lose its pages, wherever it is mapped. How many times
	 * end() is owed.
	 */
	unsigned (*begin_file)(int fd, uint64_t start, uint64_t end, const char *by, const void *caller);
};

struct faultline_preload_ops {
	uint32_t version; /* FAULTLINE_PRELOAD_VERSION; a reader ignores what it does not know */
	uint32_t size;	  /* of the structure */
	/*
	 * Installs ours in the kernel and begins to shadow sig. *app_old: the application's action, as
	 * it stands. Once more for the same signal: replaces ours. 0 or negative errno.
	 */
	int (*guard_install)(int sig, const struct sigaction *ours, struct sigaction *app_old);
	/*
	 * The application's action for a signal that is being delivered; if it has SA_RESETHAND, the
	 * shadow becomes SIG_DFL, as the kernel does. Async-signal-safe: takes no lock.
	 */
	void (*guard_take_action)(int sig, struct sigaction *app);
	/*
	 * From now on munmap(), madvise(), mremap(), mmap(), brk(), shmdt(), shmat(), fallocate() and ftruncate()
	 * call these (hooks.c).
	 */
	void (*mm_install)(const struct faultline_mm_ops *ops);
};

/* between the preload library's own files */
void preload_mm_install(const struct faultline_mm_ops *ops);
/* known: a static pointer to a function, which becomes that of the C library of this name, once */
void preload_real(void *known, const char *name);

/* the symbol: extern const struct faultline_preload_ops faultline_preload_ops; */

#endif
