/* SPDX-License-Identifier: BSD-2-Clause */
/* Pins: what is refused and with which error, by either way of pinning; the limit; nesting. */
#include <sys/resource.h>
#include "tests/mm/mmtest.h"

static int try_pin(char *at, size_t n, bool write, const char **how)
{
	struct mm_pin *pin;
	int err = pin_user_pages((uintptr_t)at, n, write, &pin);

	if (!err) {
		if (how)
			*how = pin_how(pin);
		unpin_user_pages(pin);
	}
	return err;
}

static long locked_kb(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[128];
	long kb = -1;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmLck: %ld", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb;
}

static void refusals(void *how)
{
	char *m = anon(8 * P), *ro, *none, *f;
	const char *by = "";
	int fd;

	mm_start(how);
	CHECK(try_pin(m, 8 * P, true, &by) == 0);
	if (!strcmp(how, "mlock"))
		CHECK(!strcmp(by, "mlock"));
	CHECK(try_pin(m + 5, 100, true, NULL) == 0);
	CHECK(try_pin(m, 0, true, NULL) == -EFAULT);
	munmap(m + 3 * P, P);
	CHECK(try_pin(m, 8 * P, true, NULL) == -EFAULT);
	CHECK(try_pin(m, 8 * P, false, NULL) == -EFAULT);
	CHECK(try_pin(m + 3 * P, P, false, NULL) == -EFAULT);
	CHECK(try_pin(m, 3 * P, true, NULL) == 0);
	ro = mmap(NULL, 2 * P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(try_pin(ro, P, true, NULL) == -EFAULT);
	CHECK(try_pin(ro, P, false, &by) == 0 && !strcmp(by, "mlock"));
	none = mmap(NULL, P, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(try_pin(none, P, true, NULL) == -EFAULT);
	CHECK(try_pin(none, P, false, NULL) == -EFAULT);
	fd = memfd_create("t", 0);
	CHECK(!ftruncate(fd, 2 * P));
	f = mmap(NULL, 4 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(try_pin(f, 2 * P, true, NULL) == 0);
	CHECK(try_pin(f, 3 * P, true, NULL) == -EFAULT); /* past the end */
	CHECK(try_pin(f, 3 * P, false, NULL) == -EFAULT);
	f = mmap(NULL, P, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(try_pin(f, P, true, NULL) == -EFAULT);
	CHECK(try_pin(f, P, false, NULL) == 0);
	CHECK(locked_kb() == 0);
}

/* two pins of one page: it stays locked until the last goes */
static void nesting(void *arg)
{
	char *m = anon(8 * P);
	struct mm_pin *a, *b, *c;

	mm_start("mlock");
	CHECK(!pin_user_pages((uintptr_t)m, 4 * P, true, &a));
	CHECK(!pin_user_pages((uintptr_t)m + 2 * P, 4 * P, false, &b));
	CHECK(!pin_user_pages((uintptr_t)m + 3 * P, 1, true, &c));
	CHECK(locked_kb() == 24);
	unpin_user_pages(a);
	CHECK(locked_kb() == 16);
	unpin_user_pages(b);
	CHECK(locked_kb() == 4);
	unpin_user_pages(c);
	CHECK(locked_kb() == 0);
}

/* madvise works on a pinned range, and the device's way to the old page is another's test */
static void discard(void *arg)
{
	char *m = anon(P);
	struct mm_pin *pin;

	mm_start("auto");
	m[0] = 1;
	CHECK(!pin_user_pages((uintptr_t)m, P, true, &pin));
	if (!strcmp(pin_how(pin), "io_uring")) {
		CHECK(!madvise(m, P, MADV_DONTNEED));
		CHECK(m[0] == 0);
	}
	munmap(m, P);
	unpin_user_pages(pin);
}

/* more buffers than one takes, and more pins than one ring */
static void many(void *arg)
{
	enum { N = 17000 };
	static struct mm_pin *pin[N];
	size_t big = (1ul << 30) + 3 * P;
	char *m = anon(P), *two = mmap(NULL, big, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	mm_start("auto");
	for (int i = 0; i < N; i++)
		CHECK(!pin_user_pages((uintptr_t)m, P, true, &pin[i]));
	for (int i = 0; i < N; i++)
		unpin_user_pages(pin[i]);
	/* to read a gigabyte of zero pages: whatever way, and all of it given back */
	CHECK(try_pin(two, big, false, NULL) == 0);
	CHECK(locked_kb() == 0);
}

static void limit(void *how)
{
	struct rlimit rl = {65536, 65536};
	char *m = anon(1 << 20);
	struct mm_pin *pin[16];

	CHECK(!setrlimit(RLIMIT_MEMLOCK, &rl));
	CHECK(geteuid() || !setuid(65534));
	mm_start(how);
	CHECK(try_pin(m, 1 << 20, true, NULL) == -ENOMEM);
	for (int i = 0; i < 16; i++) /* what fits, fits: per process, and pages count once a pin */
		CHECK(!pin_user_pages((uintptr_t)m + (uintptr_t)i * P, P, true, &pin[i]));
	CHECK(try_pin(m, P, true, NULL) == -ENOMEM);
	unpin_user_pages(pin[3]);
	CHECK(try_pin(m, P, true, NULL) == 0);
}

static void forked(void *arg)
{
	struct mm_pin **pin = arg;

	mm_fork_child();
	unpin_user_pages(*pin); /* the parent's: nothing happens but that it is freed */
	mm_start("auto");
	CHECK(try_pin(anon(P), P, true, NULL) == 0);
}

int main(void)
{
	char *m = anon(P);
	struct mm_pin *pin;
	const char *how;
	struct rlimit rl;

	CHECK(in_child(refusals, "mlock") == 0);
	CHECK(in_child(refusals, "auto") == 0);
	CHECK(in_child(nesting, NULL) == 0);
	CHECK(in_child(discard, NULL) == 0);
	/* pins 68 MB and a gigabyte */
	if (!geteuid() || (!getrlimit(RLIMIT_MEMLOCK, &rl) && rl.rlim_cur > (2ul << 30)))
		CHECK(in_child(many, NULL) == 0);
	else
		fprintf(stderr, "many pins: left out, they need root or `ulimit -l` above 2 GiB\n");
	CHECK(in_child(limit, "auto") == 0);
	CHECK(in_child(limit, "mlock") == 0);
	mm_start("auto");
	CHECK(!pin_user_pages((uintptr_t)m, P, true, &pin));
	CHECK(in_child(forked, &pin) == 0);
	unpin_user_pages(pin);
	CHECK(try_pin(m, P, true, &how) == 0);
	fprintf(stderr, "pinned by %s\n", how);
	return 0;
}
