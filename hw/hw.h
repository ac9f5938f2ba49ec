/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The HCA from inside: what its files share. Outside this room see hca.h.
 *
 * A QP is one struct under one lock (LOCK_QP); its receive queue has its own (LOCK_RQ), so that
 * posting receives does not wait for a copy. Three roles work on it, a file each:
 *   req.c   requester: turns send WQEs (post.c) into request packets
 *   resp.c  responder: executes requests from the peer, answers
 *   comp.c  completer: takes the answers, retires send WQEs
 * and ud.c requester and responder of the transport that has no connection, srd.c and its like those of
 * the one that needs none to be reliable. Keys are mr.h's.
 * Each can pause, and only it: for room on the link, for a page fault (pf.c), for an RNR timer.
 *
 * QPs and MRs live in type-stable memory: what an index had once stays a struct of that kind for the
 * life of the process, so a stale pointer can always be locked (QP) or read (MR) and then be seen
 * to be stale by its number. Nothing on the data path needs a grace period for that.
 */
#ifndef FL_HW_HW_H
#define FL_HW_HW_H

#include <stdatomic.h>
#include <urcu/list.h>
#include "hw/cwnd.h"
#include "hw/hca.h"
#include "hw/mr.h"
#include "hw/probe.h"
#include "util/clock.h"
#include "util/lock.h"
#include "util/log.h"

#define QP_INDEX_BITS FAULTLINE_QPN_SLOT_SHIFT
#define QP_MAX	      (1u << QP_INDEX_BITS)
#define QP_FIRST      17 /* 0 and 1 are special on every NIC; small numbers confuse readers */

/* Unacknowledged packets a requester may have out: bounds what a paused responder must keep. */
#define REQ_WINDOW_BYTES (1u << 20)
#define RESP_BACKLOG_BYTES (8u << 20)

#define GRH_BYTES 40 /* before a datagram's data */

/* ---- numbers.c ---- */

/* first member of what has a number */
struct numbered {
	uint32_t index;
	bool claimed; /* under the table's lock */
};

struct numbers {
	struct fl_mutex lock; /* LOCK_CORE: handing them out */
	uint32_t next;
	struct numbered *_Atomic v[QP_MAX];
};

/* NULL: all are in use, or no memory. Of a new object init() makes what stays, such as its lock. */
struct numbered *number_claim(struct numbers *t, size_t size, void (*init)(struct numbered *));
void number_release(struct numbers *t, struct numbered *n);
/* What a number's index has, or had: the caller looks whether it is still that number's. NULL: never any. */
static inline struct numbered *number_get(const struct numbers *t, uint32_t number)
{
	/* pairs with the store in number_claim() */
	return atomic_load_explicit(&t->v[number & (QP_MAX - 1)], memory_order_seq_cst);
}

struct hca_timer_heap {
	struct fl_mutex lock;
	struct hca_qp *v[QP_MAX + 1]; /* from 1 on */
	uint32_t n;
	uint64_t wake_at; /* when the engine will look by itself */
};

struct hca_node {
	const struct fl_config *cfg;
	struct seg *seg;
	struct net *net;
	struct numbers qps, srqs;
	struct hca_timer_heap timers;
	struct hca_engine *_Atomic engine; /* NULL until the first QP */
	struct hca_mcast {
		struct fl_mutex lock; /* LOCK_LEAF: all of it */
		struct mcast_member {
			uint8_t gid[16];
			uint32_t qpn;
		} *v;
		unsigned n, room;
	} mcast;
};

/* The one runtime; NULL before the first open and in a fork's child until it opens a device itself. */
extern struct hca_node *hca_node;

struct hca_dev {
	const struct hca_node *node;
	const struct hca_profile *profile;
	struct faultline_device *stat;
	uint32_t index;
};

static inline bool hca_dev_alive(const struct hca_dev *dev)
{
	return dev->node == hca_node;
}

/* queues have a power of two of places, so that counters that wrap keep their order in them */
static inline uint32_t pow2_at_least(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

/* ---- cq.c ---- */

struct hca_cq {
	struct fl_mutex lock;
	struct hca_dev *dev;
	void *uobject;
	struct hca_cqe *ring;
	uint32_t depth, mask;
	bool overflowed; /* and said so */
	_Atomic uint32_t head, tail; /* head: next to poll; written under the lock, read without */
	enum { CQ_NOT_ARMED, CQ_ARMED_SOLICITED, CQ_ARMED } armed;
	bool timestamps;
};

extern struct hca_event_ops hca_event_ops;

void hca_cq_push(struct hca_cq *cq, const struct ibv_wc *wc, bool solicited);
/* the same, of a receive, with who sent it */
void hca_cq_push_from(struct hca_cq *cq, const struct ibv_wc *wc, bool solicited, const uint8_t sgid[16]);
void hca_cq_clean(struct hca_cq *cq, uint32_t qpn);

/* ---- rq.c ---- */

struct recv_wqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint64_t length;
	struct ibv_sge sge[];
};

/* a receive queue, of a QP or shared */
struct hca_rq {
	struct fl_mutex lock;
	char *wqes;
	uint32_t stride, depth, mask, max_sge;
	uint32_t head, tail; /* tail: next to post */
};

struct hca_srq {
	struct numbered n;
	_Atomic uint32_t srqn; /* 0: not in use. Of XRC's: read by QPs that name it, under LOCK_QP */
	struct hca_dev *dev;
	void *uobject;
	uint32_t pd;
	struct hca_rq rq;
	uint32_t limit;
	struct hca_cq *cq; /* of XRC's; NULL: it is none */
	uint32_t xrcd;
};

int rq_init(struct hca_rq *rq, uint32_t depth, uint32_t max_sge);
void rq_destroy(struct hca_rq *rq);
/* the same but for the lock, which stays */
int rq_alloc(struct hca_rq *rq, uint32_t depth, uint32_t max_sge);
void rq_free(struct hca_rq *rq);
/* takes the oldest into *wqe (room for max_sge SGEs): 0 or -ENOENT; *left what remains */
int rq_take(struct hca_rq *rq, struct recv_wqe *wqe, uint32_t *left);
int rq_post(struct hca_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/*
 * The receive that is in resp.wqe completes: whose, where, and of a success what its packet carries for it; *wc has
 * the rest. sgid: who sent it, or NULL. QP locked.
 */
void recv_complete(struct hca_qp *qp, struct hca_cq *cq, struct ibv_wc *wc, const struct roce_pkt *pkt,
		   bool solicited, const uint8_t *sgid);

/* ---- srq.c ---- */

void srq_taken(struct hca_srq *srq, uint32_t left);
/*
 * The SRQ of this number, if it is one of the QP's XRC domain; NULL: it is not. Good while the QP stays locked,
 * and after that while it is in resp.srq: who destroys it takes it out of there. QP locked.
 */
struct hca_srq *srq_find(const struct hca_qp *qp, uint32_t srqn);

/* ---- qp.c ---- */

struct send_wqe {
	uint64_t wr_id;
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t num_sge;
	bool signaled, fence, solicited, inline_data;
	bool started; /* has its PSNs */
	__be32 imm;
	uint32_t srqn; /* XRC: where it goes */
	union {
		uint32_t rkey;
		uint32_t qkey; /* UD */
	};
	union {
		uint64_t remote_addr;
		struct net_path *path; /* UD; NULL: the address handle is of another PD */
	};
	union {
		uint64_t compare_add;
		uint32_t dest_qpn; /* UD */
	};
	uint64_t swap;
	uint32_t length;
	uint32_t first_psn, last_psn;
	uint32_t sent;	/* bytes handed to the link, or, READ: asked for */
	uint32_t acked; /* READ: bytes received */
	uint32_t asked_bytes; /* READ: the most it ever asked for */
	bool done;	/* everything is sent; READ: asked for */
	bool dammed;	/* it counts as sent and never is: fault_model.h */
	bool asked;	/* READ, atomic: counts among those the peer holds resources for */
	union {
		struct ibv_sge sge[0];
		uint8_t data[0];
	};
};

/* a request kept while the responder is paused, or a response while the completer is */
struct kept_pkt {
	struct cds_list_head node;
	struct roce_pkt pkt;
	uint8_t payload[]; /* and the GRH behind it, of a datagram */
};

struct pkt_queue {
	struct cds_list_head list;
	uint64_t bytes;
	uint32_t next_psn; /* what follows the last one kept */
};

/* a role that waits for a page fault, in a list of pf_queue.c; written under LOCK_QP and LOCK_PF_QUEUE */
struct pf_wait {
	struct cds_list_head node;
	bool listed;
	struct hca_qp *qp;
	uint8_t role;
	uint32_t generation;
	uint32_t key;
	uint64_t since, addr, len;
};

enum qp_role { ROLE_REQ, ROLE_RESP, ROLE_COMP, ROLE_NUM };

struct saved_atomic {
	bool valid;
	uint32_t psn;
	uint64_t orig;
};

struct hca_qp {
	struct numbered n;
	struct fl_mutex lock;
	uint32_t qpn; /* 0: not in use */
	uint32_t generation; /* moves when what was under way is void: RESET, ERR, destroyed */
	struct hca_dev *dev;
	enum ibv_qp_type type;
	uint32_t pd;
	struct hca_cq *send_cq, *recv_cq;
	struct hca_srq *srq;
	uint32_t xrcd; /* XRC target: its domain */
	struct hca_rq rq;
	struct cds_list_head opens; /* struct hca_qp_open: who is told of its events */
	struct ibv_qp_cap cap;
	bool sq_sig_all;
	_Atomic(enum ibv_qp_state) state; /* changed under the lock; posting reads it without */
	struct ibv_qp_attr attr;
	struct net_path *path;
	struct ud_paths *ud; /* UD, SRD: in place of the one path */
	struct hca_srd *srd; /* SRD, which is IBV_QPT_DRIVER */
	uint32_t port_mtu;
	uint32_t mtu;

	/* send queue: counters that wrap; tail <= send <= head */
	char *sq;
	uint32_t sq_stride, sq_depth, sq_mask;
	uint32_t sq_head; /* next to post */
	uint32_t sq_send; /* next to send, or to go on sending */
	uint32_t sq_tail; /* oldest not retired */

	struct {
		uint32_t psn;	   /* of the next packet */
		uint32_t psn_high; /* one past the highest ever sent */
		uint32_t una;	   /* oldest unacknowledged */
		struct cwnd cwnd;
		struct probe probe;
		uint32_t rd_atomic; /* READs and atomics out */
		uint32_t retry_left, rnr_left;
		bool blocked;	    /* the link had no room */
		bool rnr_wait;
		uint64_t ask_again_at; /* an answer was dropped for a fault; 0: none */
		uint64_t ack_at;       /* when the ACK timer is to look */
		bool heard_alive, heard_gap, heard_rnr; /* from the peer, since una moved */
		uint32_t heard_gap_psn;
		bool progress; /* since the timer last looked */
		bool seq_nak_taken; /* went back for this gap already; until una moves */
		uint64_t rnr_deadline;
		bool local_error; /* of the WQE at sq_send: told when those before it are done */
		bool drained_said;
	} req;

	struct {
		uint32_t psn; /* expected */
		uint32_t msn;
		bool in_msg;
		uint32_t msg_kind; /* ROCE_F_SEND or ROCE_F_WRITE */
		struct hca_srq *srq; /* XRC: that of the message, or of the receive WQE that is held; else NULL */
		uint64_t va;
		uint32_t rkey;
		uint64_t offset;    /* bytes of the message so far */
		uint64_t remaining; /* WRITE: bytes to come */
		bool have_wqe;
		struct recv_wqe *wqe;
		bool nak_sent;
		uint8_t fault_rnrs; /* RNR NAKs for the fault it is paused for */
		bool ack_pending;
		bool ack_queued; /* on a thread's list of QPs that owe an ACK */
		bool blocked;
		bool comm_est;
		/* the answer that is on its way: a READ, or one that found no room */
		struct {
			bool active, dup;
			uint64_t va;
			uint32_t pd, rkey, len, off, psn;
		} read;
		bool atomic_owed; /* an atomic's answer found no room */
		uint64_t atomic_orig;
		uint32_t atomic_psn;
		bool nak_owed;
		uint8_t nak_syndrome;
		uint32_t nak_psn;
		struct saved_atomic *atomics;
		uint32_t num_atomics, next_atomic;
	} resp;

	struct pkt_queue backlog; /* requests, while the responder is paused */
	struct pkt_queue answers; /* responses, while the completer is */
	uint32_t num_saved_max; /* room for atomics' results */
	bool faulting[ROLE_NUM];
	struct pf_wait pf_wait[ROLE_NUM]; /* good while faulting */
	bool stuck_told[ROLE_NUM];
	uint64_t fault_last; /* now_ns(), of the responder */
	uint32_t fault_burst; /* faults in a row */
	uint32_t fault_turns, fault_alone; /* no other QP had a turn since so many faults */
	/* what a worker could not resolve: an access there for as much or more is denied, until one succeeds */
	struct {
		uint32_t key;
		uint64_t addr, len;
	} failed[ROLE_NUM];
	uint32_t force_tries[ROLE_NUM];

	struct { /* direct.c */
		bool published; /* in the segment: the peer may place at ours */
		bool usable;	/* we may at the peer's */
		uint32_t slow_acks; /* in a row */
		uint32_t since_packet;
		uint64_t idle_sent, last;
	} direct;

	uint64_t deadline; /* when the timer is to look; 0: never */
	bool watched; /* it looks for the watchdog of faults, too, and perhaps for nothing else */
	uint64_t heap_deadline;
	uint32_t heap_pos; /* 0: not in the heap */
	struct hca_qp *ack_next;
};

static inline struct send_wqe *sq_wqe(const struct hca_qp *qp, uint32_t i)
{
	return (struct send_wqe *)(qp->sq + (size_t)(i & qp->sq_mask) * qp->sq_stride);
}

static inline bool wqe_is_read(const struct send_wqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ;
}

static inline bool wqe_is_atomic(const struct send_wqe *w)
{
	return w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* the transport's part of an opcode */
static inline uint8_t qp_transport(const struct hca_qp *qp)
{
	switch (qp->type) {
	case IBV_QPT_UC:
		return IBV_OPCODE_UC;
	case IBV_QPT_UD:
		return IBV_OPCODE_UD;
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
		return IBV_OPCODE_XRC;
	case IBV_QPT_DRIVER:
		return IBV_OPCODE_RD;
	default:
		return IBV_OPCODE_RC;
	}
}

/* Its packets are acknowledged, in their order. XRC is the reliable connection, cut into a QP that asks and one that answers. */
static inline bool qp_reliable(const struct hca_qp *qp)
{
	return qp->type != IBV_QPT_UC && qp->type != IBV_QPT_UD && qp->type != IBV_QPT_DRIVER;
}

/* Does it execute requests, and does it send any? */
static inline bool qp_responds(const struct hca_qp *qp)
{
	return qp->type != IBV_QPT_XRC_SEND;
}

static inline bool qp_requests(const struct hca_qp *qp)
{
	return qp->type != IBV_QPT_XRC_RECV;
}

/* where receives of the message at hand come from, where they complete, and what memory it may name */
static inline struct hca_srq *resp_srq(const struct hca_qp *qp)
{
	return qp->type == IBV_QPT_XRC_RECV ? qp->resp.srq : qp->srq;
}

static inline struct hca_cq *resp_cq(const struct hca_qp *qp)
{
	return qp->type == IBV_QPT_XRC_RECV ? qp->resp.srq->cq : qp->recv_cq;
}

static inline uint32_t resp_pd(const struct hca_qp *qp)
{
	return qp->type == IBV_QPT_XRC_RECV ? qp->resp.srq->pd : qp->pd;
}

/* Finds and locks; NULL: no such QP. */
struct hca_qp *qp_lookup_lock(uint32_t qpn);
void qp_unlock(struct hca_qp *qp);
/* to ERR: wqe (or none) completes with status, the rest is flushed. Locked. */
void qp_error(struct hca_qp *qp, enum ibv_wc_status status, uint32_t vendor_err);
void qp_flush(struct hca_qp *qp);
void qp_reset(struct hca_qp *qp);
void qp_event(struct hca_qp *qp, enum ibv_event_type event);
void pkt_queue_init(struct pkt_queue *q);
void pkt_queue_clear(struct pkt_queue *q);
bool pkt_queue_add(struct pkt_queue *q, const struct roce_pkt *pkt, bool front);
struct kept_pkt *pkt_queue_take(struct pkt_queue *q);
void pkt_queue_put_back(struct pkt_queue *q, struct kept_pkt *k);
void pkt_trim(struct roce_pkt *pkt, uint32_t n);

/* ---- post.c ---- */

/* SGEs, or inline data as w says */
void send_wqe_fill_data(struct send_wqe *w, const struct ibv_send_wr *wr);

/* ---- req.c, comp.c, resp.c: all with the QP locked ---- */

/* the argument of req_fill_from_wqe(), which copies a send WQE's data to a link */
struct req_fill {
	struct hca_qp *qp;
	struct send_wqe *wqe;
	struct mr_miss miss;
};
int req_fill_from_wqe(void *arg, uint8_t *dst, uint32_t off, uint32_t len);
void req_run(struct hca_qp *qp);
/* the send WQE that psn is in becomes the next to send, from psn on */
void req_go_back(struct hca_qp *qp, uint32_t psn);
void req_timer(struct hca_qp *qp, uint64_t now);
/* RETRY_EXC_ERR, with the reason */
void req_give_up(struct hca_qp *qp);
void req_undam(struct hca_qp *qp);
/* SQD: says SQ_DRAINED once what was begun is complete */
void req_check_drained(struct hca_qp *qp);
/* counts a work request that succeeded */
void req_count_done(struct hca_qp *qp, const struct send_wqe *w);
/* retires the oldest send WQE with a status */
void req_retire(struct hca_qp *qp, enum ibv_wc_status status, uint32_t vendor_err);
void comp_rx(struct hca_qp *qp, const struct roce_pkt *pkt);
void comp_resume(struct hca_qp *qp);
void resp_rx(struct hca_qp *qp, const struct roce_pkt *pkt);
void resp_resume(struct hca_qp *qp);
void resp_send_ack(struct hca_qp *qp);
void resp_reset(struct hca_qp *qp);
/* resp.srq is being destroyed: the message that goes to it fails (resp_xrc.c). */
void resp_srq_gone(struct hca_qp *qp);
/* the receive WQE that the next message goes to is in resp.wqe: 0 or -ENOENT */
int resp_take_wqe(struct hca_qp *qp);
static inline bool resp_listens(const struct hca_qp *qp)
{
	return qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD ||
	       qp->state == IBV_QPS_SQE;
}

/* ---- direct.c; with the QP locked ---- */

/* the peer may place at our memory from now on; not any more, and nothing of that is under way */
void direct_publish(struct hca_qp *qp);
void direct_withdraw(struct hca_qp *qp);
/* Does the WQE, which is to be sent next, without the peer and retires it; false: send it. */
bool direct_place(struct hca_qp *qp, struct send_wqe *w);
/* a message's first packet goes; una has moved */
void direct_sending(struct hca_qp *qp);
void direct_acked(struct hca_qp *qp);

/* ---- srd.c: SRD as the other files see it; with the QP locked, but where said ---- */

struct hca_srd *srd_new(uint32_t slots);
void srd_free(struct hca_srd *srd); /* it was reset */
void srd_reset(struct hca_qp *qp);
void srd_flush(struct hca_qp *qp);
/* QP not locked */
int srd_post(struct hca_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad, bool all);
void srd_run(struct hca_qp *qp);
void srd_timer(struct hca_qp *qp);
void srd_rx(struct hca_qp *qp, const struct roce_pkt *pkt);
void srd_resume(struct hca_qp *qp);
void srd_send_acks(struct hca_qp *qp);
bool srd_drained(const struct hca_qp *qp);

/* ---- ah.c: the numbers of address handles; no lock needed ---- */

#define AH_UNKNOWN 0xffff
void ah_fork_child(void);
/* moves when one comes or goes */
uint32_t ah_version(void);
/* of this PD's handle for that address, or AH_UNKNOWN */
uint16_t ah_number(uint32_t pd, const uint8_t gid[16]);

/* vendor_err of IBV_WC_RETRY_EXC_ERR: why, as far as can be told */
#define VENDOR_ERR_NO_ANSWER 0x81 /* nothing was heard from the peer since the request */
#define VENDOR_ERR_LOST	     0x82 /* the peer answers, but what it asks for again does not get through */
#define VENDOR_ERR_PEER_STUCK 0x83 /* the peer lives and has the request, and waits for a page fault */

/* ---- pf.c ---- */

/*
 * Resolves a miss of this role: 0: the page is there, try again; -EINPROGRESS: the role is paused, and
 * resumed by a worker; -EACCES: it cannot be resolved. QP locked.
 */
int pf_fault(struct hca_qp *qp, enum qp_role role, const struct mr_miss *miss);
/* for how long the role has been paused by a fault; 0: it is not */
uint64_t pf_waits_ns(const struct hca_qp *qp, enum qp_role role, uint64_t now);
/* names what is stuck. QP locked; by timer.c */
void pf_timer(struct hca_qp *qp, uint64_t now);

/* Something that may sleep, for a worker. run() owns it. 0, or negative and nothing happens. */
struct pf_work {
	struct cds_list_head node;
	void (*run)(struct pf_work *work);
};
int pf_queue_work(struct pf_work *work);
/* this thread begins anew to look for packets or work: what it resolves at once holds up nobody so far */
void pf_begin_pass(void);
/* a packet for the QP, which is locked, has come */
void pf_serves(const struct hca_qp *qp);
/* the access that had to fault has succeeded */
static inline void pf_done(struct hca_qp *qp, enum qp_role role)
{
	qp->force_tries[role] = 0;
	qp->failed[role].key = 0;
}

/* ---- engine.c, timer.c ---- */

int engine_start(struct hca_node *node);
void engine_fork_child(struct hca_node *node);
void pf_fork_child(void);
void engine_kick(void);
/* progress by an application's thread; returns trains taken */
int engine_poll(void);
/* the application is about to sleep: the engine takes over at once */
void engine_app_sleeps(void);
/* the QP owes an ACK; sent when the batch is through */
void engine_defer_ack(struct hca_qp *qp);
void engine_flush_acks(void);

/* asks for a look at the QP at deadline, or before. QP locked. */
void timer_arm(struct hca_qp *qp, uint64_t deadline);
void timer_remove(struct hca_qp *qp);
/* runs what is due; returns the next deadline, UINT64_MAX when there is none. The engine only. */
uint64_t timers_run(uint64_t now);

/* ---- mcast.c ---- */

/* the QPs that a datagram to QPN 0xffffff is for; their number */
unsigned mcast_members(const struct roce_pkt *pkt, uint32_t qpn[HCA_MCAST_QPS]);

/* ---- node.c ---- */

void node_rx(void *ctx, const struct roce_pkt *pkt);

#endif
