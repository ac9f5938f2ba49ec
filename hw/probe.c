/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A responder NAKs a gap when a packet behind it comes. Where the last packets of a burst are lost, or what
 * was sent again is, none does, and only the ACK timer is left, which programs set to 67 ms and more. So the
 * requester measures the round trip, and when packets are out and nothing has moved for some of these, it goes
 * back to the oldest packet and sends it alone, as a probe. What comes back tells: the acknowledgement of just
 * this packet, so it was lost, and most likely all behind it; of more, so nothing was lost, the answer was late
 * or lost, and sending goes on where it was; that the peer lives, no more, so it is paused for a page fault.
 *
 * A peer is not worn down: a probe is one packet, the next comes after twice the time, and after a few, or
 * once the peer said that it lives, there are none until una moves. They leave the retries and the ACK timer
 * alone. A look is lazy as all timers here, every period while packets are out, so a loss is noticed
 * after one period, or two; with nothing out nobody looks.
 */
#include "hw/fault_model.h"
#include "hw/hw.h"

#define PROBES	  5
#define LEAST_NS  1000000ull  /* threads of the peer's may well need that to be scheduled */
#define FIRST_NS  10000000ull /* nothing was measured yet */

void probe_init(struct probe *p, bool on)
{
	*p = (struct probe){.on = on};
}

/* the smoothed round trip and four times its mean deviation, as TCP has it (RFC 6298) */
static uint64_t period(const struct probe *p)
{
	uint64_t ns = p->srtt + 4 * p->var;

	if (!p->srtt)
		return FIRST_NS;
	return ns > LEAST_NS ? ns : LEAST_NS;
}

static void measured(struct probe *p, uint64_t ns)
{
	uint64_t off = ns > p->srtt ? ns - p->srtt : p->srtt - ns;

	if (!p->srtt) {
		p->srtt = ns;
		p->var = ns / 2;
		return;
	}
	p->var = (3 * p->var + off) / 4;
	p->srtt = (7 * p->srtt + ns) / 8;
}

static void look_later(struct hca_qp *qp, uint64_t now)
{
	struct probe *p = &qp->req.probe;

	p->look_at = now + (period(p) << p->count);
	timer_arm(qp, p->look_at);
}

void probe_sent(struct hca_qp *qp, bool after_silence)
{
	struct probe *p = &qp->req.probe;
	uint64_t now;

	if (!p->on)
		return;
	p->moved |= after_silence;
	if (p->look_at && p->timed_at)
		return;
	now = now_ns();
	/* what is sent a second time is not timed: which of the two is answered cannot be told */
	if (!p->timed_at && qp->req.psn == qp->req.psn_high) {
		p->timed_at = now;
		p->timed_psn = qp->req.psn;
	}
	if (!p->look_at && p->count < PROBES)
		look_later(qp, now);
}

void probe_acked(struct hca_qp *qp)
{
	struct probe *p = &qp->req.probe;

	if (!p->on)
		return;
	p->moved = true;
	p->count = 0;
	if (p->timed_at && psn_cmp(qp->req.una, p->timed_psn) >= 0) {
		measured(p, now_ns() - p->timed_at);
		p->timed_at = 0;
	}
}

void probe_answered(struct hca_qp *qp)
{
	struct probe *p = &qp->req.probe;
	uint32_t npkts = (qp->req.una - p->psn) & ROCE_PSN_MASK;

	if (!p->out || !npkts)
		return;
	p->out = false;
	if (npkts == 1)
		cwnd_lost_tail(qp);
}

void probe_alive(struct hca_qp *qp)
{
	if (qp->req.probe.out)
		qp->req.probe.count = PROBES;
}

void probe_void(struct hca_qp *qp)
{
	qp->req.probe.out = false;
	qp->req.probe.timed_at = 0;
}

/* Only a loss makes it worth asking. What waits for something of ours, or for the time the peer asked for, does not. */
static bool waits(struct hca_qp *qp)
{
	return qp->req.rnr_wait || qp->req.ask_again_at || qp->req.local_error || qp->req.blocked ||
	       qp->faulting[ROLE_REQ] || qp->faulting[ROLE_COMP] || !cds_list_empty(&qp->answers.list);
}

static void probe(struct hca_qp *qp)
{
	struct probe *p = &qp->req.probe;
	bool progress = qp->req.progress;
	uint64_t ack_at = qp->req.ack_at;

	p->count++;
	cnt_inc(qp->dev->stat, FL_CNT_probes);
	req_go_back(qp, qp->req.una);
	p->out = true;
	p->psn = qp->req.una;
	qp->req.seq_nak_taken = false;
	req_run(qp);
	p->moved = false;
	qp->req.progress = progress; /* to the ACK timer it was not sent */
	qp->req.ack_at = ack_at;
}

void probe_timer(struct hca_qp *qp, uint64_t now)
{
	struct probe *p = &qp->req.probe;

	if (!p->look_at)
		return;
	if (now < p->look_at) {
		timer_arm(qp, p->look_at);
		return;
	}
	p->look_at = 0;
	if (qp->req.una == qp->req.psn && !p->out)
		return;
	if (!p->moved && !waits(qp)) {
		if (p->count == PROBES)
			return;
		probe(qp);
	}
	p->moved = false;
	if (qp->state != IBV_QPS_ERR)
		look_later(qp, now);
}
