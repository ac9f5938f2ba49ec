/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receiving over UDP. What arrives in a row from one sender may come as one message (UDP_GRO).
 *
 * All processes of a user share the port, and the kernel picks a socket by a hash of the addresses and
 * ports: a packet may come to the wrong process. Its destination QPN says whose it is, and it is handed
 * over as a raw record through the ring to that process. When there is no channel to it yet, the packet
 * waits in a list until net_poll() has made one (that takes LOCK_NET_SLOT, which is not to be had under
 * LOCK_NET_RX).
 *
 * Looking costs a system call, so idle sockets are looked at on every 8th poll, and a few times in a millisecond
 * when no path of ours goes over UDP; while the engine sleeps the sockets are in its epoll.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "net/udp.h"
#include "util/cancel.h"
#include <linux/in6.h> /* what <netinet/in.h> lacks; after it */

#define RX_MSGS	     16
#define RX_BYTES     65536 /* a run of packets, or the longest packet */
#define RX_LONGEST   (ROCE_HDR_MAX + 4096 + ROCE_ICRC_BYTES)
#define SKIP_IDLE    8
#define SKIP_NO_PATH 32	   /* polls between looks at the clock ... */
#define REST_NO_PATH 250000ull /* ... and ns between those at the socket: more would be seen in the tail of what polls */
#define BUSY_POLLS   64 /* empty polls in a row that make a socket idle */

struct udp_rx {
	struct mmsghdr msgs[RX_MSGS];
	struct iovec iov[RX_MSGS];
	struct sockaddr_storage from[RX_MSGS];
	union udp_control control[RX_MSGS];
	/* each with room before it for the UDP header that is made up for the ICRC */
	uint8_t bytes[RX_MSGS][UDP_HDR + RX_BYTES];
};

struct udp_rx *udp_rx_alloc(void)
{
	struct udp_rx *rx = calloc(1, sizeof(*rx));
	int i;

	for (i = 0; rx && i < RX_MSGS; i++) {
		rx->iov[i].iov_base = rx->bytes[i] + UDP_HDR;
		rx->iov[i].iov_len = RX_BYTES;
		rx->msgs[i].msg_hdr.msg_iov = &rx->iov[i];
		rx->msgs[i].msg_hdr.msg_iovlen = 1;
		rx->msgs[i].msg_hdr.msg_name = &rx->from[i];
	}
	return rx;
}

/* id: what the sender most likely had as IP ID, the place in a run */
static bool icrc_ok(const struct udp_sock *sock, const struct sockaddr_storage *from, uint16_t id,
		    uint8_t *udp, size_t len)
{
	uint8_t ip[IPV6_HDR];
	uint32_t got, want;
	size_t ip_len;

	ip_len = udp_make_headers(from, &sock->addr, id, len, ip, udp);
	memcpy(&got, udp + UDP_HDR + len - ROCE_ICRC_BYTES, sizeof(got));
	len += UDP_HDR - ROCE_ICRC_BYTES;
	want = roce_icrc(ip, ip_len, udp, len);
	got = le32toh(got);
	if (got == want)
		return true;
	/* the rest of the IPv4 header behind the ID, 14 bytes, then UDP on */
	return from->ss_family == AF_INET && roce_icrc_solve_id(got ^ want, 14 + len) >= 0;
}

/*
 * LOCK_NET_RX held: what has a channel goes at once, the rest waits for handover_flush(). grh: of a
 * datagram, else it does not matter.
 */
static void hand_over(struct net *net, uint32_t slot, const uint8_t grh[GRH_LEN], const uint8_t *packet,
		      uint32_t len, bool ce)
{
	struct shm_tx *tx = atomic_load(&net->tx[slot]);
	struct handover *h;
	int ret = -ENOTCONN;

	if (tx)
		ret = shm_send_raw(tx, grh, packet, len, ce);
	if (ret != -ENOTCONN)
		goto out;
	if (atomic_load(&net->num_handover) >= HANDOVER_MAX)
		goto out;
	h = malloc(sizeof(*h) + len);
	if (!h)
		goto out;
	h->next = NULL;
	h->slot = slot;
	h->len = len;
	h->ce = ce;
	memcpy(h->grh, grh, GRH_LEN);
	memcpy(h->packet, packet, len);
	fl_lock(&net->handover_lock);
	*net->handover_tail = h;
	net->handover_tail = &h->next;
	atomic_fetch_add(&net->num_handover, 1);
	fl_unlock(&net->handover_lock);
	return;
out:
	if (ret)
		net_count(net, FL_CNT_send_err, 1);
}

/* what a message says of its packets' IP headers */
struct rx_header {
	uint8_t tclass, hop_limit;
	uint32_t flow_label;
};

static void received_grh(const struct udp_sock *sock, const struct sockaddr_storage *from,
			 const struct rx_header *header, size_t len, uint8_t grh[GRH_LEN])
{
	struct net_path_attr a = {
		.tclass = header->tclass, .hop_limit = header->hop_limit, .flow_label = header->flow_label};

	gid_from_sockaddr((const struct sockaddr *)from, a.sgid);
	memcpy(a.dgid, sock->gid, sizeof(a.dgid));
	grh_make(grh, &a, len);
}

/* One packet; the 8 bytes before it are free. id: its place in a run. */
static void receive(struct net *net, struct udp_sock *sock, const struct sockaddr_storage *from,
		    uint8_t *packet, size_t len, unsigned id, const struct rx_header *header)
{
	bool ce = (header->tclass & ECN_MASK) == ECN_CE;
	uint8_t grh[GRH_LEN] = {0};
	struct roce_pkt pkt;
	uint32_t slot;

	if (len > RX_LONGEST || len & 3 ||
	    len < ROCE_BTH_BYTES + ROCE_ICRC_BYTES) {
		net_count(net, FL_CNT_rx_malformed, 1);
		return;
	}
	if (!icrc_ok(sock, from, id, packet - UDP_HDR, len)) {
		net_count(net, FL_CNT_rx_icrc_err, 1);
		return;
	}
	len -= ROCE_ICRC_BYTES;
	if (roce_parse(packet, len, &pkt)) {
		net_count(net, FL_CNT_rx_malformed, 1);
		return;
	}
	pkt.ce = ce;
	slot = pkt.dest_qpn >> FAULTLINE_QPN_SLOT_SHIFT;
	if (roce_opcode[pkt.opcode].flags & ROCE_F_DETH) {
		received_grh(sock, from, header, len + ROCE_ICRC_BYTES, grh);
		pkt.grh = grh;
	}
	if (pkt.dest_qpn == ROCE_QPN_MULTICAST || sock->kind == UDP_GROUP) {
		/* to a group by both its address and its QPN, or to nobody */
		if (pkt.dest_qpn == ROCE_QPN_MULTICAST && sock->kind == UDP_GROUP && pkt.grh)
			net->ops->rx(net->ctx, &pkt);
		else
			net_count(net, FL_CNT_rx_unknown_qp, 1);
	} else if (slot && slot != net->slot)
		hand_over(net, slot, grh, packet, len, ce);
	else
		net->ops->rx(net->ctx, &pkt);
}

/* A message: a packet, or a run of packets of one size. Returns their number. */
static int receive_run(struct net *net, struct udp_sock *sock, unsigned i)
{
	struct msghdr *m = &net->udp_rx->msgs[i].msg_hdr;
	uint32_t left = net->udp_rx->msgs[i].msg_len, size = left, n;
	uint8_t *p = net->udp_rx->bytes[i] + UDP_HDR;
	struct rx_header header = {.hop_limit = HOP_USUAL};
	struct cmsghdr *c;

	if (m->msg_flags & MSG_TRUNC || !left) {
		net_count(net, FL_CNT_rx_malformed, 1);
		return 1;
	}
	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		int value = *CMSG_DATA(c); /* IP_TOS is a byte, the others are ints */

		if (c->cmsg_len >= CMSG_LEN(sizeof(value)))
			memcpy(&value, CMSG_DATA(c), sizeof(value));
		if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO && value > 0)
			size = value;
		else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) ||
			 (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS))
			header.tclass = value;
		else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL) ||
			 (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT))
			header.hop_limit = value;
		else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_FLOWINFO)
			header.flow_label = be32toh(value) & 0xfffff;
	}
	for (n = 0; left; n++) {
		size = size < left ? size : left;
		receive(net, sock, &net->udp_rx->from[i], p, size, n, &header);
		p += size;
		left -= size;
	}
	return n;
}

static int udp_drain(struct net *net, struct udp_sock *sock, int budget)
{
	NO_CANCEL;
	struct udp_rx *rx = net->udp_rx;
	int n, i, got = 0;

	for (i = 0; i < RX_MSGS; i++) {
		rx->msgs[i].msg_hdr.msg_namelen = sizeof(rx->from[i]);
		rx->msgs[i].msg_hdr.msg_control = &rx->control[i];
		rx->msgs[i].msg_hdr.msg_controllen = sizeof(rx->control[i]);
		rx->msgs[i].msg_hdr.msg_flags = 0;
	}
	n = recvmmsg(sock->fd, rx->msgs, budget < RX_MSGS ? budget : RX_MSGS, MSG_DONTWAIT, NULL);
	for (i = 0; i < n; i++)
		got += receive_run(net, sock, i);
	return got;
}

int udp_poll(struct net *net, int budget)
{
	unsigned num = atomic_load_explicit(&net->num_udp, memory_order_acquire), i;
	unsigned skip = atomic_load_explicit(&net->udp_skip, memory_order_relaxed);
	unsigned idle = atomic_load_explicit(&net->udp_idle, memory_order_relaxed);
	bool no_path = !atomic_load_explicit(&net->udp_paths, memory_order_relaxed);
	struct udp_sock *sock;
	int n = 0;

	/* All are hints: what another thread stores in between costs a poll more or less. */
	if (skip) {
		atomic_store_explicit(&net->udp_skip, skip - 1, memory_order_relaxed);
		return 0;
	}
	if (no_path && now_ns() < atomic_load_explicit(&net->udp_rest, memory_order_relaxed)) {
		atomic_store_explicit(&net->udp_skip, SKIP_NO_PATH, memory_order_relaxed);
		return 0;
	}
	if (!fl_trylock(&net->udp_rx_lock))
		return 0;
	for (i = 0; i < num && n < budget; i++) {
		sock = atomic_load(&net->udp[i]);
		if (sock->kind != UDP_SENDS)
			n += udp_drain(net, sock, budget - n);
	}
	fl_unlock(&net->udp_rx_lock);
	idle = n ? 0 : idle + 1;
	atomic_store_explicit(&net->udp_idle, idle, memory_order_relaxed);
	if (no_path) {
		if (!n)
			skip = SKIP_NO_PATH;
		atomic_store_explicit(&net->udp_rest, n ? 0 : now_ns() + REST_NO_PATH, memory_order_relaxed);
	} else if (idle > BUSY_POLLS) {
		skip = SKIP_IDLE;
	}
	atomic_store_explicit(&net->udp_skip, skip, memory_order_relaxed);
	return n;
}
