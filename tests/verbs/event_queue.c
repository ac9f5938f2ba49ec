/* SPDX-License-Identifier: BSD-2-Clause */
/* Queues of events by themselves: order, what the descriptor says, purging against a waiting reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include "verbs/verbs.h"

static bool readable(const struct event_queue *q)
{
	struct pollfd p = {.fd = q->fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void set_nonblock(struct event_queue *q)
{
	assert_int_equal(fcntl(q->fd, F_SETFL, fcntl(q->fd, F_GETFL) | O_NONBLOCK), 0);
}

static void readable_while_pending(void **state)
{
	struct event_queue q;
	struct event_source a, b, *got;

	assert_int_equal(event_queue_init(&q), 0);
	set_nonblock(&q);
	event_source_init(&a);
	event_source_init(&b);
	assert_false(readable(&q));
	assert_int_equal(event_fetch(&q, &got, NULL), -1);
	assert_int_equal(errno, EAGAIN);

	event_raise(&q, &a);
	event_raise(&q, &a);
	event_raise(&q, &b);
	/* a's second waits behind b's */
	struct event_source *want[] = {&a, &b, &a};

	for (int i = 0; i < 3; i++) {
		assert_true(readable(&q));
		assert_int_equal(event_fetch(&q, &got, NULL), 0);
		assert_ptr_equal(got, want[i]);
	}
	assert_false(readable(&q));
	assert_int_equal(event_purge(&q, &a), 2);
	assert_int_equal(event_purge(&q, &b), 1);
	event_queue_destroy(&q);
}

static void purge_takes_only_its_own(void **state)
{
	struct event_queue q;
	struct event_source a, b, *got;

	assert_int_equal(event_queue_init(&q), 0);
	set_nonblock(&q);
	event_source_init(&a);
	event_source_init(&b);
	event_raise(&q, &a);
	event_raise(&q, &b);
	event_raise(&q, &a);
	assert_int_equal(event_purge(&q, &a), 0);
	assert_true(readable(&q));
	assert_int_equal(event_fetch(&q, &got, NULL), 0);
	assert_ptr_equal(got, &b);
	assert_false(readable(&q));
	assert_int_equal(event_fetch(&q, &got, NULL), -1);
	event_queue_destroy(&q);
}

static void async_types_are_kept_apart(void **state)
{
	struct event_queue q;
	struct event_source s, *got;
	enum ibv_event_type type;

	assert_int_equal(event_queue_init(&q), 0);
	set_nonblock(&q);
	event_source_init(&s);
	event_raise_async(&q, &s, IBV_EVENT_SQ_DRAINED);
	event_raise_async(&q, &s, IBV_EVENT_QP_ACCESS_ERR);
	event_raise_async(&q, &s, IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(event_fetch(&q, &got, &type), 0);
	assert_int_equal(type, IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(event_fetch(&q, &got, &type), 0);
	assert_int_equal(type, IBV_EVENT_SQ_DRAINED);
	assert_false(readable(&q));
	/* fetched: the same one may come again */
	event_raise_async(&q, &s, IBV_EVENT_QP_ACCESS_ERR);
	assert_true(readable(&q));
	assert_int_equal(event_purge(&q, &s), 2);
	assert_false(readable(&q));
	event_queue_destroy(&q);
}

#define ROUNDS 20000

static struct event_source last; /* ends a reader */

static void *reader(void *arg)
{
	struct event_queue *q = arg;
	struct event_source *got;
	intptr_t n = 0;

	while (!event_fetch(q, &got, NULL) && got != &last)
		n++;
	return (void *)n;
}

/* Two blocked readers while events are raised and purged: each event is fetched or purged, once. */
static void purge_against_readers(void **state)
{
	struct event_queue q;
	struct event_source s[8];
	pthread_t t[2];
	intptr_t fetched = 0, reported = 0;
	void *r;

	assert_int_equal(event_queue_init(&q), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, reader, &q), 0);
	for (int i = 0; i < ROUNDS; i++) {
		struct event_source *x = &s[i % 8];

		event_source_init(x);
		event_raise(&q, x);
		event_raise(&q, x);
		reported += event_purge(&q, x);
		assert_false(x->count);
	}
	event_source_init(&last);
	event_raise(&q, &last);
	event_raise(&q, &last);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(t[i], &r), 0);
		fetched += (intptr_t)r;
	}
	assert_int_equal(fetched, reported);
	event_queue_destroy(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(readable_while_pending),
		cmocka_unit_test(purge_takes_only_its_own),
		cmocka_unit_test(async_types_are_kept_apart),
		cmocka_unit_test(purge_against_readers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
