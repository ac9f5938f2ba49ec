/* SPDX-License-Identifier: BSD-2-Clause */
/* Ends with everything closed, with objects left, or by a signal: what leftovers.sh runs. */
#include "rc.h"

#include <signal.h>

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "nothing";
	struct rc_side a;
	uint8_t *m;

	rc_open(&a);
	rc_make_qp(&a, &rc_default);
	rc_connect(&a, &a.me);
	m = rc_map(2 * PAGE);
	a.buf[0].mr = rc_reg(&a, m, PAGE, ALL_ACCESS);
	a.buf[1].mr = rc_reg(&a, m + PAGE, PAGE, ALL_ACCESS | ODP);
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m, 100, a.buf[0].mr->lkey,
		       (uintptr_t)m + PAGE, a.buf[1].mr->rkey),
	      "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	if (!strcmp(how, "die"))
		raise(SIGKILL);
	if (!strcmp(how, "nothing"))
		rc_close(&a);
	return 0;
}
