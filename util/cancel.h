/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread of the application may be cancelled (pthread_cancel). The verbs are no cancellation points, but
 * write(), sendmsg() and others that we call are, and a thread that ended in one would take a lock along.
 * NO_CANCEL at the head of a block puts it off to the block's end. A pair costs 14 ns, so it stands where
 * a system call is made anyway; ibv_get_cq_event() and ibv_get_async_event() wait without it, and may be
 * cancelled as they always could.
 */
#ifndef FL_UTIL_CANCEL_H
#define FL_UTIL_CANCEL_H

#include <pthread.h>

static inline int cancel_disable(void)
{
	int old;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	return old;
}

static inline void cancel_restore(const int *old)
{
	pthread_setcancelstate(*old, NULL);
}

#define NO_CANCEL                                                                                  \
	__attribute__((cleanup(cancel_restore), unused)) const int cancel_state_ = cancel_disable()

#endif
