/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel's own soft RoCE (drivers/infiniband/sw/rxe, Linux 7.2): explicit ODP only. Values are what
 * ibv_devinfo -v prints for an rxe device, but where the runtime's own are lower (QPs, SRQs). Capabilities
 * that Faultline does not have are not claimed.
 */
#include "hw/profiles/profiles.h"

#define RC_ODP                                                                                     \
	(IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |                     \
	 IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV)

#define UD_ODP (IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV)

const struct hca_profile hca_profile_rxe = {
	.name = "rxe",
	.description = "soft RoCE (rdma_rxe)",
	.attr = {
		.fw_ver = "0.0.0",
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 0xfffff000,
		.vendor_id = 0xffffff,
		.vendor_part_id = 0,
		.max_qp = PROFILE_MAX_QP,
		.max_qp_wr = 1048576,
		.device_cap_flags = IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
				    IBV_DEVICE_PORT_ACTIVE_EVENT,
		.max_sge = 32,
		.max_sge_rd = 32,
		.max_cq = 1048576,
		.max_cqe = 32767,
		.max_mr = PROFILE_MAX_MR,
		.max_pd = 1048576,
		.max_qp_rd_atom = 128,
		.max_res_rd_atom = 258048,
		.max_qp_init_rd_atom = 128,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_srq = PROFILE_MAX_QP,
		.max_srq_wr = 1048576,
		.max_srq_sge = 27,
		.max_mcast_grp = HCA_MCAST_GROUPS,
		.max_mcast_qp_attach = HCA_MCAST_QPS,
		.max_total_mcast_qp_attach = HCA_MCAST_GROUPS * HCA_MCAST_QPS,
		.max_ah = 32767,
		.max_pkeys = 64,
		.local_ca_ack_delay = 15,
	},
	.odp = {
		.general_caps = IBV_ODP_SUPPORT,
		.per_transport_caps = {.rc_odp_caps = RC_ODP, .ud_odp_caps = UD_ODP},
	},
	.num_comp_vectors = 2,
	.max_inline_data = 512,
	.active_width = 1, /* 1X */
	.active_speed = 1, /* SDR: 2.5 Gb/s, as rxe says */
	.gid_tbl_len = 1024,
	.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
	.max_msg_sz = 1u << 31,
	.max_vl_num = 1,
	.access_supported = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
			    IBV_ACCESS_ON_DEMAND,
	.qp_types = 1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD,
	.dmabuf = HCA_DMABUF_NONE,
	.cap_rounding_pow2 = true,
	.qp_builders = true,
	.wc_flags = IBV_WC_STANDARD_FLAGS,
	.cq_resize = true,
};
