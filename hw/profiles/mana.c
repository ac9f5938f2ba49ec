/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Microsoft Azure's network adapter with the kernel's mana_ib: RC only (UD and the management QP
 * are the kernel's own), no ODP, no atomics, no shared receive queues, no inline data; a dma-buf
 * is pinned.
 *
 * From drivers/infiniband/hw/mana of Linux: mana_ib_query_device() and mana_ib_query_port() in
 * main.c, MANA_IB_MAX_MR_SIZE, PAGE_SZ_BM and MANA_CA_ACK_DELAY in mana_ib.h, VALID_MR_FLAGS and
 * mana_ib_reg_user_mr_dmabuf() in mr.c. A completion queue can have as many entries as a QP. Which
 * QP types and verbs there are: mana_create_qp() in qp.c and mana_ctx_ops in mana.c of rdma-core's
 * provider; its wr.c refuses an atomic with EINVAL. max_msg_sz and port_cap_flags the driver
 * leaves 0; a program that asks for the size of a message would take that for "none", so 2^30 is
 * said. All other counts are the firmware's: round figures here, the runtime's own where they are
 * lower (QPs, MRs).
 */
#include "hw/profiles/profiles.h"

const struct hca_profile hca_profile_mana = {
	.name = "mana",
	.description = "Microsoft Azure (mana_ib)",
	.attr = {
		.fw_ver = "0.0.0",
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 0x3ff000,
		.vendor_id = 0x1414,
		.vendor_part_id = 3, /* GDMA_DEVICE_MANA_IB */
		.max_qp = PROFILE_MAX_QP,
		.max_qp_wr = 2048,
		.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN,
		.max_sge = 15,
		.max_sge_rd = 15,
		.max_cq = 16384,
		.max_cqe = 2048,
		.max_mr = PROFILE_MAX_MR,
		.max_pd = 16384,
		.max_qp_rd_atom = 32,
		.max_res_rd_atom = 32 * PROFILE_MAX_QP,
		.max_qp_init_rd_atom = 32,
		.atomic_cap = IBV_ATOMIC_NONE,
		.max_ah = 2147483647,
		.max_pkeys = 1,
		.local_ca_ack_delay = 16,
	},
	.odp_refused = EOPNOTSUPP, /* ib_check_mr_access(), before the driver is asked */
	.dmabuf = HCA_DMABUF_PINNED,
	/* VALID_MR_FLAGS; IBV_ACCESS_HUGETLB is not among them */
	.access_supported = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	.qp_types = 1u << IBV_QPT_RC,
	.num_comp_vectors = 8,
	.active_width = 2,  /* 4X */
	.active_speed = 32, /* EDR: 100 Gb/s */
	.gid_tbl_len = 16,
	.max_msg_sz = 1u << 30,
};
