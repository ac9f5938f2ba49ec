/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What comes from a wire or a ring, as bytes that somebody made up: no reading outside of them, and what is taken
 * for a packet lies within them and says the same when it is built again. LLVMFuzzerTestOneInput() is
 * libFuzzer's entry (clang -fsanitize=fuzzer -DFUZZER); otherwise main() takes recorded packets (pcap
 * files) as its corpus, and changes them by a generator with a seed: how many, not for how long, so that a fast
 * machine sees what a slow one saw. Arguments: thousands of inputs, pcap files.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "net/ring.h"
#include "net/roce.h"
#include "net/train.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Packet i of a train; only its last packet has the key that a SEND invalidates. */
static void same_packet(const struct roce_pkt *pkt, uint32_t i)
{
	uint8_t hdr[ROCE_HDR_MAX], op = roce_pkt_opcode(pkt, i);
	uint32_t flags = roce_opcode[op].flags;
	struct roce_pkt again;
	unsigned pad;
	size_t len = roce_build_headers(pkt, i, hdr);

	if (roce_parse_headers(hdr, len, &again, &pad) != (int)len || again.opcode != op ||
	    again.psn != psn_add(pkt->psn, i) || again.dest_qpn != pkt->dest_qpn)
		abort();
	if (flags & (ROCE_F_RETH | ROCE_F_ATOMIC) && again.va != pkt->va)
		abort();
	if (flags & (ROCE_F_RETH | ROCE_F_ATOMIC | ROCE_F_IETH) && again.rkey != pkt->rkey)
		abort();
	if ((flags & ROCE_F_RETH && again.dma_len != pkt->dma_len) || (flags & ROCE_F_DETH && again.qkey != pkt->qkey) ||
	    (flags & ROCE_F_XRCETH && again.srqn != pkt->srqn) || (flags & ROCE_F_IMMDT && again.imm != pkt->imm))
		abort();
}

static void same_again(const struct roce_pkt *pkt)
{
	same_packet(pkt, 0);
	same_packet(pkt, pkt->npkts - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t ring[RING_BYTES];
	uint8_t *exact = malloc(size ? size : 1); /* so that a sanitizer sees its end */
	struct roce_pkt pkt;
	uint32_t rec;

	memcpy(exact, data, size);
	if (!roce_parse(exact, size, &pkt)) {
		if (pkt.payload < exact || pkt.payload + pkt.payload_len > exact + size)
			abort();
		same_again(&pkt);
	}
	free(exact);
	size = size < sizeof(ring) ? size : sizeof(ring);
	memcpy(ring, data, size);
	if (!train_decode(ring, sizeof(ring), &pkt, &rec)) {
		if (!rec || rec > sizeof(ring) || !pkt.npkts || pkt.payload < ring ||
		    pkt.payload + pkt.payload_len > ring + rec)
			abort();
		same_again(&pkt);
	}
	memset(ring, 0, size);
	return 0;
}

#ifndef FUZZER
#define MAX_SEEDS 512
#define MAX_LEN	  2048

static struct seed {
	uint8_t bytes[MAX_LEN];
	size_t len;
} seeds[MAX_SEEDS];
static unsigned num_seeds;
static uint64_t rng = 20;

static uint32_t rnd(uint32_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (rng >> 16) % n;
}

static void add(const uint8_t *p, size_t len)
{
	if (num_seeds == MAX_SEEDS || !len || len > MAX_LEN)
		return;
	memcpy(seeds[num_seeds].bytes, p, len);
	seeds[num_seeds++].len = len;
}

/* each packet twice: as it is, and as a record of a ring */
static void read_pcap(const char *name)
{
	uint8_t packet[65536], rec[REC_LINE + MAX_LEN];
	static const uint8_t grh[GRH_LEN];
	FILE *f = fopen(name, "rb");
	uint32_t head[4], off, size;
	struct roce_pkt pkt;

	if (!f || fseek(f, 24, SEEK_SET)) {
		fprintf(stderr, "%s: no recording\n", name);
		exit(1);
	}
	while (fread(head, sizeof(head), 1, f) == 1 && head[2] <= sizeof(packet) &&
	       fread(packet, 1, head[2], f) == head[2]) {
		size_t at = 14 + (packet[12] == 0x86 ? 40 : 20) + 8;

		if (head[2] < at + ROCE_BTH_BYTES + ROCE_ICRC_BYTES || rnd(4))
			continue;
		size = head[2] - at - ROCE_ICRC_BYTES;
		add(packet + at, size);
		memset(rec, 0, sizeof(rec));
		if (roce_parse(packet + at, size, &pkt) || size > 1500)
			continue;
		if (rnd(2)) {
			size = raw_encode(grh, false, size, rec, &off);
			memcpy(rec + off, packet + at, head[2] - at - ROCE_ICRC_BYTES);
		} else {
			size = train_encode(&pkt, rec, &off);
		}
		add(rec, size);
	}
	fclose(f);
}

/* what no recording has: each opcode of XRC, as a packet, and as a record of a ring, of one packet and of several */
static void add_xrc(void)
{
	uint8_t buf[ROCE_HDR_MAX + 4], rec[REC_LINE + MAX_LEN];
	uint32_t off, size;

	for (unsigned op = IBV_OPCODE_XRC; op < IBV_OPCODE_XRC + 32u; op++) {
		struct roce_pkt pkt = {.opcode = op, .opcode_last = op, .npkts = 1, .mtu = 256, .dest_qpn = 17,
				       .srqn = 0x4011, .va = 4096, .dma_len = 8};

		if (!roce_opcode[op].name)
			continue;
		memset(buf, 0, sizeof(buf));
		add(buf, roce_build_headers(&pkt, 0, buf) + (roce_opcode[op].flags & ROCE_F_PAYLOAD ? 4 : 0));
		if (op == (IBV_OPCODE_XRC | IBV_OPCODE_SEND_FIRST) || op == (IBV_OPCODE_XRC | IBV_OPCODE_RDMA_WRITE_FIRST)) {
			pkt.opcode_last = op + 3; /* the last with immediate */
			pkt.npkts = 2;
			pkt.payload_len = 300;
		}
		memset(rec, 0, sizeof(rec));
		size = train_encode(&pkt, rec, &off);
		if (!size)
			abort();
		add(rec, size);
	}
}

static void change(uint8_t *p, size_t *len)
{
	unsigned n = 1 + rnd(4);

	while (n--) {
		switch (rnd(4)) {
		case 0:
			p[rnd(*len)] ^= 1 << rnd(8);
			break;
		case 1:
			p[rnd(*len < 64 ? *len : 64)] = rnd(256);
			break;
		case 2:
			p[rnd(*len)] = rnd(2) ? 0xff : 0;
			break;
		default:
			*len = 1 + rnd(*len); /* truncated */
		}
	}
}

int main(int argc, char **argv)
{
	uint8_t input[MAX_LEN];
	long thousands, n;
	int i;

	add_xrc();
	for (i = 2; i < argc; i++)
		read_pcap(argv[i]);
	if (argc < 3 || num_seeds < 20) {
		fprintf(stderr, "usage: parse THOUSANDS PCAP...; %u packets found\n", num_seeds);
		return 1;
	}
	for (i = 0; i < (int)num_seeds; i++)
		LLVMFuzzerTestOneInput(seeds[i].bytes, seeds[i].len);
	thousands = atol(argv[1]);
	for (n = 0; n < thousands * 1000; n++) {
		const struct seed *s = &seeds[rnd(num_seeds)];
		size_t len = s->len;

		memcpy(input, s->bytes, len);
		change(input, &len);
		LLVMFuzzerTestOneInput(input, len);
	}
	printf("%u packets of the corpus, %ld thousand made of them\n", num_seeds, thousands);
	return 0;
}
#endif
