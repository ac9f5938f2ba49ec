/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Settings. One table says everything of a setting: its name in the file, its variable, where it
 * goes, how it is checked, its help. Sources are applied in order, each over the one before; a
 * value that cannot be is reported with where it stands and then ignored, so that what came before
 * holds.
 */
#include "util/config.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "faultline/segment.h"
#include "util/impairment.h"
#include "util/log.h"
#include "util/provoke.h"

#define SYSTEM_FILE "/etc/faultline.conf"

struct setting {
	const char *name, *env;
	size_t offset, size;
	bool number; /* uint32_t, in C notation; else a string */
	/* NULL or what is wrong with the value */
	const char *(*check)(const char *value);
	const char *dflt;
	const char *help;
};

static const char *check_devices(const char *v)
{
	unsigned n = 1;

	if (!*v || *v == ',')
		return "must be profile names separated by commas, such as mlx5 or mlx5,rxe";
	for (const char *p = v; *p; p++) {
		if (*p == ',') {
			n++;
			if (!p[1] || p[1] == ',')
				return "has an empty name between commas";
		} else if (!islower((unsigned char)*p) && !isdigit((unsigned char)*p) &&
			   *p != '_') {
			return "has a character that no profile's name has (see `faultline devices`)";
		}
	}
	return n <= FAULTLINE_MAX_DEVICES ? NULL : "names more than 8 devices";
}

static const char *check_name(const char *v)
{
	for (const char *p = v; *p; p++)
		if (!isalnum((unsigned char)*p) && *p != '_' && *p != '-' && *p != '.')
			return "may hold letters, digits, '_', '-' and '.' only";
	return *v == '.' ? "may not begin with '.'" : NULL;
}

static const char *check_netdev(const char *v)
{
	for (const char *p = v; *p; p++)
		if (isspace((unsigned char)*p) || *p == '/')
			return "is no name of a network interface";
	return NULL;
}

static const char *check_log(const char *v)
{
	return !*v || fl_log_parse_level(v) >= 0 ? NULL
						 : "must be none, error, warn, info or debug";
}

static bool one_of(const char *v, const char *a, const char *b, const char *c)
{
	return !strcmp(v, a) || !strcmp(v, b) || (c && !strcmp(v, c));
}

static const char *check_link(const char *v)
{
	return one_of(v, "auto", "ring", "udp") ? NULL : "must be auto, ring or udp";
}

static const char *check_impair(const char *v)
{
	struct fl_impairment im;

	return fl_impairment_parse(v, &im);
}

static const char *check_pin(const char *v)
{
	return one_of(v, "auto", "io_uring", "mlock") ? NULL : "must be auto, io_uring or mlock";
}

static const char *check_notifier(const char *v)
{
	return one_of(v, "auto", "userfaultfd", "none") ? NULL
							: "must be auto, userfaultfd or none";
}

static const char *check_provoke(const char *v)
{
	struct provoke p;

	return provoke_parse(v, &p);
}

static const char *check_without(const char *v)
{
	static const char *const words[] = {FL_WITHOUT};

	for (const char *p = v; *p; p += strcspn(p, ",")) {
		size_t n, i;

		p += *p == ',';
		n = strcspn(p, ",");
		for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			if (strlen(words[i]) == n && !strncmp(p, words[i], n))
				break;
		if (i == sizeof(words) / sizeof(words[0]))
			return "must be a list of wp-async, pagemap-scan, procmap-query, populate";
	}
	return NULL;
}

static const char *check_fault_model(const char *v)
{
	return one_of(v, "ideal", "connectx", NULL) ? NULL : "must be ideal or connectx";
}

#define FIELD(f) offsetof(struct fl_config, f), sizeof(((struct fl_config *)0)->f)

static const struct setting settings[] = {
	{"device", "FAULTLINE_DEVICE", FIELD(device), false, check_devices, "mlx5",
	 "device profiles, comma separated; `faultline devices` lists them"},
	{"netdev", "FAULTLINE_NETDEV", FIELD(netdev), false, check_netdev, "",
	 "network interface; empty: the first that is up and has an IPv4 address, else lo"},
	{"name", "FAULTLINE_NAME", FIELD(name), false, check_name, "",
	 "name of the device; empty: <profile>_fl<N>"},
	{"vendor_id", "FAULTLINE_VENDOR_ID", FIELD(vendor_id), true, NULL, "0",
	 "vendor id that the device reports; 0: the profile's"},
	{"vendor_part_id", "FAULTLINE_VENDOR_PART_ID", FIELD(vendor_part_id), true, NULL, "0",
	 "part id that the device reports; 0: the profile's"},
	{"log", "FAULTLINE_LOG", FIELD(log), false, check_log, "",
	 "none, error, warn, info or debug; empty: by VERBS_LOG_LEVEL, else warn"},
	{"link", "FAULTLINE_LINK", FIELD(link), false, check_link, "auto",
	 "auto; ring: packets, never a peer's memory directly; or udp: no shared memory between processes"},
	{"impair", "FAULTLINE_IMPAIR", FIELD(impair), false, check_impair, "",
	 "what becomes of packets sent, such as loss=1%,reorder=2%,dup=1%,delay=1ms~200us,seed=7"},
	{"pin", "FAULTLINE_PIN", FIELD(pin), false, check_pin, "auto",
	 "how pinned memory is pinned: auto, io_uring or mlock"},
	{"notifier", "FAULTLINE_NOTIFIER", FIELD(notifier), false, check_notifier, "auto",
	 "how changes of mappings are noticed: auto, userfaultfd or none"},
	{"iommu_aperture", "FAULTLINE_IOMMU_APERTURE", FIELD(iommu_aperture_kib), true, NULL, "0",
	 "KiB that a device can have mapped for DMA at a time; 0: all memory"},
	{"without", "FAULTLINE_WITHOUT", FIELD(without), false, check_without, "",
	 "kernel features to do without: wp-async,pagemap-scan,procmap-query,populate"},
	{"fault_model", "FAULTLINE_FAULT_MODEL", FIELD(fault_model), false, check_fault_model, "ideal",
	 "how page faults show on the wire: ideal, or connectx, with its pitfalls"},
	{"fault_rnr", "FAULTLINE_FAULT_RNR", FIELD(fault_rnr_ms), true, NULL, "100",
	 "milliseconds after which a responder's page fault is answered with RNR NAKs"},
	{"fault_stuck", "FAULTLINE_FAULT_STUCK", FIELD(fault_stuck_ms), true, NULL, "2000",
	 "milliseconds after which a page fault is reported as stuck"},
	{"fault_patience", "FAULTLINE_FAULT_PATIENCE", FIELD(fault_patience_ms), true, NULL, "60000",
	 "milliseconds for which a peer is kept waiting for a page fault; 0: without end"},
	{"provoke", "FAULTLINE_PROVOKE", FIELD(provoke), false, check_provoke, "",
	 "page faults, invalidations and races on purpose: see faultline.conf(5)"},
	{"report", "FAULTLINE_REPORT", FIELD(report), false, NULL, "",
	 "abstract UNIX address that wants the counters; set by `faultline run`"},
};
#define NUM_SETTINGS (sizeof(settings) / sizeof(settings[0]))

const char *(*fl_config_option)(const char *env);

static const char *ignored(void)
{
	return fl_config_option ? "" : "; ignored";
}

/* what a file or a variable holds, to print: anything may be in it */
struct printed {
	char text[200];
};

static struct printed printed(const char *s)
{
	struct printed p;
	size_t n = 0;

	for (; *s && n + 5 < sizeof(p.text); s++) {
		if (isprint((unsigned char)*s))
			p.text[n++] = *s;
		else
			n += (size_t)sprintf(p.text + n, "\\x%02x", (unsigned char)*s);
	}
	p.text[n] = '\0';
	return p;
}

/* 0, or -EINVAL said */
static int set(struct fl_config *cfg, const struct setting *s, const char *value, const char *where)
{
	char *field = (char *)cfg + s->offset;
	const char *wrong = NULL;

	if (s->number) {
		char *end;
		unsigned long v;

		errno = 0;
		v = strtoul(value, &end, 0);
		if (errno || end == value || *end || v > UINT32_MAX || *value == '-') {
			wrong = "must be a number of 32 bits, such as 4119 or 0x1017";
		} else {
			uint32_t v32 = (uint32_t)v;

			memcpy(field, &v32, sizeof(v32));
		}
	} else if (strlen(value) >= s->size) {
		wrong = "is too long";
	} else {
		if (s->check)
			wrong = s->check(value);
		if (!wrong)
			strcpy(field, value);
	}
	if (!wrong)
		return 0;
	fl_err("%s: setting '%s': \"%.60s\" %s%s", where, s->name, printed(value).text, wrong, ignored());
	return -EINVAL;
}

struct file_ctx {
	struct fl_config *cfg;
	const char *path;
	int err;
};

/* inih calls it for each line; it always says "go on", errors are remembered */
static int from_file(void *arg, const char *section, const char *name, const char *value)
{
	struct file_ctx *ctx = arg;

	if (*section && strcmp(section, "faultline")) {
		fl_err("%s: unknown section [%s]; settings stand under [faultline] or no section",
		       ctx->path, printed(section).text);
		ctx->err = -EINVAL;
		return 1;
	}
	for (size_t i = 0; i < NUM_SETTINGS; i++) {
		if (strcmp(settings[i].name, name))
			continue;
		if (set(ctx->cfg, &settings[i], value, ctx->path))
			ctx->err = -EINVAL;
		return 1;
	}
	fl_err("%s: unknown setting '%s'; see faultline.conf(5)", ctx->path, printed(name).text);
	ctx->err = -EINVAL;
	return 1;
}

static int read_file(struct fl_config *cfg, const char *path, bool must_exist)
{
	struct file_ctx ctx = {cfg, path, 0};
	FILE *f = fopen(path, "re");
	int line;

	if (!f) {
		if (!must_exist && (errno == ENOENT || errno == ENOTDIR))
			return 0;
		/* HOME may still be another user's, as after setpriv(1): no reason to refuse work */
		if (!must_exist && errno == EACCES) {
			/* the program is told by `faultline run` before it */
			if (!secure_getenv("FAULTLINE_REPORT"))
				fl_warn_once("%s: not readable by this user, left out", path);
			return 0;
		}
		fl_err("%s: cannot read the settings: %s", path, strerror(errno));
		return -EINVAL;
	}
	line = ini_parse_file(f, from_file, &ctx);
	fclose(f);
	if (line) {
		fl_err("%s: line %d is not 'name = value'", path, line);
		ctx.err = -EINVAL;
	}
	return ctx.err;
}

static int read_files(struct fl_config *cfg)
{
	const char *only = secure_getenv("FAULTLINE_CONFIG");
	const char *xdg = secure_getenv("XDG_CONFIG_HOME");
	const char *home = secure_getenv("HOME");
	char path[4096];
	int err, n = 0;

	if (only && *only)
		return read_file(cfg, only, true);
	err = read_file(cfg, SYSTEM_FILE, false);
	if (xdg && *xdg)
		n = snprintf(path, sizeof(path), "%s/faultline.conf", xdg);
	else if (home && *home)
		n = snprintf(path, sizeof(path), "%s/.config/faultline.conf", home);
	if (n > 0 && (size_t)n < sizeof(path) && read_file(cfg, path, false))
		err = -EINVAL;
	return err;
}

/* ---- variables that are none ---- */

#define PREFIX	 "FAULTLINE_"
#define NAME_MAX_LEN 40u

/* how many letters must go, come or change to make b of a */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[NAME_MAX_LEN + 1];
	size_t n = strlen(b);

	for (unsigned k = 0; k <= n; k++)
		row[k] = k;
	for (; *a; a++) {
		unsigned before = row[0]++; /* of the row above, one to the left */

		for (size_t k = 1; k <= n; k++) {
			unsigned best = before + (toupper((unsigned char)*a) != b[k - 1]);

			best = best < row[k] + 1 ? best : row[k] + 1;
			best = best < row[k - 1] + 1 ? best : row[k - 1] + 1;
			before = row[k];
			row[k] = best;
		}
	}
	return row[n];
}

/* name: without what follows it; NULL: it is one */
static const char *nearest(const char *name)
{
	const char *best = "FAULTLINE_CONFIG";
	unsigned least = distance(name, best);

	if (!strcmp(name, "FAULTLINE_SYSFS")) /* set by `faultline run` for the preload library */
		return NULL;
	for (size_t i = 0; i < NUM_SETTINGS && least; i++) {
		unsigned d = distance(name, settings[i].env);

		if (d < least) {
			least = d;
			best = settings[i].env;
		}
	}
	return least ? best : NULL;
}

/* `faultline run` tells, and sets FAULTLINE_REPORT, which may be empty: then the program does not tell again */
static void tell_unknown_variables(void)
{
	static bool told;

	if (told || (!fl_config_option && secure_getenv("FAULTLINE_REPORT")))
		return;
	told = true;
	for (char **e = environ; *e; e++) {
		char name[NAME_MAX_LEN + 1] = "";
		size_t n = strcspn(*e, "=");
		const char *near;

		if (strncmp(*e, PREFIX, strlen(PREFIX)))
			continue;
		memcpy(name, *e, n < NAME_MAX_LEN ? n : NAME_MAX_LEN);
		near = nearest(name);
		if (near)
			fl_warn("%s: there is no such variable, and it does nothing; did you mean %s?",
				printed(name).text, near);
	}
}

int fl_config_load(struct fl_config *cfg)
{
	int err;

	memset(cfg, 0, sizeof(*cfg));
	for (size_t i = 0; i < NUM_SETTINGS; i++)
		set(cfg, &settings[i], settings[i].dflt, "default");
	err = read_files(cfg);
	for (size_t i = 0; i < NUM_SETTINGS; i++) {
		const char *value = secure_getenv(settings[i].env);
		const char *option = fl_config_option ? fl_config_option(settings[i].env) : NULL;

		if (value && set(cfg, &settings[i], value, option ? option : settings[i].env))
			err = -EINVAL;
	}
	if (cfg->name[0] && strchr(cfg->device, ',')) {
		fl_err("setting 'name': one name cannot be for several devices (%s)%s", cfg->device, ignored());
		cfg->name[0] = '\0';
		err = -EINVAL;
	}
	if (cfg->log[0])
		fl_log_configure((enum log_level)fl_log_parse_level(cfg->log));
	tell_unknown_variables();
	return err;
}

void fl_config_each(void (*fn)(const char *name, const char *env, const char *dflt,
			       const char *help))
{
	for (size_t i = 0; i < NUM_SETTINGS; i++)
		fn(settings[i].name, settings[i].env, settings[i].dflt, settings[i].help);
}
