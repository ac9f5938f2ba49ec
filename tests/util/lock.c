/* SPDX-License-Identifier: BSD-2-Clause */
/* A debug build aborts at a lock taken out of rank, and only then. */
#include <stdio.h>
#include <string.h>
#include "child.h"
#include "util/lock.h"

static struct fl_mutex core = FL_MUTEX_INIT(LOCK_CORE), qp = FL_MUTEX_INIT(LOCK_QP),
		       qp2 = FL_MUTEX_INIT(LOCK_QP), cq = FL_MUTEX_INIT(LOCK_CQ);

/* signal that killed a child which ran fn, with what it said in text */
static int killed_by(void (*fn)(void), char *text, size_t size)
{
	int status = child_status(fn, text, size);

	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void in_order(void)
{
	fl_lock(&core);
	fl_lock(&qp);
	fl_lock(&cq);
	fl_unlock(&qp); /* not the last taken */
	fl_unlock(&cq);
	fl_lock(&qp);
	fl_unlock(&qp);
	fl_unlock(&core);
	fl_lock(&core);
	fl_unlock(&core);
}

static void descending(void)
{
	fl_lock(&cq);
	fl_lock(&qp);
}

static void two_of_a_rank(void)
{
	fl_lock(&qp);
	fl_lock(&qp2);
}

static void under_a_trylock(void)
{
	if (fl_trylock(&cq))
		fl_lock(&core);
}

static void released_twice(void)
{
	fl_lock(&qp);
	fl_unlock(&qp);
	fl_lock_released(&qp);
}

static void test_in_order(void **state)
{
	char text[512];

	assert_int_equal(killed_by(in_order, text, sizeof(text)), 0);
	assert_string_equal(text, "");
}

static void test_out_of_order(void **state)
{
	char text[512];

	assert_int_equal(killed_by(descending, text, sizeof(text)), SIGABRT);
	assert_non_null(strstr(text, "'qp'"));
	assert_non_null(strstr(text, "'cq'"));
	assert_int_equal(killed_by(two_of_a_rank, text, sizeof(text)), SIGABRT);
	assert_int_equal(killed_by(under_a_trylock, text, sizeof(text)), SIGABRT);
	assert_int_equal(killed_by(released_twice, text, sizeof(text)), SIGABRT);
}

/* a trylock cannot deadlock: it may be out of order */
static void trylock_descending(void)
{
	fl_lock(&cq);
	if (!fl_trylock(&qp))
		_exit(1);
	if (fl_trylock(&qp))
		_exit(1);
	fl_unlock(&qp);
	fl_unlock(&cq);
}

static void test_trylock(void **state)
{
	char text[512];

	assert_int_equal(killed_by(trylock_descending, text, sizeof(text)), 0);
	assert_string_equal(text, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_order),
		cmocka_unit_test(test_out_of_order),
		cmocka_unit_test(test_trylock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
