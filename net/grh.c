/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The 40 bytes that stand before a received datagram's data: the IPv6 header, or 20 bytes of nothing and
 * the IPv4 header (A17.4.5.2). Links that have no such header, or do not get to see it, make it here, as
 * it would be on the wire, checksum and all: readers tell IPv4 by that.
 */
#include <netinet/in.h>
#include <string.h>
#include "net/impl.h"

static uint16_t ipv4_checksum(const uint8_t *ip)
{
	uint32_t sum = 0;
	int i;

	for (i = 0; i < IPV4_HDR; i += 2)
		sum += ip[i] << 8 | ip[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16));
}

void grh_make(uint8_t grh[GRH_LEN], const struct net_path_attr *a, uint32_t len)
{
	uint8_t hop = a->hop_limit ? a->hop_limit : HOP_USUAL, *ip = grh + GRH_LEN - IPV4_HDR;

	memset(grh, 0, GRH_LEN);
	if (gid_is_ipv4(a->sgid) && gid_is_ipv4(a->dgid)) {
		ip[0] = 0x45;
		ip[1] = a->tclass;
		put16(ip + 2, IPV4_HDR + UDP_HDR + len);
		ip[6] = 0x40; /* DF */
		ip[8] = hop;
		ip[9] = IPPROTO_UDP;
		memcpy(ip + 12, a->sgid + 12, 4);
		memcpy(ip + 16, a->dgid + 12, 4);
		put16(ip + 10, ipv4_checksum(ip));
		return;
	}
	put16(grh, 0x6000 | a->tclass << 4 | (a->flow_label >> 16 & 0xf));
	put16(grh + 2, a->flow_label);
	put16(grh + 4, UDP_HDR + len);
	grh[6] = IPPROTO_UDP;
	grh[7] = hop;
	memcpy(grh + 8, a->sgid, 16);
	memcpy(grh + 24, a->dgid, 16);
}

bool grh_ok(const uint8_t grh[GRH_LEN])
{
	static const uint8_t none[GRH_LEN - IPV4_HDR];

	return grh[0] >> 4 == 6 ||
	       (!memcmp(grh, none, sizeof(none)) && grh[GRH_LEN - IPV4_HDR] == 0x45);
}
