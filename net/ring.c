/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ring. Data is mapped twice in a row, so that a record is contiguous wherever it begins. head and
 * tail count bytes and never wrap. The producer writes a record, then tail; the consumer reads tail, then
 * the record, then writes head; each keeps a copy of the other's index and looks again only when it
 * must, so that their cache lines move as seldom as can be.
 *
 * Two flags, each with its pair of fences (the store of one side and the load of the other must not both
 * miss), keep system calls away while both sides run:
 *   A  producer: store tail, fence, load asleep       consumer: store asleep, fence, load tail
 *   B  producer: store want_space, fence, load head   consumer: store head, fence, load want_space
 *
 * The page of indexes is mapped apart from the data. Pollers look at a receive ring's tail without a
 * lock; so that page never goes away: when a peer is gone, an anonymous page takes its place.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "net/ring.h"
#include "util/log.h"

#define RING_MAGIC 0x31676e69726c66ull /* "flring1" */
#define RING_MASK  (RING_BYTES - 1)
#define RING_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define RING_ENOUGH (RING_BYTES / 4)

_Static_assert(sizeof(struct ring_shared) <= RING_HEADER, "the indexes fit their page");

static uint32_t round_up(uint32_t len)
{
	return (len + RING_ALIGN - 1) & ~(RING_ALIGN - 1);
}

static void wake(int fd)
{
	uint64_t one = 1;

	/* EAGAIN: its counter is full, so it is readable already */
	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

int ring_create(void)
{
	struct ring_shared *sh;
	int fd, ret;

	fd = memfd_create("faultline-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, RING_HEADER + RING_BYTES) || fcntl(fd, F_ADD_SEALS, RING_SEALS))
		goto err;
	sh = mmap(NULL, RING_HEADER, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (sh == MAP_FAILED)
		goto err;
	sh->magic = RING_MAGIC;
	sh->bytes = RING_BYTES;
	atomic_store(&sh->asleep, 1);
	munmap(sh, RING_HEADER);
	return fd;
err:
	ret = -errno;
	close(fd);
	return ret;
}

int ring_check(int memfd)
{
	uint64_t id[2];
	struct stat st;
	int seals;

	seals = fcntl(memfd, F_GET_SEALS);
	if (seals < 0 || (seals & RING_SEALS) != RING_SEALS)
		return -EPROTO;
	if (fstat(memfd, &st) || st.st_size != RING_HEADER + RING_BYTES)
		return -EPROTO;
	if (pread(memfd, id, sizeof(id), 0) != sizeof(id) || id[0] != RING_MAGIC ||
	    id[1] != RING_BYTES)
		return -EPROTO;
	return 0;
}

static uint8_t *map_data(int memfd)
{
	uint8_t *p;
	int half;

	p = mmap(NULL, 2 * RING_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	for (half = 0; half < 2; half++) {
		if (mmap(p + half * RING_BYTES, RING_BYTES, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED | MAP_POPULATE, memfd, RING_HEADER) == MAP_FAILED) {
			munmap(p, 2 * RING_BYTES);
			return NULL;
		}
	}
	return p;
}

int ring_tx_attach(struct ring_tx *r, int memfd, int data_fd)
{
	struct ring_shared *sh;
	uint8_t *data;

	sh = mmap(NULL, RING_HEADER, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	if (sh == MAP_FAILED)
		return -errno;
	data = map_data(memfd);
	if (!data) {
		munmap(sh, RING_HEADER);
		return -ENOMEM;
	}
	*r = (struct ring_tx){.sh = sh, .data = data, .data_fd = data_fd};
	return 0;
}

void ring_tx_detach(struct ring_tx *r)
{
	munmap(r->sh, RING_HEADER);
	munmap(r->data, 2 * RING_BYTES);
	r->sh = NULL;
	r->data = NULL;
}

int ring_rx_init(struct ring_rx *r)
{
	memset(r, 0, sizeof(*r));
	r->space_fd = -1;
	r->sh = mmap(NULL, RING_HEADER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return r->sh == MAP_FAILED ? -errno : 0;
}

void ring_rx_destroy(struct ring_rx *r)
{
	if (r->data)
		munmap(r->data, 2 * RING_BYTES);
	munmap(r->sh, RING_HEADER);
}

int ring_rx_attach(struct ring_rx *r, int memfd, int space_fd)
{
	r->data = map_data(memfd);
	if (!r->data)
		return -ENOMEM;
	r->tail = 0;
	atomic_store(&r->head, 0);
	r->space_fd = space_fd;
	r->broken = false;
	if (mmap(r->sh, RING_HEADER, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd, 0) ==
	    MAP_FAILED) {
		munmap(r->data, 2 * RING_BYTES);
		r->data = NULL;
		return -ENOMEM;
	}
	return 0;
}

void ring_rx_detach(struct ring_rx *r)
{
	/* Fails only where the kernel has no memory for a mapping: then the old page stays, as good. */
	mmap(r->sh, RING_HEADER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	atomic_store(&r->head, atomic_load(&r->sh->tail));
	munmap(r->data, 2 * RING_BYTES);
	r->data = NULL;
	r->space_fd = -1;
}

/* ---- producer ---- */

/* Looks at head anew; false: it cannot be. */
static bool refresh_head(struct ring_tx *r)
{
	/* acquire: the consumer's reads of what we are to overwrite are before its store of head */
	uint64_t head = atomic_load_explicit(&r->sh->head, memory_order_acquire);

	if (head < r->head || head > r->tail) {
		if (!r->broken)
			fl_warn("shm ring: the peer's head %#lx is not in [%#lx, %#lx]; abandoning the ring",
				head, r->head, r->tail);
		r->broken = true;
		return false;
	}
	r->head = head;
	return true;
}

uint8_t *ring_reserve(struct ring_tx *r, uint32_t len)
{
	len = round_up(len);
	if (r->broken || len > RING_BYTES)
		return NULL;
	if (r->tail + len - r->head > RING_BYTES) {
		if (!refresh_head(r) || r->tail + len - r->head > RING_BYTES)
			return NULL;
	}
	return r->data + (r->tail & RING_MASK);
}

void ring_publish(struct ring_tx *r, uint32_t len)
{
	r->tail += round_up(len);
	/* release: the record is before it; pairs with the acquire in ring_pending() and ring_peek() */
	atomic_store_explicit(&r->sh->tail, r->tail, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst); /* pair A */
	if (atomic_load_explicit(&r->sh->asleep, memory_order_relaxed) &&
	    atomic_exchange(&r->sh->asleep, 0))
		wake(r->data_fd);
}

bool ring_want_space(struct ring_tx *r, uint32_t len)
{
	atomic_store_explicit(&r->sh->want_space, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* pair B */
	return ring_reserve(r, len) != NULL;
}

bool ring_has_space(const struct ring_tx *r)
{
	uint64_t used = atomic_load_explicit(&r->sh->tail, memory_order_relaxed) -
			atomic_load_explicit(&r->sh->head, memory_order_relaxed);

	/* more than all: it makes no sense, and the next use will find out */
	return used <= RING_BYTES - RING_ENOUGH || used > RING_BYTES;
}

/* ---- consumer ---- */

uint32_t ring_peek(struct ring_rx *r, const uint8_t **p)
{
	uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
	uint64_t avail;

	if (r->broken)
		return 0;
	if (r->tail == head) {
		/* acquire: pairs with the release in ring_publish() */
		r->tail = atomic_load_explicit(&r->sh->tail, memory_order_acquire);
		avail = r->tail - head;
		if (avail > RING_BYTES || avail % RING_ALIGN) {
			fl_warn("shm ring: the peer's tail %#lx makes no sense for head %#lx; abandoning the ring",
				r->tail, head);
			r->broken = true;
			return 0;
		}
	}
	*p = r->data + (head & RING_MASK);
	return r->tail - head;
}

void ring_consume(struct ring_rx *r, uint32_t len)
{
	uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed) + round_up(len);

	atomic_store_explicit(&r->head, head, memory_order_relaxed);
	/* release: our reads of the record are before it; pairs with the acquire in refresh_head() */
	atomic_store_explicit(&r->sh->head, head, memory_order_release);
	/* a hint, without the fence: a producer that has waited for some time need not wait for the end */
	if (atomic_load_explicit(&r->sh->want_space, memory_order_relaxed))
		ring_consumed(r);
}

void ring_consumed(struct ring_rx *r)
{
	uint64_t tail, head = atomic_load_explicit(&r->head, memory_order_relaxed);

	atomic_thread_fence(memory_order_seq_cst); /* pair B */
	if (!atomic_load_explicit(&r->sh->want_space, memory_order_relaxed))
		return;
	tail = atomic_load_explicit(&r->sh->tail, memory_order_relaxed);
	if (tail - head <= RING_BYTES - RING_ENOUGH && atomic_exchange(&r->sh->want_space, 0))
		wake(r->space_fd);
}

void ring_set_asleep(struct ring_rx *r, bool asleep)
{
	atomic_store_explicit(&r->sh->asleep, asleep, memory_order_relaxed);
	if (asleep)
		atomic_thread_fence(memory_order_seq_cst); /* pair A: the caller looks at tail next */
}
