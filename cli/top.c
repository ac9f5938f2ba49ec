/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * faultline top: what each device of each process does now, as rates: counters of two looks, the
 * difference divided by the time between. On a terminal the table is drawn over the one before.
 */
#include "cli/cli.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "util/clock.h"

#define MAX_ROWS 1024u /* as many as there are slots */

static const enum faultline_counter rates[] = {
	FL_CNT_sent_pkts,	  FL_CNT_rcvd_pkts,	FL_CNT_sent_bytes,    FL_CNT_rcvd_bytes,
	FL_CNT_page_faults,	  FL_CNT_page_faults_major, FL_CNT_page_refaults, FL_CNT_page_invalidations,
};
#define NUM_RATES (sizeof(rates) / sizeof(rates[0]))

struct row {
	pid_t pid;
	unsigned device;
	uint64_t start_ns; /* with the pid: the same process? */
	uint64_t at_ns;
	uint64_t value[NUM_RATES];
};

struct top {
	struct row row[MAX_ROWS], before[MAX_ROWS];
	unsigned num, num_before;
};

static const struct row *find_before(const struct top *top, const struct row *row)
{
	for (unsigned i = 0; i < top->num_before; i++) {
		const struct row *b = &top->before[i];

		if (b->pid == row->pid && b->device == row->device && b->start_ns == row->start_ns)
			return b;
	}
	return NULL;
}

static void print_row(const struct top *top, const struct row *row, const struct faultline_device *d,
		      const struct device_text *text, const char *comm)
{
	const struct row *b = find_before(top, row);
	double r[NUM_RATES] = {0};

	for (size_t i = 0; b && row->at_ns > b->at_ns && i < NUM_RATES; i++)
		r[i] = (double)(row->value[i] - b->value[i]) * 1e9 / (double)(row->at_ns - b->at_ns);
	printf("%7d %-15s %-12.12s %9.0f %9.0f %8.1f %8.1f %8.0f %7.0f %8.0f %8.0f %9llu %9llu\n", (int)row->pid, comm,
	       text->name, r[0], r[1], r[2] / 1e6, r[3] / 1e6, r[4], r[5], r[6], r[7],
	       (unsigned long long)counter(d, FL_CNT_mapped_pages),
	       (unsigned long long)counter(d, FL_CNT_pinned_pages));
}

static void look(struct process *p, void *arg)
{
	struct device_text text;
	struct top *top = arg;
	char comm[16];

	printable(comm, sizeof(comm), p->s->comm, sizeof(p->s->comm));
	for (unsigned i = 0; i < FAULTLINE_MAX_DEVICES && top->num < MAX_ROWS; i++) {
		const struct faultline_device *d = process_device(p, i, &text);
		struct row *row = &top->row[top->num];

		if (!d)
			continue;
		*row = (struct row){
			.pid = p->pid, .device = i, .start_ns = p->s->start_ns, .at_ns = now_ns()};
		for (size_t k = 0; k < NUM_RATES; k++)
			row->value[k] = counter(d, rates[k]);
		top->num++;
		print_row(top, row, d, &text, comm);
	}
}

static void refused(pid_t pid, void *arg)
{
	/* `faultline stat` says it, once */
}

static void help(void)
{
	printf("Usage: faultline top [OPTIONS]\n\n"
	       "What each device of each process does, as rates a second, again and again. Interrupt it to end it.\n\n"
	       "  -d, --delay SECONDS   between looks; 1\n"
	       "  -n, --number N        end after N looks\n"
	       "  -h, --help\n\n"
	       "Columns: packets and megabytes sent and received; pages faulted in (of these events, MAJOR had to\n"
	       "wait; of the pages, AGAIN had gone within the last second) and taken away; pages mapped and pinned now.\n"
	       "The rates of the first look are zero.\n");
}

int cmd_top(int argc, char **argv)
{
	static const struct option options[] = {
		{"delay", required_argument, NULL, 'd'},
		{"number", required_argument, NULL, 'n'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	static struct top top;
	double delay = 1;
	long number = -1;
	struct timespec wait;
	char *end;
	int c, ret;

	while ((c = getopt_long(argc, argv, "d:n:h", options, NULL)) != -1) {
		switch (c) {
		case 'd':
			delay = strtod(optarg, &end);
			if (*end || end == optarg || !(delay >= 0.1 && delay <= 3600))
				return usage_error("top", "--delay: seconds from 0.1 to 3600");
			break;
		case 'n':
			number = strtol(optarg, &end, 10);
			if (*end || end == optarg || number < 1)
				return usage_error("top", "--number: 1 or more");
			break;
		case 'h':
			help();
			return finish_output(0);
		default:
			return usage_hint("top");
		}
	}
	if (optind != argc)
		return usage_error("top", "takes no arguments");
	wait = (struct timespec){(time_t)delay, (long)((delay - (double)(time_t)delay) * 1e9)};
	for (;;) {
		if (isatty(STDOUT_FILENO))
			printf("\033[H\033[2J");
		printf("%7s %-15s %-12s %9s %9s %8s %8s %8s %7s %8s %8s %9s %9s\n", "PID", "PROGRAM", "DEVICE",
		       "SENT/s", "RCVD/s", "MB OUT/s", "MB IN/s", "FAULTS/s", "MAJOR/s", "AGAIN/s", "TAKEN/s",
		       "MAPPED", "PINNED");
		top.num = 0;
		ret = each_process("top", look, refused, &top);
		ret = finish_output(ret);
		if (ret || (number > 0 && !--number))
			return ret;
		memcpy(top.before, top.row, top.num * sizeof(top.row[0]));
		top.num_before = top.num;
		nanosleep(&wait, NULL);
	}
}
