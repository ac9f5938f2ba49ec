/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The signal guard: copies that survive whatever the application did to the memory.
 *
 * The device accesses application memory by virtual address from the application's own threads and
 * from ours. A page may have gone since it was looked at (munmap, mprotect, truncate), and then the
 * access raises SIGSEGV or SIGBUS. The guard's handler looks at one thing: is the instruction that
 * faulted in one of the few routines listed in its exception table? Then execution goes on at that
 * range's fixup, which returns "so many bytes not copied". Every other signal is the application's,
 * and is handed on as the kernel would have delivered it: mask, SA_NODEFER, SA_RESETHAND, one or three
 * arguments, SIG_DFL, SIG_IGN. This is what a kernel does for copy_from_user(), and it costs nothing
 * while nothing faults.
 *
 * Being first: with the preload library, the application's handlers never reach the kernel
 * (preload/preload.h). Without it, they are found at the next registration (guard_recheck) and the
 * guard goes in front again. A handler that was put over ours may call ours in turn, for it got ours
 * as its old action: so what we found is a list, and a nested entry moves to the older one.
 */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include "mm/mm_internal.h"
#include "preload/preload.h"
#include "util/lock.h"
#include "util/log.h"

#if defined(__x86_64__) && !defined(FL_GUARD_PORTABLE)
#define GUARD_ASM 1
#endif

#define MAX_CHAIN 8

/* what the application had for one signal; index 0 is the oldest */
struct chain {
	struct sigaction act[MAX_CHAIN];
	int n; /* atomic; entries below it do not change but for SA_RESETHAND */
};

static struct chain chains[2]; /* SIGSEGV, SIGBUS */
static struct fl_mutex guard_lock = FL_MUTEX_INIT(LOCK_LEAF);
static bool installed;
static const struct faultline_preload_ops *preload;

/*
 * The application's handler that runs now in this thread, for the case that it calls us. It may also
 * have jumped out, and the next signal's context lie at the same place of the signal stack: but then
 * our frame does as well, while a call comes from deeper.
 */
static MM_THREAD void *chained_ctx, *chained_frame;
static MM_THREAD int chained_at;

/* Does this thread take SIGSEGV and SIGBUS? A blocked one that comes from a fault kills the process. */
enum mask_state { MASK_UNKNOWN, MASK_OPEN, MASK_BLOCKED };
static MM_THREAD enum mask_state mask_state;

static struct chain *chain_of(int sig)
{
	return &chains[sig == SIGBUS];
}

#ifdef GUARD_ASM

size_t guard_copy_sse(void *dst, const void *src, size_t len);
size_t guard_copy_avx(void *dst, const void *src, size_t len);
int guard_cmpxchg64(uint64_t *p, uint64_t compare, uint64_t swap, uint64_t *orig);
int guard_fetch_add64(uint64_t *p, uint64_t add, uint64_t *orig);

#define LABELS(f)                                                                                  \
	extern const char f##_begin[], f##_end[], f##_fault[], f##_middle_begin[],                 \
		f##_middle_end[], f##_middle_fault[], f##_four_begin[], f##_four_end[],            \
		f##_words_one[], f##_string_begin[], f##_string_end[], f##_string_fault[];
#define RANGES(f)                                                                                  \
	{f##_four_begin, f##_four_end, f##_words_one},                                             \
		{f##_middle_begin, f##_middle_end, f##_middle_fault},                              \
		{f##_string_begin, f##_string_end, f##_string_fault}, {f##_begin, f##_end, f##_fault}
LABELS(guard_copy_sse)
LABELS(guard_copy_avx)
extern const char guard_cmpxchg64_begin[], guard_cmpxchg64_end[], guard_fetch_add64_begin[],
	guard_fetch_add64_end[], guard_atomic_fault[];

/* the first that matches counts: the loop of four words lies within the rest */
static const struct {
	const char *begin, *end, *fixup;
} exception_table[] = {
	RANGES(guard_copy_sse),
	RANGES(guard_copy_avx),
	{guard_cmpxchg64_begin, guard_cmpxchg64_end, guard_atomic_fault},
	{guard_fetch_add64_begin, guard_fetch_add64_end, guard_atomic_fault},
};

static bool use_avx;

static bool fixup(const siginfo_t *info, ucontext_t *uc)
{
	const char *ip = (const char *)uc->uc_mcontext.gregs[REG_RIP];

	for (size_t i = 0; i < sizeof(exception_table) / sizeof(exception_table[0]); i++) {
		if (ip >= exception_table[i].begin && ip < exception_table[i].end) {
			/* a kill() that hit us inside is not a fault of the copy's */
			if (info->si_code <= 0)
				return false;
			uc->uc_mcontext.gregs[REG_RIP] = (greg_t)exception_table[i].fixup;
			return true;
		}
	}
	return false;
}

static inline size_t copy_words(void *dst, const void *src, size_t len)
{
	return use_avx ? guard_copy_avx(dst, src, len) : guard_copy_sse(dst, src, len);
}

#else /* any CPU: a jump out of the handler instead of an exception table */

static MM_THREAD sigjmp_buf *recover;

static bool fixup(const siginfo_t *info, ucontext_t *uc)
{
	sigjmp_buf *to = recover;

	if (!to || info->si_code <= 0)
		return false;
	recover = NULL;
	/* the guard runs with SA_NODEFER and an empty mask: there is no mask to put back */
	siglongjmp(*to, 1);
}

#define STEP(type)                                                                                 \
	do {                                                                                       \
		__atomic_store_n((type *)d, __atomic_load_n((const type *)s, __ATOMIC_RELAXED),    \
				 __ATOMIC_RELAXED);                                                \
		d += sizeof(type);                                                                 \
		s += sizeof(type);                                                                 \
		*left -= sizeof(type);                                                             \
	} while (0)

/* *left: to the step, also when it does not return */
static __attribute__((noinline)) void copy_steps(char *d, const char *s, volatile size_t *left)
{
	while (*left && (uintptr_t)d & 7) {
		if (*left == 1)
			__atomic_thread_fence(__ATOMIC_RELEASE);
		STEP(uint8_t);
	}
	while (*left >= 8) {
		uint64_t v;

		if (*left == 8)
			__atomic_thread_fence(__ATOMIC_RELEASE); /* the last bytes last */
		if (!((uintptr_t)s & 7))
			v = __atomic_load_n((const uint64_t *)s, __ATOMIC_RELAXED);
		else
			memcpy(&v, s, 8); /* src is private, or the alignments would agree */
		__atomic_store_n((uint64_t *)d, v, __ATOMIC_RELAXED);
		d += 8;
		s += 8;
		*left -= 8;
	}
	while (*left) {
		if (*left == 1)
			__atomic_thread_fence(__ATOMIC_RELEASE);
		STEP(uint8_t);
	}
}

static size_t copy_words(void *dst, const void *src, size_t len)
{
	volatile size_t left = len;
	sigjmp_buf here;

	if (!sigsetjmp(here, 0)) {
		recover = &here;
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		copy_steps(dst, src, &left);
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		recover = NULL;
	}
	return left;
}

static int guard_cmpxchg64(uint64_t *p, uint64_t compare, uint64_t swap, uint64_t *orig)
{
	sigjmp_buf here;

	if (sigsetjmp(here, 0))
		return -EFAULT;
	recover = &here;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(p, &compare, swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	recover = NULL;
	*orig = compare;
	return 0;
}

static int guard_fetch_add64(uint64_t *p, uint64_t add, uint64_t *orig)
{
	sigjmp_buf here;

	if (sigsetjmp(here, 0))
		return -EFAULT;
	recover = &here;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	*orig = __atomic_fetch_add(p, add, __ATOMIC_SEQ_CST);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	recover = NULL;
	return 0;
}

#endif

/* ---- the application's part ---- */

static void kernel_default(int sig)
{
	/* Not sigaction(): the preload library's would only change the shadow. What the kernel calls
	 * its struct sigaction is all zero for SIG_DFL, whatever the CPU. */
	static const unsigned long dfl[8];

	syscall(SYS_rt_sigaction, sig, dfl, NULL, 8);
}

/* Delivers sig with the action `act`, as the kernel would. */
static void deliver(int sig, siginfo_t *info, void *ctx, const struct sigaction *act)
{
	bool fault = info->si_code > 0; /* by an instruction, not by kill() */
	sigset_t mask;

	if (!(act->sa_flags & SA_SIGINFO) && act->sa_handler == SIG_IGN && !fault)
		return;
	if (!(act->sa_flags & SA_SIGINFO) &&
	    (act->sa_handler == SIG_DFL || act->sa_handler == SIG_IGN)) {
		/* A fault happens again when we return, and then ends the process with the right
		 * address in its core. A fault cannot be ignored. */
		kernel_default(sig);
		if (!fault)
			syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), sig);
		return;
	}
	mask = act->sa_mask;
	if (!(act->sa_flags & SA_NODEFER))
		sigaddset(&mask, sig);
	/* on top of what was blocked; our return restores it from the context */
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
	if (act->sa_flags & SA_SIGINFO)
		act->sa_sigaction(sig, info, ctx);
	else
		act->sa_handler(sig);
}

static void guard_handler(int sig, siginfo_t *info, void *ctx)
{
	int saved = errno;
	struct sigaction act;

	if (fixup(info, ctx)) {
		errno = saved;
		return;
	}
	if (preload) {
		preload->guard_take_action(sig, &act);
		errno = saved;
		deliver(sig, info, ctx, &act);
		return;
	}

	struct chain *c = chain_of(sig);
	int outer_at = chained_at, at = __atomic_load_n(&c->n, __ATOMIC_ACQUIRE) - 1;
	void *outer_ctx = chained_ctx, *outer_frame = chained_frame;
	void *frame = __builtin_frame_address(0);

	if (chained_ctx == ctx && chained_frame != frame && chained_at > 0)
		at = chained_at - 1; /* a handler over ours calls what it found */
	act = c->act[at];
	if (act.sa_flags & (int)SA_RESETHAND) {
		c->act[at].sa_handler = SIG_DFL;
		c->act[at].sa_flags = 0;
	}
	chained_ctx = ctx;
	chained_frame = frame;
	chained_at = at;
	errno = saved;
	deliver(sig, info, ctx, &act);
	chained_ctx = outer_ctx;
	chained_frame = outer_frame;
	chained_at = outer_at;
}

static bool is_ours(const struct sigaction *act)
{
	return act->sa_flags & SA_SIGINFO && act->sa_sigaction == guard_handler;
}

/* Puts the guard before `theirs`. guard_lock held. */
static int install(int sig, const struct sigaction *theirs)
{
	struct sigaction ours = {.sa_sigaction = guard_handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
	struct chain *c = chain_of(sig);
	int n = c->n;

	sigemptyset(&ours.sa_mask);
	/* the stack and the restart of system calls are the kernel's doing: as the application wants */
	if (!(theirs->sa_flags & SA_SIGINFO) &&
	    (theirs->sa_handler == SIG_DFL || theirs->sa_handler == SIG_IGN))
		ours.sa_flags |= SA_ONSTACK;
	else
		ours.sa_flags |= theirs->sa_flags & (SA_ONSTACK | SA_RESTART);
	/* one that was there before is moved to, not listed twice */
	if (n && !memcmp(&c->act[n - 1], theirs, sizeof(*theirs)))
		n--;
	if (n == MAX_CHAIN) {
		memmove(&c->act[1], &c->act[2], (MAX_CHAIN - 2) * sizeof(c->act[0]));
		n--;
	}
	c->act[n] = *theirs;
	__atomic_store_n(&c->n, n + 1, __ATOMIC_RELEASE); /* pairs with guard_handler */
	return sigaction(sig, &ours, NULL) ? -errno : 0;
}

void guard_recheck(void)
{
	static const int sigs[] = {SIGSEGV, SIGBUS};

	/* what the thread has blocked may have changed as well: look again before its next copy */
	mask_state = MASK_UNKNOWN;
	if (preload)
		return;
	for (int i = 0; i < 2; i++) {
		struct sigaction cur;

		if (sigaction(sigs[i], NULL, &cur) || is_ours(&cur))
			continue;
		fl_lock(&guard_lock);
		if (!sigaction(sigs[i], NULL, &cur) && !is_ours(&cur))
			install(sigs[i], &cur);
		fl_unlock(&guard_lock);
	}
}

int guard_init(void)
{
	static const int sigs[] = {SIGSEGV, SIGBUS};
	const struct faultline_preload_ops *ops = dlsym(RTLD_DEFAULT, "faultline_preload_ops");
	int ret = 0;

#ifdef GUARD_ASM
	use_avx = __builtin_cpu_supports("avx2");
#endif
	fl_lock(&guard_lock);
	if (!installed && ops && ops->version >= FAULTLINE_PRELOAD_VERSION) {
		struct sigaction ours = {.sa_sigaction = guard_handler,
					 .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
		struct sigaction old;

		sigemptyset(&ours.sa_mask);
		preload = ops;
		for (int i = 0; i < 2 && !ret; i++)
			ret = ops->guard_install(sigs[i], &ours, &old);
		if (ret)
			preload = NULL;
	}
	if (!installed && !preload) {
		for (int i = 0; i < 2; i++) {
			struct sigaction cur;

			ret = sigaction(sigs[i], NULL, &cur) ? -errno : install(sigs[i], &cur);
			if (ret)
				break;
		}
	}
	installed = !ret;
	fl_unlock(&guard_lock);
	guard_recheck();
	return ret;
}

/* ---- the door ---- */

/*
 * A copy whose sides differ in alignment modulo 8 cannot load and store aligned words at once: it
 * goes through a private buffer, read up to src's word boundaries and written up to dst's. What lies
 * between the two, less than a word, waits in the buffer for the next round.
 */
#define ROUND_BYTES 1024

static size_t copy_shifted(char *dst, const char *src, size_t len)
{
	char buf[ROUND_BYTES + 32] __attribute__((aligned(64)));
	size_t to_read = len, have = 0;
	char *out = buf;

	if (len <= ROUND_BYTES) {
		out += (uintptr_t)src & 7;
		have = len - copy_words(out, src, len);
		return len - have + copy_words(dst, out, have);
	}
	while (len) {
		size_t n = to_read, get, put, bad;
		char *in;

		if (n > ROUND_BYTES)
			n = ROUND_BYTES - ((uintptr_t)(src + ROUND_BYTES) & 7);
		in = buf + 8 + ((uintptr_t)src & 7);
		memmove(in - have, out, have);
		out = in - have;
		get = n - copy_words(in, src, n);
		to_read -= get;
		src += get;
		have += get;
		put = have;
		if (have < len && get == n)
			put -= (uintptr_t)(dst + have) & 7;
		bad = copy_words(dst, out, put);
		put -= bad;
		len -= put;
		dst += put;
		out += put;
		have -= put;
		if (get < n || bad)
			break;
	}
	return len;
}

static size_t copy_open(void *dst, const void *src, size_t len)
{
	if ((((uintptr_t)dst ^ (uintptr_t)src) & 7) == 0 || len < 8)
		return copy_words(dst, src, len);
	return copy_shifted(dst, src, len);
}

static void guard_mask(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGSEGV);
	sigaddset(set, SIGBUS);
}

/* true: the signals were blocked and *old is to be put back */
static __attribute__((noinline)) bool open_mask(sigset_t *old)
{
	sigset_t set;

	pthread_sigmask(SIG_BLOCK, NULL, old);
	if (!sigismember(old, SIGSEGV) && !sigismember(old, SIGBUS)) {
		mask_state = MASK_OPEN;
		return false;
	}
	mask_state = MASK_BLOCKED;
	guard_mask(&set);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	return true;
}

#define GUARDED(type, call)                                                                        \
	({                                                                                         \
		type ret_;                                                                         \
		sigset_t old_;                                                                     \
		if (__builtin_expect(mask_state == MASK_OPEN, 1)) {                                \
			ret_ = call;                                                               \
		} else {                                                                           \
			bool blocked_ = open_mask(&old_);                                          \
			ret_ = call;                                                               \
			if (blocked_)                                                              \
				pthread_sigmask(SIG_SETMASK, &old_, NULL);                         \
		}                                                                                  \
		ret_;                                                                              \
	})

size_t copy_guarded(void *dst, const void *src, size_t len)
{
	return GUARDED(size_t, copy_open(dst, src, len));
}

int cmpxchg64_guarded(uint64_t *p, uint64_t compare, uint64_t swap, uint64_t *orig)
{
	return GUARDED(int, guard_cmpxchg64(p, compare, swap, orig));
}

int fetch_add64_guarded(uint64_t *p, uint64_t add, uint64_t *orig)
{
	return GUARDED(int, guard_fetch_add64(p, add, orig));
}
