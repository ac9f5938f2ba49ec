/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The HCA: queue pairs, completion queues, keys, page faults, and the engine that drives them.
 * core/ checks what a driver's upper half checks (limits, states, handles, use counts) and calls this;
 * this room does what the hardware does.
 *
 * Types of verbs' data (work requests, completions, attributes) are <infiniband/verbs.h>'s own; its
 * objects (ibv_qp, ...) are not known here. Errors: negative errno, but where said.
 *
 * One HCA runtime a process (struct hca_node: net, engine, QP and key tables), shared by its devices.
 */
#ifndef FL_HW_HCA_H
#define FL_HW_HCA_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>
#include "hw/profile.h"
#include "net/net.h"
#include "umem/umem.h"
#include "util/config.h"
#include "util/seg.h"

struct hca_dev;
struct hca_cq;
struct hca_qp;
struct hca_srq;
struct hca_mr;

/* ---- life ---- */

/*
 * Starts the process's runtime (segment must exist). Starts no thread: the engine starts with the first
 * QP. Called by the registry under LOCK_REGISTRY, once.
 */
int hca_node_start(const struct fl_config *cfg, struct seg *seg);
/* around a fork(), the second also in the child: what a child has to undo is whole */
void hca_node_fork_begin(void);
void hca_node_fork_end(void);
/*
 * In the child of a fork: everything of the parent's is dead (its QPs answer EIO here); forget it, so
 * that hca_node_start() can begin anew.
 */
void hca_node_fork_child(void);

/* A device: index into the segment's devices. Lives as long as the process. */
int hca_dev_create(const struct hca_profile *profile, struct faultline_device *stat, uint32_t index,
		   struct hca_dev **dev);

/* ---- events that go up ----
 * From any thread, with this room's locks held: an implementation takes LOCK_EVENT or a later lock only,
 * and calls nothing of this room.
 */

/* where a datagram goes */
struct hca_av {
	uint32_t pd; /* its handle */
	uint8_t sgid[16], dgid[16];
	uint8_t tclass, hop_limit;
	uint32_t flow_label;
	uint16_t ahn; /* efa: its number */
};

/* efa: PD's handles for one address share a number; -ENOMEM. Each is removed as often as it was added. */
int hca_ah_add(struct hca_av *av);
void hca_ah_remove(const struct hca_av *av);

/*
 * An RDMA operation of SRD names a place and who has it, but struct ibv_send_wr has room for one of them:
 * wr.ud says who, and where is in what memory windows have there.
 */
static inline void hca_wr_set_place(struct ibv_send_wr *wr, uint32_t rkey, uint64_t remote_addr)
{
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info.addr = remote_addr;
}

struct hca_event_ops {
	void (*comp)(void *uobject);			       /* a CQ that was armed has a completion */
	void (*cq_async)(void *uobject, enum ibv_event_type);  /* IBV_EVENT_CQ_ERR */
	void (*qp_async)(void *uobject, enum ibv_event_type);  /* ACCESS_ERR, REQ_ERR, FATAL, COMM_EST, SQ_DRAINED, LAST_WQE */
	void (*srq_async)(void *uobject, enum ibv_event_type); /* SRQ_LIMIT_REACHED */
	/* no event: what an address handle of a work request says; good for as long as the handle */
	const struct hca_av *(*av)(struct ibv_ah *ah);
};
void hca_set_event_ops(const struct hca_event_ops *ops);

/* ---- completion queues ---- */

struct hca_cqe {
	struct ibv_wc wc;
	uint64_t timestamp_ns; /* CLOCK_MONOTONIC; CLOCK_REALTIME beside it where asked for; 0: not asked for */
	uint64_t realtime_ns;
	uint8_t sgid[16]; /* of a receive of SRD: who sent it */
};

/* depth: entries it must hold (core has rounded it) */
int hca_cq_create(struct hca_dev *dev, uint32_t depth, bool timestamps, void *uobject, struct hca_cq **cq);
/* makes progress for the process when empty; returns 0..n */
int hca_cq_poll(struct hca_cq *cq, int n, struct ibv_wc *wc);
/* the same, one at a time, with time stamps */
int hca_cq_poll_one(struct hca_cq *cq, struct hca_cqe *cqe);
/* arms it: one comp() for the next completion (solicited: that is solicited or in error) */
void hca_cq_req_notify(struct hca_cq *cq, bool solicited_only);
/* -EINVAL: more are in it than the new depth holds */
int hca_cq_resize(struct hca_cq *cq, uint32_t depth);
/* no QP uses it any more; when it returns no comp() runs, nor will */
void hca_cq_destroy(struct hca_cq *cq);

/* ---- keys ---- */

/*
 * Gives umem (which passes to the MR) a key: lkey == rkey. pd: the PD's handle. iova: what addresses in
 * work requests are, for umem->address. -ENOMEM: all keys are in use.
 */
int hca_mr_create(struct hca_dev *dev, uint32_t pd, struct ib_umem *umem, uint64_t iova, unsigned access,
		  struct hca_mr **mr);
uint32_t hca_mr_key(const struct hca_mr *mr);
/* while the caller keeps the MR from being destroyed: what backs it, and its entry in the key table */
struct ib_umem *hca_mr_umem(const struct hca_mr *mr);
const struct faultline_mr *hca_mr_stat(const struct hca_mr *mr);
/* The key is dead and no access in flight when it returns; its number stays taken until it is destroyed. */
void hca_mr_revoke(struct hca_mr *mr);
/* The same, and the umem is released. */
void hca_mr_destroy(struct hca_mr *mr);
/* prefetch and friends: advice as ibv_advise_mr's; 0 or positive errno (hw/advise.c) */
int hca_mr_advise(struct hca_dev *dev, uint32_t pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		  struct ibv_sge *sg, uint32_t num_sge);

/* ---- queue pairs ---- */

/* One that is told of a QP's events. A QP has one, the target of an XRC domain as many as have it open. */
struct hca_qp_open {
	struct cds_list_head node;
	void *uobject;
};

struct hca_qp_init {
	enum ibv_qp_type type; /* IBV_QPT_DRIVER: SRD */
	uint32_t pd;
	struct hca_cq *send_cq, *recv_cq; /* XRC: an initiator has no recv_cq, a target neither, nor a PD */
	struct hca_srq *srq; /* or NULL */
	uint32_t xrcd; /* XRC target: number of its domain */
	struct ibv_qp_cap cap; /* granted: core has rounded it */
	bool sq_sig_all;
	uint32_t port_mtu; /* bytes: the longest datagram */
	struct hca_qp_open *open; /* the first; of the caller's memory */
};

/* -EAGAIN: no QPN is left; -EOPNOTSUPP: no such transport here. Starts the engine when it is the first. */
int hca_qp_create(struct hca_dev *dev, const struct hca_qp_init *init, struct hca_qp **qp);
uint32_t hca_qp_num(const struct hca_qp *qp);
/* its own attributes as they stand; what was never set is zero */
void hca_qp_query(struct hca_qp *qp, struct ibv_qp_attr *attr);
/*
 * core has checked the transition, the mask and every value (ib_modify_qp_is_ok and the device's
 * limits) and holds no lock; sgid is what attr->ah_attr names. Returns what net_path_open() returns.
 */
int hca_qp_modify(struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask, const uint8_t sgid[16]);
/* datagrams to this address of the port reach us; before a UD QP is in RTR. No lock held. */
void hca_listen(struct hca_dev *dev, const uint8_t gid[16]);
/*
 * A UD QP joins a multicast group on a network interface. -ENOMEM: too many groups, or QPs of one; others as the
 * host's network has it.
 */
int hca_attach_mcast(struct hca_qp *qp, const uint8_t gid[16], int ifindex);
void hca_detach_mcast(struct hca_qp *qp, const uint8_t gid[16], int ifindex);
/* one more is told of its events; one less: when it returns no event is being told to it, nor will be */
void hca_qp_open(struct hca_qp *qp, struct hca_qp_open *open);
void hca_qp_close(struct hca_qp *qp, struct hca_qp_open *open);
/* its CQEs that are still in a CQ are removed, as the specification says, but for those of an XRC target, which
 * are in the CQs of SRQs; when it returns no event of it is being told, nor will be */
void hca_qp_destroy(struct hca_qp *qp);

/* As ibv_post_send() and ibv_post_recv(): 0 or a POSITIVE errno, *bad the first not posted. EINVAL: state,
 * opcode, too many SGEs, inline too long; ENOMEM: queue full; EIO: the QP is a forked parent's. */
int hca_post_send(struct hca_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
/* the same, but of a list that cannot be posted whole nothing is */
int hca_post_send_all(struct hca_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int hca_post_recv(struct hca_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* ---- shared receive queues ---- */

struct hca_srq_init {
	uint32_t pd;
	uint32_t max_wr, max_sge;
	struct hca_cq *cq; /* XRC: where its receives complete; NULL: it is an ordinary one */
	uint32_t xrcd;	   /* XRC: number of its domain */
	void *uobject;
};
/* -EAGAIN: no number is left */
int hca_srq_create(struct hca_dev *dev, const struct hca_srq_init *init, struct hca_srq **srq);
uint32_t hca_srq_num(const struct hca_srq *srq);
int hca_srq_modify(struct hca_srq *srq, const struct ibv_srq_attr *attr, int mask);
void hca_srq_query(struct hca_srq *srq, struct ibv_srq_attr *attr);
/*
 * No QP uses it any more; XRC targets may, and what they were receiving into it fails. When it returns no event
 * of it is being told, nor will be.
 */
void hca_srq_destroy(struct hca_srq *srq);
int hca_post_srq_recv(struct hca_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif
