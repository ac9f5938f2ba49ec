/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sending over UDP. A train is cut into packets that go out by one sendmmsg(): runs of packets of one
 * size as one message that the kernel cuts (UDP_SEGMENT), which numbers their IP IDs from 0 on.
 */
#include <endian.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "net/udp.h"
#include "util/cancel.h"

#define TRAIN_PKTS 256 /* of the smallest MTU */
#define TX_BYTES   (TRAIN_MAX + TRAIN_PKTS * (ROCE_HDR_MAX + 3 + ROCE_ICRC_BYTES))
#define GSO_PKTS   64	 /* in one message; the kernel's limit */
#define GSO_BYTES  65000 /* likewise, with room for headers */
#define SEND_TRIES 1000

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

struct udp_batch *udp_batch_alloc(void)
{
	return calloc(1, sizeof(struct udp_batch));
}

/* the length of packet i on the wire, from BTH to ICRC */
static uint32_t packet_bytes(const struct roce_pkt *pkt, uint32_t i)
{
	uint32_t off = i * pkt->mtu, len = i == pkt->npkts - 1 ? pkt->payload_len - off : pkt->mtu;

	return roce_opcode[roce_pkt_opcode(pkt, i)].hdr_bytes + ((len + 3) & ~3u) + ROCE_ICRC_BYTES;
}

/* One bit that the ICRC covers: all but those of byte 4, which routers may change. */
static void spoil(uint8_t *p, size_t len, uint32_t bit)
{
	size_t byte = bit / 8 % len;

	p[byte == 4 ? 5 : byte] ^= 1 << bit % 8;
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
	ip_len = udp_make_headers(&path->sock->addr, &path->daddr, id, total + ROCE_ICRC_BYTES, ip,
			      p - UDP_HDR);
	icrc = htole32(roce_icrc(ip, ip_len, p - UDP_HDR, UDP_HDR + total));
	memcpy(p - UDP_HDR, scratch, UDP_HDR);
	memcpy(p + total, &icrc, sizeof(icrc));
	total += ROCE_ICRC_BYTES;
	if (pkt->spoiled_bit)
		spoil(p, total, pkt->spoiled_bit - 1);
	return total;
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

/* to the last message */
static void add_control(struct udp_batch *batch, int level, int type, const void *data, size_t len)
{
	union udp_control *control = &batch->control[batch->n - 1];
	struct msghdr *m = &batch->msgs[batch->n - 1].msg_hdr;
	struct cmsghdr *c = (struct cmsghdr *)(control->buf + m->msg_controllen);

	m->msg_control = control;
	m->msg_controllen += CMSG_SPACE(len);
	*c = (struct cmsghdr){.cmsg_level = level, .cmsg_type = type, .cmsg_len = CMSG_LEN(len)};
	memcpy(CMSG_DATA(c), data, len);
}

/* Class and hop limit as the address handle has them, where the socket's own are others. */
static void add_header_fields(const struct net_path *path, bool ce, struct udp_batch *batch)
{
	bool v4 = path->daddr.ss_family == AF_INET;
	int class = (path->attr.tclass & ~ECN_MASK) | (ce ? ECN_CE : ECN_ECT0);
	int hop = path->attr.hop_limit ? path->attr.hop_limit : HOP_USUAL;

	if (class != ECN_ECT0)
		add_control(batch, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TOS : IPV6_TCLASS, &class,
			    sizeof(class));
	if (hop != HOP_USUAL || gid_is_multicast(path->attr.dgid)) /* a socket's is 1 for groups */
		add_control(batch, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TTL : IPV6_HOPLIMIT, &hop,
			    sizeof(hop));
}

/* Builds all packets of a train, and the messages they go out in. */
static int build_train(const struct net_path *path, const struct roce_pkt *pkt, net_fill_fn fill, void *arg)
{
	struct udp_batch *batch = path->sock->batch;
	uint8_t *p = batch->bytes + UDP_HDR;
	struct udp_run *run;
	struct msghdr *m;
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
			add_header_fields(path, pkt->ce, batch);
		} else if (run->count == 2) {
			add_control(batch, IPPROTO_UDP, UDP_SEGMENT, &(uint16_t){run->size}, sizeof(uint16_t));
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

/* What the kernel knows of the way to where the message goes: a connected socket may ask. */
static int route_mtu(const struct udp_sock *sock, const struct msghdr *m)
{
	bool v4 = sock->addr.ss_family == AF_INET;
	int fd = socket(sock->addr.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), mtu = 0;
	socklen_t len = sizeof(mtu);

	if (fd < 0)
		return 0;
	if (connect(fd, m->msg_name, m->msg_namelen) ||
	    getsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU : IPV6_MTU, &mtu, &len))
		mtu = 0;
	close(fd);
	return mtu;
}

static void warn_mtu(const struct udp_sock *sock, const struct msghdr *m, uint32_t size)
{
	uint32_t hdr = UDP_HDR + (sock->addr.ss_family == AF_INET ? IPV4_HDR : IPV6_HDR);

	fl_warn_once("a packet of %u bytes is longer than the MTU of the route to its peer, %d, and was lost, as all "
		     "like it will be: use a smaller path MTU (IBV_MTU_1024 fits 1500), or raise that of the "
		     "network interfaces",
		     size + hdr, route_mtu(sock, m));
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
				warn_mtu(sock, &sock->batch->msgs[done].msg_hdr,
					 sock->batch->run[done].size);
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
