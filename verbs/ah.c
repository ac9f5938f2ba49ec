/* SPDX-License-Identifier: BSD-2-Clause */
/* Address handles, and the address of who sent a datagram. */
#include "verbs/verbs.h"

#include <arpa/inet.h>
#include <stdlib.h>

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct verbs_ah *ah = calloc(1, sizeof(*ah));
	int err;

	if (!ah)
		return fail_null(-ENOMEM);
	err = ib_create_ah(to_fl_pd(pd)->ib, attr, &ah->ib);
	if (err) {
		free(ah);
		return fail_null(err);
	}
	ah->ah.context = pd->context;
	ah->ah.pd = pd;
	ah->ah.handle = ah->ib->uobj.handle;
	return &ah->ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	struct verbs_ah *a = FL_CAST(verbs_ah, ah, ah);
	int err = ib_destroy_ah(a->ib);

	if (err)
		return fail_errno(err);
	free(a);
	return 0;
}

const struct hca_av *fl_av(struct ibv_ah *ah)
{
	return &FL_CAST(verbs_ah, ah, ah)->ib->av;
}

/* Where in the 40 bytes that precede a datagram an IPv4 header is (A17.4.5.2) */
#define GRH_IPV4_OFFSET 20

static bool ipv4_checksum_ok(const uint8_t *ip)
{
	uint32_t sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

/* The first 20 bytes are undefined before an IPv4 header, so they may look like IPv6 by chance. */
static bool grh_is_ipv4(const uint8_t *raw)
{
	const uint8_t *ip = raw + GRH_IPV4_OFFSET;

	if (ip[0] != 0x45)
		return false;
	return raw[0] >> 4 != 6 || ipv4_checksum_ok(ip);
}

static void map_ipv4(union ibv_gid *gid, const uint8_t *addr)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, addr, 4);
}

static int find_gid(struct ibv_context *context, uint8_t port, const union ibv_gid *gid)
{
	union ibv_gid have;

	for (int i = 0; !ibv_query_gid(context, port, i, &have); i++) {
		if (!memcmp(&have, gid, sizeof(have)))
			return i;
	}
	return -1;
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
			struct ibv_grh *grh, struct ibv_ah_attr *ah_attr)
{
	const uint8_t *raw = (const uint8_t *)grh;
	union ibv_gid ours;
	uint32_t flow;
	int index;

	memset(ah_attr, 0, sizeof(*ah_attr));
	ah_attr->dlid = wc->slid;
	ah_attr->sl = wc->sl;
	ah_attr->src_path_bits = wc->dlid_path_bits;
	ah_attr->port_num = port_num;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;

	ah_attr->is_global = 1;
	if (grh_is_ipv4(raw)) {
		const uint8_t *ip = raw + GRH_IPV4_OFFSET;

		map_ipv4(&ah_attr->grh.dgid, ip + 12);
		map_ipv4(&ours, ip + 16);
		ah_attr->grh.traffic_class = ip[1];
	} else {
		ah_attr->grh.dgid = grh->sgid;
		ours = grh->dgid;
		flow = ntohl(grh->version_tclass_flow);
		ah_attr->grh.flow_label = flow & IB_GRH_FLOWLABEL_MASK;
		ah_attr->grh.traffic_class = (uint8_t)(flow >> 20);
	}
	ah_attr->grh.hop_limit = 0xff; /* the way back may be longer */
	index = find_gid(context, port_num, &ours);
	if (index < 0) {
		errno = EINVAL;
		return -1;
	}
	ah_attr->grh.sgid_index = (uint8_t)index;
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				     uint8_t port_num)
{
	struct ibv_ah_attr attr;

	if (ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}

int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
				uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	/* link layer addresses are the host's network stack's business here */
	errno = EOPNOTSUPP;
	return -1;
}
