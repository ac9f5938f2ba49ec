/* SPDX-License-Identifier: BSD-2-Clause */
/* See fake_net.h. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "fake_net.h"

struct train {
	struct train *next;
	struct net_path_attr attr;
	struct roce_pkt pkt;
	uint8_t payload[];
};

struct fifo {
	struct train *first, **last;
	unsigned n;
};

struct net {
	const struct net_ops *ops;
	void *ctx;
	int fd;
};

struct net_path {
	struct net_path_attr attr;
	char link[8];
	bool owed_ready;
	struct net_path *next;
};

const char *fake_link = "shm";
uint32_t fake_max_train = 65536;
uint32_t fake_udp_window = FAKE_UDP_WINDOW;
struct net_path_attr fake_tx_attr;
unsigned fake_paths, fake_eagain, fake_peer_accesses;
struct net_peer *fake_peer;
bool fake_rx_any_thread;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct net fake;
static struct fifo sent, coming;
static struct net_path *paths;
static int room = -1;
static __thread bool test_thread;

static void fifo_put(struct fifo *f, struct train *t)
{
	t->next = NULL;
	if (!f->first)
		f->last = &f->first;
	*f->last = t;
	f->last = &t->next;
	f->n++;
}

static struct train *fifo_take(struct fifo *f)
{
	struct train *t = f->first;

	if (!t)
		return NULL;
	f->first = t->next;
	f->n--;
	return t;
}

static void broken(const char *what, const struct roce_pkt *pkt)
{
	fprintf(stderr, "net_xmit: %s: opcode %#x..%#x psn %#x npkts %u mtu %u len %u\n", what,
		pkt->opcode, pkt->opcode_last, pkt->psn, pkt->npkts, pkt->mtu, pkt->payload_len);
	abort();
}

/* what every link may rely on */
static void check_train(const struct roce_pkt *pkt)
{
	uint32_t first = roce_opcode[pkt->opcode].flags, last = roce_opcode[pkt->opcode_last].flags;

	if (!(first & ROCE_F_VALID) || !(last & ROCE_F_VALID))
		broken("reserved opcode", pkt);
	if (pkt->psn > ROCE_PSN_MASK)
		broken("PSN of more than 24 bits", pkt);
	if (!pkt->npkts || pkt->npkts != roce_npkts(pkt->payload_len, pkt->mtu))
		broken("packets and payload do not agree", pkt);
	if (pkt->payload_len > fake_max_train)
		broken("longer than the path takes", pkt);
	if (pkt->payload_len && !(first & ROCE_F_PAYLOAD))
		broken("payload where there is none", pkt);
	if (pkt->npkts == 1 ? pkt->opcode != pkt->opcode_last
			    : (first & ROCE_F_END) || (last & ROCE_F_START))
		broken("opcodes of first and last packet", pkt);
	if (!(last & ROCE_F_END) && pkt->payload_len % pkt->mtu)
		broken("a packet that is not the last of its message is not full", pkt);
}

void fake_net_is_test_thread(void)
{
	test_thread = true;
}

bool fake_tx_pop(struct roce_pkt *pkt)
{
	static struct train *held;
	struct train *t;

	pthread_mutex_lock(&lock);
	t = fifo_take(&sent);
	pthread_mutex_unlock(&lock);
	free(held);
	held = t;
	if (!t)
		return false;
	*pkt = t->pkt;
	fake_tx_attr = t->attr;
	return true;
}

unsigned fake_tx_count(void)
{
	unsigned n;

	pthread_mutex_lock(&lock);
	n = sent.n;
	pthread_mutex_unlock(&lock);
	return n;
}

static struct train *train_new(const struct roce_pkt *pkt)
{
	struct train *t = malloc(sizeof(*t) + pkt->payload_len);

	if (!t)
		abort();
	t->pkt = *pkt;
	t->pkt.payload = t->payload;
	return t;
}

void fake_rx(const struct roce_pkt *pkt)
{
	struct train *t = train_new(pkt);
	uint64_t one = 1;

	if (pkt->payload_len)
		memcpy(t->payload, pkt->payload, pkt->payload_len);
	pthread_mutex_lock(&lock);
	fifo_put(&coming, t);
	pthread_mutex_unlock(&lock);
	if (fake_rx_any_thread && write(fake.fd, &one, sizeof(one)) < 0)
		abort();
}

void fake_net_room(int trains)
{
	struct net_path *p;
	uint32_t qpn;

	pthread_mutex_lock(&lock);
	room = trains;
again:
	for (p = paths; p && room; p = p->next) {
		if (!p->owed_ready)
			continue;
		p->owed_ready = false;
		qpn = p->attr.qpn;
		pthread_mutex_unlock(&lock);
		fake.ops->tx_ready(fake.ctx, qpn);
		pthread_mutex_lock(&lock);
		goto again;
	}
	pthread_mutex_unlock(&lock);
}

/* ---- the door ---- */

int net_open(const struct fl_config *cfg, struct seg *seg, struct faultline_device *stat,
	     const struct net_ops *ops, void *ctx, struct net **net)
{
	fake.ops = ops;
	fake.ctx = ctx;
	fake.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	*net = &fake;
	return fake.fd < 0 ? -errno : 0;
}

void net_fork_begin(struct net *net)
{
}

void net_fork_end(struct net *net)
{
}

void net_fork_child(struct net *net)
{
	close(net->fd);
}

uint32_t net_slot(const struct net *net)
{
	return FAKE_SLOT;
}

int net_path_open(struct net *net, const struct net_path_attr *attr, struct net_path **path)
{
	struct net_path *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->attr = *attr;
	snprintf(p->link, sizeof(p->link), "%s", fake_link);
	pthread_mutex_lock(&lock);
	p->next = paths;
	paths = p;
	fake_paths++;
	pthread_mutex_unlock(&lock);
	*path = p;
	return 0;
}

void net_listen(struct net *net, const uint8_t gid[16])
{
}

int net_mcast_join(struct net *net, const uint8_t gid[16], int ifindex)
{
	return 0;
}

void net_mcast_leave(struct net *net, const uint8_t gid[16], int ifindex)
{
}

void net_path_close(struct net_path *path)
{
	struct net_path **p;

	pthread_mutex_lock(&lock);
	for (p = &paths; *p != path; p = &(*p)->next)
		;
	*p = path->next;
	fake_paths--;
	pthread_mutex_unlock(&lock);
	free(path);
}

const char *net_path_link(const struct net_path *path)
{
	return path->link;
}

uint32_t net_path_window(const struct net_path *path, uint32_t mtu)
{
	return strcmp(fake_link, "udp") ? UINT32_MAX : fake_udp_window / mtu;
}

uint32_t net_path_max_train(const struct net_path *path)
{
	return fake_max_train;
}

int net_xmit(struct net_path *path, const struct roce_pkt *pkt, net_fill_fn fill, void *arg)
{
	struct train *t;
	int rc = 0;

	check_train(pkt);
	pthread_mutex_lock(&lock);
	if (!room) {
		path->owed_ready = true;
		fake_eagain++;
		pthread_mutex_unlock(&lock);
		return -EAGAIN;
	}
	t = train_new(pkt);
	t->attr = path->attr;
	/* in two calls, as a link does whose ring ends in the middle */
	if (pkt->payload_len > 1) {
		uint32_t cut = pkt->payload_len / 3;

		rc = cut ? fill(arg, t->payload, 0, cut) : 0;
		if (!rc)
			rc = fill(arg, t->payload + cut, cut, pkt->payload_len - cut);
	} else if (pkt->payload_len) {
		rc = fill(arg, t->payload, 0, pkt->payload_len);
	}
	if (rc) {
		free(t);
	} else {
		fifo_put(&sent, t);
		if (room > 0)
			room--;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

void net_flush(struct net *net)
{
}

int net_poll(struct net *net, int budget)
{
	struct train *t;
	int n = 0;

	if (!test_thread && !fake_rx_any_thread)
		return 0;
	while (n < budget) {
		pthread_mutex_lock(&lock);
		t = fifo_take(&coming);
		pthread_mutex_unlock(&lock);
		if (!t)
			break;
		net->ops->rx(net->ctx, &t->pkt);
		free(t);
		n++;
	}
	return n;
}

int net_fd(struct net *net)
{
	return net->fd;
}

bool net_prepare_sleep(struct net *net)
{
	bool empty;

	pthread_mutex_lock(&lock);
	empty = !coming.first;
	pthread_mutex_unlock(&lock);
	return empty || !fake_rx_any_thread;
}

void net_awake(struct net *net)
{
}

void net_service(struct net *net)
{
	uint64_t junk;

	if (read(net->fd, &junk, sizeof(junk)) < 0) {
		/* nobody rang */
	}
}

bool net_path_is_direct(const struct net_path *path)
{
	return fake_peer;
}

struct net_peer *net_path_peer(struct net_path *path)
{
	return fake_peer;
}

int net_peer_access(struct net_peer *peer, bool write, void *buf, uint64_t addr, size_t len)
{
	if (peer->hazard->start != addr || peer->hazard->end != addr + len) {
		fprintf(stderr, "a peer's memory is touched without announcing it\n");
		abort();
	}
	fake_peer_accesses++;
	return 0;
}

void net_peer_done(struct net_peer *peer)
{
}
