/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The attachment to the fabric: opening and closing it, choosing a link for a path, polling, sleeping.
 *
 * Polling looks at each ring's tail (two loads a ring), takes the lock of one that has something, and
 * goes on if another thread has it. A sender that found no room is on the list of waiters, which is
 * looked at only when it is not empty. The slow work, by the engine in net_service(), is what the epoll
 * descriptor tells of: connections, deaths; wake-up descriptors are edge-triggered there, so nobody
 * reads them.
 *
 * Sleeping: every ring to us is marked `asleep`, then looked at once more (pair A in ring.c); UDP
 * sockets are armed in the epoll only for the time of the sleep.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "net/impl.h"
#include "util/cancel.h"

#define RING_BATCH  32 /* trains from one ring before the next has its turn */
#define READY_BATCH 32

int net_epoll_add(struct net *net, int fd, uint32_t events, enum epoll_kind kind, uint32_t index)
{
	struct epoll_event ev = {.events = events, .data.u64 = (uint64_t)kind << 32 | index};

	return epoll_ctl(net->epfd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

void net_count(struct net *net, enum faultline_counter c, uint64_t n)
{
	cnt_add(net->stat, c, n);
}

void net_wait(struct net_path *path)
{
	struct net *net = path->net;

	fl_lock(&net->wait_lock);
	if (!path->waiting) {
		path->waiting = true;
		cds_list_add_tail(&path->wait_node, &net->waiters);
		atomic_fetch_add(&net->num_waiters, 1);
	}
	fl_unlock(&net->wait_lock);
}

/* Takes packets now, or loses them, as far as can be told without waiting. */
static bool path_has_room(struct net_path *path)
{
	struct shm_tx *tx = path->tx;
	bool room;

	if (path->link == LINK_UDP)
		return udp_writable(path->sock);
	/* Against the order of locks, but it never waits; who has it is sending, or ends the ring. */
	if (!fl_trylock(&tx->lock))
		return false;
	room = !tx->connected || tx->ring.broken || ring_has_space(&tx->ring);
	fl_unlock(&tx->lock);
	return room;
}

static void waiters_wake(struct net *net)
{
	struct net_path *path, *tmp;
	uint32_t ready[READY_BATCH];
	unsigned n = 0, i;

	fl_lock(&net->wait_lock);
	cds_list_for_each_entry_safe(path, tmp, &net->waiters, wait_node) {
		if (n == READY_BATCH)
			break;
		if (!path_has_room(path))
			continue;
		cds_list_del(&path->wait_node);
		path->waiting = false;
		atomic_fetch_sub(&net->num_waiters, 1);
		ready[n++] = path->qpn;
	}
	fl_unlock(&net->wait_lock);
	for (i = 0; i < n; i++)
		net->ops->tx_ready(net->ctx, ready[i]);
}

static bool waiters_ready(struct net *net)
{
	struct net_path *path;
	bool ready = false;

	if (!atomic_load(&net->num_waiters))
		return false;
	fl_lock(&net->wait_lock);
	cds_list_for_each_entry(path, &net->waiters, wait_node)
		ready = ready || path_has_room(path);
	fl_unlock(&net->wait_lock);
	return ready;
}

/* Sends on what came by UDP for other processes before there was a channel to them. */
static void handover_flush(struct net *net)
{
	NO_CANCEL;
	struct handover *h, *next;
	struct shm_tx *tx;

	fl_lock(&net->slot_lock);
	fl_lock(&net->handover_lock);
	h = net->handover_head;
	net->handover_head = NULL;
	net->handover_tail = &net->handover_head;
	atomic_store(&net->num_handover, 0);
	fl_unlock(&net->handover_lock);
	for (; h; h = next) {
		next = h->next;
		tx = atomic_load(&net->tx[h->slot]);
		if ((!tx || !tx->connected) &&
		    (!tx || now_ns() - tx->last_try >= RECONNECT_NS || !tx->last_try) &&
		    !shm_tx_get(net, h->slot, &tx)) {
			/* a channel that was used once for this is kept */
			if (tx->handover_ref)
				shm_tx_put(net, tx);
			tx->handover_ref = true;
		}
		if (!tx || shm_send_raw(tx, h->grh, h->packet, h->len, h->ce))
			net_count(net, tx && tx->connected ? FL_CNT_send_err : FL_CNT_rx_unknown_qp, 1);
		free(h);
	}
	fl_unlock(&net->slot_lock);
}

int net_poll(struct net *net, int budget)
{
	/* acquire: what they count is in its table, and whole; pairs with rx_alloc() and, below, new_sock() */
	unsigned num = atomic_load_explicit(&net->num_rx, memory_order_acquire);
	unsigned first = atomic_load_explicit(&net->next_rx, memory_order_relaxed), i, k;
	struct shm_rx *rx;
	int n = 0, left;

	for (i = 0; i < num && n < budget; i++) {
		k = first + i < num ? first + i : first + i - num;
		rx = atomic_load_explicit(&net->rx[k], memory_order_acquire);
		if (!rx || !ring_pending(&rx->ring) || !fl_trylock(&rx->lock))
			continue;
		left = budget - n;
		if (rx->attached)
			n += shm_drain(net, rx, left < RING_BATCH ? left : RING_BATCH);
		fl_unlock(&rx->lock);
		atomic_store_explicit(&net->next_rx, k + 1 < num ? k + 1 : 0, memory_order_relaxed);
	}
	if (atomic_load_explicit(&net->num_udp, memory_order_acquire) && n < budget)
		n += udp_poll(net, budget - n);
	if (atomic_load_explicit(&net->num_handover, memory_order_relaxed))
		handover_flush(net);
	if (net->impair && impair_due(net->impair))
		impair_release(net->impair, false);
	if (atomic_load_explicit(&net->num_waiters, memory_order_relaxed))
		waiters_wake(net);
	return n;
}

int net_fd(struct net *net)
{
	return net->epfd;
}

static void set_asleep(struct net *net, bool asleep)
{
	unsigned i, num = atomic_load(&net->num_rx);
	struct shm_rx *rx;

	for (i = 0; i < num; i++) {
		rx = atomic_load(&net->rx[i]);
		ring_set_asleep(&rx->ring, asleep); /* the page is there, whether a ring or not */
	}
	__atomic_store_n(&net->seg->s->asleep, asleep, __ATOMIC_SEQ_CST);
	udp_arm(net, asleep);
}

bool net_prepare_sleep(struct net *net)
{
	unsigned i, num;
	struct shm_rx *rx;
	bool work;

	atomic_store(&net->sleeping, true);
	set_asleep(net, true);
	atomic_thread_fence(memory_order_seq_cst); /* pair A of ring.c */
	work = atomic_load(&net->num_handover) || atomic_load(&net->want_connect) ||
	       waiters_ready(net) || (net->impair && impair_due(net->impair));
	num = atomic_load(&net->num_rx);
	for (i = 0; i < num && !work; i++) {
		rx = atomic_load(&net->rx[i]);
		work = ring_pending(&rx->ring);
	}
	if (work)
		net_awake(net);
	return !work;
}

void net_awake(struct net *net)
{
	if (atomic_exchange(&net->sleeping, false))
		set_asleep(net, false);
}

void net_service(struct net *net)
{
	struct epoll_event ev[32];
	int n, i;

	fl_lock(&net->slot_lock);
	do {
		n = epoll_wait(net->epfd, ev, 32, 0);
		for (i = 0; i < n; i++) {
			uint32_t index = ev[i].data.u64;

			switch ((enum epoll_kind)(ev[i].data.u64 >> 32)) {
			case EP_LISTEN:
				shm_accept(net);
				break;
			case EP_RX_SOCK:
				shm_rx_event(net, index);
				break;
			case EP_TX_SOCK:
				shm_tx_event(net, index);
				break;
			case EP_UDP:
				atomic_store(&net->udp_rest, 0);
				atomic_store(&net->udp_skip, 0);
				break;
			case EP_RX_DATA:
			case EP_TX_SPACE:
			case EP_IMPAIR:
				break; /* net_poll() sees for itself */
			}
		}
	} while (n == 32);
	if (atomic_exchange(&net->want_connect, false))
		shm_reconnect(net);
	fl_unlock(&net->slot_lock);
}

uint32_t net_slot(const struct net *net)
{
	return net->slot;
}

/* The receiving side of the loop: there from the start, for pollers, and empty until there is a path to it. */
static struct shm_rx *loop_new(int *err)
{
	struct shm_rx *loop = calloc(1, sizeof(*loop));

	*err = loop ? ring_rx_init(&loop->ring) : -ENOMEM;
	if (*err) {
		free(loop);
		return NULL;
	}
	fl_mutex_init(&loop->lock, LOCK_NET_RX);
	loop->used = true;
	loop->sock = loop->data_fd = loop->space_fd = -1;
	return loop;
}

int net_open(const struct fl_config *cfg, struct seg *seg, struct faultline_device *stat,
	     const struct net_ops *ops, void *ctx, struct net **out)
{
	struct shm_rx *loop;
	struct net *net;
	int ret;

	net = aligned_alloc(_Alignof(struct net), sizeof(*net));
	if (!net)
		return -ENOMEM;
	memset(net, 0, sizeof(*net));
	net->seg = seg;
	net->stat = stat;
	net->ops = ops;
	net->ctx = ctx;
	net->force_udp = !strcmp(cfg->link, "udp");
	CDS_INIT_LIST_HEAD(&net->waiters);
	net->handover_tail = &net->handover_head;
	fl_mutex_init(&net->slot_lock, LOCK_NET_SLOT);
	fl_mutex_init(&net->udp_rx_lock, LOCK_NET_RX);
	fl_mutex_init(&net->wait_lock, LOCK_LEAF);
	fl_mutex_init(&net->handover_lock, LOCK_LEAF);

	loop = loop_new(&ret);
	if (!loop)
		goto err_free;
	net->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (net->epfd < 0) {
		ret = -errno;
		goto err_loop;
	}
	net->listen_fd = slot_claim(&net->slot);
	if (net->listen_fd < 0) {
		ret = net->listen_fd;
		goto err_epoll;
	}
	ret = net_epoll_add(net, net->listen_fd, EPOLLIN, EP_LISTEN, 0);
	if (ret)
		goto err_listen;
	net->spare_fd = fcntl(net->epfd, F_DUPFD_CLOEXEC, 0);
	if (net->spare_fd < 0) {
		ret = -errno;
		goto err_listen;
	}
	ret = impair_open(net, cfg->impair, &net->impair);
	if (ret)
		goto err_spare;
	/* what is placed is no packet, and nothing would happen to it */
	net->direct = !net->impair && !strcmp(cfg->link, "auto");
	atomic_store(&net->rx[0], loop);
	atomic_store(&net->num_rx, 1);
	__atomic_store_n(&seg->s->slot, net->slot, __ATOMIC_RELEASE);
	*out = net;
	return 0;

err_spare:
	close(net->spare_fd);
err_listen:
	close(net->listen_fd);
err_epoll:
	close(net->epfd);
err_loop:
	ring_rx_destroy(&loop->ring);
	free(loop);
err_free:
	free(net);
	return ret;
}

static void net_free(struct net *net)
{
	struct handover *h, *next;

	for (h = net->handover_head; h; h = next) {
		next = h->next;
		free(h);
	}
	impair_close(net->impair);
	shm_close_all(net);
	udp_close_all(net);
	close(net->listen_fd);
	close(net->spare_fd);
	close(net->epfd);
	free(net);
}

void net_close(struct net *net)
{
	__atomic_store_n(&net->seg->s->slot, 0, __ATOMIC_RELEASE);
	net_free(net);
}

/* The child undoes what it has a copy of, and the thread that was amid a change is not there to finish it. */
void net_fork_begin(struct net *net)
{
	fl_lock(&net->slot_lock);
	if (net->impair)
		impair_hold(net->impair);
}

void net_fork_end(struct net *net)
{
	if (net->impair)
		impair_go_on(net->impair);
	fl_unlock(&net->slot_lock);
}

/*
 * What the parent shares with us goes on without us: nothing is taken out of its epoll, and its peers
 * see no hang-up as long as it lives. Locks may be held by threads that are not here: none is taken.
 */
void net_fork_child(struct net *net)
{
	net_free(net);
}

/* ---- paths ---- */

static int path_connect(struct net *net, const struct net_path_attr *attr, struct net_path *path)
{
	uint32_t slot = (attr->dest_qpn & ROCE_QPN_MASK) >> FAULTLINE_QPN_SLOT_SHIFT;
	struct udp_sock *sock;
	int ret;

	if (slot && gid_is_local(attr->dgid)) {
		if (slot == net->slot) {
			path->link = LINK_LOOP;
			ret = shm_open_loop(net);
			path->tx = atomic_load(&net->tx[slot]);
		} else if (!net->force_udp) {
			path->link = LINK_SHM;
			ret = shm_tx_get(net, slot, &path->tx);
		} else {
			ret = -EPERM;
		}
		if (!ret) /* so that peers on other hosts can reach this address */
			udp_sock_get(net, attr->sgid, false, &sock);
		if (ret != -EPERM)
			return ret;
		/* another user's process: over the wire */
	}
	path->link = LINK_UDP;
	return udp_path_init(path, attr);
}

int net_path_open(struct net *net, const struct net_path_attr *attr, struct net_path **out)
{
	struct net_path *path = calloc(1, sizeof(*path));
	int ret;

	if (!path)
		return -ENOMEM;
	path->net = net;
	path->attr = *attr;
	path->qpn = attr->qpn;
	fl_lock(&net->slot_lock);
	ret = path_connect(net, attr, path);
	fl_unlock(&net->slot_lock);
	if (ret) {
		/* what the peer or the route is at fault for is the caller's to see */
		if (ret == -EMFILE || ret == -ENFILE || ret == -ENOMEM)
			fl_err("QP 0x%x: cannot be connected: %s%s", attr->qpn, strerror(-ret),
			       ret == -EMFILE ? " (limit: ulimit -n)" : "");
		free(path);
		return ret;
	}
	*out = path;
	return 0;
}

void net_listen(struct net *net, const uint8_t gid[16])
{
	struct udp_sock *sock;

	fl_lock(&net->slot_lock);
	udp_sock_get(net, gid, false, &sock);
	fl_unlock(&net->slot_lock);
}

void net_path_free(struct net_path *path)
{
	struct net *net = path->net;

	fl_lock(&net->wait_lock);
	if (path->waiting) {
		cds_list_del(&path->wait_node);
		atomic_fetch_sub(&net->num_waiters, 1);
	}
	fl_unlock(&net->wait_lock);
	fl_lock(&net->slot_lock);
	if (path->link == LINK_SHM)
		shm_tx_put(net, path->tx);
	else if (path->link == LINK_UDP)
		udp_path_end(path);
	fl_unlock(&net->slot_lock);
	impair_flow_free(path->flow);
	free(path);
}

void net_path_close(struct net_path *path)
{
	if (!path->net->impair || !impair_keeps(path))
		net_path_free(path);
}

const char *net_path_link(const struct net_path *path)
{
	static const char *const names[] = {[LINK_LOOP] = "loop", [LINK_SHM] = "shm", [LINK_UDP] = "udp"};

	return names[path->link];
}

uint32_t net_path_max_train(const struct net_path *path)
{
	return TRAIN_MAX;
}

uint32_t net_path_window(const struct net_path *path, uint32_t mtu)
{
	return path->link == LINK_UDP ? udp_window(path->sock, mtu) : UINT32_MAX;
}

int net_link_xmit(struct net_path *path, const struct roce_pkt *pkt, net_fill_fn fill, void *arg)
{
	if (path->link == LINK_UDP)
		return udp_xmit(path, pkt, fill, arg);
	return shm_xmit(path, pkt, fill, arg);
}

int net_xmit(struct net_path *path, const struct roce_pkt *pkt, net_fill_fn fill, void *arg)
{
	if (path->net->impair)
		return impair_xmit(path, pkt, fill, arg);
	return net_link_xmit(path, pkt, fill, arg);
}

void net_flush(struct net *net)
{
	if (net->impair)
		impair_release(net->impair, true);
}
