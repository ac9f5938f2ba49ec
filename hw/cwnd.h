/* SPDX-License-Identifier: BSD-2-Clause */
/* How many packets a requester may have out: what the path bears, found by trying. cwnd.c tells how. */
#ifndef FL_HW_CWND_H
#define FL_HW_CWND_H

#include <stdbool.h>
#include <stdint.h>

struct cwnd {
	uint32_t now;	    /* packets that may be out */
	uint32_t max;	    /* more than that the peer's buffers cannot take */
	uint32_t threshold; /* below it the window doubles with each round trip */
	uint32_t acked;	    /* since the last step of the additive increase */
	bool reduced;	    /* for what was sent before `until`: that is the same congestion */
	uint32_t until;	    /* PSN */
	uint64_t cnp_at;    /* ns, when we last told the peer of congestion */
};

struct hca_qp;
struct roce_pkt;

/* max: packets; patient: the path may be slower than we are, so begin with few */
void cwnd_init(struct cwnd *w, uint32_t max, bool patient);

/* all with the QP locked */
void cwnd_acked(struct hca_qp *qp, uint32_t npkts);
/* a packet was lost, or the peer says that one met congestion */
void cwnd_reduce(struct hca_qp *qp);
/* the last packets sent were lost: what the path holds is empty by now */
void cwnd_lost_tail(struct hca_qp *qp);
/* nothing was heard for the whole of the ACK timer */
void cwnd_timed_out(struct hca_qp *qp);
/* a packet that met congestion came: the peer is told, now and then */
void cwnd_marked(struct hca_qp *qp);

#endif
