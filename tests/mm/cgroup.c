/* SPDX-License-Identifier: BSD-2-Clause */
/* The directory of one's own control group is found wherever the unified hierarchy, or a part of it, is mounted. */
#include <string.h>
#include "mm/mm_internal.h"
#include "mmtest.h"

static const char *dir(const char *cgroup, const char *mountinfo)
{
	static char path[4096];
	FILE *c = fmemopen((void *)cgroup, strlen(cgroup), "r"), *m = fmemopen((void *)mountinfo, strlen(mountinfo), "r");
	bool found;

	CHECK(c && m);
	found = cgroup_dir(c, m, path, sizeof(path));
	fclose(c);
	fclose(m);
	return found ? path : "none";
}

#define IS(cgroup, mountinfo, want)                                                                \
	do {                                                                                       \
		const char *got = dir(cgroup, mountinfo);                                          \
		if (strcmp(got, want)) {                                                           \
			printf("%s:%d: %s, not %s\n", __FILE__, __LINE__, got, want);              \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define OTHERS                                                                                     \
	"21 1 0:19 / /sys rw,nosuid shared:2 - sysfs sysfs rw\n"                                   \
	"22 21 0:20 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
#define V2(root, place) "30 21 0:26 " root " " place " rw,relatime shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"

int main(void)
{
	const char *service = "0::/user.slice/app.service\n", *top = "0::/\n";

	IS(service, OTHERS V2("/", "/sys/fs/cgroup"), "/sys/fs/cgroup/user.slice/app.service");
	IS(top, V2("/", "/sys/fs/cgroup"), "/sys/fs/cgroup");
	/* version 1 has the place, and its groups are other ones */
	IS("9:memory:/lxc/a\n1:cpu:/\n0::/b\n", OTHERS V2("/", "/sys/fs/cgroup/unified"), "/sys/fs/cgroup/unified/b");
	/* no namespace of its own, and only its own part is mounted, or one above it */
	IS(service, V2("/user.slice/app.service", "/sys/fs/cgroup"), "/sys/fs/cgroup");
	IS(service, V2("/user.slice", "/cg"), "/cg/app.service");
	/* another's part, one whose name begins like ours, and one above our namespace: the next may do */
	IS(service, V2("/user.slice/app", "/a") V2("/..", "/b"), "none");
	IS(service, V2("/system.slice", "/a") V2("/", "/b"), "/b/user.slice/app.service");
	/* blanks and the like */
	IS("0::/my group\n", V2("/my\\040group", "/c\\040g"), "/c g");
	IS("0::/a\n", V2("/", "/back\\134slash"), "/back\\slash/a");
	/* ours is outside of the namespace */
	IS("0::/../x\n", V2("/", "/sys/fs/cgroup"), "none");
	/* no unified hierarchy, or nothing of it mounted */
	IS("4:memory:/a\n", V2("/", "/sys/fs/cgroup"), "none");
	IS(service, OTHERS, "none");
	IS("", "", "none");
	return 0;
}
