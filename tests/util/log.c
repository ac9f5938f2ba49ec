/* SPDX-License-Identifier: BSD-2-Clause */
/* Levels come from where they should, lines are whole and bounded, errno survives. */
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "util/log.h"

static char path[] = "/tmp/faultline-log-XXXXXX";

static char *logged(char *buf, size_t size)
{
	FILE *f = fopen(path, "r");
	size_t n = fread(buf, 1, size - 1, f);

	buf[n] = '\0';
	fclose(f);
	assert_int_equal(truncate(path, 0), 0);
	return buf;
}

static void test_levels(void **state)
{
	unsetenv("FAULTLINE_LOG");
	unsetenv("VERBS_LOG_LEVEL");
	fl_log_init();
	assert_int_equal(fl_log_level, LOG_WARN);
	setenv("VERBS_LOG_LEVEL", "4", 1);
	fl_log_init();
	assert_int_equal(fl_log_level, LOG_DEBUG);
	setenv("FAULTLINE_LOG", "error", 1);
	fl_log_init();
	assert_int_equal(fl_log_level, LOG_ERR);
	setenv("FAULTLINE_LOG", "loud", 1);
	fl_log_init();
	assert_int_equal(fl_log_level, LOG_WARN);
	assert_int_equal(fl_log_parse_level("none"), LOG_NONE);
	assert_int_equal(fl_log_parse_level("3"), LOG_INFO);
	assert_int_equal(fl_log_parse_level("5"), -EINVAL);
	assert_int_equal(fl_log_parse_level(""), -EINVAL);
	assert_int_equal(fl_log_parse_level("33"), -EINVAL);
}

static void test_lines(void **state)
{
	char buf[8192], longest[4000];

	fl_log_level = LOG_WARN;
	errno = EDOM;
	fl_warn("MR %d: %s", 7, "gone");
	fl_info("not this");
	assert_int_equal(errno, EDOM);
	logged(buf, sizeof(buf));
	assert_non_null(strstr(buf, "warning: MR 7: gone\n"));
	assert_null(strstr(buf, "not this"));

	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	fl_err("%s", longest);
	logged(buf, sizeof(buf));
	assert_true(strlen(buf) <= 1024);
	assert_int_equal(buf[strlen(buf) - 1], '\n');

	for (int i = 0; i < 3; i++)
		fl_warn_once("once");
	logged(buf, sizeof(buf));
	assert_ptr_equal(strstr(buf, "once"), strrchr(buf, 'o'));
}

/* what the settings say holds, also when the registry starts anew after a fork */
static void test_configured(void **state)
{
	unsetenv("FAULTLINE_LOG");
	setenv("VERBS_LOG_LEVEL", "1", 1);
	fl_log_configure(LOG_INFO);
	fl_log_init();
	assert_int_equal(fl_log_level, LOG_INFO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_configured),
	};
	int fd = mkstemp(path), ret;

	if (fd < 0)
		return 1;
	setenv("VERBS_LOG_FILE", path, 1);
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return ret;
}
