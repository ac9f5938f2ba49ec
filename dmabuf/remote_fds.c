/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The end of a process is seen by the end of its connections, so nobody else may have a copy of them. A program that is
 * executed has none (close-on-exec); the child of a fork closes its own, here. Between the call that makes a socket and
 * its entry in the list no other thread forks: that is the gate, which is no fl_mutex, since it is held over fork()
 * together with locks of any rank, by handlers that run in no fixed order. Nothing is taken under it.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <unistd.h>
#include "dmabuf/remote.h"
#include "util/usock.h"

#define MAX_FDS 4096

static _Atomic int kept[MAX_FDS]; /* the descriptor plus 1; 0: free */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
/* this thread has it: a signal handler that forks now must not wait for it */
static __thread bool inside __attribute__((tls_model("initial-exec")));

static void gate_enter(void)
{
	inside = true;
	atomic_signal_fence(memory_order_seq_cst);
	pthread_mutex_lock(&gate);
}

static void gate_leave(void)
{
	pthread_mutex_unlock(&gate);
	atomic_signal_fence(memory_order_seq_cst);
	inside = false;
}

int dma_remote_keep(int fd)
{
	for (unsigned i = 0; fd >= 0 && i < MAX_FDS; i++) {
		int nobody = 0;

		if (!atomic_load_explicit(&kept[i], memory_order_relaxed) &&
		    atomic_compare_exchange_strong(&kept[i], &nobody, fd + 1))
			return fd;
	}
	if (fd < 0)
		return fd;
	close(fd);
	return -EMFILE;
}

int dma_remote_dial(const char *name)
{
	int fd;

	gate_enter();
	fd = dma_remote_keep(usock_dial(name));
	gate_leave();
	return fd;
}

int dma_remote_accept(int listen_fd)
{
	int fd;

	gate_enter();
	fd = dma_remote_keep(usock_accept(listen_fd));
	gate_leave();
	return fd;
}

void dma_remote_close(int fd)
{
	if (fd < 0)
		return;
	/* before it closes, and the number is somebody else's */
	for (unsigned i = 0; i < MAX_FDS; i++) {
		int mine = fd + 1;

		if (atomic_load_explicit(&kept[i], memory_order_relaxed) == mine &&
		    atomic_compare_exchange_strong(&kept[i], &mine, 0))
			break;
	}
	close(fd);
}

void dma_remote_fork_begin(void)
{
	if (!inside)
		pthread_mutex_lock(&gate);
}

void dma_remote_fork_end(void)
{
	if (!inside)
		pthread_mutex_unlock(&gate);
}

void dma_remote_fds_fork_child(void)
{
	for (unsigned i = 0; i < MAX_FDS; i++) {
		int fd = atomic_exchange(&kept[i], 0) - 1;

		if (fd >= 0)
			close(fd);
	}
	pthread_mutex_init(&gate, NULL);
}
