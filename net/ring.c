/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ring. Data is mapped twice in a row, so that a record is contiguous wherever it begins. head and
 * tail count bytes and never wrap; head is shared, tail is the producer's own: a record is there when its
 * first word is not zero. Before a record is published, the word where the next one will begin is
 * zeroed; then the record's first word is stored last. So a short message moves one cache line, the one
 * it is in, and nothing else. (The zero words are written some lines ahead, after a record is out: on
 * its way they would hold it up, since stores become visible in order and each is a cache miss.)
 * Of head the producer keeps a copy and looks again only when it must.
 *
 * Two flags, each with its pair of fences (the store of one side and the load of the other must not both
 * miss), keep system calls away while both sides run:
 *   A  producer: store record, fence, load asleep   consumer: store asleep, fence, load record
 *   B  producer: store wake_at, fence, load head    consumer: store head, fence, load wake_at
 * B's fence on the consumer's side is paid for each time head crosses a quarter of the ring, not for
 * each record: wake_at is such a boundary.
 *
 * Pollers look at a receive ring without a lock; so its memory never goes away: when a peer is gone, an
 * empty anonymous mapping takes its place.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "mm/mm.h"
#include "net/ring.h"
#include "util/log.h"
#include "util/cancel.h"

#define RING_MAGIC 0x31676e69726c66ull /* "flring1" */
#define RING_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define RING_AHEAD (4 * RING_ALIGN)
#define RING_QUARTER (RING_BYTES / 4)
#define RING_SPAN   (RING_HEADER + 2 * RING_BYTES)

_Static_assert(sizeof(struct ring_shared) <= RING_HEADER, "the indexes fit their page");

static uint32_t round_up(uint32_t len)
{
	return (len + RING_ALIGN - 1) & ~(RING_ALIGN - 1);
}

static void wake(int fd)
{
	NO_CANCEL;
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

/*
 * A mapping put over another that threads may be reading: the kernel changes one for the other, so that they
 * see the old or the new. By the system call, since thread sanitizers take mmap() for a write to it all.
 */
static void *map_over(void *at, size_t len, int flags, int fd, off_t off)
{
	return (void *)syscall(SYS_mmap, at, len, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, off);
}

/* Over a span that is reserved, all or nothing as far as the caller can tell: what fails is undone by it. */
static int map_ring(void *span, int memfd)
{
	char *p = span;
	int half;

	for (half = 0; half < 2; half++) {
		if (map_over(p + RING_HEADER + half * RING_BYTES, RING_BYTES,
			     MAP_SHARED | MAP_POPULATE, memfd, RING_HEADER) == MAP_FAILED)
			return -errno;
	}
	if (map_over(p, RING_HEADER, MAP_SHARED, memfd, 0) == MAP_FAILED)
		return -errno;
	return 0;
}

static void *map_empty(void *at)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

	return at ? map_over(at, RING_SPAN, flags, -1, 0)
		  : mmap(NULL, RING_SPAN, PROT_READ | PROT_WRITE, flags, -1, 0);
}

int ring_tx_attach(struct ring_tx *r, int memfd, int data_fd)
{
	char *span = map_empty(NULL);
	int ret;

	if (span == MAP_FAILED)
		return -errno;
	ret = map_ring(span, memfd);
	if (ret) {
		munmap(span, RING_SPAN);
		return ret;
	}
	mm_private_add(span, RING_SPAN);
	*r = (struct ring_tx){.sh = (struct ring_shared *)span, .data = (uint8_t *)span + RING_HEADER,
			      .data_fd = data_fd};
	return 0;
}

void ring_tx_detach(struct ring_tx *r)
{
	mm_private_remove(r->sh);
	munmap(r->sh, RING_SPAN);
	r->sh = NULL;
	r->data = NULL;
}

int ring_rx_init(struct ring_rx *r)
{
	char *span = map_empty(NULL);

	if (span == MAP_FAILED)
		return -errno;
	mm_private_add(span, RING_SPAN);
	r->sh = (struct ring_shared *)span;
	r->data = (uint8_t *)span + RING_HEADER;
	atomic_init(&r->head, 0);
	r->space_fd = -1;
	return 0;
}

void ring_rx_destroy(struct ring_rx *r)
{
	mm_private_remove(r->sh);
	munmap(r->sh, RING_SPAN);
}

int ring_rx_attach(struct ring_rx *r, int memfd, int space_fd)
{
	int ret;

	atomic_store(&r->head, 0);
	ret = map_ring(r->sh, memfd);
	if (ret)
		map_empty(r->sh);
	else
		r->space_fd = space_fd;
	return ret;
}

void ring_rx_detach(struct ring_rx *r)
{
	/* Where the kernel has no memory for a mapping the old ring stays: as good, nobody drains it. */
	map_empty(r->sh);
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
	/* and where the next record's first word is */
	uint64_t need = round_up(len) + RING_ALIGN;

	if (r->broken || need > RING_BYTES)
		return NULL;
	if (r->tail + need - r->head > RING_BYTES) {
		if (!refresh_head(r) || r->tail + need - r->head > RING_BYTES)
			return NULL;
	}
	if (r->dirty < r->tail + round_up(len))
		r->dirty = r->tail + round_up(len);
	return r->data + r->tail % RING_BYTES;
}

static _Atomic uint64_t *first_word(const struct ring_tx *r, uint64_t pos)
{
	return (_Atomic uint64_t *)(r->data + pos % RING_BYTES);
}

/* As far as space is known to be free. */
static void zero_ahead(struct ring_tx *r)
{
	uint64_t end = r->tail + RING_AHEAD;

	if (end > r->head + RING_BYTES)
		end = r->head + RING_BYTES;
	if (r->zeroed <= r->tail)
		r->zeroed = r->tail + RING_ALIGN; /* that word is zero by now */
	for (; r->zeroed < end; r->zeroed += RING_ALIGN)
		atomic_store_explicit(first_word(r, r->zeroed), 0, memory_order_relaxed);
}

void ring_publish(struct ring_tx *r, uint32_t len, const uint8_t line[RING_ALIGN])
{
	uint64_t next = r->tail + round_up(len), first;

	/* where an abandoned reservation has been, what was zero may not be so any more */
	if (next >= r->zeroed || next < r->dirty)
		atomic_store_explicit(first_word(r, next), 0, memory_order_relaxed);
	memcpy(r->data + r->tail % RING_BYTES + sizeof(first), line + sizeof(first),
	       RING_ALIGN - sizeof(first));
	memcpy(&first, line, sizeof(first));
	/* release: all of the record and the zero behind it; pairs with the acquire in ring_pending() */
	atomic_store_explicit(first_word(r, r->tail), first, memory_order_release);
	r->tail = next;
	atomic_thread_fence(memory_order_seq_cst); /* pair A */
	if (atomic_load_explicit(&r->sh->asleep, memory_order_relaxed) &&
	    atomic_exchange(&r->sh->asleep, 0))
		wake(r->data_fd);
	zero_ahead(r);
}

bool ring_want_space(struct ring_tx *r, uint32_t len)
{
	/* the ring is full or nearly so: a quarter from its oldest record on, and then the next boundary */
	uint64_t at = (r->head / RING_QUARTER + 2) * RING_QUARTER;

	atomic_store_explicit(&r->sh->wake_at, at, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* pair B */
	return ring_reserve(r, len) != NULL;
}

bool ring_has_space(struct ring_tx *r)
{
	/* broken: it takes (and loses) everything */
	return !refresh_head(r) || r->tail - r->head <= RING_BYTES - RING_QUARTER;
}

/* ---- consumer ---- */

void ring_consume(struct ring_rx *r, uint32_t len)
{
	uint64_t old = atomic_load_explicit(&r->head, memory_order_relaxed);
	uint64_t head = old + round_up(len), at;

	atomic_store_explicit(&r->head, head, memory_order_relaxed);
	/* release: our reads of the record are before it; pairs with the acquire in refresh_head() */
	atomic_store_explicit(&r->sh->head, head, memory_order_release);
	if (head / RING_QUARTER == old / RING_QUARTER)
		return;
	atomic_thread_fence(memory_order_seq_cst); /* pair B */
	at = atomic_load_explicit(&r->sh->wake_at, memory_order_relaxed);
	if (at && head >= at && atomic_exchange(&r->sh->wake_at, 0))
		wake(r->space_fd);
}

void ring_set_asleep(struct ring_rx *r, bool asleep)
{
	atomic_store_explicit(&r->sh->asleep, asleep, memory_order_relaxed);
	if (asleep)
		atomic_thread_fence(memory_order_seq_cst); /* pair A: the caller looks for a record next */
}
