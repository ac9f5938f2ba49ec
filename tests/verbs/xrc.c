/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC by the public calls: what each refuses, and with which error, as uverbs and mlx5 have it; who keeps whom
 * from being destroyed; domains that contexts share by a file; traffic, and events for all who have a QP open.
 */
#include "tests/verbs/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LEN 8192

static struct ibv_pd *pd;
static struct ibv_cq *cq, *srq_cq;
static struct ibv_mr *mr;
static uint8_t *mem;

static int up(void **state)
{
	if (open_first(state))
		return -1;
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	srq_cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mr = ibv_reg_mr(pd, mem, LEN,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC);
	return mr && cq && srq_cq ? 0 : -1;
}

static int down(void **state)
{
	return ibv_dereg_mr(mr) || ibv_destroy_cq(cq) || ibv_destroy_cq(srq_cq) || ibv_dealloc_pd(pd) ||
			       ibv_close_device(ctx)
		       ? -1
		       : 0;
}

/* ---- makers ---- */

static struct ibv_xrcd *open_domain(struct ibv_context *c, int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					  .fd = fd, .oflags = oflags};

	return ibv_open_xrcd(c, &attr);
}

static struct ibv_srq_init_attr_ex srq_attr(struct ibv_xrcd *xrcd)
{
	return (struct ibv_srq_init_attr_ex){
		.attr = {.max_wr = 16, .max_sge = 1}, .srq_type = IBV_SRQT_XRC, .pd = pd, .cq = srq_cq, .xrcd = xrcd,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_XRCD};
}

static struct ibv_srq *make_srq(struct ibv_xrcd *xrcd)
{
	struct ibv_srq_init_attr_ex attr = srq_attr(xrcd);

	return ibv_create_srq_ex(ctx, &attr);
}

static struct ibv_qp *make_target(struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD,
					   .xrcd = xrcd,
					   /* of queues that it has not */
					   .cap = {.max_send_wr = 9, .max_recv_wr = 9, .max_recv_sge = 9}};

	return ibv_create_qp_ex(xrcd->context, &attr);
}

static struct ibv_qp_init_attr_ex initiator_attr(void)
{
	return (struct ibv_qp_init_attr_ex){
		.qp_type = IBV_QPT_XRC_SEND, .pd = pd, .send_cq = cq, .sq_sig_all = 1,
		.cap = {.max_send_wr = 16, .max_send_sge = 1, .max_inline_data = 32, .max_recv_wr = 77},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD};
}

static struct ibv_qp *open_target(struct ibv_xrcd *xrcd, uint32_t qp_num)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE |
			     IBV_QP_OPEN_ATTR_CONTEXT,
		.qp_num = qp_num, .xrcd = xrcd, .qp_type = IBV_QPT_XRC_RECV, .qp_context = mem};

	return ibv_open_qp(xrcd->context, &attr);
}

static uint32_t num(struct ibv_srq *srq)
{
	uint32_t n = 0;

	assert_int_equal(ibv_get_srq_num(srq, &n), 0);
	return n;
}

/* with all that both kinds may be given, though each has only half of it */
static int connect_half(struct ibv_qp *qp, uint32_t dest)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = dest, .max_dest_rd_atomic = 4,
		.min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}}};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
						      IBV_ACCESS_REMOTE_ATOMIC};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				  .max_rd_atomic = 4};
	int err = ibv_query_gid(ctx, 1, 0, &attr.ah_attr.grh.dgid);

	if (!err)
		err = ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	if (!err)
		err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
						       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
						       IBV_QP_MIN_RNR_TIMER);
	if (!err)
		err = ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	return err;
}

static struct ibv_wc completion(struct ibv_cq *from, enum ibv_wc_status status)
{
	time_t end = time(NULL) + 20;
	struct ibv_wc wc = {0};
	int n;

	while (!(n = ibv_poll_cq(from, 1, &wc)) && time(NULL) < end)
		;
	assert_int_equal(n, 1);
	assert_int_equal(wc.status, status);
	return wc;
}

/* ---- what is refused ---- */

static void domain_refusals(void **state)
{
	struct ibv_xrcd_init_attr attr = {.fd = -1};
	char name[] = "/tmp/faultline-xrcd-XXXXXX";
	struct ibv_xrcd *a, *b;
	int fd = mkstemp(name), gone = dup(fd);

	assert_true(fd >= 0 && gone >= 0);
	unlink(name);
	close(gone);
	assert_null_errno(ibv_open_xrcd(ctx, &attr), EINVAL);
	attr.comp_mask = IBV_XRCD_INIT_ATTR_FD;
	assert_null_errno(ibv_open_xrcd(ctx, &attr), EINVAL);
	attr.comp_mask = IBV_XRCD_INIT_ATTR_RESERVED;
	assert_null_errno(ibv_open_xrcd(ctx, &attr), EOPNOTSUPP);
	assert_null_errno(open_domain(ctx, gone, O_CREAT), EBADF);
	assert_null_errno(open_domain(ctx, fd, 0), EAGAIN);
	a = open_domain(ctx, fd, O_CREAT | O_EXCL);
	assert_non_null(a);
	assert_null_errno(open_domain(ctx, fd, O_CREAT | O_EXCL), EINVAL);
	b = open_domain(ctx, fd, 0);
	assert_non_null(b);
	assert_int_equal(ibv_close_xrcd(a), 0);
	assert_non_null(a = open_domain(ctx, fd, 0)); /* still there */
	assert_int_equal(ibv_close_xrcd(a) | ibv_close_xrcd(b), 0);
	assert_null_errno(open_domain(ctx, fd, 0), EAGAIN);
	/* without a file each is its own, whatever the flags */
	a = open_domain(ctx, -1, 0);
	b = open_domain(ctx, -1, O_EXCL);
	assert_true(a && b);
	assert_int_equal(ibv_close_xrcd(a) | ibv_close_xrcd(b), 0);
	close(fd);
}

static void srq_refusals(void **state)
{
	struct ibv_xrcd *xrcd = open_domain(ctx, -1, 0), *foreign_xrcd;
	struct ibv_context *other = ibv_open_device(ctx->device);
	struct ibv_srq_init_attr_ex good = srq_attr(xrcd), attr;
	static const uint32_t needed[] = {IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_XRCD};
	struct ibv_srq_attr q;
	struct ibv_srq *srq;

	for (int i = 0; i < 3; i++) {
		attr = good;
		attr.comp_mask &= ~needed[i];
		assert_null_errno(ibv_create_srq_ex(ctx, &attr), EINVAL);
	}
	attr = good;
	attr.srq_type = IBV_SRQT_TM;
	assert_null_errno(ibv_create_srq_ex(ctx, &attr), EOPNOTSUPP);
	attr.srq_type = (enum ibv_srq_type)7;
	assert_null_errno(ibv_create_srq_ex(ctx, &attr), EINVAL);
	attr = good;
	attr.attr.max_wr = 0;
	assert_null_errno(ibv_create_srq_ex(ctx, &attr), EINVAL);
	attr.attr.max_wr = 1u << 30;
	assert_null_errno(ibv_create_srq_ex(ctx, &attr), EINVAL);
	attr = good;
	attr.attr.max_sge = 1000;
	assert_null_errno(ibv_create_srq_ex(ctx, &attr), EINVAL);
	/* a domain of another context */
	foreign_xrcd = open_domain(other, -1, 0);
	attr = srq_attr(foreign_xrcd);
	assert_null_errno(ibv_create_srq_ex(ctx, &attr), EINVAL);
	assert_int_equal(ibv_close_xrcd(foreign_xrcd), 0);
	assert_int_equal(ibv_close_device(other), 0);

	attr = good;
	srq = ibv_create_srq_ex(ctx, &attr);
	assert_non_null(srq);
	assert_true(attr.attr.max_wr >= 16);
	assert_int_equal(ibv_query_srq(srq, &q), 0);
	assert_int_equal(q.max_wr, attr.attr.max_wr);
	q.srq_limit = 3;
	assert_int_equal(ibv_modify_srq(srq, &q, IBV_SRQ_LIMIT), 0);
	assert_int_equal(ibv_query_srq(srq, &q), 0);
	assert_int_equal(q.srq_limit, 3);
	/* what it needs stays */
	assert_int_equal(ibv_close_xrcd(xrcd), EBUSY);
	assert_int_equal(ibv_destroy_cq(srq_cq), EBUSY);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	/* an ordinary one by the same call; it has a number too */
	attr.srq_type = IBV_SRQT_BASIC;
	srq = ibv_create_srq_ex(ctx, &attr);
	assert_non_null(srq);
	assert_true(num(srq) && num(srq) <= 0xffffff);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
}

static void qp_refusals(void **state)
{
	struct ibv_xrcd *xrcd = open_domain(ctx, -1, 0), *xrcd2 = open_domain(ctx, -1, 0);
	struct ibv_qp_init_attr_ex good = initiator_attr(), attr = {.qp_type = IBV_QPT_XRC_RECV};
	struct ibv_qp_init_attr plain = {.qp_type = IBV_QPT_XRC_RECV, .send_cq = cq, .recv_cq = cq};
	struct ibv_qp_open_attr oa = {.xrcd = xrcd, .qp_type = IBV_QPT_XRC_RECV};
	static const uint32_t needed[] = {IBV_QP_OPEN_ATTR_NUM, IBV_QP_OPEN_ATTR_XRCD, IBV_QP_OPEN_ATTR_TYPE};
	struct ibv_srq *srq = make_srq(xrcd);
	struct ibv_recv_wr rwr = {0}, *rbad;
	struct ibv_send_wr swr = {.opcode = IBV_WR_SEND}, *sbad;
	struct ibv_qp *qp, *rc;

	/* a target needs its domain, and builds nothing */
	assert_null_errno(ibv_create_qp(pd, &plain), EINVAL);
	assert_null_errno(ibv_create_qp_ex(ctx, &attr), EINVAL);
	attr.comp_mask = IBV_QP_INIT_ATTR_PD;
	attr.pd = pd;
	assert_null_errno(ibv_create_qp_ex(ctx, &attr), EINVAL);
	attr.comp_mask = IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.xrcd = xrcd;
	assert_null_errno(ibv_create_qp_ex(ctx, &attr), EOPNOTSUPP);
	/* an initiator needs PD and send CQ, and no receive CQ */
	attr = good;
	attr.comp_mask &= ~IBV_QP_INIT_ATTR_PD;
	assert_null_errno(ibv_create_qp_ex(ctx, &attr), EINVAL);
	attr = good;
	attr.send_cq = NULL;
	assert_null_errno(ibv_create_qp_ex(ctx, &attr), EINVAL);
	qp = ibv_create_qp_ex(ctx, &good);
	assert_non_null(qp);
	assert_true(good.cap.max_send_wr >= 16);
	assert_int_equal(good.cap.max_recv_wr, 0);
	assert_int_equal(ibv_post_recv(qp, &rwr, &rbad), EINVAL);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	plain.qp_type = IBV_QPT_XRC_SEND;
	plain.recv_cq = NULL;
	qp = ibv_create_qp(pd, &plain);
	assert_non_null(qp);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	/* an SRQ of XRC's serves no QP of another kind */
	plain = (struct ibv_qp_init_attr){.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .srq = srq};
	assert_null_errno(ibv_create_qp(pd, &plain), EINVAL);

	qp = make_target(xrcd);
	assert_non_null(qp);
	assert_int_equal(ibv_close_xrcd(xrcd), EBUSY);
	assert_int_equal(ibv_destroy_srq(srq), 0); /* no QP holds it */
	assert_int_equal(ibv_post_recv(qp, &rwr, &rbad), EINVAL);
	assert_int_equal(connect_half(qp, 17), 0);
	assert_int_equal(ibv_post_send(qp, &swr, &sbad), ENOMEM);

	for (int i = 0; i < 3; i++) {
		oa.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
		oa.comp_mask &= ~needed[i];
		oa.qp_num = qp->qp_num;
		assert_null_errno(ibv_open_qp(ctx, &oa), EINVAL);
	}
	oa.comp_mask = IBV_QP_OPEN_ATTR_RESERVED;
	assert_null_errno(ibv_open_qp(ctx, &oa), EOPNOTSUPP);
	oa.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	oa.qp_type = IBV_QPT_RC;
	assert_null_errno(ibv_open_qp(ctx, &oa), EINVAL);
	assert_null_errno(open_target(xrcd, qp->qp_num + 1), EINVAL);
	assert_null_errno(open_target(xrcd2, qp->qp_num), EINVAL); /* of another domain */
	rc = make_rc(pd, cq);
	assert_null_errno(open_target(xrcd, rc->qp_num), EINVAL);
	assert_int_equal(ibv_destroy_qp(rc), 0);
	oa.qp_num = qp->qp_num;
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_null_errno(open_target(xrcd, oa.qp_num), EINVAL);
	assert_int_equal(ibv_close_xrcd(xrcd) | ibv_close_xrcd(xrcd2), 0);
}

/* ---- traffic ---- */

static struct ibv_xrcd *xrcd;
static struct ibv_srq *srq;
static struct ibv_qp *ini, *tgt;

static void connect_both(void)
{
	struct ibv_qp_init_attr_ex attr = initiator_attr();

	xrcd = open_domain(ctx, -1, 0);
	srq = make_srq(xrcd);
	tgt = make_target(xrcd);
	ini = ibv_create_qp_ex(ctx, &attr);
	assert_true(srq && tgt && ini);
	assert_int_equal(connect_half(ini, tgt->qp_num) | connect_half(tgt, ini->qp_num), 0);
}

static void disconnect_both(void)
{
	assert_int_equal(ibv_destroy_qp(ini) | ibv_destroy_qp(tgt), 0);
	if (srq)
		assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
}

static void receive(uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)mem + 4096, 4096, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), 0);
}

static void send(uint64_t id, enum ibv_wr_opcode opcode, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)mem, len, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id, .opcode = opcode, .sg_list = &sge, .num_sge = 1, .imm_data = 99}, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)mem + 4096;
		wr.wr.atomic.rkey = mr->rkey;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)mem + 4096;
		wr.wr.rdma.rkey = mr->rkey;
	}
	wr.qp_type.xrc.remote_srqn = num(srq);
	assert_int_equal(ibv_post_send(ini, &wr, &bad), 0);
}

static void traffic(void **state)
{
	struct ibv_wc wc;

	connect_both();
	memset(mem, 7, 4096);
	memset(mem + 4096, 0, 4096);
	receive(1);
	send(2, IBV_WR_SEND_WITH_IMM, 3000);
	wc = completion(srq_cq, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.qp_num, tgt->qp_num);
	assert_int_equal(wc.src_qp, ini->qp_num);
	assert_int_equal(wc.byte_len, 3000);
	assert_int_equal(wc.imm_data, 99);
	assert_memory_equal(mem, mem + 4096, 3000);
	wc = completion(cq, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(wc.qp_num, ini->qp_num);
	mem[0] = 8;
	send(3, IBV_WR_RDMA_WRITE, 100);
	completion(cq, IBV_WC_SUCCESS);
	assert_int_equal(mem[4096], 8);
	mem[4096] = 9;
	send(4, IBV_WR_RDMA_READ, 100);
	completion(cq, IBV_WC_SUCCESS);
	assert_int_equal(mem[0], 9);
	send(5, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	completion(cq, IBV_WC_SUCCESS);
	assert_int_equal(mem[4096], 14);
	disconnect_both();
}

static void builders(void **state)
{
	struct ibv_qp_ex *x;
	struct ibv_wc wc;

	connect_both();
	x = ibv_qp_to_qp_ex(ini);
	assert_non_null(x);
	assert_null(ibv_qp_to_qp_ex(tgt));
	receive(1);
	receive(2);
	ibv_wr_start(x);
	x->wr_id = 3;
	x->wr_flags = 0;
	ibv_wr_send(x);
	ibv_wr_set_xrc_srqn(x, num(srq));
	ibv_wr_set_inline_data(x, "inline", 6);
	ibv_wr_send_imm(x, 7);
	ibv_wr_set_xrc_srqn(x, num(srq));
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)mem, 64);
	assert_int_equal(ibv_wr_complete(x), 0);
	wc = completion(srq_cq, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 6);
	wc = completion(srq_cq, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 64);
	assert_int_equal(wc.imm_data, 7);
	completion(cq, IBV_WC_SUCCESS);
	completion(cq, IBV_WC_SUCCESS);
	disconnect_both();
}

static enum ibv_event_type next_event(struct ibv_context *c, struct ibv_qp *qp)
{
	struct ibv_async_event e;

	assert_int_equal(ibv_get_async_event(c, &e), 0);
	assert_ptr_equal(e.element.qp, qp);
	ibv_ack_async_event(&e);
	return e.event_type;
}

/* The QP proper outlives the handle that made it; each handle has its events, in its own context. */
static void opened_qps(void **state)
{
	char name[] = "/tmp/faultline-xrcd-XXXXXX";
	struct ibv_context *other = ibv_open_device(ctx->device);
	struct ibv_qp_init_attr_ex attr = initiator_attr();
	struct ibv_qp *opened, *maker;
	struct ibv_xrcd *theirs;
	int fd = mkstemp(name);
	struct ibv_qp_attr qa;
	struct ibv_qp_init_attr qi;

	unlink(name);
	xrcd = open_domain(ctx, fd, O_CREAT);
	theirs = open_domain(other, fd, 0);
	assert_true(xrcd && theirs);
	srq = make_srq(xrcd);
	maker = make_target(theirs); /* and so its messages come to our SRQ */
	assert_true(srq && maker);
	opened = open_target(xrcd, maker->qp_num);
	assert_non_null(opened);
	assert_int_equal(opened->qp_num, maker->qp_num);
	assert_ptr_equal(opened->qp_context, mem);
	assert_int_equal(opened->state, IBV_QPS_UNKNOWN);
	ini = ibv_create_qp_ex(ctx, &attr);
	assert_int_equal(connect_half(ini, maker->qp_num) | connect_half(opened, ini->qp_num), 0);
	assert_int_equal(ibv_query_qp(maker, &qa, IBV_QP_STATE, &qi), 0);
	assert_int_equal(qa.qp_state, IBV_QPS_RTS);
	receive(1);
	send(2, IBV_WR_SEND, 100);
	completion(srq_cq, IBV_WC_SUCCESS);
	completion(cq, IBV_WC_SUCCESS);

	assert_int_equal(ibv_destroy_srq(srq), 0);
	srq = make_srq(theirs); /* a domain of another context */
	assert_null(srq);
	srq = make_srq(xrcd);
	tgt = opened;
	assert_int_equal(ibv_close_xrcd(theirs), EBUSY);
	/* an SRQ that is not there: both are told, once; the initiator is */
	struct ibv_sge sge = {(uintptr_t)mem, 8, mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_send(ini, &wr, &bad), 0);
	completion(cq, IBV_WC_REM_INV_RD_REQ_ERR);
	assert_int_equal(next_event(ctx, opened), IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(next_event(other, maker), IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(next_event(ctx, opened), IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_int_equal(next_event(other, maker), IBV_EVENT_QP_LAST_WQE_REACHED);

	assert_int_equal(ibv_destroy_qp(maker), 0);
	assert_int_equal(ibv_close_xrcd(theirs), 0);
	assert_int_equal(ibv_close_device(other), 0);
	assert_int_equal(to_state(opened, IBV_QPS_RESET) | to_state(ini, IBV_QPS_RESET), 0);
	assert_int_equal(connect_half(ini, opened->qp_num) | connect_half(opened, ini->qp_num), 0);
	receive(3);
	send(4, IBV_WR_SEND, 100);
	completion(srq_cq, IBV_WC_SUCCESS);
	completion(cq, IBV_WC_SUCCESS);
	disconnect_both();
	close(fd);
}

/* The domain's file: another with the same inode number must not become it; the application's locks stay. */
static void the_domains_file(void **state)
{
	char name[] = "/tmp/faultline-xrcd-XXXXXX";
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET}, probe = lock;
	int fd = mkstemp(name), again, status;
	struct ibv_xrcd *a, *b;
	pid_t pid;

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_SETLK, &lock), 0);
	a = open_domain(ctx, fd, O_CREAT);
	again = open(name, O_RDWR);
	b = open_domain(ctx, again, 0); /* the same file by another descriptor */
	assert_true(a && b);
	assert_int_equal(ibv_close_xrcd(a), 0);
	assert_int_equal(ibv_close_xrcd(b), 0);
	pid = fork();
	if (!pid)
		_exit(fcntl(fd, F_GETLK, &probe) || probe.l_type == F_UNLCK);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(again);
	close(fd);
	unlink(name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(domain_refusals), cmocka_unit_test(srq_refusals), cmocka_unit_test(qp_refusals),
		cmocka_unit_test(traffic), cmocka_unit_test(builders), cmocka_unit_test(opened_qps),
		cmocka_unit_test(the_domains_file),
	};

	return cmocka_run_group_tests(tests, up, down);
}
