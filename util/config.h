/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Settings: built-in defaults, then the configuration file (/etc/faultline.conf, then
 * $XDG_CONFIG_HOME/faultline.conf or ~/.config/faultline.conf, or only $FAULTLINE_CONFIG where that
 * is set), then FAULTLINE_* variables, which `faultline run` sets from its options. One table in
 * config.c names each setting once, with its check and its help.
 */
#ifndef FL_UTIL_CONFIG_H
#define FL_UTIL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct fl_config {
	char device[128]; /* profiles, comma separated: "mlx5", "mlx5,irdma"; default "mlx5" */
	char netdev[16];  /* "": the first that is up, has an IPv4 address and is no loopback, else lo */
	char name[64];	  /* device name when one device is asked for; "": <profile>_fl<N> */
	uint32_t vendor_id, vendor_part_id; /* 0: the profile's */
	char log[16];	  /* "": see log.h */
	char link[16];	  /* "auto"; "ring": shm, but no direct placement; "udp": never shm (tests, captures) */
	char impair[128]; /* "": packets go unharmed; else see impairment.h */
	char pin[16];	  /* "auto", "io_uring", "mlock" */
	char notifier[16]; /* "auto", "userfaultfd", "none" */
	char without[64]; /* what of the kernel to pretend is not there, comma separated: FL_WITHOUT */
	uint32_t iommu_aperture_kib; /* DMA mapped at a time, for each device; 0: all */
	char provoke[256]; /* util/provoke.h; "": nothing */
	char fault_model[16]; /* "ideal", "connectx": hw/fault_model.h */
	uint32_t fault_rnr_ms; /* a responder's fault that takes longer is told to a peer that asks again */
	uint32_t fault_stuck_ms; /* and one that takes longer is told to the user */
	uint32_t fault_patience_ms; /* and one that takes longer is not vouched for any more */
	char report[108]; /* abstract UNIX address of `faultline run`, which wants the segment; "": none */
};

/* Linux 6.7, 6.7, 6.11, 5.14: what is done where they lack can be had anywhere */
#define FL_WITHOUT "wp-async", "pagemap-scan", "procmap-query", "populate"
/* is the word in the list with commas? */
static inline bool fl_config_lists(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; p; p = strchr(p, ',')) {
		p += *p == ',';
		if (!strncmp(p, word, n) && (!p[n] || p[n] == ','))
			return true;
	}
	return false;
}

/*
 * For a command that refuses to go on with a setting that cannot be: set before fl_config_load(), it gives
 * the option by which the user set this variable, or NULL. Without it a setting that cannot be is ignored.
 */
extern const char *(*fl_config_option)(const char *env);

/*
 * Reads it all. A setting that cannot be is reported by fl_err() and -EINVAL returned; the rest of the
 * settings, and the default for that one, are in *cfg all the same.
 */
int fl_config_load(struct fl_config *cfg);

/* for `faultline run --help` and the man page's check: calls fn(name, variable, default, help) for each */
void fl_config_each(void (*fn)(const char *name, const char *env, const char *dflt, const char *help));

#endif
