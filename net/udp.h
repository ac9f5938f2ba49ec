/* SPDX-License-Identifier: BSD-2-Clause */
/* The UDP link from inside: udp.c has the sockets, udp_tx.c sends, udp_rx.c receives. */
#ifndef FL_NET_UDP_H
#define FL_NET_UDP_H

#include <netinet/udp.h>
#include "net/impl.h"

union udp_control {
	struct cmsghdr align;
	/* length of a run's packets, traffic class, hop limit; of what is received, flow label */
	uint8_t buf[4 * CMSG_SPACE(sizeof(int))];
};

#define ECN_ECT0 2 /* RFC 3168: "mark me rather than drop me" */
#define ECN_CE	 3 /* somebody did */
#define ECN_MASK 3

/*
 * The IP header (its length is returned) and the UDP header that the kernel puts, or took from, before len
 * bytes of UDP payload; fields that the ICRC masks are left out. Both addresses are of one family. id: the
 * IPv4 ID.
 */
size_t udp_make_headers(const struct sockaddr_storage *src, const struct sockaddr_storage *dst, uint16_t id,
			size_t len, uint8_t ip[IPV6_HDR], uint8_t udp[UDP_HDR]);

/* what udp_tx.c and udp_rx.c work in, allocated with a socket; NULL: no memory */
struct udp_batch *udp_batch_alloc(void);
struct udp_rx *udp_rx_alloc(void);

#endif
