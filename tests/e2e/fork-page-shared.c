/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two buffers share a page, of which one is registered, pinned or on demand, by a program that has called
 * ibv_fork_init(). A forked child uses both: neither faults (the page is not withheld from it), what it writes stays,
 * and what the network then writes for the parent the parent alone sees.
 */
#include <sys/wait.h>
#include <unistd.h>
#include "rc.h"

#define REGISTERED 100u /* where they are in the page */
#define OTHER	   2000u
#define LEN	   200u

static struct rc_side a, b;
static uint8_t *src;
static struct ibv_mr *src_mr;

static void say(int to)
{
	CHECK(write(to, "x", 1) == 1, "write");
}

static void hear(int from)
{
	char byte;

	CHECK(read(from, &byte, 1) == 1, "the other process is gone");
}

static void has(const uint8_t *page, const char *whose, uint64_t registered, uint64_t other)
{
	CHECK(rc_differs(page + REGISTERED, LEN, 0, registered) == UINT64_MAX, "%s: the registered buffer", whose);
	CHECK(rc_differs(page + OTHER, LEN, 0, other) == UINT64_MAX, "%s: the buffer beside it", whose);
}

static void put(uint8_t *page, struct ibv_mr *mr, uint64_t seed)
{
	rc_fill(src, LEN, 0, seed);
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)src, LEN, src_mr->lkey, (uintptr_t)page + REGISTERED, mr->rkey),
	      "post");
	rc_expect(&a, IBV_WC_SUCCESS);
}

static void child(uint8_t *page, int from_parent, int to_parent)
{
	has(page, "child, as of the fork", 1, 2);
	rc_fill(page + OTHER, LEN, 0, 3);
	say(to_parent);
	hear(from_parent); /* the parent's device has written */
	has(page, "child, when the parent's device has written", 1, 3);
	rc_fill(page + REGISTERED, LEN, 0, 4);
	say(to_parent);
	hear(from_parent); /* and once more */
	has(page, "child, in the end", 4, 3);
	_exit(0);
}

static void forks(int access)
{
	uint8_t *page = rc_map(PAGE);
	struct ibv_mr *mr = rc_reg(&b, page + REGISTERED, LEN, ALL_ACCESS | access);
	int down[2], up[2], status;
	pid_t pid;

	CHECK(!pipe(down) && !pipe(up), "pipe");
	put(page, mr, 1);
	rc_fill(page + OTHER, LEN, 0, 2);
	pid = fork();
	CHECK(pid >= 0, "fork");
	if (!pid) {
		close(down[1]);
		close(up[0]);
		child(page, down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	hear(up[0]);
	put(page, mr, 5);
	has(page, "parent", 5, 2);
	say(down[1]);
	hear(up[0]);
	has(page, "parent, when the child has written", 5, 2);
	put(page, mr, 6);
	has(page, "parent, in the end", 6, 2);
	say(down[1]);
	CHECK(waitpid(pid, &status, 0) == pid && !status, "the child ended with %#x", status);
	CHECK(!ibv_dereg_mr(mr), "dereg");
	munmap(page, PAGE);
	close(down[1]);
	close(up[0]);
}

int main(int argc, char **argv)
{
	CHECK(!ibv_fork_init(), "ibv_fork_init");
	rc_main(argc, argv);
	rc_open(&a);
	rc_open(&b);
	src = rc_map(PAGE);
	src_mr = rc_reg(&a, src, PAGE, ALL_ACCESS);
	rc_pair(&a, &b, &rc_default);
	forks(0);
	forks(ODP);
	CHECK(!ibv_dereg_mr(src_mr), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
