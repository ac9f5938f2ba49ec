/* SPDX-License-Identifier: BSD-2-Clause */
/* A process's attachment to the fabric, with a receiver that counts and checks. */
#ifndef TESTS_NET_NODE_H
#define TESTS_NET_NODE_H

#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "net/net.h"
#include "util/log.h"

#define SKIP 77
#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: failed: %s (errno %d)\n", __FILE__, __LINE__, #x,  \
				errno);                                                            \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/*
 * A network namespace of the test's own, where it may have one: UDP port 4791 and the slots are shared with
 * every process of a namespace, and other tests run at the same time.
 */
static inline bool private_net(void)
{
	struct ifreq ifr = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	int fd;

	if (unshare(CLONE_NEWNET))
		return false;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0 && !ioctl(fd, SIOCSIFFLAGS, &ifr));
	close(fd);
	return true;
}

struct node {
	struct seg seg;
	struct fl_config cfg;
	struct faultline_device stat;
	struct net *net;
	unsigned long pkts, bytes, bad, ready, kicks;
	uint32_t psn; /* expected */
	struct roce_pkt last;
	uint8_t last_payload[16], last_grh[40];
};

static inline uint8_t pattern(uint32_t psn, uint32_t off)
{
	return psn * 31 + off * 7 + (off >> 8);
}

static void node_rx(void *ctx, const struct roce_pkt *pkt)
{
	struct node *n = ctx;
	uint32_t i;

	for (i = 0; i < pkt->payload_len; i++)
		n->bad += pkt->payload[i] != pattern(pkt->psn, i);
	n->bad += pkt->psn != n->psn;
	n->psn = psn_add(pkt->psn, pkt->npkts);
	n->pkts += pkt->npkts;
	n->bytes += pkt->payload_len;
	n->last = *pkt;
	memcpy(n->last_payload, pkt->payload ? pkt->payload : (const uint8_t *)"",
	       pkt->payload_len < 16 ? pkt->payload_len : 16);
	if (pkt->grh)
		memcpy(n->last_grh, pkt->grh, sizeof(n->last_grh));
}

static void node_ready(void *ctx, uint32_t qpn)
{
	((struct node *)ctx)->ready++;
}

static void node_kick(void *ctx)
{
	((struct node *)ctx)->kicks++;
}

static const struct net_ops node_ops = {.rx = node_rx, .tx_ready = node_ready, .kick = node_kick};

static inline void node_open_as(struct node *n, const char *link, const struct net_ops *ops)
{
	memset(n, 0, sizeof(*n));
	fl_log_init();
	strcpy(n->cfg.link, link);
	CHECK(!seg_create(&n->seg));
	CHECK(!net_open(&n->cfg, &n->seg, &n->stat, ops, n, &n->net));
}

static inline void node_open(struct node *n, const char *link)
{
	node_open_as(n, link, &node_ops);
}

static inline void node_close(struct node *n)
{
	net_close(n->net);
	seg_destroy(&n->seg);
}

static inline uint64_t test_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* one round of an engine that always looks */
static inline int node_turn(struct node *n)
{
	net_service(n->net);
	return net_poll(n->net, 64);
}

/* turns until cond or ms have passed; what cond is */
#define TURN_UNTIL(n, cond, ms)                                                                    \
	({                                                                                         \
		uint64_t end_ = test_now() + (ms)*1000000ull;                                      \
		bool ok_;                                                                          \
		while (!(ok_ = (cond)) && test_now() < end_)                                       \
			node_turn(n);                                                              \
		ok_;                                                                               \
	})

static inline void gid4(uint8_t gid[16], uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	gid[12] = a;
	gid[13] = b;
	gid[14] = c;
	gid[15] = d;
}

static inline uint32_t make_qpn(uint32_t slot, uint32_t n)
{
	return slot << FAULTLINE_QPN_SLOT_SHIFT | n;
}

static inline struct net_path *path_to(struct node *n, uint32_t slot)
{
	struct net_path_attr attr = {.qpn = make_qpn(net_slot(n->net), 17), .dest_qpn = make_qpn(slot, 18)};
	struct net_path *path;

	gid4(attr.sgid, 127, 0, 0, 1);
	gid4(attr.dgid, 127, 0, 0, 1);
	CHECK(!net_path_open(n->net, &attr, &path));
	return path;
}

static int fill_pattern(void *arg, uint8_t *dst, uint32_t off, uint32_t len)
{
	uint32_t i;

	for (i = 0; i < len; i++)
		dst[i] = pattern(*(uint32_t *)arg, off + i);
	return 0;
}

/* a WRITE of len bytes in one train (payload by its first PSN) */
static inline int send_write(struct net_path *path, uint32_t dest_qpn, uint32_t *psn, uint32_t len,
			     uint32_t mtu)
{
	struct roce_pkt pkt = {.opcode = IBV_OPCODE_RC_RDMA_WRITE_ONLY,
			       .opcode_last = IBV_OPCODE_RC_RDMA_WRITE_ONLY,
			       .pkey = 0xffff, .dest_qpn = dest_qpn, .psn = *psn, .mtu = mtu,
			       .npkts = roce_npkts(len, mtu), .va = 0x1234, .rkey = 5, .dma_len = len,
			       .payload_len = len, .ackreq = true};
	int ret;

	if (pkt.npkts > 1) {
		pkt.opcode = IBV_OPCODE_RC_RDMA_WRITE_FIRST;
		pkt.opcode_last = IBV_OPCODE_RC_RDMA_WRITE_LAST;
	}
	ret = net_xmit(path, &pkt, fill_pattern, psn);
	if (!ret)
		*psn = psn_add(*psn, pkt.npkts);
	return ret;
}

#endif
