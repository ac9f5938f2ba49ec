/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The real driver libraries load over ours, and their helpers see that our devices are not theirs:
 * perftest, libfabric, UCX and pyverbs link to them. argv: our library, theirs.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

struct efadv_device_attr;

static int check_mlx5(void *lib, struct ibv_device *dev)
{
	bool (*is_supported)(struct ibv_device *) =
		(bool (*)(struct ibv_device *))dlsym(lib, "mlx5dv_is_supported");

	if (!is_supported || is_supported(dev)) {
		fprintf(stderr, "mlx5dv_is_supported: %s\n", is_supported ? "yes" : "not there");
		return 1;
	}
	return 0;
}

static int check_efa(void *lib, struct ibv_context *ctx)
{
	int (*query)(struct ibv_context *, struct efadv_device_attr *, uint32_t) =
		(int (*)(struct ibv_context *, struct efadv_device_attr *, uint32_t))dlsym(
			lib, "efadv_query_device");
	uint64_t attr[32] = {0};
	int err = query ? query(ctx, (struct efadv_device_attr *)attr, sizeof(attr)) : -1;

	if (err != EOPNOTSUPP)
		fprintf(stderr, "efadv_query_device: %d\n", err);
	return err != EOPNOTSUPP;
}

int main(int argc, char **argv)
{
	struct ibv_device **(*get_list)(int *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	struct ibv_device **list;
	struct ibv_context *ctx;
	struct link_map *map;
	void *ours, *theirs;
	int n = 0;

	if (argc != 3)
		return 2;
	setenv("FAULTLINE_CONFIG", "/dev/null", 1);
	setenv("FAULTLINE_NETDEV", "lo", 1);
	ours = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
	if (!ours) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	theirs = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
	if (!theirs) {
		const char *why = dlerror();

		fprintf(stderr, "%s\n", why);
		return strstr(why, "No such file") ? 77 : 1;
	}
	/* one libibverbs in the process, and it is ours */
	if (dlinfo(ours, RTLD_DI_LINKMAP, &map))
		return 1;
	while (map->l_prev)
		map = map->l_prev;
	for (; map; map = map->l_next)
		n += strstr(map->l_name, "libibverbs.so") != NULL;
	if (n != 1) {
		fprintf(stderr, "%d libibverbs are loaded\n", n);
		return 1;
	}

	get_list = (struct ibv_device **(*)(int *))dlsym(ours, "ibv_get_device_list");
	open_device = (struct ibv_context *(*)(struct ibv_device *))dlsym(ours, "ibv_open_device");
	list = get_list(&n);
	if (!list || n < 1)
		return 1;
	ctx = open_device(list[0]);
	if (!ctx) {
		perror("ibv_open_device");
		return 1;
	}
	if (strstr(argv[2], "mlx5"))
		return check_mlx5(theirs, list[0]);
	return check_efa(theirs, ctx);
}
