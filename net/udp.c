/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RoCEv2 over UDP sockets: one socket for each local address in use, bound to port 4791, which is also
 * the source port. Packets leave with DF and, the socket being unconnected, IP ID 0, so their ICRC can be
 * computed here. A train is cut into packets that go out by one sendmmsg(): runs of packets of one size as
 * one message that the kernel cuts (UDP_SEGMENT), which numbers their IP IDs from 0 on. What arrives in
 * a row from one sender may come as one message, too (UDP_GRO).
 *
 * All processes of a user share the port (SO_REUSEPORT), and the kernel picks a socket by a hash of the
 * addresses and ports: a packet may come to the wrong process. Its destination QPN says whose it is, and
 * it is handed over as a raw record through the ring to that process. When there is no channel to it
 * yet, the packet waits in a list until net_poll() has made one (that takes LOCK_NET_SLOT, which is
 * not to be had under LOCK_NET_RX).
 *
 * Looking costs a system call, so idle sockets are looked at on every 8th poll, and on every 256th when
 * no path of ours goes over UDP; while the engine sleeps the sockets are in its epoll.
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <netinet/udp.h>
#include <unistd.h>
#include "net/impl.h"
#include "util/cancel.h"

#define UDP_BUF		(8 << 20)
#define TRAIN_PKTS	256 /* of the smallest MTU */
#define TX_BYTES	(TRAIN_MAX + TRAIN_PKTS * (ROCE_HDR_MAX + 3 + ROCE_ICRC_BYTES))
#define RX_MSGS		16
#define RX_BYTES	65536 /* a run of packets, or the longest packet */
#define GSO_PKTS	64	/* in one message; the kernel's limit */
#define GSO_BYTES	65000	/* likewise, with room for headers */
#define RX_LONGEST	(ROCE_HDR_MAX + 4096 + ROCE_ICRC_BYTES)
#define SEND_TRIES	1000
#define SKIP_IDLE	8
#define SKIP_NO_PATH	256
#define WINDOW_MIN	16
#define WINDOW_BYTES	(RING_BYTES / 4)
#define BUSY_POLLS	64 /* empty polls in a row that make a socket idle */
#define IPV4_HDR	20
#define IPV6_HDR	40
#define UDP_HDR		8

union udp_control {
	struct cmsghdr align;
	uint8_t buf[CMSG_SPACE(sizeof(int))];
};

/* a message to be sent: one packet, or a run of them of one size, the last perhaps shorter */
struct udp_run {
	uint32_t size; /* of each */
	uint32_t count;
};

struct udp_batch {
	struct mmsghdr msgs[TRAIN_PKTS];
	struct iovec iov[TRAIN_PKTS];
	struct udp_run run[TRAIN_PKTS];
	union udp_control control[TRAIN_PKTS];
	unsigned n; /* messages */
	bool no_gso; /* the kernel or the device cannot */
	uint8_t bytes[TX_BYTES];
};

struct udp_rx {
	struct mmsghdr msgs[RX_MSGS];
	struct iovec iov[RX_MSGS];
	struct sockaddr_storage from[RX_MSGS];
	union udp_control control[RX_MSGS];
	/* each with room before it for the UDP header that is made up for the ICRC */
	uint8_t bytes[RX_MSGS][UDP_HDR + RX_BYTES];
};

static socklen_t gid_to_sockaddr(const uint8_t gid[16], int ifindex, struct sockaddr_storage *ss)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	if (gid_is_ipv4(gid)) {
		sin->sin_family = AF_INET;
		sin->sin_port = htobe16(ROCE_UDP_PORT);
		memcpy(&sin->sin_addr, gid + 12, 4);
		return sizeof(*sin);
	}
	sin6->sin6_family = AF_INET6;
	sin6->sin6_port = htobe16(ROCE_UDP_PORT);
	memcpy(&sin6->sin6_addr, gid, 16);
	if (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80)
		sin6->sin6_scope_id = ifindex;
	return sizeof(*sin6);
}

static uint16_t sockaddr_port(const struct sockaddr_storage *ss)
{
	if (ss->ss_family == AF_INET)
		return be16toh(((const struct sockaddr_in *)ss)->sin_port);
	return be16toh(((const struct sockaddr_in6 *)ss)->sin6_port);
}

static void put16(uint8_t *p, uint16_t v)
{
	p[0] = v >> 8;
	p[1] = v;
}

/*
 * The IP header (its length is returned) and the UDP header that the kernel puts, or took from, before len
 * bytes of UDP payload; fields that the ICRC masks are left out. Both addresses are of one family. id: the
 * IPv4 ID.
 */
static size_t make_headers(const struct sockaddr_storage *src, const struct sockaddr_storage *dst,
			   uint16_t id, size_t len, uint8_t ip[IPV6_HDR], uint8_t udp[UDP_HDR])
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

static void set_buffer(int fd, int force, int plain)
{
	int size = UDP_BUF;

	if (setsockopt(fd, SOL_SOCKET, force, &size, sizeof(size)))
		setsockopt(fd, SOL_SOCKET, plain, &size, sizeof(size));
}

static int udp_socket(const struct sockaddr_storage *addr, socklen_t len)
{
	int one = 1, pmtu = IP_PMTUDISC_DO, fd, ret;

	fd = socket(addr->ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF);
	set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF);
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)))
		goto err;
	/* without it (before Linux 5.0) packets come one by one */
	setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one));
	if (addr->ss_family == AF_INET)
		ret = setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &pmtu, sizeof(pmtu));
	else
		ret = setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &pmtu, sizeof(pmtu)) ||
		      setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (ret || bind(fd, (const struct sockaddr *)addr, len))
		goto err;
	return fd;
err:
	ret = -errno;
	close(fd);
	return ret;
}

static struct udp_rx *udp_rx_alloc(void)
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

int udp_sock_get(struct net *net, const uint8_t gid[16], bool needed, struct udp_sock **out)
{
	unsigned i, n = atomic_load(&net->num_udp);
	struct udp_sock *sock;
	int ret;

	for (i = 0; i < n; i++) {
		sock = atomic_load(&net->udp[i]);
		if (!memcmp(sock->gid, gid, sizeof(sock->gid))) {
			*out = sock;
			return 0;
		}
	}
	if (n == UDP_MAX)
		return -ENOSPC;
	sock = calloc(1, sizeof(*sock));
	if (!sock)
		return -ENOMEM;
	fl_mutex_init(&sock->lock, LOCK_NET_TX);
	memcpy(sock->gid, gid, sizeof(sock->gid));
	sock->addr_len = gid_to_sockaddr(gid, gid_ifindex(gid), &sock->addr);
	sock->batch = calloc(1, sizeof(*sock->batch));
	if (!net->udp_rx)
		net->udp_rx = udp_rx_alloc();
	if (!sock->batch || !net->udp_rx) {
		ret = -ENOMEM;
		goto err;
	}
	sock->fd = udp_socket(&sock->addr, sock->addr_len);
	if (sock->fd < 0) {
		ret = sock->fd;
		fl_log(needed ? LOG_ERR : LOG_INFO, "UDP port %d of a local address: %s%s", ROCE_UDP_PORT,
		       strerror(-ret),
		       ret == -EADDRINUSE ?
			       " (another user's process, or the kernel's rxe, has it: end that, or use another address or network namespace)" :
			       "");
		goto err;
	}
	ret = net_epoll_add(net, sock->fd, 0, EP_UDP, n);
	if (ret) {
		close(sock->fd);
		goto err;
	}
	atomic_store(&net->udp[n], sock);
	atomic_store_explicit(&net->num_udp, n + 1, memory_order_release);
	if (atomic_load(&net->sleeping))
		udp_arm(net, true);
	*out = sock;
	return 0;
err:
	free(sock->batch);
	free(sock);
	return ret;
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

	if (src->ss_family != dst->ss_family)
		return -ENETUNREACH;
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

int udp_path_init(struct net_path *path, const struct net_path_attr *attr)
{
	int ret;

	ret = udp_sock_get(path->net, attr->sgid, true, &path->sock);
	if (ret)
		return ret;
	path->daddr_len = gid_to_sockaddr(attr->dgid, gid_ifindex(attr->sgid), &path->daddr);
	ret = check_route(&path->sock->addr, path->sock->addr_len, &path->daddr);
	if (ret)
		return ret;
	atomic_fetch_add(&path->net->udp_paths, 1);
	return 0;
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
			ev.events = EPOLLIN | EPOLLONESHOT |
				    (atomic_load(&net->num_waiters) ? EPOLLOUT : 0);
		ev.data.u64 = (uint64_t)EP_UDP << 32 | i;
		epoll_ctl(net->epfd, EPOLL_CTL_MOD, atomic_load(&net->udp[i])->fd, &ev);
	}
}

/* ---- sending ---- */

/* the length of packet i on the wire, from BTH to ICRC */
static uint32_t packet_bytes(const struct roce_pkt *pkt, uint32_t i)
{
	uint32_t off = i * pkt->mtu, len = i == pkt->npkts - 1 ? pkt->payload_len - off : pkt->mtu;

	return roce_opcode[roce_pkt_opcode(pkt, i)].hdr_bytes + ((len + 3) & ~3u) + ROCE_ICRC_BYTES;
}

/* Puts packet i of the train at p; returns its length or what fill returned. */
static int build_packet(const struct net_path *path, const struct roce_pkt *pkt, uint32_t i, uint16_t id,
			uint8_t *p, net_fill_fn fill, void *arg)
{
	uint32_t off = i * pkt->mtu, len = i == pkt->npkts - 1 ? pkt->payload_len - off : pkt->mtu;
	uint8_t ip[IPV6_HDR], scratch[UDP_HDR];
	uint32_t pad = -len & 3, icrc;
	size_t hdr, total, ip_len;
	int ret;

	hdr = roce_build_headers(pkt, i, p);
	if (len) {
		ret = fill(arg, p + hdr, off, len);
		if (ret)
			return ret;
	}
	memset(p + hdr + len, 0, pad);
	total = hdr + len + pad;
	/* the UDP header stands before the packet for a moment, where the one before it ends */
	memcpy(scratch, p - UDP_HDR, UDP_HDR);
	ip_len = make_headers(&path->sock->addr, &path->daddr, id, total + ROCE_ICRC_BYTES, ip,
			      p - UDP_HDR);
	icrc = htole32(roce_icrc(ip, ip_len, p - UDP_HDR, UDP_HDR + total));
	memcpy(p - UDP_HDR, scratch, UDP_HDR);
	memcpy(p + total, &icrc, sizeof(icrc));
	return total + ROCE_ICRC_BYTES;
}

/* The run that a packet of len bytes joins or begins; final: none comes after it. */
static struct udp_run *run_of(struct udp_batch *batch, uint32_t len, bool final)
{
	struct udp_run *run = batch->n ? &batch->run[batch->n - 1] : NULL;

	if (!run || batch->no_gso || (final ? len > run->size : len != run->size) ||
	    run->count == GSO_PKTS || (run->count + 1) * run->size > GSO_BYTES) {
		run = &batch->run[batch->n++];
		*run = (struct udp_run){.size = len};
	}
	run->count++;
	return run;
}

/* Builds all packets of a train, and the messages they go out in. */
static int build_train(const struct net_path *path, const struct roce_pkt *pkt, net_fill_fn fill, void *arg)
{
	struct udp_batch *batch = path->sock->batch;
	uint8_t *p = batch->bytes + UDP_HDR;
	struct udp_run *run;
	struct msghdr *m;
	struct cmsghdr *c;
	uint32_t i;
	int ret;

	batch->n = 0;
	for (i = 0; i < pkt->npkts; i++) {
		run = run_of(batch, packet_bytes(pkt, i), i == pkt->npkts - 1);
		m = &batch->msgs[batch->n - 1].msg_hdr;
		if (run->count == 1) {
			batch->iov[batch->n - 1] = (struct iovec){.iov_base = p};
			*m = (struct msghdr){.msg_name = (void *)&path->daddr,
					     .msg_namelen = path->daddr_len,
					     .msg_iov = &batch->iov[batch->n - 1],
					     .msg_iovlen = 1};
		} else if (run->count == 2) {
			m->msg_control = &batch->control[batch->n - 1];
			m->msg_controllen = CMSG_SPACE(sizeof(uint16_t));
			c = CMSG_FIRSTHDR(m);
			*c = (struct cmsghdr){.cmsg_level = IPPROTO_UDP,
					      .cmsg_type = UDP_SEGMENT,
					      .cmsg_len = CMSG_LEN(sizeof(uint16_t))};
			memcpy(CMSG_DATA(c), &(uint16_t){run->size}, sizeof(uint16_t));
		}
		ret = build_packet(path, pkt, i, run->count - 1, p, fill, arg);
		if (ret < 0)
			return ret;
		batch->iov[batch->n - 1].iov_len += ret;
		p += ret;
	}
	return 0;
}

static uint32_t packets_of(const struct udp_batch *batch, unsigned from)
{
	uint32_t n = 0;

	for (; from < batch->n; from++)
		n += batch->run[from].count;
	return n;
}

/*
 * Sends the messages; returns how many packets were lost, -EAGAIN when the first found no room, or
 * -EOPNOTSUPP when the kernel does not cut messages here; nothing was sent then.
 */
static int send_batch(struct udp_sock *sock)
{
	NO_CANCEL;
	unsigned done = 0, tries = 0, n = sock->batch->n;
	int ret;

	while (done < n) {
		ret = sendmmsg(sock->fd, sock->batch->msgs + done, n - done, MSG_DONTWAIT);
		if (ret > 0) {
			done += ret;
		} else if (errno == EAGAIN || errno == ENOBUFS) {
			if (!done && errno == EAGAIN)
				return -EAGAIN;
			/* in the middle of a train: losing the rest would cost the peer a time-out */
			if (++tries == SEND_TRIES)
				break;
			sched_yield();
		} else if (!done && (errno == EIO || errno == EINVAL) && !sock->batch->no_gso) {
			return -EOPNOTSUPP;
		} else if (errno != EINTR) {
			if (errno == EMSGSIZE)
				fl_warn_once("a packet is longer than the route's MTU and was lost: use a smaller path MTU");
			else
				fl_warn_once("sending to UDP port %d: %s", ROCE_UDP_PORT, strerror(errno));
			break;
		}
	}
	return packets_of(sock->batch, done);
}

int udp_xmit(struct net_path *path, const struct roce_pkt *pkt, net_fill_fn fill, void *arg)
{
	struct udp_sock *sock = path->sock;
	int ret;

	if (pkt->npkts > TRAIN_PKTS || pkt->payload_len > TRAIN_MAX || !roce_opcode[pkt->opcode].name)
		return -EINVAL;
	fl_lock(&sock->lock);
	ret = build_train(path, pkt, fill, arg);
	if (!ret)
		ret = send_batch(sock);
	if (ret == -EOPNOTSUPP) {
		sock->batch->no_gso = true;
		ret = build_train(path, pkt, fill, arg);
		if (!ret)
			ret = send_batch(sock);
	}
	if (ret == -EAGAIN)
		net_wait(path);
	if (ret > 0) {
		net_count(path->net, FL_CNT_send_err, ret);
		ret = 0;
	}
	fl_unlock(&sock->lock);
	return ret;
}

/* ---- receiving ---- */

/* id: what the sender most likely had as IP ID, the place in a run */
static bool icrc_ok(const struct udp_sock *sock, const struct sockaddr_storage *from, uint16_t id,
		    uint8_t *udp, size_t len)
{
	uint8_t ip[IPV6_HDR];
	uint32_t got, want;
	size_t ip_len;

	ip_len = make_headers(from, &sock->addr, id, len, ip, udp);
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
		      uint32_t len)
{
	struct shm_tx *tx = atomic_load(&net->tx[slot]);
	struct handover *h;
	int ret = -ENOTCONN;

	if (tx)
		ret = shm_send_raw(tx, grh, packet, len);
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

/* A plain socket does not show class and hop limit: they are taken to be the usual ones. */
static void received_grh(const struct udp_sock *sock, const struct sockaddr_storage *from, size_t len,
			 uint8_t grh[GRH_LEN])
{
	struct net_path_attr a = {0};

	gid_from_sockaddr((const struct sockaddr *)from, a.sgid);
	memcpy(a.dgid, sock->gid, sizeof(a.dgid));
	grh_make(grh, &a, len);
}

/* One packet; the 8 bytes before it are free. id: its place in a run. */
static void receive(struct net *net, struct udp_sock *sock, const struct sockaddr_storage *from,
		    uint8_t *packet, size_t len, unsigned id)
{
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
	slot = pkt.dest_qpn >> FAULTLINE_QPN_SLOT_SHIFT;
	if (roce_opcode[pkt.opcode].flags & ROCE_F_DETH) {
		received_grh(sock, from, len + ROCE_ICRC_BYTES, grh);
		pkt.grh = grh;
	}
	if (slot && slot != net->slot)
		hand_over(net, slot, grh, packet, len);
	else
		net->ops->rx(net->ctx, &pkt);
}

/* A message: a packet, or a run of packets of one size. Returns their number. */
static int receive_run(struct net *net, struct udp_sock *sock, unsigned i)
{
	struct msghdr *m = &net->udp_rx->msgs[i].msg_hdr;
	uint32_t left = net->udp_rx->msgs[i].msg_len, size = left, n;
	uint8_t *p = net->udp_rx->bytes[i] + UDP_HDR;
	struct cmsghdr *c;
	int run;

	if (m->msg_flags & MSG_TRUNC || !left) {
		net_count(net, FL_CNT_rx_malformed, 1);
		return 1;
	}
	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != IPPROTO_UDP || c->cmsg_type != UDP_GRO)
			continue;
		memcpy(&run, CMSG_DATA(c), sizeof(run));
		if (run > 0)
			size = run;
	}
	for (n = 0; left; n++) {
		size = size < left ? size : left;
		receive(net, sock, &net->udp_rx->from[i], p, size, n);
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
	int n = 0;

	/* Both are hints: what another thread stores in between costs a poll more or less. */
	if (skip) {
		atomic_store_explicit(&net->udp_skip, skip - 1, memory_order_relaxed);
		return 0;
	}
	if (!fl_trylock(&net->udp_rx_lock))
		return 0;
	for (i = 0; i < num && n < budget; i++)
		n += udp_drain(net, atomic_load(&net->udp[i]), budget - n);
	fl_unlock(&net->udp_rx_lock);
	idle = n ? 0 : idle + 1;
	atomic_store_explicit(&net->udp_idle, idle, memory_order_relaxed);
	if (!atomic_load_explicit(&net->udp_paths, memory_order_relaxed)) {
		if (!n)
			skip = SKIP_NO_PATH;
	} else if (idle > BUSY_POLLS) {
		skip = SKIP_IDLE;
	}
	atomic_store_explicit(&net->udp_skip, skip, memory_order_relaxed);
	return n;
}
