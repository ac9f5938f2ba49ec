/* SPDX-License-Identifier: BSD-2-Clause */
/* Guarded copies at every alignment and against every kind of missing memory; and the application's
 * own handlers, of every kind, installed before and after the guard, see what they would without it. */
#include <setjmp.h>
#include "tests/mm/mmtest.h"

static void copies(void)
{
	static unsigned char src[8192], dst[8192], want[8192];

	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (unsigned char)(i * 7 + (i >> 8));
	for (size_t so = 0; so < 17; so++)
		for (size_t d = 0; d < 17; d++)
			for (size_t n = 0; n < 6000; n += n < 80 ? 1 : n < 600 ? 37 : 971) {
				memset(dst, 0xee, sizeof(dst));
				memset(want, 0xee, sizeof(want));
				memcpy(want + d, src + so, n);
				CHECK(copy_guarded(dst + d, src + so, n) == 0);
				CHECK(!memcmp(dst, want, sizeof(dst)));
			}
}

/* len bytes asked for, `good` of them there: on the side of src or of dst */
static void faults(void)
{
	char *m = anon(4 * P), *other = anon(4 * P);

	mprotect(m + 2 * P, P, PROT_NONE);
	for (size_t i = 0; i < 2 * P; i++)
		m[i] = (char)(i * 13 + 1);
	for (size_t good = 0; good < 1300; good += good < 70 ? 1 : 111)
		for (size_t o = 0; o < 9; o++)
			for (size_t extra = 1; extra < 1500; extra += extra < 9 ? 1 : 400) {
				char *at = m + 2 * P - good;
				size_t left;

				memset(other, 0, 2 * P);
				left = copy_guarded(other + o, at, good + extra);
				/* no byte that cannot be had is claimed; none that could is lost but
				 * those of a word across the edge */
				CHECK(left >= extra && left < extra + 8);
				CHECK(!memcmp(other + o, at, good + extra - left));

				left = copy_guarded(at, other + o, good + extra);
				CHECK(left >= extra && left < extra + 8);
			}
	CHECK(copy_guarded((void *)8, m, 8) == 8);
	CHECK(copy_guarded(m, (void *)0xdead000000000000ull, 100) == 100); /* not canonical */
	CHECK(copy_guarded(m, NULL, 1) == 1);
	char *ro = mmap(NULL, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(copy_guarded(ro, m, 64) == 64);
	CHECK(copy_guarded(m, ro, 64) == 0);
	/* SIGBUS: past the end of a file */
	int fd = memfd_create("t", 0);

	CHECK(!ftruncate(fd, P));
	char *f = mmap(NULL, 2 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(copy_guarded(f + P - 16, m, 32) == 16);
	CHECK(copy_guarded(m, f + P, 32) == 32);
}

/* the same for lengths that are copied by other means */
static void long_faults(void)
{
	static const size_t sizes[] = {2000, 8192, 8200, 20000, 40001, 65536};
	char *m = anon(17 * P), *other = anon(32 * P);

	mprotect(m + 16 * P, P, PROT_NONE);
	for (size_t i = 0; i < 16 * P; i++)
		m[i] = (char)(i * 13 + (i >> 8));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (size_t o = 0; o < 9; o++)
			for (size_t extra = 1; extra < 9000; extra = extra * 7 + 1) {
				char *at = m + 16 * P - sizes[i];
				size_t left = copy_guarded(other + o, at, sizes[i] + extra);

				CHECK(left >= extra && left < extra + 8);
				CHECK(!memcmp(other + o, at, sizes[i] + extra - left));
				left = copy_guarded(at, other + o, sizes[i] + extra);
				CHECK(left >= extra && left < extra + 8);
				CHECK(!memcmp(other + o, at, sizes[i] + extra - left));
			}
	for (size_t n = 8180; n < 40000; n += 1237)
		for (size_t o = 0; o < 64; o += 5) {
			memset(other, 0, 16 * P);
			CHECK(!copy_guarded(other + o, m + 3, n));
			CHECK(!memcmp(other + o, m + 3, n) && !other[o + n]);
			CHECK(!copy_guarded(other + o, m + (o & 7), n));
			CHECK(!memcmp(other + o, m + (o & 7), n) && !other[o + n]);
		}
}

static void atomics(void)
{
	uint64_t v = 41, orig = 0, *none = (uint64_t *)gone(P);

	CHECK(!fetch_add64_guarded(&v, 1, &orig) && orig == 41 && v == 42);
	CHECK(!cmpxchg64_guarded(&v, 42, 7, &orig) && orig == 42 && v == 7);
	CHECK(!cmpxchg64_guarded(&v, 42, 9, &orig) && orig == 7 && v == 7);
	CHECK(fetch_add64_guarded(none, 1, &orig) == -EFAULT);
	CHECK(cmpxchg64_guarded(none, 1, 2, &orig) == -EFAULT);
}

/* ---- the application's handlers ---- */

static volatile char *volatile null_page = (volatile char *)8;
static volatile sig_atomic_t hits, nested;
static sigjmp_buf out;
static void *seen_addr;
static sigset_t seen_mask;
static struct sigaction before_mine;
static bool seen_on_stack;
static stack_t alt;

static void look(void)
{
	char here;

	hits++;
	pthread_sigmask(SIG_BLOCK, NULL, &seen_mask);
	seen_on_stack = alt.ss_sp && &here >= (char *)alt.ss_sp && &here < (char *)alt.ss_sp + alt.ss_size;
}

static void info_handler(int sig, siginfo_t *info, void *ctx)
{
	look();
	seen_addr = info->si_addr;
	siglongjmp(out, sig);
}

static void plain_handler(int sig)
{
	look();
	siglongjmp(out, sig);
}

static void chaining_handler(int sig, siginfo_t *info, void *ctx)
{
	nested++;
	before_mine.sa_sigaction(sig, info, ctx); /* as sanitizers and runtimes do */
}

enum when { BEFORE, AFTER };

static void set(int flags, bool info, void (*h)(int), struct sigaction *old)
{
	struct sigaction sa = {.sa_flags = flags | (info ? SA_SIGINFO : 0)};

	if (info)
		sa.sa_sigaction = info_handler;
	else
		sa.sa_handler = h;
	sigemptyset(&sa.sa_mask);
	sigaddset(&sa.sa_mask, SIGUSR1);
	CHECK(!sigaction(SIGSEGV, &sa, old));
}

/* the guard still guards, and goes in front where the application came later */
static void guard_works(void)
{
	char b[8];
	struct mm_pin *pin;
	char *m = anon(P);

	CHECK(!pin_user_pages((uintptr_t)m, P, true, &pin)); /* looks who is first */
	CHECK(copy_guarded(b, gone(P), 8) == 8);
	unpin_user_pages(pin);
}

static int flags_case(enum when when, int flags, bool info)
{
	char *bad = mmap(NULL, P, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int sig;

	if (flags & SA_ONSTACK || !flags) {
		alt.ss_size = 65536;
		alt.ss_sp = anon(alt.ss_size);
		CHECK(!sigaltstack(&alt, NULL));
	}
	if (when == BEFORE)
		set(flags, info, plain_handler, NULL);
	mm_start("mlock");
	if (when == AFTER)
		set(flags, info, plain_handler, NULL);
	guard_works();
	hits = 0;
	sig = sigsetjmp(out, 1);
	if (!sig) {
		*(volatile char *)bad = 1;
		CHECK(!"reached");
	}
	CHECK(sig == SIGSEGV && hits == 1);
	if (info)
		CHECK(seen_addr == bad);
	CHECK(sigismember(&seen_mask, SIGUSR1));
	CHECK(sigismember(&seen_mask, SIGSEGV) == !(flags & SA_NODEFER));
	CHECK(seen_on_stack == !!(flags & SA_ONSTACK));
	guard_works(); /* also after a jump out of their handler */
	if (flags & (int)SA_RESETHAND) {
		*(volatile char *)bad = 1; /* the default action now: ends this child */
		CHECK(!"reached");
	}
	/* once more, by kill(): not a fault, theirs all the same */
	sig = sigsetjmp(out, 1);
	if (!sig)
		raise(SIGSEGV);
	CHECK(hits == 2);
	return 0;
}

struct flags_arg {
	enum when when;
	int flags;
	bool info;
};

static void flags_child(void *arg)
{
	struct flags_arg *a = arg;

	flags_case(a->when, a->flags, a->info);
}

static void default_child(void *arg)
{
	mm_start("mlock");
	guard_works();
	if (arg)
		raise(SIGSEGV);
	else
		*null_page = 1;
}

static void ignore_child(void *arg)
{
	signal(SIGSEGV, SIG_IGN);
	mm_start("mlock");
	raise(SIGSEGV); /* ignored */
	guard_works();
	if (!arg)
		*null_page = 1; /* a fault is not */
}

static void chain_child(void *arg)
{
	int sig;
	struct sigaction sa = {.sa_sigaction = chaining_handler, .sa_flags = SA_SIGINFO};

	set(0, true, NULL, NULL);	     /* the oldest: info_handler */
	mm_start("mlock");		     /* then the guard */
	CHECK(!sigaction(SIGSEGV, &sa, &before_mine)); /* then one that calls what it found: the guard */
	guard_works();			     /* the guard again */
	for (int i = 1; i <= 3; i++) {
		sig = sigsetjmp(out, 1);
		if (!sig)
			*null_page = 1;
		CHECK(hits == i && nested == i);
	}
	guard_works();
}

static void *blocked_thread(void *arg)
{
	sigset_t all, after;
	char b[8];
	uint64_t v;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	for (int i = 0; i < 3; i++) {
		CHECK(copy_guarded(b, arg, 8) == 8);
		CHECK(fetch_add64_guarded(arg, 1, &v) == -EFAULT);
	}
	pthread_sigmask(SIG_BLOCK, NULL, &after);
	CHECK(sigismember(&after, SIGSEGV) && sigismember(&after, SIGBUS));
	return NULL;
}

static void blocked_child(void *arg)
{
	pthread_t t;

	mm_start("mlock");
	CHECK(!pthread_create(&t, NULL, blocked_thread, gone(P)));
	pthread_join(t, NULL);
}

int main(void)
{
	static const int flags[] = {0, SA_NODEFER, SA_ONSTACK, (int)SA_RESETHAND, SA_RESTART,
				    SA_ONSTACK | SA_NODEFER};

	CHECK(in_child(default_child, NULL) == 128 + SIGSEGV);
	CHECK(in_child(default_child, "raise") == 128 + SIGSEGV);
	CHECK(in_child(ignore_child, "raise only") == 0);
	CHECK(in_child(ignore_child, NULL) == 128 + SIGSEGV);
	CHECK(in_child(chain_child, NULL) == 0);
	CHECK(in_child(blocked_child, NULL) == 0);
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		for (int info = 0; info < 2; info++)
			for (enum when w = BEFORE; w <= AFTER; w++) {
				struct flags_arg a = {w, flags[i], info};
				int want = flags[i] & (int)SA_RESETHAND ? 128 + SIGSEGV : 0;

				if (in_child(flags_child, &a) != want) {
					fprintf(stderr, "flags %#x info %d when %d\n", flags[i], info, w);
					return 1;
				}
			}
	mm_start("auto");
	copies();
	faults();
	long_faults();
	atomics();
	return 0;
}
