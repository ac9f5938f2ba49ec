/* SPDX-License-Identifier: BSD-2-Clause */
/* What pinned-given-back.sh runs: pins most of what a user may, and ends as it is told. */
#include <faultline/odp.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
#include "rc.h"

#define LIMIT  (8ul << 20)
#define PINNED (6ul << 20)

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "exit";
	struct rlimit limit = {LIMIT, LIMIT};
	struct rc_side a, b;
	uint8_t *m, *odp, *all;

	if (setrlimit(RLIMIT_MEMLOCK, &limit) || (!geteuid() && (setgid(65531) || setuid(65531))))
		rc_skip("cannot be another user: %m");
	rc_open(&a);
	rc_open(&b);
	rc_pair(&a, &b, &rc_default);
	m = rc_map(2 * LIMIT);
	struct ibv_mr *mr = NULL;

	/* what an io_uring held is given back a little after its process has ended */
	for (int i = 0; i < 100 && !mr; i++, mr ? 0 : usleep(50000))
		mr = ibv_reg_mr(a.pd, m, PINNED, ALL_ACCESS);
	CHECK(mr, "%lu bytes pinned: %m", PINNED);
	if (!strcmp(how, "past")) {
		errno = 0;
		CHECK(!ibv_reg_mr(a.pd, m, 2 * LIMIT, ALL_ACCESS) && errno == ENOMEM, "past the limit: %m");
		CHECK(ibv_reg_mr(a.pd, m, 2 * LIMIT, ALL_ACCESS | ODP), "on demand: %m");
		return 0;
	}
	odp = rc_map(4 * PAGE);
	all = rc_map(4 * PAGE);
	struct ibv_mr *omr = rc_reg(&b, odp, 4 * PAGE, ALL_ACCESS | ODP);
	struct ibv_mr *imr = ibv_reg_mr(b.pd, NULL, SIZE_MAX, ALL_ACCESS | ODP);
	struct ibv_mr *hot = rc_reg(&b, all, 4 * PAGE, ALL_ACCESS | ODP);

	if (!imr)
		rc_skip("this device has no implicit regions");
	CHECK(!faultline_mr_pin(hot, all, 4 * PAGE), "pin: %m");
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m, PAGE, mr->lkey, (uintptr_t)odp, omr->rkey), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m, 3 * PAGE, mr->lkey, (uintptr_t)odp + PAGE, imr->rkey), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	if (!strcmp(how, "_exit"))
		_exit(0);
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "kill"))
		raise(SIGKILL);
	return 0;
}
