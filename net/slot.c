/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slots: a process owns slot n by listening at the abstract UNIX address "\0faultline/<n>" (util/usock.h), which
 * the kernel gives to one process of a network namespace and takes back when it dies. A connection
 * begins with one message, whose first byte says what it is for.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>
#include "net/impl.h"
#include "util/log.h"

struct slot_name {
	char s[32];
};

static struct slot_name name_of(uint32_t slot)
{
	struct slot_name n;

	snprintf(n.s, sizeof(n.s), FAULTLINE_SOCKET_PREFIX "%u", slot);
	return n;
}

int slot_claim(uint32_t *slot)
{
	/* not the lowest free: a number that was just given back should rest, since peers may still use it */
	uint32_t start = (uint32_t)getpid() * 7 % FAULTLINE_MAX_SLOT, i;
	int fd = -EADDRINUSE;

	for (i = 0; i < FAULTLINE_MAX_SLOT && fd == -EADDRINUSE; i++) {
		*slot = 1 + (start + i) % FAULTLINE_MAX_SLOT;
		fd = usock_listen(name_of(*slot).s);
	}
	if (fd != -EADDRINUSE)
		return fd;
	fl_err("all %u slots of this network namespace are taken by other processes; end some of them, or use another namespace (ip netns)",
	       FAULTLINE_MAX_SLOT);
	return -ENFILE;
}

int slot_dial(uint32_t slot)
{
	return usock_dial(name_of(slot).s);
}
