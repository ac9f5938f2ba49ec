/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * After a fork the child has no part in the parent's connections: its inherited objects answer
 * errors and do no harm. It opens the device anew and works; the parent goes on meanwhile. Memory
 * is copied as of the fork: what the network then writes at the parent is not seen in the child,
 * pinned or not, and what the child writes beside a registered buffer, in the same page, is its
 * own.
 */
#include "rc.h"

#include <sys/wait.h>
#include <unistd.h>

static struct rc_side a, b;

static void write_some(struct rc_side *s, uint8_t *from, struct ibv_mr *smr, uint8_t *to,
		       struct ibv_mr *dmr, uint64_t seed)
{
	rc_fill(from, 100, 0, seed);
	CHECK(!rc_post(s, IBV_WR_RDMA_WRITE, (uintptr_t)from, 100, smr->lkey, (uintptr_t)to,
		       dmr->rkey),
	      "post");
	rc_expect(s, IBV_WC_SUCCESS);
	CHECK(rc_differs(to, 100, 0, seed) == UINT64_MAX, "data");
}

static int child(uint8_t *from, struct ibv_mr *smr, uint8_t *to, struct ibv_mr *dmr, int ready)
{
	struct rc_side c, d;
	struct ibv_wc wc;
	char byte;

	/* what is inherited is dead: an error, no crash, no hang */
	CHECK(rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)from, 100, smr->lkey, (uintptr_t)to,
		      dmr->rkey),
	      "the child posted to its parent's QP");
	CHECK(ibv_poll_cq(a.cq, 1, &wc) <= 0, "the child has its parent's completion");
	CHECK(!ibv_reg_mr(a.pd, from, PAGE, ALL_ACCESS),
	      "the child registered with its parent's PD");

	/* the other buffer of the page is ours to write, and the page as it was at the fork */
	CHECK(rc_differs(to, 100, 0, 1) == UINT64_MAX, "the child's copy is not as of the fork");
	to[2000] = 0x42;
	CHECK(read(ready, &byte, 1) == 1, "the parent is gone");
	CHECK(rc_differs(to, 100, 0, 1) == UINT64_MAX,
	      "the child sees what was written after the fork");
	CHECK(to[2000] == 0x42, "what the child wrote has vanished");

	rc_open(&c);
	rc_open(&d);
	rc_pair(&c, &d, &rc_default);
	uint8_t *m = rc_map(2 * PAGE);
	struct ibv_mr *mc = rc_reg(&c, m, PAGE, ALL_ACCESS),
		      *md = rc_reg(&d, m + PAGE, PAGE, ALL_ACCESS | ODP);

	for (uint64_t i = 0; i < 100; i++)
		write_some(&c, m, mc, m + PAGE + 7, md, i);
	ibv_dereg_mr(mc);
	ibv_dereg_mr(md);
	rc_close(&c);
	rc_close(&d);
	return 0;
}

int main(int argc, char **argv)
{
	rc_open(&a);
	rc_open(&b);
	rc_pair(&a, &b, &rc_default);
	for (int odp = 0; odp < 2; odp++) {
		uint8_t *from = rc_map(PAGE), *to = rc_map(PAGE);
		struct ibv_mr *smr = rc_reg(&a, from, PAGE, ALL_ACCESS | (odp ? ODP : 0));
		struct ibv_mr *dmr = rc_reg(&b, to, 1000, ALL_ACCESS | (odp ? ODP : 0));
		int pipes[2], status;

		CHECK(!pipe(pipes), "pipe");
		write_some(&a, from, smr, to, dmr, 1);
		pid_t pid = fork();

		CHECK(pid >= 0, "fork");
		if (!pid)
			exit(child(from, smr, to, dmr, pipes[0]));
		for (uint64_t i = 2; i < 200; i++)
			write_some(&a, from, smr, to, dmr, i);
		CHECK(write(pipes[1], "x", 1) == 1, "write");
		for (uint64_t i = 2; i < 500; i++)
			write_some(&a, from, smr, to, dmr, i);
		CHECK(waitpid(pid, &status, 0) == pid && status == 0,
		      "the child ended with %#x (%s)", status, odp ? "on demand" : "pinned");
		CHECK(to[2000] == 0, "the parent sees what its child wrote");
		write_some(&a, from, smr, to, dmr, 7);
		CHECK(!ibv_dereg_mr(smr) && !ibv_dereg_mr(dmr), "dereg");
	}
	rc_close(&a);
	rc_close(&b);
	return 0;
}
