/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A record: struct rec, the headers of the train's first packet as the wire would have them, those of
 * its last one if there are more, payload. All but the payload fits the first 64 bytes, and so does the
 * payload when it is small (one cache line to move for 8 bytes); a longer one begins at byte 64.
 * What is read from a ring is copied out once and then checked, since its writer may change it.
 * XRC has a longer first packet, so its last one goes without the XRCETH: it is that of the first.
 */
#include <errno.h>
#include <string.h>
#include "net/impl.h"

struct rec {
	uint32_t size; /* of all, a multiple of RING_ALIGN */
	uint32_t payload_len;
	uint16_t npkts;
	uint16_t mtu;
	uint8_t kind;
	uint8_t first_len, last_len; /* bytes of headers */
	uint8_t ce; /* it met congestion on its way */
};

#define RAW_MAX	     (ROCE_HDR_MAX + 4096 + 4)
#define MTU_MIN	     256
#define MTU_MAX	     4096
/* what a first and a last opcode must agree in: transport and kind of message */
#define KIND_MASK    (ROCE_F_REQ | ROCE_F_SEND | ROCE_F_WRITE | ROCE_F_READ | ROCE_F_PAYLOAD)

_Static_assert(sizeof(struct rec) == 16, "the record's header leaves 48 bytes for packet headers");
_Static_assert(sizeof(struct rec) + ROCE_HDR_MAX <= REC_LINE, "headers fit the first line");

/* bytes of GRH before the payload */
static uint32_t grh_len(const struct roce_pkt *pkt)
{
	return roce_opcode[pkt->opcode].flags & ROCE_F_DETH ? GRH_LEN : 0;
}

static uint32_t layout(uint32_t headers, uint32_t payload_len, uint32_t *off)
{
	uint32_t small = (sizeof(struct rec) + headers + 7) & ~7u;

	*off = small + payload_len <= REC_LINE ? small : REC_LINE;
	return (*off + payload_len + RING_ALIGN - 1) & ~(RING_ALIGN - 1);
}

/* The last packet's headers as a record has them; returns their length. */
static size_t build_last(const struct roce_pkt *pkt, uint8_t buf[ROCE_HDR_MAX])
{
	size_t len = roce_build_headers(pkt, pkt->npkts - 1, buf);

	if (!(roce_opcode[pkt->opcode_last].flags & ROCE_F_XRCETH))
		return len;
	len -= ROCE_XRCETH_BYTES;
	memmove(buf + ROCE_BTH_BYTES, buf + ROCE_BTH_BYTES + ROCE_XRCETH_BYTES, len - ROCE_BTH_BYTES);
	return len;
}

/* The other way: buf has room for the XRCETH, which nobody reads. */
static size_t whole_last(uint8_t buf[REC_LINE], size_t len)
{
	if (len < ROCE_BTH_BYTES || !(roce_opcode[buf[0]].flags & ROCE_F_XRCETH))
		return len;
	memmove(buf + ROCE_BTH_BYTES + ROCE_XRCETH_BYTES, buf + ROCE_BTH_BYTES, len - ROCE_BTH_BYTES);
	return len + ROCE_XRCETH_BYTES;
}

uint32_t train_encode(const struct roce_pkt *pkt, uint8_t line[REC_LINE], uint32_t *off)
{
	struct rec rec = {.payload_len = pkt->payload_len, .npkts = pkt->npkts, .mtu = pkt->mtu,
			  .kind = REC_TRAIN, .ce = pkt->ce};
	uint8_t last[ROCE_HDR_MAX];

	if (!roce_opcode[pkt->opcode].name || pkt->payload_len > TRAIN_MAX || pkt->npkts > UINT16_MAX)
		return 0;
	rec.first_len = roce_build_headers(pkt, 0, line + sizeof(rec));
	if (pkt->npkts > 1) {
		rec.last_len = build_last(pkt, last);
		if (sizeof(rec) + rec.first_len + rec.last_len > REC_LINE)
			return 0;
		memcpy(line + sizeof(rec) + rec.first_len, last, rec.last_len);
	}
	rec.size = layout(rec.first_len + rec.last_len, rec.payload_len + grh_len(pkt), off);
	*off += grh_len(pkt);
	memcpy(line, &rec, sizeof(rec));
	return rec.size;
}

uint32_t raw_encode(const uint8_t grh[GRH_LEN], bool ce, uint32_t len, uint8_t line[REC_LINE], uint32_t *off)
{
	struct rec rec = {.payload_len = len, .kind = REC_RAW, .first_len = GRH_LEN, .ce = ce};

	if (len > RAW_MAX)
		return 0;
	rec.size = layout(GRH_LEN, len, off);
	memcpy(line, &rec, sizeof(rec));
	memcpy(line + sizeof(rec), grh, GRH_LEN);
	return rec.size;
}

/* Takes from the last packet's headers what a train has from its last packet. */
static int merge_last(const uint8_t *hdr, size_t len, uint32_t npkts, struct roce_pkt *pkt)
{
	uint32_t first = roce_opcode[pkt->opcode].flags, flags;
	uint8_t buf[REC_LINE] = {0};
	struct roce_pkt last;
	unsigned pad;

	if (len > ROCE_HDR_MAX)
		return -EPROTO;
	memcpy(buf, hdr, len);
	len = whole_last(buf, len);
	if (roce_parse_headers(buf, len, &last, &pad) != (int)len)
		return -EPROTO;
	flags = roce_opcode[last.opcode].flags;
	if ((pkt->opcode ^ last.opcode) & ROCE_TRANSPORT_MASK || (first ^ flags) & KIND_MASK ||
	    !(first & ROCE_F_PAYLOAD) || first & ROCE_F_END || flags & ROCE_F_START ||
	    last.psn != psn_add(pkt->psn, npkts - 1) || last.dest_qpn != pkt->dest_qpn ||
	    last.pkey != pkt->pkey || last.flow != pkt->flow)
		return -EPROTO;
	pkt->opcode_last = last.opcode;
	pkt->se = last.se;
	pkt->ackreq = last.ackreq;
	pkt->imm = last.imm;
	if (flags & ROCE_F_AETH) {
		pkt->syndrome = last.syndrome;
		pkt->msn = last.msn;
	}
	if (flags & ROCE_F_IETH)
		pkt->rkey = last.rkey;
	return 0;
}

static int decode_raw(const uint8_t *grh, const uint8_t *packet, uint32_t len, struct roce_pkt *pkt)
{
	uint8_t copy[ROCE_HDR_MAX];
	unsigned pad;
	uint32_t rest;
	int hdr;

	memcpy(copy, packet, len < sizeof(copy) ? len : sizeof(copy));
	hdr = roce_parse_headers(copy, len, pkt, &pad);
	if (hdr < 0)
		return hdr;
	rest = len - hdr;
	if (rest & 3 || pad > rest || (rest && !(roce_opcode[pkt->opcode].flags & ROCE_F_PAYLOAD)))
		return -EPROTO;
	if (grh_len(pkt)) {
		if (!grh_ok(grh))
			return -EPROTO;
		pkt->grh = grh;
	}
	pkt->payload = packet + hdr;
	pkt->payload_len = rest - pad;
	return 0;
}

int train_decode(const uint8_t *ring, uint32_t avail, struct roce_pkt *pkt, uint32_t *size)
{
	uint8_t line[REC_LINE];
	struct rec rec;
	uint32_t off, grh = 0;
	unsigned pad;
	int ret;

	*size = 0;
	if (avail < REC_LINE)
		return -EPROTO;
	memcpy(line, ring, REC_LINE);
	memcpy(&rec, line, sizeof(rec));
	if (rec.kind == REC_TRAIN && roce_opcode[line[sizeof(rec)]].flags & ROCE_F_DETH)
		grh = GRH_LEN;
	if (rec.payload_len > TRAIN_MAX ||
	    sizeof(rec) + rec.first_len + rec.last_len > REC_LINE || rec.size > avail ||
	    rec.size != layout(rec.first_len + rec.last_len, rec.payload_len + grh, &off))
		return -EPROTO;
	*size = rec.size;

	if (rec.kind == REC_RAW) {
		if (rec.first_len != GRH_LEN || rec.last_len || rec.payload_len > RAW_MAX)
			return -EPROTO;
		ret = decode_raw(ring + sizeof(rec), ring + off, rec.payload_len, pkt);
		pkt->ce = rec.ce;
		pkt->handed_over = true;
		return ret;
	}
	if (rec.kind != REC_TRAIN)
		return -EPROTO;
	if (roce_parse_headers(line + sizeof(rec), rec.first_len, pkt, &pad) != rec.first_len)
		return -EPROTO;
	if (rec.npkts > 1) {
		if (rec.mtu < MTU_MIN || rec.mtu > MTU_MAX || rec.mtu & 3 ||
		    rec.payload_len <= (rec.npkts - 1u) * rec.mtu ||
		    rec.payload_len > (uint32_t)rec.npkts * rec.mtu)
			return -EPROTO;
		ret = merge_last(line + sizeof(rec) + rec.first_len, rec.last_len, rec.npkts, pkt);
		if (ret)
			return ret;
	} else if (rec.npkts != 1 || rec.last_len || rec.payload_len > MTU_MAX ||
		   (rec.payload_len && !(roce_opcode[pkt->opcode].flags & ROCE_F_PAYLOAD))) {
		return -EPROTO;
	}
	pkt->npkts = rec.npkts;
	pkt->mtu = rec.mtu;
	pkt->ce = rec.ce;
	if (grh) {
		if (!grh_ok(ring + off))
			return -EPROTO;
		pkt->grh = ring + off;
	}
	pkt->payload = ring + off + grh;
	pkt->payload_len = rec.payload_len;
	return 0;
}
