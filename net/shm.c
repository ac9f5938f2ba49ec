/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Channels between processes of a host. One ring a direction: who wants to send makes the ring and its
 * two eventfds, connects to the peer's slot, hands the descriptors over, and may send at once; the
 * peer finds what is in the ring when it accepts. The connection stays open only to tell of a death:
 * then the sender's side is disconnected (what is sent is lost, as on a wire; a new connection is
 * tried when the path is used again), and the receiver's side is drained and forgotten.
 * The loop is the same ring with both sides here and no connection.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "net/impl.h"

static bool hung_up(int sock)
{
	struct pollfd pfd = {.fd = sock, .events = POLLRDHUP};

	return poll(&pfd, 1, 0) > 0 && pfd.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* ---- sending side ---- */

static struct shm_tx *tx_slot(struct net *net, uint32_t slot)
{
	struct shm_tx *tx = atomic_load(&net->tx[slot]);

	if (tx)
		return tx;
	tx = calloc(1, sizeof(*tx));
	if (!tx)
		return NULL;
	fl_mutex_init(&tx->lock, LOCK_NET_TX);
	fl_mutex_init(&tx->peer.lock, LOCK_NET_PEER);
	tx->slot = slot;
	tx->sock = tx->data_fd = tx->space_fd = -1;
	atomic_store(&net->tx[slot], tx);
	return tx;
}

static void tx_disconnect(struct shm_tx *tx)
{
	peer_forget(tx); /* before its socket closes */
	fl_lock(&tx->lock);
	if (tx->connected) {
		tx->connected = false;
		ring_tx_detach(&tx->ring);
		close_fd(&tx->sock);
		close_fd(&tx->data_fd);
		close_fd(&tx->space_fd);
	}
	fl_unlock(&tx->lock);
}

/* sock: a connection to the slot, or -1 for the loop, whose receiving side is rx. Takes over sock. */
static int tx_attach(struct net *net, struct shm_tx *tx, int sock, struct shm_rx *rx)
{
	struct slot_connect msg = {.type = SLOT_MSG_CONNECT, .version = SLOT_CONNECT_VERSION,
				   .slot = net->slot};
	struct ring_tx ring;
	int fds[3] = {-1, -1, -1};
	int ret;

	fds[0] = ring_create();
	if (fds[0] < 0) {
		ret = fds[0];
		goto err;
	}
	fds[1] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	fds[2] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (fds[1] < 0 || fds[2] < 0) {
		ret = -errno;
		goto err;
	}
	ret = ring_tx_attach(&ring, fds[0], fds[1]);
	if (ret)
		goto err;
	if (rx) {
		ret = ring_rx_attach(&rx->ring, fds[0], fds[2]);
		if (!ret)
			ret = net_epoll_add(net, fds[1], EPOLLIN | EPOLLET, EP_RX_DATA, 0);
	} else {
		ret = net_epoll_add(net, sock, EPOLLIN | EPOLLRDHUP, EP_TX_SOCK, tx->slot);
		if (!ret)
			ret = usock_send(sock, &msg, sizeof(msg), fds, 3);
	}
	if (!ret)
		ret = net_epoll_add(net, fds[2], EPOLLIN | EPOLLET, EP_TX_SPACE, tx->slot);
	if (ret)
		goto err_ring;
	close(fds[0]);

	fl_lock(&tx->lock);
	tx->ring = ring;
	tx->sock = sock;
	tx->data_fd = fds[1];
	tx->space_fd = fds[2];
	tx->connected = true;
	fl_unlock(&tx->lock);
	return 0;

err_ring:
	ring_tx_detach(&ring);
	if (rx)
		ring_rx_detach(&rx->ring);
err:
	close_fd(&fds[0]);
	close_fd(&fds[1]);
	close_fd(&fds[2]);
	close_fd(&sock);
	return ret;
}

static int tx_connect(struct net *net, struct shm_tx *tx)
{
	int sock;

	fl_lock(&tx->lock); /* tx_lost() */
	tx->last_try = now_ns();
	fl_unlock(&tx->lock);
	sock = slot_dial(tx->slot);
	return sock < 0 ? sock : tx_attach(net, tx, sock, NULL);
}

int shm_tx_get(struct net *net, uint32_t slot, struct shm_tx **out)
{
	struct shm_tx *tx = tx_slot(net, slot);
	int ret = 0;

	if (!tx)
		return -ENOMEM;
	if (tx->connected && tx->sock >= 0 && hung_up(tx->sock))
		tx_disconnect(tx);
	if (!tx->connected)
		ret = tx_connect(net, tx);
	/* Nobody there, or nobody who accepts now: an unplugged cable, not an error. */
	if (ret && ret != -ECONNREFUSED && ret != -EAGAIN)
		return ret;
	tx->refs++;
	*out = tx;
	return 0;
}

void shm_tx_put(struct net *net, struct shm_tx *tx)
{
	if (!--tx->refs && tx->slot != net->slot)
		tx_disconnect(tx);
}

void shm_tx_event(struct net *net, uint32_t slot)
{
	struct shm_tx *tx = atomic_load(&net->tx[slot]);

	/* the event may be older than the connection */
	if (!tx || !tx->connected || tx->sock < 0)
		return;
	peer_take_offer(net, tx);
	if (hung_up(tx->sock)) {
		fl_info("the process at slot %u is gone", slot);
		tx_disconnect(tx);
	}
}

void shm_reconnect(struct net *net)
{
	uint32_t slot;
	struct shm_tx *tx;

	for (slot = 1; slot <= FAULTLINE_MAX_SLOT; slot++) {
		tx = atomic_load(&net->tx[slot]);
		if (!tx || !atomic_exchange(&tx->want_connect, false) || !tx->refs)
			continue;
		if (tx->connected && tx->ring.broken)
			tx_disconnect(tx);
		if (!tx->connected)
			tx_connect(net, tx);
	}
}

/* Lost, for want of a peer; asks for a new connection now and then. tx->lock held. */
static void tx_lost(struct net *net, struct shm_tx *tx)
{
	uint64_t now = now_ns();

	net_count(net, FL_CNT_send_err, 1);
	if (now - tx->last_try < RECONNECT_NS || atomic_load(&tx->want_connect))
		return;
	atomic_store(&tx->want_connect, true);
	atomic_store(&net->want_connect, true);
	net->ops->kick(net->ctx);
}

int shm_xmit(struct net_path *path, const struct roce_pkt *pkt, net_fill_fn fill, void *arg)
{
	struct shm_tx *tx = path->tx;
	_Alignas(64) uint8_t line[REC_LINE];
	uint32_t size, off;
	uint8_t *rec;
	int ret = 0;

	size = train_encode(pkt, line, &off);
	if (!size)
		return -EINVAL;
	fl_lock(&tx->lock);
	if (!tx->connected || tx->ring.broken) {
		tx_lost(path->net, tx);
		goto out;
	}
	rec = ring_reserve(&tx->ring, size);
	if (!rec) {
		/* on the list first, so that who makes room finds us there */
		net_wait(path);
		if (!ring_want_space(&tx->ring, size)) {
			ret = -EAGAIN;
			goto out;
		}
		rec = ring_reserve(&tx->ring, size);
	}
	if (roce_opcode[pkt->opcode].flags & ROCE_F_DETH)
		grh_make(rec + off - GRH_LEN, &path->attr,
			 roce_opcode[pkt->opcode].hdr_bytes + ((pkt->payload_len + 3) & ~3u) +
				 ROCE_ICRC_BYTES);
	/* A short payload goes into the line, which is then written at once: a consumer that spins on it
	 * would take it away in between. */
	if (pkt->payload_len)
		ret = fill(arg, off < REC_LINE ? line + off : rec + off, 0, pkt->payload_len);
	if (!ret)
		ring_publish(&tx->ring, size, line);
out:
	fl_unlock(&tx->lock);
	return ret;
}

int shm_send_raw(struct shm_tx *tx, const uint8_t grh[GRH_LEN], const uint8_t *packet, uint32_t len,
		 bool ce)
{
	uint8_t line[REC_LINE] = {0};
	uint32_t size, off;
	uint8_t *rec;
	int ret = 0;

	size = raw_encode(grh, ce, len, line, &off);
	if (!size)
		return -EMSGSIZE;
	fl_lock(&tx->lock);
	if (!tx->connected || tx->ring.broken) {
		ret = -ENOTCONN;
	} else {
		rec = ring_reserve(&tx->ring, size);
		if (rec) {
			memcpy(off < REC_LINE ? line + off : rec + off, packet, len);
			ring_publish(&tx->ring, size, line);
		} else {
			ret = -EAGAIN;
		}
	}
	fl_unlock(&tx->lock);
	return ret;
}

/* ---- receiving side ---- */

int shm_drain(struct net *net, struct shm_rx *rx, int budget)
{
	struct roce_pkt pkt;
	const uint8_t *rec;
	uint32_t size;
	int n, ret;

	for (n = 0; n < budget; n++) {
		rec = ring_peek(&rx->ring);
		if (!rec)
			break;
		/* where the next short record is or will be: its miss is over by the time we look */
		__builtin_prefetch(rec + REC_LINE);
		ret = train_decode(rec, RING_BYTES, &pkt, &size);
		if (!size) {
			fl_warn("shm ring from slot %u: a record of impossible size; abandoning the ring",
				rx->slot);
			ring_rx_detach(&rx->ring);
			rx->attached = false;
			/* tells the peer; its hang-up, with which it lets go of our memory too, is what ends the rest */
			shutdown(rx->sock, SHUT_WR);
			break;
		}
		if (!ret && pkt.handed_over)
			net_count(net, FL_CNT_rx_handed_over, 1);
		if (ret)
			net_count(net, FL_CNT_rx_malformed, 1);
		else
			net->ops->rx(net->ctx, &pkt);
		ring_consume(&rx->ring, size);
	}
	return n;
}

static struct shm_rx *rx_alloc(struct net *net, uint32_t *index)
{
	unsigned n = atomic_load(&net->num_rx), i;
	struct shm_rx *rx;

	for (i = 1; i < n; i++) {
		rx = atomic_load(&net->rx[i]);
		if (!rx->used)
			goto found;
	}
	i = n ? n : 1; /* 0 is the loop's */
	if (i == RX_MAX)
		return NULL;
	rx = calloc(1, sizeof(*rx));
	if (!rx)
		return NULL;
	fl_mutex_init(&rx->lock, LOCK_NET_RX);
	if (ring_rx_init(&rx->ring)) {
		free(rx);
		return NULL;
	}
	atomic_store(&net->rx[i], rx);
	atomic_store(&net->num_rx, i + 1);
found:
	rx->used = true;
	rx->slot = 0;
	rx->sock = rx->data_fd = rx->space_fd = -1;
	*index = i;
	return rx;
}

static void rx_free(struct net *net, struct shm_rx *rx)
{
	peer_left(net, rx); /* before the ring's lock: who has it may wait for the peer's hazard */
	fl_lock(&rx->lock);
	if (rx->attached) {
		ring_rx_detach(&rx->ring);
		rx->attached = false;
	}
	fl_unlock(&rx->lock);
	close_fd(&rx->sock);
	close_fd(&rx->data_fd);
	close_fd(&rx->space_fd);
	rx->used = false;
}

/* What we are going to write to without ever wanting to block. */
static bool is_eventfd(int fd)
{
	char path[32], name[32];
	ssize_t n;
	int flags;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, name, sizeof(name) - 1);
	if (n < 0)
		return false;
	name[n] = '\0';
	flags = fcntl(fd, F_GETFL);
	return !strcmp(name, "anon_inode:[eventfd]") && flags >= 0 &&
	       !fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

static int rx_connect(struct net *net, struct shm_rx *rx, uint32_t index,
		      const struct slot_connect *msg, ssize_t len, int *fds, int num_fds)
{
	struct epoll_event ev = {.events = EPOLLRDHUP, .data.u64 = (uint64_t)EP_RX_SOCK << 32 | index};
	int ret;

	if (len != sizeof(*msg) || msg->version != SLOT_CONNECT_VERSION || num_fds != 3 ||
	    !is_eventfd(fds[1]) || !is_eventfd(fds[2]))
		return -EPROTO;
	ret = ring_check(fds[0]);
	if (ret)
		return ret;
	fl_lock(&rx->lock);
	ret = ring_rx_attach(&rx->ring, fds[0], fds[2]);
	if (!ret) {
		rx->attached = true;
		rx->slot = msg->slot;
		ring_set_asleep(&rx->ring, atomic_load(&net->sleeping));
	}
	fl_unlock(&rx->lock);
	if (ret)
		return ret;
	rx->data_fd = fds[1];
	rx->space_fd = fds[2];
	fds[1] = fds[2] = -1;
	/* from now on the connection tells of its end only */
	epoll_ctl(net->epfd, EPOLL_CTL_MOD, rx->sock, &ev);
	ret = net_epoll_add(net, rx->data_fd, EPOLLIN | EPOLLET, EP_RX_DATA, index);
	if (!ret)
		peer_offer(net, rx);
	return ret;
}

/* The first message of a connection. */
static void rx_hello(struct net *net, struct shm_rx *rx, uint32_t index)
{
	struct slot_connect msg = {0};
	int fds[USOCK_MAX_FDS], num_fds, i, ret = -EPROTO;
	ssize_t n;
	uint8_t answer = SLOT_MSG_STAT;

	n = usock_recv(rx->sock, &msg, sizeof(msg), fds, &num_fds);
	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n > 0 && msg.type == SLOT_MSG_CONNECT) {
		ret = rx_connect(net, rx, index, &msg, n, fds, num_fds);
	} else if (n == 1 && msg.type == SLOT_MSG_STAT) {
		usock_send(rx->sock, &answer, 1, &net->seg->ro_fd, 1);
		ret = -ESHUTDOWN; /* that was all */
	}
	if (ret == -EPROTO && n > 0)
		fl_warn("a connection to slot %u began with what is no request (another version of Faultline?); closed",
			net->slot);
	for (i = 0; i < num_fds; i++)
		close_fd(&fds[i]);
	if (ret)
		rx_free(net, rx);
}

/*
 * No descriptor is left. A connection that stays in the queue would keep the engine awake for nothing, so
 * it is taken and closed; the peer tries again later.
 */
static void turn_away(struct net *net)
{
	int sock;

	fl_warn_once("out of file descriptors: a peer's connection was refused; raise the limit (ulimit -n)");
	close(net->spare_fd);
	sock = usock_accept(net->listen_fd);
	if (sock >= 0)
		close(sock);
	net->spare_fd = fcntl(net->epfd, F_DUPFD_CLOEXEC, 0);
}

void shm_accept(struct net *net)
{
	struct shm_rx *rx;
	uint32_t index;
	int sock;

	while ((sock = usock_accept(net->listen_fd)) >= 0) {
		rx = rx_alloc(net, &index);
		if (!rx) {
			close(sock);
			continue;
		}
		rx->sock = sock;
		if (net_epoll_add(net, sock, EPOLLIN | EPOLLRDHUP, EP_RX_SOCK, index))
			rx_free(net, rx);
		else
			rx_hello(net, rx, index);
	}
	if (sock == -EMFILE || sock == -ENFILE)
		turn_away(net);
}

void shm_rx_event(struct net *net, uint32_t index)
{
	struct shm_rx *rx = atomic_load(&net->rx[index]);

	if (!rx || !rx->used || rx->sock < 0)
		return;
	if (rx->data_fd < 0) {
		rx_hello(net, rx, index);
		return;
	}
	if (!hung_up(rx->sock))
		return;
	peer_left(net, rx);
	/* what was sent before the death was sent */
	fl_lock(&rx->lock);
	while (rx->attached && shm_drain(net, rx, 64) > 0)
		;
	fl_unlock(&rx->lock);
	rx_free(net, rx);
}

/* ---- all of it ---- */

int shm_open_loop(struct net *net)
{
	struct shm_tx *tx = tx_slot(net, net->slot);
	struct shm_rx *rx;
	int ret;

	if (!tx)
		return -ENOMEM;
	if (tx->connected)
		return 0;
	rx = atomic_load(&net->rx[0]);
	ret = tx_attach(net, tx, -1, rx);
	if (ret)
		return ret;
	fl_lock(&rx->lock);
	rx->attached = true;
	rx->slot = net->slot;
	ring_set_asleep(&rx->ring, atomic_load(&net->sleeping));
	fl_unlock(&rx->lock);
	return 0;
}

void shm_close_all(struct net *net)
{
	unsigned i, n = atomic_load(&net->num_rx);
	struct shm_tx *tx;
	struct shm_rx *rx;

	for (i = 1; i <= FAULTLINE_MAX_SLOT; i++) {
		tx = atomic_load(&net->tx[i]);
		if (!tx)
			continue;
		peer_unmap(&tx->peer);
		if (tx->connected) {
			ring_tx_detach(&tx->ring);
			close_fd(&tx->sock);
			close_fd(&tx->data_fd);
			close_fd(&tx->space_fd);
		}
		free(tx);
	}
	for (i = 0; i < n; i++) {
		rx = atomic_load(&net->rx[i]);
		ring_rx_destroy(&rx->ring);
		close_fd(&rx->sock);
		close_fd(&rx->data_fd);
		close_fd(&rx->space_fd);
		free(rx);
	}
}
