/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Intel E810, RoCE v2, with the kernel's irdma (second generation of its hardware): no ODP, no
 * atomics, no shared receive queues, no UC; a dma-buf is pinned, and can be revoked.
 *
 * From drivers/infiniband/hw/irdma of Linux 7.0: which attributes there are, and the port's, are
 * irdma_query_device() and irdma_query_port() in verbs.c; read limits ICRDMA_MAX_IRD_SIZE and
 * _ORD_SIZE in icrdma_hw.h; sizes of queues, SGEs, inline data and messages what
 * irdma_sc_dev_init() in ctrl.c sets from defs.h and user.h (a WQE of 8 quanta in a queue of 32768
 * - 258); dma-buf irdma_reg_user_mr_dmabuf() in verbs.c, revocable since "RDMA/irdma: Add support
 * for revocable pinned dmabuf import" (March 2026). QP types and their errno: irdma_ucreate_qp()
 * in rdma-core's providers/irdma/uverbs.c; which verbs there are: irdma_uctx_ops in umain.c; flags
 * of an extended CQ: umain.h. Counts of
 * PDs, AHs and CQEs, and the firmware's version, are as an E810 lists them, of CQs a figure of that
 * kind; of QPs and MRs the runtime's own are lower. max_res_rd_atom and local_ca_ack_delay are 0 there,
 * too.
 *
 * Multicast groups are the runtime's, too. Not claimed: memory windows and fast registration
 * (kernel: MEM_WINDOW, MEM_MGT_EXTENSIONS).
 */
#include "hw/profiles/profiles.h"

const struct hca_profile hca_profile_irdma = {
	.name = "irdma",
	.description = "Intel E810 (irdma)",
	.attr = {
		.fw_ver = "1.74",
		.max_mr_size = 0x200000000000,
		.page_size_cap = 0x40201000,
		.vendor_id = 0x8086,
		.vendor_part_id = 0x1592,
		.hw_ver = 2,
		.max_qp = PROFILE_MAX_QP,
		.max_qp_wr = 4063,
		.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN,
		.max_sge = 13,
		.max_sge_rd = 13,
		.max_cq = 262141,
		.max_cqe = 1048574,
		.max_mr = PROFILE_MAX_MR,
		.max_pd = 262141,
		.max_qp_rd_atom = 127,
		.max_qp_init_rd_atom = 255,
		.atomic_cap = IBV_ATOMIC_NONE,
		.max_mcast_grp = HCA_MCAST_GROUPS,
		.max_mcast_qp_attach = HCA_MCAST_QPS,
		.max_total_mcast_qp_attach = HCA_MCAST_GROUPS * HCA_MCAST_QPS,
		.max_ah = 131072,
		.max_pkeys = 1,
	},
	.odp_refused = EOPNOTSUPP, /* ib_check_mr_access(), before the driver is asked */
	.dmabuf = HCA_DMABUF_PINNED_REVOCABLE,
	/* irdma_get_mr_access() takes any flag, and leaves out what it has not */
	.access_supported = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_HUGETLB,
	.qp_types = 1u << IBV_QPT_RC | 1u << IBV_QPT_UD,
	.max_inline_data = 101,
	.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |
		    IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL,
	.cq_resize = true,
	.num_comp_vectors = 8,
	.active_width = 2,  /* 4X */
	.active_speed = 32, /* EDR: 100 Gb/s */
	.gid_tbl_len = 32,
	.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_REINIT_SUP | IBV_PORT_IP_BASED_GIDS,
	.max_msg_sz = 2147483647,
	.lid = 1,
};
