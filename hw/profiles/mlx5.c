/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ConnectX-5 or later with the kernel's mlx5_ib: the NIC with the most complete ODP. Limits are those
 * that ibv_devinfo -v prints on one (firmware 16.x), but where the runtime's own are lower (QPs, SRQs, MRs).
 * Vendor id: not Mellanox's 0x02c9, which would send UCX and others to code that needs the device's own
 * commands; --vendor-id has it all the same. Time stamps are in nanoseconds, so the clock is 1 GHz.
 * Capabilities that Faultline does not have are not claimed.
 */
#include "hw/profiles/profiles.h"

#define RC_ODP                                                                                     \
	(IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |                     \
	 IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV)

#define UD_ODP IBV_ODP_SUPPORT_SEND

/* a target has no receive queue of its own */
#define XRC_ODP (RC_ODP & ~IBV_ODP_SUPPORT_RECV)

const struct hca_profile hca_profile_mlx5 = {
	.name = "mlx5",
	.description = "ConnectX (mlx5_ib)",
	.attr = {
		.fw_ver = "16.35.4030",
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 0xfffffffffffff000,
		.vendor_id = 0x00fa17,
		.vendor_part_id = 1,
		.hw_ver = 0,
		.max_qp = PROFILE_MAX_QP,
		.max_qp_wr = 32768,
		.device_cap_flags = IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
				    IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_XRC,
		.max_sge = 30,
		.max_sge_rd = 30,
		.max_cq = 16777216,
		.max_cqe = 4194303,
		.max_mr = PROFILE_MAX_MR,
		.max_pd = 8388608,
		.max_qp_rd_atom = 16,
		.max_res_rd_atom = 16 * PROFILE_MAX_QP,
		.max_qp_init_rd_atom = 16,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_srq = PROFILE_MAX_QP,
		.max_srq_wr = 32767,
		.max_srq_sge = 31,
		.max_mcast_grp = HCA_MCAST_GROUPS,
		.max_mcast_qp_attach = HCA_MCAST_QPS,
		.max_total_mcast_qp_attach = HCA_MCAST_GROUPS * HCA_MCAST_QPS,
		.max_ah = 2147483647,
		.max_pkeys = 128,
		.local_ca_ack_delay = 16,
	},
	.odp = {
		.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
		.per_transport_caps = {.rc_odp_caps = RC_ODP, .ud_odp_caps = UD_ODP},
	},
	.xrc_odp_caps = XRC_ODP,
	.completion_timestamp_mask = INT64_MAX,
	.hca_core_clock = 1000000,
	.num_comp_vectors = 8,
	.max_inline_data = 1024,
	.active_width = 2,  /* 4X */
	.active_speed = 32, /* EDR: 100 Gb/s */
	.gid_tbl_len = 256,
	.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
	.max_msg_sz = 1u << 31,
	.access_supported = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
			    IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB,
	.qp_types = 1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD | 1u << IBV_QPT_XRC_SEND |
		    1u << IBV_QPT_XRC_RECV,
	.dmabuf = HCA_DMABUF_DYNAMIC,
	.ud_sl_is_l3 = true, /* cq.c of rdma-core's providers/mlx5: the CQE's bits, whatever the link layer */
	.qp_builders = true,
	.wc_flags = IBV_WC_STANDARD_FLAGS,
	.cq_resize = true,
};
