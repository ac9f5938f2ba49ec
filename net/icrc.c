/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ICRC: the Ethernet CRC-32 over what no router changes (7.8.1; A17.3.3 for RoCEv2). What may change
 * counts as ones: 8 bytes in place of the LRH; TOS, TTL and checksum of IPv4; traffic class, flow label
 * and hop limit of IPv6; the UDP checksum; the BTH's resv8a.
 *
 * The IPv4 identification is covered too, but a UDP socket does not show it. Our own packets have DF and
 * ID 0; others count. So when a check with ID 0 fails, roce_icrc_solve_id() asks whether another ID makes
 * it right. CRC is linear: of two messages of one length the CRCs differ by the CRC (without presets) of
 * their difference, here two bytes d0 d1 and `tail` zero bytes. With the register in reflected order that
 * is (d0 | d1 << 8) stepped over tail + 2 bytes. Stepping a bit is a multiplication by x modulo the
 * polynomial, which has an inverse; so step the difference back, and it is explained when only the
 * low 16 bits are left. One wrong packet in 65536 passes that would not otherwise: it is what
 * a checksum of 16 bits less is worth, and UDP's own stands behind it.
 */
#include <errno.h>
#include <isa-l/crc.h>
#include <string.h>
#include "net/roce.h"

#define CRC_POLY    0xedb88320u /* reflected */
#define CRC_ONE	    0x80000000u /* the polynomial 1 */
#define CRC_X_INV   (((CRC_ONE ^ CRC_POLY) << 1) | 1) /* 1/x */
#define IPV4_HDR_MAX 60

uint32_t roce_icrc(const uint8_t *ip, size_t ip_hdr_len, const uint8_t *udp, size_t len)
{
	uint8_t m[8 + IPV4_HDR_MAX + UDP_HDR + ROCE_BTH_BYTES];
	uint8_t *h = m + 8, *u;
	size_t head;

	if (ip_hdr_len < IPV4_HDR || ip_hdr_len > IPV4_HDR_MAX || len < UDP_HDR + ROCE_BTH_BYTES)
		return 0;
	memset(m, 0xff, 8);
	memcpy(h, ip, ip_hdr_len);
	if (ip[0] >> 4 == 4) {
		h[1] = 0xff;
		h[8] = 0xff;
		h[10] = h[11] = 0xff;
	} else {
		h[0] |= 0x0f;
		h[1] = h[2] = h[3] = 0xff;
		h[7] = 0xff;
	}
	u = h + ip_hdr_len;
	head = UDP_HDR + ROCE_BTH_BYTES;
	memcpy(u, udp, head);
	u[6] = u[7] = 0xff;
	u[UDP_HDR + 4] = 0xff;
	return crc32_gzip_refl(crc32_gzip_refl(0, m, u + head - m), udp + head, len - head);
}

/* a * b mod P */
static uint32_t crc_mul(uint32_t a, uint32_t b)
{
	uint32_t r = 0, bit;

	for (bit = CRC_ONE; bit; bit >>= 1) {
		if (a & bit)
			r ^= b;
		b = b >> 1 ^ (b & 1 ? CRC_POLY : 0);
	}
	return r;
}

int roce_icrc_solve_id(uint32_t diff, size_t tail)
{
	uint32_t step = CRC_X_INV, d = diff;
	size_t bits = (tail + 2) * 8;

	for (; bits; bits >>= 1) {
		if (bits & 1)
			d = crc_mul(d, step);
		step = crc_mul(step, step);
	}
	if (d >> 16)
		return -EBADMSG;
	return (d & 0xff) << 8 | d >> 8;
}
