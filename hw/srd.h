/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SRD, the scalable reliable datagram of Amazon's EFA: one QP sends to many, each work request says to whom,
 * each arrives once or is told to have failed, in no order. What Amazon has on the wire is not published.
 * Here it is a protocol of our own in the headers and opcodes that InfiniBand has for its reliable datagram
 * (9.8.3 and the RD opcodes of table 38), which no NIC ever made:
 *
 * A *flow* is what one QP sends to one other. It has a number (RDETH) that its process does not use again,
 * and PSNs of its own that begin with 0; there is no connection to set up. Each request is one packet that
 * says all of what is to be done (a long WRITE is many, each with a RETH) and takes a PSN; a READ takes those
 * of its response. The responder keeps for each flow (a *source*, to it) which PSNs it has had, as many as the
 * window holds, and executes each once, whatever comes first.
 *
 *   ACKNOWLEDGE	PSN was executed, and all before MSN were had. SE: the packet met congestion.
 *   " with RNR	no receive was there
 *   " with a NAK	why it cannot be executed; it may be tried again. UNKNOWN_FLOW: nothing of this flow can.
 *   RESYNC		the requester gives this PSN up: the responder counts it as had
 *   READ REQUEST	the top three bits of the length are the enum ibv_mtu by which PSNs are counted
 *
 * What is not answered is sent again, one by one; what was not for SRD_PATIENCE_NS has failed.
 */
#ifndef FL_HW_SRD_H
#define FL_HW_SRD_H

#include "hw/hw.h"

#define SRD_WINDOW	256u /* PSNs of a flow that may be out, or that a source tells apart */
#define SRD_PATIENCE_NS 5000000000ull
#define SRD_IDLE_NS	30000000000ull	/* a flow that was not used for so long begins anew; */
#define SRD_FORGET_NS	90000000000ull	/* so a source that was not for so long is of no flow any more */
#define SRD_FLOWS_MAX	4096
#define SRD_BUCKETS	256
#define SRD_READ_PKTS	32u /* of one request */
#define SRD_READS	SRD_WINDOW /* requests of a source that wait */
#define SRD_KEPT_BYTES	(256u << 10)
#define SRD_MTU_SHIFT	29
#define SRD_LEN_MASK	((1u << SRD_MTU_SHIFT) - 1)

/* AETH_NAK_INVALID_RD_REQ (9.7.5.2.4): the Q_Key is not the QP's */
#define AETH_NAK_UNKNOWN_FLOW 0x65 /* of ours */

/* What became of a work request, by the numbers of EFA (efa_io_defs.h of rdma-core), which are vendor_err */
enum srd_status {
	SRD_OK = 0,
	SRD_FLUSHED = 1,
	SRD_INVALID_AH = 4,
	SRD_INVALID_LKEY = 5,
	SRD_LOCAL_BAD_LENGTH = 6,
	SRD_BAD_ADDRESS = 7,
	SRD_ABORT = 8,
	SRD_BAD_DEST_QPN = 9,
	SRD_RNR = 10,
	SRD_BAD_LENGTH = 11,
	SRD_BAD_STATUS = 12,
	SRD_UNRESP_REMOTE = 13, /* it was heard before */
	SRD_UNREACH_REMOTE = 15,
};

static inline uint32_t srd_mtu_code(uint32_t mtu)
{
	return __builtin_ctz(mtu) - 7;
}

static inline void srd_move_to_end(struct cds_list_head *node, struct cds_list_head *list)
{
	cds_list_del(node);
	cds_list_add_tail(node, list);
}

/* ---- requester ---- */

enum srd_pkt_state { SRD_PKT_DONE, SRD_PKT_OUT, SRD_PKT_LOST, SRD_PKT_RNR };

/* a PSN that is out: what is to be sent again */
struct srd_pkt {
	uint8_t state;
	bool read;    /* what is awaited is a part of a READ's response */
	bool again;   /* it was sent more than once */
	uint32_t slot; /* of its work request; SRD_NO_SLOT: given up, what goes is a RESYNC */
	uint32_t off, len;
	uint32_t order; /* of sending, within the flow */
	uint64_t first_at, sent_at;
	uint64_t due; /* RNR: not before */
};
#define SRD_NO_SLOT UINT32_MAX

struct srd_flow {
	struct cds_list_head by_dest, by_number, active, lru; /* active: linked while something is to be done */
	struct net_path *path;
	uint32_t dest_qpn, number;
	uint32_t una, psn;
	struct cds_list_head todo, sent; /* work requests: not all sent; all sent */
	struct srd_pkt out[SRD_WINDOW];
	uint32_t in_flight, lost; /* packets in these states */
	uint32_t order;
	/* congestion: as TCP has it (RFC 5681, 6298) */
	uint32_t window, threshold, acked, recover;
	bool loses; /* the path may lose packets */
	uint64_t srtt, var;
	uint32_t backoff;
	uint64_t progress_at, used_at;
	uint64_t heard_at; /* 0: never */
	uint64_t next_rnr; /* when the first that waits for a receive goes again; 0: none does */
	bool is_active;
};

/* beside the send WQE of the same slot */
struct srd_wqe {
	struct cds_list_head node; /* free, or of its flow */
	uint32_t qkey;
	uint32_t out; /* PSNs that are */
	uint32_t rnrs;
};

static inline struct srd_pkt *srd_pkt_at(struct srd_flow *f, uint32_t psn)
{
	return &f->out[psn % SRD_WINDOW];
}

static inline uint32_t srd_psns_out(const struct srd_flow *f)
{
	return (f->psn - f->una) & ROCE_PSN_MASK;
}

static inline bool srd_is_out(const struct srd_flow *f, uint32_t psn)
{
	return ((psn - f->una) & ROCE_PSN_MASK) < srd_psns_out(f);
}

static inline void srd_set_state(struct srd_flow *f, struct srd_pkt *p, enum srd_pkt_state state)
{
	f->in_flight += (state == SRD_PKT_OUT) - (p->state == SRD_PKT_OUT);
	f->lost += (state == SRD_PKT_LOST) - (p->state == SRD_PKT_LOST);
	p->state = state;
}

/* ---- responder ---- */

struct srd_read {
	uint64_t va;
	uint32_t rkey, len, off, psn, mtu;
};

struct srd_source {
	struct cds_list_head hash, lru, acks, reading; /* the last two: linked while there is something */
	uint32_t qpn, number;
	struct net_path_attr back; /* the way to it: with its address, by which it is found */
	struct net_path *path; /* NULL: being opened */
	struct pkt_queue kept;	/* until it is */
	uint32_t base;		/* all before were had */
	uint64_t had[SRD_WINDOW / 64];
	bool ack_owed, ce;
	uint32_t ack_psn;
	struct srd_read *read; /* a ring of SRD_READS; NULL: there was none yet */
	uint32_t read_head, read_tail;
	bool is_reading;
	uint64_t used_at;
	uint16_t ahn; /* of our address handle for it; good while ahn_version is the table's */
	uint32_t ahn_version;
};

struct hca_srd {
	struct srd_wqe *wqe; /* as many as there are send WQEs */
	struct cds_list_head free;
	uint32_t started; /* work requests of which something was sent */
	struct cds_list_head by_dest[SRD_BUCKETS], by_number[SRD_BUCKETS];
	struct cds_list_head active, flows; /* flows: least recently used first */
	uint32_t num_flows;
	struct cds_list_head sources[SRD_BUCKETS], lru, acks, reading;
	uint32_t num_sources;
};

/* all with the QP locked, but where said */

/* srd.c */
/* The work request ends; its slot is free. It has no PSN out. */
void srd_complete(struct hca_qp *qp, uint32_t slot, enum srd_status status);
static inline uint32_t srd_slot(const struct hca_qp *qp, const struct srd_wqe *w)
{
	return w - qp->srd->wqe;
}

/* srd_req.c */
/* NULL: no memory */
struct srd_flow *srd_flow_get(struct hca_qp *qp, struct net_path *path, uint32_t dest_qpn);
void srd_flow_add(struct hca_qp *qp, struct srd_flow *f, uint32_t slot);
void srd_flow_run(struct hca_qp *qp, struct srd_flow *f);
void srd_flow_free(struct hca_qp *qp, struct srd_flow *f);
/* all its work requests end so, and the flow with them */
void srd_flow_fail(struct hca_qp *qp, struct srd_flow *f, enum srd_status status);
/* it ends in error: what of it is out is given up */
void srd_fail_slot(struct hca_qp *qp, struct srd_flow *f, uint32_t slot, enum srd_status status);

/* srd_comp.c */
void srd_answer(struct hca_qp *qp, const struct roce_pkt *pkt);
/* What was sent as the order'th is lost, or met congestion: once for all that was sent before the last time. */
void srd_shrink_window(struct srd_flow *f, uint32_t order, uint32_t to);

/* srd_resp.c */
void srd_request(struct hca_qp *qp, const struct roce_pkt *pkt);
/* tells the peers, forgets all */
void srd_sources_free(struct hca_qp *qp);

#endif
