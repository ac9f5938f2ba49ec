/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sockets between processes of one user on one host: SEQPACKET, which keeps messages apart and makes a death visible
 * as a hang-up, at abstract addresses, which the kernel takes back when their process dies. Both ends check
 * that the other is of the same user. None of these waits, none leaves a descriptor to a program that is executed.
 */
#ifndef FL_UTIL_USOCK_H
#define FL_UTIL_USOCK_H

#include <stddef.h>
#include <sys/types.h>

#define USOCK_MAX_FDS 4 /* as many as the padding of a control message lets in */

/* A socket that listens at "\0name". -EADDRINUSE: somebody else does */
int usock_listen(const char *name);
/* A connection to who listens there. -ECONNREFUSED: nobody; -EAGAIN: nobody who accepts now; -EPERM: another user */
int usock_dial(const char *name);
/* The next connection, of this user (others are turned away). -EAGAIN: none; -EMFILE, -ENFILE: no descriptor left */
int usock_accept(int listen_fd);
/* Who is at the other end; 0: not to be told. */
pid_t usock_pid(int sock);

/* 0, or -EAGAIN: the other end has not read what was sent before; -EPIPE, -ECONNRESET: it is gone */
int usock_send(int sock, const void *msg, size_t len, const int *fds, int num_fds);
/*
 * The length, 0: the other end is gone, or -EAGAIN; *num_fds descriptors, which the caller owns. -EMFILE: they found
 * no room, which is said.
 */
ssize_t usock_recv(int sock, void *msg, size_t len, int *fds, int *num_fds);

#endif
