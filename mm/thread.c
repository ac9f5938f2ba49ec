/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads of the device. The application's signals are for its own threads; SIGSEGV and SIGBUS are left to ours, for
 * a guarded copy's are ours (guard.c). The stacks of those that stay are the device's own (private.c).
 */
#include <signal.h>
#include "mm/mm_internal.h"

int mm_thread_start(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg, const char *name)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, attr, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		pthread_setname_np(*thread, name);
	return -err;
}

int mm_thread(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg, const char *name)
{
	int err = mm_thread_start(thread, attr, fn, arg, name);

	if (err)
		return err;
	mm_private_thread(*thread);
	pthread_detach(*thread);
	return 0;
}
