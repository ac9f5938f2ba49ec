/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What cannot be registered pinned, and why; what can all the same; and, beside it, what on-demand
 * registration says of the same memory. Pages are resident and charged from the registration on.
 */
#include "rc.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rc_side a;

/* err 0: it must work */
static void reg_at(int line, const char *what, void *at, size_t len, int access, int err)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr(a.pd, at, len, access);
	if (!err && !mr)
		rc_fail(__FILE__, line, "%s: %s", what, strerror(errno));
	if (err && (mr || errno != err))
		rc_fail(__FILE__, line, "%s: %s, not %s", what, mr ? "registered" : strerror(errno),
			strerror(err));
	if (mr) {
		CHECK(mr->addr == at && mr->length == len && mr->lkey && mr->lkey == mr->rkey,
		      "%s: fields", what);
		CHECK(!ibv_dereg_mr(mr), "%s: dereg", what);
	}
}
#define reg(...) reg_at(__LINE__, __VA_ARGS__)

static void resident_and_charged(void)
{
	uint8_t *m = rc_map(64 * PAGE);
	unsigned char vec[64];
	long before = rc_pinned_kb();
	struct ibv_mr *mr = rc_reg(&a, m, 64 * PAGE, ALL_ACCESS);

	CHECK(!mincore(m, 64 * PAGE, vec), "mincore");
	for (int i = 0; i < 64; i++)
		CHECK(vec[i] & 1, "page %d is not resident", i);
	CHECK(rc_pinned_kb() - before >= 256, "%ld kB are pinned or locked for 256",
	      rc_pinned_kb() - before);
	CHECK(!ibv_dereg_mr(mr), "dereg");
	CHECK(rc_pinned_kb() - before < 64, "%ld kB stay pinned", rc_pinned_kb() - before);
}

/* An unprivileged child with 64 KiB to lock, in a program of its own. */
static int past_the_limit(void)
{
	struct rlimit limit = {65536, 65536};

	if (setrlimit(RLIMIT_MEMLOCK, &limit) || (!geteuid() && (setgid(65534) || setuid(65534))))
		return SKIP;
	rc_open(&a);
	uint8_t *m = rc_map(1 << 20);

	reg("1 MiB pinned past the limit", m, 1 << 20, ALL_ACCESS, ENOMEM);
	reg("1 MiB on demand", m, 1 << 20, ALL_ACCESS | ODP, 0);
	reg("what the limit allows", m, 16384, ALL_ACCESS, 0);
	/* a refusal charges nothing */
	for (int i = 0; i < 3; i++)
		reg("1 MiB again", m, 1 << 20, ALL_ACCESS, ENOMEM);
	reg("what the limit allows, again", m, 16384, ALL_ACCESS, 0);
	rc_close(&a);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return past_the_limit();
	rc_open(&a);
	uint8_t *m = rc_map(8 * PAGE),
		*ro = rc_map_as(PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	uint8_t *none = rc_map_as(PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	uint8_t *hole = rc_map(3 * PAGE), *gone = rc_map(PAGE);

	munmap(hole + PAGE, PAGE);
	munmap(gone, PAGE);
	reg("plain", m, 8 * PAGE, ALL_ACCESS, 0);
	reg("odd start and length", m + 5, 3 * PAGE + 1, ALL_ACCESS, 0);
	reg("one byte", m + PAGE - 1, 1, ALL_ACCESS, 0);
	reg("no access", m, PAGE, 0, 0);
	reg("relaxed ordering", m, PAGE, ALL_ACCESS | IBV_ACCESS_RELAXED_ORDERING, 0);
	reg("read-only memory, to be written", ro, PAGE, ALL_ACCESS, EFAULT);
	reg("read-only memory, to be read", ro, PAGE, IBV_ACCESS_REMOTE_READ, 0);
	reg("read-only memory on demand", ro, PAGE, ALL_ACCESS | ODP, 0);
	reg("PROT_NONE", none, PAGE, ALL_ACCESS, EFAULT);
	reg("PROT_NONE on demand", none, PAGE, ALL_ACCESS | ODP, 0);
	reg("a hole", hole, 3 * PAGE, ALL_ACCESS, EFAULT);
	reg("a hole on demand", hole, 3 * PAGE, ALL_ACCESS | ODP, 0);
	reg("unmapped", gone, PAGE, ALL_ACCESS, EFAULT);
	reg("unmapped on demand", gone, PAGE, ALL_ACCESS | ODP, 0);
	reg("length 0", m, 0, ALL_ACCESS, EINVAL);
	reg("length 0 on demand", m, 0, ALL_ACCESS | ODP, EINVAL);
	reg("remote write without local", m, PAGE, IBV_ACCESS_REMOTE_WRITE, EINVAL);
	reg("remote atomic without local, on demand", m, PAGE, IBV_ACCESS_REMOTE_ATOMIC | ODP,
	    EINVAL);
	reg("wraps", (void *)-8192l, 16384, ALL_ACCESS, EINVAL);
	reg("wraps on demand", (void *)-8192l, 16384, ALL_ACCESS | ODP, EOVERFLOW);
	CHECK(!ibv_reg_mr_iova(a.pd, m + 8, PAGE, 0x10010, ALL_ACCESS) && errno == EINVAL,
	      "an iova with another offset in its page");
	resident_and_charged();
	rc_close(&a);

	int status;
	pid_t pid = fork();

	if (!pid) {
		execl("/proc/self/exe", argv[0], "--past-the-limit", (char *)NULL);
		_exit(1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "the child ended with %#x",
	      status);
	return WEXITSTATUS(status) == SKIP ? 0 : WEXITSTATUS(status);
}
