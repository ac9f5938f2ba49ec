/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slots: a process owns slot n by listening at the abstract UNIX address "\0faultline/<n>", which
 * the kernel gives to one process of a network namespace and takes back when it dies. A connection
 * begins with one message, whose first byte says what it is for. Both ends check that the other is
 * of the same user; SEQPACKET keeps messages apart and makes a death visible as a hang-up.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>
#include "net/impl.h"
#include "util/log.h"

#define SOCK_FLAGS (SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC)

static socklen_t slot_address(uint32_t slot, struct sockaddr_un *sun)
{
	int n;

	memset(sun, 0, sizeof(*sun));
	sun->sun_family = AF_UNIX;
	n = snprintf(sun->sun_path + 1, sizeof(sun->sun_path) - 1, FAULTLINE_SOCKET_PREFIX "%u", slot);
	return offsetof(struct sockaddr_un, sun_path) + 1 + n;
}

/* The other end's user at connect() or listen() is ours. */
static bool same_user(int sock)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.uid == geteuid();
}

int slot_claim(uint32_t *slot)
{
	/* not the lowest free: a number that was just given back should rest, since peers may still use it */
	uint32_t start = (uint32_t)getpid() * 7 % FAULTLINE_MAX_SLOT, i;
	struct sockaddr_un sun;
	socklen_t len;
	int fd, ret;

	fd = socket(AF_UNIX, SOCK_FLAGS, 0);
	if (fd < 0)
		return -errno;
	for (i = 0; i < FAULTLINE_MAX_SLOT; i++) {
		*slot = 1 + (start + i) % FAULTLINE_MAX_SLOT;
		len = slot_address(*slot, &sun);
		if (!bind(fd, (struct sockaddr *)&sun, len))
			break;
		if (errno != EADDRINUSE) {
			ret = -errno;
			goto err;
		}
	}
	if (i == FAULTLINE_MAX_SLOT) {
		fl_err("all %u slots of this network namespace are taken by other processes; end some of them, or use another namespace (ip netns)",
		       FAULTLINE_MAX_SLOT);
		ret = -ENFILE;
		goto err;
	}
	if (listen(fd, SOMAXCONN)) {
		ret = -errno;
		goto err;
	}
	return fd;
err:
	close(fd);
	return ret;
}

int slot_dial(uint32_t slot)
{
	struct sockaddr_un sun;
	socklen_t len = slot_address(slot, &sun);
	int fd, ret;

	fd = socket(AF_UNIX, SOCK_FLAGS, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&sun, len)) {
		ret = -errno;
	} else if (!same_user(fd)) {
		ret = -EPERM;
	} else {
		return fd;
	}
	close(fd);
	return ret;
}

int slot_accept(int listen_fd)
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

int slot_send(int sock, const void *msg, size_t len, const int *fds, int num_fds)
{
	union {
		char buf[CMSG_SPACE(SLOT_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {.iov_base = (void *)msg, .iov_len = len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf,
			    .msg_controllen = CMSG_SPACE(num_fds * sizeof(int))};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&mh);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(num_fds * sizeof(int));
	memcpy(CMSG_DATA(cmsg), fds, num_fds * sizeof(int));
	return sendmsg(sock, &mh, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

ssize_t slot_recv(int sock, void *msg, size_t len, int *fds, int *num_fds)
{
	union {
		char buf[CMSG_SPACE(SLOT_MAX_FDS * sizeof(int))];
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
