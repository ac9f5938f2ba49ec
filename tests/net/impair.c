/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Impairment, on each link: packets of trains are lost, repeated, overtaken, delayed, corrupted and marked, about
 * as many as asked, and the counters say exactly how many; the same seed chooses the same packets,
 * another seed others; nothing that is not lost is damaged; a path that is closed meanwhile loses nothing.
 */
#include <stdatomic.h>
#include <sys/mman.h>
#include "node.h"

#define TRAINS 200
#define PKTS   25 /* of a train */
#define ALL    (TRAINS * PKTS)
#define MTU    256

static struct node me;
static const char *link_name;

/* what came, by PSN */
struct seen {
	_Atomic unsigned total, marked, out_of_order, wrong;
	_Atomic uint8_t times[ALL];
	_Atomic unsigned icrc;
	uint32_t last;
	uint64_t first_at;
};
static struct seen *seen; /* shared with the peer's process */

static void seen_rx(void *ctx, const struct roce_pkt *pkt)
{
	uint32_t i, k, psn;

	if (!seen->total)
		seen->first_at = test_now();
	for (i = 0; i < pkt->npkts; i++) {
		uint32_t off = i * pkt->mtu, len = i == pkt->npkts - 1 ? pkt->payload_len - off : pkt->mtu;

		psn = psn_add(pkt->psn, i);
		if (psn >= ALL) {
			seen->wrong++;
			continue;
		}
		for (k = 0; k < len; k++)
			seen->wrong += pkt->payload[off + k] != pattern(psn - psn % PKTS,
									psn % PKTS * MTU + k);
		seen->times[psn]++;
		seen->out_of_order += psn < seen->last;
		seen->last = psn;
	}
	seen->marked += pkt->ce ? pkt->npkts : 0;
	seen->total += pkt->npkts;
}

static const struct net_ops seen_ops = {.rx = seen_rx, .tx_ready = node_ready, .kick = node_kick};

static void open_node(struct node *n, const char *impair)
{
	memset(n, 0, sizeof(*n));
	fl_log_init();
	strcpy(n->cfg.link, !strcmp(link_name, "udp") ? "udp" : "auto");
	strcpy(n->cfg.impair, impair);
	CHECK(!seg_create(&n->seg));
	CHECK(!net_open(&n->cfg, &n->seg, &n->stat, &seen_ops, n, &n->net));
}

static void peer_main(int fd)
{
	uint32_t slot;
	struct node n;
	char c;

	open_node(&n, "");
	slot = net_slot(n.net);
	path_to(&n, slot); /* opens the port */
	CHECK(write(fd, &slot, 4) == 4);
	while (recv(fd, &c, 1, MSG_DONTWAIT) != 0) {
		node_turn(&n);
		seen->icrc = n.stat.counter[FL_CNT_rx_icrc_err];
		sched_yield();
	}
	_exit(0);
}

static uint64_t cnt(enum faultline_counter c)
{
	return me.stat.counter[c];
}

/* Dropped for their ICRC, there or here: the kernel chooses which of the two that share the port gets a packet. */
static uint64_t spoiled(void)
{
	return seen->icrc + cnt(FL_CNT_rx_icrc_err);
}

/* sends all trains as `impair` says, waits until what must come has, and closes */
static void run(const char *impair)
{
	bool loop = !strcmp(link_name, "loop");
	uint32_t slot, psn, t, expect;
	struct net_path *path;
	pid_t pid = 0;
	int sv[2], ret;

	memset(seen, 0, sizeof(*seen));
	if (!loop) {
		CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv));
		pid = fork();
		if (!pid) {
			close(sv[0]);
			peer_main(sv[1]);
		}
		close(sv[1]);
		CHECK(read(sv[0], &slot, 4) == 4);
	}
	open_node(&me, impair);
	path = path_to(&me, loop ? net_slot(me.net) : slot);
	CHECK(!strcmp(net_path_link(path), link_name));
	for (t = 0; t < TRAINS; t++) {
		psn = t * PKTS;
		while ((ret = send_write(path, make_qpn(loop ? net_slot(me.net) : slot, 18), &psn, PKTS * MTU,
					 MTU)) == -EAGAIN)
			node_turn(&me);
		CHECK(!ret && psn == (t + 1) * PKTS);
		node_turn(&me);
		/* a socket's buffer is small: no loss but on purpose */
		if (!strcmp(link_name, "udp") && t % 8 == 7)
			TURN_UNTIL(&me, seen->total + spoiled() + cnt(FL_CNT_impair_lost) + 8 * PKTS > psn, 500);
	}
	net_path_close(path); /* what is held is on its way all the same */
	expect = ALL - cnt(FL_CNT_impair_lost) + cnt(FL_CNT_impair_dup) - cnt(FL_CNT_impair_corrupted);
	TURN_UNTIL(&me, seen->total >= expect, 5000);
	if (strstr(impair, "corrupt") && strcmp(link_name, "udp"))
		CHECK(seen->total >= expect - cnt(FL_CNT_impair_dup));
	else if (strstr(impair, "corrupt")) /* the last to come may be one of these */
		CHECK(TURN_UNTIL(&me, seen->total + spoiled() >= ALL, 5000) && seen->total <= expect + 2 &&
		      seen->total + spoiled() == ALL);
	else
		CHECK(seen->total == expect);
	CHECK(!seen->wrong && !cnt(FL_CNT_send_err));
	if (pid) {
		close(sv[0]);
		CHECK(waitpid(pid, NULL, 0) == pid);
	}
	node_close(&me);
}

/* one in a hundred of ALL, within what chance allows */
static bool about_1_percent(uint64_t n)
{
	return n > ALL / 100 / 2 && n < ALL / 100 * 2;
}

static unsigned times_not(uint8_t n, uint8_t *list)
{
	unsigned i, found = 0;

	for (i = 0; i < ALL; i++) {
		list[i] = seen->times[i];
		found += list[i] != n;
	}
	return found;
}

static void all_kinds(void)
{
	static uint8_t a[ALL], b[ALL];
	uint64_t t;

	run("loss=1%,seed=1");
	CHECK(about_1_percent(cnt(FL_CNT_impair_lost)));
	CHECK(times_not(1, a) == cnt(FL_CNT_impair_lost) && !seen->out_of_order);
	run("loss=1%,seed=1");
	times_not(1, b);
	CHECK(!memcmp(a, b, ALL)); /* the same packets */
	run("loss=1%,seed=2");
	times_not(1, b);
	CHECK(memcmp(a, b, ALL));

	run("dup=1%");
	CHECK(about_1_percent(cnt(FL_CNT_impair_dup)) && times_not(1, a) == cnt(FL_CNT_impair_dup));

	run("reorder=1%");
	CHECK(about_1_percent(cnt(FL_CNT_impair_reordered)) && !times_not(1, a));
	CHECK(about_1_percent(seen->out_of_order));

	run("ecn=1%");
	CHECK(about_1_percent(cnt(FL_CNT_impair_ecn)) && !times_not(1, a));
	CHECK(seen->marked == cnt(FL_CNT_impair_ecn) && !seen->out_of_order);

	run("corrupt=1%");
	CHECK(about_1_percent(cnt(FL_CNT_impair_corrupted)));
	if (!strcmp(link_name, "udp"))
		CHECK(spoiled() + 2 >= cnt(FL_CNT_impair_corrupted));
	else
		CHECK(times_not(1, a) == cnt(FL_CNT_impair_corrupted));

	t = test_now();
	run("delay=5ms");
	CHECK(seen->first_at - t >= 5000000 && !seen->out_of_order);
	CHECK(cnt(FL_CNT_impair_delayed) == ALL && !times_not(1, a));
	run("delay=1ms~1ms");
	CHECK(seen->out_of_order > 100 && !times_not(1, a));

	run("loss=1%,dup=1%,reorder=2%,delay=1ms~200us,ecn=1%");
}

/* a packet that is lost each time it is sent would be a link that is cut */
static void not_lost_for_ever(void)
{
	uint32_t psn, i, slot;
	struct net_path *path;

	link_name = "loop";
	memset(seen, 0, sizeof(*seen));
	open_node(&me, "loss=50%");
	slot = net_slot(me.net);
	path = path_to(&me, slot);
	for (i = 0; i < 200; i++) {
		unsigned tries = 0, before = seen->total;

		for (; seen->total == before && tries < 64; tries++) {
			psn = i * PKTS;
			CHECK(!send_write(path, make_qpn(slot, 18), &psn, MTU, MTU));
			node_turn(&me);
		}
		CHECK(seen->total == before + 1);
	}
	CHECK(cnt(FL_CNT_impair_lost) > 100);
	net_path_close(path);
	node_close(&me);
}

/* nobody looks: the descriptor on which the engine sleeps tells when something is due */
static void sleep_ends(void)
{
	struct pollfd pfd = {.events = POLLIN};
	struct net_path *path;
	uint32_t psn = 0, slot;

	link_name = "loop";
	memset(seen, 0, sizeof(*seen));
	open_node(&me, "delay=30ms");
	slot = net_slot(me.net);
	path = path_to(&me, slot);
	CHECK(!send_write(path, make_qpn(slot, 18), &psn, MTU, MTU));
	while (node_turn(&me))
		;
	pfd.fd = net_fd(me.net);
	CHECK(net_prepare_sleep(me.net));
	CHECK(poll(&pfd, 1, 2000) == 1);
	net_awake(me.net);
	CHECK(TURN_UNTIL(&me, seen->total == 1, 100));
	/* a process that ends delivers what it has sent */
	CHECK(!send_write(path, make_qpn(slot, 18), &psn, MTU, MTU));
	net_flush(me.net);
	CHECK(node_turn(&me) == 1);
	net_path_close(path);
	node_close(&me);
}

int main(void)
{
	static const char *const links[] = {"loop", "shm", "udp"};
	unsigned i;

	private_net();
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(seen != MAP_FAILED);
	not_lost_for_ever();
	sleep_ends();
	for (i = 0; i < 3; i++) {
		link_name = links[i];
		all_kinds();
	}
	return 0;
}
