/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Amazon's Elastic Fabric Adapter with the kernel's efa: datagrams only. No RC, no ODP, no
 * atomics, no shared receive queues; a dma-buf is pinned.
 *
 * From drivers/infiniband/hw/efa of Linux: efa_query_device(), efa_query_port(), the access flags
 * in efa_alloc_mr() and efa_reg_user_mr_dmabuf(), all in efa_verbs.c; the node is of type
 * "unspecified", and so are transport and link layer; GUIDs are 0. rdma-core's providers/efa: QP
 * types and their errno in efa_create_qp() and efa_check_qp_attr(), which verbs there are in
 * efa_ctx_ops. Counts are the firmware's, other on each generation: round figures.
 *
 * SRD as on a current generation (RDMA READ and WRITE, RNR retries, the sender's address in a completion):
 * the capabilities are the flags of efadv_query_device() of rdma-core; max_rdma_size is what such a device
 * reports, 1 GiB.
 *
 * What is not as there. Addresses: its GIDs are its own, these are RoCE v2 addresses (one, index
 * 0). A datagram and a SEND of SRD there hold up to the device's MTU (8.8 KB), here one packet, 4096 bytes, and
 * max_msg_sz says so.
 */
#include "hw/profiles/profiles.h"

const struct hca_profile hca_profile_efa = {
	.name = "efa",
	.description = "Amazon EFA (efa)",
	.unspecified = true,
	.attr = {
		.fw_ver = "0.0.0.0",
		.max_mr_size = 0x1800000000,
		.page_size_cap = 0xfffff000,
		.vendor_id = 0x1d0f,
		.vendor_part_id = 0xefa2,
		.hw_ver = 0xefa2,
		.max_qp = 256,
		.max_qp_wr = 4096,
		.max_sge = 2,
		.max_sge_rd = 1,
		.max_cq = 512,
		.max_cqe = 32768,
		.max_mr = 262144,
		.max_pd = 256,
		.atomic_cap = IBV_ATOMIC_NONE,
		.max_ah = 2048,
		.max_pkeys = 1,
	},
	.odp_refused = EOPNOTSUPP, /* ib_check_mr_access(), before the driver is asked */
	.dmabuf = HCA_DMABUF_PINNED,
	.access_supported = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_READ,
	.qp_types = 1u << IBV_QPT_UD,
	.srd_max_rdma_size = 1u << 30,
	.qp_builders = true,
	.max_inline_data = 32,
	.wc_flags = IBV_WC_STANDARD_FLAGS,
	.num_comp_vectors = 8,
	.active_width = 2,  /* 4X */
	.active_speed = 32, /* EDR: 100 Gb/s */
	.gid_tbl_len = 1,
	.max_msg_sz = 4096,
	.lmc = 1,
	.max_vl_num = 1,
};
