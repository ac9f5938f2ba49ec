/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UDP: trains cut into packets with a right ICRC; processes that share port 4791 of 127.0.0.1, where
 * what comes to the wrong one is handed over, until there has been much of it; packets that are wrong are counted and dropped; a
 * sender whose IP ID is not 0 is believed.
 */
#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include "node.h"
#include "net/impl.h"

static struct node me;
static bool own_net;

static void sleep_turn(struct node *n)
{
	struct pollfd pfd = {.fd = net_fd(n->net), .events = POLLIN};

	if (node_turn(n) || !net_prepare_sleep(n->net))
		return;
	poll(&pfd, 1, 2000);
	net_awake(n->net);
}

/* Receives count packets with its engine asleep in between; then says how it was. */
static void sink_child(int fd, unsigned long count)
{
	uint64_t end = test_now() + 20000000000ull;
	struct node n;
	uint32_t slot;
	struct net_path *path;

	node_open(&n, "udp");
	slot = net_slot(n.net);
	path = path_to(&n, slot); /* opens the port of this address */
	CHECK(write(fd, &slot, 4) == 4);
	while (n.pkts < count && test_now() < end)
		sleep_turn(&n);
	net_path_close(path);
	fprintf(stderr, "sink %u: %lu packets, %lu bytes, %lu bad\n", slot, n.pkts, n.bytes, n.bad);
	_exit(n.pkts == count && n.bytes == 8 * count && !n.bad ? 0 : 1);
}

#define SINKS 4
#define EACH  500

/* The kernel's hash sends all of one sender's packets to one process; each must get its own. */
static void handover(void)
{
	struct net_path *path[SINKS];
	uint32_t slot[SINKS], psn[SINKS] = {0};
	pid_t pid[SINKS];
	int sv[2], status, i, k;

	for (i = 0; i < SINKS; i++) {
		CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv));
		pid[i] = fork();
		if (!pid[i])
			sink_child(sv[1], EACH);
		CHECK(read(sv[0], &slot[i], 4) == 4);
		close(sv[0]);
		close(sv[1]);
	}
	node_open(&me, "udp");
	for (i = 0; i < SINKS; i++) {
		path[i] = path_to(&me, slot[i]);
		CHECK(!strcmp(net_path_link(path[i]), "udp"));
	}
	for (k = 0; k < EACH; k++) {
		for (i = 0; i < SINKS; i++) {
			while (send_write(path[i], make_qpn(slot[i], 18), &psn[i], 8, 1024) == -EAGAIN)
				node_turn(&me);
		}
		/* some of them come to us, as a member of the group */
		node_turn(&me);
		usleep(k % 8 ? 0 : 1000);
	}
	for (i = 0; i < SINKS; i++) {
		CHECK(TURN_UNTIL(&me, waitpid(pid[i], &status, WNOHANG) == pid[i], 20000));
		CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
		net_path_close(path[i]);
	}
	node_close(&me);
}

static uint64_t handed(const struct node *n)
{
	return n->stat.counter[FL_CNT_rx_handed_over];
}

/* between 127.0.0.x, where the two are, and 127.0.0.y */
static struct net_path *path_between(struct node *n, uint8_t here, uint8_t there, uint32_t slot)
{
	struct net_path_attr attr = {.qpn = make_qpn(net_slot(n->net), 17), .dest_qpn = make_qpn(slot, 18)};
	struct net_path *path;

	gid4(attr.sgid, 127, 0, 0, here);
	gid4(attr.dgid, 127, 0, 0, there);
	CHECK(!net_path_open(n->net, &attr, &path));
	return path;
}

static void send_each_taken(struct net_path *path, struct node *to, struct node *other, uint32_t *psn, unsigned n)
{
	unsigned long want = to->pkts + n;

	for (unsigned i = 0; i < n; i++) {
		CHECK(!send_write(path, make_qpn(net_slot(to->net), 18), psn, 8, 1024));
		if (i % 16 == 15 || i == n - 1)
			CHECK(TURN_UNTIL(to, (node_turn(other), to->pkts == want - n + i + 1), 20000));
	}
}

/*
 * Two at one address: what a third sends to one of them may come to the other, and is handed over; once there is a
 * connection back it comes to the right one by itself. When that is over, the socket serves another.
 */
static void flows(void)
{
	struct net_path *there, *back;
	struct node to, other, from[16];
	unsigned tried, wrong = 0, sockets;
	uint32_t psn;
	uint64_t before;

	node_open(&to, "udp");
	node_open(&other, "udp");
	path_to(&to, net_slot(to.net)); /* open the port of this address, until the end */
	path_to(&other, net_slot(other.net));
	for (tried = 0; tried < 16; tried++) {
		/* each has another slot, so another source port, and the kernel's hash another mind */
		node_open(&from[tried], "udp");
		there = path_between(&from[tried], 2, 1, net_slot(to.net));
		psn = to.psn = 0;
		before = handed(&to);
		send_each_taken(there, &to, &other, &psn, 50);
		CHECK(handed(&to) == before || handed(&to) == before + 50); /* one source, one socket */
		wrong += handed(&to) != before;
		back = path_between(&to, 1, 2, net_slot(from[tried].net));
		before = handed(&to);
		send_each_taken(there, &to, &other, &psn, 50);
		CHECK(handed(&to) == before);
		CHECK(!to.bad);
		sockets = atomic_load(&to.net->num_udp);
		CHECK(sockets <= 3); /* the usual, one to send from, and a flow */
		net_path_close(there);
		net_path_close(back);
	}
	CHECK(wrong > 1);
	fprintf(stderr, "%u of 16 would have come to the wrong one\n", wrong);
	while (tried--)
		node_close(&from[tried]);
	node_close(&other);
	node_close(&to);
}

/* A slot other than ours, at an address where we are the only one: packets for it are not ours. */
static void wire_format(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(ROCE_UDP_PORT)};
	struct net_path_attr attr = {.qpn = 17};
	static uint8_t raw[2048], seg[70000];
	struct net_path *path;
	uint32_t psn = 7, total = 0, n = 0, icrc;
	uint8_t ip[20] = {0x45}, udp[8];
	struct roce_pkt pkt = {.opcode = IBV_OPCODE_RC_SEND_ONLY, .opcode_last = IBV_OPCODE_RC_SEND_ONLY,
			       .pkey = 0xffff, .npkts = 1, .psn = 1, .payload_len = 5};
	struct sockaddr_in sender = {.sin_port = 0};
	socklen_t sender_len;
	int peer, hdr, len, one = 1;
	uint16_t id;

	/* our peer is a plain socket at 127.0.0.9 */
	peer = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	to.sin_addr.s_addr = htonl(0x7f000009);
	CHECK(!setsockopt(peer, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)));
	CHECK(!bind(peer, (struct sockaddr *)&to, sizeof(to)));
	node_open(&me, "auto");
	gid4(attr.sgid, 127, 0, 0, 8);
	gid4(attr.dgid, 127, 0, 0, 9);
	attr.dest_qpn = 0x11; /* slot 0: not one of ours */
	CHECK(!net_path_open(me.net, &attr, &path));
	CHECK(!strcmp(net_path_link(path), "udp"));
	CHECK(net_path_window(path, 1024) >= 16 && net_path_window(path, 1024) > net_path_window(path, 4096));
	CHECK(!send_write(path, 0x11, &psn, 10 * 1024 + 13, 1024));
	CHECK(psn == 18);
	for (n = 0; n < 11; n++) {
		struct roce_pkt got;

		sender_len = sizeof(sender);
		len = recvfrom(peer, raw, sizeof(raw), 0, (struct sockaddr *)&sender, &sender_len);
		CHECK(len > 0 && len % 4 == 0);
		/* the IP header as it was on the wire, for the ICRC */
		ip[2] = (len + 28) >> 8;
		ip[3] = len + 28;
		ip[5] = n ? n - 1 : 0; /* a run's IDs count from 0; the first, longer, is alone */
		ip[6] = 0x40;
		ip[9] = 17;
		memcpy(ip + 12, "\x7f\0\0\x08\x7f\0\0\x09", 8);
		CHECK(ntohs(sender.sin_port) == (0xc000 | net_slot(me.net)));
		memcpy(seg, &sender.sin_port, 2);
		memcpy(seg + 2, "\x12\xb7", 2);
		seg[4] = (len + 8) >> 8;
		seg[5] = len + 8;
		memcpy(seg + 8, raw, len);
		memcpy(&icrc, raw + len - 4, 4);
		CHECK(le32toh(icrc) == roce_icrc(ip, 20, seg, len + 4));
		CHECK(!roce_parse(raw, len - 4, &got));
		CHECK(got.psn == 7 + n && got.payload_len == (n < 10 ? 1024 : 13));
		CHECK(got.opcode == (n == 0 ? 6 : n == 10 ? 8 : 7));
		for (uint32_t k = 0; k < got.payload_len; k++)
			CHECK(got.payload[k] == pattern(7, total + k));
		total += got.payload_len;
	}
	CHECK(total == 10 * 1024 + 13);

	/* to us: right, wrong, too short, and with an IP ID that the sender's kernel chose */
	to.sin_addr.s_addr = htonl(0x7f000008);
	pkt.dest_qpn = make_qpn(net_slot(me.net), 17);
	for (id = 0; id < 2; id++) {
		hdr = roce_build_headers(&pkt, 0, raw);
		for (int k = 0; k < 5; k++)
			raw[hdr + k] = pattern(1, k);
		memset(raw + hdr + 5, 0, 3);
		len = hdr + 8 + 4;
		ip[2] = 0;
		ip[3] = len + 28;
		ip[4] = id ? 0xbe : 0;
		ip[5] = id ? 0xef : 0;
		memcpy(ip + 12, "\x7f\0\0\x09\x7f\0\0\x08", 8);
		memcpy(udp, "\x12\xb7\x12\xb7\0\0\0", 8);
		udp[5] = len + 8;
		memcpy(seg, udp, 8);
		memcpy(seg + 8, raw, len);
		icrc = htole32(roce_icrc(ip, 20, seg, len + 4));
		memcpy(raw + len - 4, &icrc, 4);
		me.psn = 1;
		CHECK(sendto(peer, raw, len, 0, (struct sockaddr *)&to, sizeof(to)) == len);
		CHECK(TURN_UNTIL(&me, me.pkts == id + 1u, 1000));
		CHECK(!me.bad && me.last.payload_len == 5);
	}
	raw[hdr] ^= 1;
	CHECK(sendto(peer, raw, len, 0, (struct sockaddr *)&to, sizeof(to)) == len);
	CHECK(TURN_UNTIL(&me, me.stat.counter[FL_CNT_rx_icrc_err] == 1, 1000));
	CHECK(sendto(peer, raw, 11, 0, (struct sockaddr *)&to, sizeof(to)) == 11);
	CHECK(sendto(peer, raw, 12, 0, (struct sockaddr *)&to, sizeof(to)) == 12);
	CHECK(sendto(peer, seg, 9000, 0, (struct sockaddr *)&to, sizeof(to)) == 9000);
	CHECK(TURN_UNTIL(&me, me.stat.counter[FL_CNT_rx_malformed] == 3, 1000));
	CHECK(me.pkts == 2);
	net_path_close(path);

	/* no such source address */
	gid4(attr.sgid, 192, 0, 2, 77);
	CHECK(net_path_open(me.net, &attr, &path) < 0);
	node_close(&me);
	close(peer);
}

/* An MTU that the route does not have is said, with both sizes, and the packet is counted as lost. */
static void mtu_too_large(void)
{
	struct ifreq ifr = {.ifr_name = "lo", .ifr_mtu = 1500};
	struct net_path_attr attr = {.qpn = 17, .dest_qpn = 0x11};
	char log[] = "/tmp/faultline-mtu-XXXXXX", said[1024] = "";
	int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), fd = mkstemp(log);
	struct net_path *path;
	uint32_t psn = 0;

	if (!own_net) {
		fprintf(stderr, "skipped: an MTU of its own for a route needs a network namespace\n");
		return;
	}
	CHECK(sock >= 0 && fd >= 0 && !ioctl(sock, SIOCSIFMTU, &ifr));
	setenv("VERBS_LOG_FILE", log, 1);
	node_open(&me, "udp");
	gid4(attr.sgid, 127, 0, 0, 8);
	gid4(attr.dgid, 127, 0, 0, 9);
	CHECK(!net_path_open(me.net, &attr, &path));
	CHECK(!send_write(path, 0x11, &psn, 2048, 2048));
	CHECK(me.stat.counter[FL_CNT_send_err] == 1);
	CHECK(pread(fd, said, sizeof(said) - 1, 0) > 0);
	/* RETH and ICRC, IP and UDP headers beside the data */
	CHECK(strstr(said, "a packet of 2108 bytes") && strstr(said, "route to its peer, 1500"));
	CHECK(!send_write(path, 0x11, &psn, 1024, 1024));
	CHECK(me.stat.counter[FL_CNT_send_err] == 1);
	net_path_close(path);
	node_close(&me);
	unlink(log);
	close(fd);
	close(sock);
}

int main(void)
{
	own_net = private_net();
	mtu_too_large();
	wire_format();
	handover();
	flows();
	return 0;
}
