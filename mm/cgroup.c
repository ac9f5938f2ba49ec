/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process's own control group in the unified hierarchy (version 2), as a directory. Where that is mounted is
 * not the same everywhere: at /sys/fs/cgroup as a rule, below it where version 1 has that place, and in a
 * container only a part of the hierarchy may be.
 */
#include <string.h>
#include "mm/mm_internal.h"

/* Blanks and the like stand in mountinfo as a backslash and three octal digits. */
static void unescape(char *s)
{
	char *to = s;
	unsigned c;

	for (; *s; s++, to++) {
		if (*s == '\\' && sscanf(s + 1, "%3o", &c) == 1) {
			*to = (char)c;
			s += 3;
		} else {
			*to = *s;
		}
	}
	*to = 0;
}

/* "0::/path" of /proc/self/cgroup; one outside of the namespace is "/../path", and not to be seen */
static bool group_of(FILE *cgroup, char *group, size_t size)
{
	char line[4096];

	while (fgets(line, sizeof(line), cgroup)) {
		if (strncmp(line, "0::/", 4) || !strncmp(line, "0::/..", 6))
			continue;
		line[strcspn(line, "\n")] = 0;
		return snprintf(group, size, "%s", line + 3) < (int)size;
	}
	return false;
}

/* What of the group's path lies below a mount whose own root is that: NULL: the group is not to be seen there. */
static const char *below(const char *group, const char *root)
{
	size_t n = strcmp(root, "/") ? strlen(root) : 0;

	return !strncmp(group, root, n) && (group[n] == '/' || !group[n]) ? group + n : NULL;
}

bool cgroup_dir(FILE *cgroup, FILE *mountinfo, char *path, size_t size)
{
	char group[4096], line[4096], root[1024], place[1024];

	if (!group_of(cgroup, group, sizeof(group)))
		return false;
	/* id, parent, major:minor, root, mount point, options, optional fields, "-", type */
	while (fgets(line, sizeof(line), mountinfo)) {
		const char *rest;

		if (!strstr(line, " - cgroup2 ") || sscanf(line, "%*s %*s %*s %1023s %1023s", root, place) != 2)
			continue;
		unescape(root);
		unescape(place);
		rest = below(group, root);
		if (rest)
			return snprintf(path, size, "%s%s", place, strcmp(rest, "/") ? rest : "") < (int)size;
	}
	return false;
}
