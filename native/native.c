/* SPDX-License-Identifier: BSD-2-Clause */
/* libfaultline.so.1: hands native calls on to the device that runs in this process. */
#include "native/native.h"

#include <errno.h>

/* Calls a member of the table; EOPNOTSUPP where the running device does not have it. */
#define NATIVE(member, ...)                                                                        \
	const struct faultline_native *n = faultline_native_get();                                 \
	return FL_NATIVE_HAS(n, member) ? n->member(__VA_ARGS__) : EOPNOTSUPP

#define FL_API __attribute__((visibility("default")))

FL_API int faultline_mr_pin(struct ibv_mr *mr, void *addr, size_t length)
{
	NATIVE(mr_pin, mr, addr, length);
}

FL_API int faultline_mr_unpin(struct ibv_mr *mr, void *addr, size_t length)
{
	NATIVE(mr_unpin, mr, addr, length);
}

FL_API int faultline_mr_counters(struct ibv_mr *mr, struct faultline_mr_counters *counters)
{
	NATIVE(mr_counters, mr, counters, sizeof(*counters));
}

FL_API int faultline_mr_read(struct ibv_mr *mr, void *dst, size_t offset, size_t length)
{
	NATIVE(mr_read, mr, dst, offset, length);
}

FL_API int faultline_mr_write(struct ibv_mr *mr, size_t offset, const void *src, size_t length)
{
	NATIVE(mr_write, mr, offset, src, length);
}
