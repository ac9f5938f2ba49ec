/* SPDX-License-Identifier: BSD-2-Clause */
/* <faultline/dmabuf.h>, handed on to the device that runs. */
#include "native/native.h"

#include <errno.h>

static const struct faultline_native_dmabuf *calls(void)
{
	const struct faultline_native *n = faultline_native_get();

	return FL_NATIVE_HAS(n, dmabuf) ? n->dmabuf : NULL;
}

#define FL_API __attribute__((visibility("default")))

/* Calls a member of its table; EOPNOTSUPP where the running device does not have it. */
#define CALL(member, ...)                                                                          \
	const struct faultline_native_dmabuf *n = calls();                                         \
	return n && n->size >= offsetof(struct faultline_native_dmabuf, member) + sizeof(n->member) \
		       ? n->member(__VA_ARGS__)                                                    \
		       : EOPNOTSUPP

FL_API int faultline_dmabuf_open(const struct faultline_dmabuf_device_attr *attr,
				 struct faultline_dmabuf_device **device)
{
	CALL(open, attr, sizeof(*attr), device);
}

FL_API int faultline_dmabuf_close(struct faultline_dmabuf_device *device)
{
	CALL(close, device);
}

FL_API int faultline_dmabuf_device_info(struct faultline_dmabuf_device *device,
					struct faultline_dmabuf_device_info *info)
{
	CALL(device_info, device, info, sizeof(*info));
}

FL_API int faultline_dmabuf_alloc(struct faultline_dmabuf_device *device, size_t size, unsigned flags, int *fd)
{
	CALL(alloc, device, size, flags, fd);
}

FL_API int faultline_dmabuf_read(int fd, void *dst, size_t offset, size_t length)
{
	CALL(read, fd, dst, offset, length);
}

FL_API int faultline_dmabuf_write(int fd, size_t offset, const void *src, size_t length)
{
	CALL(write, fd, offset, src, length);
}

FL_API int faultline_dmabuf_mmap(int fd, size_t offset, size_t length, int prot, void **addr)
{
	CALL(mmap, fd, offset, length, prot, addr);
}

FL_API int faultline_dmabuf_munmap(int fd, void *addr, size_t length)
{
	CALL(munmap, fd, addr, length);
}

FL_API int faultline_dmabuf_begin_cpu_access(int fd)
{
	CALL(begin_cpu_access, fd);
}

FL_API int faultline_dmabuf_end_cpu_access(int fd)
{
	CALL(end_cpu_access, fd);
}

FL_API int faultline_dmabuf_move(int fd, enum faultline_dmabuf_place to)
{
	CALL(move, fd, to);
}

FL_API int faultline_dmabuf_evict(struct faultline_dmabuf_device *device, size_t bytes)
{
	CALL(evict, device, bytes);
}

FL_API int faultline_dmabuf_revoke(int fd)
{
	CALL(revoke, fd);
}

FL_API int faultline_dmabuf_info(int fd, struct faultline_dmabuf_info *info)
{
	CALL(info, fd, info, sizeof(*info));
}

FL_API int faultline_dmabuf_fail(int fd, enum faultline_dmabuf_call call, int err)
{
	CALL(fail, fd, call, err);
}

FL_API int faultline_dmabuf_totals(struct faultline_dmabuf_totals *totals)
{
	CALL(totals, totals, sizeof(*totals));
}
