/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Broadcom BCM57508 (Thor) with the kernel's bnxt_re: no ODP, no UC; a dma-buf is pinned.
 *
 * From drivers/infiniband/hw/bnxt_re of Linux: attributes and the port's are
 * bnxt_re_query_device() and bnxt_re_query_port() in ib_verbs.c; sizes of regions, pages and
 * messages BNXT_RE_MAX_MR_SIZE, BNXT_RE_PAGE_SIZE_SUPPORTED and BNXT_RE_MAX_MR_SIZE_LOW in
 * bnxt_re.h; 6 SGEs a request without variable-sized WQEs, in qplib_fp.h; dma-buf
 * bnxt_re_reg_user_mr_dmabuf() in ib_verbs.c. Inline data: BNXT_RE_MAX_INLINE_SIZE of rdma-core's
 * provider; which verbs there are: bnxt_re_cntx_ops in its main.c. It refuses a QP type in
 * bnxt_re_check_qp_limits(), which decides for EINVAL and does not tell errno; here errno is told.
 * All other counts are the firmware's, other on each board: round figures here, the runtime's own
 * where they are lower (QPs, MRs).
 *
 * Atomics are those with PCIe atomics enabled up to the root port (atomic with regard to CPUs,
 * too: GLOB). Not claimed: memory windows, fast registration, raw packets, notification of N
 * completions, QPs that change their size.
 */
#include "hw/profiles/profiles.h"

const struct hca_profile hca_profile_bnxt_re = {
	.name = "bnxt_re",
	.description = "Broadcom BCM57508 (bnxt_re)",
	.attr = {
		.fw_ver = "229.0.0.0",
		.max_mr_size = 1ull << 39,
		.page_size_cap = 0x7ffff000,
		.vendor_id = 0x14e4,
		.vendor_part_id = 0x1750,
		.hw_ver = 0x11,
		.max_qp = PROFILE_MAX_QP,
		.max_qp_wr = 65535,
		.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_RC_RNR_NAK_GEN |
				    IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_PORT_ACTIVE_EVENT,
		.max_sge = 6,
		.max_sge_rd = 6,
		.max_cq = 65536,
		.max_cqe = 1048575,
		.max_mr = 65536,
		.max_pd = 65536,
		.max_qp_rd_atom = 126,
		.max_qp_init_rd_atom = 126,
		.atomic_cap = IBV_ATOMIC_GLOB,
		.max_ah = 131072,
		.max_srq = 4096,
		.max_srq_wr = 65535,
		.max_srq_sge = 6,
		.max_pkeys = 1,
		.local_ca_ack_delay = 16,
	},
	.odp_refused = EOPNOTSUPP, /* ib_check_mr_access(), before the driver is asked */
	.dmabuf = HCA_DMABUF_PINNED,
	/* __from_ib_access_flags() leaves out what it does not know */
	.access_supported = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_HUGETLB,
	.qp_types = 1u << IBV_QPT_RC | 1u << IBV_QPT_UD,
	.qp_type_refused = EINVAL,
	.qp_builders = true,
	.max_inline_data = 96,
	.cq_resize = true,
	.num_comp_vectors = 8,
	.active_width = 2,  /* 4X */
	.active_speed = 32, /* EDR: 100 Gb/s */
	.gid_tbl_len = 256,
	.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_REINIT_SUP | IBV_PORT_DEVICE_MGMT_SUP |
			  IBV_PORT_VENDOR_CLASS_SUP | IBV_PORT_IP_BASED_GIDS,
	.max_msg_sz = 1u << 30,
	.max_vl_num = 4,
};
