/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device works on half as much memory again as its control group may have: 4 KiB WRITEs at random, nine in
 * ten of them to the hot sixth. Pinned, on demand, on demand with the hot part pinned; each in a process of
 * its own, one after the other. As root, since it makes swap (zram) and a group; prints "name value" a line.
 *
 *     swap [SECONDS]        of each, 5
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "faultline/odp.h"
#include "tests/mm/swap.h"

#define MIB	(1ull << 20)
#define LIMIT	(64 * MIB)
#define MEMORY	(LIMIT / 2 * 3)
#define HOT	(MEMORY / 6)
#define PAGE	4096u
#define SAMPLES (1u << 22)

#define NEED(x, what)                                                                              \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "swap: %s: %s\n", what, strerror(errno));                  \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

enum mode { PINNED, ON_DEMAND, HOT_PINNED, MODES };
static const char *const mode_name[MODES] = {"pinned", "odp", "odp_hot_pinned"};
static double seconds = 5;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int by_value(const void *a, const void *b)
{
	const float *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* connected to itself */
static struct ibv_qp *make_qp(struct ibv_context *ctx, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = cq,
					.qp_type = IBV_QPT_RC,
					.sq_sig_all = 1,
					.cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	NEED(qp, "QP");
	NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = qp->qp_num,
				    .max_dest_rd_atomic = 1,
				    .min_rnr_timer = 1,
				    .ah_attr = {.is_global = 1, .grh = {.hop_limit = 64}, .port_num = 1}};
	NEED(!ibv_query_gid(ctx, 1, 0, &attr.ah_attr.grh.dgid), "GID");
	NEED(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	     "RTR");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	NEED(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC),
	     "RTS");
	return qp;
}

static void write_page(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *from, struct ibv_mr *to, uint64_t page)
{
	struct ibv_sge sge = {(uintptr_t)from->addr, PAGE, from->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_RDMA_WRITE,
				       .wr.rdma = {(uintptr_t)to->addr + page * PAGE, to->rkey}};
	struct ibv_wc wc;
	int n;

	NEED(!ibv_post_send(qp, &wr, &bad), "post_send");
	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	NEED(n == 1 && wc.status == IBV_WC_SUCCESS, "completion");
}

static void measure(enum mode mode)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	struct ibv_cq *cq = ctx ? ibv_create_cq(ctx, 16, NULL, NULL, 0) : NULL;
	/* small, and of the same random pages each time */
	float *sample = mmap(NULL, SAMPLES * sizeof(*sample), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *m = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static char source[PAGE] __attribute__((aligned(4096)));
	struct ibv_mr *from, *to;
	struct ibv_qp *qp;
	unsigned n = 0, seed = 1;
	double end, t;

	NEED(pd && cq && m != MAP_FAILED && sample != MAP_FAILED, "no device, or no memory");
	memset(m, 1, MEMORY);
	qp = make_qp(ctx, pd, cq);
	from = ibv_reg_mr(pd, source, PAGE, access);
	to = ibv_reg_mr(pd, m, MEMORY, access | (mode == PINNED ? 0 : IBV_ACCESS_ON_DEMAND));
	if (!to)
		_exit(2);
	NEED(from, "register");
	if (mode == HOT_PINNED) {
		errno = faultline_mr_pin(to, m, HOT);
		if (errno == EOPNOTSUPP)
			_exit(3);
		NEED(!errno, "pin the hot part");
	}
	for (end = now() + seconds; now() < end && n < SAMPLES; n++) {
		bool hot = rand_r(&seed) % 10;
		uint64_t page = (uint64_t)rand_r(&seed) % ((hot ? HOT : MEMORY) / PAGE);

		t = now();
		write_page(qp, cq, from, to, page);
		sample[n] = (float)((now() - t) * 1e6);
	}
	qsort(sample, n, sizeof(*sample), by_value);
	printf("%s_per_s %.0f\n%s_p50 %.1f\n%s_p99 %.1f\n%s_max %.0f\n", mode_name[mode], n / seconds,
	       mode_name[mode], (double)sample[n / 2], mode_name[mode], (double)sample[n - n / 100 - 1],
	       mode_name[mode], (double)sample[n - 1]);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const char *why;
	int st;

	if (argc > 1)
		seconds = atof(argv[1]);
	why = swap_on(4 * MEMORY);
	if (!why)
		why = group_make("faultline-bench", LIMIT);
	if (why) {
		swap_off();
		fprintf(stderr, "swap: skipped: %s\n", why);
		return 77;
	}
	for (enum mode mode = PINNED; mode < MODES; mode++) {
		pid_t pid = fork();

		if (!pid) {
			NEED(group_enter(), "control group");
			alarm((unsigned)seconds * 10 + 60);
			measure(mode);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, &st, 0) != pid)
			break;
		if (WIFSIGNALED(st))
			printf("%s_killed %d\n", mode_name[mode], WTERMSIG(st)); /* by the kernel, at the limit */
		else if (WEXITSTATUS(st) == 2)
			printf("%s_refused 1\n", mode_name[mode]);
		fflush(stdout);
	}
	for (int i = 0; i < 50 && rmdir(swap_env.group); i++)
		usleep(100000); /* what a process that was killed had goes a little later */
	swap_off();
	return 0;
}
