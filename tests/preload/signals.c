/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The guard stays in the kernel whatever the application installs, and the application sees only
 * its own actions. Linked with the preload library rather than preloaded: its calls come before
 * libc's all the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "preload/preload.h"

/* programs still call them */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* as rt_sigaction() has it */
struct kernel_action {
	void (*handler)(int, siginfo_t *, void *);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

static const struct faultline_preload_ops *ops;

static struct kernel_action in_kernel(int sig)
{
	struct kernel_action k;

	assert_int_equal(syscall(SYS_rt_sigaction, sig, NULL, &k, sizeof(k.mask)), 0);
	return k;
}

static void guard(int sig, siginfo_t *info, void *context)
{
}

static void app_a(int sig)
{
}

static void app_b(int sig)
{
}

static void app_info(int sig, siginfo_t *info, void *context)
{
}

static sighandler_t handler_of(int sig)
{
	struct sigaction sa;

	assert_int_equal(sigaction(sig, NULL, &sa), 0);
	return sa.sa_handler;
}

/* in each test, not as its set-up: cmocka installs handlers of its own in between */
static void install(void)
{
	struct sigaction ours = {.sa_sigaction = guard, .sa_flags = SA_SIGINFO}, old;

	signal(SIGBUS, app_a);
	assert_int_equal(ops->guard_install(SIGBUS, &ours, &old), 0);
}

static void test_found(void **state)
{
	assert_int_equal(ops->version, FAULTLINE_PRELOAD_VERSION);
	assert_int_equal(ops->size, sizeof(*ops));
}

static void test_install(void **state)
{
	struct sigaction ours = {.sa_sigaction = guard, .sa_flags = SA_SIGINFO}, old;

	assert_ptr_not_equal(signal(SIGBUS, app_a), SIG_ERR);
	assert_int_equal(ops->guard_install(SIGBUS, &ours, &old), 0);
	assert_ptr_equal(old.sa_handler, app_a);
	assert_ptr_equal(handler_of(SIGBUS), app_a);
	assert_ptr_equal(in_kernel(SIGBUS).handler, guard);

	/* once more, by another copy of the library: the application's action is still the
	 * application's */
	ours.sa_flags |= SA_NODEFER;
	assert_int_equal(ops->guard_install(SIGBUS, &ours, &old), 0);
	assert_ptr_equal(old.sa_handler, app_a);
	assert_true(in_kernel(SIGBUS).flags & SA_NODEFER);

	assert_int_equal(ops->guard_install(0, &ours, &old), -EINVAL);
	assert_int_equal(ops->guard_install(65, &ours, &old), -EINVAL);
	assert_int_equal(ops->guard_install(SIGKILL, &ours, &old), -EINVAL);
}

static void test_application_changes_it(void **state)
{
	struct sigaction sa = {.sa_sigaction = app_info, .sa_flags = SA_SIGINFO | SA_NODEFER}, old,
			 now;

	install();
	sigemptyset(&sa.sa_mask);
	sigaddset(&sa.sa_mask, SIGUSR2);
	assert_int_equal(sigaction(SIGBUS, &sa, &old), 0);
	assert_ptr_equal(old.sa_handler, app_a);
	assert_ptr_equal(in_kernel(SIGBUS).handler, guard);
	ops->guard_take_action(SIGBUS, &now);
	assert_ptr_equal(now.sa_sigaction, app_info);
	assert_int_equal(now.sa_flags & (SA_SIGINFO | SA_NODEFER), SA_SIGINFO | SA_NODEFER);
	assert_true(sigismember(&now.sa_mask, SIGUSR2));
	assert_ptr_equal((void *)signal(SIGBUS, SIG_DFL), (void *)app_info);
	assert_ptr_equal(signal(SIGBUS, app_b), SIG_DFL);
	assert_ptr_equal(in_kernel(SIGBUS).handler, guard);
}

static void test_flags_follow(void **state)
{
	struct sigaction sa = {.sa_handler = app_a};

	install();
	assert_int_equal(sigaction(SIGBUS, &sa, NULL), 0);
	assert_false(in_kernel(SIGBUS).flags & (SA_ONSTACK | SA_RESTART));
	sa.sa_flags = SA_ONSTACK;
	assert_int_equal(sigaction(SIGBUS, &sa, NULL), 0);
	assert_int_equal(in_kernel(SIGBUS).flags & (SA_ONSTACK | SA_RESTART), SA_ONSTACK);
	sa.sa_flags = SA_RESTART;
	assert_int_equal(sigaction(SIGBUS, &sa, NULL), 0);
	assert_int_equal(in_kernel(SIGBUS).flags & (SA_ONSTACK | SA_RESTART), SA_RESTART);
	assert_int_equal(siginterrupt(SIGBUS, 1), 0);
	assert_false(in_kernel(SIGBUS).flags & SA_RESTART);
	signal(SIGBUS, app_b);
	assert_false(in_kernel(SIGBUS).flags & SA_RESTART);
	assert_int_equal(siginterrupt(SIGBUS, 0), 0);
	assert_true(in_kernel(SIGBUS).flags & SA_RESTART);
	/* no handler: the guard may run anywhere, and nothing the application waits for is to end
	 */
	signal(SIGBUS, SIG_IGN);
	assert_int_equal(in_kernel(SIGBUS).flags & (SA_ONSTACK | SA_RESTART),
			 SA_ONSTACK | SA_RESTART);
}

static void test_reset_hand(void **state)
{
	struct sigaction sa = {.sa_handler = app_a, .sa_flags = SA_RESETHAND}, now;

	install();
	assert_int_equal(sigaction(SIGBUS, &sa, NULL), 0);
	ops->guard_take_action(SIGBUS, &now);
	assert_ptr_equal(now.sa_handler, app_a);
	assert_ptr_equal(handler_of(SIGBUS), SIG_DFL);
	ops->guard_take_action(SIGBUS, &now);
	assert_ptr_equal(now.sa_handler, SIG_DFL);
	assert_ptr_equal(in_kernel(SIGBUS).handler, guard);
}

static void test_older_calls(void **state)
{
	struct sigaction now;

	install();
	sysv_signal(SIGBUS, app_b);
	assert_int_equal(sigaction(SIGBUS, NULL, &now), 0);
	assert_ptr_equal(now.sa_handler, app_b);
	assert_true(now.sa_flags & SA_RESETHAND);
	assert_ptr_equal(sigset(SIGBUS, app_a), app_b);
	assert_ptr_equal(sigset(SIGBUS, SIG_HOLD), app_a);
	assert_ptr_equal(sigset(SIGBUS, app_b), SIG_HOLD);
	assert_int_equal(sigignore(SIGBUS), 0);
	assert_ptr_equal(handler_of(SIGBUS), SIG_IGN);
	assert_ptr_equal(in_kernel(SIGBUS).handler, guard);
}

static void test_other_signals_untouched(void **state)
{
	assert_ptr_not_equal(signal(SIGUSR1, app_a), SIG_ERR);
	assert_ptr_equal((void *)in_kernel(SIGUSR1).handler, (void *)app_a);
	assert_true(in_kernel(SIGUSR1).flags & SA_RESTART);
	assert_ptr_equal(signal(SIGUSR1, SIG_DFL), app_a);
	errno = 0;
	assert_ptr_equal(signal(SIGKILL, app_a), SIG_ERR);
	assert_int_equal(errno, EINVAL);
	assert_ptr_equal(signal(1000, app_a), SIG_ERR);
	assert_int_equal(sigaction(-1, NULL, NULL), -1);
}

static void test_fork_keeps_it(void **state)
{
	int status;
	pid_t pid;

	install();
	pid = fork();
	if (!pid) {
		struct kernel_action k;

		signal(SIGBUS, app_b);
		syscall(SYS_rt_sigaction, SIGBUS, NULL, &k, sizeof(k.mask));
		_exit(k.handler == guard && handler_of(SIGBUS) == app_b ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_ptr_equal(handler_of(SIGBUS), app_a);
}

/* such a child has our memory but its own signal actions: what it sets is its own */
static void test_vfork_child(void **state)
{
	int status;
	pid_t pid;

	install();
	pid = vfork();
	if (!pid) {
		struct sigaction dfl = {.sa_handler = SIG_DFL}, old;
		struct kernel_action k;

		if (sigaction(SIGBUS, &dfl, &old))
			_exit(1);
		syscall(SYS_rt_sigaction, SIGBUS, NULL, &k, sizeof(k.mask));
		if (k.handler)
			_exit(2);
		_exit(old.sa_handler == app_a ? 0 : 3);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_ptr_equal(handler_of(SIGBUS), app_a);
	assert_ptr_equal(in_kernel(SIGBUS).handler, guard);
}

static volatile int stop;

static void *change(void *arg)
{
	struct sigaction a = {.sa_handler = app_a, .sa_flags = SA_NODEFER};
	struct sigaction b = {.sa_sigaction = app_info, .sa_flags = SA_SIGINFO};

	sigfillset(&a.sa_mask);
	sigemptyset(&b.sa_mask);
	for (int i = 0; i < 20000; i++)
		sigaction(SIGBUS, i & 1 ? &a : &b, NULL);
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* an action that is read while it changes is one or the other, not a mixture */
static void test_whole(void **state)
{
	pthread_t t;

	install();
	stop = 0;
	signal(SIGBUS, app_a);
	assert_int_equal(pthread_create(&t, NULL, change, NULL), 0);
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		struct sigaction now;

		ops->guard_take_action(SIGBUS, &now);
		if (now.sa_flags & SA_SIGINFO) {
			assert_ptr_equal(now.sa_sigaction, app_info);
			assert_false(sigismember(&now.sa_mask, SIGUSR1));
		} else {
			assert_ptr_equal(now.sa_handler, app_a);
		}
	}
	pthread_join(t, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_found),
		cmocka_unit_test(test_install),
		cmocka_unit_test(test_application_changes_it),
		cmocka_unit_test(test_flags_follow),
		cmocka_unit_test(test_reset_hand),
		cmocka_unit_test(test_older_calls),
		cmocka_unit_test(test_other_signals_untouched),
		cmocka_unit_test(test_fork_keeps_it),
		cmocka_unit_test(test_vfork_child),
		cmocka_unit_test(test_whole),
	};

	ops = dlsym(RTLD_DEFAULT, "faultline_preload_ops");
	if (!ops)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
