/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder, of what XRC adds. The target of a domain has neither a receive queue nor a CQ nor a protection
 * domain: each request names an SRQ of the domain (annex A14), and is executed with what that one has. It is
 * looked up when a message begins, and is resp.srq until the message ends, or as long as a receive of it is held.
 */
#include "hw/resp.h"

enum resp_result resp_no_srq(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	uint32_t slot = pkt->srqn >> QP_INDEX_BITS;

	if (slot && slot != net_slot(hca_node->net))
		fl_warn("QP 0x%06x: a message is for SRQ 0x%06x, which is another process's: XRC domains are not shared "
			"between processes here", qp->qpn, pkt->srqn);
	resp_fatal(qp, pkt, AETH_NAK_INVALID_RD_REQ, pkt->psn, IBV_WC_REM_INV_REQ_ERR);
	return RESP_DONE;
}

void resp_srq_gone(struct hca_qp *qp)
{
	struct roce_pkt none = {0};

	/* its receives go without completions, as those that no message has taken do */
	qp->resp.have_wqe = false;
	qp->resp.srq = NULL;
	if (qp->resp.in_msg || qp->faulting[ROLE_RESP])
		resp_fatal(qp, &none, AETH_NAK_INVALID_RD_REQ, qp->resp.psn, IBV_WC_SUCCESS);
}

bool resp_begin_srq(struct hca_qp *qp, const struct roce_pkt *pkt)
{
	struct hca_srq *srq = srq_find(qp, pkt->srqn);

	if (!srq) {
		resp_no_srq(qp, pkt);
		return true;
	}
	/* what asks for another SRQ than it did before its page fault is another request, with a PSN that was used */
	if (qp->resp.have_wqe && qp->resp.srq != srq) {
		resp_invalid(qp, pkt);
		return true;
	}
	qp->resp.srq = srq;
	return false;
}

bool resp_pkt_pd(const struct hca_qp *qp, const struct roce_pkt *pkt, uint32_t *pd)
{
	struct hca_srq *srq;

	*pd = qp->pd;
	if (qp->type != IBV_QPT_XRC_RECV)
		return true;
	srq = srq_find(qp, pkt->srqn);
	if (srq)
		*pd = srq->pd;
	return srq;
}
