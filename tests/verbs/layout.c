/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The layouts that programs of rdma-core 44 on x86-64 were compiled with. Compiling is the test: if a
 * header says otherwise, this library is not a drop-in.
 */
#include <stddef.h>
#include <infiniband/verbs.h>

#if defined(__x86_64__)
#define SIZE(type, n)	     _Static_assert(sizeof(struct type) == (n), #type)
#define AT(type, member, n)  _Static_assert(offsetof(struct type, member) == (n), #type "." #member)

SIZE(ibv_device, 664);
AT(ibv_device, node_type, 16);
AT(ibv_device, transport_type, 20);
AT(ibv_device, name, 24);
AT(ibv_device, dev_name, 88);
AT(ibv_device, dev_path, 152);
AT(ibv_device, ibdev_path, 408);
SIZE(ibv_context, 328);
AT(ibv_context, ops, 8);
AT(ibv_context, ops.alloc_mw, 64);
AT(ibv_context, ops.bind_mw, 72);
AT(ibv_context, ops.dealloc_mw, 80);
AT(ibv_context, ops.poll_cq, 96);
AT(ibv_context, ops.req_notify_cq, 104);
AT(ibv_context, ops.post_srq_recv, 168);
AT(ibv_context, ops.post_send, 208);
AT(ibv_context, ops.post_recv, 216);
AT(ibv_context, cmd_fd, 264);
AT(ibv_context, async_fd, 268);
AT(ibv_context, num_comp_vectors, 272);
AT(ibv_context, mutex, 280);
AT(ibv_context, abi_compat, 320);
SIZE(verbs_context, 648);
AT(verbs_context, query_port, 0);
AT(verbs_context, advise_mr, 8);
AT(verbs_context, priv, 208);
AT(verbs_context, query_device_ex, 216);
AT(verbs_context, create_qp_ex, 264);
AT(verbs_context, sz, 312);
AT(verbs_context, context, 320);
SIZE(ibv_pd, 16);
SIZE(ibv_mr, 48);
AT(ibv_mr, lkey, 36);
AT(ibv_mr, rkey, 40);
SIZE(ibv_mw, 32);
SIZE(ibv_cq, 128);
AT(ibv_cq, comp_events_completed, 120);
SIZE(ibv_cq_ex, 288);
AT(ibv_cq_ex, comp_mask, 128);
AT(ibv_cq_ex, status, 132);
AT(ibv_cq_ex, wr_id, 136);
AT(ibv_cq_ex, start_poll, 144);
SIZE(ibv_qp, 160);
AT(ibv_qp, qp_num, 52);
AT(ibv_qp, state, 56);
AT(ibv_qp, qp_type, 60);
AT(ibv_qp, mutex, 64);
AT(ibv_qp, events_completed, 152);
SIZE(ibv_qp_ex, 352);
AT(ibv_qp_ex, comp_mask, 160);
AT(ibv_qp_ex, wr_id, 168);
AT(ibv_qp_ex, wr_flags, 176);
AT(ibv_qp_ex, wr_atomic_cmp_swp, 184);
AT(ibv_qp_ex, wr_start, 320);
AT(ibv_qp_ex, wr_atomic_write, 344);
SIZE(ibv_srq, 128);
SIZE(ibv_ah, 24);
SIZE(ibv_comp_channel, 16);
AT(ibv_comp_channel, fd, 8);
AT(ibv_comp_channel, refcnt, 12);
SIZE(ibv_wc, 48);
SIZE(ibv_send_wr, 128);
SIZE(ibv_recv_wr, 32);
SIZE(ibv_sge, 16);
SIZE(ibv_port_attr, 52);
SIZE(ibv_device_attr, 232);
SIZE(ibv_device_attr_ex, 400);
AT(ibv_device_attr_ex, odp_caps, 240);
AT(ibv_device_attr_ex, odp_caps.per_transport_caps, 248);
AT(ibv_device_attr_ex, xrc_odp_caps, 392);
SIZE(ibv_qp_attr, 144);
SIZE(ibv_qp_init_attr, 64);
SIZE(ibv_qp_init_attr_ex, 136);
SIZE(ibv_ah_attr, 32);
SIZE(ibv_gid_entry, 32);
SIZE(ibv_async_event, 16);
SIZE(ibv_xrcd, 8);
SIZE(ibv_dm, 32);
SIZE(ibv_td, 8);
SIZE(ibv_parent_domain_init_attr, 48);
#endif
