/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two network namespaces joined by veth: IPv4 and IPv6 trains arrive whole and in order, over UDP, with both
 * engines sleeping; their packets, as captured on the link, have a right ICRC, the traffic class, the hop limit and over
 * IPv6 the flow label of the path, any one, and so has the GRH of a datagram; the device's description has
 * its addresses in order. Needs root and iproute2; skipped without.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include "node.h"

#define TRAINS 300

#define CLASS	  0x48
#define HOP_LIMIT 33

static struct node me;
static bool v6;
static uint32_t label; /* the paths' */

static int ip(const char *fmt, ...)
{
	char cmd[512];
	va_list ap;
	int n;

	n = snprintf(cmd, sizeof(cmd), "exec ip ");
	va_start(ap, fmt);
	vsnprintf(cmd + n, sizeof(cmd) - n, fmt, ap);
	va_end(ap);
	return system(cmd);
}

static void address(uint8_t gid[16], int host)
{
	if (v6)
		inet_pton(AF_INET6, host == 1 ? "fd00:77::1" : "fd00:77::2", gid);
	else
		gid4(gid, 10, 77, 0, host);
}

static struct net_path *open_path(struct node *n, int from, uint32_t slot)
{
	struct net_path_attr attr = {.qpn = make_qpn(net_slot(n->net), 17), .dest_qpn = make_qpn(slot, 18),
				     .tclass = CLASS, .hop_limit = HOP_LIMIT, .flow_label = label};
	struct net_path *path;

	address(attr.sgid, from);
	address(attr.dgid, 3 - from);
	CHECK(!net_path_open(n->net, &attr, &path));
	CHECK(!strcmp(net_path_link(path), "udp"));
	return path;
}

static void enter(pid_t pid)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "/proc/%d/ns/net", pid);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && !setns(fd, CLONE_NEWNET));
	close(fd);
}

static void wait_turn(struct node *n)
{
	struct pollfd pfd = {.fd = net_fd(n->net), .events = POLLIN};

	if (node_turn(n) || !net_prepare_sleep(n->net))
		return;
	poll(&pfd, 1, 1000);
	net_awake(n->net);
}

/* a datagram, whose receiver sees in its GRH what the path said */
static void send_datagram(struct net_path *path, uint32_t dest_qpn, uint32_t psn)
{
	struct roce_pkt pkt = {.opcode = IBV_OPCODE_UD_SEND_ONLY, .opcode_last = IBV_OPCODE_UD_SEND_ONLY,
			       .pkey = 0xffff, .dest_qpn = dest_qpn, .psn = psn, .mtu = 1024, .npkts = 1,
			       .payload_len = 8};

	CHECK(!net_xmit(path, &pkt, fill_pattern, &psn));
}

/* takes trains and answers each of them by an 8-byte packet */
static void responder(int fd)
{
	uint32_t slot, psn = 0, answered = 0;
	uint64_t end = test_now() + 20000000000ull;
	struct net_path *path;
	struct node n;

	node_open(&n, "auto");
	slot = net_slot(n.net);
	CHECK(write(fd, &slot, 4) == 4 && read(fd, &slot, 4) == 4);
	path = open_path(&n, 2, slot);
	CHECK(write(fd, "x", 1) == 1);
	while (answered < TRAINS && test_now() < end) {
		wait_turn(&n);
		/* a train is 40 packets */
		for (; answered < n.pkts / 40; answered++)
			CHECK(!send_write(path, make_qpn(slot, 17), &psn, 8, 1024));
	}
	send_datagram(path, make_qpn(slot, 17), psn);
	fprintf(stderr, "%lu packets, %lu ICRC errors\n", n.pkts, n.stat.counter[FL_CNT_rx_icrc_err]);
	_exit(n.pkts == TRAINS * 40 && n.psn == TRAINS * 40 ? 0 : 1);
}

static void check_grh(const uint8_t *grh)
{
	if (!v6) {
		CHECK((grh[21] & ~3) == CLASS && grh[28] == HOP_LIMIT);
		return;
	}
	CHECK(((grh[0] << 4 | grh[1] >> 4) & 0xfc) == CLASS && grh[7] == HOP_LIMIT);
	CHECK(((grh[1] & 0xf) << 16 | grh[2] << 8 | grh[3]) == (int)label);
}

static void run(pid_t other)
{
	uint32_t slot, psn = 0, mine, i;
	struct net_path *path;
	int sv[2], status;
	pid_t pid;
	char c;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv));
	pid = fork();
	if (!pid) {
		enter(other);
		close(sv[0]);
		responder(sv[1]);
	}
	close(sv[1]);
	node_open(&me, "auto");
	mine = net_slot(me.net);
	CHECK(read(sv[0], &slot, 4) == 4 && write(sv[0], &mine, 4) == 4);
	path = open_path(&me, 1, slot);
	CHECK(read(sv[0], &c, 1) == 1); /* the peer has its path, so its port is open */
	close(sv[0]);
	for (i = 1; i <= TRAINS; i++) {
		uint64_t end = test_now() + 5000000000ull;

		CHECK(!send_write(path, make_qpn(slot, 18), &psn, 39 * 1024 + 100, 1024));
		while (me.pkts < i && test_now() < end)
			wait_turn(&me);
		CHECK(me.pkts >= i); /* after the last answer comes a datagram */
	}
	CHECK(TURN_UNTIL(&me, me.pkts > TRAINS, 20000));
	CHECK(!me.bad && me.last.opcode == IBV_OPCODE_UD_SEND_ONLY);
	check_grh(me.last_grh);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
	net_path_close(path);
	node_close(&me);
}

static int open_capture(void)
{
	struct sockaddr_ll sll = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL),
				  .sll_ifindex = if_nametoindex("fla")};
	int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&sll, sizeof(sll)));
	return fd;
}

/* With the IP headers as they were, so this does not depend on what the receiver assumes of them. */
static void check_capture(int fd)
{
	static uint8_t p[65536];
	unsigned checked = 0;
	uint32_t icrc;
	ssize_t n;

	while ((n = recv(fd, p, sizeof(p), 0)) > 0) {
		size_t ip_len = p[0] >> 4 == 4 ? (p[0] & 15) * 4 : 40, len;

		if ((p[0] >> 4 == 4 ? p[9] : p[6]) != IPPROTO_UDP)
			continue;
		len = (p[ip_len + 4] << 8 | p[ip_len + 5]) - ROCE_ICRC_BYTES;
		CHECK(ip_len + len + ROCE_ICRC_BYTES <= (size_t)n);
		if (p[0] >> 4 == 4) {
			CHECK(p[6] == 0x40); /* DF, no fragment */
			CHECK((p[1] & ~3) == CLASS && p[8] == HOP_LIMIT);
		} else {
			CHECK(((p[0] << 4 | p[1] >> 4) & 0xfc) == CLASS && p[7] == HOP_LIMIT);
			CHECK(((p[1] & 0xf) << 16 | p[2] << 8 | p[3]) == (int)label);
		}
		memcpy(&icrc, p + ip_len + len, sizeof(icrc));
		CHECK(le32toh(icrc) == roce_icrc(p, ip_len, p + ip_len, len));
		checked++;
	}
	CHECK(checked > 20);
	close(fd);
}

static void check_netdev(void)
{
	struct netdev_info info;
	uint8_t want[16];
	unsigned i;

	/* the link-local address comes by itself, a moment after the link is up */
	for (i = 0; i < 300; i++) {
		CHECK(!netdev_query("fla", &info));
		if (info.up && info.num_gids == 4)
			break;
		usleep(10000);
	}
	CHECK(!strcmp(info.name, "fla") && info.mtu == 1500 && info.ifindex == (int)if_nametoindex("fla"));
	CHECK(info.mac[0] | info.mac[1] | info.mac[2] | info.mac[3]);
	CHECK(info.up && info.num_gids == 4);
	gid4(want, 10, 77, 0, 1);
	CHECK(!memcmp(info.gid[0], want, 16));
	gid4(want, 10, 78, 0, 1);
	CHECK(!memcmp(info.gid[1], want, 16));
	inet_pton(AF_INET6, "fd00:77::1", want);
	CHECK(!memcmp(info.gid[2], want, 16));
	CHECK(info.gid[3][0] == 0xfe && info.gid[3][1] == 0x80);
	CHECK(!netdev_query("", &info) && !strcmp(info.name, "fla"));
	CHECK(netdev_query("nosuchdev", &info) == -ENODEV);
	CHECK(netdev_query("a-name-that-is-too-long-for-a-device", &info) == -ENODEV);
	CHECK(!ip("link set fla down"));
	CHECK(!netdev_query("", &info) && !strcmp(info.name, "lo") && info.num_gids >= 1);
	CHECK(!netdev_query("fla", &info) && !info.up);
}

int main(void)
{
	/* none; one that can be had for oneself; one that Linux gives to nobody */
	static const uint32_t labels[] = {0, 0x54321, 0xbcdef};
	pid_t other;
	int pfd[2], capture;
	char c;

	if (geteuid() || unshare(CLONE_NEWNET) || ip("-V >/dev/null 2>&1"))
		return SKIP;
	CHECK(!pipe(pfd));
	other = fork();
	if (!other) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* when a check fails */
		CHECK(!unshare(CLONE_NEWNET) && write(pfd[1], "x", 1) == 1);
		close(pfd[1]);
		pause();
		_exit(0);
	}
	CHECK(read(pfd[0], &c, 1) == 1);
	if (ip("link add fla type veth peer name flb netns %d", other)) {
		kill(other, SIGKILL);
		return SKIP;
	}
	CHECK(!ip("addr add 10.77.0.1/24 dev fla") && !ip("addr add fd00:77::1/64 dev fla nodad"));
	/* a capture is to see packets as a wire has them, not runs that the device would cut */
	CHECK(!ip("link set fla up gso_max_segs 1") && !ip("link set lo up"));
	{
		pid_t setup = fork();
		int status;

		if (!setup) {
			enter(other);
			CHECK(!ip("addr add 10.77.0.2/24 dev flb") &&
			      !ip("addr add fd00:77::2/64 dev flb nodad"));
			CHECK(!ip("link set flb up gso_max_segs 1") && !ip("link set lo up"));
			_exit(0);
		}
		CHECK(waitpid(setup, &status, 0) == setup && !status);
	}
	capture = open_capture();
	run(other);
	check_capture(capture);
	v6 = true;
	for (unsigned i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
		label = labels[i];
		capture = open_capture();
		run(other);
		check_capture(capture);
	}
	CHECK(!ip("addr add 10.78.0.1/24 dev fla"));
	check_netdev();
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	return 0;
}
