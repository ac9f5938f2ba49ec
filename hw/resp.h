/* SPDX-License-Identifier: BSD-2-Clause */
/* What the responder's files share: resp.c (order, SENDs, WRITEs), resp_rdatomic.c and resp_xrc.c. QP locked. */
#ifndef FL_HW_RESP_H
#define FL_HW_RESP_H

#include "hw/hw.h"

enum resp_result {
	RESP_DONE,
	RESP_AGAIN, /* paused: the packet is to be executed again */
	RESP_DROPPED, /* the peer is to send it again */
};

/* psn is that of the packet answered; false: no room, the caller remembers what it owes */
bool resp_send_aeth(struct hca_qp *qp, uint8_t opcode, uint8_t syndrome, uint32_t psn, uint64_t orig);
/* The request cannot be executed: say so, and the QP is in error (9.7.5.2.4, "fatal" NAKs). */
void resp_fatal(struct hca_qp *qp, const struct roce_pkt *pkt, uint8_t syndrome, uint32_t psn,
		enum ibv_wc_status recv_status);
enum resp_result resp_invalid(struct hca_qp *qp, const struct roce_pkt *pkt);
enum resp_result resp_denied(struct hca_qp *qp, const struct roce_pkt *pkt);

/* ---- resp_xrc.c ---- */

/* XRC: it names an SRQ that is not there, or of another domain */
enum resp_result resp_no_srq(struct hca_qp *qp, const struct roce_pkt *pkt);
/* A message begins: the SRQ that it names is in resp.srq. true: answered already. */
bool resp_begin_srq(struct hca_qp *qp, const struct roce_pkt *pkt);
/* The protection domain of memory that a READ or atomic names; false: that of an SRQ that is not to be had. */
bool resp_pkt_pd(const struct hca_qp *qp, const struct roce_pkt *pkt, uint32_t *pd);

/* A page is missing and will come: what becomes of the request, by the fault model. */
enum resp_result resp_faulted(struct hca_qp *qp);

enum resp_result resp_read(struct hca_qp *qp, const struct roce_pkt *pkt);
enum resp_result resp_atomic(struct hca_qp *qp, const struct roce_pkt *pkt);
void resp_read_begin(struct hca_qp *qp, const struct roce_pkt *pkt, uint32_t pd, bool dup);
/* Sends what is left of the response; it ends, finds no room, or pauses for a page. */
void resp_read_run(struct hca_qp *qp);
void resp_atomic_ack(struct hca_qp *qp, uint32_t psn, uint64_t orig);

#endif
