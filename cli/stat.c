/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * faultline stat: counters of processes that run (found by find.c); nothing in them stops.
 */
#include "cli/cli.h"

#include <cjson/cJSON.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct view {
	const char *want; /* pid or name; NULL: all */
	bool all;	  /* also counters that are zero */
	cJSON *json;	  /* array of processes; NULL: text */
	unsigned shown, refused;
};

static bool wanted(const struct view *v, const struct process *p)
{
	struct device_text text;
	char buf[24], comm[16];

	if (!v->want)
		return true;
	snprintf(buf, sizeof(buf), "%d", (int)p->pid);
	printable(comm, sizeof(comm), p->s->comm, sizeof(p->s->comm));
	if (!strcmp(v->want, buf) || !strcmp(v->want, comm))
		return true;
	for (unsigned i = 0; i < FAULTLINE_MAX_DEVICES; i++)
		if (process_device(p, i, &text) && !strcmp(v->want, text.name))
			return true;
	return false;
}

static double seconds_since(uint64_t start_ns)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9 - (double)start_ns / 1e9;
}

/* enum ibv_access_flags, by bit */
static const char *const access_name[32] = {
	"local-write", "remote-write", "remote-read", "remote-atomic", "mw-bind",
	"zero-based",  "on-demand",    "huge-pages",  [20] = "relaxed-ordering",
};

/* calls fn for each right; one that has no name by its number */
static void each_access(uint32_t access, void (*fn)(const char *name, void *arg), void *arg)
{
	char number[16];

	for (unsigned bit = 0; bit < 32; bit++) {
		if (!(access >> bit & 1))
			continue;
		snprintf(number, sizeof(number), "%#x", 1u << bit);
		fn(access_name[bit] ? access_name[bit] : number, arg);
	}
}

static void print_access(const char *name, void *arg)
{
	bool *first = arg;

	printf("%s%s", *first ? "" : ",", name);
	*first = false;
}

static void text_mr(const struct faultline_mr *mr, void *arg)
{
	unsigned *num = arg;
	bool first = true;

	if (!(*num)++)
		printf("    %-10s %-9s %3s %4s %-18s %14s %9s %9s %9s %9s %11s  %s\n", "KEY", "KIND", "DEV",
		       "PD", "ADDRESS", "BYTES", "MAPPED", "PINNED", "FAULTS", "REFAULTS", "INVALIDATED",
		       "ACCESS");
	printf("    %#-10x %-9s %3u %4u %#-18llx %14llu %9llu %9llu %9llu %9llu %11llu  ", mr->key,
	       mr_kind_name(mr->kind), mr->device, mr->pd, (unsigned long long)mr->addr,
	       (unsigned long long)mr->length, (unsigned long long)mr->mapped_pages,
	       (unsigned long long)mr->pinned_pages, (unsigned long long)mr->page_faults,
	       (unsigned long long)mr->page_refaults, (unsigned long long)mr->page_invalidations);
	each_access(mr->access, print_access, &first);
	puts(first ? "local-read" : "");
}

/* "fault_time  <2us 5  <4us 17": buckets that are not empty */
static void text_histogram(const struct faultline_device *d, unsigned h)
{
	if (!histogram_total(d->histogram[h]))
		return;
	printf("    %-22s", histogram_name[h]);
	for (unsigned b = 0; b < FAULTLINE_BUCKETS; b++) {
		uint64_t n = __atomic_load_n(&d->histogram[h][b], __ATOMIC_RELAXED);

		if (n && b < FAULTLINE_BUCKETS - 1)
			printf(" <%uus %llu ", 1u << b, (unsigned long long)n);
		else if (n)
			printf(" longer %llu ", (unsigned long long)n);
	}
	printf(" %s\n", histogram_help[h]);
}

static void show_text(const struct view *v, const struct process *p)
{
	const struct faultline_device *d;
	struct device_text text;
	unsigned num = 0;
	char comm[16];

	printable(comm, sizeof(comm), p->s->comm, sizeof(p->s->comm));
	printf("%s%s (pid %d), %.0f s, slot %u\n", v->shown ? "\n" : "", comm, (int)p->pid,
	       seconds_since(p->s->start_ns), p->s->slot);
	for (unsigned i = 0; i < FAULTLINE_MAX_DEVICES; i++) {
		d = process_device(p, i, &text);
		if (!d)
			continue;
		printf("  %s (%s) on %s, GID 0 %s\n", text.name, text.profile, text.netdev,
		       text.gid);
		for (unsigned c = 0; c < FL_CNT_NUM; c++)
			if (v->all || counter(d, c))
				printf("    %-22s %14llu  %s\n", counter_name[c],
				       (unsigned long long)counter(d, c), counter_help[c]);
		for (unsigned h = 0; h < FL_HIST_NUM; h++)
			text_histogram(d, h);
	}
	process_each_mr(p, text_mr, &num);
}

/* 64-bit values as text in decimal: a double, which is what cJSON has, holds 53 bits exactly */
static void add_u64(cJSON *obj, const char *name, uint64_t value)
{
	char buf[24];

	snprintf(buf, sizeof(buf), "%llu", (unsigned long long)value);
	cJSON_AddRawToObject(obj, name, buf);
}

static void json_access(const char *name, void *arg)
{
	cJSON_AddItemToArray(arg, cJSON_CreateString(name));
}

static void add_bucket(cJSON *array, uint64_t n)
{
	char buf[24];

	snprintf(buf, sizeof(buf), "%llu", (unsigned long long)n);
	cJSON_AddItemToArray(array, cJSON_CreateRaw(buf));
}

static void json_mr(const struct faultline_mr *mr, void *arg)
{
	cJSON *obj = cJSON_CreateObject(), *times;

	add_u64(obj, "key", mr->key);
	cJSON_AddStringToObject(obj, "kind", mr_kind_name(mr->kind));
	add_u64(obj, "device", mr->device);
	add_u64(obj, "pd", mr->pd);
	add_u64(obj, "access", mr->access);
	each_access(mr->access, json_access, cJSON_AddArrayToObject(obj, "access_flags"));
	add_u64(obj, "addr", mr->addr);
	add_u64(obj, "iova", mr->iova);
	add_u64(obj, "length", mr->length);
#define X(name, gauge, help) add_u64(obj, #name, mr->name);
	FAULTLINE_MR_COUNTERS(X)
#undef X
	times = cJSON_AddObjectToObject(obj, "histograms");
	for (unsigned h = 0; h < FL_HIST_NUM; h++) {
		cJSON *array = cJSON_AddArrayToObject(times, histogram_name[h]);

		for (unsigned b = 0; b < FAULTLINE_BUCKETS; b++)
			add_bucket(array, mr->histogram[h][b]);
	}
	cJSON_AddItemToArray(arg, obj);
}

static void add_json(struct view *v, const struct process *p)
{
	cJSON *obj = cJSON_CreateObject(), *devices, *mrs;
	const struct faultline_device *d;
	struct device_text text;
	char comm[16];

	printable(comm, sizeof(comm), p->s->comm, sizeof(p->s->comm));
	add_u64(obj, "pid", (uint64_t)p->pid);
	cJSON_AddStringToObject(obj, "comm", comm);
	add_u64(obj, "slot", p->s->slot);
	cJSON_AddNumberToObject(obj, "uptime", seconds_since(p->s->start_ns));
	devices = cJSON_AddArrayToObject(obj, "devices");
	for (unsigned i = 0; i < FAULTLINE_MAX_DEVICES; i++) {
		cJSON *dev, *counters, *times;

		d = process_device(p, i, &text);
		if (!d)
			continue;
		dev = cJSON_CreateObject();
		add_u64(dev, "index", i);
		cJSON_AddStringToObject(dev, "name", text.name);
		cJSON_AddStringToObject(dev, "profile", text.profile);
		cJSON_AddStringToObject(dev, "netdev", text.netdev);
		cJSON_AddStringToObject(dev, "gid", text.gid);
		counters = cJSON_AddObjectToObject(dev, "counters");
		for (unsigned c = 0; c < FL_CNT_NUM; c++)
			add_u64(counters, counter_name[c], counter(d, c));
		times = cJSON_AddObjectToObject(dev, "histograms");
		for (unsigned h = 0; h < FL_HIST_NUM; h++) {
			cJSON *array = cJSON_AddArrayToObject(times, histogram_name[h]);

			for (unsigned b = 0; b < FAULTLINE_BUCKETS; b++)
				add_bucket(array, __atomic_load_n(&d->histogram[h][b], __ATOMIC_RELAXED));
		}
		cJSON_AddItemToArray(devices, dev);
	}
	mrs = cJSON_AddArrayToObject(obj, "mrs");
	process_each_mr(p, json_mr, mrs);
	cJSON_AddItemToArray(v->json, obj);
}

static void show(struct process *p, void *arg)
{
	struct view *v = arg;

	if (!wanted(v, p))
		return;
	if (v->json)
		add_json(v, p);
	else
		show_text(v, p);
	v->shown++;
}

static void refused(pid_t pid, void *arg)
{
	struct view *v = arg;

	v->refused++;
	fprintf(stderr,
		"faultline stat: pid %d shows nothing: it is another user's, or of another version of Faultline\n",
		(int)pid);
}

static void help(void)
{
	printf("Usage: faultline stat [OPTIONS] [PID|NAME]\n\n"
	       "Shows the counters and memory regions of processes that have a device open, in this\n"
	       "network namespace. NAME is a program's or a device's.\n\n"
	       "  -a, --all    counters that are zero as well\n"
	       "  -j, --json   one array, an object a process\n"
	       "  -h, --help\n\n"
	       "The status is 1 when PID or NAME is not found.\n");
}

int cmd_stat(int argc, char **argv)
{
	static const struct option options[] = {
		{"all", no_argument, NULL, 'a'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	struct view v = {.want = NULL};
	bool json = false;
	int c, ret;

	while ((c = getopt_long(argc, argv, "ajh", options, NULL)) != -1) {
		switch (c) {
		case 'a':
			v.all = true;
			break;
		case 'j':
			json = true;
			break;
		case 'h':
			help();
			return finish_output(0);
		default:
			return usage_hint("stat");
		}
	}
	if (argc - optind > 1)
		return usage_error("stat", "one PID or NAME at most");
	v.want = argv[optind]; /* NULL at the end of argv */
	if (json)
		v.json = cJSON_CreateArray();
	ret = each_process("stat", show, refused, &v);
	if (json) {
		char *out = cJSON_Print(v.json);

		puts(out);
		cJSON_free(out);
		cJSON_Delete(v.json);
	} else if (!ret && !v.shown && !v.want && !v.refused) {
		printf("no process has a device open in this network namespace\n");
	}
	if (!ret && v.want && !v.shown) {
		fprintf(stderr, "faultline stat: no process '%s' has a device open here\n", v.want);
		ret = 1;
	}
	return finish_output(ret);
}
