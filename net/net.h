/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The wire. A process has one attachment to the fabric (struct net), with a slot: the top bits of its
 * QPNs. Peers are reached by a path, over one of three links:
 *   loop  a ring to the process itself
 *   shm   a ring in a memfd that the sender makes and hands to the peer over its abstract UNIX socket;
 *	   processes of one user in one network namespace. One ring a direction: who sends, connects.
 *	   Nothing of it has a name in a file system, so nothing stays when a process is killed.
 *   udp   RoCEv2, port 4791
 *
 * Nothing here knows what a QP is beyond its number; what arrives goes up through net_ops.
 */
#ifndef FL_NET_H
#define FL_NET_H

#include <net/if.h>
#include <sys/types.h>
#include "net/roce.h"
#include "util/config.h"
#include "util/seg.h"

struct net;
struct net_path;

struct net_ops {
	/*
	 * One received train, checked for form only. Called by net_poll() with LOCK_NET_RX held; may call
	 * net_xmit(). pkt and its payload are good until it returns.
	 */
	void (*rx)(void *ctx, const struct roce_pkt *pkt);
	/* a path of this QP that said -EAGAIN takes packets again; no lock held */
	void (*tx_ready)(void *ctx, uint32_t qpn);
	/* wake the engine: something needs it before its next time-out; any lock may be held */
	void (*kick)(void *ctx);
	/*
	 * The process at this slot is about to be let into our memory (see struct net_peer), until it has
	 * left or sock hangs up. Both NULL: nobody is let in.
	 */
	bool (*peer_joined)(void *ctx, uint32_t slot, int sock);
	void (*peer_left)(void *ctx, uint32_t slot, int sock);
};

/* what a network device says of itself; addr[]: GIDs (IPv4 as ::ffff:a.b.c.d), IPv4 first, then global IPv6, then link-local */
#define NETDEV_MAX_GIDS 64
#define NET_MCAST_GROUPS 48 /* that a process is in, at most */
#define NET_SOCKET_BUFFER (8 << 20) /* bytes that a UDP socket asks for each way */

struct netdev_info {
	char name[IFNAMSIZ];
	int ifindex;
	int mtu;
	uint8_t mac[6];
	bool up; /* IFF_UP and carrier */
	unsigned num_gids;
	uint8_t gid[NETDEV_MAX_GIDS][16];
};

/* name "" : the first that is up, has an IPv4 address and is no loopback, else lo. -ENODEV. */
int netdev_query(const char *name, struct netdev_info *info);

/*
 * Claims a slot, listens. stat: where packets that have no QP are counted. -ENFILE: no slot is free
 * (logged); other errors as socket(2). Starts no thread.
 */
int net_open(const struct fl_config *cfg, struct seg *seg, struct faultline_device *stat,
	     const struct net_ops *ops, void *ctx, struct net **net);
void net_close(struct net *net);
/*
 * Around a fork(): between the two, the second also in the child, nothing is half connected or half gone. Then, in
 * the child: closes descriptors and unmaps, says nothing to peers.
 */
void net_fork_begin(struct net *net);
void net_fork_end(struct net *net);
void net_fork_child(struct net *net);

uint32_t net_slot(const struct net *net);

/*
 * The way to (dgid, dest_qpn) for a QP of ours. Chosen by where dgid is: an address of this network
 * namespace and a slot that is no other user's: loop or shm; else udp. Connecting may take a moment, so this is
 * called without locks below LOCK_QP held. -ENETUNREACH: no route; -EADDRINUSE: UDP 4791 is another
 * user's (logged, with the remedy). A peer that is not there (yet) is no error: what is sent is lost.
 */
struct net_path_attr {
	uint8_t sgid[16], dgid[16];
	uint32_t qpn, dest_qpn;
	uint8_t tclass, hop_limit;
	uint32_t flow_label;
};
int net_path_open(struct net *net, const struct net_path_attr *attr, struct net_path **path);
/*
 * Peers on other hosts can reach this address of ours from now on, whether or not a path leads from it.
 * What cannot be (another user has the port) is logged; peers on this host need none of it.
 */
void net_listen(struct net *net, const uint8_t gid[16]);
/*
 * Joins an IP multicast group on an interface, as often as it is left again: what is sent to it comes to rx() with
 * dest_qpn ROCE_QPN_MULTICAST. A path to a group is one like others. -ENOMEM: too many groups.
 */
int net_mcast_join(struct net *net, const uint8_t gid[16], int ifindex);
void net_mcast_leave(struct net *net, const uint8_t gid[16], int ifindex);
bool gid_is_multicast(const uint8_t gid[16]);
/* who sent a datagram with this GRH, and where to: of one of the two forms that grh.c says */
static inline void grh_gid(const uint8_t grh[40], int ipv6_at, int ipv4_at, uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (grh[0] >> 4 == 6) {
		__builtin_memcpy(gid, grh + ipv6_at, 16);
		return;
	}
	__builtin_memcpy(gid, mapped, sizeof(mapped));
	__builtin_memcpy(gid + 12, grh + ipv4_at, 4);
}
static inline void grh_sgid(const uint8_t grh[40], uint8_t sgid[16])
{
	grh_gid(grh, 8, 32, sgid);
}
static inline void grh_dgid(const uint8_t grh[40], uint8_t dgid[16])
{
	grh_gid(grh, 24, 36, dgid);
}
void net_path_close(struct net_path *path);
const char *net_path_link(const struct net_path *path); /* "loop", "shm", "udp" */
/* largest payload of a train on it, at least the largest MTU */
uint32_t net_path_max_train(const struct net_path *path);
/*
 * Packets of that MTU that may be out unacknowledged without being lost for want of room at the peer, as
 * far as can be told: over udp the receive buffer decides, which an ordinary user cannot make large.
 */
uint32_t net_path_window(const struct net_path *path, uint32_t mtu);

/*
 * Sends a train. pkt->payload is not used: fill copies bytes [off, off + len) of the payload to dst and
 * returns 0, or a negative errno, which ends the call with it and nothing is sent. It is called under
 * LOCK_NET_TX. fill may be NULL when payload_len is 0.
 * 0: taken (it may still be lost); -EAGAIN: no room, tx_ready() will say when.
 */
typedef int (*net_fill_fn)(void *arg, uint8_t *dst, uint32_t off, uint32_t len);
int net_xmit(struct net_path *path, const struct roce_pkt *pkt, net_fill_fn fill, void *arg);

/*
 * Takes what has arrived, up to budget trains, and calls tx_ready() where there is room again. Any
 * number of threads; what another thread is draining is passed over. Returns the number of trains.
 * Cheap when there is nothing: no system call but for UDP sockets in use.
 */
int net_poll(struct net *net, int budget);

/*
 * Sleeping. net_fd() is an epoll descriptor that is readable when net_poll() or net_service() has work,
 * provided net_prepare_sleep() was called and said true; false: there is work now.
 * net_awake() ends it: peers need not wake us, we look by ourselves.
 */
int net_fd(struct net *net);
bool net_prepare_sleep(struct net *net);
void net_awake(struct net *net);

/* A process that ends: what is held back on purpose (impair.c) leaves now. */
void net_flush(struct net *net);

/* The slow work: connections, peers that died, wake-up descriptors. The engine calls it. */
void net_service(struct net *net);

/*
 * A process on this host whose memory we may reach into. Found for a path, and locked, by net_path_peer();
 * NULL: there is none (another host, not allowed, gone), or another thread is at it. Between it and
 * net_peer_done() the fields stand. segment is another process's word; hazard is ours in its memory.
 */
struct net_peer {
	struct fl_mutex lock; /* LOCK_NET_PEER */
	const struct faultline_segment *segment;
	struct faultline_peers *peers;
	struct faultline_hazard *hazard;
	pid_t pid;
	uint64_t proof_at; /* the proof of our hazard, in the peer */
	uint64_t proof;	   /* the last one */
};
struct net_peer *net_path_peer(struct net_path *path);
/* may there ever be one? */
bool net_path_is_direct(const struct net_path *path);
/*
 * Copies to (write) or from the memory of the program that let us in, and of no other that has its number by now: 0,
 * or a negative errno, and part of it may be done.
 */
int net_peer_access(struct net_peer *peer, bool write, void *buf, uint64_t addr, size_t len);
void net_peer_done(struct net_peer *peer);

#endif
