/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shm link without an HCA above it: an empty poll, an 8-byte message within a thread and
 * between two spinning processes, and a stream of whole trains that the receiver copies out, against
 * memcpy of the same bytes.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "net/net.h"
#include "util/log.h"

#define BUF   (1u << 20)
#define PINGS 100000
#define BYTES (2ull << 30)

struct end {
	struct seg seg;
	struct fl_config cfg;
	struct faultline_device stat;
	struct net *net;
	struct net_path *path;
	uint32_t peer;
	unsigned long pkts;
	unsigned long long bytes;
	uint8_t *buf;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

static void rx(void *ctx, const struct roce_pkt *pkt)
{
	struct end *e = ctx;

	memcpy(e->buf + (pkt->va & (BUF - 1)), pkt->payload, pkt->payload_len);
	e->bytes += pkt->payload_len;
	e->pkts++;
}

static void ready(void *ctx, uint32_t qpn)
{
}

static void kick(void *ctx)
{
}

static const struct net_ops ops = {.rx = rx, .tx_ready = ready, .kick = kick};

static void open_end(struct end *e)
{
	fl_log_init();
	strcpy(e->cfg.link, "auto");
	e->buf = mmap(NULL, BUF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (e->buf == MAP_FAILED || seg_create(&e->seg) ||
	    net_open(&e->cfg, &e->seg, &e->stat, &ops, e, &e->net))
		die("net_open");
}

static void open_path(struct end *e, uint32_t slot)
{
	struct net_path_attr attr = {.sgid = {[10] = 0xff, 0xff, 127, 0, 0, 1},
				     .dgid = {[10] = 0xff, 0xff, 127, 0, 0, 1},
				     .qpn = net_slot(e->net) << FAULTLINE_QPN_SLOT_SHIFT,
				     .dest_qpn = slot << FAULTLINE_QPN_SLOT_SHIFT};

	e->peer = attr.dest_qpn;
	if (net_path_open(e->net, &attr, &e->path))
		die("net_path_open");
}

static int fill(void *arg, uint8_t *dst, uint32_t off, uint32_t len)
{
	memcpy(dst, (uint8_t *)arg + off, len);
	return 0;
}

static int send_one(struct end *e, uint64_t va, uint32_t len)
{
	struct roce_pkt pkt = {.opcode = IBV_OPCODE_RC_RDMA_WRITE_ONLY, .pkey = 0xffff,
			       .opcode_last = IBV_OPCODE_RC_RDMA_WRITE_ONLY, .dest_qpn = e->peer, .va = va,
			       .npkts = roce_npkts(len, 4096), .mtu = 4096, .payload_len = len};

	if (pkt.npkts > 1) {
		pkt.opcode = IBV_OPCODE_RC_RDMA_WRITE_FIRST;
		pkt.opcode_last = IBV_OPCODE_RC_RDMA_WRITE_LAST;
	}
	return net_xmit(e->path, &pkt, fill, e->buf + (va & (BUF - 1)));
}

static void peer(int fd)
{
	struct end e = {0};
	unsigned long seen = 0;
	uint32_t slot;

	open_end(&e);
	slot = net_slot(e.net);
	if (write(fd, &slot, 4) != 4 || read(fd, &slot, 4) != 4)
		die("hello");
	open_path(&e, slot);
	while (e.pkts < PINGS) {
		net_poll(e.net, 64);
		if (!e.pkts)
			net_service(e.net);
		for (; seen < e.pkts; seen++)
			send_one(&e, 0, 8);
	}
	e.bytes = 0;
	while (e.bytes < BYTES)
		net_poll(e.net, 64);
	send_one(&e, 0, 8);
	pause();
}

int main(void)
{
	struct end e = {0};
	uint32_t slot, train;
	unsigned long i, pkts;
	double t, copy, stream;
	char *from, *to;
	int sv[2];
	pid_t pid;

	from = mmap(NULL, BUF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	to = mmap(NULL, BUF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (from == MAP_FAILED || to == MAP_FAILED)
		die("mmap");
	memset(from, 1, BUF);
	t = now();
	for (i = 0; i < 4096; i++) {
		memcpy(to, from, BUF);
		__asm__ volatile("" : : "r"(to) : "memory");
	}
	copy = 4096. * BUF / (now() - t) * 1e-9;
	printf("memcpy 1 MiB                %8.2f GB/s\n", copy);

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		die("socketpair");
	pid = fork();
	if (!pid)
		peer(sv[1]);
	open_end(&e);

	open_path(&e, net_slot(e.net));
	t = now();
	for (i = 0; i < 1000000; i++) {
		send_one(&e, 0, 8);
		net_poll(e.net, 1);
	}
	printf("8 B, loop, one thread       %8.1f ns (sent and received)\n", (now() - t) * 1e3);
	t = now();
	for (i = 0; i < 10000000; i++)
		net_poll(e.net, 64);
	printf("empty poll                  %8.1f ns\n", (now() - t) * 1e2);
	net_path_close(e.path);

	if (read(sv[0], &slot, 4) != 4)
		die("hello");
	open_path(&e, slot);
	slot = net_slot(e.net);
	if (write(sv[0], &slot, 4) != 4)
		die("hello");
	t = 0;
	for (i = 0; i < PINGS; i++) {
		if (i == PINGS / 10)
			t = now();
		pkts = e.pkts;
		send_one(&e, 0, 8);
		while (e.pkts == pkts) {
			net_poll(e.net, 64);
			if (!i)
				net_service(e.net);
		}
	}
	printf("8 B, two processes          %8.1f ns (half of a round trip)\n",
	       (now() - t) * 1e9 / (PINGS - PINGS / 10) / 2);

	for (i = 0; i < 1; i++) {
		unsigned long long sent = 0;

		train = net_path_max_train(e.path);
		pkts = e.pkts;
		t = now();
		while (sent < BYTES) {
			if (!send_one(&e, sent, train))
				sent += train;
			else
				net_poll(e.net, 64);
		}
		while (e.pkts == pkts)
			net_poll(e.net, 64);
		stream = BYTES / (now() - t) * 1e-9;
		printf("1 MiB as %3u KiB trains      %8.2f GB/s, %.2f of memcpy\n", train >> 10, stream,
		       stream / copy);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	net_path_close(e.path);
	net_close(e.net);
	seg_destroy(&e.seg);
	return 0;
}
