/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues: order, overflow, resizing, arming. */
#include <errno.h>
#include "rig.h"

static void push(uint64_t id, enum ibv_wc_status status, bool solicited)
{
	struct ibv_wc wc = {.wr_id = id, .status = status, .qp_num = hca_qp_num(rig.qp)};

	hca_cq_push(rig.scq, &wc, solicited);
}

static void order_and_batches(void)
{
	struct ibv_wc wc[16];
	unsigned i;

	opt.cq_depth = 10; /* no power of two */
	rig_up();
	for (i = 0; i < 10; i++)
		push(i, IBV_WC_SUCCESS, false);
	CHECK_EQ(hca_cq_poll(rig.scq, 0, wc), 0);
	CHECK_EQ(hca_cq_poll(rig.scq, 3, wc), 3);
	CHECK_EQ(wc[2].wr_id, 2);
	push(10, IBV_WC_SUCCESS, false);
	CHECK_EQ(hca_cq_poll(rig.scq, 16, wc), 8);
	for (i = 0; i < 8; i++)
		CHECK_EQ(wc[i].wr_id, 3 + i);
	CHECK_EQ(hca_cq_poll(rig.scq, 16, wc), 0);
}

static void overflow(void)
{
	unsigned i;

	opt.cq_depth = 3;
	rig_up();
	for (i = 0; i < 8; i++)
		push(i, IBV_WC_SUCCESS, false);
	CHECK_EQ(ev_cq_err, 5);
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	for (i = 0; i < 3; i++)
		SWC(SUCCESS, i);
	wc_none(rig.scq);
	push(9, IBV_WC_SUCCESS, false); /* and it works on */
	SWC(SUCCESS, 9);
	CHECK_EQ(ev_cq_err, 5);
}

static void counters_wrap(void)
{
	unsigned i;

	opt.cq_depth = 3;
	rig_up();
	rig.scq->head = rig.scq->tail = 0xfffffffe;
	for (i = 0; i < 4; i++)
		push(i, IBV_WC_SUCCESS, false);
	CHECK_EQ(ev_cq_err, 1);
	for (i = 0; i < 3; i++)
		SWC(SUCCESS, i);
}

static void resize(void)
{
	unsigned i;

	opt.cq_depth = 4;
	rig_up();
	push(100, IBV_WC_SUCCESS, false);
	push(101, IBV_WC_SUCCESS, false);
	SWC(SUCCESS, 100);
	SWC(SUCCESS, 101);
	for (i = 0; i < 4; i++)
		push(i, IBV_WC_SUCCESS, false);
	CHECK_EQ(hca_cq_resize(rig.scq, 3), -EINVAL);
	CHECK_EQ(hca_cq_resize(rig.scq, 9), 0);
	for (; i < 9; i++)
		push(i, IBV_WC_SUCCESS, false);
	CHECK_EQ(ev_cq_err, 0);
	push(9, IBV_WC_SUCCESS, false);
	CHECK_EQ(ev_cq_err, 1);
	for (i = 0; i < 6; i++)
		SWC(SUCCESS, i);
	CHECK_EQ(hca_cq_resize(rig.scq, 3), 0);
	for (; i < 9; i++)
		SWC(SUCCESS, i);
	wc_none(rig.scq);
}

static void armed_for_one(void)
{
	rig_up();
	push(1, IBV_WC_SUCCESS, false);
	CHECK_EQ(ev_comp, 0);
	hca_cq_req_notify(rig.scq, false); /* what is in it already does not fire */
	CHECK_EQ(ev_comp, 0);
	push(2, IBV_WC_SUCCESS, false);
	push(3, IBV_WC_SUCCESS, false);
	CHECK_EQ(ev_comp, 1);
	hca_cq_req_notify(rig.scq, false);
	hca_cq_req_notify(rig.scq, false);
	push(4, IBV_WC_SUCCESS, false);
	push(5, IBV_WC_SUCCESS, false);
	CHECK_EQ(ev_comp, 2);
}

static void armed_for_solicited(void)
{
	rig_up();
	hca_cq_req_notify(rig.scq, true);
	push(1, IBV_WC_SUCCESS, false);
	CHECK_EQ(ev_comp, 0);
	push(2, IBV_WC_SUCCESS, true);
	CHECK_EQ(ev_comp, 1);
	hca_cq_req_notify(rig.scq, true);
	push(3, IBV_WC_WR_FLUSH_ERR, false); /* an error is always told */
	CHECK_EQ(ev_comp, 2);
}

static void arming_for_more_wins(void)
{
	rig_up();
	hca_cq_req_notify(rig.scq, true);
	hca_cq_req_notify(rig.scq, false);
	hca_cq_req_notify(rig.scq, true); /* does not take it back */
	push(1, IBV_WC_SUCCESS, false);
	CHECK_EQ(ev_comp, 1);
}

static void clean_keeps_others_and_order(void)
{
	struct ibv_wc wc = {.qp_num = 0x1234};
	struct ibv_wc got[8];
	unsigned i;

	opt.cq_depth = 8;
	rig_up();
	rig.scq->head = rig.scq->tail = 0xfffffffb; /* over the ring's end, and the counters' */
	for (i = 0; i < 8; i++) {
		wc.wr_id = i;
		wc.qp_num = i % 3 ? 0x1234 : 0x4321;
		hca_cq_push(rig.scq, &wc, false);
	}
	hca_cq_clean(rig.scq, 0x4321);
	CHECK_EQ(hca_cq_poll(rig.scq, 8, got), 5);
	CHECK_EQ(got[0].wr_id, 1);
	CHECK_EQ(got[1].wr_id, 2);
	CHECK_EQ(got[2].wr_id, 4);
	CHECK_EQ(got[3].wr_id, 5);
	CHECK_EQ(got[4].wr_id, 7);
}

static void time_stamps(void)
{
	struct ibv_wc wc = {.wr_id = 1};
	struct hca_cqe cqe;
	struct hca_cq *cq;

	rig_up();
	CHECK_EQ(hca_cq_create(rig.dev, 4, true, NULL, &cq), 0);
	hca_cq_push(cq, &wc, false);
	CHECK_EQ(hca_cq_poll_one(cq, &cqe), 1);
	CHECK_EQ(cqe.timestamp_ns, rig_now());
	CHECK_EQ(hca_cq_poll_one(cq, &cqe), 0);
	hca_cq_destroy(cq);
}

static void one_cq_for_both_queues(void)
{
	rig_node();
	rig.rcq = rig.scq;
	rig.qp = rig_qp_new();
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_INIT), 0);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTR), 0);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTS), 0);
	CHECK_EQ(post_recv(1, 0, 64), 0);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 2, 0, 8)), 0);
	rx(REQ(SEND_ONLY, 200, 8, pattern));
	rx_ack(100);
	RWC(SUCCESS, 1);
	SWC(SUCCESS, 2);
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 3, 0, 8)), 0);
	rx_ack(101);
	hca_qp_destroy(rig.qp);
	CHECK_EQ(hca_cq_poll(rig.scq, 1, &(struct ibv_wc){0}), 0);
	hca_cq_destroy(rig.scq);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(order_and_batches), TEST(overflow), TEST(counters_wrap), TEST(resize),
		TEST(armed_for_one), TEST(armed_for_solicited), TEST(arming_for_more_wins),
		TEST(clean_keeps_others_and_order), TEST(time_stamps), TEST(one_cq_for_both_queues),
		{NULL, NULL}};

	return rig_main(argc, argv, tests);
}
