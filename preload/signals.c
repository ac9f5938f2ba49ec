/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Signals under `faultline run`. The library's guard must be first at SIGSEGV and SIGBUS, since a
 * device's copy may meet memory that the application has unmapped; and the application's handlers
 * must work as if nobody else were there, whenever it installs them. So for a guarded signal the
 * kernel keeps the guard, and what the application sets and gets is a shadow that the guard plays.
 *
 * A shadow is a sequence lock, since it is read in the guard's handler: odd while it is written.
 * Who writes has all signals blocked, so no handler of his own thread can wait for him; a handler
 * that waits for another thread waits for a few instructions and a system call.
 *
 * A child of vfork() shares our memory but not our handlers: it must change neither the shadow nor
 * think it has the guard. Handlers of pthread_atfork() tell it from a child of fork().
 */
#include "preload/preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT	__attribute__((visibility("default")))
#define MAX_SIG 65 /* _NSIG */

/* the C library's other names for these; its headers do not declare them all */
EXPORT int __sigaction(int sig, const struct sigaction *act, struct sigaction *old);
EXPORT sighandler_t __sysv_signal(int sig, sighandler_t handler);
EXPORT sighandler_t sysv_signal(int sig, sighandler_t handler);
EXPORT sighandler_t bsd_signal(int sig, sighandler_t handler);
EXPORT sighandler_t ssignal(int sig, sighandler_t handler);
EXPORT extern const struct faultline_preload_ops faultline_preload_ops;

static struct shadow {
	unsigned seq;
	bool guarded;
	bool interrupts; /* siginterrupt(): signal() sets no SA_RESTART */
	struct sigaction app, guard;
} shadows[MAX_SIG];

static pid_t owner; /* whose shadows these are */

typedef int (*sigaction_fn)(int, const struct sigaction *, struct sigaction *);
static sigaction_fn real_sigaction;

static int call_real(int sig, const struct sigaction *act, struct sigaction *old)
{
	sigaction_fn fn = __atomic_load_n(&real_sigaction, __ATOMIC_RELAXED);

	if (!fn) {
		/* another library's constructor was before ours */
		fn = (sigaction_fn)dlsym(RTLD_NEXT, "sigaction");
		__atomic_store_n(&real_sigaction, fn, __ATOMIC_RELAXED);
	}
	return fn(sig, act, old);
}

static void forked(void)
{
	owner = getpid();
}

static void __attribute__((constructor)) init(void)
{
	owner = getpid();
	real_sigaction = (sigaction_fn)dlsym(RTLD_NEXT, "sigaction");
	pthread_atfork(NULL, NULL, forked);
}

/* ---- the sequence lock ---- */

static struct shadow *write_begin(int sig, sigset_t *saved)
{
	struct shadow *s = &shadows[sig];
	sigset_t all;
	unsigned seq;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, saved);
	for (;;) {
		seq = __atomic_load_n(&s->seq, __ATOMIC_RELAXED);
		/* acquire: the writer before us has finished. Pairs with write_end() */
		if (!(seq & 1) && __atomic_compare_exchange_n(&s->seq, &seq, seq + 1, false,
							      __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			break;
		sched_yield();
	}
	__atomic_thread_fence(
		__ATOMIC_RELEASE); /* odd is seen before what we write. Pairs with peek() */
	return s;
}

static void write_end(struct shadow *s, const sigset_t *saved)
{
	__atomic_store_n(&s->seq, s->seq + 1, __ATOMIC_RELEASE);
	sigprocmask(SIG_SETMASK, saved, NULL);
}

/* a copy of the application's action; no lock, no allocation */
static void peek(const struct shadow *s, struct sigaction *app)
{
	unsigned seq;

	for (;;) {
		seq = __atomic_load_n(&s->seq, __ATOMIC_ACQUIRE);
		if (!(seq & 1)) {
			memcpy(app, &s->app, sizeof(*app));
			/* the copy is whole before the second look. Pairs with write_begin() */
			__atomic_thread_fence(__ATOMIC_ACQUIRE);
			if (__atomic_load_n(&s->seq, __ATOMIC_RELAXED) == seq)
				return;
		}
		sched_yield();
	}
}

/* ---- the guard in the kernel ---- */

/* The guard runs on the stack the application wants, and system calls go on as it wants. */
static int arm(int sig, const struct shadow *s)
{
	struct sigaction k = s->guard;
	bool handler = (s->app.sa_flags & SA_SIGINFO) ||
		       (s->app.sa_handler != SIG_DFL && s->app.sa_handler != SIG_IGN);

	k.sa_flags &= ~(SA_ONSTACK | SA_RESTART);
	if (!handler)
		k.sa_flags |= SA_ONSTACK | SA_RESTART;
	else
		k.sa_flags |= s->app.sa_flags & (SA_ONSTACK | SA_RESTART);
	return call_real(sig, &k, NULL) ? -errno : 0;
}

static int guard_install(int sig, const struct sigaction *ours, struct sigaction *app_old)
{
	struct shadow *s;
	sigset_t saved;
	int err = 0;

	if (sig < 1 || sig >= MAX_SIG)
		return -EINVAL;
	s = write_begin(sig, &saved);
	if (!s->guarded && call_real(sig, NULL, &s->app))
		err = -errno;
	if (!err) {
		s->guard = *ours;
		err = arm(sig, s);
	}
	if (!err) {
		s->guarded = true;
		*app_old = s->app;
	}
	write_end(s, &saved);
	return err;
}

static void guard_take_action(int sig, struct sigaction *app)
{
	struct shadow *s = &shadows[sig];
	sigset_t saved;

	peek(s, app);
	if (!(app->sa_flags & SA_RESETHAND))
		return;
	write_begin(sig, &saved);
	*app = s->app; /* another thread may have been first */
	if (app->sa_flags & SA_RESETHAND) {
		memset(&s->app, 0, sizeof(s->app));
		s->app.sa_handler = SIG_DFL;
		arm(sig, s);
	}
	write_end(s, &saved);
}

const struct faultline_preload_ops faultline_preload_ops = {
	.version = FAULTLINE_PRELOAD_VERSION,
	.size = sizeof(struct faultline_preload_ops),
	.guard_install = guard_install,
	.guard_take_action = guard_take_action,
	.mm_install = preload_mm_install,
};

/* ---- what the application calls ---- */

EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction new, before;
	struct shadow *s;
	sigset_t saved;
	int ret = 0, err = 0;

	if (sig < 1 || sig >= MAX_SIG)
		return call_real(sig, act, old);
	if (act)
		new = *act; /* may fault: not under the lock */
	if (getpid() != owner) {
		/* child of vfork(): what the parent's shadow says was its action, until it sets its
		 * own */
		bool guarded = shadows[sig].guarded;

		peek(&shadows[sig], &before);
		ret = call_real(sig, act ? &new : NULL, old);
		if (!ret && old && guarded && old->sa_sigaction == shadows[sig].guard.sa_sigaction)
			*old = before;
		return ret;
	}
	s = write_begin(sig, &saved);
	if (!s->guarded) {
		ret = call_real(sig, act ? &new : NULL, &before);
		err = errno;
	} else {
		before = s->app;
		if (act) {
			s->app = new;
			err = -arm(sig, s);
			ret = err ? -1 : 0;
		}
	}
	write_end(s, &saved);
	if (!ret && old)
		*old = before;
	if (ret)
		errno = err;
	return ret;
}

EXPORT int __sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	return sigaction(sig, act, old);
}

/* all the older calls are sigaction() with flags of their own */
static sighandler_t set_handler(int sig, sighandler_t handler, int flags, bool block_itself)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags}, old;

	if (handler == SIG_ERR || sig < 1 || sig >= MAX_SIG) {
		errno = EINVAL;
		return SIG_ERR;
	}
	sigemptyset(&act.sa_mask);
	if (block_itself)
		sigaddset(&act.sa_mask, sig);
	return sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

EXPORT sighandler_t signal(int sig, sighandler_t handler)
{
	bool restart = sig < 1 || sig >= MAX_SIG || !shadows[sig].interrupts;

	return set_handler(sig, handler, restart ? SA_RESTART : 0, true);
}

EXPORT sighandler_t bsd_signal(int sig, sighandler_t handler)
{
	return signal(sig, handler);
}

EXPORT sighandler_t ssignal(int sig, sighandler_t handler)
{
	return signal(sig, handler);
}

EXPORT sighandler_t __sysv_signal(int sig, sighandler_t handler)
{
	return set_handler(sig, handler, SA_RESETHAND | SA_NODEFER, false);
}

EXPORT sighandler_t sysv_signal(int sig, sighandler_t handler)
{
	return __sysv_signal(sig, handler);
}

EXPORT int siginterrupt(int sig, int flag)
{
	struct sigaction act;

	if (sigaction(sig, NULL, &act))
		return -1;
	shadows[sig].interrupts = flag;
	if (flag)
		act.sa_flags &= ~SA_RESTART;
	else
		act.sa_flags |= SA_RESTART;
	return sigaction(sig, &act, NULL);
}

EXPORT int sigignore(int sig)
{
	return set_handler(sig, SIG_IGN, 0, false) == SIG_ERR ? -1 : 0;
}

EXPORT sighandler_t sigset(int sig, sighandler_t disposition)
{
	struct sigaction act;
	sigset_t set, old;
	sighandler_t before;

	if (disposition == SIG_ERR || sig < 1 || sig >= MAX_SIG) {
		errno = EINVAL;
		return SIG_ERR;
	}
	sigemptyset(&set);
	sigaddset(&set, sig);
	if (disposition == SIG_HOLD) {
		if (sigprocmask(SIG_BLOCK, &set, &old) || sigaction(sig, NULL, &act))
			return SIG_ERR;
		return sigismember(&old, sig) ? SIG_HOLD : act.sa_handler;
	}
	before = set_handler(sig, disposition, 0, false);
	if (before == SIG_ERR || sigprocmask(SIG_UNBLOCK, &set, &old))
		return SIG_ERR;
	return sigismember(&old, sig) ? SIG_HOLD : before;
}
