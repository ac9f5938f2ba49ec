/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * faultline run: starts a program so that it finds our libibverbs, stays beside it, and reports
 * when it is gone. Nothing of the program is watched meanwhile but its segments' arrival: one poll
 * loop over a signalfd and the collector's socket.
 *
 * Signals: those that the terminal sends reach the program by themselves, it is in our process
 * group; those that somebody sends to us alone are passed on. We end when the program does, with
 * its status.
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include "util/config.h"

#define EXIT_NOT_EXECUTABLE 126 /* as shells have it */
#define EXIT_NOT_FOUND	    127

struct run {
	const char *output;
	bool quiet;  /* nothing on standard error */
	bool report; /* there is one, there or in a file */
	char **app;
	pid_t pid;
	bool executed;
	int signals;
	struct collector collector;
	struct sysfs sysfs;
};

enum { OPT_VENDOR_ID = 256, OPT_PART_ID, OPT_IMPAIR };

enum { OPT_FAULT_MODEL = 300, OPT_PROVOKE };

static const struct option options[] = {
	{"device", required_argument, NULL, 'd'},
	{"netdev", required_argument, NULL, 'i'},
	{"name", required_argument, NULL, 'n'},
	{"vendor-id", required_argument, NULL, OPT_VENDOR_ID},
	{"part-id", required_argument, NULL, OPT_PART_ID},
	{"link", required_argument, NULL, 'l'},
	{"impair", required_argument, NULL, OPT_IMPAIR},
	{"pin", required_argument, NULL, 'p'},
	{"notifier", required_argument, NULL, 'm'},
	{"fault-model", required_argument, NULL, OPT_FAULT_MODEL},
	{"provoke", required_argument, NULL, OPT_PROVOKE},
	{"log", required_argument, NULL, 'v'},
	{"config", required_argument, NULL, 'c'},
	{"output", required_argument, NULL, 'o'},
	{"quiet", no_argument, NULL, 'q'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const struct {
	int option;
	const char *env;
} option_env[] = {
	{'d', "FAULTLINE_DEVICE"},
	{'i', "FAULTLINE_NETDEV"},
	{'n', "FAULTLINE_NAME"},
	{'l', "FAULTLINE_LINK"},
	{'p', "FAULTLINE_PIN"},
	{'m', "FAULTLINE_NOTIFIER"},
	{'v', "FAULTLINE_LOG"},
	{'c', "FAULTLINE_CONFIG"},
	{OPT_FAULT_MODEL, "FAULTLINE_FAULT_MODEL"},
	{OPT_PROVOKE, "FAULTLINE_PROVOKE"},
	{OPT_VENDOR_ID, "FAULTLINE_VENDOR_ID"},
	{OPT_PART_ID, "FAULTLINE_VENDOR_PART_ID"},
	{OPT_IMPAIR, "FAULTLINE_IMPAIR"},
};

/* "--device", whether the long or the short one was typed */
static const char *long_name(int option)
{
	static char names[sizeof(options) / sizeof(options[0])][24];

	for (size_t i = 0; options[i].name; i++) {
		if (options[i].val != option)
			continue;
		snprintf(names[i], sizeof(names[i]), "--%s", options[i].name);
		return names[i];
	}
	return "an option";
}

static void print_setting(const char *name, const char *env, const char *dflt, const char *help)
{
	if (strcmp(name, "report"))
		printf("  %-15s %-25s %-7s %s\n", name, env, *dflt ? dflt : "-", help);
}

static void help(void)
{
	printf("Usage: faultline run [OPTIONS] [--] PROGRAM [ARGUMENTS]\n\n"
	       "Runs PROGRAM with a software RDMA device, and reports on standard error when it ends.\n\n"
	       "  -d, --device PROFILE[,PROFILE]  device models; see 'faultline devices'\n"
	       "  -i, --netdev INTERFACE          network interface whose addresses are the GIDs\n"
	       "  -n, --name NAME                 name of the device\n"
	       "      --vendor-id N, --part-id N  what the device says of its maker\n"
	       "  -l, --link auto|udp             udp: packets on port 4791 also within the host\n"
	       "      --impair KIND=AMOUNT[,...]  lose, reorder, dup, delay, corrupt or mark packets:\n"
	       "                                  loss=1%%,reorder=2%%,dup=1%%,delay=1ms~200us,\n"
	       "                                  corrupt=0.1%%,ecn=1%%,seed=7\n"
	       "  -p, --pin auto|io_uring|mlock   how pinned memory is pinned\n"
	       "  -m, --notifier auto|userfaultfd|none\n"
	       "                                  how changes of mappings are noticed\n"
	       "      --fault-model ideal|connectx\n"
	       "                                  how page faults show on the wire\n"
	       "      --provoke LIST              page faults, invalidations and races on purpose\n"
	       "  -v, --log LEVEL                 none, error, warn, info or debug\n"
	       "  -c, --config FILE               this configuration file only\n"
	       "  -o, --output FILE               write the report to FILE\n"
	       "  -q, --quiet                     no report but to FILE\n"
	       "  -h, --help\n\n"
	       "The status is PROGRAM's; 128 + N when signal N killed it; 126 when it cannot be\n"
	       "executed, 127 when it is not found, 2 for options that cannot be.\n\n"
	       "Settings, their variables and defaults (see faultline.conf(5)):\n");
	fl_config_each(print_setting);
}

static int parse(struct run *run, int argc, char **argv)
{
	int c;

	/* '+': what follows the program's name is the program's */
	while ((c = getopt_long(argc, argv, "+d:i:n:l:p:m:v:c:o:qh", options, NULL)) != -1) {
		bool known = false;

		if (c == 'h') {
			help();
			exit(finish_output(0));
		}
		if (c == 'o' || c == 'q') {
			if (c == 'o')
				run->output = optarg;
			else
				run->quiet = true;
			continue;
		}
		for (size_t i = 0; i < sizeof(option_env) / sizeof(option_env[0]); i++) {
			if (option_env[i].option != c)
				continue;
			known = true;
			if (set_by_option(long_name(c), option_env[i].env, optarg))
				return usage_error("run", "no memory");
		}
		if (!known)
			return usage_hint("run");
	}
	if (optind == argc)
		return usage_error("run", "which program?");
	run->app = argv + optind;
	run->report = run->output || !run->quiet;
	return 0;
}

/* "first:rest", or "first" when there is no rest */
static int put_first(const char *var, const char *first)
{
	const char *rest = getenv(var);
	char *value;
	int err;

	if (!rest || !*rest)
		return setenv(var, first, 1) ? -errno : 0;
	if (asprintf(&value, "%s:%s", first, rest) < 0)
		return -ENOMEM;
	err = setenv(var, value, 1) ? -errno : 0;
	free(value);
	return err;
}

/* a program that does not look for the files runs without them, too */
static int set_sysfs(struct run *run)
{
	int err = sysfs_make(&run->sysfs);

	if (err) {
		fprintf(stderr, "faultline run: no files of the device for programs that look for them, such as UCX's: %s\n",
			strerror(-err));
		return 0;
	}
	return setenv("FAULTLINE_SYSFS", run->sysfs.root, 1) ? -errno : 0;
}

/* 0, or an exit status */
static int set_environment(struct run *run)
{
	struct lib_paths libs;
	struct fl_config cfg;
	int err;

	/* of a `faultline run` around this one, which asks by itself */
	unsetenv("FAULTLINE_REPORT");
	unsetenv("FAULTLINE_SYSFS");
	fl_config_option = option_of;
	if (fl_config_load(&cfg) || check_settings("run", &cfg))
		return usage_hint("run");
	err = find_libs(&libs);
	if (err == -ENOTSUP) {
		fprintf(stderr,
			"faultline run: %s: a path with a colon or a blank in it cannot be given "
			"to the loader; move Faultline elsewhere\n",
			libs.libdir);
		return 1;
	}
	if (err) {
		fprintf(stderr,
			"faultline run: libibverbs.so.1 is neither in verbs/ beside this command "
			"(a build) nor in ../" FAULTLINE_LIBDIR
			" (an installation): build or install again\n");
		return 1;
	}
	err = put_first("LD_LIBRARY_PATH", libs.libdir);
	if (!err && libs.preload[0])
		err = put_first("LD_PRELOAD", libs.preload);
	if (!err && libs.preload[0])
		err = set_sysfs(run);
#ifdef FAULTLINE_SANITIZER
	if (!err)
		err = put_first("LD_PRELOAD", FAULTLINE_SANITIZER);
#endif
	/* also if it is nobody's: the program need not say again what has been said of the settings */
	if (!err && !run->report)
		err = setenv("FAULTLINE_REPORT", "", 1) ? -errno : 0;
	if (!err && run->report) {
		err = collector_open(&run->collector);
		if (!err && setenv("FAULTLINE_REPORT", run->collector.name, 1))
			err = -errno;
	}
	if (!err)
		return 0;
	fprintf(stderr, "faultline run: cannot prepare to start %s: %s\n", run->app[0],
		strerror(-err));
	return 1;
}

static void __attribute__((noreturn))
child(struct run *run, pid_t parent, const sigset_t *mask, int failed)
{
	int err;

	/* who kills us with SIGKILL means the program as well */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	sigprocmask(SIG_SETMASK, mask, NULL);
	execvp(run->app[0], run->app);
	err = errno;
	fprintf(stderr, "faultline run: %s: %s\n", run->app[0], strerror(err));
	if (write(failed, &err, sizeof(err)) < 0)
		_exit(1);
	_exit(err == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

/* 0: there is a child, in run->executed whether it got as far as the program; or negative errno */
static int start(struct run *run)
{
	/* what others send to end or to tell a program, not what is of its own doing or stops it */
	static const int ours[] = {SIGCHLD, SIGINT,    SIGQUIT, SIGTERM, SIGHUP,  SIGUSR1,
				   SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGXCPU, SIGPWR};
	pid_t self = getpid();
	sigset_t mask, old;
	int failed[2], what;
	ssize_t n;

	sigemptyset(&mask);
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		sigaddset(&mask, ours[i]);
	for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
		sigaddset(&mask, sig);
	/* blocked before there is a program, so that none of its signals is lost */
	sigprocmask(SIG_BLOCK, &mask, &old);
	run->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (run->signals < 0 || pipe2(failed, O_CLOEXEC))
		return -errno;
	run->pid = fork();
	if (run->pid < 0)
		return -errno;
	if (!run->pid)
		child(run, self, &old, failed[1]);
	close(failed[1]);
	while ((n = read(failed[0], &what, sizeof(what))) < 0 && errno == EINTR)
		;
	close(failed[0]);
	run->executed = n == 0; /* closed by exec */
	return 0;
}

static void pass_on(struct run *run)
{
	struct signalfd_siginfo si;

	while (read(run->signals, &si, sizeof(si)) == sizeof(si))
		if (si.ssi_signo != SIGCHLD && si.ssi_code != SI_KERNEL)
			kill(run->pid, (int)si.ssi_signo);
}

/* the program's status as a shell has it; the wait status in *status */
static int attend(struct run *run, int *status)
{
	struct pollfd pfd[2] = {
		{.fd = run->signals, .events = POLLIN},
		{.fd = run->report ? run->collector.fd : -1, .events = POLLIN},
	};

	for (;;) {
		/* WNOHANG first: SIGCHLD may have come before the loop did */
		pid_t pid = waitpid(run->pid, status, WNOHANG);

		if (pid == run->pid)
			break;
		if (pid < 0 && errno != EINTR)
			return 1;
		if (poll(pfd, 2, -1) < 0)
			continue;
		if (pfd[0].revents)
			pass_on(run);
		if (pfd[1].revents)
			collector_take(&run->collector);
	}
	if (run->report)
		collector_take(&run->collector);
	return WIFSIGNALED(*status) ? 128 + WTERMSIG(*status) : WEXITSTATUS(*status);
}

/* the report, to be freed; NULL: no memory */
static char *report_text(const struct run *run, int status, size_t *size)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, size);

	if (!out)
		return NULL;
	if (WIFSIGNALED(status))
		fprintf(out, "faultline: %s was killed by signal %d (%s)\n", run->app[0],
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	report_print(out, &run->collector, run->app[0], run->pid);
	if (!fclose(out))
		return text;
	free(text);
	return NULL;
}

static int write_file(const char *path, const char *text, size_t size)
{
	FILE *out = fopen(path, "we");
	int err = 0;

	if (!out)
		return -errno;
	if (fwrite(text, 1, size, out) != size)
		err = -errno;
	if (fclose(out) && !err)
		err = -errno;
	return err;
}

/* A report that its file does not take is not lost, also if nothing was to be said. */
static int report(struct run *run, int status)
{
	size_t size;
	char *text = report_text(run, status, &size);
	int err = text ? 0 : -ENOMEM;

	/* past RLIMIT_FSIZE that is EFBIG; the program, which had its own, is gone */
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGPIPE, SIG_IGN); /* who reads the report may be gone, and the status is the program's */
	if (!err && run->output)
		err = write_file(run->output, text, size);
	if (err)
		fprintf(stderr, "faultline run: cannot write the report to %s: %s\n",
			run->output ? run->output : "standard error", strerror(-err));
	if (text && (err || !run->output))
		fwrite(text, 1, size, stderr);
	free(text);
	return err ? 1 : 0;
}

static int run_program(struct run *run)
{
	int ret, status = 0, err = start(run);

	if (err) {
		fprintf(stderr, "faultline run: cannot start %s: %s\n", run->app[0], strerror(-err));
		return 1;
	}
	ret = attend(run, &status);
	if (!run->report)
		return ret;
	if (run->executed && report(run, status) && !ret)
		ret = 1;
	collector_close(&run->collector);
	return ret;
}

int cmd_run(int argc, char **argv)
{
	struct run run = {.sysfs.lock = -1};
	int ret = parse(&run, argc, argv);

	if (!ret)
		ret = set_environment(&run);
	if (!ret)
		ret = run_program(&run);
	sysfs_remove(&run.sysfs);
	return ret;
}
