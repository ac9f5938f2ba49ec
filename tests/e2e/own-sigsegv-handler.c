/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An application's own SIGSEGV and SIGBUS handlers, set before or after the device was opened, get
 * the application's faults with the right address and can go on from them; the device's accesses to
 * memory that is gone meanwhile are errors of a request and reach no handler of the application.
 */
#include "rc.h"

#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile sig_atomic_t caught;
static void *volatile where;
static struct rc_side a, b;

static void handler(int sig, siginfo_t *info, void *context)
{
	caught++;
	where = info->si_addr;
	siglongjmp(back, sig);
}

static void set_handlers(void)
{
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};

	CHECK(!sigaction(SIGSEGV, &sa, NULL) && !sigaction(SIGBUS, &sa, NULL), "sigaction");
}

static void application_faults(volatile uint8_t *at, int sig)
{
	int before = caught, got = sigsetjmp(back, 1);

	if (!got) {
		*at = 1;
		FAIL("a write to nowhere did not fault");
	}
	CHECK(got == sig && caught == before + 1 && where == at, "signal %d at %p, not %d at %p",
	      got, where, sig, (void *)at);
}

int main(int argc, char **argv)
{
	bool before = argc > 1;

	if (before)
		set_handlers();
	rc_open(&a);
	rc_open(&b);
	if (!before)
		set_handlers();
	rc_pair(&a, &b, &rc_default);
	uint8_t *m = rc_map(4 * PAGE);
	struct ibv_mr *ma = rc_reg(&a, m, PAGE, ALL_ACCESS),
		      *mb = rc_reg(&b, m + PAGE, 3 * PAGE, ALL_ACCESS | ODP);
	int fd = memfd_create("e2e", MFD_CLOEXEC);

	CHECK(fd >= 0 && !ftruncate(fd, PAGE), "memfd");
	uint8_t *file = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	munmap(m + 3 * PAGE, PAGE);
	for (int i = 0; i < 3; i++) {
		application_faults(m + 3 * PAGE + 5, SIGSEGV);
		application_faults(file + PAGE + 9, SIGBUS);
		rc_pair(&a, &b, &rc_default);
		int handled = caught;

		rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m, 100, ma->lkey, (uintptr_t)m + PAGE,
			mb->rkey);
		rc_expect(&a, IBV_WC_SUCCESS);
		rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m, 100, ma->lkey, (uintptr_t)m + 3 * PAGE,
			mb->rkey);
		rc_expect(&a, IBV_WC_REM_ACCESS_ERR);
		CHECK(caught == handled, "the device's fault reached the application's handler");
	}
	CHECK(!ibv_dereg_mr(ma) && !ibv_dereg_mr(mb), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
