/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion channels through the ABI. Receives that are flushed make completions without a peer:
 * posted in INIT, and the QP moved to ERR.
 */
#include "tests/verbs/test.h"

#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <unistd.h>

struct rig {
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static void rig_up(struct rig *r)
{
	r->pd = ibv_alloc_pd(ctx);
	r->channel = ibv_create_comp_channel(ctx);
	assert_non_null(r->channel);
	r->cq = ibv_create_cq(ctx, 16, r, r->channel, 0);
	assert_non_null(r->cq);
	r->qp = make_rc(r->pd, r->cq);
	assert_non_null(r->qp);
	assert_int_equal(to_init(r->qp), 0);
}

static void post_recvs(struct rig *r, int n)
{
	struct ibv_recv_wr wr = {0}, *bad;

	for (int i = 0; i < n; i++) {
		wr.wr_id = (uint64_t)i;
		assert_int_equal(ibv_post_recv(r->qp, &wr, &bad), 0);
	}
}

static int drain(struct rig *r)
{
	struct ibv_wc wc;
	int n = 0;

	while (ibv_poll_cq(r->cq, 1, &wc) == 1) {
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc.wr_id, n);
		n++;
	}
	return n;
}

static bool readable(struct rig *r)
{
	struct pollfd p = {.fd = r->channel->fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void rig_down(struct rig *r)
{
	if (r->qp)
		assert_int_equal(ibv_destroy_qp(r->qp), 0);
	assert_int_equal(ibv_destroy_cq(r->cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(r->channel), 0);
	assert_int_equal(ibv_dealloc_pd(r->pd), 0);
}

static void one_event_per_arm(void **state)
{
	struct rig r;
	struct ibv_cq *cq;
	void *context;

	rig_up(&r);
	assert_int_equal(ibv_destroy_comp_channel(r.channel), EBUSY);
	assert_int_equal(fcntl(r.channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(ibv_get_cq_event(r.channel, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);

	post_recvs(&r, 3);
	assert_int_equal(ibv_req_notify_cq(r.cq, 0), 0);
	assert_false(readable(&r));
	assert_int_equal(to_state(r.qp, IBV_QPS_ERR), 0);
	assert_true(readable(&r));
	assert_int_equal(ibv_get_cq_event(r.channel, &cq, &context), 0);
	assert_ptr_equal(cq, r.cq);
	assert_ptr_equal(context, &r);
	assert_false(readable(&r));
	/* armed again with completions waiting: those do not fire */
	assert_int_equal(ibv_req_notify_cq(r.cq, 0), 0);
	assert_false(readable(&r));
	assert_int_equal(drain(&r), 3);
	ibv_ack_cq_events(r.cq, 1);
	rig_down(&r);
}

static void unarmed_is_silent(void **state)
{
	struct rig r;

	rig_up(&r);
	post_recvs(&r, 1);
	assert_int_equal(to_state(r.qp, IBV_QPS_ERR), 0);
	assert_false(readable(&r));
	assert_int_equal(drain(&r), 1);
	rig_down(&r);
}

static void destroyed_cq_leaves_no_event(void **state)
{
	struct rig r;
	struct ibv_cq *cq;
	void *context;

	rig_up(&r);
	assert_int_equal(fcntl(r.channel->fd, F_SETFL, O_NONBLOCK), 0);
	post_recvs(&r, 1);
	assert_int_equal(ibv_req_notify_cq(r.cq, 0), 0);
	assert_int_equal(to_state(r.qp, IBV_QPS_ERR), 0);
	assert_true(readable(&r));
	assert_int_equal(ibv_destroy_qp(r.qp), 0);
	assert_int_equal(ibv_destroy_cq(r.cq), 0);
	assert_false(readable(&r));
	assert_int_equal(ibv_get_cq_event(r.channel, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(ibv_destroy_comp_channel(r.channel), 0);
	assert_int_equal(ibv_dealloc_pd(r.pd), 0);
}

static void *destroy_cq(void *cq)
{
	return (void *)(intptr_t)ibv_destroy_cq(cq);
}

static void destroy_waits_for_ack(void **state)
{
	struct rig r;
	struct ibv_cq *cq;
	struct timespec until;
	pthread_t t;
	void *context, *ret;

	rig_up(&r);
	post_recvs(&r, 1);
	assert_int_equal(ibv_req_notify_cq(r.cq, 0), 0);
	assert_int_equal(to_state(r.qp, IBV_QPS_ERR), 0);
	assert_int_equal(ibv_get_cq_event(r.channel, &cq, &context), 0);
	assert_int_equal(ibv_destroy_qp(r.qp), 0);
	assert_int_equal(pthread_create(&t, NULL, destroy_cq, r.cq), 0);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 50000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	assert_int_equal(pthread_timedjoin_np(t, &ret, &until), ETIMEDOUT);
	ibv_ack_cq_events(r.cq, 1);
	assert_int_equal(pthread_join(t, &ret), 0);
	assert_ptr_equal(ret, NULL);
	assert_int_equal(ibv_destroy_comp_channel(r.channel), 0);
	assert_int_equal(ibv_dealloc_pd(r.pd), 0);
}

static void async_is_quiet(void **state)
{
	struct ibv_async_event event;
	int flags = fcntl(ctx->async_fd, F_GETFL);

	assert_int_equal(fcntl(ctx->async_fd, F_SETFL, flags | O_NONBLOCK), 0);
	assert_int_equal(ibv_get_async_event(ctx, &event), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(fcntl(ctx->async_fd, F_SETFL, flags), 0);
}

static void overflow_is_an_async_event(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	struct ibv_qp *qp = make_rc(pd, cq);
	struct rig r = {.qp = qp};
	struct ibv_async_event event;
	struct pollfd p = {.fd = ctx->async_fd, .events = POLLIN};

	assert_int_equal(to_init(qp), 0);
	post_recvs(&r, 4);
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(to_state(qp, IBV_QPS_ERR), 0);
	assert_int_equal(poll(&p, 1, 0), 1);
	assert_int_equal(ibv_get_async_event(ctx, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event.element.cq, cq);
	ibv_ack_async_event(&event);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(poll(&p, 1, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_event_per_arm),	cmocka_unit_test(unarmed_is_silent),
		cmocka_unit_test(destroyed_cq_leaves_no_event),
		cmocka_unit_test(destroy_waits_for_ack), cmocka_unit_test(async_is_quiet),
		cmocka_unit_test(overflow_is_an_async_event),
	};

	return cmocka_run_group_tests(tests, open_first, close_it);
}
