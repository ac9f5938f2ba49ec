/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a device says of itself: its profile's attributes, and, of the network device it sits on, MTU,
 * state and GID table. All GIDs are RoCE v2. An address keeps its index while it is there, and its
 * place becomes empty when it goes, as in the kernel's table: QPs hold indexes.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "core/internal.h"
#include "util/cancel.h"

static const uint8_t gid_zero[16];

/* EUI-64 of the MAC. Devices of one network device differ in the byte that says "made from a MAC". */
static __be64 make_guid(const uint8_t mac[6], uint32_t index)
{
	uint8_t b[8] = {mac[0] ^ 2, mac[1], mac[2], 0xff, (uint8_t)(0xfe - index),
			mac[3],	    mac[4], mac[5]};
	__be64 guid;

	memcpy(&guid, b, sizeof(guid));
	return guid;
}

static bool gid_in(const uint8_t gid[16], uint8_t (*table)[16], unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (!memcmp(table[i], gid, 16))
			return true;
	}
	return false;
}

/* LOCK_CORE held, or the device not yet known to others */
static void update_gids(struct ib_device *dev, struct netdev_info *now)
{
	unsigned limit = dev->profile->gid_tbl_len;

	if (limit > NETDEV_MAX_GIDS)
		limit = NETDEV_MAX_GIDS;
	for (unsigned i = 0; i < dev->num_gids; i++) {
		if (!gid_in(dev->gid[i], now->gid, now->num_gids))
			memset(dev->gid[i], 0, 16);
	}
	for (unsigned i = 0; i < now->num_gids; i++) {
		unsigned at = 0;

		if (gid_in(now->gid[i], dev->gid, dev->num_gids))
			continue;
		while (at < dev->num_gids && memcmp(dev->gid[at], gid_zero, 16))
			at++;
		if (at >= limit)
			break;
		memcpy(dev->gid[at], now->gid[i], 16);
		if (at == dev->num_gids)
			dev->num_gids++;
	}
	dev->netdev = *now;
}

int ib_device_init(struct ib_device *dev, const struct hca_profile *profile, const char *name,
		   const char *netdev, uint32_t index)
{
	struct netdev_info now;
	int err = netdev_query(netdev, &now);

	if (err)
		return err;
	snprintf(dev->name, sizeof(dev->name), "%s", name);
	dev->index = index;
	dev->profile = profile;
	dev->vendor_id = profile->attr.vendor_id;
	dev->vendor_part_id = profile->attr.vendor_part_id;
	memcpy(dev->netdev_name, now.name, sizeof(dev->netdev_name));
	if (!profile->unspecified)
		dev->node_guid = make_guid(now.mac, index);
	fl_mutex_init(&dev->lock, LOCK_CORE);
	CDS_INIT_LIST_HEAD(&dev->xrc_domains);
	update_gids(dev, &now);
	return 0;
}

void ib_device_refresh(struct ib_device *dev)
{
	struct netdev_info now;
	int err = netdev_query(dev->netdev_name, &now);

	fl_lock(&dev->lock);
	if (err)
		dev->netdev.up = false;
	else
		update_gids(dev, &now);
	if (dev->stat)
		memcpy(dev->stat->gid, dev->gid[0], sizeof(dev->stat->gid));
	fl_unlock(&dev->lock);
}

int ib_query_device(struct ib_ucontext *ucontext, struct ibv_device_attr_ex *attr)
{
	const struct ib_device *dev = ucontext->device;
	const struct hca_profile *p = dev->profile;

	if (!ib_ucontext_alive(ucontext))
		return -EIO;
	memset(attr, 0, sizeof(*attr));
	attr->orig_attr = p->attr;
	attr->orig_attr.node_guid = dev->node_guid;
	attr->orig_attr.sys_image_guid = dev->node_guid;
	attr->orig_attr.vendor_id = dev->vendor_id;
	attr->orig_attr.vendor_part_id = dev->vendor_part_id;
	attr->orig_attr.phys_port_cnt = 1;
	attr->phys_port_cnt_ex = 1;
	attr->odp_caps = p->odp;
	attr->xrc_odp_caps = p->xrc_odp_caps;
	attr->completion_timestamp_mask = p->completion_timestamp_mask;
	attr->hca_core_clock = p->hca_core_clock;
	attr->device_cap_flags_ex = p->device_cap_flags_ex;
	return 0;
}

enum ibv_mtu ib_mtu_of_netdev(int mtu)
{
	/* IPv6 and UDP headers, RoCE's largest, ICRC */
	const int overhead = 40 + 8 + ROCE_HDR_MAX + ROCE_ICRC_BYTES;
	int ib = IBV_MTU_4096;

	while (ib > IBV_MTU_256 && (128 << ib) + overhead > mtu)
		ib--;
	return (enum ibv_mtu)ib;
}

int ib_query_port(struct ib_ucontext *ucontext, uint32_t port, struct ibv_port_attr *attr)
{
	NO_CANCEL;
	struct ib_device *dev = ucontext->device;
	const struct hca_profile *p = dev->profile;

	if (!ib_ucontext_alive(ucontext))
		return -EIO;
	if (port != 1)
		return -EINVAL;
	ib_device_refresh(dev);
	memset(attr, 0, sizeof(*attr));
	fl_lock(&dev->lock);
	attr->state = dev->netdev.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	attr->phys_state = dev->netdev.up ? 5 : 3; /* LinkUp, Disabled */
	attr->active_mtu = ib_mtu_of_netdev(dev->netdev.mtu);
	fl_unlock(&dev->lock);
	attr->max_mtu = IBV_MTU_4096;
	attr->gid_tbl_len = p->gid_tbl_len;
	attr->port_cap_flags = p->port_cap_flags;
	attr->max_msg_sz = p->max_msg_sz;
	attr->pkey_tbl_len = 1;
	attr->lid = p->lid;
	attr->lmc = p->lmc;
	attr->max_vl_num = p->max_vl_num;
	attr->active_width = p->active_width;
	attr->active_speed = p->active_speed;
	attr->link_layer =
		p->unspecified ? IBV_LINK_LAYER_UNSPECIFIED : IBV_LINK_LAYER_ETHERNET;
	return 0;
}

int ib_query_gid(struct ib_ucontext *ucontext, uint32_t port, uint32_t index, union ibv_gid *gid,
		 uint32_t *ifindex)
{
	NO_CANCEL;
	struct ib_device *dev = ucontext->device;
	bool empty;

	if (!ib_ucontext_alive(ucontext))
		return -EIO;
	if (port != 1 || index >= dev->profile->gid_tbl_len)
		return -EINVAL;
	memset(gid, 0, sizeof(*gid));
	fl_lock(&dev->lock);
	if (index < dev->num_gids)
		memcpy(gid->raw, dev->gid[index], 16);
	*ifindex = (uint32_t)dev->netdev.ifindex;
	fl_unlock(&dev->lock);
	empty = !memcmp(gid->raw, gid_zero, 16);
	return empty ? -ENODATA : 0;
}

int ib_query_pkey(struct ib_ucontext *ucontext, uint32_t port, int index, uint16_t *pkey)
{
	if (!ib_ucontext_alive(ucontext))
		return -EIO;
	if (port != 1 || index != 0)
		return -EINVAL;
	*pkey = 0xffff; /* RoCE has the default partition, nothing else */
	return 0;
}

int ib_check_ah_attr(struct ib_ucontext *ucontext, const struct ibv_ah_attr *attr, uint8_t sgid[16])
{
	union ibv_gid gid;
	uint32_t ifindex;
	int err;

	/* RoCE has no LIDs: an address without a GRH leads nowhere */
	if (!attr->is_global || attr->port_num != 1)
		return -EINVAL;
	err = ib_query_gid(ucontext, 1, attr->grh.sgid_index, &gid, &ifindex);
	if (err)
		return err;
	memcpy(sgid, gid.raw, 16);
	return 0;
}
