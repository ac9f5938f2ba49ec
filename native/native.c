/* SPDX-License-Identifier: BSD-2-Clause */
/* libfaultline.so.1: finds the device that runs in this process, and hands native calls on to it. */
#include "native/native.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

static const struct faultline_native *table;

static void find(void)
{
	/* NOLOAD: the one the program runs on, however it was loaded, or none at all */
	void *lib = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);

	if (!lib)
		return;
	table = dlsym(lib, "faultline_native");
	dlclose(lib);
}

const struct faultline_native *faultline_native_get(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find);
	return table;
}

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
