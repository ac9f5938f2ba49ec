/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The congestion window of a reliable connection. Going back to what was lost sends again all that was
 * out behind it, so a window that the path does not bear is paid for twice: more is lost, and more is
 * sent again. The window begins small on a path that leaves the host, doubles each round trip up to a
 * threshold, then grows by a packet each round trip; a loss takes three tenths of it, once for all that
 * was out at that time, and a time-out all but the least.
 *
 * Routers that mark instead of dropping (ECN) are heeded as RoCEv2 has it (annex A17.9): who receives
 * a marked packet answers by a congestion notification packet (CNP), at most one in 50 us, and who gets
 * one treats it as a loss without a retransmission. So a NIC at the other end understands ours, and we
 * its. UC and UD have no window: the standard leaves their rate to the application.
 */
#include <string.h>
#include "hw/hw.h"

#define LEAST	  8  /* enough to find losses by a NAK rather than by the timer */
#define FIRST	  64
#define CNP_EVERY 50000ull /* ns */

void cwnd_init(struct cwnd *w, uint32_t max, bool patient)
{
	*w = (struct cwnd){.now = patient && max > FIRST ? FIRST : max, .max = max, .threshold = max};
}

void cwnd_acked(struct hca_qp *qp, uint32_t npkts)
{
	struct cwnd *w = &qp->req.cwnd;

	if (w->reduced && psn_cmp(qp->req.una, w->until) >= 0)
		w->reduced = false;
	if (w->now >= w->max)
		return;
	if (w->now < w->threshold) {
		w->now += npkts;
	} else {
		w->acked += npkts;
		if (w->acked >= w->now) {
			w->acked = 0;
			w->now++;
		}
	}
	if (w->now > w->max)
		w->now = w->max;
}

static void shrink(struct hca_qp *qp, uint32_t to)
{
	struct cwnd *w = &qp->req.cwnd;
	uint32_t least = LEAST < w->max ? LEAST : w->max;

	w->now = to > least ? to : least;
	w->acked = 0;
	w->reduced = true;
	w->until = qp->req.psn_high;
}

void cwnd_reduce(struct hca_qp *qp)
{
	struct cwnd *w = &qp->req.cwnd;

	if (w->reduced)
		return;
	shrink(qp, w->now - w->now * 3 / 10);
	w->threshold = w->now;
}

void cwnd_lost_tail(struct hca_qp *qp)
{
	struct cwnd *w = &qp->req.cwnd;
	uint32_t half = w->now / 2;

	cwnd_reduce(qp);
	shrink(qp, half);
}

void cwnd_timed_out(struct hca_qp *qp)
{
	struct cwnd *w = &qp->req.cwnd;

	if (!w->reduced)
		w->threshold = w->now / 2 > LEAST ? w->now / 2 : LEAST;
	shrink(qp, 0);
}

static int fill_zero(void *arg, uint8_t *dst, uint32_t off, uint32_t len)
{
	memset(dst, 0, len);
	return 0;
}

void cwnd_marked(struct hca_qp *qp)
{
	struct roce_pkt cnp = {.opcode = ROCE_OPCODE_CNP, .opcode_last = ROCE_OPCODE_CNP, .pkey = 0xffff,
			       .dest_qpn = qp->attr.dest_qp_num, .npkts = 1, .mtu = qp->mtu,
			       .payload_len = ROCE_CNP_PAYLOAD};
	uint64_t now = now_ns();

	cnt_inc(qp->dev->stat, FL_CNT_rx_ecn_marked);
	if (!qp_reliable(qp) || !qp->path || now - qp->req.cwnd.cnp_at < CNP_EVERY)
		return;
	qp->req.cwnd.cnp_at = now;
	/* one that finds no room is not worth keeping: what goes on will be marked again */
	if (!net_xmit(qp->path, &cnp, fill_zero, NULL))
		cnt_inc(qp->dev->stat, FL_CNT_np_cnp_sent);
}
