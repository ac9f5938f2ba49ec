/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device's end of <faultline/dmabuf.h> (native/native.h): errno turned round, and structures that the
 * caller's release may have in another size.
 */
#include <string.h>
#include "dmabuf/exporter.h"
#include "native/native.h"

static void give(void *to, size_t to_size, const void *from, size_t size)
{
	memset(to, 0, to_size);
	memcpy(to, from, to_size < size ? to_size : size);
}

static int dmabuf_open(const struct faultline_dmabuf_device_attr *attr, size_t attr_size,
		       struct faultline_dmabuf_device **device)
{
	struct faultline_dmabuf_device_attr a;

	give(&a, sizeof(a), attr, attr_size);
	return -exporter_open(&a, device);
}

static int dmabuf_close(struct faultline_dmabuf_device *device)
{
	return -exporter_close(device);
}

static int dmabuf_device_info(struct faultline_dmabuf_device *device, struct faultline_dmabuf_device_info *info,
			      size_t info_size)
{
	struct faultline_dmabuf_device_info i;
	int err = exporter_device_info(device, &i);

	if (!err)
		give(info, info_size, &i, sizeof(i));
	return -err;
}

static int dmabuf_alloc(struct faultline_dmabuf_device *device, size_t size, unsigned flags, int *fd)
{
	int n, err = exporter_alloc(device, size, flags, &n);

	if (!err)
		*fd = n;
	return -err;
}

static int dmabuf_read(int fd, void *dst, size_t offset, size_t length)
{
	return -exporter_access(fd, offset, dst, length, false);
}

static int dmabuf_write(int fd, size_t offset, const void *src, size_t length)
{
	return -exporter_access(fd, offset, (void *)(uintptr_t)src, length, true);
}

static int dmabuf_mmap(int fd, size_t offset, size_t length, int prot, void **addr)
{
	return -exporter_mmap(fd, offset, length, prot, addr);
}

static int dmabuf_munmap(int fd, void *addr, size_t length)
{
	return -exporter_munmap(fd, addr, length);
}

static int dmabuf_begin_cpu_access(int fd)
{
	return -exporter_cpu_access(fd, true);
}

static int dmabuf_end_cpu_access(int fd)
{
	return -exporter_cpu_access(fd, false);
}

static int dmabuf_move(int fd, enum faultline_dmabuf_place to)
{
	return -exporter_move(fd, to);
}

static int dmabuf_evict(struct faultline_dmabuf_device *device, size_t bytes)
{
	return -exporter_evict(device, bytes);
}

static int dmabuf_revoke(int fd)
{
	return -exporter_revoke(fd);
}

static int dmabuf_info(int fd, struct faultline_dmabuf_info *info, size_t info_size)
{
	struct faultline_dmabuf_info i;
	int err = exporter_info(fd, &i);

	if (!err)
		give(info, info_size, &i, sizeof(i));
	return -err;
}

static int dmabuf_fail(int fd, enum faultline_dmabuf_call call, int err)
{
	return -exporter_fail(fd, call, err);
}

static int dmabuf_totals(struct faultline_dmabuf_totals *totals, size_t totals_size)
{
	struct faultline_dmabuf_totals t;
	int err = exporter_totals(&t);

	if (!err)
		give(totals, totals_size, &t, sizeof(t));
	return -err;
}

const struct faultline_native_dmabuf fl_native_dmabuf = {
	.size = sizeof(fl_native_dmabuf),
	.open = dmabuf_open,
	.close = dmabuf_close,
	.device_info = dmabuf_device_info,
	.alloc = dmabuf_alloc,
	.read = dmabuf_read,
	.write = dmabuf_write,
	.mmap = dmabuf_mmap,
	.munmap = dmabuf_munmap,
	.begin_cpu_access = dmabuf_begin_cpu_access,
	.end_cpu_access = dmabuf_end_cpu_access,
	.move = dmabuf_move,
	.evict = dmabuf_evict,
	.revoke = dmabuf_revoke,
	.info = dmabuf_info,
	.fail = dmabuf_fail,
	.totals = dmabuf_totals,
};
