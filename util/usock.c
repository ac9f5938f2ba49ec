/* SPDX-License-Identifier: BSD-2-Clause */
/* See usock.h. */
#include "util/usock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "util/log.h"

#define SOCK_FLAGS (SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC)

static socklen_t address(const char *name, struct sockaddr_un *sun)
{
	int n;

	memset(sun, 0, sizeof(*sun));
	sun->sun_family = AF_UNIX;
	n = snprintf(sun->sun_path + 1, sizeof(sun->sun_path) - 1, "%s", name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* the other end's, at connect() or listen() */
static bool peer_cred(int sock, struct ucred *cred)
{
	socklen_t len = sizeof(*cred);

	return !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, cred, &len);
}

static bool same_user(int sock)
{
	struct ucred cred;

	return peer_cred(sock, &cred) && cred.uid == geteuid();
}

pid_t usock_pid(int sock)
{
	struct ucred cred;

	return peer_cred(sock, &cred) ? cred.pid : 0;
}

/* a socket on which op() has been done with the address */
static int at(const char *name, int (*op)(int, const struct sockaddr *, socklen_t))
{
	struct sockaddr_un sun;
	socklen_t len = address(name, &sun);
	int fd = socket(AF_UNIX, SOCK_FLAGS, 0), err;

	if (fd < 0)
		return -errno;
	if (!op(fd, (struct sockaddr *)&sun, len))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

int usock_listen(const char *name)
{
	int fd = at(name, bind), err;

	if (fd < 0 || !listen(fd, SOMAXCONN))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

int usock_dial(const char *name)
{
	int fd = at(name, connect);

	if (fd < 0 || same_user(fd))
		return fd;
	close(fd);
	return -EPERM;
}

int usock_accept(int listen_fd)
{
	int fd;

	for (;;) {
		fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0 && errno == EINTR)
			continue;
		if (fd < 0)
			return -errno;
		if (same_user(fd))
			return fd;
		close(fd);
	}
}

int usock_send(int sock, const void *msg, size_t len, const int *fds, int num_fds)
{
	union {
		char buf[CMSG_SPACE(USOCK_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {.iov_base = (void *)msg, .iov_len = len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf,
			    .msg_controllen = num_fds ? CMSG_SPACE(num_fds * sizeof(int)) : 0};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&mh);

	if (cmsg) {
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(num_fds * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, num_fds * sizeof(int));
	}
	return sendmsg(sock, &mh, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

ssize_t usock_recv(int sock, void *msg, size_t len, int *fds, int *num_fds)
{
	union {
		char buf[CMSG_SPACE(USOCK_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = msg, .iov_len = len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf)};
	struct cmsghdr *cmsg;
	ssize_t n;

	*num_fds = 0;
	n = recvmsg(sock, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;
	for (cmsg = CMSG_FIRSTHDR(&mh); cmsg; cmsg = CMSG_NXTHDR(&mh, cmsg)) {
		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		*num_fds = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(cmsg), *num_fds * sizeof(int));
	}
	/* the kernel drops those that this process has no room for, and says no more than this */
	if (mh.msg_flags & MSG_CTRUNC) {
		fl_warn("descriptors that a peer sent could not be taken: too many are open (limit: ulimit -n)");
		while (*num_fds)
			close(fds[--*num_fds]);
		return -EMFILE;
	}
	return n;
}
