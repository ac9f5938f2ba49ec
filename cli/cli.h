/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the `faultline` command share. Each subcommand is a function like main(). */
#ifndef FL_CLI_H
#define FL_CLI_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include "faultline/segment.h"

#define EXIT_USAGE 2

int cmd_run(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_doctor(int argc, char **argv);

/* "faultline: run: <message>", then the hint; returns EXIT_USAGE */
int usage_error(const char *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* what getopt_long() has complained about: adds the hint; returns EXIT_USAGE */
int usage_hint(const char *cmd);
/* ends output: an error when stdout could not take it all (disk full, broken pipe) */
int finish_output(int status);

/* sets the variable; a message about its value will name the option ("--device") */
int set_by_option(const char *option, const char *env, const char *value);
/* the option that set the variable, or NULL: for fl_config_option */
const char *option_of(const char *env);

struct fl_config;
/* 0, or negative errno said: a setting names a profile or an interface that is not there
 * (devices.c) */
int check_settings(const char *cmd, const struct fl_config *cfg);

/* ---- where our libraries are (paths.c) ---- */

struct lib_paths {
	char libdir[PATH_MAX];	/* the directory of our libibverbs.so.1 */
	char preload[PATH_MAX]; /* libfaultline-preload.so; "": not there */
};
/* 0; -ENOENT: not where a build or an installation has them */
int find_libs(struct lib_paths *paths);

/* ---- the files that the kernel would have for the devices (sysfs.c) ---- */

struct sysfs {
	char root[200];
	int lock, err;
};
/* a directory with those of the devices of the settings, below it as below "/"; or negative errno */
int sysfs_make(struct sysfs *s);
void sysfs_remove(struct sysfs *s);

/* ---- processes that have a device (process.c) ---- */

struct process {
	const struct faultline_segment *s;
	int fd;	   /* of the segment: tells which parts of it were ever written */
	pid_t pid; /* as we see it; the segment says it as the owner does */
	int pidfd; /* -1: not known */
};

/*
 * Calls fn for each process of this user in this network namespace that has a device, refused for one that is not
 * to be seen: 0, or an exit status said (find.c). The process is closed when fn returns.
 */
int each_process(const char *cmd, void (*fn)(struct process *p, void *arg), void (*refused)(pid_t pid, void *arg),
		 void *arg);

/* the descriptor that comes over a connection with a byte, close-on-exec, or -1 */
int process_receive(int sock);
/* takes the descriptor of the segment over, also when it fails; pid 0: what the segment says */
int process_open(struct process *p, int segment_fd, pid_t pid);
void process_close(struct process *p);
bool process_alive(const struct process *p);

/* names of the counters, by enum faultline_counter */
extern const char *const counter_name[FL_CNT_NUM];
extern const char *const counter_help[FL_CNT_NUM];
/* and of the histograms, by enum faultline_histogram */
extern const char *const histogram_name[FL_HIST_NUM];
extern const char *const histogram_help[FL_HIST_NUM];

uint64_t histogram_total(const uint64_t bucket[FAULTLINE_BUCKETS]);
/* under how many us this part of what was timed stayed: a power of two */
uint64_t histogram_below(const uint64_t bucket[FAULTLINE_BUCKETS], double part);
/* "64 us", "2 ms": of a power of two, near enough */
const char *human_us(uint64_t us, char buf[32]);

static inline uint64_t counter(const struct faultline_device *d, enum faultline_counter c)
{
	return __atomic_load_n(&d->counter[c], __ATOMIC_RELAXED);
}

/* devices in use, with names made safe to print; calls fn for each */
struct device_text {
	char name[64], profile[16], netdev[16], gid[48];
};
const struct faultline_device *process_device(const struct process *p, unsigned i,
					      struct device_text *text);
/* a name from another process, to print: control characters become '?' */
void printable(char *dst, size_t size, const char *src, size_t max);

/* calls fn for every MR that is there, with a copy that hangs together */
void process_each_mr(const struct process *p, void (*fn)(const struct faultline_mr *mr, void *arg),
		     void *arg);
const char *mr_kind_name(uint32_t kind);

/* "4096 bytes", "1.5 MiB" */
const char *human_bytes(uint64_t n, char buf[32]);

/* ---- `faultline run`: who reported (collect.c), what is said of them (report.c), why nobody did
 * ---- */

struct collector {
	int fd; /* listens; poll it for reading */
	char name[64];
	struct process *process;
	unsigned num, capacity;
};
int collector_open(struct collector *c);
/* takes what waits to be taken; blocks for a second at most */
void collector_take(struct collector *c);
void collector_close(struct collector *c);

void report_print(FILE *out, const struct collector *c, const char *app, pid_t main_pid);

/* what to do about the numbers, in words, when they call for it (advice.c) */
void advice_print(FILE *out, const struct faultline_device *d);

/* the likely reason why a program that ran opened no device: one line, never NULL */
const char *why_no_device(const char *app);

#endif
