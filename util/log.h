/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages to the user. A message names the object, what is wrong with it, and what to do about it.
 * Level: FAULTLINE_LOG (none, error, warn, info, debug), else `log` of the configuration file, else
 * VERBS_LOG_LEVEL as rdma-core has it (0 none, 1 error, 2 warn, 3 info, 4 debug), default warn.
 * Where to: VERBS_LOG_FILE, else stderr.
 * Safe from any thread and under any lock; never from a signal handler.
 */
#ifndef FL_UTIL_LOG_H
#define FL_UTIL_LOG_H

enum log_level { LOG_NONE, LOG_ERR, LOG_WARN, LOG_INFO, LOG_DEBUG };

extern int fl_log_level;

void fl_log_init(void); /* reads the settings; called once by the registry, and after fork */
void fl_log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "warn" -> LOG_WARN; also a number 0 to 4; -EINVAL */
int fl_log_parse_level(const char *name);
/* what the settings say (fl_config_load() calls it): from now on and through later fl_log_init() */
void fl_log_configure(enum log_level level);

#define fl_log(level, ...)                                                                         \
	do {                                                                                       \
		if ((int)(level) <= fl_log_level)                                                  \
			fl_log_write(level, __VA_ARGS__);                                          \
	} while (0)
#define fl_err(...)   fl_log(LOG_ERR, __VA_ARGS__)
#define fl_warn(...)  fl_log(LOG_WARN, __VA_ARGS__)
#define fl_info(...)  fl_log(LOG_INFO, __VA_ARGS__)
#define fl_debug(...) fl_log(LOG_DEBUG, __VA_ARGS__)

/* the same, said once per place of call: for what would repeat at packet rate */
#define fl_warn_once(...)                                                                          \
	do {                                                                                       \
		static int said_;                                                                  \
		if (!__atomic_exchange_n(&said_, 1, __ATOMIC_RELAXED))                             \
			fl_warn(__VA_ARGS__);                                                      \
	} while (0)

#endif
