/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RoCEv2 over UDP sockets: for each local address in use one socket bound to port 4791, which receives, and one bound
 * to a source port of this process, which sends (others for address handles with a flow label). Packets leave with
 * DF and, the socket being unconnected, IP ID 0, so their ICRC can be computed here. Sending is in udp_tx.c,
 * receiving in udp_rx.c.
 *
 * All processes of a user share the port (SO_REUSEPORT), the kernel chooses one by a hash, and what comes to the wrong
 * one is handed over (udp_rx.c). That costs a copy and another process's time, and a process that is stopped hands
 * over nothing. So a connection opens a flow for the process at its other end: a socket at the same port that is
 * connected to that process's source port, which the kernel prefers. A process's source port follows from its slot, so
 * from its QPNs; who sends from another (a NIC, a peer with a flow label) is not met, and handed over. So
 * is what a process sends to several of ours: the flow of one of them gets it all. Once there are flows, a process
 * that comes later forms a group with them (Linux 6.18), and gets all that is of no flow.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "net/udp.h"
#include "util/cancel.h"
#include <linux/in6.h> /* what <netinet/in.h> lacks; after it */

#define UDP_BUF	     NET_SOCKET_BUFFER
#define WINDOW_MIN   16
#define SOURCE_PORTS 0xc000 /* and up: those that RoCEv2 is sent from */
#define WINDOW_BYTES (RING_BYTES / 4)

static socklen_t gid_to_sockaddr(const uint8_t gid[16], uint16_t port, int ifindex,
				 struct sockaddr_storage *ss)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	if (gid_is_ipv4(gid)) {
		sin->sin_family = AF_INET;
		sin->sin_port = htobe16(port);
		memcpy(&sin->sin_addr, gid + 12, 4);
		return sizeof(*sin);
	}
	sin6->sin6_family = AF_INET6;
	sin6->sin6_port = htobe16(port);
	memcpy(&sin6->sin6_addr, gid, 16);
	if (gid_is_link_local(gid) || gid[0] == 0xff)
		sin6->sin6_scope_id = ifindex;
	return sizeof(*sin6);
}

static uint16_t sockaddr_port(const struct sockaddr_storage *ss)
{
	if (ss->ss_family == AF_INET)
		return be16toh(((const struct sockaddr_in *)ss)->sin_port);
	return be16toh(((const struct sockaddr_in6 *)ss)->sin6_port);
}

size_t udp_make_headers(const struct sockaddr_storage *src, const struct sockaddr_storage *dst, uint16_t id,
			size_t len, uint8_t ip[IPV6_HDR], uint8_t udp[UDP_HDR])
{
	size_t hdr;

	memset(ip, 0, IPV6_HDR);
	if (src->ss_family == AF_INET) {
		hdr = IPV4_HDR;
		ip[0] = 0x45;
		put16(ip + 2, IPV4_HDR + UDP_HDR + len);
		put16(ip + 4, id);
		ip[6] = 0x40; /* DF */
		ip[9] = IPPROTO_UDP;
		memcpy(ip + 12, &((const struct sockaddr_in *)src)->sin_addr, 4);
		memcpy(ip + 16, &((const struct sockaddr_in *)dst)->sin_addr, 4);
	} else {
		hdr = IPV6_HDR;
		ip[0] = 0x60;
		put16(ip + 4, UDP_HDR + len);
		ip[6] = IPPROTO_UDP;
		memcpy(ip + 8, &((const struct sockaddr_in6 *)src)->sin6_addr, 16);
		memcpy(ip + 24, &((const struct sockaddr_in6 *)dst)->sin6_addr, 16);
	}
	put16(udp, sockaddr_port(src));
	put16(udp + 2, ROCE_UDP_PORT);
	put16(udp + 4, UDP_HDR + len);
	put16(udp + 6, 0);
	return hdr;
}

/* ---- sockets ---- */

/* By force where CAP_NET_ADMIN allows it, else what the system lets anybody have. The size: half of what counts. */
static int set_buffer(int fd, int force, int plain, int get)
{
	int size = UDP_BUF, got = 0;
	socklen_t len = sizeof(got);

	if (setsockopt(fd, SOL_SOCKET, force, &size, sizeof(size)))
		setsockopt(fd, SOL_SOCKET, plain, &size, sizeof(size));
	getsockopt(fd, SOL_SOCKET, get, &got, &len);
	return got / 2;
}

/* What is sent to a group leaves by that interface; a group's socket gets what it joined itself, no more. */
static int set_multicast(int fd, int family, int ifindex)
{
	struct ip_mreqn out = {.imr_ifindex = ifindex};
	int none = 0;

	if (family == AF_INET)
		return setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &out, sizeof(out)) ||
		       setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &none, sizeof(none));
	return setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &ifindex, sizeof(ifindex)) ||
	       setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, &none, sizeof(none));
}

static int udp_socket(const struct sockaddr_storage *addr, socklen_t len, int ifindex)
{
	int one = 1, none = 0, pmtu = IP_PMTUDISC_DO, ecn = ECN_ECT0, got, fd, ret;

	fd = socket(addr->ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	got = set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, SO_RCVBUF);
	if (got < UDP_BUF)
		fl_info("UDP port %d: a receive buffer of %d KiB where %d are wanted: packets may be lost, and windows are small; "
			"the remedy: sysctl net.core.rmem_max=%d, or CAP_NET_ADMIN",
			ROCE_UDP_PORT, got >> 10, UDP_BUF >> 10, UDP_BUF);
	set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, SO_SNDBUF);
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)))
		goto err;
	/* without it (before Linux 5.0) packets come one by one */
	setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one));
	if (addr->ss_family == AF_INET)
		ret = setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &pmtu, sizeof(pmtu)) ||
		      setsockopt(fd, IPPROTO_IP, IP_TOS, &ecn, sizeof(ecn)) ||
		      setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &one, sizeof(one)) ||
		      setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &one, sizeof(one));
	else
		/* RoCEv2 may leave the UDP checksum out, and rxe does; over IPv6 that is to be allowed */
		ret = setsockopt(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, &one, sizeof(one)) ||
		      setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &pmtu, sizeof(pmtu)) ||
		      setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &ecn, sizeof(ecn)) ||
		      setsockopt(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, &one, sizeof(one)) ||
		      setsockopt(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &one, sizeof(one)) ||
		      /* the address handle's flow label, or none: not one that the kernel makes up */
		      setsockopt(fd, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, &none, sizeof(none)) ||
		      setsockopt(fd, IPPROTO_IPV6, IPV6_FLOWINFO_SEND, &one, sizeof(one)) ||
		      setsockopt(fd, IPPROTO_IPV6, IPV6_FLOWINFO, &one, sizeof(one)) ||
		      setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (ret || set_multicast(fd, addr->ss_family, ifindex) || bind(fd, (const struct sockaddr *)addr, len))
		goto err;
	return fd;
err:
	ret = -errno;
	close(fd);
	return ret;
}

static int connect_flow(struct udp_sock *sock, const struct sockaddr_storage *from)
{
	if (connect(sock->fd, (const struct sockaddr *)from, sock->addr_len))
		return -errno;
	sock->from = *from;
	return 0;
}

static struct udp_sock *find_sock(struct net *net, const uint8_t gid[16], uint16_t port)
{
	unsigned i, n = atomic_load(&net->num_udp);
	struct udp_sock *sock;

	for (i = 0; i < n; i++) {
		sock = atomic_load(&net->udp[i]);
		if (sock->kind != UDP_FLOW && !memcmp(sock->gid, gid, sizeof(sock->gid)) &&
		    sockaddr_port(&sock->addr) == port)
			return sock;
	}
	return NULL;
}

/* from: of a UDP_FLOW, else NULL */
static int new_sock(struct net *net, enum udp_kind kind, const uint8_t gid[16], uint16_t port, int ifindex,
		    bool needed, const struct sockaddr_storage *from, struct udp_sock **out)
{
	bool sends = kind == UDP_USUAL || kind == UDP_SENDS;
	unsigned n = atomic_load(&net->num_udp);
	struct udp_sock *sock;
	int ret;

	if (n == UDP_MAX)
		return -ENOSPC;
	sock = calloc(1, sizeof(*sock));
	if (!sock)
		return -ENOMEM;
	fl_mutex_init(&sock->lock, LOCK_NET_TX);
	memcpy(sock->gid, gid, sizeof(sock->gid));
	sock->addr_len = gid_to_sockaddr(gid, port, ifindex, &sock->addr);
	sock->kind = kind;
	sock->batch = sends ? udp_batch_alloc() : NULL;
	if (!net->udp_rx)
		net->udp_rx = udp_rx_alloc();
	if ((sends && !sock->batch) || !net->udp_rx) {
		ret = -ENOMEM;
		goto err;
	}
	sock->fd = udp_socket(&sock->addr, sock->addr_len, ifindex);
	if (sock->fd < 0) {
		ret = sock->fd;
		fl_log(needed ? LOG_ERR : LOG_INFO, "UDP port %d of a local address: %s%s", port,
		       strerror(-ret),
		       ret == -EADDRINUSE ?
			       " (another user's process, or the kernel's rxe, has it: end that, or use another address or network namespace)" :
			       "");
		goto err;
	}
	/* what comes before it is connected is of anybody, as at the usual one */
	ret = from ? connect_flow(sock, from) : 0;
	if (!ret)
		ret = net_epoll_add(net, sock->fd, 0, EP_UDP, n);
	if (ret) {
		close(sock->fd);
		goto err;
	}
	atomic_store(&net->udp[n], sock);
	atomic_store_explicit(&net->num_udp, n + 1, memory_order_release); /* pairs with net_poll() and udp_poll() */
	if (atomic_load(&net->sleeping))
		udp_arm(net, true);
	*out = sock;
	return 0;
err:
	free(sock->batch);
	free(sock);
	return ret;
}

int udp_sock_get(struct net *net, const uint8_t gid[16], bool needed, struct udp_sock **out)
{
	*out = find_sock(net, gid, ROCE_UDP_PORT);
	return *out ? 0 : new_sock(net, UDP_USUAL, gid, ROCE_UDP_PORT, gid_ifindex(gid), needed, NULL, out);
}

/* of a process, where nothing else decides: its peers know by it what is this process's */
static uint16_t slot_port(uint32_t slot)
{
	return SOURCE_PORTS | slot;
}

/*
 * Routers spread packets by their source port, so a flow label, which RoCEv2 has no other place for over IPv4,
 * becomes one, by the formula that the kernel's drivers have. Sent from a socket of its own; where none can be had,
 * from the usual one.
 */
static void choose_source_port(struct net_path *path, const struct net_path_attr *attr)
{
	uint32_t label = attr->flow_label & 0xfffff;
	uint16_t port = label ? ((label & 0x3fff) ^ label >> 14) | SOURCE_PORTS : slot_port(path->net->slot);
	struct udp_sock *sock;

	sock = find_sock(path->net, attr->sgid, port);
	if (sock ||
	    !new_sock(path->net, UDP_SENDS, attr->sgid, port, gid_ifindex(attr->sgid), false, NULL, &sock))
		path->sock = sock;
}

/* ---- flows ---- */

static struct udp_sock *find_flow(struct net *net, const uint8_t gid[16], const struct sockaddr_storage *from)
{
	unsigned i, n = atomic_load(&net->num_udp);
	struct udp_sock *sock, *free = NULL;

	for (i = 0; i < n; i++) {
		sock = atomic_load(&net->udp[i]);
		if (sock->kind != UDP_FLOW || memcmp(sock->gid, gid, sizeof(sock->gid)))
			continue;
		if (!memcmp(&sock->from, from, sizeof(*from)))
			return sock;
		if (!sock->paths)
			free = sock;
	}
	if (!free && net->flows < FLOWS_MAX &&
	    !new_sock(net, UDP_FLOW, gid, ROCE_UDP_PORT, gid_ifindex(gid), false, from, &free)) {
		net->flows++;
		return free;
	}
	/* one that nobody needs any more; what is in it still is read like what comes to the usual one */
	return free && !connect_flow(free, from) ? free : NULL;
}

/* for what the peer's process sends; NULL: it comes to the usual one, whichever process has that */
static struct udp_sock *flow_of(struct net *net, const struct net_path_attr *attr)
{
	uint32_t slot = (attr->dest_qpn & ROCE_QPN_MASK) >> FAULTLINE_QPN_SLOT_SHIFT;
	struct sockaddr_storage from;
	struct udp_sock *sock;

	if (!slot || gid_is_multicast(attr->dgid))
		return NULL;
	gid_to_sockaddr(attr->dgid, slot_port(slot), gid_ifindex(attr->sgid), &from);
	sock = find_flow(net, attr->sgid, &from);
	if (sock)
		sock->paths++;
	return sock;
}

/* A socket that has no group becomes this one's: same place, same descriptor. */
static int rebind(struct net *net, unsigned index, const uint8_t gid[16], int ifindex)
{
	struct udp_sock *sock = atomic_load(&net->udp[index]);
	struct sockaddr_storage addr;
	socklen_t len = gid_to_sockaddr(gid, ROCE_UDP_PORT, ifindex, &addr);
	int fd = udp_socket(&addr, len, ifindex), ret = 0;

	if (fd < 0)
		return fd;
	fl_lock(&net->udp_rx_lock);
	if (dup3(fd, sock->fd, O_CLOEXEC) < 0) {
		ret = -errno;
	} else {
		memcpy(sock->gid, gid, sizeof(sock->gid));
		sock->addr = addr;
		sock->addr_len = len;
	}
	fl_unlock(&net->udp_rx_lock);
	close(fd);
	return ret ? ret : net_epoll_add(net, sock->fd, 0, EP_UDP, index);
}

int udp_group_sock(struct net *net, const uint8_t gid[16], int ifindex, struct udp_sock **out)
{
	unsigned i, n = atomic_load(&net->num_udp);
	struct udp_sock *sock;
	int ret;

	*out = find_sock(net, gid, ROCE_UDP_PORT);
	if (*out)
		return 0;
	for (i = 0; i < n; i++) {
		sock = atomic_load(&net->udp[i]);
		if (sock->kind != UDP_GROUP || mcast_sock_used(net, sock))
			continue;
		ret = rebind(net, i, gid, ifindex);
		if (!ret && atomic_load(&net->sleeping))
			udp_arm(net, true);
		*out = sock;
		return ret;
	}
	return new_sock(net, UDP_GROUP, gid, ROCE_UDP_PORT, ifindex, true, NULL, out);
}

void udp_close_all(struct net *net)
{
	unsigned i, n = atomic_load(&net->num_udp);
	struct udp_sock *sock;

	for (i = 0; i < n; i++) {
		sock = atomic_load(&net->udp[i]);
		close(sock->fd);
		free(sock->batch);
		free(sock);
	}
	free(net->udp_rx);
}

/* Is there a route? A connected socket asks the kernel without sending anything. */
static int check_route(const struct sockaddr_storage *src, socklen_t len,
		       const struct sockaddr_storage *dst)
{
	struct sockaddr_storage from = *src;
	int fd, ret = 0;

	fd = socket(src->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (from.ss_family == AF_INET)
		((struct sockaddr_in *)&from)->sin_port = 0;
	else
		((struct sockaddr_in6 *)&from)->sin6_port = 0;
	if (bind(fd, (struct sockaddr *)&from, len) || connect(fd, (const struct sockaddr *)dst, len))
		ret = -errno;
	close(fd);
	return ret == -EHOSTUNREACH || ret == -EINVAL ? -ENETUNREACH : ret;
}

/* Linux 5.3 and later let any label be sent with that no process has taken for itself alone. */
static bool flow_label_is_free(const struct sockaddr_storage *dst, socklen_t len)
{
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), one = 1;
	bool ret;

	if (fd < 0)
		return false;
	ret = !setsockopt(fd, IPPROTO_IPV6, IPV6_FLOWINFO_SEND, &one, sizeof(one)) &&
	      !connect(fd, (const struct sockaddr *)dst, len);
	close(fd);
	return ret;
}

/*
 * Over IPv6 the flow label goes into the header too, if the kernel lets it. With a lease it does, whoever else
 * comes later; but half of all labels are never leased (net.ipv6.flowlabel_state_ranges).
 */
static void set_flow_label(struct net_path *path, uint32_t label)
{
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)&path->daddr;
	struct in6_flowlabel_req lease = {.flr_dst = sin6->sin6_addr,
					  .flr_label = htobe32(label & 0xfffff),
					  .flr_action = IPV6_FL_A_GET,
					  .flr_share = IPV6_FL_S_ANY,
					  .flr_flags = IPV6_FL_F_CREATE};

	if (!lease.flr_label)
		return;
	sin6->sin6_flowinfo = lease.flr_label;
	if (setsockopt(path->sock->fd, IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, &lease, sizeof(lease)) &&
	    !flow_label_is_free(&path->daddr, path->daddr_len)) {
		sin6->sin6_flowinfo = 0;
		fl_info("IPv6 flow label %05x cannot be had here: packets have none", label & 0xfffff);
	}
}

int udp_path_init(struct net_path *path, const struct net_path_attr *attr)
{
	int ret;

	ret = udp_sock_get(path->net, attr->sgid, true, &path->sock);
	if (ret)
		return ret;
	choose_source_port(path, attr);
	path->daddr_len = gid_to_sockaddr(attr->dgid, ROCE_UDP_PORT, gid_ifindex(attr->sgid), &path->daddr);
	if (path->daddr.ss_family != path->sock->addr.ss_family)
		return -ENETUNREACH;
	/* a group is reached by the interface, whatever the routes */
	ret = gid_is_multicast(attr->dgid) ? 0
					   : check_route(&path->sock->addr, path->sock->addr_len, &path->daddr);
	if (ret)
		return ret;
	if (path->daddr.ss_family == AF_INET6)
		set_flow_label(path, attr->flow_label);
	path->flow_sock = flow_of(path->net, attr);
	atomic_fetch_add(&path->net->udp_paths, 1);
	return 0;
}

void udp_path_end(struct net_path *path)
{
	if (path->flow_sock)
		path->flow_sock->paths--;
	atomic_fetch_sub(&path->net->udp_paths, 1);
}

/*
 * The peer's buffer is taken to be as large as ours. A packet counts in it with its whole allocation: headers,
 * headroom and the kernel's own struct, rounded up to a power of two, and the descriptor. Half of
 * it, since a QP is seldom alone.
 */
uint32_t udp_window(const struct udp_sock *sock, uint32_t mtu)
{
	uint32_t cost = 512, n;
	socklen_t len = sizeof(int);
	int size;

	while (cost < mtu + 512)
		cost *= 2;
	if (getsockopt(sock->fd, SOL_SOCKET, SO_RCVBUF, &size, &len))
		size = 0;
	n = size / 2 / (cost + 256);
	/* nor more than the ring takes by which another process may have to hand them over */
	if (n > WINDOW_BYTES / mtu)
		n = WINDOW_BYTES / mtu;
	return n < WINDOW_MIN ? WINDOW_MIN : n;
}

bool udp_writable(const struct udp_sock *sock)
{
	NO_CANCEL;
	struct pollfd pfd = {.fd = sock->fd, .events = POLLOUT};

	return poll(&pfd, 1, 0) > 0;
}

void udp_arm(struct net *net, bool on)
{
	unsigned i, n = atomic_load_explicit(&net->num_udp, memory_order_acquire);
	struct epoll_event ev;

	for (i = 0; i < n; i++) {
		ev.events = 0;
		if (on)
			ev.events = (atomic_load(&net->udp[i])->kind == UDP_SENDS ? 0 : EPOLLIN) | EPOLLONESHOT |
				    (atomic_load(&net->num_waiters) ? EPOLLOUT : 0);
		ev.data.u64 = (uint64_t)EP_UDP << 32 | i;
		epoll_ctl(net->epfd, EPOLL_CTL_MOD, atomic_load(&net->udp[i])->fd, &ev);
	}
}
