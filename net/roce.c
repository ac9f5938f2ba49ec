/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RoCEv2 headers: one table says what each opcode is and carries, and everything else follows from it:
 * how long the headers are, what is read from them and written to them, and which lengths are possible.
 * Extended headers stand in a fixed order after the BTH (9.2, figure "transport header sequence"):
 * RDETH, DETH or XRCETH, RETH, AtomicETH, AETH, AtomicAckETH, ImmDt, IETH; no opcode has more than four. Of the
 * reliable datagram's opcodes those have an entry that SRD uses (hw/srd.h); what the specification reserves has none.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include "net/roce.h"

#define RDETH_BYTES	4
#define RETH_BYTES	16
#define ATOMICETH_BYTES 28
#define AETH_BYTES	4
#define ATMACK_BYTES	8
#define DETH_BYTES	8
#define IMMDT_BYTES	4
#define IETH_BYTES	4

/* BTH byte 1 */
#define BTH_SE	     0x80
#define BTH_MIGREQ   0x40 /* a path that never migrated says "migrated" (17.2.8.1.1) */
#define BTH_PAD_SHIFT 4
#define BTH_TVER     0x0f
#define BTH_BECN     0x40 /* byte 4: a packet of yours met congestion */
#define BTH_ACKREQ   0x80 /* byte 8 */

#define HDR_LEN(f)                                                                                 \
	(ROCE_BTH_BYTES + ((f)&ROCE_F_RETH ? RETH_BYTES : 0) + ((f)&ROCE_F_AETH ? AETH_BYTES : 0) + \
	 ((f)&ROCE_F_ATOMIC ? ATOMICETH_BYTES : 0) + ((f)&ROCE_F_ATMACK ? ATMACK_BYTES : 0) +     \
	 ((f)&ROCE_F_IMMDT ? IMMDT_BYTES : 0) + ((f)&ROCE_F_IETH ? IETH_BYTES : 0) +              \
	 ((f)&ROCE_F_DETH ? DETH_BYTES : 0) + ((f)&ROCE_F_XRCETH ? ROCE_XRCETH_BYTES : 0) + \
	 ((f)&ROCE_F_RDETH ? RDETH_BYTES : 0))

/* the transports number the same operations alike (9.2.1, table 35) */
#define OPCODE(t, op, f)                                                                           \
	[IBV_OPCODE_##t | IBV_OPCODE_##op] = {.name = #t "_" #op, .flags = ROCE_F_VALID | (f),     \
					      .hdr_bytes = HDR_LEN(f)}

#define REQ   (ROCE_F_REQ | ROCE_F_PAYLOAD)
#define SEND  (REQ | ROCE_F_SEND | ROCE_F_RWR)
#define WRITE (REQ | ROCE_F_WRITE)
#define FIRST ROCE_F_START
#define LAST  ROCE_F_END
#define ONLY  (ROCE_F_START | ROCE_F_END)
#define RESP  (ROCE_F_READ | ROCE_F_PAYLOAD)
#define RD    (ROCE_F_RDETH | ROCE_F_DETH)

/* x: what all requests of the transport carry besides */
#define CONNECTED_OPCODES(t, x)                                                                    \
	OPCODE(t, SEND_FIRST, SEND | FIRST | (x)), OPCODE(t, SEND_MIDDLE, SEND | (x)),             \
		OPCODE(t, SEND_LAST, SEND | LAST | (x)),                                           \
		OPCODE(t, SEND_LAST_WITH_IMMEDIATE, SEND | LAST | ROCE_F_IMMDT | (x)),             \
		OPCODE(t, SEND_ONLY, SEND | ONLY | (x)),                                           \
		OPCODE(t, SEND_ONLY_WITH_IMMEDIATE, SEND | ONLY | ROCE_F_IMMDT | (x)),             \
		OPCODE(t, RDMA_WRITE_FIRST, WRITE | FIRST | ROCE_F_RETH | (x)),                    \
		OPCODE(t, RDMA_WRITE_MIDDLE, WRITE | (x)),                                         \
		OPCODE(t, RDMA_WRITE_LAST, WRITE | LAST | (x)),                                    \
		OPCODE(t, RDMA_WRITE_LAST_WITH_IMMEDIATE,                                          \
		       WRITE | LAST | ROCE_F_IMMDT | ROCE_F_RWR | (x)),                            \
		OPCODE(t, RDMA_WRITE_ONLY, WRITE | ONLY | ROCE_F_RETH | (x)),                      \
		OPCODE(t, RDMA_WRITE_ONLY_WITH_IMMEDIATE,                                          \
		       WRITE | ONLY | ROCE_F_RETH | ROCE_F_IMMDT | ROCE_F_RWR | (x))

#define RELIABLE_OPCODES(t, x)                                                                     \
	CONNECTED_OPCODES(t, x),                                                                   \
		OPCODE(t, RDMA_READ_REQUEST, ROCE_F_REQ | ROCE_F_READ | ONLY | ROCE_F_RETH | (x)), \
		OPCODE(t, RDMA_READ_RESPONSE_FIRST, RESP | FIRST | ROCE_F_AETH),                   \
		OPCODE(t, RDMA_READ_RESPONSE_MIDDLE, RESP),                                        \
		OPCODE(t, RDMA_READ_RESPONSE_LAST, RESP | LAST | ROCE_F_AETH),                     \
		OPCODE(t, RDMA_READ_RESPONSE_ONLY, RESP | ONLY | ROCE_F_AETH),                     \
		OPCODE(t, ACKNOWLEDGE, ONLY | ROCE_F_AETH),                                        \
		OPCODE(t, ATOMIC_ACKNOWLEDGE, ONLY | ROCE_F_AETH | ROCE_F_ATMACK),                 \
		OPCODE(t, COMPARE_SWAP, ROCE_F_REQ | ONLY | ROCE_F_ATOMIC | (x)),                  \
		OPCODE(t, FETCH_ADD, ROCE_F_REQ | ONLY | ROCE_F_ATOMIC | (x)),                     \
		OPCODE(t, SEND_LAST_WITH_INVALIDATE, SEND | LAST | ROCE_F_IETH | (x)),             \
		OPCODE(t, SEND_ONLY_WITH_INVALIDATE, SEND | ONLY | ROCE_F_IETH | (x))

/* not in <infiniband/opcode.h> (9.4.1.1.1) */
#define IBV_OPCODE_SEND_LAST_WITH_INVALIDATE 0x16
#define IBV_OPCODE_SEND_ONLY_WITH_INVALIDATE 0x17

const struct roce_opcode_info roce_opcode[256] = {
	RELIABLE_OPCODES(RC, 0),
	RELIABLE_OPCODES(XRC, ROCE_F_XRCETH),
	CONNECTED_OPCODES(UC, 0),
	[ROCE_OPCODE_CNP] = {.name = "CNP", .flags = ROCE_F_VALID | ROCE_F_PAYLOAD | ONLY,
			     .hdr_bytes = ROCE_BTH_BYTES},
	OPCODE(RD, SEND_ONLY, SEND | ONLY | RD),
	OPCODE(RD, SEND_ONLY_WITH_IMMEDIATE, SEND | ONLY | RD | ROCE_F_IMMDT),
	OPCODE(RD, RDMA_WRITE_ONLY, WRITE | ONLY | RD | ROCE_F_RETH),
	OPCODE(RD, RDMA_WRITE_ONLY_WITH_IMMEDIATE, WRITE | ONLY | RD | ROCE_F_RETH | ROCE_F_IMMDT | ROCE_F_RWR),
	OPCODE(RD, RDMA_READ_REQUEST, ROCE_F_REQ | ROCE_F_READ | ONLY | RD | ROCE_F_RETH),
	OPCODE(RD, RDMA_READ_RESPONSE_FIRST, RESP | FIRST | ROCE_F_RDETH | ROCE_F_AETH),
	OPCODE(RD, RDMA_READ_RESPONSE_MIDDLE, RESP | ROCE_F_RDETH),
	OPCODE(RD, RDMA_READ_RESPONSE_LAST, RESP | LAST | ROCE_F_RDETH | ROCE_F_AETH),
	OPCODE(RD, RDMA_READ_RESPONSE_ONLY, RESP | ONLY | ROCE_F_RDETH | ROCE_F_AETH),
	OPCODE(RD, ACKNOWLEDGE, ONLY | ROCE_F_RDETH | ROCE_F_AETH),
	OPCODE(RD, RESYNC, ROCE_F_REQ | ONLY | RD),
	OPCODE(UD, SEND_ONLY, SEND | ONLY | ROCE_F_DETH),
	OPCODE(UD, SEND_ONLY_WITH_IMMEDIATE, SEND | ONLY | ROCE_F_DETH | ROCE_F_IMMDT),
};

/* Fields stand unaligned, in big endian. */
static void put32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}

static void put64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

uint8_t roce_pkt_opcode(const struct roce_pkt *pkt, uint32_t i)
{
	uint8_t transport = pkt->opcode & ROCE_TRANSPORT_MASK;
	uint32_t flags = roce_opcode[pkt->opcode].flags;

	if (i == 0)
		return pkt->opcode;
	if (i == pkt->npkts - 1)
		return pkt->opcode_last;
	if (flags & ROCE_F_SEND)
		return transport | IBV_OPCODE_SEND_MIDDLE;
	if (flags & ROCE_F_WRITE)
		return transport | IBV_OPCODE_RDMA_WRITE_MIDDLE;
	return transport | IBV_OPCODE_RDMA_READ_RESPONSE_MIDDLE;
}

size_t roce_build_headers(const struct roce_pkt *pkt, uint32_t i, uint8_t *buf)
{
	uint8_t op = roce_pkt_opcode(pkt, i);
	const struct roce_opcode_info *info = &roce_opcode[op];
	bool last = i == pkt->npkts - 1;
	uint32_t len = last ? pkt->payload_len - i * pkt->mtu : pkt->mtu;
	uint8_t *p = buf + ROCE_BTH_BYTES;

	buf[0] = op;
	buf[1] = (last && pkt->se ? BTH_SE : 0) | BTH_MIGREQ | ((-len & 3) << BTH_PAD_SHIFT);
	buf[2] = pkt->pkey >> 8;
	buf[3] = pkt->pkey;
	put32(buf + 4, pkt->dest_qpn & ROCE_QPN_MASK);
	if (op == ROCE_OPCODE_CNP)
		buf[4] = BTH_BECN;
	put32(buf + 8, psn_add(pkt->psn, i));
	if (last && pkt->ackreq)
		buf[8] = BTH_ACKREQ;

	if (info->flags & ROCE_F_RDETH) {
		put32(p, pkt->flow & 0xffffff);
		p += RDETH_BYTES;
	}
	if (info->flags & ROCE_F_DETH) {
		put32(p, pkt->qkey);
		put32(p + 4, pkt->src_qpn & ROCE_QPN_MASK);
		p += DETH_BYTES;
	}
	if (info->flags & ROCE_F_XRCETH) {
		put32(p, pkt->srqn & ROCE_QPN_MASK);
		p += ROCE_XRCETH_BYTES;
	}
	if (info->flags & ROCE_F_RETH) {
		put64(p, pkt->va);
		put32(p + 8, pkt->rkey);
		put32(p + 12, pkt->dma_len);
		p += RETH_BYTES;
	}
	if (info->flags & ROCE_F_ATOMIC) {
		put64(p, pkt->va);
		put32(p + 8, pkt->rkey);
		put64(p + 12, pkt->swap_add);
		put64(p + 20, pkt->compare);
		p += ATOMICETH_BYTES;
	}
	if (info->flags & ROCE_F_AETH) {
		put32(p, (uint32_t)pkt->syndrome << 24 | (pkt->msn & 0xffffff));
		p += AETH_BYTES;
	}
	if (info->flags & ROCE_F_ATMACK) {
		put64(p, pkt->atomic_orig);
		p += ATMACK_BYTES;
	}
	if (info->flags & ROCE_F_IMMDT) {
		memcpy(p, &pkt->imm, sizeof(pkt->imm));
		p += IMMDT_BYTES;
	}
	if (info->flags & ROCE_F_IETH) {
		put32(p, pkt->rkey);
		p += IETH_BYTES;
	}
	return p - buf;
}

int roce_parse_headers(const uint8_t *buf, size_t len, struct roce_pkt *pkt, unsigned *pad)
{
	const struct roce_opcode_info *info;
	const uint8_t *p = buf + ROCE_BTH_BYTES;
	uint32_t aeth;

	if (len < ROCE_BTH_BYTES)
		return -EPROTO;
	memset(pkt, 0, sizeof(*pkt));
	pkt->opcode = pkt->opcode_last = buf[0];
	info = &roce_opcode[pkt->opcode];
	if (!info->name || len < info->hdr_bytes || buf[1] & BTH_TVER)
		return -EPROTO;
	*pad = buf[1] >> BTH_PAD_SHIFT & 3;
	pkt->se = buf[1] & BTH_SE;
	pkt->pkey = buf[2] << 8 | buf[3];
	pkt->dest_qpn = get32(buf + 4) & ROCE_QPN_MASK;
	pkt->ackreq = buf[8] & BTH_ACKREQ;
	pkt->psn = get32(buf + 8) & ROCE_PSN_MASK;
	pkt->npkts = 1;

	if (info->flags & ROCE_F_RDETH) {
		pkt->flow = get32(p) & 0xffffff;
		p += RDETH_BYTES;
	}
	if (info->flags & ROCE_F_DETH) {
		pkt->qkey = get32(p);
		pkt->src_qpn = get32(p + 4) & ROCE_QPN_MASK;
		p += DETH_BYTES;
	}
	if (info->flags & ROCE_F_XRCETH) {
		pkt->srqn = get32(p) & ROCE_QPN_MASK;
		p += ROCE_XRCETH_BYTES;
	}
	if (info->flags & ROCE_F_RETH) {
		pkt->va = get64(p);
		pkt->rkey = get32(p + 8);
		pkt->dma_len = get32(p + 12);
		p += RETH_BYTES;
	}
	if (info->flags & ROCE_F_ATOMIC) {
		pkt->va = get64(p);
		pkt->rkey = get32(p + 8);
		pkt->swap_add = get64(p + 12);
		pkt->compare = get64(p + 20);
		p += ATOMICETH_BYTES;
	}
	if (info->flags & ROCE_F_AETH) {
		aeth = get32(p);
		pkt->syndrome = aeth >> 24;
		pkt->msn = aeth & 0xffffff;
		p += AETH_BYTES;
	}
	if (info->flags & ROCE_F_ATMACK) {
		pkt->atomic_orig = get64(p);
		p += ATMACK_BYTES;
	}
	if (info->flags & ROCE_F_IMMDT) {
		memcpy(&pkt->imm, p, sizeof(pkt->imm));
		p += IMMDT_BYTES;
	}
	if (info->flags & ROCE_F_IETH) {
		pkt->rkey = get32(p);
		p += IETH_BYTES;
	}
	return p - buf;
}

int roce_parse(const uint8_t *buf, size_t len, struct roce_pkt *pkt)
{
	unsigned pad;
	size_t rest;
	int hdr;

	hdr = roce_parse_headers(buf, len, pkt, &pad);
	if (hdr < 0)
		return hdr;
	rest = len - hdr;
	/* a packet is a whole number of words long (9.2.2: that is what the pad is for) */
	if (rest & 3 || pad > rest)
		return -EPROTO;
	if (!(roce_opcode[pkt->opcode].flags & ROCE_F_PAYLOAD) && rest)
		return -EPROTO;
	pkt->payload = buf + hdr;
	pkt->payload_len = rest - pad;
	return 0;
}
