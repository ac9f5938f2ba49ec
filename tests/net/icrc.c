/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ICRC of packets that the Linux kernel's rxe sent (recorded; IPv4 with IDs that count, IPv6): they all
 * check, a bit changed anywhere that is covered is seen and one that routers may change is not, and the IP
 * ID can be found again from the ICRC.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "net/roce.h"

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: packet %u: failed: %s\n", __FILE__, __LINE__, num, #x); \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static unsigned num, solved;

static uint32_t at(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return le32toh(v);
}

static void check_packet(uint8_t *frame, size_t len)
{
	bool v6 = frame[12] == 0x86;
	uint8_t *ip = frame + 14;
	size_t ip_len = v6 ? 40 : (ip[0] & 15) * 4;
	uint8_t *udp = ip + ip_len;
	size_t n = (udp[4] << 8 | udp[5]) - ROCE_ICRC_BYTES;
	static const uint8_t open4[] = {1, 8, 10, 11}, open6[] = {1, 2, 3, 7};
	const uint8_t *open = v6 ? open6 : open4;
	struct roce_pkt pkt;
	uint32_t icrc;
	uint16_t id;
	size_t i;

	CHECK(udp + n + ROCE_ICRC_BYTES <= frame + len);
	CHECK(!roce_parse(udp + 8, n - 8, &pkt));
	icrc = at(udp + n);
	CHECK(roce_icrc(ip, ip_len, udp, n) == icrc);

	for (i = 0; i < ip_len + n; i++) {
		bool masked = i == open[0] || i == open[1] || i == open[2] || i == open[3] ||
			      i == ip_len + 6 || i == ip_len + 7 || i == ip_len + 8 + 4;

		if (i == 0)
			continue; /* the version says how to read the rest */
		ip[i] ^= 1 << i % 8;
		CHECK((roce_icrc(ip, ip_len, udp, n) == icrc) == masked);
		ip[i] ^= 1 << i % 8;
	}
	if (v6)
		return;
	id = ip[4] << 8 | ip[5];
	ip[4] = ip[5] = 0;
	CHECK(roce_icrc_solve_id(icrc ^ roce_icrc(ip, ip_len, udp, n), ip_len - 6 + n) == id);
	udp[19] ^= 0x10; /* the PSN */
	CHECK(roce_icrc_solve_id(icrc ^ roce_icrc(ip, ip_len, udp, n), ip_len - 6 + n) < 0);
	solved += id != 0;
}

int main(int argc, char **argv)
{
	static uint8_t frame[16384];
	uint32_t rec[4];
	uint8_t head[24];
	FILE *f;
	int i;

	for (i = 1; i < argc; i++) {
		f = fopen(argv[i], "rb");
		if (!f || fread(head, sizeof(head), 1, f) != 1) {
			perror(argv[i]);
			return 1;
		}
		while (fread(rec, sizeof(rec), 1, f) == 1) {
			CHECK(rec[2] <= sizeof(frame) && fread(frame, rec[2], 1, f) == 1);
			num++;
			check_packet(frame, rec[2]);
		}
		fclose(f);
	}
	printf("%u packets, %u IDs found\n", num, solved);
	return num < 100 || solved < 50;
}
