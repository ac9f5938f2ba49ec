/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory whose pages take a second each to come: behind a userfaultfd of this test's own, with a
 * thread that fills pages with pattern 33, late.
 */
#include "rc.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int uffd;
static uint8_t *slow;

static void *pager(void *unused)
{
	struct uffd_msg msg;
	uint8_t *page = rc_map(PAGE);

	for (;;) {
		struct pollfd pfd = {.fd = uffd, .events = POLLIN};

		poll(&pfd, 1, -1);
		if (read(uffd, &msg, sizeof(msg)) != sizeof(msg) ||
		    msg.event != UFFD_EVENT_PAGEFAULT)
			continue;
		uint64_t at = msg.arg.pagefault.address & ~(PAGE - 1);
		struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)page, .len = PAGE};

		usleep((useconds_t)(RC_SLOW_SECONDS * 1e6));
		rc_fill(page, PAGE, at - (uintptr_t)slow, 33);
		ioctl(uffd, UFFDIO_COPY, &copy);
	}
	return NULL;
}

void *rc_map_slow(size_t size)
{
	struct uffdio_api api = {.api = UFFD_API};
	pthread_t t;

	/* faults that the kernel takes on somebody's behalf (pinning, populating) come here too,
	 * where we may */
	uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (uffd < 0)
		uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (uffd < 0)
		rc_skip("userfaultfd: %s", strerror(errno));
	CHECK(!ioctl(uffd, UFFDIO_API, &api), "UFFDIO_API: %s", strerror(errno));
	slow = rc_map(size);
	struct uffdio_register reg = {.range = {(uintptr_t)slow, size},
				      .mode = UFFDIO_REGISTER_MODE_MISSING};

	CHECK(!ioctl(uffd, UFFDIO_REGISTER, &reg), "UFFDIO_REGISTER: %s", strerror(errno));
	CHECK(!pthread_create(&t, NULL, pager, NULL), "thread");
	pthread_detach(t);
	return slow;
}
