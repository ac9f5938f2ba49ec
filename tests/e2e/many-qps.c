/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ten thousand RC QPs in one process, connected in pairs, each of which sends and receives: all
 * arrive, and what a QP takes beyond its own queues is bounded.
 */
#include <unistd.h>
#include "rc.h"

#define QPS	   10000
#define PAIRS	   (QPS / 2)
#define PER_QP_MAX 4096ul /* bytes of resident memory, its queues of two entries with it */
#define MSG	   8u

static struct ibv_qp *qp[QPS];

static unsigned long resident(void)
{
	unsigned long total, pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	CHECK(f && fscanf(f, "%lu %lu", &total, &pages) == 2, "/proc/self/statm");
	fclose(f);
	return pages * PAGE;
}

static void post(const struct rc_side *s, struct ibv_mr *mr, uint8_t *buf, int i)
{
	struct ibv_sge out = {(uintptr_t)buf + i * MSG, MSG, mr->lkey};
	struct ibv_sge in = {(uintptr_t)buf + (QPS + i) * MSG, MSG, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = i,
				 .sg_list = &out,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_recv_wr rwr = {.wr_id = i, .sg_list = &in, .num_sge = 1}, *rbad;

	CHECK(!ibv_post_recv(qp[i ^ 1], &rwr, &rbad), "ibv_post_recv %d", i);
	CHECK(!ibv_post_send(qp[i], &wr, &bad), "ibv_post_send %d", i);
}

int main(void)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {2, 2, 1, 1, 0}};
	struct rc_opt opt = rc_default;
	struct rc_side s = {0};
	struct ibv_wc wc;
	unsigned long before, per_qp;
	uint8_t *buf = rc_map(2ul * QPS * MSG);
	struct ibv_mr *mr;
	unsigned done = 0;
	double start = rc_now();

	s.opt = opt;
	rc_open(&s);
	mr = rc_reg(&s, buf, 2ul * QPS * MSG, IBV_ACCESS_LOCAL_WRITE);
	init.send_cq = init.recv_cq = s.cq;
	before = resident();
	for (int i = 0; i < QPS; i++) {
		qp[i] = ibv_create_qp(s.pd, &init);
		CHECK(qp[i], "ibv_create_qp %d: %m", i);
	}
	for (int i = 0; i < QPS; i++) {
		struct rc_hello peer = {.gid = s.me.gid, .qpn = qp[i ^ 1]->qp_num, .psn = i ^ 1};

		CHECK(!rc_to_init(qp[i], ALL_ACCESS) && !rc_to_rtr(qp[i], &opt, &peer) &&
			      !rc_to_rts(qp[i], &opt, i),
		      "connect %d: %m", i);
	}
	per_qp = (resident() - before) / QPS;
	printf("%d QPs in %.2f s, %lu bytes each\n", QPS, rc_now() - start, per_qp);
	CHECK(per_qp <= PER_QP_MAX, "a QP takes %lu bytes", per_qp);

	start = rc_now();
	rc_fill(buf, (uint64_t)QPS * MSG, 0, 1);
	for (int i = 0; i < QPS; i++) {
		post(&s, mr, buf, i);
		while (ibv_poll_cq(s.cq, 1, &wc) > 0) {
			CHECK(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
			done++;
		}
	}
	for (; done < 2 * QPS; done++) {
		CHECK(rc_poll(&s, &wc, 20), "%u of %d completions", done, 2 * QPS);
		CHECK(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
	}
	CHECK(rc_differs(buf + QPS * MSG, (uint64_t)QPS * MSG, 0, 1) == UINT64_MAX, "data");
	printf("a message each way on each pair in %.2f s\n", rc_now() - start);

	start = rc_now();
	for (int i = 0; i < QPS; i++)
		CHECK(!ibv_destroy_qp(qp[i]), "ibv_destroy_qp");
	printf("destroyed in %.2f s\n", rc_now() - start);
	return 0;
}
