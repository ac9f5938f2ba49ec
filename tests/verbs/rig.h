/* SPDX-License-Identifier: BSD-2-Clause */
/* Two connected QPs of one process, made for the wr_* builders, with a buffer and an MR each. */
#ifndef FL_TESTS_VERBS_RIG_H
#define FL_TESTS_VERBS_RIG_H

#include "tests/verbs/test.h"

#include <sys/mman.h>
#include <time.h>

#define LEN 65536

static struct ibv_pd *pd;
static struct ibv_cq_ex *cqx;
static struct ibv_cq *rcq;
static struct ibv_qp *qa, *qb;
static struct ibv_mr *ma, *mb;
static uint8_t *a, *b;

static int connect_qp(struct ibv_qp *qp, uint32_t dest)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = dest,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}},
	};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
						      IBV_ACCESS_REMOTE_ATOMIC};
	int err;

	err = ibv_query_gid(ctx, 1, 0, &attr.ah_attr.grh.dgid);
	if (!err)
		err = ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
						       IBV_QP_ACCESS_FLAGS);
	if (!err)
		err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
						       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
						       IBV_QP_MIN_RNR_TIMER);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
				    .rnr_retry = 7, .max_rd_atomic = 4};
	if (!err)
		err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
						       IBV_QP_MAX_QP_RD_ATOMIC);
	return err;
}

static void *map(void)
{
	return mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static inline int up(void **state)
{
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
				       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 2,
			.max_inline_data = 128},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;

	if (open_first(state))
		return -1;
	pd = ibv_alloc_pd(ctx);
	cqx = ibv_create_cq_ex(ctx, &cq_attr);
	rcq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	a = map();
	b = map();
	if (!pd || !cqx || !rcq)
		return -1;
	ma = ibv_reg_mr(pd, a, LEN, access);
	mb = ibv_reg_mr(pd, b, LEN, access);
	init.pd = pd;
	init.send_cq = ibv_cq_ex_to_cq(cqx);
	init.recv_cq = rcq;
	qa = ibv_create_qp_ex(ctx, &init);
	qb = ibv_create_qp_ex(ctx, &init);
	if (!ma || !mb || !qa || !qb)
		return -1;
	return connect_qp(qa, qb->qp_num) || connect_qp(qb, qa->qp_num) ? -1 : 0;
}

static inline int down(void **state)
{
	return ibv_destroy_qp(qa) || ibv_destroy_qp(qb) || ibv_dereg_mr(ma) || ibv_dereg_mr(mb) ||
			       ibv_destroy_cq(ibv_cq_ex_to_cq(cqx)) || ibv_destroy_cq(rcq) ||
			       ibv_dealloc_pd(pd) || ibv_close_device(ctx)
		       ? -1
		       : 0;
}

static inline void poll_one(struct ibv_cq *cq, struct ibv_wc *wc)
{
	time_t end = time(NULL) + 5;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, wc)) && time(NULL) < end)
		;
	assert_int_equal(n, 1);
	assert_int_equal(wc->status, IBV_WC_SUCCESS);
}

#endif
