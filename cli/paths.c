/* SPDX-License-Identifier: BSD-2-Clause */
/* Where our libraries are: found from the command's own place, so that a build and an installation
 * may be moved. */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static bool exists(const char *dir, const char *below, char out[PATH_MAX])
{
	int n = snprintf(out, PATH_MAX, "%s/%s", dir, below);

	return n < PATH_MAX && access(out, R_OK) == 0;
}

/* paths as they are without "..", since they end up in the environment of programs */
static int settle(struct lib_paths *paths)
{
	char real[PATH_MAX];

	if (!realpath(paths->libdir, real))
		return -errno;
	*strrchr(real, '/') = '\0';
	strcpy(paths->libdir, real);
	if (paths->preload[0]) {
		if (!realpath(paths->preload, real))
			return -errno;
		strcpy(paths->preload, real);
	}
	/* both variables are lists with colons, LD_PRELOAD's also with spaces: no way to quote them
	 */
	if (strpbrk(paths->libdir, ":;") || strpbrk(paths->preload, ": ;"))
		return -ENOTSUP;
	return 0;
}

int find_libs(struct lib_paths *paths)
{
	static const struct {
		const char *lib, *preload;
	} places[] = {
		{"verbs/libibverbs.so.1", "preload/libfaultline-preload.so"},
		{"../" FAULTLINE_LIBDIR "/libibverbs.so.1",
		 "../" FAULTLINE_LIBDIR "/libfaultline-preload.so"},
	};
	char dir[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);

	if (n >= 0)
		dir[n] = '\0';
	else if (!realpath((const char *)getauxval(AT_EXECFN), dir)) /* no /proc: what execve() was given */
		return -errno;
	*strrchr(dir, '/') = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (!exists(dir, places[i].lib, paths->libdir))
			continue;
		if (!exists(dir, places[i].preload, paths->preload))
			paths->preload[0] = '\0';
		return settle(paths);
	}
	return -ENOENT;
}
