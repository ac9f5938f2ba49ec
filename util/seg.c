/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shared segment: a sparse memfd, as large as the page-present tables could ever need, of which
 * the kernel backs only what was touched. In it: the header, the key table, and the arena of 4 KiB
 * chunks.
 *
 * It is sealed: it can neither shrink (who maps it never gets a SIGBUS) nor, after our own mapping
 * is made, be mapped for writing by anybody, whatever descriptor he holds. What it says is still
 * another process's word: seg_map_peer() checks the shape once and keeps what it checked on a
 * private page in front of the mapping.
 *
 * The list of free chunks is an array of numbers beside the chunks rather than links in them, so
 * that a chunk is zero from the moment it is freed to the moment it is written again.
 */
#include "util/seg.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "util/log.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u /* Linux 6.3 */
#endif

#define MR_ENTRIES (1u << 19)
#define QP_ENTRIES (1u << FAULTLINE_QPN_SLOT_SHIFT)
#define PAGE	   4096ul
#define ROUND(x)   (((x) + PAGE - 1) & ~(PAGE - 1))

/* largest first; the arena of the smallest, at a byte a page, still holds 256 GiB of mapped memory, and its
 * key table 65,536 MRs */
static const uint64_t try_size[] = {4ull << 30, 1ull << 30, 256ull << 20, 128ull << 20};
#define NUM_SIZES (sizeof(try_size) / sizeof(try_size[0]))

static int open_memfd(void)
{
	int fd = memfd_create("faultline", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("faultline", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return fd < 0 ? -errno : fd;
}

/* Sets the size, maps. Past RLIMIT_FSIZE ftruncate() would raise SIGXFSZ: do not ask then. */
static int map_largest(struct seg *seg)
{
	struct rlimit fsize;
	int err = -ENOMEM;

	if (getrlimit(RLIMIT_FSIZE, &fsize))
		fsize.rlim_cur = RLIM_INFINITY;
	for (size_t i = 0; i < NUM_SIZES; i++) {
		void *p;

		if (fsize.rlim_cur != RLIM_INFINITY && try_size[i] > fsize.rlim_cur) {
			err = -EFBIG;
			continue;
		}
		if (ftruncate(seg->fd, (off_t)try_size[i])) {
			err = -errno;
			continue;
		}
		p = mmap(NULL, try_size[i], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
			 seg->fd, 0);
		if (p == MAP_FAILED) {
			err = -errno;
			continue;
		}
		seg->s = p;
		seg->map_size = try_size[i];
		return 0;
	}
	return err;
}

/* The read-only descriptor. Without /proc a duplicate must do: the seals forbid writing through it.
 */
static int open_ro(int fd)
{
	char path[40];
	int ro;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ro = open(path, O_RDONLY | O_CLOEXEC);
	if (ro < 0)
		ro = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return ro < 0 ? -errno : ro;
}

static void lay_out(struct seg *seg)
{
	struct faultline_segment *s = seg->s;
	uint64_t entries = MR_ENTRIES, mrs, qps, links, chunks;
	struct timespec now;

	/* a quarter at most of a segment that had to be small */
	while (entries * sizeof(struct faultline_mr) > seg->map_size / 4)
		entries /= 2;
	mrs = ROUND(sizeof(*s));
	qps = mrs + ROUND(entries * sizeof(struct faultline_mr));
	links = qps + ROUND(QP_ENTRIES * sizeof(struct faultline_qp));
	chunks = (seg->map_size - links) / (SEG_CHUNK + sizeof(uint32_t));

	seg->next = seg_ptr(seg, links);
	seg->first_free = 0;
	seg->fresh = 0;
	while (links + ROUND(chunks * sizeof(uint32_t)) + chunks * SEG_CHUNK > seg->map_size)
		chunks--;
	seg->num_chunks = (uint32_t)chunks;

	clock_gettime(CLOCK_BOOTTIME, &now);
	s->version = FAULTLINE_SEGMENT_VERSION;
	s->size_of_header = sizeof(*s);
	s->pid = (uint32_t)getpid();
	s->uid = (uint32_t)geteuid();
	s->start_ns = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
	snprintf(s->comm, sizeof(s->comm), "%s", program_invocation_short_name);
	s->size = seg->map_size;
	s->mr_table = mrs;
	s->mr_entries = entries;
	s->qp_table = qps;
	s->qp_entries = QP_ENTRIES;
	s->arena = links + ROUND(chunks * sizeof(uint32_t));
	s->arena_size = chunks * SEG_CHUNK;
	__atomic_store_n(&s->magic, FAULTLINE_SEGMENT_MAGIC, __ATOMIC_RELEASE);
}

/* Without it peers send packets, so it is no error. */
static void create_peers(struct seg *seg)
{
	int fd = open_memfd();

	if (fd < 0)
		return;
	if (ftruncate(fd, sizeof(*seg->peers)) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ||
	    seg_map_peers(fd, true, &seg->peers)) {
		close(fd);
		return;
	}
	seg->peers_fd = fd;
}

int seg_create(struct seg *seg)
{
	int err;

	memset(seg, 0, sizeof(*seg));
	seg->ro_fd = seg->peers_fd = -1;
	fl_mutex_init(&seg->lock, LOCK_PT_ARENA);
	seg->fd = open_memfd();
	if (seg->fd < 0) {
		err = seg->fd;
		goto err_lock;
	}
	err = map_largest(seg);
	if (err)
		goto err_fd;
	/* a core dump of gigabytes of tables helps nobody */
	madvise(seg->s, seg->map_size, MADV_DONTDUMP);
	lay_out(seg);
	/* FUTURE_WRITE is of Linux 5.1: without it the read-only descriptor is all the protection
	 */
	if (fcntl(seg->fd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) &&
	    fcntl(seg->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		err = -errno;
		goto err_map;
	}
	seg->ro_fd = open_ro(seg->fd);
	if (seg->ro_fd < 0) {
		err = seg->ro_fd;
		goto err_map;
	}
	create_peers(seg);
	return 0;

err_map:
	munmap(seg->s, seg->map_size);
err_fd:
	close(seg->fd);
err_lock:
	fl_mutex_destroy(&seg->lock);
	memset(seg, 0, sizeof(*seg));
	seg->fd = seg->ro_fd = seg->peers_fd = -1;
	fl_err("cannot make the shared segment: %s (limits: ulimit -v, ulimit -f)", strerror(-err));
	return err;
}

void seg_destroy(struct seg *seg)
{
	if (!seg->s)
		return;
	munmap(seg->s, seg->map_size);
	close(seg->fd);
	close(seg->ro_fd);
	if (seg->peers) {
		seg_unmap_peers(seg->peers);
		close(seg->peers_fd);
	}
	fl_mutex_destroy(&seg->lock);
	memset(seg, 0, sizeof(*seg));
	seg->fd = seg->ro_fd = seg->peers_fd = -1;
}

uint64_t seg_chunk_alloc(struct seg *seg)
{
	uint32_t n = UINT32_MAX;

	fl_lock(&seg->lock);
	if (seg->first_free) {
		n = seg->first_free - 1;
		seg->first_free = seg->next[n];
	} else if (seg->fresh < seg->num_chunks) {
		n = seg->fresh++;
	}
	fl_unlock(&seg->lock);
	return n == UINT32_MAX ? 0 : seg->s->arena + (uint64_t)n * SEG_CHUNK;
}

void seg_chunk_free(struct seg *seg, uint64_t off)
{
	uint32_t n = (uint32_t)((off - seg->s->arena) / SEG_CHUNK);
	uint64_t *word = seg_ptr(seg, off);

	/* atomic stores: readers of the tables take no lock (umem_odp.c, ib_umem_odp_present()) */
	for (unsigned i = 0; i < SEG_CHUNK / sizeof(*word); i++)
		__atomic_store_n(&word[i], 0, __ATOMIC_RELAXED);
	fl_lock(&seg->lock);
	seg->next[n] = seg->first_free;
	seg->first_free = n + 1;
	fl_unlock(&seg->lock);
}

/* ---- other processes' segments ---- */

/* what was checked; the page before the mapping */
struct peer_map {
	uint64_t size;
	uint64_t mr_table, mr_entries;
	uint64_t qp_table, qp_entries;
	uint64_t arena, arena_size;
};

static struct peer_map *peer_of(const struct faultline_segment *s)
{
	return (struct peer_map *)((uintptr_t)s - PAGE);
}

static bool inside(uint64_t off, uint64_t n, uint64_t each, uint64_t size)
{
	uint64_t bytes;

	return !__builtin_mul_overflow(n, each, &bytes) && off <= size && bytes <= size - off;
}

static int check_peer(const struct faultline_segment *s, const struct stat *st, struct peer_map *m)
{
	m->arena = __atomic_load_n(&s->arena, __ATOMIC_RELAXED);
	m->arena_size = __atomic_load_n(&s->arena_size, __ATOMIC_RELAXED);
	m->qp_table = __atomic_load_n(&s->qp_table, __ATOMIC_RELAXED);
	m->qp_entries = __atomic_load_n(&s->qp_entries, __ATOMIC_RELAXED);
	m->mr_table = __atomic_load_n(&s->mr_table, __ATOMIC_RELAXED);
	m->mr_entries = __atomic_load_n(&s->mr_entries, __ATOMIC_RELAXED);
	if (__atomic_load_n(&s->magic, __ATOMIC_ACQUIRE) != FAULTLINE_SEGMENT_MAGIC ||
	    s->version != FAULTLINE_SEGMENT_VERSION || s->size_of_header != sizeof(*s))
		return -EPROTO;
	/* the owner by the inode: s->uid is a number of the owner's user namespace */
	if ((st->st_uid != geteuid() && geteuid()) || s->size != m->size ||
	    s->num_devices > FAULTLINE_MAX_DEVICES)
		return -EPROTO;
	if (m->mr_table % 8 || m->mr_table < sizeof(*s) ||
	    !inside(m->mr_table, m->mr_entries, sizeof(struct faultline_mr), m->size))
		return -EPROTO;
	if (m->qp_table % 8 || m->qp_table < sizeof(*s) ||
	    !inside(m->qp_table, m->qp_entries, sizeof(struct faultline_qp), m->size))
		return -EPROTO;
	if (m->arena % SEG_CHUNK || m->arena < sizeof(*s) || !inside(m->arena, m->arena_size, 1, m->size))
		return -EPROTO;
	return 0;
}

int seg_map_peer(int fd, const struct faultline_segment **out)
{
	struct stat st;
	struct peer_map m, *front;
	char *base;
	int seals, err;

	if (fstat(fd, &st))
		return -errno;
	seals = fcntl(fd, F_GET_SEALS);
	if (!S_ISREG(st.st_mode) || seals < 0 || !(seals & F_SEAL_SHRINK) ||
	    (uint64_t)st.st_size < sizeof(struct faultline_segment) || st.st_size % (off_t)PAGE)
		return -EPROTO;
	m.size = (uint64_t)st.st_size;
	base = mmap(NULL, PAGE + m.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		    0);
	if (base == MAP_FAILED)
		return -errno;
	if (mprotect(base, PAGE, PROT_READ | PROT_WRITE) ||
	    mmap(base + PAGE, m.size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		err = -errno;
		goto err;
	}
	madvise(base + PAGE, m.size, MADV_DONTDUMP);
	err = check_peer((const struct faultline_segment *)(base + PAGE), &st, &m);
	if (err)
		goto err;
	front = (struct peer_map *)base;
	*front = m;
	*out = (const struct faultline_segment *)(base + PAGE);
	return 0;

err:
	munmap(base, PAGE + m.size);
	return err;
}

void seg_unmap_peer(const struct faultline_segment *s)
{
	struct peer_map *m = peer_of(s);

	munmap(m, PAGE + m->size);
}

uint64_t seg_peer_size(const struct faultline_segment *s)
{
	return peer_of(s)->size;
}

const struct faultline_mr *seg_peer_mrs(const struct faultline_segment *s, uint64_t *entries)
{
	*entries = peer_of(s)->mr_entries;
	return (const struct faultline_mr *)((const char *)s + peer_of(s)->mr_table);
}

const struct faultline_qp *seg_peer_qps(const struct faultline_segment *s, uint64_t *entries)
{
	*entries = peer_of(s)->qp_entries;
	return (const struct faultline_qp *)((const char *)s + peer_of(s)->qp_table);
}

const void *seg_peer_chunk(const struct faultline_segment *s, uint64_t off)
{
	const struct peer_map *m = peer_of(s);

	if (off % SEG_CHUNK || off < m->arena || off - m->arena >= m->arena_size)
		return NULL;
	return m->arena_size - (off - m->arena) < SEG_CHUNK ? NULL : (const char *)s + off;
}

/* Far below where the kernel puts mappings by itself, and drawn by lot: 2^27 pages, hardly ever in use. */
static void *lonely_place(void)
{
	uint64_t r;

	if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != sizeof(r))
		return NULL;
	return (void *)(0x7e8000000000ull + r % (1ull << 39) / PAGE * PAGE);
}

int seg_map_peers(int fd, bool own, struct faultline_peers **out)
{
	const size_t size = sizeof(struct faultline_peers);
	int seals = fcntl(fd, F_GET_SEALS);
	void *p, *at = own ? lonely_place() : NULL;
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) || st.st_size != (off_t)size)
		return -EPROTO;
	p = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); /* there, unless something is */
	if (p == MAP_FAILED)
		return -errno;
	*out = p;
	return 0;
}

void seg_unmap_peers(struct faultline_peers *peers)
{
	munmap(peers, sizeof(*peers));
}
