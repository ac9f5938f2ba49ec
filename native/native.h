/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bridge between libfaultline.so.1, which programs link to for what verbs have no call for, and the
 * device, which lives in libibverbs.so.1. That library exports one object, faultline_native; where the
 * object is missing the program runs on another libibverbs, and every native call says EOPNOTSUPP.
 *
 * Both libraries are of one release most of the time, not always: members are only ever added at the
 * end, and `size` says how far the table of the running libibverbs reaches.
 */
#ifndef FL_NATIVE_H
#define FL_NATIVE_H

#include <stddef.h>
#include "faultline/odp.h"

struct faultline_native {
	size_t size; /* of this structure, as libibverbs.so.1 was built with it */

	/* <faultline/odp.h>: each 0 or a positive errno */
	int (*mr_pin)(struct ibv_mr *mr, void *addr, size_t length);
	int (*mr_unpin)(struct ibv_mr *mr, void *addr, size_t length);
	int (*mr_counters)(struct ibv_mr *mr, struct faultline_mr_counters *counters, size_t size);
	int (*mr_read)(struct ibv_mr *mr, void *dst, size_t offset, size_t length);
	int (*mr_write)(struct ibv_mr *mr, size_t offset, const void *src, size_t length);
};

/* The running device's table, or NULL. Thread-safe; found once. */
const struct faultline_native *faultline_native_get(void);

/* has the table of the running device this member? */
#define FL_NATIVE_HAS(table, member)                                                               \
	((table) && (table)->size >= offsetof(struct faultline_native, member) + sizeof((table)->member))

#endif
