/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Static probes (USDT), provider "faultline": a no-op in the code until bpftrace or perf attaches.
 *
 *   page_fault(qpn, role, addr, len)	 the device met a page that is not in its table
 *   page_fault_queued(qpn, role, addr)	 it may sleep: a worker will resolve it, the role pauses
 *   page_fault_done(qpn, role, addr, result)  pages newly mapped, or negative errno
 *   page_fault_retry(addr, mr_addr, mr_length)  an invalidation came between: the fault begins anew
 *   map(start, end, pages, prefetch)	 pages newly entered into a region's table
 *   refault(start, end, pages)		 of these, pages that went less than a second ago
 *   reclaim_scan(runs, us)		 a look for swapped-out pages: runs that it took from the tables
 *   invalidate(start, end, pages)	 pages taken out of a region's table
 *
 * role: 0 requester, 1 responder, 2 completer. Functions have the kernel's names besides, so that
 * uprobe:libibverbs.so.1:ib_umem_odp_map_dma_and_lock works where symbols were not stripped.
 */
#ifndef FL_UTIL_PROBE_H
#define FL_UTIL_PROBE_H

#include <sys/sdt.h>

#define FL_PROBE2(name, a, b)	    DTRACE_PROBE2(faultline, name, a, b)
#define FL_PROBE3(name, a, b, c)    DTRACE_PROBE3(faultline, name, a, b, c)
#define FL_PROBE4(name, a, b, c, d) DTRACE_PROBE4(faultline, name, a, b, c, d)

#endif
