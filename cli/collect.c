/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Takes the segments of the processes under `faultline run`. Each sends a descriptor when it opens
 * a device; we map it at once and keep it, so that its last state can be read however the process
 * ends.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_PROCESSES 4096 /* each takes gigabytes of address space */

int collector_open(struct collector *c)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	uint64_t cookie;
	size_t len;
	int err;

	memset(c, 0, sizeof(*c));
	if (getrandom(&cookie, sizeof(cookie), 0) != sizeof(cookie))
		return -errno;
	snprintf(c->name, sizeof(c->name), "faultline-run/%d-%016llx", (int)getpid(),
		 (unsigned long long)cookie);
	len = strlen(c->name);
	memcpy(addr.sun_path + 1, c->name, len);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return -errno;
	if (bind(c->fd, (struct sockaddr *)&addr,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)) ||
	    listen(c->fd, 128)) {
		err = -errno;
		close(c->fd);
		return err;
	}
	return 0;
}

static struct process *room_for_one(struct collector *c)
{
	if (c->num == MAX_PROCESSES)
		return NULL;
	if (c->num == c->capacity) {
		unsigned capacity = c->capacity ? c->capacity * 2 : 8;
		struct process *p = realloc(c->process, capacity * sizeof(*p));

		if (!p)
			return NULL;
		c->process = p;
		c->capacity = capacity;
	}
	return &c->process[c->num];
}

static void take_one(struct collector *c, int conn)
{
	struct timeval patience = {.tv_sec = 1};
	struct ucred cred;
	socklen_t len = sizeof(cred);
	struct process *p = room_for_one(c);
	int fd;

	/* a program that root ran may have become another user before it opened a device */
	if (!p || getsockopt(conn, SOL_SOCKET, SO_PEERCRED, &cred, &len) ||
	    (cred.uid != geteuid() && geteuid() != 0))
		return;
	setsockopt(conn, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	fd = process_receive(conn);
	if (fd >= 0 && process_open(p, fd, cred.pid) == 0)
		c->num++;
}

void collector_take(struct collector *c)
{
	int conn;

	while ((conn = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0 || errno == EINTR) {
		if (conn < 0)
			continue;
		take_one(c, conn);
		close(conn);
	}
}

void collector_close(struct collector *c)
{
	for (unsigned i = 0; i < c->num; i++)
		process_close(&c->process[i]);
	free(c->process);
	close(c->fd);
}
