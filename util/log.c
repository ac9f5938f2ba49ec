/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages. One message is one write(2) of one line from a buffer on the stack, so that lines of
 * several threads and processes do not mix and nothing is allocated or locked.
 */
#include "util/log.h"
#include "util/cancel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_LINE 1024

int fl_log_level = LOG_WARN;

static int log_fd = STDERR_FILENO;
static int configured = -1;

static const char *const level_name[] = {"none", "error", "warn", "info", "debug"};
#define NUM_LEVELS ((int)(sizeof(level_name) / sizeof(level_name[0])))

int fl_log_parse_level(const char *name)
{
	for (int i = 0; i < NUM_LEVELS; i++)
		if (!strcmp(name, level_name[i]) || (name[0] == '0' + i && !name[1]))
			return i;
	return -EINVAL;
}

void fl_log_configure(enum log_level level)
{
	configured = (int)level;
	fl_log_level = configured;
}

void fl_log_init(void)
{
	const char *file = secure_getenv("VERBS_LOG_FILE");
	const char *level = secure_getenv("FAULTLINE_LOG");
	int l;

	if (file && *file && log_fd == STDERR_FILENO) {
		int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

		if (fd >= 0)
			log_fd = fd;
	}
	if (configured >= 0) {
		fl_log_level = configured;
		return;
	}
	if (!level || !*level)
		level = secure_getenv("VERBS_LOG_LEVEL");
	l = level ? fl_log_parse_level(level) : -EINVAL;
	fl_log_level = l >= 0 ? l : LOG_WARN;
}

void fl_log_write(enum log_level level, const char *fmt, ...)
{
	NO_CANCEL;
	int saved_errno = errno;
	char line[MAX_LINE];
	va_list ap;
	int n, m;

	n = snprintf(line, sizeof(line), "faultline[%d]: %s: ", (int)getpid(),
		     level == LOG_WARN ? "warning" : level_name[level]);
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	va_end(ap);
	if (m < 0)
		m = 0;
	n += m;
	if (n > MAX_LINE - 1)
		n = MAX_LINE - 1;
	if (line[n - 1] != '\n')
		line[n++] = '\n'; /* in place of the terminating zero: write() needs none */
	while (write(log_fd, line, (size_t)n) < 0 && errno == EINTR)
		;
	errno = saved_errno;
}
