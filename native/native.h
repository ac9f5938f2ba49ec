/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bridge between libfaultline.so.1, which programs link to for what verbs have no call for, or libefa.so.1,
 * and the device, which lives in libibverbs.so.1. That library exports one object, faultline_native; where the
 * object is missing the program runs on another libibverbs, and every native call says EOPNOTSUPP.
 *
 * Both libraries are of one release most of the time, not always: members are only ever added at the
 * end, and `size` says how far the table of the running libibverbs reaches.
 */
#ifndef FL_NATIVE_H
#define FL_NATIVE_H

#include <stddef.h>
#include "faultline/dmabuf.h"
#include "faultline/odp.h"

/* <faultline/dmabuf.h>: as struct faultline_native below; each 0 or a positive errno */
struct faultline_native_dmabuf {
	size_t size;
	int (*open)(const struct faultline_dmabuf_device_attr *attr, size_t attr_size,
		    struct faultline_dmabuf_device **device);
	int (*close)(struct faultline_dmabuf_device *device);
	int (*device_info)(struct faultline_dmabuf_device *device, struct faultline_dmabuf_device_info *info,
			   size_t info_size);
	int (*alloc)(struct faultline_dmabuf_device *device, size_t size, unsigned flags, int *fd);
	int (*read)(int fd, void *dst, size_t offset, size_t length);
	int (*write)(int fd, size_t offset, const void *src, size_t length);
	int (*mmap)(int fd, size_t offset, size_t length, int prot, void **addr);
	int (*munmap)(int fd, void *addr, size_t length);
	int (*begin_cpu_access)(int fd);
	int (*end_cpu_access)(int fd);
	int (*move)(int fd, enum faultline_dmabuf_place to);
	int (*evict)(struct faultline_dmabuf_device *device, size_t bytes);
	int (*revoke)(int fd);
	int (*info)(int fd, struct faultline_dmabuf_info *info, size_t info_size);
	int (*fail)(int fd, enum faultline_dmabuf_call call, int err);
	int (*totals)(struct faultline_dmabuf_totals *totals, size_t totals_size);
};

/* <infiniband/efadv.h>, function by function; each looks whether the device is an efa */
struct faultline_native_efa {
	size_t size;
	int (*query_device)(struct ibv_context *context, void *attr, uint32_t inlen);
	int (*query_ah)(struct ibv_ah *ah, void *attr, uint32_t inlen);
	int (*query_mr)(struct ibv_mr *mr, void *attr, uint32_t inlen);
	struct ibv_cq_ex *(*create_cq)(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr,
				       const void *efa_attr, uint32_t inlen);
	void *(*cq_from_ibv_cq_ex)(struct ibv_cq_ex *cq);
	struct ibv_qp *(*create_driver_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, uint32_t type);
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
				       const void *efa_attr, uint32_t inlen);
};

struct faultline_native {
	size_t size; /* of this structure, as libibverbs.so.1 was built with it */

	/* <faultline/odp.h>: each 0 or a positive errno */
	int (*mr_pin)(struct ibv_mr *mr, void *addr, size_t length);
	int (*mr_unpin)(struct ibv_mr *mr, void *addr, size_t length);
	int (*mr_counters)(struct ibv_mr *mr, struct faultline_mr_counters *counters, size_t size);
	int (*mr_read)(struct ibv_mr *mr, void *dst, size_t offset, size_t length);
	int (*mr_write)(struct ibv_mr *mr, size_t offset, const void *src, size_t length);

	const struct faultline_native_dmabuf *dmabuf; /* or NULL */
	const struct faultline_native_efa *efa; /* or NULL */
};

/* The running device's table, or NULL. Thread-safe; found once. */
const struct faultline_native *faultline_native_get(void);

/* What `dmabuf` points to: verbs/native_dmabuf.c, in libibverbs.so.1 only. */
extern const struct faultline_native_dmabuf fl_native_dmabuf;
/* What `efa` points to: verbs/efa.c */
extern const struct faultline_native_efa fl_native_efa;

/* has the table of the running device this member? */
#define FL_NATIVE_HAS(table, member)                                                               \
	((table) && (table)->size >= offsetof(struct faultline_native, member) + sizeof((table)->member))

#endif
