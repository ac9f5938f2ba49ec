/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that is not pinned: on-demand regions, whose pages come and go, and dma-bufs, which move.
 * Each end has a region of the case's kind where its device can, else its pinned one, and every
 * operation goes from region to region; between the operations, or all the while, the memory is
 * taken from under them.
 *
 * rxe has explicit on-demand regions only, and copies to and from the start of the page whatever
 * the offset (statuses are right), so what meets one of these is a page's first KiB at a time, in a
 * packet of its own.
 */
#include <errno.h>
#include <faultline/dmabuf.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "exchange.h"

#define PAGE   4096ul
#define SECOND (BUF_SIZE / 2) /* where data comes back to */
#define WORD   (BUF_SIZE - 2 * PAGE + 8)
#define ROUNDS 8

enum kind { PINNED, ON_DEMAND, IMPLICIT, MEMFD, VRAM };

struct memory {
	enum kind kind;
	uint8_t *at; /* PINNED, ON_DEMAND, IMPLICIT */
	struct faultline_dmabuf_device *dev;
	int fd; /* of a dma-buf */
	bool in_system;
	struct ibv_mr *mr;
	uint64_t iova; /* of its first byte */
};

/* what the other end has to know of it */
struct region {
	uint64_t iova;
	uint32_t rkey, page_starts_only;
};

static struct memory mem;
static struct region there;
/* how the data of one operation lies in both regions: pieces of so many bytes, a page apart */
static unsigned pieces;
static uint32_t piece_len;
static uint64_t offset;

/* ---- this end's memory ---- */

/* Of a file, so that pages that are taken away keep their bytes. */
static void map_on_demand(void)
{
	int fd = memfd_create("exchange", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, BUF_SIZE))
		die("memfd_create");
	mem.at = mmap(NULL, BUF_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem.at == MAP_FAILED)
		die("mmap");
	close(fd);
	mem.iova = (uintptr_t)mem.at;
	mem.mr = mem.kind == IMPLICIT
			 ? ibv_reg_mr(pd, NULL, SIZE_MAX, RIGHTS | IBV_ACCESS_ON_DEMAND)
			 : ibv_reg_mr(pd, mem.at, BUF_SIZE, RIGHTS | IBV_ACCESS_ON_DEMAND);
}

static void alloc_dmabuf(void)
{
	struct faultline_dmabuf_device_attr attr = {
		.kind = mem.kind == MEMFD ? FAULTLINE_DMABUF_MEMFD : FAULTLINE_DMABUF_VRAM};

	errno = faultline_dmabuf_open(&attr, &mem.dev)
			?: faultline_dmabuf_alloc(mem.dev, BUF_SIZE, 0, &mem.fd);
	if (errno)
		die("device memory");
	mem.iova = IOVA;
	mem.mr = ibv_reg_dmabuf_mr(pd, 0, BUF_SIZE, mem.iova, mem.fd, RIGHTS);
}

static void open_memory(enum kind kind)
{
	struct region here;

	mem = (struct memory){.kind = rxe && kind != ON_DEMAND ? PINNED : kind};
	if (mem.kind == PINNED) {
		mem.at = buf;
		mem.mr = mr;
		mem.iova = IOVA;
	} else if (mem.kind == ON_DEMAND || mem.kind == IMPLICIT) {
		map_on_demand();
	} else {
		alloc_dmabuf();
	}
	if (!mem.mr)
		die("registering the case's memory");
	here = (struct region){mem.iova, mem.mr->rkey, rxe && mem.kind == ON_DEMAND};
	swap_info(&here, &there, sizeof(here));
	pieces = here.page_starts_only || there.page_starts_only ? 16 : 1;
	piece_len = pieces > 1 ? PATH_MTU : 65536;
	offset = pieces > 1 ? PAGE : OFFSET;
}

static void close_memory(void)
{
	if (mem.kind == PINNED)
		return;
	CHECK(!ibv_dereg_mr(mem.mr), "ibv_dereg_mr");
	if (mem.at)
		CHECK(!munmap(mem.at, BUF_SIZE), "munmap");
	else
		CHECK(!close(mem.fd) && !faultline_dmabuf_close(mem.dev),
		      "the dma-buf is in use still");
}

static void put(uint64_t off, const uint8_t *data, uint64_t len)
{
	if (mem.at)
		memcpy(mem.at + off, data, len);
	else
		CHECK(!faultline_dmabuf_write(mem.fd, off, data, len), "from the device's side");
}

static void get(uint64_t off, uint8_t *data, uint64_t len)
{
	if (mem.at)
		memcpy(data, mem.at + off, len);
	else
		CHECK(!faultline_dmabuf_read(mem.fd, data, off, len), "from the device's side");
}

/* The bytes stay; the device has to find them again. */
static void take_away(void)
{
	if (mem.kind == ON_DEMAND || mem.kind == IMPLICIT) {
		CHECK(!madvise(mem.at, BUF_SIZE, MADV_DONTNEED), "madvise");
	} else if (mem.kind == VRAM) {
		mem.in_system = !mem.in_system;
		CHECK(!faultline_dmabuf_move(mem.fd, mem.in_system ? FAULTLINE_DMABUF_SYSTEM
								   : FAULTLINE_DMABUF_DEVICE),
		      "the dma-buf does not move");
	}
}

static void clear(void)
{
	uint8_t *zeros = calloc(1, BUF_SIZE);

	put(0, zeros, BUF_SIZE);
	free(zeros);
	take_away();
}

static void fill_pieces(uint64_t seed)
{
	uint8_t *data = malloc(piece_len);

	for (unsigned i = 0; i < pieces; i++) {
		fill(data, piece_len, seed + i);
		put(offset + i * PAGE, data, piece_len);
	}
	free(data);
}

static void check_pieces(const char *what, uint64_t base, uint64_t seed)
{
	uint8_t *data = malloc(piece_len + 2);

	for (unsigned i = 0; i < pieces; i++) {
		get(base + offset + i * PAGE - 1, data, piece_len + 2);
		check_data(what, data + 1, piece_len, seed + i);
		CHECK(!data[0] && !data[piece_len + 1], "%s: written beside it", what);
	}
	free(data);
}

/* ---- between both ends' ---- */

static struct ibv_sge piece(uint64_t base, unsigned i)
{
	return (struct ibv_sge){mem.iova + base + offset + i * PAGE, piece_len, mem.mr->lkey};
}

/* the client: all pieces by one operation, here from and to base */
static void operate(const char *what, enum ibv_wr_opcode opcode, uint64_t base)
{
	for (unsigned i = 0; i < pieces; i++) {
		struct ibv_sge sge = piece(base, i);
		struct ibv_send_wr wr =
			request(opcode, &sge, there.iova + offset + i * PAGE, there.rkey);

		post_send(&wr);
	}
	for (unsigned i = 0; i < pieces; i++)
		expect_send(what, piece_len, IBV_WC_SUCCESS);
}

static void write_and_read(void)
{
	clear();
	if (!server)
		fill_pieces(1);
	take_away();
	barrier();
	if (!server)
		operate("WRITE", IBV_WR_RDMA_WRITE, 0);
	barrier();
	if (server)
		check_pieces("WRITE", 0, 1);
	take_away();
	barrier();
	if (!server) {
		operate("READ", IBV_WR_RDMA_READ, SECOND);
		check_pieces("READ", SECOND, 1);
	}
	barrier();
}

static void send_and_receive(void)
{
	clear();
	for (unsigned i = 0; server && i < pieces; i++)
		post_recv_sge(piece(0, i));
	if (!server)
		fill_pieces(2);
	take_away();
	barrier();
	if (!server)
		operate("SEND", IBV_WR_SEND, 0);
	for (unsigned i = 0; server && i < pieces; i++)
		expect_recv("SEND", piece_len, false, IBV_WC_RECV);
	barrier();
	if (server)
		check_pieces("SEND", 0, 2);
}

/* rxe: what an atomic returns, too, is at the start of the page */
static void add(void)
{
	struct ibv_sge sge = {mem.iova + SECOND, 8, mem.mr->lkey};
	uint64_t was = 0x1122334455667788, is;

	clear();
	if (server)
		put(WORD, (uint8_t *)&was, 8);
	take_away();
	barrier();
	for (unsigned i = 0; !server && i < 3; i++) {
		struct ibv_send_wr wr =
			request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, there.iova + WORD, there.rkey);

		wr.wr.atomic.compare_add = 5;
		post_send(&wr);
		expect_send("fetch and add", 8, IBV_WC_SUCCESS);
		get(SECOND, (uint8_t *)&is, 8);
		CHECK(is == was + 5 * i, "fetch and add: there was %lx, not %lx", is, was + 5 * i);
		take_away();
	}
	barrier();
	if (server) {
		get(WORD, (uint8_t *)&is, 8);
		CHECK(is == was + 15, "fetch and add leaves %lx, not %lx", is, was + 15);
	}
}

static void each_operation(enum kind kind)
{
	open_memory(kind);
	write_and_read();
	send_and_receive();
	add();
	barrier();
	close_memory();
}

void case_odp(void)
{
	each_operation(ON_DEMAND);
}

void case_odp_implicit(void)
{
	each_operation(IMPLICIT);
}

void case_dmabuf_memfd(void)
{
	each_operation(MEMFD);
}

void case_dmabuf_vram(void)
{
	each_operation(VRAM);
}

static void *mover(void *stop)
{
	while (!atomic_load((atomic_bool *)stop)) {
		take_away();
		usleep(2000);
	}
	return NULL;
}

/* WRITEs, and READs of what they have written, while both ends' memory is taken away again and
 * again */
static void moving(enum kind kind)
{
	atomic_bool stop = false;
	pthread_t thread;

	open_memory(kind);
	clear();
	barrier();
	if (pthread_create(&thread, NULL, mover, &stop))
		die("pthread_create");
	for (unsigned i = 1; !server && i <= ROUNDS; i++) {
		fill_pieces(i);
		operate("WRITE", IBV_WR_RDMA_WRITE, 0);
		operate("READ", IBV_WR_RDMA_READ, SECOND);
		check_pieces("READ", SECOND, i);
	}
	barrier();
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	if (server)
		check_pieces("WRITE", 0, ROUNDS);
	barrier();
	close_memory();
}

void case_odp_moving(void)
{
	moving(ON_DEMAND);
}

void case_dmabuf_moving(void)
{
	moving(VRAM);
}

/* What is not there any more is an access error. */
void case_odp_unmapped(void)
{
	uint64_t len = 4 * PAGE;
	struct ibv_sge sge = {IOVA, PATH_MTU, mr->lkey};
	struct ibv_send_wr wr;

	open_memory(ON_DEMAND);
	clear();
	if (server)
		CHECK(!munmap(mem.at + PAGE, len), "munmap");
	barrier();
	if (!server) {
		wr = request(IBV_WR_RDMA_WRITE, &sge, there.iova, there.rkey);
		post_send(&wr);
		expect_send("WRITE before what is unmapped", sge.length, IBV_WC_SUCCESS);
		wr = request(IBV_WR_RDMA_WRITE, &sge, there.iova + PAGE, there.rkey);
		post_send(&wr);
		expect_send("WRITE to what is unmapped", sge.length, IBV_WC_REM_ACCESS_ERR);
	}
	CHECK(is_in_error(), "the QP is in state %d", state());
	if (server)
		CHECK(async_is(IBV_EVENT_QP_ACCESS_ERR), "no access error event");
	barrier();
	close_memory();
}
