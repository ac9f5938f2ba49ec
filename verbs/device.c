/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device list, and what is asked of an ibv_device. The list's devices live as long as the process:
 * freeing the list frees the array only, so that a pointer kept from it, open or not, stays good.
 */
#include "verbs/verbs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
static struct verbs_device *devices[FAULTLINE_MAX_DEVICES];

static struct verbs_device *make_device(struct ib_device *ib)
{
	struct verbs_device *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->ib = ib;
	d->device.node_type = ib->profile->unspecified ? IBV_NODE_UNSPECIFIED : IBV_NODE_CA;
	d->device.transport_type =
		ib->profile->unspecified ? IBV_TRANSPORT_UNSPECIFIED : IBV_TRANSPORT_IB;
	memcpy(d->device.name, ib->name, sizeof(d->device.name));
	snprintf(d->device.dev_name, sizeof(d->device.dev_name), "uverbs%u", ib->index);
	/* where the kernel would have them; under `faultline run` something is there (preload/sysfs.c) */
	snprintf(d->device.dev_path, sizeof(d->device.dev_path),
		 "/sys/class/infiniband_verbs/uverbs%u", ib->index);
	snprintf(d->device.ibdev_path, sizeof(d->device.ibdev_path), "/sys/class/infiniband/%s",
		 ib->name);
	return d;
}

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ib_device *const *ib;
	int n = ib_get_devices(&ib), made = 0;
	struct ibv_device **list;

	if (num_devices)
		*num_devices = 0;
	list = calloc((size_t)n + 1, sizeof(*list));
	if (!list)
		return fail_null(-ENOMEM);
	pthread_mutex_lock(&devices_lock);
	for (int i = 0; i < n; i++) {
		if (!devices[i])
			devices[i] = make_device(ib[i]);
		if (devices[i])
			list[made++] = &devices[i]->device;
	}
	pthread_mutex_unlock(&devices_lock);
	if (num_devices)
		*num_devices = made;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

static struct ib_device *ib_of(struct ibv_device *device)
{
	return FL_CAST(verbs_device, device, device)->ib;
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return ib_of(device)->node_guid;
}

int ibv_get_device_index(struct ibv_device *device)
{
	return (int)ib_of(device)->index;
}

const char *ibv_get_sysfs_path(void);
VERBS_EXPORT const char *ibv_get_sysfs_path(void)
{
	const char *path = getenv("SYSFS_PATH");

	/* as libibverbs has it: not for set-user-ID programs */
	return path && getuid() == geteuid() ? path : "/sys";
}

/* dir/file's text without the newline at its end; its length or -1 */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
VERBS_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[512];
	ssize_t n;
	int fd;

	if (!size || (size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) >= sizeof(path))
		return -1;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, buf, size);
	close(fd);
	if (n < 0)
		return -1;
	if (n > 0 && buf[n - 1] == '\n')
		buf[--n] = '\0';
	else if ((size_t)n < size)
		buf[n] = '\0';
	else
		return -1;
	return (int)n;
}

int ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	/* nothing of ours keeps a fork's child from its own copy of a registered page */
	return IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void *base, size_t size);
VERBS_EXPORT int ibv_dontfork_range(void *base, size_t size)
{
	return 0;
}

int ibv_dofork_range(void *base, size_t size);
VERBS_EXPORT int ibv_dofork_range(void *base, size_t size)
{
	return 0;
}
