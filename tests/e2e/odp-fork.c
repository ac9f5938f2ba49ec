/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fork with regions on demand, explicit and implicit, with a hot range in them, over memory that the device has
 * touched and over memory that it has not, and without MADV_DONTFORK: the child has all data as of the fork, what
 * the network then writes for the parent is not seen in the child, what the child writes, discards or unmaps is not
 * seen by the parent's device, and the parent goes on all the while.
 */
#include <sys/wait.h>
#include <unistd.h>
#include <faultline/odp.h>
#include "rc.h"

#define PAGES 8
#define LEN   (PAGES * PAGE)

static struct rc_side a, b;
static uint8_t *src;
static struct ibv_mr *src_mr;

static void put(uint8_t *at, struct ibv_mr *mr, uint64_t seed)
{
	rc_fill(src, LEN, 0, seed);
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)src, LEN, src_mr->lkey, (uintptr_t)at, mr->rkey), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(rc_differs(at, LEN, 0, seed) == UINT64_MAX, "the parent does not see a WRITE");
}

static void get(const uint8_t *at, struct ibv_mr *mr, uint64_t seed)
{
	memset(src, 0, LEN);
	CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)src, LEN, src_mr->lkey, (uintptr_t)at, mr->rkey), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(rc_differs(src, LEN, 0, seed) == UINT64_MAX, "the device reads other data than the parent has");
}

static void say(int to)
{
	CHECK(write(to, "x", 1) == 1, "write");
}

static void hear(int from)
{
	char byte;

	CHECK(read(from, &byte, 1) == 1, "the other process is gone");
}

static void child(uint8_t *m, int from_parent, int to_parent)
{
	/* the parent's device has written over all of it */
	hear(from_parent);
	CHECK(rc_differs(m, LEN, 0, 1) == UINT64_MAX, "the child's copy is not as of the fork, at %lu",
	      rc_differs(m, LEN, 0, 1));
	rc_fill(m, LEN, 0, 5);
	CHECK(!madvise(m + PAGE, PAGE, MADV_DONTNEED) && !munmap(m + 2 * PAGE, PAGE), "%m");
	say(to_parent);
	hear(from_parent); /* and once more */
	CHECK(rc_differs(m, PAGE, 0, 5) == UINT64_MAX, "what the child wrote has vanished");
	CHECK(!m[PAGE] && rc_differs(m + 3 * PAGE, LEN - 3 * PAGE, 3 * PAGE, 5) == UINT64_MAX,
	      "a WRITE to the parent is seen in the child");
	_exit(0);
}

static void forks(bool implicit, bool hot, bool touched)
{
	int down[2], up[2], status;
	uint8_t *m = rc_map(LEN);
	struct ibv_mr *mr = implicit ? ibv_reg_mr(b.pd, NULL, SIZE_MAX, ALL_ACCESS | ODP)
				     : rc_reg(&b, m, LEN, ALL_ACCESS | ODP);
	pid_t pid;

	if (!mr)
		return; /* a device without implicit regions */
	CHECK(!pipe(down) && !pipe(up), "pipe");
	if (hot)
		CHECK(!faultline_mr_pin(mr, m + PAGE, 3 * PAGE), "pin");
	if (touched)
		put(m, mr, 1);
	else
		rc_fill(m, LEN, 0, 1);
	pid = fork();
	CHECK(pid >= 0, "fork");
	if (!pid) {
		close(down[1]);
		close(up[0]);
		child(m, down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	get(m, mr, 1);
	for (uint64_t seed = 2; seed < 20; seed++)
		put(m, mr, seed);
	say(down[1]);
	hear(up[0]);
	CHECK(rc_differs(m, LEN, 0, 19) == UINT64_MAX, "the parent sees what its child did");
	get(m, mr, 19);
	put(m, mr, 20);
	say(down[1]);
	CHECK(waitpid(pid, &status, 0) == pid && !status, "the child ended with %#x: %s%s, %s", status,
	      implicit ? "implicit" : "explicit", hot ? ", hot range" : "", touched ? "touched" : "untouched");
	get(m, mr, 20);
	CHECK(!ibv_dereg_mr(mr), "dereg");
	munmap(m, LEN);
	close(down[1]);
	close(up[0]);
}

int main(int argc, char **argv)
{
	rc_main(argc, argv);
	rc_open(&a);
	rc_open(&b);
	src = rc_map(LEN);
	src_mr = rc_reg(&a, src, LEN, ALL_ACCESS);
	rc_pair(&a, &b, &rc_default);
	for (int i = 0; i < 8; i++)
		forks(i & 1, i & 2, i & 4);
	CHECK(!ibv_dereg_mr(src_mr), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
