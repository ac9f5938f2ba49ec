/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What verbs have no call for: parts of an on-demand region pinned, counters of a region, and a look at
 * memory as the device has it. Link with -lfaultline.
 *
 * A program may be run on another libibverbs (with a NIC): every call then returns EOPNOTSUPP and does
 * nothing. All calls are thread-safe, and return 0 or a positive errno, as verbs do. A region must not be
 * deregistered while a call on it runs.
 */
#ifndef FAULTLINE_ODP_H
#define FAULTLINE_ODP_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Pins the pages of [addr, addr + length) of an on-demand region: they are faulted in, stay in memory,
 * and the device never faults on them; the rest of the region stays on demand. addr is in the
 * application's addresses (also where the region has an iova); the range is widened to pages. Pins nest,
 * a page's last faultline_mr_unpin() ends its pin; deregistration ends them all.
 *
 * EINVAL: length 0, or the region is not on demand; EFAULT: outside of the region, or not mapped, or not
 * to be written where the region is; ENOMEM: past RLIMIT_MEMLOCK, or no memory.
 */
int faultline_mr_pin(struct ibv_mr *mr, void *addr, size_t length);

/* EINVAL: some page of the range is not pinned; nothing is changed then. */
int faultline_mr_unpin(struct ibv_mr *mr, void *addr, size_t length);

/* names as `rdma statistic` has them where it has them; pages of 4096 bytes */
struct faultline_mr_counters {
	uint64_t page_faults;	     /* pages entered because an access missed them, or one just before them */
	uint64_t page_invalidations; /* pages taken out because the application, or the kernel, took them away */
	uint64_t page_prefetch;	     /* pages entered by ibv_advise_mr() */
	uint64_t mapped_pages;	     /* in the device's table now */
	uint64_t pinned_pages;	     /* pinned now */
};

int faultline_mr_counters(struct ibv_mr *mr, struct faultline_mr_counters *counters);

/*
 * Copies between a region and a buffer as the device would, faulting first; offset counts from the
 * region's start. For tests and debuggers. EFAULT: something of it cannot be reached (how much was
 * copied is not told); EINVAL: outside of the region; EPERM: written, and the region may not be.
 */
int faultline_mr_read(struct ibv_mr *mr, void *dst, size_t offset, size_t length);
int faultline_mr_write(struct ibv_mr *mr, size_t offset, const void *src, size_t length);

#ifdef __cplusplus
}
#endif
#endif
