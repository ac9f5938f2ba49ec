/* SPDX-License-Identifier: BSD-2-Clause */
/* The device's end of libfaultline.so.1 and libefa.so.1 (native/native.h). */
#include "native/native.h"

#include <string.h>
#include "verbs/verbs.h"

static struct ib_mr *ib_of(struct ibv_mr *mr)
{
	return FL_CAST(verbs_mr, mr, mr)->ib;
}

static int mr_pin(struct ibv_mr *mr, void *addr, size_t length)
{
	return -ib_mr_pin(ib_of(mr), (uintptr_t)addr, length);
}

static int mr_unpin(struct ibv_mr *mr, void *addr, size_t length)
{
	return -ib_mr_unpin(ib_of(mr), (uintptr_t)addr, length);
}

static int mr_counters(struct ibv_mr *mr, struct faultline_mr_counters *counters, size_t size)
{
	const struct faultline_mr *stat = ib_mr_stat(ib_of(mr));
	struct faultline_mr_counters c = {0};

	if (!stat)
		return EIO;
	c.page_faults = __atomic_load_n(&stat->page_faults, __ATOMIC_RELAXED);
	c.page_invalidations = __atomic_load_n(&stat->page_invalidations, __ATOMIC_RELAXED);
	c.page_prefetch = __atomic_load_n(&stat->page_prefetch, __ATOMIC_RELAXED);
	c.mapped_pages = __atomic_load_n(&stat->mapped_pages, __ATOMIC_RELAXED);
	c.pinned_pages = __atomic_load_n(&stat->pinned_pages, __ATOMIC_RELAXED);
	/* the caller's structure may be of an older release, or of a newer one */
	memset(counters, 0, size);
	memcpy(counters, &c, size < sizeof(c) ? size : sizeof(c));
	return 0;
}

static int mr_read(struct ibv_mr *mr, void *dst, size_t offset, size_t length)
{
	return -ib_mr_read(ib_of(mr), dst, offset, length);
}

static int mr_write(struct ibv_mr *mr, size_t offset, const void *src, size_t length)
{
	return -ib_mr_write(ib_of(mr), offset, src, length);
}

extern const struct faultline_native faultline_native __attribute__((visibility("default")));

const struct faultline_native faultline_native = {
	.size = sizeof(faultline_native),
	.mr_pin = mr_pin,
	.mr_unpin = mr_unpin,
	.mr_counters = mr_counters,
	.mr_read = mr_read,
	.mr_write = mr_write,
	.dmabuf = &fl_native_dmabuf,
	.efa = &fl_native_efa,
};
