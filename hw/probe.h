/* SPDX-License-Identifier: BSD-2-Clause */
/* Losses that no NAK tells of, found long before the ACK timer would. probe.c tells how. */
#ifndef FL_HW_PROBE_H
#define FL_HW_PROBE_H

#include <stdbool.h>
#include <stdint.h>

struct probe {
	bool on;	   /* the path may lose packets */
	bool moved;	   /* something was acknowledged, or sent after silence, since the last look */
	bool out;	   /* the oldest packet was sent again, alone, and nothing was heard since */
	uint8_t count;	   /* probes since una moved */
	uint32_t psn;	   /* of the one that is out */
	uint64_t look_at;  /* ns; 0: nothing is out, or no more probes are left */
	uint64_t timed_at; /* ns, when what ends before timed_psn was sent; 0: nothing is being timed */
	uint32_t timed_psn;
	uint64_t srtt, var; /* ns, of the round trip; 0: none was measured */
};

struct hca_qp;

/* all with the QP locked */
void probe_init(struct probe *p, bool on);
/* a train is on its way; after_silence: nothing else is */
void probe_sent(struct hca_qp *qp, bool after_silence);
/* una has moved */
void probe_acked(struct hca_qp *qp);
/* all that an answer says has been taken from it */
void probe_answered(struct hca_qp *qp);
/* it says that the peer lives, and nothing else */
void probe_alive(struct hca_qp *qp);
/* sending goes back for another reason: no probe is out, nothing is being timed */
void probe_void(struct hca_qp *qp);
/* looks, and arms the timer for the next look */
void probe_timer(struct hca_qp *qp, uint64_t now);

#endif
