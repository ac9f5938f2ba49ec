/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The `faultline` command. It holds no device: `run` starts a program with our libraries before the
 * system's and reads what the program's processes leave in their shared segments, `stat` reads
 * and `top` those of processes that run, `devices` says what a program would find, `doctor` what the machine lacks.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	int (*fn)(int argc, char **argv);
	const char *help;
} commands[] = {
	{"run", cmd_run, "run a program on a software RDMA device; report when it ends"},
	{"stat", cmd_stat, "counters and memory regions of running processes"},
	{"top", cmd_top, "the same as rates, refreshed"},
	{"doctor", cmd_doctor, "what this machine lacks, what that costs, and what to do"},
	{"devices", cmd_devices, "device profiles, and the devices a program would see"},
};
#define NUM_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static struct {
	const char *env, *option;
} typed[16];
static size_t num_typed;

int set_by_option(const char *option, const char *env, const char *value)
{
	if (num_typed < sizeof(typed) / sizeof(typed[0])) {
		typed[num_typed].env = env;
		typed[num_typed++].option = option;
	}
	return setenv(env, value, 1) ? -errno : 0;
}

const char *option_of(const char *env)
{
	for (size_t i = num_typed; i > 0; i--)
		if (!strcmp(typed[i - 1].env, env))
			return typed[i - 1].option;
	return NULL;
}

int usage_hint(const char *cmd)
{
	fprintf(stderr, "Try 'faultline %s%s--help'.\n", cmd, *cmd ? " " : "");
	return EXIT_USAGE;
}

int usage_error(const char *cmd, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "faultline%s%s: ", *cmd ? " " : "", cmd);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return usage_hint(cmd);
}

int finish_output(int status)
{
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "faultline: cannot write the output: %s\n", strerror(errno));
		return status ? status : 1;
	}
	return status;
}

static void help(void)
{
	printf("Usage: faultline COMMAND [OPTIONS]\n\n"
	       "RDMA with real memory registration (pinned and on demand) in user space.\n\n");
	for (size_t i = 0; i < NUM_COMMANDS; i++)
		printf("  %-9s %s\n", commands[i].name, commands[i].help);
	printf("\n  --help, --version\n\n"
	       "Each command has its own --help. First steps:\n"
	       "  faultline run -- ibv_rc_pingpong -g 0 &\n"
	       "  faultline run -- ibv_rc_pingpong -g 0 -o 127.0.0.1\n");
}

int main(int argc, char **argv)
{
	static char name[32];

	if (argc < 2)
		return usage_error("", "which command? run, stat, top, devices or doctor");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		help();
		return finish_output(0);
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("faultline %s\n", FAULTLINE_VERSION);
		return finish_output(0);
	}
	for (size_t i = 0; i < NUM_COMMANDS; i++) {
		if (strcmp(argv[1], commands[i].name))
			continue;
		/* as getopt_long() begins its messages */
		snprintf(name, sizeof(name), "faultline %s", commands[i].name);
		argv[1] = name;
		return commands[i].fn(argc - 1, argv + 1);
	}
	return usage_error("", "no command '%s'", argv[1]);
}
