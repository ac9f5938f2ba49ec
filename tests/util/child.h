/* SPDX-License-Identifier: BSD-2-Clause */
/* For rules whose breach is the end of the process: each is broken in a child. */
#ifndef FL_TESTS_UTIL_CHILD_H
#define FL_TESTS_UTIL_CHILD_H

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/util/test.h"

/* how a child ended which ran fn, and 0 thereafter, as waitpid() has it; what it said is in text */
static int child_status(void (*fn)(void), char *text, size_t size)
{
	int p[2], status;
	ssize_t n, len = 0;
	pid_t pid;

	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (!pid) {
		struct rlimit none = {0, 0};

		setrlimit(RLIMIT_CORE, &none);
		signal(SIGABRT, SIG_DFL);
		dup2(p[1], STDERR_FILENO);
		fn();
		_exit(0);
	}
	close(p[1]);
	while ((n = read(p[0], text + len, size - 1 - (size_t)len)) > 0)
		len += n;
	text[len] = '\0';
	close(p[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

#endif
