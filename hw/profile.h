/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device models: what a driver answers, as data. A profile's file names where each value comes from.
 */
#ifndef FL_HW_PROFILE_H
#define FL_HW_PROFILE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * How the driver imports a dma-buf for ibv_reg_dmabuf_mr. NONE: the call is EOPNOTSUPP. DYNAMIC: the
 * buffer may move, and the next access faults. PINNED: it may not move while it is registered.
 * PINNED_REVOCABLE: nor may it move, but the exporter may take it away for good.
 */
enum hca_dmabuf {
	HCA_DMABUF_NONE,
	HCA_DMABUF_DYNAMIC,
	HCA_DMABUF_PINNED,
	HCA_DMABUF_PINNED_REVOCABLE,
};

/* what the runtime bounds: groups a process is in, QPs of it in one */
#define HCA_MCAST_GROUPS 48
#define HCA_MCAST_QPS	 240

struct hca_profile {
	const char *name;	 /* "mlx5" */
	const char *description; /* one line, for `faultline devices` */
	struct ibv_device_attr attr; /* guids and phys_port_cnt are filled in elsewhere */
	uint64_t device_cap_flags_ex;
	/* efa: node, transport and link layer are "unspecified", and there are no GUIDs */
	bool unspecified;

	struct ibv_odp_caps odp; /* per transport */
	uint32_t xrc_odp_caps;
	int odp_refused; /* errno for IBV_ACCESS_ON_DEMAND where it has no ODP */
	enum hca_dmabuf dmabuf;
	unsigned access_supported; /* mandatory IBV_ACCESS_* bits it takes */

	uint32_t qp_types;   /* bit per enum ibv_qp_type */
	uint32_t srd_max_rdma_size; /* bytes of an RDMA operation of SRD; 0: there is no SRD */
	int qp_type_refused; /* errno for another one; 0: EOPNOTSUPP */
	bool qp_builders;    /* ibv_create_qp_ex takes send_ops_flags; else EOPNOTSUPP */
	bool cap_rounding_pow2; /* queue depths are rounded up to 2^n - 1 (rxe) or 2^n (mlx5) */
	uint32_t max_inline_data;

	bool ud_sl_is_l3;  /* a datagram's completion has in `sl` which header it came with */
	uint64_t wc_flags; /* of ibv_create_cq_ex, without time stamps; 0: it is EOPNOTSUPP */
	bool cq_resize;	   /* else EOPNOTSUPP */
	uint64_t completion_timestamp_mask; /* 0: no time stamps */
	uint64_t hca_core_clock;	    /* kHz */
	uint32_t num_comp_vectors;

	uint8_t active_width, active_speed; /* enum of the port attributes; a valid pair */
	uint16_t gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint16_t lid;
	uint8_t lmc, max_vl_num;
};

/* NULL when there is none of that name */
const struct hca_profile *hca_profile_find(const char *name);
/* all of them, NULL-terminated */
extern const struct hca_profile *const hca_profiles[];

#endif
