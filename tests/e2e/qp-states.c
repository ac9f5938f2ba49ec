/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The QP's states as a consumer sees them: which transitions there are and what each must be told,
 * what may be posted in which state, how the send queue drains, and what the queues' limits answer.
 */
#include "rc.h"

#include <poll.h>

static struct rc_side a, b;
static uint8_t *mem;
static struct ibv_mr *mr, *mr_b; /* of the same memory, for either side's PD */

static int to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static int post_write(void)
{
	return rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)mem, 8, mr->lkey, (uintptr_t)mem + 64,
		       mr_b->rkey);
}

static int post_receive(void)
{
	return rc_post_recv(&a, (uintptr_t)mem + 128, 64, mr->lkey, 7);
}

static void refused(const char *what, int err, enum ibv_qp_state stays)
{
	CHECK(err == EINVAL, "%s: %s", what, err ? strerror(err) : "was allowed");
	CHECK(rc_state(a.qp) == stays, "%s: the state is now %d", what, rc_state(a.qp));
}

static void transitions(void)
{
	struct rc_opt o = rc_default;

	rc_make_qp(&a, &rc_default);
	rc_make_qp(&b, &rc_default);
	CHECK(rc_state(a.qp) == IBV_QPS_RESET, "new QP");
	refused("RESET to RTR", rc_to_rtr(a.qp, &o, &b.me), IBV_QPS_RESET);
	refused("RESET to RTS", rc_to_rts(a.qp, &o, 1), IBV_QPS_RESET);
	refused("RESET to ERR", to(a.qp, IBV_QPS_ERR), IBV_QPS_RESET);
	refused("RESET to INIT, attributes missing", to(a.qp, IBV_QPS_INIT), IBV_QPS_RESET);
	struct ibv_qp_attr port2 = {.qp_state = IBV_QPS_INIT, .port_num = 2};

	refused("port 2",
		ibv_modify_qp(a.qp, &port2,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		IBV_QPS_RESET);
	CHECK(!rc_to_init(a.qp, ALL_ACCESS), "to INIT");
	refused("INIT to RTS", rc_to_rts(a.qp, &o, 1), IBV_QPS_INIT);
	refused("INIT to RTR, attributes missing", to(a.qp, IBV_QPS_RTR), IBV_QPS_INIT);
	refused("INIT to SQD", to(a.qp, IBV_QPS_SQD), IBV_QPS_INIT);
	o.mtu = (enum ibv_mtu)9;
	refused("MTU 9", rc_to_rtr(a.qp, &o, &b.me), IBV_QPS_INIT);
	o = rc_default;
	o.rd_atomic = 255;
	refused("255 READs to answer", rc_to_rtr(a.qp, &o, &b.me), IBV_QPS_INIT);
	CHECK(!rc_to_rtr(a.qp, &rc_default, &b.me), "to RTR");
	refused("RTR to SQD", to(a.qp, IBV_QPS_SQD), IBV_QPS_RTR);
	refused("RTR to RTS, attributes missing", to(a.qp, IBV_QPS_RTS), IBV_QPS_RTR);
	refused("255 READs to ask for", rc_to_rts(a.qp, &o, 1), IBV_QPS_RTR);
	CHECK(!rc_to_rts(a.qp, &rc_default, a.me.psn), "to RTS");
	refused("RTS to INIT", rc_to_init(a.qp, ALL_ACCESS), IBV_QPS_RTS);
	refused("RTS to RTR", rc_to_rtr(a.qp, &rc_default, &b.me), IBV_QPS_RTS);
	CHECK(!to(a.qp, IBV_QPS_ERR), "to ERR");
	refused("ERR to RTS", rc_to_rts(a.qp, &rc_default, 1), IBV_QPS_ERR);
	CHECK(!to(a.qp, IBV_QPS_RESET), "to RESET");
	CHECK(!rc_to_init(a.qp, 0), "to INIT once more");
	struct ibv_qp_attr wrong = {.qp_state = IBV_QPS_RESET, .cur_qp_state = IBV_QPS_RTS};

	refused("a wrong idea of the current state",
		ibv_modify_qp(a.qp, &wrong, IBV_QP_STATE | IBV_QP_CUR_STATE), IBV_QPS_INIT);
}

static void query_says_what_was_set(void)
{
	struct rc_opt o = rc_default;
	struct ibv_qp_attr q;
	struct ibv_qp_init_attr init;

	o.mtu = IBV_MTU_2048;
	o.timeout = 17;
	o.retry = 5;
	o.rnr_retry = 3;
	o.rnr_timer = 9;
	rc_pair(&a, &b, &o);
	CHECK(!ibv_query_qp(a.qp, &q, ~0, &init), "query");
	CHECK(q.qp_state == IBV_QPS_RTS && q.path_mtu == IBV_MTU_2048 && q.timeout == 17 &&
		      q.retry_cnt == 5 && q.rnr_retry == 3 && q.min_rnr_timer == 9 &&
		      q.dest_qp_num == b.me.qpn && q.rq_psn == b.me.psn && q.port_num == 1 &&
		      q.ah_attr.is_global && q.qp_access_flags == o.qp_access,
	      "ibv_query_qp tells otherwise than it was told");
	CHECK(!memcmp(&q.ah_attr.grh.dgid, &b.me.gid, 16), "dgid");
	CHECK(init.cap.max_send_wr >= o.send_wr && init.cap.max_inline_data >= o.inline_data &&
		      init.qp_type == IBV_QPT_RC && init.send_cq == a.cq,
	      "init attributes");
}

static void posting(void)
{
	rc_make_qp(&a, &rc_default);
	rc_make_qp(&b, &rc_default);
	CHECK(post_write() == EINVAL, "post_send in RESET");
	CHECK(post_receive() == EINVAL, "post_recv in RESET");
	rc_to_init(a.qp, ALL_ACCESS);
	CHECK(post_write() == EINVAL, "post_send in INIT");
	CHECK(!post_receive(), "post_recv in INIT");
	rc_to_rtr(a.qp, &rc_default, &b.me);
	CHECK(post_write() == EINVAL, "post_send in RTR");
	CHECK(!post_receive(), "post_recv in RTR");
	rc_to_rts(a.qp, &rc_default, a.me.psn);
	rc_connect(&b, &a.me);
	CHECK(!post_write(), "post_send in RTS");
	rc_expect(&a, IBV_WC_SUCCESS);
	/* the receives that were posted early take what comes */
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc;

		CHECK(!rc_post(&b, IBV_WR_SEND, (uintptr_t)mem, 8, mr_b->lkey, 0, 0), "post");
		rc_expect(&b, IBV_WC_SUCCESS);
		CHECK(rc_poll(&a, &wc, 20) && wc.status == IBV_WC_SUCCESS && wc.wr_id == 7 &&
			      wc.byte_len == 8 && wc.qp_num == a.me.qpn,
		      "receive %d", i);
	}
	/* RESET forgets what is queued */
	CHECK(!post_receive(), "post_recv");
	CHECK(!to(a.qp, IBV_QPS_RESET), "to RESET");
	struct ibv_wc wc;

	CHECK(!rc_poll(&a, &wc, 0.05), "RESET completed a receive: %s",
	      ibv_wc_status_str(wc.status));
}

/* In SQD nothing new starts; what is posted meanwhile goes out in RTS again. */
static void drain(void)
{
	struct pollfd pfd = {.fd = a.ctx->async_fd, .events = POLLIN};
	struct ibv_qp_attr sqd = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct ibv_async_event e;
	struct ibv_wc wc;

	rc_pair(&a, &b, &rc_default);
	CHECK(!post_write(), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(!ibv_modify_qp(a.qp, &sqd, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), "to SQD");
	CHECK(poll(&pfd, 1, 5000) == 1, "no event that the queue is drained");
	CHECK(!ibv_get_async_event(a.ctx, &e) && e.event_type == IBV_EVENT_SQ_DRAINED &&
		      e.element.qp == a.qp,
	      "event %d", e.event_type);
	ibv_ack_async_event(&e);
	CHECK(rc_state(a.qp) == IBV_QPS_SQD, "state");
	CHECK(!post_write(), "post_send in SQD");
	CHECK(!rc_poll(&a, &wc, 0.1), "a request completed in SQD: %s",
	      ibv_wc_status_str(wc.status));
	CHECK(!to(a.qp, IBV_QPS_RTS), "back to RTS");
	rc_expect(&a, IBV_WC_SUCCESS);
}

static void limits(void)
{
	struct rc_opt o = rc_default;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_sge sge[40] = {{0}};
	struct ibv_send_wr *bad = NULL, wr = {.sg_list = sge,
					      .opcode = IBV_WR_RDMA_WRITE,
					      .wr.rdma = {(uintptr_t)mem, mr_b->rkey}};
	struct ibv_recv_wr *bad_recv = NULL, rr = {.sg_list = sge};
	struct ibv_wc wc;
	uint32_t n;
	int err;

	o.send_wr = o.recv_wr = 5;
	rc_pair(&a, &b, &o);
	CHECK(!ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init), "query");
	for (uint32_t i = 0; i < 40; i++)
		sge[i] = (struct ibv_sge){(uintptr_t)mem, 1, mr->lkey};

	wr.num_sge = (int)init.cap.max_send_sge + 1;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr, "one SGE too many");
	wr.num_sge = (int)init.cap.max_send_sge;
	CHECK(!ibv_post_send(a.qp, &wr, &bad), "as many SGEs as granted");
	rr.num_sge = (int)init.cap.max_recv_sge + 1;
	CHECK(ibv_post_recv(a.qp, &rr, &bad_recv) == EINVAL && bad_recv == &rr,
	      "one receive SGE too many");
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_INLINE;
	sge[0].length = init.cap.max_inline_data + 1;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL, "inline too long");
	sge[0].length = init.cap.max_inline_data;
	CHECK(!ibv_post_send(a.qp, &wr, &bad), "inline as long as granted");

	rr.num_sge = 1;
	for (n = 0; !(err = ibv_post_recv(a.qp, &rr, &bad_recv)); n++)
		CHECK(n <= init.cap.max_recv_wr, "more receives than granted");
	CHECK(err == ENOMEM && n == init.cap.max_recv_wr, "receive queue full after %u of %u: %s",
	      n, init.cap.max_recv_wr, strerror(err));

	/* nothing answers, so nothing leaves the queue */
	o.timeout = 20;
	rc_make_qp(&a, &o);
	rc_connect(&a, &(struct rc_hello){.gid = a.me.gid, .qpn = 0xfffffd});
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.sg_list->length = 8;
	for (n = 0; !(err = ibv_post_send(a.qp, &wr, &bad)); n++)
		CHECK(n <= init.cap.max_send_wr, "more sends than granted");
	CHECK(err == ENOMEM && bad == &wr && n == init.cap.max_send_wr,
	      "send queue full after %u of %u: %s", n, init.cap.max_send_wr, strerror(err));
	/* a chain: the first that does not fit is named, those before are posted */
	CHECK(!to(a.qp, IBV_QPS_ERR), "to ERR");
	while (n--)
		rc_expect(&a, IBV_WC_WR_FLUSH_ERR);
	rc_pair(&a, &b, &o);
	struct ibv_send_wr second = wr, first = wr;

	first.next = &second;
	second.num_sge = 40;
	CHECK(ibv_post_send(a.qp, &first, &bad) == EINVAL && bad == &second,
	      "the second of a chain is bad");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(!rc_poll(&a, &wc, 0.05), "the bad one completed");
}

static void attributes_of_create(void)
{
	struct ibv_device_attr dev;
	struct ibv_qp_init_attr i = {
		.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};

	CHECK(!ibv_query_device(a.ctx, &dev), "query device");
	i.cap.max_send_wr = (uint32_t)dev.max_qp_wr + 1;
	CHECK(!ibv_create_qp(a.pd, &i) && errno == EINVAL, "more requests than the device has");
	i.cap.max_send_wr = 1;
	i.cap.max_send_sge = (uint32_t)dev.max_sge + 1;
	CHECK(!ibv_create_qp(a.pd, &i) && errno == EINVAL, "more SGEs than the device has");
	i.cap.max_send_sge = 1;
	i.cap.max_inline_data = 1u << 20;
	CHECK(!ibv_create_qp(a.pd, &i) && errno == EINVAL, "1 MiB inline");
	CHECK(!ibv_create_cq(a.ctx, 0, NULL, NULL, 0) && errno == EINVAL, "a CQ of no entry");
	CHECK(!ibv_create_cq(a.ctx, dev.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL,
	      "a CQ too large");
	CHECK(ibv_dealloc_pd(a.pd) == EBUSY, "a PD in use is deallocated");
	CHECK(ibv_destroy_cq(a.cq) == EBUSY, "a CQ in use is destroyed");
}

int main(int argc, char **argv)
{
	rc_main(argc, argv);
	rc_open(&a);
	rc_open(&b);
	mem = rc_map(PAGE);
	mr = rc_reg(&a, mem, PAGE, ALL_ACCESS);
	mr_b = rc_reg(&b, mem, PAGE, ALL_ACCESS);
	transitions();
	query_says_what_was_set();
	posting();
	drain();
	limits();
	attributes_of_create();
	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(mr_b), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
