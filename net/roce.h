/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RoCEv2 packets: parse, build, ICRC (InfiniBand Architecture Specification, volume 1: 9.2 to 9.4 for
 * the headers, 9.5 for opcodes, annex A17 for RoCEv2).
 *
 * A *train* is one or more consecutive packets of one message (as GSO and GRO have it): all of them
 * but the last carry exactly `mtu` bytes. Links that need no wire (loop, shm) move a train in one
 * piece; udp cuts it. What a train says is the same as what its packets would.
 */
#ifndef FL_NET_ROCE_H
#define FL_NET_ROCE_H

#include <infiniband/opcode.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IPV4_HDR	20 /* without options, as all that we send */
#define IPV6_HDR	40
#define UDP_HDR		8
#define ROCE_UDP_PORT	4791
#define ROCE_BTH_BYTES	12
#define ROCE_XRCETH_BYTES 4 /* right behind the BTH */
#define ROCE_ICRC_BYTES 4
#define ROCE_HDR_MAX	(ROCE_BTH_BYTES + 28 + 8) /* BTH and the largest of the extended headers */
#define ROCE_PSN_MASK	0xffffffu
#define ROCE_QPN_MASK	0xffffffu
#define ROCE_QPN_MULTICAST 0xffffffu /* all that are attached to the group */

/* AETH syndrome (9.7.5.2.4): the kind in the top three bits */
#define AETH_ACK	  0x00
#define AETH_RNR_NAK	  0x20
#define AETH_NAK	  0x60
#define AETH_KIND_MASK	  0xe0
#define AETH_VALUE_MASK	  0x1f
#define AETH_ACK_NO_CREDIT 0x1f /* "no flow control credits": end-to-end credits not used */
#define AETH_NAK_PSN_SEQ_ERROR	0x60
#define AETH_NAK_INVALID_REQ	0x61
#define AETH_NAK_REM_ACC_ERR	0x62
#define AETH_NAK_REM_OP_ERR	0x63
#define AETH_NAK_INVALID_RD_REQ 0x64 /* of XRC: no such SRQ, or one of another domain */

/* what an opcode says (roce_opcode[]) */
#define ROCE_F_VALID	0x0001
#define ROCE_F_REQ	0x0002 /* from requester to responder */
#define ROCE_F_START	0x0004 /* first packet of a message (FIRST or ONLY) */
#define ROCE_F_END	0x0008 /* last packet of a message (LAST or ONLY) */
#define ROCE_F_RETH	0x0010
#define ROCE_F_AETH	0x0020
#define ROCE_F_ATOMIC	0x0040 /* AtomicETH */
#define ROCE_F_ATMACK	0x0080 /* AtomicAckETH */
#define ROCE_F_IMMDT	0x0100
#define ROCE_F_IETH	0x0200
#define ROCE_F_DETH	0x0400
#define ROCE_F_PAYLOAD	0x0800 /* may carry payload */
#define ROCE_F_SEND	0x1000
#define ROCE_F_WRITE	0x2000
#define ROCE_F_READ	0x4000 /* READ request or response */
#define ROCE_F_RWR	0x8000 /* takes a receive WQE: SENDs, and WRITE with immediate */
#define ROCE_F_XRCETH	0x10000
#define ROCE_F_RDETH	0x20000

/* the transport's part of an opcode; that of XRC (annex A14) is not in <infiniband/opcode.h> */
#define ROCE_TRANSPORT_MASK 0xe0
#define IBV_OPCODE_XRC	    0xa0
#define IBV_OPCODE_RESYNC    0x15 /* nor is this, of the reliable datagram's */
#define IBV_OPCODE_RD_RESYNC (IBV_OPCODE_RD | IBV_OPCODE_RESYNC)

/* congestion notification (annex A17.9.3): to a QP of any transport, of no message */
#define ROCE_OPCODE_CNP	 0x81
#define ROCE_CNP_PAYLOAD 16

struct roce_opcode_info {
	const char *name; /* "RC_SEND_FIRST"; NULL: reserved */
	uint32_t flags;
	uint8_t hdr_bytes; /* BTH and extended headers */
};
extern const struct roce_opcode_info roce_opcode[256];

struct roce_pkt {
	/* BTH, host order */
	uint8_t opcode;	     /* of the first packet */
	uint8_t opcode_last; /* of the last; the same when npkts == 1 */
	bool se;	     /* solicited event; on the last packet */
	bool ackreq;	     /* on the last packet */
	uint16_t pkey;
	uint32_t dest_qpn;
	uint32_t psn; /* of the first; the last is psn + npkts - 1 */
	uint32_t npkts;
	uint32_t mtu;

	/* extended headers, those the opcodes say, host order (imm is as verbs has it: big endian) */
	uint64_t va;   /* RETH, AtomicETH */
	uint32_t rkey; /* RETH, AtomicETH, IETH */
	uint32_t dma_len;
	uint64_t swap_add, compare;
	uint64_t atomic_orig;
	__be32 imm; /* of the last packet */
	uint8_t syndrome;
	uint32_t msn; /* AETH */
	uint32_t qkey, src_qpn; /* DETH */
	uint32_t srqn; /* XRCETH: of all packets */
	uint32_t flow; /* RDETH: there an "EE-context" */

	const uint8_t *payload; /* received: good for the time of the call */
	uint32_t payload_len;	/* of all packets, without pad */

	bool ce; /* it met congestion on its way (ECN: CE); sending: it is to look so */
	bool handed_over; /* it had come to another process of this address */
	/* sending: this bit of the packet, counted from 1, arrives wrong (impair.c); 0: none */
	uint32_t spoiled_bit;

	/* received: where from */
	const uint8_t *grh; /* of a datagram: 40 bytes as its receive delivers them; else NULL */
};

static inline uint32_t psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & ROCE_PSN_MASK;
}

/* < 0: a is before b, in the 24-bit circle */
static inline int32_t psn_cmp(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

/* packets a message of len bytes takes: at least one */
static inline uint32_t roce_npkts(uint64_t len, uint32_t mtu)
{
	return len ? (uint32_t)((len + mtu - 1) / mtu) : 1;
}

/* opcode of packet i of a train */
uint8_t roce_pkt_opcode(const struct roce_pkt *pkt, uint32_t i);

/* Builds BTH and extended headers of packet i into buf (ROCE_HDR_MAX), returns their length. */
size_t roce_build_headers(const struct roce_pkt *pkt, uint32_t i, uint8_t *buf);

/*
 * Parses one packet from its BTH on, without ICRC: fills *pkt (npkts = 1, mtu = 0), payload pointing into
 * buf. -EPROTO: reserved opcode, too short, tver not 0, not whole words, pad longer than
 * the payload, or payload where the opcode has none.
 */
int roce_parse(const uint8_t *buf, size_t len, struct roce_pkt *pkt);
/* The same for the headers alone: returns their length, or -EPROTO. Each byte is read once. */
int roce_parse_headers(const uint8_t *buf, size_t len, struct roce_pkt *pkt, unsigned *pad);

/*
 * ICRC of a packet: ip is the IPv4 or IPv6 header followed by UDP, BTH and all to the end of the pad.
 * len: UDP header to the end of the pad. Returned as a number; it stands in the packet in little endian.
 * Fields that routers change are masked as the specification says.
 */
uint32_t roce_icrc(const uint8_t *ip, size_t ip_hdr_len, const uint8_t *udp, size_t len);

/*
 * An IPv4 packet's ICRC was computed over an ID that the receiver cannot see. diff: the ICRC in the
 * packet xor that for ID 0; tail: bytes from behind the ID field to the end of the pad. Returns the
 * ID that explains it, or -EBADMSG: none does.
 */
int roce_icrc_solve_id(uint32_t diff, size_t tail);

#endif
