/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The parts of the ABI that only traffic can show: the wr_* builders (several requests of all kinds in
 * a batch, lists of SGEs and of inline buffers), the extended way to poll, time stamps, and both ways
 * of polling on one CQ.
 */
#include "tests/verbs/rig.h"

static uint8_t pattern(size_t i)
{
	return (uint8_t)(i * 131 + (i >> 8) * 17 + 5);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_batch_of_all_kinds),
		cmocka_unit_test(stamps_lie_between_before_and_after),
		cmocka_unit_test(an_aborted_batch_sends_nothing),
	};

	return cmocka_run_group_tests(tests, up, down);
}
