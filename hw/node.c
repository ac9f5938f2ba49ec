/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The HCA's runtime in a process: one, whatever the number of devices, since QPNs and keys are the
 * process's. It is never taken down: threads of the application may be in it until the end.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include "hw/fault_model.h"
#include "hw/hw.h"
#include "hw/ud.h"
#include "util/provoke.h"

struct hca_node *hca_node;

#define LAST_POLLS 512 /* more than a link lets pass between looks at an idle socket */

/*
 * A train from a link is what a peer says it is: that its parts agree is checked here, once, for all
 * who read it.
 */
static bool train_ok(const struct roce_pkt *pkt)
{
	uint64_t full = (uint64_t)pkt->npkts * pkt->mtu;

	if (!(roce_opcode[pkt->opcode].flags & roce_opcode[pkt->opcode_last].flags & ROCE_F_VALID))
		return false;
	if (pkt->npkts == 1)
		return pkt->opcode == pkt->opcode_last;
	return pkt->npkts && pkt->npkts <= (1u << 16) && pkt->mtu >= 256 && pkt->mtu <= 4096 &&
	       (roce_opcode[pkt->opcode].flags & ROCE_F_PAYLOAD) &&
	       (roce_opcode[pkt->opcode_last].flags & ROCE_F_PAYLOAD) &&
	       pkt->payload_len <= full && pkt->payload_len > full - pkt->mtu;
}

/* 9.6.1: the opcode's transport is the QP's; the partition key is the default one, full or limited */
static bool addressed(const struct hca_qp *qp, const struct roce_pkt *pkt)
{
	bool request = roce_opcode[pkt->opcode].flags & ROCE_F_REQ;

	return (pkt->opcode & ROCE_TRANSPORT_MASK) == qp_transport(qp) && (pkt->pkey & 0x7fff) == 0x7fff &&
	       (qp->path || qp->ud) && (request ? qp_responds(qp) : qp_requests(qp));
}

static void qp_rx(struct faultline_device *stat, uint32_t qpn, const struct roce_pkt *pkt)
{
	struct hca_qp *qp = qp_lookup_lock(qpn);

	if (qp && pkt->opcode == ROCE_OPCODE_CNP && qp_reliable(qp) && qp->path) {
		cnt_inc(qp->dev->stat, FL_CNT_rp_cnp_handled);
		cwnd_reduce(qp);
		qp_unlock(qp);
		return;
	}
	if (!qp || !addressed(qp, pkt)) {
		cnt_inc(qp ? qp->dev->stat : stat, FL_CNT_rx_unknown_qp);
		if (qp)
			qp_unlock(qp);
		return;
	}
	cnt_add(qp->dev->stat, FL_CNT_rcvd_pkts, pkt->npkts);
	cnt_add(qp->dev->stat, FL_CNT_rcvd_bytes, pkt->payload_len);
	pf_serves(qp);
	if (pkt->ce)
		cwnd_marked(qp);
	if (qp->srd)
		srd_rx(qp, pkt);
	else if (qp->ud)
		ud_rx(qp, pkt);
	else if (roce_opcode[pkt->opcode].flags & ROCE_F_REQ)
		resp_rx(qp, pkt);
	else
		comp_rx(qp, pkt);
	qp_unlock(qp);
}

void node_rx(void *ctx, const struct roce_pkt *pkt)
{
	struct hca_node *node = ctx;
	struct faultline_device *stat = &node->seg->s->device[0];
	uint32_t member[HCA_MCAST_QPS];
	unsigned n, i;

	if (!train_ok(pkt)) {
		cnt_inc(stat, FL_CNT_rx_malformed);
		return;
	}
	if (pkt->dest_qpn != ROCE_QPN_MULTICAST) {
		qp_rx(stat, pkt->dest_qpn, pkt);
		return;
	}
	n = mcast_members(pkt, member);
	if (!n)
		cnt_inc(stat, FL_CNT_rx_unknown_qp);
	for (i = 0; i < n; i++)
		qp_rx(stat, member[i], pkt);
}

static void node_tx_ready(void *ctx, uint32_t qpn)
{
	struct hca_qp *qp = qp_lookup_lock(qpn);

	if (!qp)
		return;
	resp_resume(qp);
	req_run(qp);
	qp_unlock(qp);
	engine_flush_acks();
}

static void node_kick(void *ctx)
{
	engine_kick();
}

static bool node_peer_joined(void *ctx, uint32_t slot, int sock)
{
	return dma_peer_joined(slot, sock);
}

static void node_peer_left(void *ctx, uint32_t slot, int sock)
{
	dma_peer_left(slot, sock);
}

static const struct net_ops node_net_ops = {
	.rx = node_rx,
	.tx_ready = node_tx_ready,
	.kick = node_kick,
	.peer_joined = node_peer_joined,
	.peer_left = node_peer_left,
};

int hca_node_start(const struct fl_config *cfg, struct seg *seg)
{
	struct hca_node *node = calloc(1, sizeof(*node));
	struct provoke p;
	int rc;

	if (!node)
		return -ENOMEM;
	node->cfg = cfg;
	node->seg = seg;
	node->timers.wake_at = UINT64_MAX;
	fl_mutex_init(&node->qps.lock, LOCK_CORE);
	fl_mutex_init(&node->srqs.lock, LOCK_CORE);
	fl_mutex_init(&node->timers.lock, LOCK_TIMER);
	fl_mutex_init(&node->mcast.lock, LOCK_LEAF);
	if (!provoke_parse(cfg->provoke, &p))
		provoke_set(&p);
	fault_model_init(cfg);
	rc = mr_table_init(seg->s->mr_entries);
	if (!rc)
		rc = net_open(cfg, seg, &seg->s->device[0], &node_net_ops, node, &node->net);
	if (rc) {
		free(node);
		return rc;
	}
	hca_node = node;
	return 0;
}

void hca_node_fork_begin(void)
{
	net_fork_begin(hca_node->net);
}

void hca_node_fork_end(void)
{
	net_fork_end(hca_node->net);
}

/* The parent's node is left where it is: objects of the parent point to it, and to be told apart. */
void hca_node_fork_child(void)
{
	struct hca_node *node = hca_node;

	hca_node = NULL;
	if (!node)
		return;
	net_fork_child(node->net);
	engine_fork_child(node);
	pf_fork_child();
	ah_fork_child();
}

/*
 * A process that ends with ACKs still to be sent would look to its peers like one that was killed. And
 * what came to its socket for others of the host (udp.c) goes on to them.
 */
__attribute__((destructor)) static void last_acks(void)
{
	struct hca_node *node = hca_node;
	struct hca_qp *qp;
	uint32_t i;

	if (!node || fl_locks_held)
		return; /* exit() in a signal handler, on top of one of our functions */
	for (i = 0; i < QP_MAX; i++) {
		qp = (struct hca_qp *)number_get(&node->qps, i);
		if (!qp || !fl_trylock(&qp->lock))
			continue;
		resp_send_ack(qp);
		fl_unlock(&qp->lock);
	}
	net_flush(node->net);
	for (i = 0; i < LAST_POLLS; i++) {
		if (net_poll(node->net, LAST_POLLS))
			engine_flush_acks();
		else if (i % 64 == 0)
			sched_yield(); /* the engine may be amid a packet */
	}
}

int hca_dev_create(const struct hca_profile *profile, struct faultline_device *stat, uint32_t index,
		   struct hca_dev **dev)
{
	struct hca_dev *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->node = hca_node;
	d->profile = profile;
	d->stat = stat;
	d->index = index;
	*dev = d;
	return 0;
}
