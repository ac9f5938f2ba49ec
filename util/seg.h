/* SPDX-License-Identifier: BSD-2-Clause */
/* The process's own shared segment (shape: include/faultline/segment.h): made once, thrown away after fork. */
#ifndef FL_UTIL_SEG_H
#define FL_UTIL_SEG_H

#include <stdbool.h>
#include <stdint.h>
#include "faultline/segment.h"
#include "util/lock.h"

struct seg {
	struct faultline_segment *s; /* mapped read-write, whole, for the life of the process */
	int fd;			     /* close-on-exec */
	int ro_fd;		     /* the same, read only: what is handed to others */
	struct faultline_peers *peers; /* what peers write, see there; NULL: no memory for it */
	int peers_fd;

	/* the arena's chunks; seg.c's own */
	struct fl_mutex lock;
	uint64_t map_size;
	uint32_t *next;	      /* by chunk: the next free one plus 1 */
	uint32_t first_free;  /* chunk number plus 1; 0: none has been freed */
	uint32_t fresh;	      /* chunks from here on were never handed out */
	uint32_t num_chunks;
};

/* 0, or -ENOMEM, -ENOSYS, ... from memfd_create and mmap. Not thread-safe: the registry calls it. */
int seg_create(struct seg *seg);
/* unmaps and closes; also in the child of a fork, whose parent keeps its own */
void seg_destroy(struct seg *seg);

static inline void *seg_ptr(const struct seg *seg, uint64_t off)
{
	return (char *)seg->s + off;
}

/* Memory for page-present tables: zeroed chunks of 4 KiB, by offset; 0 when there is none left.
 * Allocates nothing from the heap. Thread-safe (LOCK_PT_ARENA). A freed chunk is all zero at once: who
 * still reads it sees pages that are not present. */
#define SEG_CHUNK 4096
uint64_t seg_chunk_alloc(struct seg *seg);
void seg_chunk_free(struct seg *seg, uint64_t off);

/* maps another process's segment read-only after checking magic, version, owner and sizes against the
 * descriptor's real size: -EPROTO when it is not what it says */
int seg_map_peer(int fd, const struct faultline_segment **out);
void seg_unmap_peer(const struct faultline_segment *s);
/* as it was when it was mapped, which no word in it can change */
uint64_t seg_peer_size(const struct faultline_segment *s);
/* the key table of a peer's segment as it was checked then: its fields may have changed since */
const struct faultline_mr *seg_peer_mrs(const struct faultline_segment *s, uint64_t *entries);
/* the same of its queue pairs, and of a chunk of its page-present tables (NULL: there is none at off) */
const struct faultline_qp *seg_peer_qps(const struct faultline_segment *s, uint64_t *entries);
const void *seg_peer_chunk(const struct faultline_segment *s, uint64_t off);
/*
 * Maps what peers of that process write: -EPROTO when it is not that. own: this process is the one; then it lies at
 * an address that says who it is, since by chance no other program has anything there.
 */
int seg_map_peers(int fd, bool own, struct faultline_peers **out);
void seg_unmap_peers(struct faultline_peers *peers);

static inline void cnt_add(struct faultline_device *d, enum faultline_counter c, uint64_t n)
{
	__atomic_fetch_add(&d->counter[c], n, __ATOMIC_RELAXED);
}

static inline void cnt_inc(struct faultline_device *d, enum faultline_counter c)
{
	cnt_add(d, c, 1);
}

static inline void cnt_dec(struct faultline_device *d, enum faultline_counter c)
{
	__atomic_fetch_sub(&d->counter[c], 1, __ATOMIC_RELAXED);
}

/* the histogram's bucket of a time: include/faultline/segment.h */
static inline unsigned cnt_bucket(uint64_t ns)
{
	uint64_t us = ns / 1000;
	unsigned b = us ? 64 - (unsigned)__builtin_clzll(us) : 0;

	return b < FAULTLINE_BUCKETS ? b : FAULTLINE_BUCKETS - 1;
}

/* mr: or NULL */
static inline void cnt_time(struct faultline_device *d, struct faultline_mr *mr, enum faultline_histogram h,
			    uint64_t ns)
{
	unsigned b = cnt_bucket(ns);

	__atomic_fetch_add(&d->histogram[h][b], 1, __ATOMIC_RELAXED);
	if (mr)
		__atomic_fetch_add(&mr->histogram[h][b], 1, __ATOMIC_RELAXED);
}

#endif
