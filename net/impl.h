/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The net room from inside.
 *
 * Lifetimes: what pollers and senders reach without LOCK_NET_SLOT (struct shm_tx, shm_rx, udp_sock) is
 * made on demand, put into a table once and freed at net_close() only; a peer that comes or goes changes
 * what is attached to it, under its own lock. So nothing on the data path needs a grace period.
 */
#ifndef FL_NET_IMPL_H
#define FL_NET_IMPL_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <urcu/list.h>
#include "net/impair.h"
#include "net/net.h"
#include "net/ring.h"
#include "net/train.h"
#include "util/clock.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/usock.h"

#define RX_MAX	      (FAULTLINE_MAX_SLOT + 64) /* rings to us, and connections that have not said what they are */
#define UDP_MAX	      64			/* local addresses, groups, and flows */
#define FLOWS_MAX     32
#define RECONNECT_NS  50000000ull
#define HOP_USUAL     64 /* where an address handle says nothing, and what a plain socket puts */
#define HANDOVER_MAX  256 /* packets kept while their process is being connected */

enum link_kind { LINK_LOOP, LINK_SHM, LINK_UDP };

/* what an epoll event is about; the index in the low half */
enum epoll_kind { EP_LISTEN = 1, EP_RX_SOCK, EP_RX_DATA, EP_TX_SOCK, EP_TX_SPACE, EP_UDP, EP_IMPAIR };

/* our side of a ring to a process */
struct shm_tx {
	struct fl_mutex lock; /* LOCK_NET_TX: the ring, connected */
	uint32_t slot;
	uint32_t refs; /* paths, and one for hand-over; LOCK_NET_SLOT */
	bool handover_ref;
	bool connected;
	struct ring_tx ring;
	int sock, data_fd, space_fd;
	uint64_t last_try; /* ns; written under this lock and LOCK_NET_SLOT, read under either */
	_Atomic bool want_connect;
	struct net_peer peer;
};

/* a ring from a process, or a connection that may become one */
struct shm_rx {
	struct fl_mutex lock; /* LOCK_NET_RX: the ring, attached */
	bool attached;
	struct ring_rx ring;
	bool used; /* these: LOCK_NET_SLOT */
	int sock, data_fd, space_fd;
	uint32_t slot;
};

enum udp_kind {
	UDP_USUAL,
	UDP_SENDS, /* from another source port */
	UDP_GROUP, /* a group's, which only receives */
	UDP_FLOW,  /* connected: receives what one process of a peer's sends, and nothing else comes to it */
};

struct udp_sock {
	struct fl_mutex lock; /* LOCK_NET_TX: the batch */
	enum udp_kind kind;
	int fd;
	uint8_t gid[16]; /* a group's may change: LOCK_NET_RX, this and addr and fd */
	struct sockaddr_storage addr;
	socklen_t addr_len;
	struct udp_batch *batch;      /* NULL: of a kind that does not send */
	struct sockaddr_storage from; /* UDP_FLOW: who; this and paths: LOCK_NET_SLOT */
	unsigned paths;		      /* that are to be answered there; 0: it may become another's */
};

/* a group on an interface */
struct mcast_group {
	struct udp_sock *sock;
	int ifindex;
	unsigned joined; /* as often */
};

struct handover {
	struct handover *next;
	uint32_t slot;
	uint8_t grh[GRH_LEN];
	uint32_t len;
	bool ce;
	uint8_t packet[];
};

struct net {
	struct seg *seg;
	struct faultline_device *stat;
	const struct net_ops *ops;
	void *ctx;
	bool force_udp;
	bool direct; /* peers may place directly, and we at theirs */
	struct impair *impair; /* NULL: packets go unharmed */
	uint32_t slot;
	int listen_fd, epfd;
	int spare_fd; /* to turn a connection away when there is no other descriptor left */

	/* what every poll looks at, and what seldom changes */
	_Alignas(64) _Atomic unsigned num_rx;
	_Atomic unsigned num_udp;
	_Atomic unsigned udp_paths; /* and memberships of groups: something may come */
	_Atomic unsigned num_waiters;
	_Atomic unsigned num_handover;
	_Atomic bool want_connect; /* some tx has it set */
	_Atomic bool sleeping;
	/* hints that polls write: where to begin, for fairness, and how often to look at UDP */
	_Alignas(64) _Atomic unsigned next_rx;
	_Atomic unsigned udp_skip, udp_idle;
	_Atomic uint64_t udp_rest; /* now_ns(), until when nothing is looked for */

	_Alignas(64) struct fl_mutex slot_lock; /* LOCK_NET_SLOT */
	struct shm_tx *_Atomic tx[FAULTLINE_MAX_SLOT + 1]; /* by the peer's slot; our own is the loop */
	struct shm_rx *_Atomic rx[RX_MAX];		   /* 0 is the loop */
	struct udp_sock *_Atomic udp[UDP_MAX];
	unsigned flows; /* of these, UDP_FLOW */
	struct mcast_group group[NET_MCAST_GROUPS];

	struct fl_mutex wait_lock; /* LOCK_LEAF: waiters */
	struct cds_list_head waiters;

	struct fl_mutex udp_rx_lock; /* LOCK_NET_RX: udp_rx */
	struct udp_rx *udp_rx;

	struct fl_mutex handover_lock; /* LOCK_LEAF */
	struct handover *handover_head, **handover_tail;
};

struct net_path {
	struct net *net;
	struct net_path_attr attr;
	enum link_kind link;
	uint32_t qpn;
	struct shm_tx *tx;
	struct udp_sock *sock;
	struct udp_sock *flow_sock; /* UDP_FLOW; NULL: what the peer sends comes to the usual one; LOCK_NET_SLOT */
	struct sockaddr_storage daddr;
	socklen_t daddr_len;
	struct impair_flow *flow; /* NULL: none was impaired so far */
	struct cds_list_head dead_node;
	bool waiting; /* wait_lock */
	struct cds_list_head wait_node;
};

/* netdev.c */
void gid_from_sockaddr(const struct sockaddr *sa, uint8_t gid[16]);
bool gid_is_local(const uint8_t gid[16]);
int gid_ifindex(const uint8_t gid[16]);
static inline bool gid_is_ipv4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return !__builtin_memcmp(gid, mapped, sizeof(mapped));
}

static inline bool gid_is_link_local(const uint8_t gid[16])
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

/* into a header, in network order */
static inline void put16(uint8_t *p, uint16_t v)
{
	p[0] = v >> 8;
	p[1] = v;
}

/* grh.c */
/* len: bytes behind the UDP header, ICRC and all; of a: GIDs, class, hop limit and flow label */
void grh_make(uint8_t grh[GRH_LEN], const struct net_path_attr *a, uint32_t len);
/* is it of one of the two forms? */
bool grh_ok(const uint8_t grh[GRH_LEN]);

/* mcast.c; LOCK_NET_SLOT held */
bool mcast_sock_used(const struct net *net, const struct udp_sock *sock);

/* net.c */
int net_epoll_add(struct net *net, int fd, uint32_t events, enum epoll_kind kind, uint32_t index);
/* the path waits for room; any lock */
void net_wait(struct net_path *path);
void net_count(struct net *net, enum faultline_counter c, uint64_t n);
/* as net_xmit(), past all impairment; LOCK_NET_IMPAIR may be held */
int net_link_xmit(struct net_path *path, const struct roce_pkt *pkt, net_fill_fn fill, void *arg);
/* what net_path_close() does once nothing of the path is on its way */
void net_path_free(struct net_path *path);

/* slot.c: LOCK_NET_SLOT held where a table is touched */
enum slot_msg { SLOT_MSG_CONNECT = 'C', SLOT_MSG_STAT = 'S', SLOT_MSG_OFFER = 'O' };
struct slot_connect {
	uint8_t type; /* SLOT_MSG_CONNECT */
	uint8_t version;
	uint16_t reserved;
	uint32_t slot; /* the sender's */
};
#define SLOT_CONNECT_VERSION 1
struct slot_offer {
	uint8_t type; /* SLOT_MSG_OFFER; with it: the segment, read only, and the memory for hazards */
	uint8_t version;
	uint8_t reserved[6];
	uint64_t segment, peers; /* where the two are in the process that sends */
};
#define SLOT_OFFER_VERSION 2

int slot_claim(uint32_t *slot);
/* a connection to whoever has the slot. -ECONNREFUSED: nobody; -EPERM: another user */
int slot_dial(uint32_t slot);

/* shm.c */
int shm_open_loop(struct net *net);
/* finds or makes the channel to a slot, and connects it when it is not; LOCK_NET_SLOT held */
int shm_tx_get(struct net *net, uint32_t slot, struct shm_tx **tx);
void shm_tx_put(struct net *net, struct shm_tx *tx);
int shm_xmit(struct net_path *path, const struct roce_pkt *pkt, net_fill_fn fill, void *arg);
/* 0, or -ENOTCONN, -EAGAIN: the packet was not taken */
int shm_send_raw(struct shm_tx *tx, const uint8_t grh[GRH_LEN], const uint8_t *packet, uint32_t len,
		 bool ce);
int shm_drain(struct net *net, struct shm_rx *rx, int budget);
void shm_accept(struct net *net);
void shm_rx_event(struct net *net, uint32_t index);
void shm_tx_event(struct net *net, uint32_t slot);
void shm_reconnect(struct net *net);
void shm_close_all(struct net *net);

/* peer.c: LOCK_NET_SLOT held */
void peer_offer(struct net *net, struct shm_rx *rx);
void peer_left(struct net *net, struct shm_rx *rx);
void peer_take_offer(struct net *net, struct shm_tx *tx);
void peer_forget(struct shm_tx *tx);
/* what peer_forget() does under the peer's lock */
void peer_unmap(struct net_peer *peer);

/* udp.c, udp_tx.c, udp_rx.c */
/* a socket bound to a group's address, which is a free one's if there is one; LOCK_NET_SLOT held */
int udp_group_sock(struct net *net, const uint8_t gid[16], int ifindex, struct udp_sock **sock);
int udp_sock_get(struct net *net, const uint8_t gid[16], bool needed, struct udp_sock **sock);
int udp_path_init(struct net_path *path, const struct net_path_attr *attr);
void udp_path_end(struct net_path *path);
int udp_xmit(struct net_path *path, const struct roce_pkt *pkt, net_fill_fn fill, void *arg);
uint32_t udp_window(const struct udp_sock *sock, uint32_t mtu);
bool udp_writable(const struct udp_sock *sock);
int udp_poll(struct net *net, int budget);
/* says in the epoll whether anything that happens to the sockets matters */
void udp_arm(struct net *net, bool on);
void udp_close_all(struct net *net);

#endif
