/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast (10.5): which QPs are attached to which group. A datagram to QPN 0xffffff goes to each
 * QP that is attached to the group in its GRH, as if it had been sent to that QP alone: so a wrong
 * Q_Key or a missing receive is one member's loss.
 *
 * The wire's half is IP's: a group is an IP multicast group that the network device joins
 * (net/mcast.c). Its packets come back to the sender's own host by the host's network stack, so
 * members there get theirs too, and the sender itself when it is one, as with a NIC that does not
 * block it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "hw/hw.h"

_Static_assert(HCA_MCAST_GROUPS == NET_MCAST_GROUPS, "what profiles promise, the wire keeps");

static struct mcast_member *find(const struct hca_mcast *mc, const uint8_t gid[16], uint32_t qpn)
{
	for (unsigned i = 0; i < mc->n; i++)
		if (mc->v[i].qpn == qpn && !memcmp(mc->v[i].gid, gid, 16))
			return &mc->v[i];
	return NULL;
}

static unsigned members_of(const struct hca_mcast *mc, const uint8_t gid[16],
			   uint32_t qpn[HCA_MCAST_QPS])
{
	unsigned n = 0;

	for (unsigned i = 0; i < mc->n && n < HCA_MCAST_QPS; i++)
		if (!memcmp(mc->v[i].gid, gid, 16))
			qpn[n++] = mc->v[i].qpn;
	return n;
}

static int add(struct hca_mcast *mc, const uint8_t gid[16], uint32_t qpn)
{
	uint32_t others[HCA_MCAST_QPS];
	struct mcast_member *v;

	if (members_of(mc, gid, others) == HCA_MCAST_QPS)
		return -ENOMEM;
	if (mc->n == mc->room) {
		v = realloc(mc->v, (mc->room + 16) * sizeof(*v));
		if (!v)
			return -ENOMEM;
		mc->v = v;
		mc->room += 16;
	}
	mc->v[mc->n].qpn = qpn;
	memcpy(mc->v[mc->n++].gid, gid, 16);
	return 0;
}

int hca_attach_mcast(struct hca_qp *qp, const uint8_t gid[16], int ifindex)
{
	struct hca_mcast *mc;
	int rc;

	if (!hca_dev_alive(qp->dev))
		return -EIO;
	mc = &hca_node->mcast;
	rc = net_mcast_join(hca_node->net, gid, ifindex);
	if (rc)
		return rc;
	fl_lock(&mc->lock);
	rc = add(mc, gid, qp->qpn);
	fl_unlock(&mc->lock);
	if (rc)
		net_mcast_leave(hca_node->net, gid, ifindex);
	return rc;
}

void hca_detach_mcast(struct hca_qp *qp, const uint8_t gid[16], int ifindex)
{
	struct hca_mcast *mc;
	struct mcast_member *m;

	if (!hca_dev_alive(qp->dev))
		return;
	mc = &hca_node->mcast;
	fl_lock(&mc->lock);
	m = find(mc, gid, qp->qpn);
	if (m)
		*m = mc->v[--mc->n];
	fl_unlock(&mc->lock);
	if (m)
		net_mcast_leave(hca_node->net, gid, ifindex);
}

unsigned mcast_members(const struct roce_pkt *pkt, uint32_t qpn[HCA_MCAST_QPS])
{
	struct hca_mcast *mc = &hca_node->mcast;
	uint8_t gid[16];
	unsigned n;

	if (!pkt->grh)
		return 0;
	grh_dgid(pkt->grh, gid);
	fl_lock(&mc->lock);
	n = members_of(mc, gid, qpn);
	fl_unlock(&mc->lock);
	return n;
}
