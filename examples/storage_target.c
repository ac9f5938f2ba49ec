/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * storage_target: a disk over RDMA. The ring that is hot is pinned; the data are on demand.
 *
 *     faultline run -- build/examples/storage_target
 *     faultline run --device irdma -- build/examples/storage_target     # no ODP: it fails over
 *
 * Two processes, as in NVMe over RDMA. The initiator writes commands into a ring in the target's
 * memory; the target polls the ring, fetches the data from the initiator or writes them to it, and
 * writes a completion. The disk is a sparse file of 256 MiB, far beyond what a user may pin. Where
 * the device has on-demand paging the file is mapped and registered as it is: the device reads and
 * writes the page cache, nothing is copied, and only blocks that are used take memory. The ring is
 * a few pages that each command touches: a fault there would delay everything, so it is pinned.
 *
 * Where the device has none, the same program falls back: a pinned bounce buffer, and a copy to or
 * from the file for each command. It asks the device, and does not find out by a registration that
 * fails.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "examples/common.h"

const char *example_name = "storage_target";

#define BLOCK	   4096u
#define DISK	   (256ul << 20)
#define MAX_BLOCKS 16u
#define SLOTS	   64u
#define COMMANDS   150u
#define AREAS	   32u

enum op { WRITE_BLOCKS = 1, READ_BLOCKS, SHUT_DOWN };

/* seq comes last: what arrives last is what is polled. Seen by threads only through it (acquire).
 */
struct command {
	uint64_t lba;
	struct remote data; /* in the initiator's memory */
	uint32_t op, blocks;
	uint32_t pad, seq;
};

static uint32_t wait_for(const uint32_t *seq, uint32_t value)
{
	uint32_t now;

	while ((now = __atomic_load_n(seq, __ATOMIC_ACQUIRE)) != value)
		sched_yield();
	return now;
}

static void *map(size_t len, int flags, int fd)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void *map_anonymous(size_t len)
{
	return map(len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

/* ---- the target ---- */

struct target {
	struct side s;
	int file;
	uint8_t *data; /* the disk itself, or the bounce buffer */
	size_t data_len;
	struct ibv_mr *data_mr;
	bool direct;
};

static void open_disk(struct target *t)
{
	char name[] = "/tmp/storage_target.XXXXXX";

	t->file = mkstemp(name);
	if (t->file < 0 || unlink(name) || ftruncate(t->file, DISK))
		die("the disk's file in /tmp");
	t->direct = has_odp(&t->s);
	if (t->direct) {
		t->data_len = DISK;
		t->data = map(DISK, MAP_SHARED, t->file);
	} else {
		t->data_len = MAX_BLOCKS * BLOCK;
		t->data = map_anonymous(t->data_len);
	}
	t->data_mr = reg_mr(&t->s, t->data, t->data_len,
			    IBV_ACCESS_LOCAL_WRITE | (t->direct ? IBV_ACCESS_ON_DEMAND : 0),
			    t->direct ? "the disk on demand" : "the bounce buffer");
}

static void execute(struct target *t, const struct command *c)
{
	off_t offset = (off_t)c->lba * BLOCK;
	uint32_t len = c->blocks * BLOCK;
	uint8_t *at = t->direct ? t->data + offset : t->data;

	errno = 0;
	if (!c->blocks || c->blocks > MAX_BLOCKS || c->lba > DISK / BLOCK - c->blocks)
		die("a command outside of the disk");
	if (c->op == WRITE_BLOCKS) {
		rdma(&t->s, IBV_WR_RDMA_READ, at, t->data_mr->lkey, len, c->data);
		if (!t->direct && pwrite(t->file, at, len, offset) != (ssize_t)len)
			die("write to the disk");
	} else {
		if (!t->direct && pread(t->file, at, len, offset) != (ssize_t)len)
			die("read from the disk");
		rdma(&t->s, IBV_WR_RDMA_WRITE, at, t->data_mr->lkey, len, c->data);
	}
}

static int target(int sock)
{
	/* the ring, and behind it what completions are sent from: pinned */
	size_t ring_len = SLOTS * sizeof(struct command) + BLOCK;
	struct command *ring = map_anonymous(ring_len);
	uint32_t *done = (uint32_t *)(ring + SLOTS), seq;
	struct remote mine, completion;
	struct ibv_mr *ring_mr;
	struct target t = {0};
	struct stat st;

	open_side(&t.s, sock, "");
	open_disk(&t);
	ring_mr = reg_mr(&t.s, ring, ring_len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
			 "the ring");
	connect_qp(&t.s);
	mine = (struct remote){(uintptr_t)ring, ring_mr->rkey};
	exchange(sock, &mine, &completion, sizeof(mine));

	for (seq = 1;; seq++) {
		const struct command *c = &ring[seq % SLOTS];

		wait_for(&c->seq, seq);
		if (c->op == SHUT_DOWN)
			break;
		execute(&t, c);
		*done = seq;
		rdma(&t.s, IBV_WR_RDMA_WRITE, done, ring_mr->lkey, sizeof(*done), completion);
	}
	if (fstat(t.file, &st))
		die("fstat");
	printf("target: %u commands on a disk of 256 MiB, of which %.1f MiB are in use: %s\n",
	       seq - 1, (double)st.st_blocks * 512 / (1 << 20),
	       t.direct
		       ? "data on demand, nothing copied; the ring pinned"
		       : "no on-demand paging here, so by a pinned bounce buffer, each block copied");
	if ((errno = ibv_dereg_mr(ring_mr)) || (errno = ibv_dereg_mr(t.data_mr)))
		die("deregister");
	close_side(&t.s);
	return client_status();
}

/* ---- the initiator ---- */

struct initiator {
	struct side s;
	uint8_t *data; /* pinned, with the command and the completion behind it */
	struct ibv_mr *mr;
	struct command *out;
	uint32_t *done, seq;
	struct remote ring;
};

static void submit(struct initiator *in, enum op op, uint64_t lba, uint32_t blocks)
{
	uint32_t seq = ++in->seq;
	struct remote slot = {in->ring.addr + seq % SLOTS * sizeof(struct command), in->ring.rkey};

	*in->out = (struct command){.lba = lba,
				    .op = op,
				    .blocks = blocks,
				    .seq = seq,
				    .data = {(uintptr_t)in->data, in->mr->rkey}};
	rdma(&in->s, IBV_WR_RDMA_WRITE, in->out, in->mr->lkey, sizeof(*in->out), slot);
	if (op != SHUT_DOWN)
		wait_for(in->done, seq);
}

/* areas of the disk that hold something: each block its own pattern */
static void exercise(struct initiator *in)
{
	struct {
		uint64_t lba;
		uint32_t blocks;
		unsigned seed; /* 0: nothing written there yet, so zeros */
	} area[AREAS] = {0};

	srand(2);
	for (uint32_t i = 1; i <= COMMANDS; i++) {
		uint32_t a = (uint32_t)rand() % AREAS, len;

		if (!area[a].seed || rand() % 3 == 0) {
			area[a].lba = a * (DISK / BLOCK / AREAS) + (uint32_t)rand() % 1000;
			area[a].blocks = 1 + (uint32_t)rand() % MAX_BLOCKS;
			area[a].seed = i;
			for (len = 0; len < area[a].blocks * BLOCK; len++)
				in->data[len] = pattern(len, i);
			submit(in, WRITE_BLOCKS, area[a].lba, area[a].blocks);
			continue;
		}
		memset(in->data, 0xee, MAX_BLOCKS * BLOCK);
		submit(in, READ_BLOCKS, area[a].lba, area[a].blocks);
		errno = 0;
		for (len = 0; len < area[a].blocks * BLOCK; len++) {
			if (in->data[len] != pattern(len, area[a].seed))
				die("wrong byte %u of the blocks at %llu", len,
				    (unsigned long long)area[a].lba);
		}
	}
	printf("initiator: %u commands, data right\n", COMMANDS);
}

static int initiator(int sock)
{
	size_t len = (MAX_BLOCKS + 1) * BLOCK;
	struct initiator in = {0};
	struct remote mine;

	open_side(&in.s, sock, "");
	in.data = map_anonymous(len);
	in.out = (struct command *)(in.data + MAX_BLOCKS * BLOCK);
	in.done = (uint32_t *)(in.out + 1);
	in.mr = reg_mr(&in.s, in.data, len,
		       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		       "the initiator's buffer");
	connect_qp(&in.s);
	mine = (struct remote){(uintptr_t)in.done, in.mr->rkey};
	exchange(sock, &mine, &in.ring, sizeof(mine));
	exercise(&in);
	submit(&in, SHUT_DOWN, 0, 0);
	if ((errno = ibv_dereg_mr(in.mr)))
		die("deregister");
	close_side(&in.s);
	return 0;
}

int main(int argc, char **argv)
{
	int sock;

	no_arguments(argc, argv);
	return two_processes(&sock) == SERVER ? target(sock) : initiator(sock);
}
