/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of mm/ and umem/ share. Exit codes: 0, 1, 77 for skipped. */
#ifndef FL_TESTS_MMTEST_H
#define FL_TESTS_MMTEST_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "mm/mm.h"
#include "util/config.h"

#define P 4096ul

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s (errno %s)\n", __FILE__, __LINE__, #x,          \
				strerror(errno));                                                  \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

#define SKIP(why)                                                                                  \
	do {                                                                                       \
		fprintf(stderr, "skipped: %s\n", why);                                             \
		_exit(77);                                                                         \
	} while (0)

static inline void mm_start(const char *pin)
{
	struct fl_config cfg = {.notifier = "auto"};

	if (getenv("FAULTLINE_WITHOUT"))
		snprintf(cfg.without, sizeof(cfg.without), "%s", getenv("FAULTLINE_WITHOUT"));
	snprintf(cfg.pin, sizeof(cfg.pin), "%s", pin);
	CHECK(mm_init(&cfg) == 0);
}

/*
 * Far below where the kernel puts mappings by itself: what others map (a sanitizer's run time, the C library)
 * while a test has made a hole in it goes elsewhere, and is not there when the test maps over the hole.
 */
static inline char *anon(size_t n)
{
	static uintptr_t next = 0x7e9000000000;
	uintptr_t at = __atomic_fetch_add(&next, (n + (4u << 20)) & ~((2ul << 20) - 1), __ATOMIC_RELAXED);
	char *p = mmap((void *)at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static inline char *gone(size_t n)
{
	char *p = anon(n);

	CHECK(!munmap(p, n));
	return p;
}

/* fn in a child: its exit status, or 128 + the signal that ended it */
static inline int in_child(void (*fn)(void *), void *arg)
{
	int st;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		alarm(60);
		fn(arg);
		_exit(0);
	}
	CHECK(waitpid(pid, &st, 0) == pid);
	return WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
}

static inline double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline unsigned mappings(void)
{
	unsigned n = 0;
	char buf[4096];
	int fd = open("/proc/self/maps", O_RDONLY);
	ssize_t r;

	while ((r = read(fd, buf, sizeof(buf))) > 0)
		for (ssize_t i = 0; i < r; i++)
			n += buf[i] == '\n';
	close(fd);
	return n;
}

#endif
