/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Four threads make and destroy objects of every kind, each on a context of its own but on one device,
 * and look at the port in between. In the end nothing is left, and no handle was given twice.
 */
#include "tests/verbs/test.h"

#include <stdbool.h>
#include <sys/mman.h>

#define THREADS 4
#define ROUNDS	150

struct worker {
	pthread_t thread;
	uint32_t handle[ROUNDS][3];
	const char *failed;
};

static const char *one_round(struct ibv_context *c, void *buf, uint32_t handle[3], bool odp)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(c);
	struct ibv_cq *cq = channel ? ibv_create_cq(c, 8, NULL, channel, 0) : NULL;
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_mr *mr = NULL;
	struct ibv_qp *qp = NULL;
	struct ibv_recv_wr wr = {0}, *bad;
	struct ibv_port_attr port;

	if (!cq || !pd)
		return "cq, pd";
	mr = ibv_reg_mr(pd, buf, 4096, odp ? IBV_ACCESS_ON_DEMAND : 0);
	qp = make_rc(pd, cq);
	if (!mr || !qp)
		return "mr, qp";
	handle[0] = cq->handle;
	handle[1] = pd->handle;
	handle[2] = mr->handle;
	if (ibv_query_port(c, 1, &port) || ibv_req_notify_cq(cq, 0))
		return "query_port, req_notify_cq";
	if (to_init(qp) || ibv_post_recv(qp, &wr, &bad) || to_state(qp, IBV_QPS_ERR))
		return "states";
	if (ibv_dealloc_pd(pd) != EBUSY || ibv_destroy_cq(cq) != EBUSY)
		return "in use";
	/* with its event never fetched */
	if (ibv_destroy_qp(qp) || ibv_dereg_mr(mr) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd))
		return "destroy";
	return ibv_destroy_comp_channel(channel) ? "channel" : NULL;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct ibv_context *c = ibv_open_device(ctx->device);
	void *buf = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (!c) {
		w->failed = "open";
		return NULL;
	}
	for (int i = 0; i < ROUNDS && !w->failed; i++)
		w->failed = one_round(c, buf, w->handle[i], i & 1);
	if (!w->failed && ibv_close_device(c))
		w->failed = "close";
	munmap(buf, 4096);
	return NULL;
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void churn(void **state)
{
	static struct worker w[THREADS];
	static uint32_t all[THREADS * ROUNDS * 3];

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(w[i].thread, NULL), 0);
		if (w[i].failed)
			fail_msg("thread %d: %s", i, w[i].failed);
		memcpy(all + i * ROUNDS * 3, w[i].handle, sizeof(w[i].handle));
	}
	qsort(all, THREADS * ROUNDS * 3, sizeof(all[0]), compare);
	assert_true(all[0] != 0);
	for (int i = 1; i < THREADS * ROUNDS * 3; i++)
		assert_true(all[i] != all[i - 1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(churn)};

	return cmocka_run_group_tests(tests, open_first, close_it);
}
