/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Under `faultline run`, with the library's guard in place: a handler of SIGSEGV that the application
 * installs afterwards gets the application's own faults, and without one it dies of them.
 */
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "line %d: %s\n", __LINE__, #cond);                         \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static sigjmp_buf back;
static volatile int got;
static volatile void *where;
static char *nowhere; /* mapped without rights */

static void on_fault(int sig, siginfo_t *info, void *context)
{
	got++;
	where = info->si_addr;
	siglongjmp(back, 1);
}

/* after an open and a registration on demand the guard is in place */
static void open_and_register(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	static char buf[4096];

	CHECK(list && list[0]);
	ctx = ibv_open_device(list[0]);
	CHECK(ctx);
	pd = ibv_alloc_pd(ctx);
	CHECK(pd && ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
}

int main(void)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, now;
	int status;
	pid_t pid;

	nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(nowhere != MAP_FAILED);
	open_and_register();

	CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
	CHECK(sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_sigaction == on_fault);
	for (int i = 0; i < 3; i++)
		if (!sigsetjmp(back, 1))
			*(volatile char *)(nowhere + 17) = 1;
	CHECK(got == 3);
	CHECK(where == nowhere + 17);

	pid = fork();
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		*(volatile char *)nowhere = 1;
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	return 0;
}
