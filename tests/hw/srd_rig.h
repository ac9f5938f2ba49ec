/* SPDX-License-Identifier: BSD-2-Clause */
/* What both halves of SRD are tested on: a QP of it, and what it sends. */
#ifndef FL_TESTS_HW_SRD_RIG_H
#define FL_TESTS_HW_SRD_RIG_H

#include "hw/srd.h"
#include "rig.h"

#define QKEY	 0x11111111
#define MTU	 1024u
#define RD(op)	 IBV_OPCODE_RD_##op
#define ACK	 AETH_ACK_NO_CREDIT
#define SECOND	 1000000000ull

extern const uint8_t srd_peer_gid[16], srd_my_gid[16];
extern struct hca_av srd_av;		/* of the peer */
extern uint8_t srd_grh[GRH_BYTES];	/* of what comes from it */
extern uint32_t srd_flow_sent;		/* of what srd_tx() saw last */

void srd_up(void);
void srd_new_qp(void); /* rig.qp, in RTS */
void srd_state(enum ibv_qp_state s, int mask);
/* the next that was sent is this */
struct roce_pkt srd_tx_at(const char *file, int line, uint8_t op, uint32_t psn, uint32_t len);
#define srd_tx(op, psn, len) srd_tx_at(__FILE__, __LINE__, op, psn, len)
/* whatever was sent is not looked at */
void srd_drain(void);

#endif
