/* SPDX-License-Identifier: BSD-2-Clause */
#include "counters.h"
#include "rc.h"

#include <unistd.h>

/* the number behind "name": after the first place where `after` is; -1: none */
static double find(const char *after, const char *name)
{
	static char text[1 << 20];
	char cmd[100], quoted[64], *preload = getenv("LD_PRELOAD");
	size_t n;
	char *at;
	FILE *f;

	/* without our preloaded library, which is for neither the shell nor the command */
	preload = preload ? strdup(preload) : NULL;
	unsetenv("LD_PRELOAD");
	snprintf(cmd, sizeof(cmd), "\"$FAULTLINE\" stat --json %d", (int)getpid());
	f = popen(cmd, "r");
	CHECK(f, "popen: %s", strerror(errno));
	if (preload)
		setenv("LD_PRELOAD", preload, 1);
	free(preload);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	CHECK(!pclose(f), "faultline stat fails");
	at = strstr(text, after);
	snprintf(quoted, sizeof(quoted), "\"%s\"", name);
	at = at ? strstr(at, quoted) : NULL;
	CHECK(at, "faultline stat says nothing of %s", name);
	return strtod(at + strlen(quoted) + strspn(at + strlen(quoted), ": \t\n"), NULL);
}

double counter_of_device(const char *name)
{
	return find("\"devices\"", name);
}

double counter_of_mr(uint32_t key, const char *name)
{
	char mr[64];

	snprintf(mr, sizeof(mr), "\"key\":\t%u,", key);
	return find(mr, name);
}

/*
 * `faultline run` has handed the segment's descriptor on, so the mapping is found by name. What is read was
 * mapped by another thread, long before.
 */
__attribute__((no_sanitize_thread)) uint64_t counter_now(enum faultline_counter c)
{
	char line[512];
	unsigned long start;
	uint64_t n = 0;
	FILE *f = fopen("/proc/self/maps", "r");

	CHECK(f, "/proc/self/maps: %s", strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		const struct faultline_segment *s;

		if (!strstr(line, "memfd:faultline ") || sscanf(line, "%lx-%*x rw-s %*s", &start) != 1)
			continue;
		s = (const void *)start;
		if (s->magic == FAULTLINE_SEGMENT_MAGIC && s->pid == (uint32_t)getpid())
			n = s->device[0].counter[c];
	}
	fclose(f);
	return n;
}
