/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libibverbs.so.1: the public ABI of rdma-core's libibverbs, with one device driver inside: ours.
 *
 * An object of the ABI (struct ibv_qp, ...) is the first member of ours, which the application never
 * sees the rest of; core/ holds the object proper, hw/ what moves data. Calls of the data path go
 * through the tables of pointers that the header's inline functions use, straight to hw/.
 *
 * Events. The fd of a completion channel, and a context's async_fd, is an eventfd semaphore that counts
 * the events queued, so that it is readable exactly while there are some. The events themselves are
 * counts and bits inside the objects they are about: raising one allocates nothing, because it happens
 * in the middle of the data path.
 */
#ifndef FL_VERBS_H
#define FL_VERBS_H

#include "verbs/abi.h"

#include <errno.h>
#include <stdbool.h>
#include <urcu/list.h>
#include "core/core.h"

struct verbs_device {
	struct ibv_device device;
	/*
	 * Here a real provider's table of operations begins, and helpers of real providers' libraries
	 * (mlx5dv, efadv) compare it with their own. Zero: not theirs.
	 */
	void *not_a_provider[8];
	struct ib_device *ib;
};

_Static_assert(offsetof(struct verbs_device, not_a_provider) == 664, "where providers look");

/* A queue of events, behind the descriptor that is readable while it is not empty. */
struct event_queue {
	struct fl_mutex lock; /* LOCK_EVENT: the list, and the event_source fields of what is in it */
	struct cds_list_head pending;
	int fd;
};

/* An object's part in a queue: events of it that nobody fetched yet. */
struct event_source {
	struct cds_list_head list; /* in the queue while count is not 0 */
	uint32_t count;		   /* completion events */
	uint32_t types;		   /* asynchronous events: bit per enum ibv_event_type */
	uint32_t reported;	   /* fetched since the object was made; the consumer acknowledges each */
};

struct verbs_context_fl {
	struct verbs_context v;
	struct ib_ucontext *ib;
	struct event_queue async;
};

struct verbs_channel {
	struct ibv_comp_channel channel;
	struct event_queue events;
};

struct verbs_pd {
	struct ibv_pd pd;
	struct ib_pd *ib;
};

struct verbs_mr {
	struct ibv_mr mr;
	struct ib_mr *ib;
};

struct verbs_ah {
	struct ibv_ah ah;
	struct ib_ah *ib;
};

/* efa's part of a CQ: struct efadv_cq of <infiniband/efadv.h>, as far as any release knows it */
struct efa_cq {
	uint64_t comp_mask;
	int (*wc_read_sgid)(struct efa_cq *cq, union ibv_gid *sgid);
	bool (*wc_is_unsolicited)(struct efa_cq *cq);
};

struct verbs_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex cqx;
	};
	struct hca_cq *hca;
	struct ib_cq *ib;
	struct hca_cqe cur; /* between start_poll and end_poll */
	pthread_mutex_t poll_lock;
	bool single_threaded;
	uint64_t ts_mask, ts_khz;
	struct event_source comp, async;
	struct efa_cq efa;
};

struct verbs_xrcd {
	struct ibv_xrcd xrcd;
	struct ib_xrcd *ib;
};

struct verbs_srq {
	struct ibv_srq srq;
	struct hca_srq *hca;
	struct ib_srq *ib;
	struct event_source async;
};

/* What the wr_* builders collect between wr_start and wr_complete. Grows, never shrinks. */
struct wr_builder {
	pthread_mutex_t lock;
	struct ibv_send_wr *wr;
	struct ibv_sge *sge;
	uint8_t *inl;
	size_t num_wr, num_sge, num_inl;
	size_t cap_wr, cap_sge, cap_inl;
	int err;
};

/* Members that headers newer than ours have behind struct ibv_qp_ex: all of them functions. */
#define QP_EX_NEWER_SLOTS 8

struct verbs_qp {
	union {
		struct ibv_qp qp;
		struct {
			struct ibv_qp_ex qpx;
			void (*newer[QP_EX_NEWER_SLOTS])(struct ibv_qp_ex *qp);
		};
	};
	struct hca_qp *hca;
	struct ib_qp *ib;
	struct event_source async;
	struct wr_builder *builder; /* NULL: made without send_ops_flags */
};

#define FL_CAST(type, member, ptr)                                                                 \
	((struct type *)((char *)(ptr) - offsetof(struct type, member)))

static inline struct verbs_context_fl *to_fl_context(struct ibv_context *context)
{
	return FL_CAST(verbs_context_fl, v.context, context);
}

static inline struct verbs_channel *to_fl_channel(struct ibv_comp_channel *channel)
{
	return FL_CAST(verbs_channel, channel, channel);
}

static inline struct verbs_pd *to_fl_pd(struct ibv_pd *pd)
{
	return FL_CAST(verbs_pd, pd, pd);
}

static inline struct verbs_cq *to_fl_cq(struct ibv_cq *cq)
{
	return FL_CAST(verbs_cq, cq, cq);
}

static inline struct verbs_xrcd *to_fl_xrcd(struct ibv_xrcd *xrcd)
{
	return FL_CAST(verbs_xrcd, xrcd, xrcd);
}

static inline struct verbs_srq *to_fl_srq(struct ibv_srq *srq)
{
	return FL_CAST(verbs_srq, srq, srq);
}

static inline struct verbs_qp *to_fl_qp(struct ibv_qp *qp)
{
	return FL_CAST(verbs_qp, qp, qp);
}

/* The two ways in which verbs say that they failed: NULL with errno, or errno's value. */
static inline void *fail_null(int err)
{
	errno = -err;
	return NULL;
}

static inline int fail_errno(int err)
{
	if (err)
		errno = -err;
	return -err;
}

/* ---- event_queue.c ---- */

int event_queue_init(struct event_queue *q);
void event_queue_destroy(struct event_queue *q);
void event_source_init(struct event_source *s);
/* Adds a completion event of s. Takes LOCK_EVENT only. */
void event_raise(struct event_queue *q, struct event_source *s);
/* Adds an asynchronous event; one that is waiting already is not added twice. */
void event_raise_async(struct event_queue *q, struct event_source *s, enum ibv_event_type type);
/*
 * Waits as read() of the descriptor does, then fetches one event. 0, or -1 with errno. type: NULL in a
 * queue of completion events. The source is counted as reported.
 */
int event_fetch(struct event_queue *q, struct event_source **s, enum ibv_event_type *type);
/* Takes what was not fetched out; returns how many events were fetched in s's life. Nothing raises any
 * more when it is called. */
uint32_t event_purge(struct event_queue *q, struct event_source *s);

/* ---- what the operation tables are filled with ---- */

int fl_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t attr_size);
int fl_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr, size_t len);
int fl_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);
int fl_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		 struct ibv_sge *sg_list, uint32_t num_sge);
struct ibv_cq_ex *fl_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
/* attr: the part that all releases share; its caps become what was granted. pd: NULL of an XRC target */
struct ibv_qp *fl_create_qp(struct ibv_context *context, struct ibv_pd *pd, struct ibv_xrcd *xrcd,
			    struct ibv_qp_init_attr *attr, bool builders);
struct ibv_qp *fl_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_srq *fl_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int fl_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num);
struct ibv_xrcd *fl_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int fl_close_xrcd(struct ibv_xrcd *xrcd);
struct ibv_qp *fl_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);
int fl_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
int fl_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int fl_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int fl_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int fl_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/* cq_ex.c: fills the pointers of struct ibv_cq_ex */
void fl_cq_ex_fill(struct verbs_cq *cq);
/* device clock's ticks of nanoseconds */
uint64_t fl_device_clock(uint64_t ns, uint64_t khz, uint64_t mask);
/* qp_ex.c: makes the builder and fills the pointers of struct ibv_qp_ex; 0 or -ENOMEM */
int fl_qp_ex_init(struct verbs_qp *qp);
void fl_qp_ex_free(struct verbs_qp *qp);
/* the work requests that the builders can make for a QP of this type; bits of send_ops_flags */
uint64_t fl_qp_ex_ops(const struct hca_profile *profile, enum ibv_qp_type type);

/* qp.c: memory for a QP, with all in it that does not depend on what it is; NULL: -ENOMEM. And its end. */
struct verbs_qp *fl_qp_alloc(struct ibv_context *context, void *qp_context, enum ibv_qp_type type);
void fl_qp_free(struct verbs_qp *qp);

/* ah.c */
const struct hca_av *fl_av(struct ibv_ah *ah);

/* event.c */
extern const struct hca_event_ops fl_event_ops;

#endif
