/* SPDX-License-Identifier: BSD-2-Clause */
/* Two buffers share a page, of which one is registered, pinned or on demand: a forked child uses both, each
 * process keeps its own, and the parent's device writes for the parent alone. */
#include <sys/wait.h>
#include "tests/umem/umemtest.h"

static char *m;

static void child(int to_parent)
{
	/* as of the fork, and its own from now on */
	CHECK(!strcmp(m + 100, "registered") && !strcmp(m + 2000, "other"));
	strcpy(m + 2000, "child's");
	strcpy(m + 100, "child's too");
	CHECK(write(to_parent, "x", 1) == 1);
	usleep(50000); /* the parent's device writes */
	CHECK(!strcmp(m + 2000, "child's") && !strcmp(m + 100, "child's too"));
	_exit(0);
}

int main(void)
{
	alarm(60);
	umem_start();
	m = anon(P);
	for (int pinned = 0; pinned < 2; pinned++) {
		struct ib_umem *u;
		int p[2], status;
		pid_t pid;
		char b;

		if (pinned)
			CHECK(!ib_umem_get(&dev, (uintptr_t)m + 100, 200, IBV_ACCESS_LOCAL_WRITE, &u));
		else
			u = &odp_get(m + 100, 200)->umem;
		strcpy(m + 2000, "other");
		CHECK(!ib_umem_copy_to(u, KEY, 0, "registered", 11) && !pipe(p));
		pid = fork();
		if (!pid)
			child(p[1]);
		CHECK(pid > 0 && read(p[0], &b, 1) == 1);
		CHECK(!ib_umem_copy_to(u, KEY, 0, "by the device", 14));
		CHECK(waitpid(pid, &status, 0) == pid && !status);
		CHECK(!strcmp(m + 100, "by the device") && !strcmp(m + 2000, "other"));
		ib_umem_release(u);
	}
	return 0;
}
