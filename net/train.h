/* SPDX-License-Identifier: BSD-2-Clause */
/* Trains as records of a ring. */
#ifndef FL_NET_TRAIN_H
#define FL_NET_TRAIN_H

#include "net/roce.h"

#define REC_LINE  64	     /* all of a record's headers are in its first bytes, that many */
#define TRAIN_MAX (64u << 10) /* payload */
#define GRH_LEN	  40

enum rec_kind {
	REC_TRAIN = 1,
	REC_RAW = 2, /* one packet as it came from the wire, with its GRH before it */
};

/*
 * Lays a train out: *line is its first REC_LINE bytes, *off where the payload goes, returned is the
 * record's size. 0: no record can hold it. A datagram (an opcode with a DETH) has its GRH in the GRH_LEN
 * bytes before the payload, behind the line; the caller puts it there.
 */
uint32_t train_encode(const struct roce_pkt *pkt, uint8_t line[REC_LINE], uint32_t *off);
uint32_t raw_encode(const uint8_t grh[GRH_LEN], bool ce, uint32_t len, uint8_t line[REC_LINE], uint32_t *off);

/*
 * The record at rec, of which avail bytes are there; the memory may change under us. *size: the
 * record's, to go on; 0: the framing itself is wrong. -EPROTO: not a packet that can be.
 */
int train_decode(const uint8_t *rec, uint32_t avail, struct roce_pkt *pkt, uint32_t *size);

#endif
