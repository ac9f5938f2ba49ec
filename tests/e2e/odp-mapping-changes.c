/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An on-demand region is the address space as it is at each access: unmapped, mapped anew,
 * discarded, protected, moved, punched and truncated memory is seen by the device as the CPU sees
 * it, whether the device had touched it before or not, by a region of its own or by an implicit
 * one. What the CPU may not do, the network may not.
 *
 * Run with the preloaded hooks and without them, when the kernel's notifications are all there is.
 */
#include "rc.h"

#include <fcntl.h>
#include <unistd.h>

static struct rc_side a, b;
static uint8_t *buf; /* ours, pinned */
static struct ibv_mr *buf_mr;
static struct ibv_mr *all; /* an implicit region in the place of each; NULL: regions of their own */
static const char *now;

static struct ibv_mr *region(void *at, size_t size)
{
	return all ? all : rc_reg(&b, at, size, ALL_ACCESS | ODP);
}

static void drop(struct ibv_mr *mr)
{
	CHECK(mr == all || !ibv_dereg_mr(mr), "dereg");
}

static enum ibv_wc_status rdma(enum ibv_wr_opcode op, const void *at, uint32_t len,
			       struct ibv_mr *mr)
{
	rc_pair(&a, &b, &rc_default);
	CHECK(!rc_post(&a, op, (uintptr_t)buf, len, buf_mr->lkey, (uintptr_t)at, mr->rkey),
	      "%s: post", now);
	return rc_wait(&a);
}

static void refused(enum ibv_wr_opcode op, const void *at, uint32_t len, struct ibv_mr *mr)
{
	enum ibv_wc_status s = rdma(op, at, len, mr);

	CHECK(s == IBV_WC_REM_ACCESS_ERR, "%s: %s of %u bytes: %s", now,
	      op == IBV_WR_RDMA_READ ? "READ" : "WRITE", len, ibv_wc_status_str(s));
}

/* a WRITE that the CPU sees at once */
static void writes(uint8_t *at, uint32_t len, struct ibv_mr *mr)
{
	static uint64_t seed = 10;
	enum ibv_wc_status s;

	rc_fill(buf, len, 0, ++seed);
	s = rdma(IBV_WR_RDMA_WRITE, at, len, mr);
	CHECK(s == IBV_WC_SUCCESS, "%s: WRITE: %s", now, ibv_wc_status_str(s));
	CHECK(rc_differs(at, len, 0, seed) == UINT64_MAX,
	      "%s: the CPU does not see what was written", now);
}

/* a READ that sees what the CPU sees */
static void reads(const uint8_t *at, uint32_t len, struct ibv_mr *mr)
{
	enum ibv_wc_status s;

	memset(buf, 0x77, len);
	s = rdma(IBV_WR_RDMA_READ, at, len, mr);
	CHECK(s == IBV_WC_SUCCESS, "%s: READ: %s", now, ibv_wc_status_str(s));
	CHECK(!memcmp(buf, at, len), "%s: the device read other bytes than the CPU does", now);
}

static void both(uint8_t *at, uint32_t len, struct ibv_mr *mr)
{
	writes(at, len, mr);
	at[1] ^= 0xff;
	reads(at, len, mr);
}

static void anonymous(bool touched)
{
	uint8_t *m = rc_map(16 * PAGE);
	struct ibv_mr *mr = region(m, 16 * PAGE);

	if (touched)
		both(m, 16 * PAGE, mr);
	now = "discarded";
	CHECK(!madvise(m, 4 * PAGE, MADV_DONTNEED), "madvise");
	reads(m, 2 * PAGE, mr);
	CHECK(!buf[0] && !buf[PAGE + 1], "%s: READ gives old data", now);
	both(m, 4 * PAGE, mr);

	now = "unmapped";
	CHECK(!munmap(m + 4 * PAGE, 2 * PAGE), "munmap");
	refused(IBV_WR_RDMA_WRITE, m + 4 * PAGE, 8, mr);
	refused(IBV_WR_RDMA_READ, m + 5 * PAGE, 8, mr);
	refused(IBV_WR_RDMA_WRITE, m + 3 * PAGE, 2 * PAGE, mr);
	refused(IBV_WR_RDMA_READ, m + 3 * PAGE + 100, PAGE, mr);
	both(m + 3 * PAGE + 5, PAGE - 5, mr);

	now = "mapped anew";
	CHECK(mmap(m + 4 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m + 4 * PAGE,
	      "mmap");
	both(m + 4 * PAGE - 3, 2 * PAGE, mr);
	now = "mapped over";
	CHECK(mmap(m + 4 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m + 4 * PAGE,
	      "mmap");
	reads(m + 4 * PAGE, 2 * PAGE, mr);
	CHECK(!buf[0], "%s: READ gives old data", now);
	both(m + 4 * PAGE, 2 * PAGE, mr);

	now = "read-only";
	CHECK(!mprotect(m + 7 * PAGE, PAGE, PROT_READ), "mprotect");
	memset(buf, 0x5a, 8);
	uint8_t before = m[7 * PAGE];

	refused(IBV_WR_RDMA_WRITE, m + 7 * PAGE, 8, mr);
	CHECK(m[7 * PAGE] == before, "%s: was written", now);
	reads(m + 7 * PAGE, PAGE, mr);
	now = "PROT_NONE";
	CHECK(!mprotect(m + 7 * PAGE, PAGE, PROT_NONE), "mprotect");
	refused(IBV_WR_RDMA_READ, m + 7 * PAGE, 8, mr);
	refused(IBV_WR_RDMA_WRITE, m + 7 * PAGE, 8, mr);
	now = "writable again";
	CHECK(!mprotect(m + 7 * PAGE, PAGE, PROT_READ | PROT_WRITE), "mprotect");
	both(m + 7 * PAGE, PAGE, mr);

	now = "moved away";
	uint8_t *aside = rc_map(PAGE);

	CHECK(mremap(m + 9 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, aside) == aside,
	      "mremap");
	refused(IBV_WR_RDMA_WRITE, m + 9 * PAGE, 8, mr);
	now = "moved back";
	CHECK(mremap(aside, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, m + 9 * PAGE) ==
		      m + 9 * PAGE,
	      "mremap");
	both(m + 9 * PAGE, PAGE, mr);

	now = "atomics";
	*(uint64_t *)(m + 10 * PAGE + 8) = 4;
	for (int i = 0; i < 2; i++) {
		rc_pair(&a, &b, &rc_default);
		rc_post_atomic(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)buf, buf_mr->lkey,
			       (uintptr_t)m + 10 * PAGE + 8, mr->rkey, 3, 0);
		rc_expect(&a, IBV_WC_SUCCESS);
		CHECK(*(uint64_t *)buf == (i ? 0 : 4) &&
			      *(uint64_t *)(m + 10 * PAGE + 8) == (i ? 3 : 7),
		      "fetch and add: was %lu, is %lu", *(uint64_t *)buf,
		      *(uint64_t *)(m + 10 * PAGE + 8));
		CHECK(!madvise(m + 10 * PAGE, PAGE, MADV_DONTNEED), "madvise");
	}
	munmap(m + 10 * PAGE, PAGE);
	rc_pair(&a, &b, &rc_default);
	rc_post_atomic(&a, IBV_WR_ATOMIC_CMP_AND_SWP, (uintptr_t)buf, buf_mr->lkey,
		       (uintptr_t)m + 10 * PAGE + 8, mr->rkey, 3, 0);
	rc_expect(&a, IBV_WC_REM_ACCESS_ERR);
	drop(mr);
	munmap(m, 16 * PAGE);
}

static void nothing_there_at_first(void)
{
	uint8_t *m = rc_map(4 * PAGE);
	struct ibv_mr *mr;

	now = "registered unmapped";
	munmap(m, 4 * PAGE);
	mr = region(m, 4 * PAGE);
	refused(IBV_WR_RDMA_READ, m, 8, mr);
	CHECK(mmap(m, 4 * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == m,
	      "mmap");
	both(m, 4 * PAGE, mr);
	/* what was mapped after the registration is watched as well */
	CHECK(!munmap(m, PAGE), "munmap");
	refused(IBV_WR_RDMA_WRITE, m, 8, mr);
	CHECK(!madvise(m + PAGE, PAGE, MADV_DONTNEED), "madvise");
	reads(m + PAGE, PAGE, mr);
	CHECK(!buf[0], "%s: READ gives old data after a discard", now);
	drop(mr);
	munmap(m, 4 * PAGE);

	now = "never writable";
	m = rc_map_as(2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	mr = region(m, 2 * PAGE);
	refused(IBV_WR_RDMA_WRITE, m, 8, mr);
	reads(m, 2 * PAGE, mr);
	refused(IBV_WR_RDMA_WRITE, m + PAGE, 8, mr);
	drop(mr);
	munmap(m, 2 * PAGE);
}

static void file(const char *kind, int fd, int flags)
{
	uint8_t *m, seen[16];
	struct ibv_mr *mr;

	now = kind;
	CHECK(fd >= 0 && !ftruncate(fd, 8 * PAGE), "%s: %s", kind, strerror(errno));
	CHECK(pwrite(fd, "from the file", 13, 2 * PAGE) == 13, "pwrite");
	m = rc_map_as(8 * PAGE, PROT_READ | PROT_WRITE, flags, fd);
	mr = region(m, 8 * PAGE);
	reads(m + 2 * PAGE, 13, mr);
	CHECK(!memcmp(buf, "from the file", 13), "%s: READ", kind);
	both(m + 3, 4 * PAGE, mr);
	rc_fill(buf, 16, 0, 7);
	CHECK(rdma(IBV_WR_RDMA_WRITE, m + 5 * PAGE, 16, mr) == IBV_WC_SUCCESS, "%s: WRITE", kind);
	CHECK(pread(fd, seen, 16, 5 * PAGE) == 16, "pread");
	CHECK((rc_differs(seen, 16, 0, 7) == UINT64_MAX) == !!(flags & MAP_SHARED),
	      "%s: the file %s what was written", kind, flags & MAP_SHARED ? "has not" : "has");
	if (flags & MAP_SHARED) {
		/* through the descriptor: nobody tells about it */
		if (!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5 * PAGE, PAGE)) {
			reads(m + 5 * PAGE, 16, mr);
			CHECK(!buf[0] && !buf[1], "%s: READ gives what was punched out", kind);
			both(m + 5 * PAGE, PAGE, mr);
		}
		CHECK(pwrite(fd, "anew", 4, PAGE) == 4, "pwrite");
		reads(m + PAGE, 4, mr);
		CHECK(!memcmp(buf, "anew", 4), "%s: READ after pwrite", kind);
	}
	CHECK(!ftruncate(fd, 6 * PAGE), "ftruncate");
	both(m + 5 * PAGE, 16, mr);
	refused(IBV_WR_RDMA_WRITE, m + 6 * PAGE, 16, mr);
	refused(IBV_WR_RDMA_READ, m + 7 * PAGE, 16, mr);
	/* several packets: tried as a whole, then one by one, and that ends */
	refused(IBV_WR_RDMA_WRITE, m + 6 * PAGE, PAGE, mr);
	refused(IBV_WR_RDMA_READ, m + 6 * PAGE, 2 * PAGE, mr);
	CHECK(!ftruncate(fd, 8 * PAGE), "ftruncate");
	both(m + 6 * PAGE, 16, mr);
	drop(mr);
	munmap(m, 8 * PAGE);
	close(fd);
}

static int temp_file(void)
{
	char name[] = "/tmp/e2e-XXXXXX";
	int fd = mkstemp(name);

	unlink(name);
	return fd;
}

int main(int argc, char **argv)
{
	rc_open(&a);
	rc_open(&b);
	buf = rc_map(16 * PAGE);
	buf_mr = rc_reg(&a, buf, 16 * PAGE, ALL_ACCESS);
	for (int implicit = 0; implicit < 2; implicit++) {
		if (implicit)
			all = ibv_reg_mr(b.pd, NULL, SIZE_MAX, ALL_ACCESS | ODP);
		if (implicit && !all)
			break; /* a device without */
		anonymous(true);
		anonymous(false);
		nothing_there_at_first();
		file("memfd, shared", memfd_create("e2e", MFD_CLOEXEC), MAP_SHARED);
		file("memfd, private", memfd_create("e2e", MFD_CLOEXEC), MAP_PRIVATE);
		file("file, shared", temp_file(), MAP_SHARED);
		file("file, private", temp_file(), MAP_PRIVATE);
	}
	CHECK(!all || !ibv_dereg_mr(all), "dereg");
	CHECK(!ibv_dereg_mr(buf_mr), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
