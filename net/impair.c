/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Impairment: what leaves on a path is lost, sent twice, delayed, overtaken, corrupted or marked, by chance.
 * Each packet of a train has its own fate, as on a wire; what is left of the train between those that
 * suffer goes on as trains, and a train that nothing happens to is not touched.
 *
 * A fate is a hash of the seed and of what the packet is: the two QP numbers without their slots (which
 * depend on what else runs), request or answer, the PSN counted from the first of the flow's, and
 * how many times that PSN was sent before. Nothing of it is time, so a run that does the same loses the
 * same packets, and one that was lost is not lost for ever.
 *
 * What is held back is copied, and waits in a list by the time it is due, under a lock of its own. A packet
 * that is to be overtaken leaves when enough others of its flow have, or after a time if there are none.
 * The engine's sleep is ended by a timer descriptor. A path that is closed lives on as long as packets
 * of it are held: what is on a wire does not vanish with its sender.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "net/impair.h"
#include "net/impl.h"
#include "util/cancel.h"
#include "util/impairment.h"

#define TRIES_KEPT    4096	  /* PSNs of a flow and kind whose number of tries is known */
#define MAX_PKTS      256	  /* of a train: the longest of the smallest MTU */
#define HELD_BYTES    (64u << 20) /* more is lost, as by a router */
#define OVERTAKEN_MAX 8
#define OVERTAKEN_NS  2000000ull /* nothing came behind it: it goes by itself */
#define RETRY_NS      200000ull	 /* no room on the link */

enum { FATE_LOST = 1, FATE_DUP = 2, FATE_REORDER = 4, FATE_CORRUPT = 8, FATE_ECN = 16, FATE_DELAY = 32 };

/* requests and answers have PSNs of their own, and ACKs share those of READ responses */
enum pkt_class { CLASS_REQUEST, CLASS_DATA, CLASS_ACK, CLASS_NUM };

struct tries {
	bool any;
	uint32_t first_psn, high; /* high: the highest sent */
	uint32_t back;		  /* how often one was sent again */
	struct {
		uint32_t psn; /* and 1 << 31: there is one */
		uint32_t n;
	} of[TRIES_KEPT];
};

struct impair_flow {
	struct tries *tries[CLASS_NUM];
	uint64_t passed; /* packets that left */
	unsigned held, stuck;
	uint64_t full; /* the release that found no room on the link: the rest keeps its order */
	bool closed;
};

struct held {
	struct cds_list_head node; /* by due */
	struct net_path *path;
	uint64_t due;	/* ns */
	uint64_t after; /* or when the flow has passed so many; 0: by time only */
	bool stuck;	/* found no room; the flow waits for it */
	struct roce_pkt pkt;
	uint8_t payload[];
};

struct impair {
	struct net *net;
	struct fl_impairment conf;
	struct fl_mutex lock; /* LOCK_NET_IMPAIR: all below, and every flow */
	struct cds_list_head held;
	uint32_t held_bytes;
	_Atomic uint64_t next; /* when the first is due; UINT64_MAX: never */
	uint64_t armed, retry_at, releases;
	int timer_fd;
	uint8_t scratch[TRAIN_MAX];
};

/* ---- fates ---- */

/* a permutation of 64 bits that leaves no pattern (a multiply and shift, twice) */
static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static enum pkt_class class_of(uint8_t opcode)
{
	uint32_t flags = roce_opcode[opcode].flags;

	if (flags & ROCE_F_REQ)
		return CLASS_REQUEST;
	return flags & ROCE_F_PAYLOAD ? CLASS_DATA : CLASS_ACK;
}

/* how many times this PSN was sent before; commit: and now once more */
static uint32_t count_try(struct tries *t, uint32_t psn, bool commit)
{
	unsigned i = psn % TRIES_KEPT;
	uint32_t tag = psn | 1u << 31, n;

	if (t->of[i].psn == tag)
		n = t->of[i].n;
	else if (!t->any || psn_cmp(psn, t->high) > 0)
		n = 0;
	else
		n = 1 + t->back; /* its count is gone; not the same again, at least */
	if (!commit)
		return n;
	if (n)
		t->back++;
	if (!t->any || psn_cmp(psn, t->high) > 0)
		t->high = psn;
	t->any = true;
	t->of[i].psn = tag;
	t->of[i].n = n + 1;
	return n;
}

static struct tries *tries_of(struct impair_flow *flow, const struct roce_pkt *pkt)
{
	struct tries **t = &flow->tries[class_of(pkt->opcode)];

	if (!*t) {
		*t = calloc(1, sizeof(**t));
		if (*t)
			(*t)->first_psn = pkt->psn;
	}
	return *t;
}

/* the random number of a packet from which all of its fate follows */
static uint64_t lot(const struct net_path *path, const struct roce_pkt *pkt, const struct tries *t,
		    uint32_t psn, uint32_t n)
{
	const uint32_t index = (1u << FAULTLINE_QPN_SLOT_SHIFT) - 1;
	uint64_t x = mix(path->net->impair->conf.seed + 0x9e3779b97f4a7c15ull);

	x = mix(x ^ ((uint64_t)(path->qpn & index) << 32 | (pkt->dest_qpn & index)));
	x = mix(x ^ ((uint64_t)class_of(pkt->opcode) << 32 | ((psn - t->first_psn) & ROCE_PSN_MASK)));
	return mix(x ^ n);
}

static bool draw(uint64_t *x, uint64_t chance)
{
	*x = mix(*x + 0x9e3779b97f4a7c15ull);
	return (*x >> 32) < chance;
}

static uint8_t fate(const struct fl_impairment *c, uint64_t x)
{
	uint8_t f = 0;

	if (draw(&x, c->loss))
		return FATE_LOST;
	f |= draw(&x, c->dup) ? FATE_DUP : 0;
	f |= draw(&x, c->reorder) ? FATE_REORDER : 0;
	f |= draw(&x, c->corrupt) ? FATE_CORRUPT : 0;
	f |= draw(&x, c->ecn) ? FATE_ECN : 0;
	return f | (c->delay_ns ? FATE_DELAY : 0);
}

/* ---- on the link ---- */

static int fill_from(void *arg, uint8_t *dst, uint32_t off, uint32_t len)
{
	memcpy(dst, (const uint8_t *)arg + off, len);
	return 0;
}

/* packets from to (excluded) to of a train, whose payload is at data */
static struct roce_pkt part_of(const struct roce_pkt *train, uint32_t from, uint32_t to)
{
	struct roce_pkt p = *train;
	bool last = to == train->npkts;

	p.opcode = roce_pkt_opcode(train, from);
	p.opcode_last = roce_pkt_opcode(train, to - 1);
	p.psn = psn_add(train->psn, from);
	p.npkts = to - from;
	p.payload_len = (last ? train->payload_len : to * train->mtu) - from * train->mtu;
	p.se = last && train->se;
	p.ackreq = last && train->ackreq;
	return p;
}

static void timer_set(struct impair *im)
{
	NO_CANCEL;
	struct held *first = cds_list_empty(&im->held) ? NULL
						       : cds_list_first_entry(&im->held, struct held, node);
	uint64_t due = first ? first->due : UINT64_MAX;
	struct itimerspec its = {0};

	if (first && due < im->retry_at)
		due = im->retry_at;
	atomic_store(&im->next, due);
	if (due == im->armed)
		return;
	im->armed = due;
	if (first) {
		its.it_value.tv_sec = due / 1000000000;
		its.it_value.tv_nsec = due % 1000000000;
	}
	timerfd_settime(im->timer_fd, TFD_TIMER_ABSTIME, &its, NULL);
}

static void insert(struct impair *im, struct held *h)
{
	struct cds_list_head *pos;

	/* most are due last */
	for (pos = im->held.prev; pos != &im->held; pos = pos->prev)
		if (cds_list_entry(pos, struct held, node)->due <= h->due)
			break;
	cds_list_add(&h->node, pos);
	timer_set(im);
}

static void hold(struct net_path *path, const struct roce_pkt *pkt, const uint8_t *data, uint64_t due,
		 uint64_t after, bool stuck)
{
	struct impair *im = path->net->impair;
	struct held *h = NULL;

	if (im->held_bytes + pkt->payload_len <= HELD_BYTES)
		h = malloc(sizeof(*h) + pkt->payload_len);
	if (!h) {
		net_count(path->net, FL_CNT_send_err, pkt->npkts);
		return;
	}
	h->path = path;
	h->due = due;
	h->after = after;
	h->stuck = stuck;
	h->pkt = *pkt;
	if (pkt->payload_len)
		memcpy(h->payload, data, pkt->payload_len);
	im->held_bytes += pkt->payload_len + sizeof(*h);
	path->flow->held++;
	path->flow->stuck += stuck;
	insert(im, h);
}

static void unhold(struct impair *im, struct held *h)
{
	struct impair_flow *flow = h->path->flow;

	cds_list_del(&h->node);
	im->held_bytes -= h->pkt.payload_len + sizeof(*h);
	flow->held--;
	flow->stuck -= h->stuck;
	free(h);
}

/* May be the last of a path that was closed: that is in the list *dead then. */
static int send_held(struct impair *im, struct held *h, struct cds_list_head *dead)
{
	struct net_path *path = h->path;
	int ret = net_link_xmit(path, &h->pkt, fill_from, h->payload);

	if (ret == -EAGAIN) {
		path->flow->stuck += !h->stuck;
		path->flow->full = im->releases;
		h->stuck = true;
		im->retry_at = now_ns() + RETRY_NS;
		return ret;
	}
	path->flow->passed += h->pkt.npkts;
	unhold(im, h);
	if (path->flow->closed && !path->flow->held)
		cds_list_add(&path->dead_node, dead);
	return 0;
}

/* What waited for others of its flow to pass, and they have. */
static void overtaken(struct impair *im, struct net_path *path)
{
	struct held *h, *tmp;

	if (!path->flow->held)
		return;
	cds_list_for_each_entry_safe(h, tmp, &im->held, node)
		if (h->path == path && h->after && h->after <= path->flow->passed)
			send_held(im, h, NULL); /* the path is in use, so it does not die of it */
	timer_set(im);
}

/* ---- sending ---- */

struct sending {
	struct net_path *path;
	const struct roce_pkt *train;
	const uint8_t *data;
	bool begun; /* something is on its way or held: the train is taken */
};

/* a part of the train, unharmed or as p says; -EAGAIN: nothing of the train is taken */
static int put(struct sending *s, const struct roce_pkt *p, uint32_t off)
{
	struct impair_flow *flow = s->path->flow;
	int ret = -EAGAIN;

	if (!flow->stuck)
		ret = net_link_xmit(s->path, p, fill_from, (void *)(s->data + off));
	if (ret == -EAGAIN) {
		if (!s->begun)
			return ret;
		hold(s->path, p, s->data + off, now_ns(), 0, true);
	} else {
		flow->passed += p->npkts;
	}
	s->begun = true;
	return 0;
}

/* A packet that has a fate. */
static int suffer(struct sending *s, uint32_t i, uint8_t f, uint64_t x)
{
	struct impair *im = s->path->net->impair;
	struct roce_pkt p = part_of(s->train, i, i + 1);
	uint32_t off = i * s->train->mtu;
	uint64_t due = 0, after = 0;
	int n, ret;

	if (f & FATE_LOST)
		return 0;
	if (f & FATE_CORRUPT)
		p.spoiled_bit = 1 + (uint32_t)(mix(x ^ 1) >> 33);
	if (f & FATE_CORRUPT && s->path->link != LINK_UDP)
		return 0;
	p.ce = f & FATE_ECN;
	if (f & FATE_REORDER) {
		after = s->path->flow->passed + 1 + (mix(x ^ 2) >> 32) % OVERTAKEN_MAX;
		due = now_ns() + im->conf.delay_ns + OVERTAKEN_NS;
	} else if (f & FATE_DELAY) {
		due = now_ns() + im->conf.delay_ns - im->conf.jitter_ns;
		due += im->conf.jitter_ns ? mix(x ^ 3) % (2 * im->conf.jitter_ns + 1) : 0;
	}
	for (n = 0; n < (f & FATE_DUP ? 2 : 1); n++) {
		if (due) {
			hold(s->path, &p, s->data + off, due, im->conf.delay_ns ? 0 : after, false);
			s->begun = true;
			continue;
		}
		ret = put(s, &p, off);
		if (ret)
			return ret;
	}
	return 0;
}

static void count(struct net *net, uint8_t f)
{
	static const struct {
		uint8_t fate;
		enum faultline_counter c;
	} map[] = {{FATE_LOST, FL_CNT_impair_lost},	    {FATE_DUP, FL_CNT_impair_dup},
		   {FATE_REORDER, FL_CNT_impair_reordered}, {FATE_CORRUPT, FL_CNT_impair_corrupted},
		   {FATE_ECN, FL_CNT_impair_ecn},	    {FATE_DELAY, FL_CNT_impair_delayed}};
	unsigned i;

	for (i = 0; i < sizeof(map) / sizeof(map[0]); i++)
		if (f & map[i].fate)
			net_count(net, map[i].c, 1);
}

static int xmit_parts(struct sending *s, struct tries *t)
{
	const struct fl_impairment *c = &s->path->net->impair->conf;
	uint32_t n = s->train->npkts, from = 0, i, psn;
	struct roce_pkt p;
	uint8_t fates[MAX_PKTS];
	uint64_t x[MAX_PKTS];
	int ret;

	for (i = 0; i < n; i++) {
		psn = psn_add(s->train->psn, i);
		x[i] = lot(s->path, s->train, t, psn, count_try(t, psn, false));
		fates[i] = fate(c, x[i]);
	}
	for (i = 0; i <= n; i++) {
		if (i < n && !fates[i] && !s->path->flow->held)
			continue;
		if (i > from) {
			p = part_of(s->train, from, i);
			ret = put(s, &p, from * s->train->mtu);
			if (ret)
				return ret;
		}
		overtaken(s->path->net->impair, s->path);
		from = i;
		if (i == n || !fates[i])
			continue; /* one by one while something waits for them to pass */
		ret = suffer(s, i, fates[i], x[i]);
		if (ret)
			return ret;
		from = i + 1;
	}
	for (i = 0; i < n; i++) {
		count_try(t, psn_add(s->train->psn, i), true);
		count(s->path->net, fates[i]);
	}
	return 0;
}

int impair_xmit(struct net_path *path, const struct roce_pkt *pkt, net_fill_fn fill, void *arg)
{
	struct impair *im = path->net->impair;
	struct sending s = {.path = path, .train = pkt, .data = im->scratch};
	struct tries *t;
	int ret = 0;

	if (pkt->npkts > MAX_PKTS || pkt->payload_len > TRAIN_MAX || !roce_opcode[pkt->opcode].name)
		return -EINVAL;
	fl_lock(&im->lock);
	if (!path->flow)
		path->flow = calloc(1, sizeof(*path->flow));
	t = path->flow ? tries_of(path->flow, pkt) : NULL;
	if (!t)
		ret = -ENOMEM;
	else if (path->flow->stuck)
		ret = -EAGAIN;
	else if (pkt->payload_len)
		ret = fill(arg, im->scratch, 0, pkt->payload_len);
	if (!ret)
		ret = xmit_parts(&s, t);
	if (ret == -EAGAIN)
		net_wait(path);
	fl_unlock(&im->lock);
	return ret;
}

/* ---- later ---- */

bool impair_due(const struct impair *im)
{
	uint64_t next = atomic_load_explicit(&im->next, memory_order_relaxed);

	return next != UINT64_MAX && next <= now_ns();
}

void impair_release(struct impair *im, bool all)
{
	uint64_t now = now_ns();
	struct net_path *path, *next;
	struct held *h, *tmp;
	CDS_LIST_HEAD(dead);

	fl_lock(&im->lock);
	im->releases++;
	im->retry_at = 0;
	cds_list_for_each_entry_safe(h, tmp, &im->held, node) {
		if (h->due > now && !all)
			break;
		if (h->path->flow->full != im->releases)
			send_held(im, h, &dead);
	}
	timer_set(im);
	fl_unlock(&im->lock);
	cds_list_for_each_entry_safe(path, next, &dead, dead_node)
		net_path_free(path);
}

bool impair_keeps(struct net_path *path)
{
	struct impair *im = path->net->impair;
	bool keeps = false;

	fl_lock(&im->lock);
	if (path->flow)
		path->flow->closed = keeps = path->flow->held > 0;
	fl_unlock(&im->lock);
	return keeps;
}

void impair_flow_free(struct impair_flow *flow)
{
	unsigned i;

	for (i = 0; flow && i < CLASS_NUM; i++)
		free(flow->tries[i]);
	free(flow);
}

int impair_open(struct net *net, const char *setting, struct impair **out)
{
	struct fl_impairment conf;
	struct impair *im;
	int ret;

	*out = NULL;
	if (fl_impairment_parse(setting, &conf) || !fl_impairment_on(&conf))
		return 0; /* what cannot be was reported when the settings were read */
	im = calloc(1, sizeof(*im));
	if (!im)
		return -ENOMEM;
	im->net = net;
	im->conf = conf;
	fl_mutex_init(&im->lock, LOCK_NET_IMPAIR);
	CDS_INIT_LIST_HEAD(&im->held);
	im->armed = UINT64_MAX;
	atomic_init(&im->next, UINT64_MAX);
	im->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	ret = im->timer_fd < 0 ? -errno : net_epoll_add(net, im->timer_fd, EPOLLIN, EP_IMPAIR, 0);
	if (ret) {
		if (im->timer_fd >= 0)
			close(im->timer_fd);
		free(im);
		return ret;
	}
	*out = im;
	return 0;
}

void impair_hold(struct impair *im)
{
	fl_lock(&im->lock);
}

void impair_go_on(struct impair *im)
{
	fl_unlock(&im->lock);
}

void impair_close(struct impair *im)
{
	struct held *h, *tmp;

	if (!im)
		return;
	cds_list_for_each_entry_safe(h, tmp, &im->held, node) {
		if (h->path->flow->closed && h->path->flow->held == 1) {
			impair_flow_free(h->path->flow);
			free(h->path);
		} else {
			h->path->flow->held--;
		}
		free(h);
	}
	close(im->timer_fd);
	free(im);
}
