/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What processes of a host show each other so that one can place data in the other's memory itself
 * (hw/direct.c). Who accepts a connection offers: its segment, read only; the memory of its peers'
 * hazards; and where its segment lies in its own address space. Who connected takes the offer when
 * process_vm_readv() of that address shows the very segment: then it may reach into that process, and
 * the number it has for it is right. Otherwise packets do.
 *
 * The offer comes when the peer's engine gets to it; until then packets do.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include "net/impl.h"

void peer_offer(struct net *net, struct shm_rx *rx)
{
	struct slot_offer msg = {.type = SLOT_MSG_OFFER,
				 .version = SLOT_OFFER_VERSION,
				 .segment = (uintptr_t)net->seg->s};
	const int fds[2] = {net->seg->ro_fd, net->seg->peers_fd};

	if (!net->direct || !net->ops->peer_joined || !net->seg->peers || !rx->slot || rx->slot > FAULTLINE_MAX_SLOT)
		return;
	if (net->ops->peer_joined(net->ctx, rx->slot, rx->sock) && slot_send(rx->sock, &msg, sizeof(msg), fds, 2))
		net->ops->peer_left(net->ctx, rx->slot, rx->sock);
}

void peer_left(struct net *net, struct shm_rx *rx)
{
	if (net->ops->peer_left && rx->slot && rx->slot <= FAULTLINE_MAX_SLOT)
		net->ops->peer_left(net->ctx, rx->slot, rx->sock);
}

static int vm_access(pid_t pid, bool write, void *buf, uint64_t addr, size_t len)
{
	/* Two pieces: one string of stores has no order in itself, and programs poll on the last byte. */
	size_t tail = len > 8 ? 8 : 0;
	struct iovec local = {.iov_base = buf, .iov_len = len};
	struct iovec remote[2] = {{.iov_base = (void *)(uintptr_t)addr, .iov_len = len - tail},
				  {.iov_base = (void *)(uintptr_t)(addr + len - tail), .iov_len = tail}};
	ssize_t n = write ? process_vm_writev(pid, &local, 1, remote, tail ? 2 : 1, 0)
			  : process_vm_readv(pid, &local, 1, remote, tail ? 2 : 1, 0);

	return n == (ssize_t)len ? 0 : n < 0 ? -errno : -EFAULT;
}

/* Is it the process whose segment this is, and are we allowed to reach into it? */
static int check_process(pid_t pid, uint64_t at, const struct faultline_segment *s)
{
	/* magic, version, pid, slot; then the time of its start. What lies between changes while it runs. */
	const size_t asleep = offsetof(struct faultline_segment, asleep);
	const size_t start = offsetof(struct faultline_segment, start_ns);
	char head[offsetof(struct faultline_segment, comm)];
	int err = vm_access(pid, false, head, at, sizeof(head));

	if (err)
		return err;
	return memcmp(head, s, asleep) || memcmp(head + start, (const char *)s + start, sizeof(s->start_ns))
		       ? -ESRCH : 0;
}

void peer_take_offer(struct net *net, struct shm_tx *tx)
{
	struct slot_offer msg = {0};
	const struct faultline_segment *s = NULL;
	struct faultline_peers *peers = NULL;
	struct ucred cred;
	socklen_t cred_len = sizeof(cred);
	int fds[SLOT_MAX_FDS], num_fds, err = -EPROTO;
	ssize_t n = slot_recv(tx->sock, &msg, sizeof(msg), fds, &num_fds);

	if (n < 0)
		return;
	if (!net->direct || n != sizeof(msg) || msg.type != SLOT_MSG_OFFER ||
	    msg.version != SLOT_OFFER_VERSION || num_fds != 2 || tx->peer.segment)
		goto out;
	err = seg_map_peer(fds[0], &s);
	if (!err)
		err = seg_map_peers(fds[1], &peers);
	if (!err && getsockopt(tx->sock, SOL_SOCKET, SO_PEERCRED, &cred, &cred_len))
		err = -errno;
	if (!err)
		err = check_process(cred.pid, msg.segment, s);
	if (err) {
		fl_info("no direct placement in the memory of process %d (%s)%s: packets do", cred.pid,
			strerror(-err), err == -EPERM ? ", /proc/sys/kernel/yama/ptrace_scope may forbid it" : "");
		goto out;
	}
	fl_lock(&tx->peer.lock);
	tx->peer.pid = cred.pid;
	tx->peer.sock = tx->sock;
	tx->peer.hazard = &peers->hazard[net->slot];
	tx->peer.peers = peers;
	tx->peer.segment = s;
	fl_unlock(&tx->peer.lock);
	s = NULL;
	peers = NULL;
out:
	if (peers)
		seg_unmap_peers(peers);
	if (s)
		seg_unmap_peer(s);
	for (int i = 0; i < num_fds; i++)
		close(fds[i]);
}

void peer_forget(struct shm_tx *tx)
{
	fl_lock(&tx->peer.lock);
	if (tx->peer.segment) {
		seg_unmap_peer(tx->peer.segment);
		seg_unmap_peers(tx->peer.peers);
		tx->peer.segment = NULL;
	}
	fl_unlock(&tx->peer.lock);
}

/* ---- for who places ---- */

bool net_path_is_direct(const struct net_path *path)
{
	return path->link == LINK_SHM && path->net->direct;
}

struct net_peer *net_path_peer(struct net_path *path)
{
	struct pollfd pfd = {.events = POLLRDHUP};
	struct net_peer *peer;

	peer = &path->tx->peer;
	if (!fl_trylock(&peer->lock))
		return NULL; /* another thread is at it: packets do */
	pfd.fd = peer->sock;
	/* A process that has ended, or executes another program, hung up: its number may be another's now. */
	if (peer->segment && poll(&pfd, 1, 0) == 0)
		return peer;
	fl_unlock(&peer->lock);
	return NULL;
}

int net_peer_access(struct net_peer *peer, bool write, void *buf, uint64_t addr, size_t len)
{
	return vm_access(peer->pid, write, buf, addr, len);
}

void net_peer_done(struct net_peer *peer)
{
	fl_unlock(&peer->lock);
}
