/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gpu_peer: RDMA straight into a GPU's and an accelerator's memory, on a NIC that follows and on
 * one that pins.
 *
 *     faultline run --device mlx5,irdma -- build/examples/gpu_peer
 *
 * Two processes. The server has an accelerator, whose memory never moves, and a GPU, whose driver
 * moves buffers as it likes (both in software, see <faultline/dmabuf.h>). It registers a buffer of
 * each by its dma-buf with each NIC; the client writes into it, with no copy through the host's
 * memory; then the server asks for the buffer to be moved, and the client reads it again, by the
 * same key.
 *
 * A NIC with on-demand paging (mlx5) imports it dynamically: the GPU moves the buffer, the NIC is
 * told, and the next access finds the new place. One without (irdma) pins it: the buffer cannot
 * move while it is registered (EBUSY), and the GPU's memory stays occupied. A program need not know
 * which, but its memory budget does.
 */
#include <faultline/dmabuf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "examples/common.h"

const char *example_name = "gpu_peer";

#define SIZE (512u << 10)

static const char *const nics[] = {"mlx5", "irdma"};
static const struct {
	enum faultline_dmabuf_kind kind;
	const char *name;
} kinds[] = {{FAULTLINE_DMABUF_ACCEL, "accelerator"}, {FAULTLINE_DMABUF_VRAM, "GPU"}};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* what the server asks of the client */
struct task {
	enum { WRITE_IT, READ_IT, NEXT } what;
	struct remote at;
	unsigned seed;
};

/* ---- the server ---- */

static void check_device_side(int fd, unsigned seed)
{
	uint8_t *copy = malloc(SIZE);

	if (!copy || (errno = faultline_dmabuf_read(fd, copy, 0, SIZE)))
		die("read from the device's side");
	for (uint32_t i = 0; i < SIZE; i++) {
		if (copy[i] != pattern(i, seed))
			die("the device sees a wrong byte at %u", i);
	}
	free(copy);
}

static void order(struct side *s, struct task task)
{
	send_all(s->sock, &task, sizeof(task));
	if (task.what != NEXT)
		meet(s->sock); /* when it is done */
}

static const char *move(int fd)
{
	int err = faultline_dmabuf_move(fd, FAULTLINE_DMABUF_SYSTEM);

	if (!err)
		return "moved to system memory meanwhile, and the NIC followed";
	if (err == EBUSY)
		return "pinned: it cannot move while the NIC has it";
	if (err == EOPNOTSUPP)
		return "its memory never moves";
	errno = err;
	die("move");
}

static void use_lent(struct side *s, unsigned kind, struct ibv_mr *mr, int fd, unsigned seed)
{
	struct task task = {.at = {0, mr->rkey}, .seed = seed};
	struct faultline_dmabuf_info info;
	const char *moved;

	task.what = WRITE_IT;
	order(s, task);
	check_device_side(fd, seed);
	moved = move(fd);
	task.what = READ_IT;
	order(s, task);
	if ((errno = faultline_dmabuf_info(fd, &info)))
		die("what the buffer says");
	printf("%s and %s: data right; %s (%llu move%s, %u pin%s)\n", kinds[kind].name,
	       ibv_get_device_name(s->ctx->device), moved, (unsigned long long)info.moves,
	       info.moves == 1 ? "" : "s", info.pins, info.pins == 1 ? "" : "s");
	if ((errno = ibv_dereg_mr(mr)))
		die("deregister");
}

/* false: this NIC imports no dma-bufs, or not this one */
static bool lend(struct side *s, unsigned kind, unsigned seed)
{
	struct faultline_dmabuf_device_attr attr = {.kind = kinds[kind].kind};
	struct faultline_dmabuf_device *gpu;
	struct ibv_mr *mr;
	int fd, err;
	bool lent;

	err = faultline_dmabuf_open(&attr, &gpu);
	if (!err)
		err = faultline_dmabuf_alloc(gpu, SIZE, 0, &fd);
	if ((errno = err))
		die("device memory");
	/* the address that the peer uses is free to choose: offsets from 0 */
	mr = ibv_reg_dmabuf_mr(s->pd, 0, SIZE, 0, fd,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				       IBV_ACCESS_REMOTE_READ);
	lent = mr;
	if (mr)
		use_lent(s, kind, mr, fd, seed);
	else if (errno == EOPNOTSUPP)
		printf("%s and %s: cannot be imported\n", kinds[kind].name,
		       ibv_get_device_name(s->ctx->device));
	else
		die("register the dma-buf with %s", ibv_get_device_name(s->ctx->device));
	close(fd);
	if ((errno = faultline_dmabuf_close(gpu)))
		die("the device is still in use");
	return lent;
}

static int serve(int sock)
{
	struct faultline_dmabuf_totals left;
	unsigned lent = 0;
	int status;

	for (unsigned nic = 0; nic < COUNT(nics); nic++) {
		struct side s;

		open_side(&s, sock, nics[nic]);
		connect_qp(&s);
		for (unsigned kind = 0; kind < COUNT(kinds); kind++)
			lent += lend(&s, kind, nic * 10 + kind + 1);
		order(&s, (struct task){.what = NEXT});
		close_side(&s);
	}
	if ((errno = faultline_dmabuf_totals(&left)))
		die("totals");
	if (left.buffers || left.attachments || left.maps || left.pins)
		die("something is left: %llu maps, %llu pins", (unsigned long long)left.maps,
		    (unsigned long long)left.pins);
	status = client_status();
	return status || lent ? status : 77; /* nothing to show: to a test, "skipped" */
}

/* ---- the client ---- */

static void work(struct side *s, uint8_t *buf, uint32_t lkey)
{
	struct task t;

	while (recv_all(s->sock, &t, sizeof(t)) && t.what != NEXT) {
		for (uint32_t i = 0; i < SIZE; i++)
			buf[i] = t.what == WRITE_IT ? pattern(i, t.seed) : 0;
		rdma(s, t.what == WRITE_IT ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, buf, lkey, SIZE,
		     t.at);
		errno = 0;
		for (uint32_t i = 0; i < SIZE; i++) {
			if (buf[i] != pattern(i, t.seed))
				die("wrong byte at %u", i);
		}
		meet(s->sock);
	}
}

static int use(int sock)
{
	uint8_t *buf = malloc(SIZE);

	for (unsigned nic = 0; nic < COUNT(nics); nic++) {
		struct ibv_mr *mr;
		struct side s;

		open_side(&s, sock, nics[nic]);
		mr = reg_mr(&s, buf, SIZE, IBV_ACCESS_LOCAL_WRITE, "the client's buffer");
		connect_qp(&s);
		work(&s, buf, mr->lkey);
		if ((errno = ibv_dereg_mr(mr)))
			die("deregister");
		close_side(&s);
	}
	free(buf);
	return 0;
}

int main(int argc, char **argv)
{
	int sock;

	no_arguments(argc, argv);
	return two_processes(&sock) == SERVER ? serve(sock) : use(sock);
}
