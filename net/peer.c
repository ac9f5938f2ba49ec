/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What processes of a host show each other so that one can place data in the other's memory itself
 * (hw/direct.c). Who accepts a connection offers: its segment, read only; the memory of its peers'
 * hazards; and where the two lie in its own address space. Who connected takes the offer when
 * process_vm_readv() there shows the very same: then it may reach into that process, and
 * the number it has for it is right. Otherwise packets do.
 *
 * The offer comes when the peer's engine gets to it; until then packets do.
 *
 * A process may execute another program, or end and its number become another's, between any look of ours and
 * the copy, and no hang-up tells of it in time. But one call of process_vm_writev() is about one address space, found
 * when it begins, and takes its pieces in order. So each copy begins with a word in the peer's memory of hazards,
 * the proof, at an address that is drawn by lot (util/seg.c): in another program there is nothing at that place,
 * the call ends there, and the data goes nowhere. What was read counts only with the proof that was written
 * before, through our own mapping of that memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include "mm/mm.h"
#include "net/impl.h"

void peer_offer(struct net *net, struct shm_rx *rx)
{
	struct slot_offer msg = {.type = SLOT_MSG_OFFER,
				 .version = SLOT_OFFER_VERSION,
				 .segment = (uintptr_t)net->seg->s,
				 .peers = (uintptr_t)net->seg->peers};
	const int fds[2] = {net->seg->ro_fd, net->seg->peers_fd};

	if (!net->direct || !net->ops->peer_joined || !net->seg->peers || !rx->slot || rx->slot > FAULTLINE_MAX_SLOT)
		return;
	if (net->ops->peer_joined(net->ctx, rx->slot, rx->sock) && usock_send(rx->sock, &msg, sizeof(msg), fds, 2))
		net->ops->peer_left(net->ctx, rx->slot, rx->sock);
}

void peer_left(struct net *net, struct shm_rx *rx)
{
	if (net->ops->peer_left && rx->slot && rx->slot <= FAULTLINE_MAX_SLOT)
		net->ops->peer_left(net->ctx, rx->slot, rx->sock);
}

int net_peer_access(struct net_peer *peer, bool write, void *buf, uint64_t addr, size_t len)
{
	/* Two pieces: one string of stores has no order in itself, and programs poll on the last byte. */
	size_t tail = len > 8 ? 8 : 0;
	uint64_t proof = ++peer->proof;
	struct iovec local[2] = {{.iov_base = &proof, .iov_len = sizeof(proof)}, {.iov_base = buf, .iov_len = len}};
	struct iovec remote[3] = {{.iov_base = (void *)(uintptr_t)peer->proof_at, .iov_len = sizeof(proof)},
				  {.iov_base = (void *)(uintptr_t)addr, .iov_len = len - tail},
				  {.iov_base = (void *)(uintptr_t)(addr + len - tail), .iov_len = tail}};
	unsigned pieces = tail ? 3 : 2;
	ssize_t n;

	if (write) {
		n = process_vm_writev(peer->pid, local, 2, remote, pieces, 0);
	} else {
		__atomic_store_n(&peer->hazard->proof, proof, __ATOMIC_SEQ_CST); /* seen by the call's other mapping */
		proof = 0;
		n = process_vm_readv(peer->pid, local, 2, remote, pieces, 0);
	}
	if (n < 0)
		return -errno;
	if (proof != peer->proof)
		return -ESRCH;
	return n == (ssize_t)(sizeof(proof) + len) ? 0 : -EFAULT;
}

/* Is it the process whose segment this is, and are we allowed to reach into it? */
static int check_process(struct net_peer *peer, uint64_t at)
{
	const struct faultline_segment *s = peer->segment;
	/* magic, version, pid, slot; then the time of its start. What lies between changes while it runs. */
	const size_t asleep = offsetof(struct faultline_segment, asleep);
	const size_t start = offsetof(struct faultline_segment, start_ns);
	char head[offsetof(struct faultline_segment, comm)];
	int err = net_peer_access(peer, false, head, at, sizeof(head));

	if (err)
		return err;
	return memcmp(head, s, asleep) || memcmp(head + start, (const char *)s + start, sizeof(s->start_ns))
		       ? -ESRCH : 0;
}

/* A whole segment or none: an implicit region must not reach another process's memory through ours. */
static int map_offer(const int fds[2], struct net_peer *peer)
{
	int err = seg_map_peer(fds[0], &peer->segment);

	if (err)
		return err;
	err = seg_map_peers(fds[1], false, &peer->peers);
	if (err) {
		seg_unmap_peer(peer->segment);
		peer->segment = NULL;
		return err;
	}
	mm_private_add(peer->segment, seg_peer_size(peer->segment));
	mm_private_add(peer->peers, sizeof(*peer->peers));
	return 0;
}

void peer_unmap(struct net_peer *peer)
{
	if (!peer->segment)
		return;
	mm_private_remove(peer->segment);
	mm_private_remove(peer->peers);
	seg_unmap_peer(peer->segment);
	seg_unmap_peers(peer->peers);
	peer->segment = NULL;
}

void peer_take_offer(struct net *net, struct shm_tx *tx)
{
	struct slot_offer msg = {0};
	struct net_peer new = {0};
	struct ucred cred;
	socklen_t cred_len = sizeof(cred);
	int fds[USOCK_MAX_FDS], num_fds, err;
	ssize_t n = usock_recv(tx->sock, &msg, sizeof(msg), fds, &num_fds);

	if (n < 0)
		return;
	if (!net->direct || n != sizeof(msg) || msg.type != SLOT_MSG_OFFER ||
	    msg.version != SLOT_OFFER_VERSION || num_fds != 2 || tx->peer.segment ||
	    getsockopt(tx->sock, SOL_SOCKET, SO_PEERCRED, &cred, &cred_len))
		goto out;
	err = map_offer(fds, &new);
	if (!err) {
		new.pid = cred.pid;
		new.hazard = &new.peers->hazard[net->slot];
		new.proof_at = msg.peers + offsetof(struct faultline_peers, hazard[net->slot].proof);
		new.proof = now_ns(); /* no number that lies about anywhere */
		err = check_process(&new, msg.segment);
	}
	if (err) {
		fl_info("no direct placement in the memory of process %d (%s)%s: packets do", cred.pid,
			strerror(-err), err == -EPERM ? ", /proc/sys/kernel/yama/ptrace_scope may forbid it" : "");
		goto out;
	}
	fl_lock(&tx->peer.lock);
	tx->peer.pid = new.pid;
	tx->peer.proof_at = new.proof_at;
	tx->peer.proof = new.proof;
	tx->peer.hazard = new.hazard;
	tx->peer.peers = new.peers;
	tx->peer.segment = new.segment;
	fl_unlock(&tx->peer.lock);
	new.segment = NULL;
out:
	peer_unmap(&new);
	for (int i = 0; i < num_fds; i++)
		close(fds[i]);
}

void peer_forget(struct shm_tx *tx)
{
	fl_lock(&tx->peer.lock);
	peer_unmap(&tx->peer);
	fl_unlock(&tx->peer.lock);
}

/* ---- for who places ---- */

bool net_path_is_direct(const struct net_path *path)
{
	return path->link == LINK_SHM && path->net->direct;
}

struct net_peer *net_path_peer(struct net_path *path)
{
	struct net_peer *peer = &path->tx->peer;

	if (!fl_trylock(&peer->lock))
		return NULL; /* another thread is at it: packets do */
	if (peer->segment)
		return peer;
	fl_unlock(&peer->lock);
	return NULL;
}

void net_peer_done(struct net_peer *peer)
{
	fl_unlock(&peer->lock);
}
