/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The objects of verbs and their rules: what drivers/infiniband/core is to a kernel driver. A verb
 * comes in from verbs/, is checked here (handles, use counts, limits, states), and is carried out by
 * the HCA (hw/hca.h). Work requests and completions do not pass here: verbs/ gives them to the HCA.
 *
 * Errors: negative errno. Objects are made and destroyed by any thread; an object in use answers
 * -EBUSY to its destruction, as in the kernel.
 *
 * Fork: a context belongs to the process that opened it. In the child every object of the parent's
 * answers -EIO; the child opens the device anew.
 */
#ifndef FL_CORE_H
#define FL_CORE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>
#include "hw/hca.h"
#include "net/net.h"
#include "umem/umem.h"
#include "util/lock.h"

/* Kinds of objects that a context owns, in the order in which closing it takes them down. */
enum ib_kind { IB_QP, IB_MR, IB_AH, IB_SRQ, IB_XRCD, IB_CQ, IB_PD, IB_KINDS };

struct ib_device {
	char name[64];
	uint32_t index; /* in the segment's devices */
	const struct hca_profile *profile;
	uint32_t vendor_id, vendor_part_id;
	__be64 node_guid;
	char netdev_name[IFNAMSIZ];
	struct umem_device umem;

	struct fl_mutex lock; /* LOCK_CORE: all below, lists of contexts' objects, use counts */
	struct hca_dev *hca;  /* NULL until the first open in this process */
	struct faultline_device *stat; /* likewise */
	struct netdev_info netdev;
	unsigned num_gids;
	uint8_t gid[NETDEV_MAX_GIDS][16]; /* by index; all zero: empty */
	int count[IB_KINDS];
	struct cds_list_head xrc_domains; /* those of a file */
};

struct ib_ucontext {
	struct ib_device *device;
	uint32_t generation; /* of the process: how many forks deep */
	struct cds_list_head objects[IB_KINDS];
};

/* what all objects have in common; first member of each */
struct ib_uobject {
	struct ib_ucontext *ucontext;
	uint32_t handle; /* unique in the process, over all kinds and devices */
	int usecnt;	 /* objects that need this one */
	struct cds_list_head list;
};

struct ib_pd {
	struct ib_uobject uobj;
};

struct ib_cq {
	struct ib_uobject uobj;
	struct hca_cq *hca;
	int cqe; /* granted */
};

struct ib_mr {
	struct ib_uobject uobj;
	struct ib_pd *pd;
	struct hca_mr *hca;
	enum umem_kind kind;
	uint32_t lkey, rkey;
};

/* What an object is made with: it holds a use count of each. */
struct ib_needs {
	struct ib_uobject *v[4];
	unsigned n;
};

/* an XRC domain, as one of the contexts has it open */
struct ib_xrcd {
	struct ib_uobject uobj;
	struct ib_xrc_domain *domain;
};

struct ib_srq {
	struct ib_uobject uobj;
	struct ib_needs needs;
	struct hca_srq *hca;
	enum ibv_srq_type srq_type;
	uint32_t max_wr, max_sge; /* granted */
};

struct ib_qp {
	struct ib_uobject uobj;
	struct ib_needs needs;
	struct hca_qp *hca;
	struct hca_qp_open open;
	struct ib_xrc_tgt *tgt; /* XRC target: the QP proper, which may be open more than once; else NULL */
	enum ibv_qp_type qp_type;
	uint32_t qp_num;
	struct ibv_qp_cap cap; /* granted */
	bool sq_sig_all;
	struct cds_list_head mcast; /* groups it is attached to; LOCK_CORE */
};

struct ib_ah {
	struct ib_uobject uobj;
	struct ib_pd *pd;
	struct hca_av av;
};

/* ---- registry (registry.c) ---- */

/* The devices that the settings ask for; the list lives as long as the process. Returns their number. */
int ib_get_devices(struct ib_device *const **list);

/* Opens it; the first open of a process brings up segment, mm and HCA. */
int ib_open_device(struct ib_device *dev, struct ib_ucontext **ucontext);
/* What is left in it is destroyed, with a warning. */
int ib_close_device(struct ib_ucontext *ucontext);

/* The context is of this process, not of one that forked it. */
bool ib_ucontext_alive(const struct ib_ucontext *ucontext);

/* ---- device.c ---- */

/* Makes dev from a profile, without HCA. -ENODEV: no network device. */
int ib_device_init(struct ib_device *dev, const struct hca_profile *profile, const char *name,
		   const char *netdev, uint32_t index);
/* Looks at the network device again. An address keeps its GID index for as long as it is there. */
void ib_device_refresh(struct ib_device *dev);

int ib_query_device(struct ib_ucontext *ucontext, struct ibv_device_attr_ex *attr);
/* -EINVAL: no such port */
int ib_query_port(struct ib_ucontext *ucontext, uint32_t port, struct ibv_port_attr *attr);
/* -EINVAL: no such port or index; -ENODATA: the entry is empty (*gid is zero then) */
int ib_query_gid(struct ib_ucontext *ucontext, uint32_t port, uint32_t index, union ibv_gid *gid,
		 uint32_t *ifindex);
int ib_query_pkey(struct ib_ucontext *ucontext, uint32_t port, int index, uint16_t *pkey);
/* largest IB MTU whose packets fit a network device's */
enum ibv_mtu ib_mtu_of_netdev(int mtu);

/* ---- objects.c, mr.c ---- */

int ib_alloc_pd(struct ib_ucontext *ucontext, struct ib_pd **pd);
int ib_dealloc_pd(struct ib_pd *pd);

int ib_create_cq(struct ib_ucontext *ucontext, int cqe, int comp_vector, bool timestamps,
		 void *uobject, struct ib_cq **cq);
int ib_resize_cq(struct ib_cq *cq, int cqe);
int ib_destroy_cq(struct ib_cq *cq);

struct ib_srq_init_attr {
	struct ibv_srq_attr attr;
	enum ibv_srq_type srq_type;
	struct ib_xrcd *xrcd; /* these: of XRC's, else NULL */
	struct ib_cq *cq;
	void *uobject;
};
int ib_create_srq(struct ib_pd *pd, const struct ib_srq_init_attr *init, struct ib_srq **srq);
int ib_modify_srq(struct ib_srq *srq, const struct ibv_srq_attr *attr, int mask);
int ib_query_srq(struct ib_srq *srq, struct ibv_srq_attr *attr);
int ib_destroy_srq(struct ib_srq *srq);

int ib_create_ah(struct ib_pd *pd, const struct ibv_ah_attr *attr, struct ib_ah **ah);
int ib_destroy_ah(struct ib_ah *ah);

/* 0, -EINVAL or -EOPNOTSUPP (or what the profile answers for on-demand): are these rights acceptable? */
int ib_check_mr_access(const struct hca_profile *profile, unsigned access);
int ib_reg_user_mr(struct ib_pd *pd, uint64_t start, uint64_t length, uint64_t iova, unsigned access,
		   struct ib_mr **mr);
/*
 * A region on a dma-buf, imported as the profile's driver does (enum hca_dmabuf). -EOPNOTSUPP: it cannot, or
 * the exporter refuses it; -EBADF, -EINVAL: fd, range, or iova and offset differ within a page.
 */
int ib_reg_user_mr_dmabuf(struct ib_pd *pd, uint64_t offset, uint64_t length, uint64_t iova, int fd,
			  unsigned access, struct ib_mr **mr);
int ib_dereg_mr(struct ib_mr *mr);
int ib_advise_mr(struct ib_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		 struct ibv_sge *sg, uint32_t num_sge);

/* include/faultline/odp.h says what they do; negative errno. The caller keeps the MR from being deregistered. */
int ib_mr_pin(struct ib_mr *mr, uint64_t addr, uint64_t length);
int ib_mr_unpin(struct ib_mr *mr, uint64_t addr, uint64_t length);
int ib_mr_read(struct ib_mr *mr, void *dst, uint64_t offset, uint64_t length);
int ib_mr_write(struct ib_mr *mr, uint64_t offset, const void *src, uint64_t length);
/* its entry in the key table; NULL: of a forked parent */
const struct faultline_mr *ib_mr_stat(const struct ib_mr *mr);

/* ---- xrc.c ---- */

/* has the device XRC? */
static inline bool ib_has_xrc(const struct hca_profile *profile)
{
	return profile->qp_types & (1u << IBV_QPT_XRC_RECV);
}

/*
 * fd -1: a domain of its own; else that of the file, in this process. -EBADF; -EAGAIN: there is none yet, and
 * no O_CREAT; -EINVAL: there is one, and O_EXCL.
 */
int ib_open_xrcd(struct ib_ucontext *ucontext, int fd, int oflags, struct ib_xrcd **xrcd);
int ib_close_xrcd(struct ib_xrcd *xrcd);
/* One more QP for the same target of the domain; it lasts until all of them are destroyed. -EINVAL: no such target. */
int ib_open_qp(struct ib_xrcd *xrcd, enum ibv_qp_type type, uint32_t qp_num, void *uobject, struct ib_qp **qp);

/* ---- qp.c, qp_state.c ---- */

struct ib_qp_init_attr {
	enum ibv_qp_type qp_type;
	struct ib_cq *send_cq, *recv_cq;
	struct ib_srq *srq; /* or NULL */
	struct ib_xrcd *xrcd; /* of an XRC target */
	struct ibv_qp_cap cap;
	bool sq_sig_all;
	void *uobject;
};
/* pd: NULL of an XRC target */
int ib_create_qp(struct ib_pd *pd, const struct ib_qp_init_attr *init, struct ib_qp **qp);
int ib_modify_qp(struct ib_qp *qp, const struct ibv_qp_attr *attr, int mask);
/* all attributes, whatever the mask that was asked for */
int ib_query_qp(struct ib_qp *qp, struct ibv_qp_attr *attr);
/* -EBUSY: it is attached to a group */
int ib_destroy_qp(struct ib_qp *qp);

/* ---- qp_mcast.c ---- */

/* -EINVAL: it is no UD QP, or that no multicast GID; -EOPNOTSUPP: the device has none */
int ib_attach_mcast(struct ib_qp *qp, const union ibv_gid *gid);
/* -EINVAL: it is not attached */
int ib_detach_mcast(struct ib_qp *qp, const union ibv_gid *gid);
/* from all; the context is being closed */
void ib_detach_all_mcast(struct ib_qp *qp);

/* Does the table of QP state transitions (specification, Modify Queue Pair) allow it with this mask? */
bool ib_modify_qp_is_ok(enum ibv_qp_state cur, enum ibv_qp_state next, enum ibv_qp_type type, int mask);

#endif
