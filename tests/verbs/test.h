/* SPDX-License-Identifier: BSD-2-Clause */
/* What the programs that go through the public ABI share: a device, and what hangs on it. */
#ifndef FL_TESTS_VERBS_TEST_H
#define FL_TESTS_VERBS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

static struct ibv_context *ctx;

static inline int open_first(void **state)
{
	struct ibv_device **list;
	int n;

	/* the device that the tests know, whatever the user's settings */
	setenv("FAULTLINE_CONFIG", "/dev/null", 1);
	setenv("FAULTLINE_DEVICE", "mlx5", 1);
	setenv("FAULTLINE_NETDEV", "lo", 1);
	unsetenv("FAULTLINE_NAME");
	list = ibv_get_device_list(&n);
	if (!list || n < 1)
		return -1;
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	return ctx ? 0 : -1;
}

static inline int close_it(void **state)
{
	return ibv_close_device(ctx);
}

static inline struct ibv_qp *make_rc(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	};

	return ibv_create_qp(pd, &init);
}

static inline int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
}

static inline int to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* the calling thread expects NULL and this errno */
#define assert_null_errno(expr, err)                                                               \
	do {                                                                                       \
		errno = 0;                                                                         \
		assert_null(expr);                                                                 \
		assert_int_equal(errno, err);                                                      \
	} while (0)

#endif
