/* SPDX-License-Identifier: BSD-2-Clause */
/* The registry and the rules of objects, below the ABI. Settings: three devices on lo. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "core/core.h"

static struct ib_device *const *devs;

static struct ib_ucontext *open_dev(int i)
{
	struct ib_ucontext *uc;

	assert_int_equal(ib_open_device(devs[i], &uc), 0);
	return uc;
}

static void names_and_guids(void **state)
{
	assert_int_equal(ib_get_devices(&devs), 3);
	assert_string_equal(devs[0]->name, "mlx5_fl0");
	assert_string_equal(devs[1]->name, "rxe_fl0");
	assert_string_equal(devs[2]->name, "mlx5_fl1");
	for (int i = 0; i < 3; i++) {
		assert_true(devs[i]->node_guid != 0);
		for (int j = 0; j < i; j++)
			assert_true(devs[i]->node_guid != devs[j]->node_guid);
	}
}

static void mtu(void **state)
{
	assert_int_equal(ib_mtu_of_netdev(1500), IBV_MTU_1024);
	assert_int_equal(ib_mtu_of_netdev(4200), IBV_MTU_4096);
	assert_int_equal(ib_mtu_of_netdev(4095), IBV_MTU_2048);
	assert_int_equal(ib_mtu_of_netdev(65536), IBV_MTU_4096);
	assert_int_equal(ib_mtu_of_netdev(576), IBV_MTU_256);
	assert_int_equal(ib_mtu_of_netdev(68), IBV_MTU_256);
}

static void use_counts(void **state)
{
	struct ib_ucontext *uc = open_dev(0), *other = open_dev(1);
	uint64_t *c = devs[0]->stat->counter;
	struct ib_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1, .max_send_sge = 1}};
	struct ib_cq *cq, *foreign;
	struct ib_pd *pd;
	struct ib_qp *qp;

	assert_int_equal(c[FL_CNT_ctx], 1);
	assert_int_equal(ib_alloc_pd(uc, &pd), 0);
	assert_int_equal(ib_create_cq(uc, 10, 0, false, NULL, &cq), 0);
	assert_int_equal(ib_create_cq(other, 10, 0, false, NULL, &foreign), 0);
	assert_int_not_equal(cq->uobj.handle, pd->uobj.handle);
	assert_int_not_equal(cq->uobj.handle, foreign->uobj.handle);

	init.send_cq = cq;
	init.recv_cq = foreign;
	assert_int_equal(ib_create_qp(pd, &init, &qp), -EINVAL);
	init.recv_cq = cq;
	assert_int_equal(ib_create_qp(pd, &init, &qp), 0);
	assert_int_equal(c[FL_CNT_qp], 1);
	assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
	assert_int_equal(ib_destroy_cq(cq), -EBUSY);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
	assert_int_equal(c[FL_CNT_qp] + c[FL_CNT_cq] + c[FL_CNT_pd], 0);

	/* what is left goes with the context */
	assert_int_equal(ib_alloc_pd(uc, &pd), 0);
	assert_int_equal(ib_create_cq(uc, 10, 0, false, NULL, &cq), 0);
	assert_int_equal(ib_close_device(uc), 0);
	assert_int_equal(c[FL_CNT_ctx] + c[FL_CNT_cq] + c[FL_CNT_pd], 0);
	assert_int_equal(ib_close_device(other), 0);
}

static void access_rules(void **state)
{
	enum { LW = 1, RW = 2, RR = 4, RA = 8, ZB = 32, OD = 64 };
	const struct hca_profile *p = devs[0]->profile;
	struct hca_profile no_odp = *p;

	for (unsigned a = 0; a < 16; a++)
		assert_int_equal(ib_check_mr_access(p, a | OD), (a & (RW | RA)) && !(a & LW) ? -EINVAL : 0);
	assert_int_equal(ib_check_mr_access(p, LW | 0x3ff00000), 0);
	assert_int_equal(ib_check_mr_access(p, ZB), -EOPNOTSUPP);
	assert_int_equal(ib_check_mr_access(p, 1u << 9), -EINVAL);
	assert_int_equal(ib_check_mr_access(p, 1u << 10), -EINVAL);
	assert_int_equal(ib_check_mr_access(p, 1u << 19), -EINVAL);
	assert_int_equal(ib_check_mr_access(p, 1u << 30), -EINVAL);
	no_odp.odp.general_caps = 0;
	assert_int_equal(ib_check_mr_access(&no_odp, OD), -EOPNOTSUPP);
	no_odp.odp_refused = EINVAL;
	assert_int_equal(ib_check_mr_access(&no_odp, OD), -EINVAL);
}

static void fork_child_is_dead_and_reborn(void **state)
{
	struct ib_ucontext *uc = open_dev(0);
	struct ib_pd *pd, *mine;
	int status;
	pid_t pid;

	assert_int_equal(ib_alloc_pd(uc, &pd), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct ib_ucontext *again;

		if (ib_dealloc_pd(pd) != -EIO || ib_alloc_pd(uc, &mine) != -EIO || ib_close_device(uc) != -EIO)
			_exit(1);
		if (ib_open_device(devs[0], &again) || ib_alloc_pd(again, &mine))
			_exit(2);
		if (devs[0]->stat->counter[FL_CNT_pd] != 1 || ib_dealloc_pd(mine) || ib_close_device(again))
			_exit(3);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	/* and the parent never noticed */
	assert_int_equal(devs[0]->stat->counter[FL_CNT_pd], 1);
	assert_int_equal(ib_dealloc_pd(pd), 0);
	assert_int_equal(ib_close_device(uc), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_and_guids),
		cmocka_unit_test(mtu),
		cmocka_unit_test(use_counts),
		cmocka_unit_test(access_rules),
		cmocka_unit_test(fork_child_is_dead_and_reborn),
	};

	setenv("FAULTLINE_CONFIG", "/dev/null", 1);
	setenv("FAULTLINE_NETDEV", "lo", 1);
	setenv("FAULTLINE_DEVICE", "mlx5,rxe,mlx5", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
