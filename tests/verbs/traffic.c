/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The parts of the ABI that only traffic can show, between two QPs of one process: the wr_* builders
 * (several requests of all kinds in a batch, lists of SGEs and of inline buffers), the extended way to
 * poll, time stamps, and both ways of polling on one CQ. Then a fork: the child's copies are dead, the
 * parent's go on, and the child can begin anew.
 */
#include "tests/verbs/test.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LEN 65536

static struct ibv_pd *pd;
static struct ibv_cq_ex *cqx;
static struct ibv_cq *rcq;
static struct ibv_qp *qa, *qb;
static struct ibv_mr *ma, *mb;
static uint8_t *a, *b;

static uint8_t pattern(size_t i)
{
	return (uint8_t)(i * 131 + (i >> 8) * 17 + 5);
}

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

static int up(void **state)
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

static int down(void **state)
{
	return ibv_destroy_qp(qa) || ibv_destroy_qp(qb) || ibv_dereg_mr(ma) || ibv_dereg_mr(mb) ||
			       ibv_destroy_cq(ibv_cq_ex_to_cq(cqx)) || ibv_destroy_cq(rcq) ||
			       ibv_dealloc_pd(pd) || ibv_close_device(ctx)
		       ? -1
		       : 0;
}

/* Begins the extended poll as soon as there is something, or fails after five seconds. */
static void start_poll_wait(void)
{
	struct ibv_poll_cq_attr attr = {0};
	time_t end = time(NULL) + 5;
	int err;

	while ((err = ibv_start_poll(cqx, &attr)) == ENOENT && time(NULL) < end)
		;
	assert_int_equal(err, 0);
}

static void poll_one(struct ibv_cq *cq, struct ibv_wc *wc)
{
	time_t end = time(NULL) + 5;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, wc)) && time(NULL) < end)
		;
	assert_int_equal(n, 1);
	assert_int_equal(wc->status, IBV_WC_SUCCESS);
}

static void expect_send(uint64_t wr_id, enum ibv_wc_opcode opcode)
{
	start_poll_wait();
	assert_int_equal(cqx->status, IBV_WC_SUCCESS);
	assert_int_equal(cqx->wr_id, wr_id);
	assert_int_equal(ibv_wc_read_opcode(cqx), opcode);
	assert_int_equal(ibv_wc_read_qp_num(cqx), qa->qp_num);
	ibv_end_poll(cqx);
}

static void begin(struct ibv_qp_ex *x, uint64_t wr_id)
{
	x->wr_id = wr_id;
	x->wr_flags = IBV_SEND_SIGNALED;
}

static void a_batch_of_all_kinds(void **state)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qa);
	struct ibv_sge list[3] = {
		{(uintptr_t)a + 1, 3, ma->lkey}, {(uintptr_t)a + 100, 5000, ma->lkey},
		{(uintptr_t)a + 9001, 7, ma->lkey}};
	char first[] = "inline, ", second[] = "in two parts";
	struct ibv_data_buf bufs[2] = {{first, sizeof(first) - 1}, {second, sizeof(second)}};
	struct ibv_sge recv_sge = {(uintptr_t)b + 40000, 5000, mb->lkey};
	struct ibv_recv_wr recv = {.wr_id = 77, .sg_list = &recv_sge, .num_sge = 1}, *bad;
	uint64_t *counter = (uint64_t *)(b + 32768), *old = (uint64_t *)(a + 32768);
	struct ibv_wc wc;
	size_t at = 0;

	for (size_t i = 0; i < LEN; i++)
		a[i] = pattern(i);
	*counter = 40;
	assert_int_equal(ibv_post_recv(qb, &recv, &bad), 0);
	recv.wr_id = 78;
	assert_int_equal(ibv_post_recv(qb, &recv, &bad), 0);

	ibv_wr_start(x);
	begin(x, 1);
	ibv_wr_rdma_write(x, mb->rkey, (uintptr_t)b + 11);
	ibv_wr_set_sge_list(x, 3, list);
	begin(x, 2);
	ibv_wr_rdma_write_imm(x, mb->rkey, (uintptr_t)b + 20001, 0x11223344);
	ibv_wr_set_inline_data_list(x, 2, bufs);
	begin(x, 3);
	ibv_wr_send_imm(x, 0x55667788);
	ibv_wr_set_sge(x, ma->lkey, (uintptr_t)a + 3, 4099);
	begin(x, 4);
	ibv_wr_atomic_fetch_add(x, mb->rkey, (uintptr_t)counter, 2);
	ibv_wr_set_sge(x, ma->lkey, (uintptr_t)old, 8);
	begin(x, 5);
	ibv_wr_atomic_cmp_swp(x, mb->rkey, (uintptr_t)counter, 42, 7);
	ibv_wr_set_sge(x, ma->lkey, (uintptr_t)(old + 1), 8);
	begin(x, 6);
	ibv_wr_rdma_read(x, mb->rkey, (uintptr_t)b + 11);
	ibv_wr_set_sge(x, ma->lkey, (uintptr_t)a + 50001, 5010);
	assert_int_equal(ibv_wr_complete(x), 0);
	/* what was inline is ours again */
	memset(first, '#', sizeof(first));
	memset(second, '#', sizeof(second));

	expect_send(1, IBV_WC_RDMA_WRITE);
	expect_send(2, IBV_WC_RDMA_WRITE);
	expect_send(3, IBV_WC_SEND);
	expect_send(4, IBV_WC_FETCH_ADD);
	expect_send(5, IBV_WC_COMP_SWAP);
	/* the last one the plain way: both work on one CQ */
	poll_one(ibv_cq_ex_to_cq(cqx), &wc);
	assert_int_equal(wc.wr_id, 6);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
	poll_one(rcq, &wc);
	assert_int_equal(wc.wr_id, 77);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.imm_data, 0x11223344);
	poll_one(rcq, &wc);
	assert_int_equal(wc.wr_id, 78);
	assert_int_equal(wc.imm_data, 0x55667788);
	assert_int_equal(wc.byte_len, 4099);

	for (int s = 0; s < 3; s++) {
		const uint8_t *from = (const uint8_t *)(uintptr_t)list[s].addr;

		assert_memory_equal(b + 11 + at, from, list[s].length);
		at += list[s].length;
	}
	assert_int_equal(b[11 + at], 0);
	assert_int_equal(b[10], 0);
	assert_string_equal((char *)b + 20001, "inline, in two parts");
	for (size_t i = 0; i < 4099; i++)
		assert_int_equal(b[40000 + i], pattern(3 + i));
	assert_int_equal(old[0], 40);
	assert_int_equal(old[1], 42);
	assert_int_equal(*counter, 7);
	assert_memory_equal(a + 50001, b + 11, 5010);
}

static uint64_t wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t device_ticks(void)
{
	struct ibv_values_ex v = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};

	assert_int_equal(ibv_query_rt_values_ex(ctx, &v), 0);
	assert_int_equal(v.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
	return (uint64_t)v.raw_clock.tv_nsec;
}

static void stamps_lie_between_before_and_after(void **state)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qa);
	uint64_t ticks = device_ticks(), wall = wall_ns(), ts, ns;

	ibv_wr_start(x);
	for (uint64_t i = 0; i < 2; i++) {
		begin(x, i);
		ibv_wr_rdma_write(x, mb->rkey, (uintptr_t)b);
		ibv_wr_set_sge(x, ma->lkey, (uintptr_t)a, 8);
	}
	assert_int_equal(ibv_wr_complete(x), 0);
	for (uint64_t i = 0; i < 2; i++) {
		start_poll_wait();
		assert_int_equal(cqx->wr_id, i);
		ts = ibv_wc_read_completion_ts(cqx);
		ns = ibv_wc_read_completion_wallclock_ns(cqx);
		ibv_end_poll(cqx);
		assert_true(ts >= ticks && ts <= device_ticks());
		assert_true(ns >= wall && ns <= wall_ns());
		ticks = ts;
		wall = ns;
	}
}

static void an_aborted_batch_sends_nothing(void **state)
{
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qa);

	b[0] = 0x5a;
	a[0] = 0xa5;
	ibv_wr_start(x);
	begin(x, 1);
	ibv_wr_rdma_write(x, mb->rkey, (uintptr_t)b);
	ibv_wr_set_sge(x, ma->lkey, (uintptr_t)a, 1);
	ibv_wr_abort(x);
	/* nor does one with an error anywhere in it */
	ibv_wr_start(x);
	begin(x, 1);
	ibv_wr_rdma_write(x, mb->rkey, (uintptr_t)b);
	ibv_wr_set_sge(x, ma->lkey, (uintptr_t)a, 1);
	ibv_wr_send_inv(x, 1);
	assert_int_equal(ibv_wr_complete(x), EOPNOTSUPP);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(ibv_start_poll(cqx, &attr), ENOENT);
	assert_int_equal(b[0], 0x5a);
}

static int write_one(struct ibv_mr *mr)
{
	struct ibv_sge sge = {(uintptr_t)mr->addr, 8, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 9, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)b;
	wr.wr.rdma.rkey = mb->rkey;
	return ibv_post_send(qa, &wr, &bad);
}

/* In the child: 0, or the number of what went wrong. */
static int child(void)
{
	struct ibv_context *parents = ctx;
	struct ibv_async_event event;
	struct ibv_device_attr attr;
	struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};

	if (write_one(ma) != EIO)
		return 1;
	if (ibv_poll_cq(rcq, 1, &wc) != 0)
		return 2;
	if (ibv_query_device(parents, &attr) != EIO || ibv_alloc_pd(parents) || errno != EIO)
		return 3;
	if (ibv_reg_mr(pd, a, LEN, 0) || errno != EIO)
		return 4;
	if (ibv_get_async_event(parents, &event) != -1 || errno != EIO)
		return 5;
	if (ibv_destroy_qp(qa) != EIO || ibv_dereg_mr(ma) != EIO || ibv_close_device(parents) != EIO)
		return 6;
	/* the same pattern anew, with the child's own copy of everything */
	if (up(NULL))
		return 7;
	a[0] = 0x77;
	if (write_one(ma))
		return 8;
	for (int i = 0; i < 100000000 && !ibv_poll_cq(ibv_cq_ex_to_cq(cqx), 1, &wc); i++)
		;
	if (wc.status != IBV_WC_SUCCESS || wc.wr_id != 9 || b[0] != 0x77)
		return 9;
	return down(NULL) ? 10 : 0;
}

static void fork_leaves_the_parent_alone(void **state)
{
	struct ibv_wc wc;
	int status;
	pid_t pid;

	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(child());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	a[0] = 0x33;
	assert_int_equal(write_one(ma), 0);
	poll_one(ibv_cq_ex_to_cq(cqx), &wc);
	assert_int_equal(wc.wr_id, 9);
	assert_int_equal(b[0], 0x33);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_batch_of_all_kinds),
		cmocka_unit_test(stamps_lie_between_before_and_after),
		cmocka_unit_test(an_aborted_batch_sends_nothing),
		cmocka_unit_test(fork_leaves_the_parent_alone),
	};

	return cmocka_run_group_tests(tests, up, down);
}
