/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Groups of multicast: a group's GID is an IP multicast address (A17.9.1), which is joined on the
 * device's network interface. A group has a socket of its own, bound to the group's address: a
 * socket that is bound to an address of the host gets none of its packets, and each socket so
 * bound, of every process, gets its own copy.
 *
 * A socket stays when its last member has left, in place for the next group: pollers look at the
 * table of sockets without a lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "net/udp.h"

bool gid_is_multicast(const uint8_t gid[16])
{
	return gid[0] == 0xff || (gid_is_ipv4(gid) && gid[12] >> 4 == 0xe);
}

static int membership(const struct mcast_group *g, bool join)
{
	const struct udp_sock *sock = g->sock;
	struct ip_mreqn m4 = {.imr_ifindex = g->ifindex};
	struct ipv6_mreq m6 = {.ipv6mr_interface = g->ifindex};
	int ret;

	if (gid_is_ipv4(sock->gid)) {
		memcpy(&m4.imr_multiaddr, sock->gid + 12, 4);
		ret = setsockopt(sock->fd, IPPROTO_IP,
				 join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &m4, sizeof(m4));
	} else {
		memcpy(&m6.ipv6mr_multiaddr, sock->gid, 16);
		ret = setsockopt(sock->fd, IPPROTO_IPV6, join ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP,
				 &m6, sizeof(m6));
	}
	return ret ? -errno : 0;
}

static struct mcast_group *find(struct net *net, const uint8_t gid[16], int ifindex)
{
	for (unsigned i = 0; i < NET_MCAST_GROUPS; i++)
		if (net->group[i].joined && net->group[i].ifindex == ifindex &&
		    !memcmp(net->group[i].sock->gid, gid, 16))
			return &net->group[i];
	return NULL;
}

bool mcast_sock_used(const struct net *net, const struct udp_sock *sock)
{
	for (unsigned i = 0; i < NET_MCAST_GROUPS; i++)
		if (net->group[i].joined && net->group[i].sock == sock)
			return true;
	return false;
}

int net_mcast_join(struct net *net, const uint8_t gid[16], int ifindex)
{
	struct mcast_group *g;
	int ret = -ENOMEM;

	fl_lock(&net->slot_lock);
	g = find(net, gid, ifindex);
	if (g) {
		g->joined++;
		ret = 0;
		goto out;
	}
	for (g = net->group; g < net->group + NET_MCAST_GROUPS && g->joined; g++)
		;
	if (g == net->group + NET_MCAST_GROUPS)
		goto out;
	ret = udp_group_sock(net, gid, ifindex, &g->sock);
	if (ret)
		goto out;
	g->ifindex = ifindex;
	ret = membership(g, true);
	if (ret)
		goto out;
	g->joined = 1;
	atomic_fetch_add(&net->udp_paths, 1);
out:
	fl_unlock(&net->slot_lock);
	return ret;
}

void net_mcast_leave(struct net *net, const uint8_t gid[16], int ifindex)
{
	struct mcast_group *g;

	fl_lock(&net->slot_lock);
	g = find(net, gid, ifindex);
	if (g && !--g->joined) {
		membership(g, false);
		atomic_fetch_sub(&net->udp_paths, 1);
	}
	fl_unlock(&net->slot_lock);
}
