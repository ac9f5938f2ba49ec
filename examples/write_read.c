/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * write_read: two processes, RDMA WRITE and READ, pinned and on demand, every byte checked.
 *
 *     faultline run -- build/examples/write_read &            # the target
 *     faultline run -- build/examples/write_read 127.0.0.1    # the initiator
 *
 * The target registers a buffer and does nothing more; the initiator writes a pattern into it,
 * reads it back into another buffer and compares. Both connect over TCP to tell each other what a
 * verbs connection needs. It is an ordinary verbs program: it knows nothing of Faultline, and runs
 * on any RDMA device. A side whose device has no on-demand paging stays pinned in the second round.
 *
 * What it takes care of, since others do not: a pattern that depends on the position, so that data
 * at the wrong place is seen; odd offsets and lengths that are no multiple of page or MTU.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "examples/common.h"

const char *example_name = "write_read";

/* one at the target, two at the initiator: pinned, all fit the usual limit of 8 MiB for a user */
#define BUF_SIZE (3ul << 19)

static const struct {
	uint64_t offset; /* in the target's buffer */
	uint32_t length;
} transfers[] = {
	{0, 1},	       {1, 7},	       {4093, 8},	 {8192, 4096},
	{12345, 4097}, {65537, 65535}, {200001, 500009}, {262143, 1179649},
};
#define NUM_TRANSFERS (sizeof(transfers) / sizeof(transfers[0]))

static void check(const uint8_t *p, uint64_t len, uint64_t pos, unsigned seed, const char *who)
{
	for (uint64_t i = 0; i < len; i++) {
		if (p[i] == pattern(pos + i, seed))
			continue;
		errno = 0;
		die("%s: wrong byte at %llu: %02x, not %02x", who, (unsigned long long)(pos + i),
		    p[i], pattern(pos + i, seed));
	}
}

/* the initiator's buffer: first half what is written, second half what is read back */
static void initiate(struct side *s, uint8_t *buf, uint32_t lkey, struct remote target,
		     unsigned seed)
{
	for (size_t t = 0; t < NUM_TRANSFERS; t++) {
		uint64_t offset = transfers[t].offset, back = BUF_SIZE + 3;
		uint32_t length = transfers[t].length;
		struct remote at = {target.addr + offset, target.rkey};

		for (uint32_t i = 0; i < length; i++)
			buf[5 + i] = pattern(offset + i, seed);
		rdma(s, IBV_WR_RDMA_WRITE, buf + 5, lkey, length, at);
		rdma(s, IBV_WR_RDMA_READ, buf + back, lkey, length, at);
		check(buf + back, length, offset, seed, "read back");
	}
}

/* later transfers cover parts of earlier ones with the same bytes */
static void check_target(const uint8_t *buf, unsigned seed)
{
	for (size_t t = 0; t < NUM_TRANSFERS; t++)
		check(buf + transfers[t].offset, transfers[t].length, transfers[t].offset, seed,
		      "target");
}

static void round_of(struct side *s, bool initiator, const char *name, bool odp, unsigned seed)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     (odp ? IBV_ACCESS_ON_DEMAND : 0);
	size_t size = initiator ? 2 * BUF_SIZE : BUF_SIZE;
	struct remote mine, theirs;
	struct timespec t0, t1;
	uint64_t bytes = 0;
	struct ibv_mr *mr;
	uint8_t *buf;

	/* fresh memory each time: on demand, the device's own accesses bring it in */
	buf = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buf == MAP_FAILED)
		die("mmap");
	mr = reg_mr(s, buf, size, access, odp ? "the buffer on demand" : "the buffer pinned");
	connect_qp(s);
	mine = (struct remote){(uintptr_t)buf, mr->rkey};
	exchange(s->sock, &mine, &theirs, sizeof(mine));

	clock_gettime(CLOCK_MONOTONIC, &t0);
	if (initiator)
		initiate(s, buf, mr->lkey, theirs, seed);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	meet(s->sock);
	if (initiator) {
		for (size_t t = 0; t < NUM_TRANSFERS; t++)
			bytes += transfers[t].length;
		printf("%-10s %zu WRITEs and %zu READs of 1 byte to 1.1 MiB, %llu bytes each way: data right, %.1f ms\n",
		       name, NUM_TRANSFERS, NUM_TRANSFERS, (unsigned long long)bytes,
		       (double)(t1.tv_sec - t0.tv_sec) * 1e3 +
			       (double)(t1.tv_nsec - t0.tv_nsec) / 1e6);
	} else {
		check_target(buf, seed);
		printf("%-10s the target's memory holds what was written\n", name);
	}
	if ((errno = ibv_destroy_qp(s->qp)) || (errno = ibv_dereg_mr(mr)))
		die("close");
	s->qp = NULL;
	munmap(buf, size);
}

int main(int argc, char **argv)
{
	bool initiator = argc > 1, mine, theirs;
	struct side s;

	if (argc > 2 || (initiator && argv[1][0] == '-')) {
		fprintf(stderr, "usage: write_read [HOST]\n");
		return 2;
	}
	open_side(&s, -1, "");
	s.sock = initiator ? tcp_connect(argv[1]) : tcp_accept();
	mine = has_odp(&s);
	exchange(s.sock, &mine, &theirs, sizeof(mine));

	round_of(&s, initiator, "pinned:", false, 1);
	if (!mine)
		printf("on demand: this device has no on-demand paging\n");
	if (mine || theirs)
		round_of(&s, initiator, mine ? "on demand:" : "pinned:", mine, 2);

	close_side(&s);
	close(s.sock);
	return 0;
}
