/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fork in the midst of it: the child's copies of the parent's objects are dead, all of them say so
 * and none hangs; the child can begin anew; the parent goes on.
 */
#include "tests/verbs/rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

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

static struct ibv_xrcd *open_domain(int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					  .fd = fd, .oflags = oflags};

	return ibv_open_xrcd(ctx, &attr);
}

/* a domain of the same file is another in the child */
static int child_of_xrc(int fd, struct ibv_xrcd *xrcd, struct ibv_srq *srq, struct ibv_qp *tgt)
{
	if (ibv_destroy_qp(tgt) != EIO || ibv_destroy_srq(srq) != EIO || ibv_close_xrcd(xrcd) != EIO)
		return 1;
	if (open_domain(-1, 0) || errno != EIO)
		return 2;
	ctx = ibv_open_device(ctx->device);
	if (!ctx || open_domain(fd, 0) || errno != EAGAIN)
		return 3;
	xrcd = open_domain(fd, O_CREAT);
	return xrcd && !ibv_close_xrcd(xrcd) && !ibv_close_device(ctx) ? 0 : 4;
}

static void xrc_domains(void **state)
{
	char name[] = "/tmp/faultline-xrcd-XXXXXX";
	int fd = mkstemp(name), status;
	struct ibv_xrcd *xrcd = open_domain(fd, O_CREAT);
	struct ibv_srq_init_attr_ex sa = {
		.attr = {.max_wr = 4, .max_sge = 1}, .srq_type = IBV_SRQT_XRC, .pd = pd, .cq = rcq, .xrcd = xrcd,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_XRCD};
	struct ibv_qp_init_attr_ex qa_ex = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD,
					    .xrcd = xrcd};
	struct ibv_srq *srq = ibv_create_srq_ex(ctx, &sa);
	struct ibv_qp *tgt = ibv_create_qp_ex(ctx, &qa_ex);
	pid_t pid;

	unlink(name);
	assert_true(srq && tgt);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(child_of_xrc(fd, xrcd, srq, tgt));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(ibv_destroy_qp(tgt) | ibv_destroy_srq(srq) | ibv_close_xrcd(xrcd), 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(fork_leaves_the_parent_alone),
					   cmocka_unit_test(xrc_domains)};

	return cmocka_run_group_tests(tests, up, down);
}
