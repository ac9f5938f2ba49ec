/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the preload library offers to libibverbs.so.1, which finds it by
 * dlsym(RTLD_DEFAULT, "faultline_preload_ops"); without `faultline run` there is none.
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
#include <stdint.h>

#define FAULTLINE_PRELOAD_VERSION 1

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
};

/* the symbol: extern const struct faultline_preload_ops faultline_preload_ops; */

#endif
