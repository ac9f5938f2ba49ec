/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shared segment of a Faultline process: what it lets others see.
 *
 * Every process that opens a device owns one segment, a memfd. Its listener (an abstract UNIX socket
 * "\0faultline/<slot>") hands a descriptor of it to processes of the same user: to peers, which must
 * see the key table and whether the owner sleeps, and to `faultline stat`. `faultline run` is given a
 * descriptor as the process starts, so that it can report after the process is gone, however it went.
 *
 * Shape: offsets are from the start of the segment, and nothing in it is an address, so that it means
 * the same in every process that maps it. The owner alone writes. Units are in the names or comments.
 * A reader checks magic and version first, and treats every offset as hostile: the owner is another
 * process. Counters are 64-bit, only grow unless said to be a gauge, and are read without a lock, so
 * two of them need not be of the same instant.
 */
#ifndef FAULTLINE_SEGMENT_H
#define FAULTLINE_SEGMENT_H

#include <stdint.h>

#define FAULTLINE_SEGMENT_MAGIC   0x31656e696c747566ull /* "futline1", little endian */
#define FAULTLINE_SEGMENT_VERSION 2
#define FAULTLINE_MAX_DEVICES	  8
#define FAULTLINE_MAX_HAZARDS	  512

/*
 * Device counters: X(name, is_gauge, what it counts).
 * Names are those of `rdma statistic` (the kernel's rxe and mlx5 drivers) where these have the thing.
 */
#define FAULTLINE_COUNTERS(X)                                                                      \
	X(sent_pkts, 0, "packets sent")                                                            \
	X(rcvd_pkts, 0, "packets received")                                                        \
	X(sent_bytes, 0, "payload bytes sent")                                                     \
	X(rcvd_bytes, 0, "payload bytes received")                                                 \
	X(rdma_sends, 0, "SENDs completed by the requester")                                       \
	X(rdma_writes, 0, "RDMA WRITEs completed by the requester")                                \
	X(rdma_reads, 0, "RDMA READs completed by the requester")                                  \
	X(rdma_atomics, 0, "atomics completed by the requester")                                   \
	X(rdma_recvs, 0, "receives completed")                                                     \
	X(duplicate_request, 0, "requests seen before")                                            \
	X(out_of_seq_request, 0, "requests with a PSN ahead of the one expected")                  \
	X(rcvd_rnr_err, 0, "RNR NAKs received")                                                    \
	X(send_rnr_err, 0, "RNR NAKs sent")                                                        \
	X(rcvd_seq_err, 0, "PSN sequence NAKs received")                                           \
	X(ack_deferred, 0, "ACKs coalesced into a later one")                                      \
	X(retry_exceeded_err, 0, "QPs that ran out of retries")                                    \
	X(retry_rnr_exceeded_err, 0, "QPs that ran out of RNR retries")                            \
	X(completer_retry_err, 0, "retransmissions started by a timer or a NAK")                   \
	X(probes, 0, "retransmissions of one packet, to find a loss that no NAK told of")          \
	X(send_err, 0, "packets the link could not take and lost")                                 \
	X(rx_icrc_err, 0, "packets dropped for a wrong ICRC")                                      \
	X(rx_malformed, 0, "packets dropped for a header that cannot be")                          \
	X(rx_unknown_qp, 0, "packets dropped for a QP that does not exist or is not ready")        \
	X(rx_backlog_drop, 0, "packets dropped since a paused QP had too many waiting")            \
	X(rx_qkey_err, 0, "datagrams dropped for a wrong Q_Key")                                   \
	X(rx_no_recv, 0, "datagrams dropped for want of a receive")                                \
	X(impair_lost, 0, "packets lost on purpose (impair)")                                      \
	X(impair_reordered, 0, "packets held back on purpose until later ones had gone")           \
	X(impair_dup, 0, "packets sent twice on purpose")                                          \
	X(impair_delayed, 0, "packets delayed on purpose")                                         \
	X(impair_corrupted, 0, "packets corrupted on purpose; links without an ICRC lose them")    \
	X(impair_ecn, 0, "packets marked on purpose as having met congestion")                     \
	X(rx_ecn_marked, 0, "packets received that met congestion on their way")                   \
	X(np_cnp_sent, 0, "congestion notifications sent")                                         \
	X(rp_cnp_handled, 0, "congestion notifications received, and obeyed")                      \
	X(local_access_err, 0, "accesses refused by key, PD, bounds or rights, this side")         \
	X(remote_access_err, 0, "accesses refused by key, PD, bounds or rights, for a peer")       \
	X(page_faults, 0, "page faults the device resolved, in pages")                             \
	X(page_fault_events, 0, "page faults the device took, in events")                          \
	X(page_faults_major, 0, "page fault events that waited for swap, a file or a pager")       \
	X(page_faults_minor, 0, "page fault events that waited for nothing of the kind")           \
	X(page_faults_denied, 0, "page faults that could not be resolved")                         \
	X(page_fault_retries, 0, "page faults begun anew since an invalidation came between")      \
	X(page_refaults, 0, "pages faulted again within a second of their invalidation")           \
	X(page_invalidations, 0, "pages taken from the device's tables by invalidations")          \
	X(page_reclaims, 0, "pages invalidated since the kernel swapped them out")                 \
	X(reclaim_scans, 0, "looks for swapped-out pages, under memory pressure")                  \
	X(send_rnr_page_fault, 0, "RNR NAKs sent since a page fault took long")                    \
	X(page_prefetch, 0, "pages brought in by prefetch")                                        \
	X(dma_maps, 0, "pages mapped for DMA")                                                     \
	X(dma_unmaps, 0, "pages unmapped from DMA")                                                \
	X(pinned_pages, 1, "pages pinned now")                                                     \
	X(mapped_pages, 1, "on-demand pages in the device's tables now")                           \
	X(mr_pinned_total, 0, "pinned MRs registered")                                             \
	X(mr_odp_total, 0, "on-demand MRs registered")                                             \
	X(mr_bytes_pinned, 0, "bytes registered pinned")                                           \
	X(mr_bytes_odp, 0, "bytes registered on demand")                                           \
	X(mr_dmabuf_total, 0, "MRs registered on dma-bufs")                                        \
	X(mr_bytes_dmabuf, 0, "bytes registered on dma-bufs")                                      \
	X(mr_pinned_stale, 0, "accesses to pinned memory that the application had taken away")     \
	X(direct_placements, 0, "WRITEs and READs done in a peer's memory without packets")              \
	X(ctx, 1, "contexts open")                                                                 \
	X(pd, 1, "PDs")                                                                            \
	X(cq, 1, "CQs")                                                                            \
	X(qp, 1, "QPs")                                                                            \
	X(srq, 1, "SRQs")                                                                          \
	X(ah, 1, "address handles")                                                                \
	X(xrcd, 1, "XRC domains open")                                                             \
	X(odp_children, 1, "children of implicit on-demand MRs: gigabytes of addresses in use")     \
	X(mr_pinned, 1, "pinned MRs")                                                              \
	X(mr_odp, 1, "on-demand MRs")                                                              \
	X(mr_dmabuf, 1, "MRs on dma-bufs")                                                              \
	X(dmabuf_attachments, 1, "dma-bufs attached")                                              \
	X(dmabuf_pins, 1, "pins of dma-bufs")                                                      \
	X(dmabuf_maps, 0, "dma-bufs mapped")                                                       \
	X(dmabuf_unmaps, 0, "dma-bufs unmapped")                                                   \
	X(dmabuf_invalidations, 0, "dma-buf mappings that a move took away")                       \
	X(dmabuf_revocations, 0, "pinned dma-bufs that their exporter took back")                  \
	X(rx_handed_over, 0, "packets that came to another process of this address, which handed them over")

enum faultline_counter {
#define FAULTLINE_X(name, gauge, help) FL_CNT_##name,
	FAULTLINE_COUNTERS(FAULTLINE_X)
#undef FAULTLINE_X
	FL_CNT_NUM,
};

/*
 * Times, as histograms: X(name, what is timed). Bucket 0 counts what took less than a microsecond, bucket
 * b what took from 2^(b-1) to 2^b us, the last whatever took longer.
 */
#define FAULTLINE_HISTOGRAMS(X)                                                                    \
	X(fault_time, "from the page fault to its end, resolved or not")                           \
	X(stall_time, "for which a page fault paused a queue pair")

enum faultline_histogram {
#define FAULTLINE_X(name, help) FL_HIST_##name,
	FAULTLINE_HISTOGRAMS(FAULTLINE_X)
#undef FAULTLINE_X
	FL_HIST_NUM,
};

#define FAULTLINE_BUCKETS 24 /* the last begins at 4.2 s */

struct faultline_device {
	char name[64];	  /* as ibv_get_device_name() gives it; empty: this place is free */
	char profile[16]; /* "mlx5", "rxe", ... */
	char netdev[16];
	uint8_t gid[16]; /* GID index 0 */
	uint64_t counter[112]; /* by enum faultline_counter; the rest is reserved, zero */
	uint64_t histogram[4][FAULTLINE_BUCKETS]; /* by enum faultline_histogram; the rest likewise */
};

/* Counters of an MR: as those of the device of the same name. */
#define FAULTLINE_MR_COUNTERS(X)                                                                   \
	X(page_faults, 0, "pages")                                                                 \
	X(page_faults_major, 0, "events")                                                          \
	X(page_faults_minor, 0, "events")                                                          \
	X(page_faults_denied, 0, "events")                                                         \
	X(page_fault_retries, 0, "events")                                                         \
	X(page_refaults, 0, "pages")                                                               \
	X(page_invalidations, 0, "pages")                                                          \
	X(page_reclaims, 0, "pages")                                                               \
	X(page_prefetch, 0, "pages")                                                               \
	X(send_rnr_page_fault, 0, "NAKs")                                                          \
	X(dma_maps, 0, "pages")                                                                    \
	X(dma_unmaps, 0, "pages")                                                                  \
	X(mapped_pages, 1, "pages")                                                                \
	X(pinned_pages, 1, "pages")                                                                \
	X(children, 1, "regions")

/*
 * An entry of the key table. `key` is written last at registration and cleared first at
 * deregistration; a reader reads it before and after the rest and drops what changed between.
 */
struct faultline_mr {
	uint32_t key;	 /* lkey and rkey; 0: free */
	uint32_t pd;	 /* handle of the PD */
	uint32_t access; /* enum ibv_access_flags */
	uint32_t kind;	 /* enum faultline_mr_kind */
	uint64_t iova;	 /* what keys are used with */
	uint64_t addr;	 /* virtual address in the owner */
	uint64_t length; /* bytes */
	uint64_t pt;	 /* offset of the root of the page-present table; 0: none (all present, or implicit) */
	uint32_t pt_levels;
	uint32_t device;	    /* index into devices */
	uint32_t stale; /* pinned: the application has taken some of it away; never 0 again */
	uint32_t reserved0;
#define FAULTLINE_X(name, gauge, help) uint64_t name;
	FAULTLINE_MR_COUNTERS(FAULTLINE_X)
#undef FAULTLINE_X
	uint64_t reserved[1];
	uint32_t histogram[FL_HIST_NUM][FAULTLINE_BUCKETS]; /* wraps */
};

enum faultline_mr_kind { FAULTLINE_MR_PINNED = 1, FAULTLINE_MR_ODP = 2, FAULTLINE_MR_DMABUF = 3,
			 FAULTLINE_MR_IMPLICIT = 4 };

/*
 * A hazard slot: one thread's announcement that it is about to touch [start, end) of the owner's
 * address space under `key`. Who takes pages or keys away clears them first, then waits until no
 * slot overlaps. start == end: not in use. (The pairing of the fences: umem/dma.c.)
 */
struct faultline_hazard {
	uint64_t start, end;
	uint32_t key;
	uint32_t owner; /* thread id; 0: free */
	uint32_t unmapping; /* the thread takes memory away amid the access: in a signal handler */
	uint32_t reserved;
	uint64_t proof; /* a peer's: what its copies begin with (net/peer.c) */
	uint8_t pad[24];
} __attribute__((aligned(64)));

/*
 * A queue pair that takes direct placement, at its number's place: a peer process on this host may do its
 * RDMA WRITEs and READs on this process's memory itself. qpn is written last and cleared first.
 */
struct faultline_qp {
	uint32_t qpn;	   /* 0: none, or it takes packets only */
	uint32_t dest_qpn; /* the peer's QP: nobody else's requests count */
	uint32_t pd;	   /* handle of the PD */
	uint32_t access;   /* enum ibv_access_flags that the QP grants */
};

/*
 * What peers that place directly write: the one memory of this process that others may write, handed to
 * processes of the same user only. A hazard each, at the number of the peer's slot.
 */
struct faultline_peers {
	struct faultline_hazard hazard[1024];
};

struct faultline_segment {
	uint64_t magic;
	uint32_t version;
	uint32_t size_of_header; /* sizeof(struct faultline_segment) */
	uint32_t pid, uid;
	uint32_t slot; /* top bits of this process's QPNs; 0: none yet */
	uint32_t asleep; /* non-zero: who puts something into a ring of this process must wake it */
	uint64_t start_ns; /* CLOCK_BOOTTIME when the segment was made */
	char comm[16];
	uint64_t size; /* of the whole segment, sparse */
	uint64_t mr_table, mr_entries; /* offset and number of struct faultline_mr */
	uint64_t arena, arena_size;    /* offset and size of the page-present tables' memory */
	uint64_t qp_table, qp_entries; /* offset and number of struct faultline_qp */
	uint32_t num_devices;
	uint32_t stop_dma; /* non-zero: memory is changing, no access to watched memory now */
	uint32_t reserved[8];
	struct faultline_device device[FAULTLINE_MAX_DEVICES];
	struct faultline_hazard hazard[FAULTLINE_MAX_HAZARDS];
};

_Static_assert(FL_CNT_NUM <= sizeof(((struct faultline_device *)0)->counter) / sizeof(uint64_t) &&
		       FL_HIST_NUM <= sizeof(((struct faultline_device *)0)->histogram) /
					      sizeof(uint64_t[FAULTLINE_BUCKETS]),
	       "what a device counts fits");
/* the layout of this version: a change of any of these is another version */
_Static_assert(sizeof(struct faultline_device) == 1776 && sizeof(struct faultline_mr) == 384 &&
		       sizeof(struct faultline_hazard) == 64,
	       "the layout is as its version says");

/* QPN = slot in the top bits, a process's own number in the rest. Slot 0 is nobody's: QPN 0 and 1 are special. */
#define FAULTLINE_QPN_SLOT_SHIFT 14
#define FAULTLINE_MAX_SLOT	 1023
#define FAULTLINE_SOCKET_PREFIX	 "faultline/" /* abstract UNIX address, then the slot in decimal */

#endif
