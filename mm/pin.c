/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Long-term pins. A buffer registered with io_uring is pinned by the same call and under the same rule
 * (FOLL_LONGTERM, RLIMIT_MEMLOCK) as a kernel driver's memory region, and like one it stays what it
 * was when the application discards or unmaps the range. A ring serves as nothing but a table of such
 * buffers: at most 1 GiB each, at most 16384 a ring.
 *
 * Two differences, and what is done about them. io_uring counts per user, a driver per process: we
 * count for ourselves against the process's limit first, and when io_uring refuses all the same, pin
 * by mlock(). io_uring pins for writing always: memory that may only be read, for a region that only
 * reads, is mlock()ed too. mlock does not nest, so ranges locked are kept in a tree and unlocked where
 * the last one goes.
 *
 * The pages stay reachable when their addresses are not theirs any more (pin_copy).
 */
#include <errno.h>
#include <liburing.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "mm/mm_internal.h"
#include "util/interval_tree.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/cancel.h"

#define RING_BUFS 16384u
#define BUF_MAX	  (1ull << 30)

struct pin_ring {
	struct io_uring ring;
	struct pin_ring *next;
	unsigned num_free;
	uint16_t free[RING_BUFS];
};

struct pin_buf {
	struct pin_ring *ring;
	uint16_t index;
};

struct mm_pin {
	struct interval_node locked; /* by pages; in mlocked when num_bufs is 0 */
	unsigned generation;
	unsigned num_bufs;
	struct pin_buf buf[];
};

/* pin_lock: all of this. The event thread of uffd.c never takes it. */
static struct fl_mutex pin_lock = FL_MUTEX_INIT(LOCK_LEAF);
static struct pin_ring *rings;
static struct interval_tree mlocked = INTERVAL_TREE_INIT;
static uint64_t pinned_bytes;
static bool use_uring = true, use_mlock = true;
static int uring_error; /* why there is none */

static unsigned generation; /* counts forks */

static void stage_fork_child(void);

void pin_fork_child(void)
{
	struct pin_ring *r, *next;

	generation++;
	fl_mutex_init(&pin_lock, LOCK_LEAF);
	for (r = rings; r; r = next) {
		next = r->next;
		/* its mappings did not come along (ring_dontfork); the pins are the parent's */
		close(r->ring.ring_fd);
		free(r);
	}
	rings = NULL;
	stage_fork_child();
	mlocked = (struct interval_tree)INTERVAL_TREE_INIT; /* mlock is not inherited */
	pinned_bytes = 0;
}

/* ---- the limit ---- */

bool mm_probe_ipc_lock(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2];

	if (syscall(SYS_capget, &h, d))
		return false;
	return d[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK);
}

static uint64_t memlock_limit(void)
{
	struct rlimit rl;

	return getrlimit(RLIMIT_MEMLOCK, &rl) ? RLIM_INFINITY : rl.rlim_cur;
}

/* pin_lock held */
static int over_limit(uint64_t bytes, const char *who)
{
	static uint64_t said;

	/* programs try again with other flags */
	if (said == bytes)
		return -ENOMEM;
	said = bytes;
	fl_err("cannot pin %llu bytes (%llu are pinned): over RLIMIT_MEMLOCK, %llu bytes, %s. Raise it "
	       "(`ulimit -l`, /etc/security/limits.conf, LimitMEMLOCK= of the service, docker run "
	       "--ulimit memlock=-1), grant CAP_IPC_LOCK, or register on demand",
	       (unsigned long long)bytes, (unsigned long long)pinned_bytes,
	       (unsigned long long)memlock_limit(), who);
	return -ENOMEM;
}

/* ---- io_uring ---- */

/* pin_lock held */
static struct pin_ring *add_ring(void)
{
	struct pin_ring *r = malloc(sizeof(*r));
	int err;

	if (!r)
		return NULL;
	err = io_uring_queue_init(2, &r->ring, 0);
	if (!err) {
		err = io_uring_register_buffers_sparse(&r->ring, RING_BUFS);
		if (err)
			io_uring_queue_exit(&r->ring);
	}
	if (err) {
		free(r);
		if (!rings)
			uring_error = err;
		return NULL;
	}
	io_uring_ring_dontfork(&r->ring);
	/* the lowest last: it is taken first */
	for (r->num_free = 0; r->num_free < RING_BUFS; r->num_free++)
		r->free[r->num_free] = (uint16_t)(RING_BUFS - 1 - r->num_free);
	r->next = rings;
	rings = r;
	return r;
}

static int update(struct pin_ring *r, unsigned index, uint64_t addr, uint64_t len)
{
	struct iovec iov = {.iov_base = (void *)addr, .iov_len = len};
	__u64 tag = 0;
	int ret = io_uring_register_buffers_update_tag(&r->ring, index, &iov, &tag, 1);

	/* answers how many it did: 0 when the first failed in some kernels */
	return ret == 1 ? 0 : ret < 0 ? ret : -EFAULT;
}

static int take_buf(struct pin_buf *b)
{
	struct pin_ring *r, *added = NULL;
	int err = 0;

	fl_lock(&pin_lock);
	for (r = rings; r && !r->num_free; r = r->next)
		;
	if (!r && !uring_error)
		r = added = add_ring();
	if (r) {
		b->ring = r;
		b->index = r->free[--r->num_free];
	} else {
		err = uring_error ? uring_error : -ENOMEM;
	}
	fl_unlock(&pin_lock);
	if (added) {
		mm_private_add(added->ring.sq.ring_ptr, added->ring.sq.ring_sz);
		mm_private_add(added->ring.sq.sqes, added->ring.sq.ring_entries * sizeof(struct io_uring_sqe));
	}
	return err;
}

static void give_buf(struct pin_buf *b)
{
	fl_lock(&pin_lock);
	b->ring->free[b->ring->num_free++] = b->index;
	fl_unlock(&pin_lock);
}

/*
 * The first ring is made now: its mappings would go into any hole later, also one that the application has made
 * by munmap() to put something there by MAP_FIXED.
 */
void pin_init(const struct fl_config *cfg)
{
	struct pin_buf b;

	use_uring = strcmp(cfg->pin, "mlock") != 0;
	use_mlock = strcmp(cfg->pin, "io_uring") != 0;
	if (use_uring && !take_buf(&b))
		give_buf(&b);
}

static void uring_unpin(struct mm_pin *pin)
{
	while (pin->num_bufs) {
		struct pin_buf *b = &pin->buf[--pin->num_bufs];

		update(b->ring, b->index, 0, 0);
		give_buf(b);
	}
}

static int uring_pin(struct mm_pin *pin)
{
	uint64_t at = pin->locked.start, end = pin->locked.end;

	while (at < end) {
		uint64_t n = end - at < BUF_MAX ? end - at : BUF_MAX;
		struct pin_buf *b = &pin->buf[pin->num_bufs];
		int err = take_buf(b);

		if (!err) {
			err = update(b->ring, b->index, at, n);
			if (err)
				give_buf(b);
		}
		if (err) {
			uring_unpin(pin);
			return err;
		}
		pin->num_bufs++;
		at += n;
	}
	return 0;
}

/* ---- mlock ---- */

static int mlock_pin(struct mm_pin *pin, bool write)
{
	uint64_t start = pin->locked.start, end = pin->locked.end;
	int err = mm_populate(start, end, write, NULL);

	if (err)
		return err;
	fl_lock(&pin_lock);
	err = mlock((void *)start, end - start) ? errno : 0;
	if (!err)
		interval_insert(&mlocked, &pin->locked);
	fl_unlock(&pin_lock);
	if (!err)
		return 0;
	/* all of it was mapped a moment ago: what is refused is the locking */
	if (mm_populate(start, end, write, NULL))
		return -EFAULT;
	fl_lock(&pin_lock);
	err = over_limit(end - start, "or the memory there is");
	fl_unlock(&pin_lock);
	return err;
}

static void mlock_unpin(struct mm_pin *pin)
{
	uint64_t start = pin->locked.start, from, to;

	fl_lock(&pin_lock);
	interval_remove(&mlocked, &pin->locked);
	while (interval_next_gap(&mlocked, &start, pin->locked.end, &from, &to))
		munlock((void *)from, to - from); /* ENOMEM: unmapped meanwhile */
	fl_unlock(&pin_lock);
}

/* ---- the pages themselves ---- */

/*
 * A registered buffer keeps its pages whatever becomes of their addresses, and file I/O reaches them:
 * READ_FIXED from a file of ours writes to them, WRITE_FIXED to that file reads them. One staging file
 * of a process; stage_lock guards it, and the submission side of every ring. It is never mapped: a
 * mapping made now would land where the application has just unmapped, and may map again.
 */
#define STAGE_BYTES (256u << 10)
static struct fl_mutex stage_lock = FL_MUTEX_INIT(LOCK_LEAF);
static int stage_fd = -1;
static bool stage_broken;

/* stage_lock held */
static int stage_open(void)
{
	if (stage_fd >= 0)
		return stage_broken ? -EIO : 0;
	stage_fd = memfd_create("faultline-pin", MFD_CLOEXEC);
	if (stage_fd < 0)
		return -errno;
	if (!ftruncate(stage_fd, STAGE_BYTES))
		return 0;
	stage_broken = true;
	return -ENOMEM;
}

static void stage_fork_child(void)
{
	if (stage_fd >= 0)
		close(stage_fd);
	stage_fd = -1;
	stage_broken = false;
	fl_mutex_init(&stage_lock, LOCK_LEAF);
}

/* n bytes between the start of the staging file and a buffer's pages. stage_lock held. */
static int stage_move(const struct pin_buf *b, uint64_t addr, unsigned n, bool to_pages)
{
	struct io_uring *ring = &b->ring->ring;

	for (unsigned done = 0; done < n;) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
		struct io_uring_cqe *cqe;
		int ret = -EBUSY;

		if (sqe) {
			if (to_pages)
				io_uring_prep_read_fixed(sqe, stage_fd, (void *)(addr + done), n - done,
							 done, b->index);
			else
				io_uring_prep_write_fixed(sqe, stage_fd, (void *)(addr + done),
							  n - done, done, b->index);
			do
				ret = io_uring_submit_and_wait(ring, 1);
			while (ret == -EINTR || ret == -EAGAIN);
		}
		if (ret < 1) {
			stage_broken = true; /* a request is left in the ring */
			return ret ? ret : -EIO;
		}
		do
			ret = io_uring_wait_cqe(ring, &cqe);
		while (ret == -EINTR);
		if (ret) {
			stage_broken = true;
			return ret;
		}
		ret = cqe->res;
		io_uring_cqe_seen(ring, cqe);
		if (ret <= 0)
			return ret ? ret : -EIO;
		done += (unsigned)ret;
	}
	return 0;
}

/* stage_lock held; n lies in the staging file and in one buffer */
static int stage_copy(const struct mm_pin *pin, uint64_t addr, void *buf, unsigned n, bool to_pages)
{
	const struct pin_buf *b = &pin->buf[(addr - pin->locked.start) / BUF_MAX];
	int ret;

	/* a file of memory: all of it in one call, or a buffer that cannot be had */
	if (to_pages && pwrite(stage_fd, buf, n, 0) != (ssize_t)n)
		return -EFAULT;
	ret = stage_move(b, addr, n, to_pages);
	if (!ret && !to_pages && pread(stage_fd, buf, n, 0) != (ssize_t)n)
		ret = -EFAULT;
	return ret;
}

int pin_copy(struct mm_pin *pin, uint64_t addr, void *buf, size_t len, bool to_pages)
{
	NO_CANCEL;
	int ret;

	if (!pin->num_bufs)
		return -EOPNOTSUPP;
	fl_lock(&stage_lock);
	ret = stage_open();
	while (len && !ret) {
		uint64_t left = BUF_MAX - (addr - pin->locked.start) % BUF_MAX;
		unsigned n = STAGE_BYTES;

		n = n < left ? n : (unsigned)left;
		n = n < len ? n : (unsigned)len;
		ret = stage_copy(pin, addr, buf, n, to_pages);
		addr += n;
		buf = (char *)buf + n;
		len -= n;
	}
	fl_unlock(&stage_lock);
	return ret;
}

int pin_atomic(struct mm_pin *pin, uint64_t addr, bool cmpswap, uint64_t swap_add, uint64_t compare,
	       uint64_t *orig)
{
	NO_CANCEL;
	uint64_t next;
	int ret;

	if (!pin->num_bufs)
		return -EOPNOTSUPP;
	fl_lock(&stage_lock);
	ret = stage_open();
	if (!ret)
		ret = stage_copy(pin, addr, orig, 8, false);
	if (!ret && (!cmpswap || *orig == compare)) {
		next = cmpswap ? swap_add : *orig + swap_add;
		ret = stage_copy(pin, addr, &next, 8, true);
	}
	fl_unlock(&stage_lock);
	return ret;
}

/* ---- the door ---- */

static int reserve(uint64_t bytes)
{
	uint64_t limit = memlock_limit();
	int err = 0;

	fl_lock(&pin_lock);
	if (bytes > limit || pinned_bytes > limit - bytes) {
		if (limit != RLIM_INFINITY && !mm_probe_ipc_lock())
			err = over_limit(bytes, "of this process");
	}
	if (!err)
		pinned_bytes += bytes;
	fl_unlock(&pin_lock);
	return err;
}

static void unreserve(uint64_t bytes)
{
	fl_lock(&pin_lock);
	pinned_bytes -= bytes;
	fl_unlock(&pin_lock);
}

static int do_pin(struct mm_pin *pin, bool write)
{
	uint64_t start = pin->locked.start, end = pin->locked.end;
	int err = -EOPNOTSUPP;

	if (use_uring) {
		err = uring_pin(pin);
		if (!err)
			return 0;
		if (err == -EFAULT) {
			/* a hole, a right that lacks, or a file that must not be pinned for writing? */
			if (write || mm_populate(start, end, false, NULL))
				return -EFAULT;
		}
		if (!use_mlock) {
			fl_err("cannot pin by io_uring: %s; the setting 'pin' forbids mlock",
			       strerror(-err));
			return err == -EFAULT || err == -ENOMEM ? err : -EOPNOTSUPP;
		}
		if (err != -EFAULT && err != -ENOMEM)
			fl_info("io_uring does not pin here (%s): mlock does", strerror(-err));
	}
	return mlock_pin(pin, write);
}

int pin_user_pages(uint64_t addr, size_t len, bool write, struct mm_pin **out)
{
	uint64_t start = addr & PAGE_MASK, end = (addr + len + PAGE_SIZE - 1) & PAGE_MASK;
	size_t bufs = (end - start + BUF_MAX - 1) / BUF_MAX;
	struct mm_pin *pin;
	uint64_t device;
	int err;

	if (!len || end <= start || end < addr + len)
		return -EFAULT;
	if (vma_device(start, end, &device)) {
		fl_warn_once("cannot pin a device's memory, mapped at %#llx: there are no pages behind it. Register it by its "
			     "dma-buf (ibv_reg_dmabuf_mr)", (unsigned long long)device);
		return -EFAULT;
	}
	guard_recheck();
	err = reserve(end - start);
	if (err)
		return err;
	pin = calloc(1, sizeof(*pin) + bufs * sizeof(pin->buf[0]));
	if (!pin) {
		unreserve(end - start);
		return -ENOMEM;
	}
	pin->locked.start = start;
	pin->locked.end = end;
	pin->generation = generation;
	err = do_pin(pin, write);
	if (err) {
		unreserve(end - start);
		free(pin);
		return err;
	}
	*out = pin;
	return 0;
}

void unpin_user_pages(struct mm_pin *pin)
{
	if (pin->generation == generation) {
		unreserve(pin->locked.end - pin->locked.start);
		if (pin->num_bufs)
			uring_unpin(pin);
		else
			mlock_unpin(pin);
	}
	free(pin);
}

const char *pin_how(const struct mm_pin *pin)
{
	return pin->num_bufs ? "io_uring" : "mlock";
}
