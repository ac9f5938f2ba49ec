/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The private interface between libibverbs and the driver libraries of its own release. Programs reach
 * it through libmlx5 or libefa, whose mlx5dv and efadv functions they link to: those libraries must
 * load, and register themselves, and then find no device of theirs. So registering does nothing, and
 * everything else, which only a driver that owns a device calls, says that it is not there.
 */
#include "verbs/abi.h"

#include <errno.h>

/* tells drivers that a device may vanish under its objects; it does not */
VERBS_EXPORT extern int verbs_allow_disassociate_destroy;
int verbs_allow_disassociate_destroy;

#define STUB(type, result, name)                                                                   \
	VERBS_EXPORT type name(void);                                                              \
	VERBS_EXPORT type name(void)                                                               \
	{                                                                                          \
		return result;                                                                     \
	}

#define STUB_ERRNO(name)                                                                           \
	VERBS_EXPORT int name(void);                                                               \
	VERBS_EXPORT int name(void)                                                                \
	{                                                                                          \
		errno = EOPNOTSUPP;                                                                \
		return EOPNOTSUPP;                                                                 \
	}

STUB(void, , verbs_register_driver_34)
STUB(void, , verbs_set_ops)
STUB(void, , verbs_uninit_context)
STUB(void, , __verbs_log)
STUB(void *, NULL, _verbs_init_and_alloc_context)
STUB(void *, NULL, verbs_open_device)
STUB(unsigned int, 0, __ioctl_final_num_attrs)
STUB(int, -1, ibv_read_ibdev_sysfs_file)

STUB_ERRNO(execute_ioctl)
STUB_ERRNO(ibv_cmd_advise_mr)
STUB_ERRNO(ibv_cmd_alloc_dm)
STUB_ERRNO(ibv_cmd_alloc_mw)
STUB_ERRNO(ibv_cmd_alloc_pd)
STUB_ERRNO(ibv_cmd_attach_mcast)
STUB_ERRNO(ibv_cmd_close_xrcd)
STUB_ERRNO(ibv_cmd_create_ah)
STUB_ERRNO(ibv_cmd_create_counters)
STUB_ERRNO(ibv_cmd_create_cq)
STUB_ERRNO(ibv_cmd_create_cq_ex)
STUB_ERRNO(ibv_cmd_create_flow)
STUB_ERRNO(ibv_cmd_create_flow_action_esp)
STUB_ERRNO(ibv_cmd_create_qp)
STUB_ERRNO(ibv_cmd_create_qp_ex)
STUB_ERRNO(ibv_cmd_create_qp_ex2)
STUB_ERRNO(ibv_cmd_create_rwq_ind_table)
STUB_ERRNO(ibv_cmd_create_srq)
STUB_ERRNO(ibv_cmd_create_srq_ex)
STUB_ERRNO(ibv_cmd_create_wq)
STUB_ERRNO(ibv_cmd_dealloc_mw)
STUB_ERRNO(ibv_cmd_dealloc_pd)
STUB_ERRNO(ibv_cmd_dereg_mr)
STUB_ERRNO(ibv_cmd_destroy_ah)
STUB_ERRNO(ibv_cmd_destroy_counters)
STUB_ERRNO(ibv_cmd_destroy_cq)
STUB_ERRNO(ibv_cmd_destroy_flow)
STUB_ERRNO(ibv_cmd_destroy_flow_action)
STUB_ERRNO(ibv_cmd_destroy_qp)
STUB_ERRNO(ibv_cmd_destroy_rwq_ind_table)
STUB_ERRNO(ibv_cmd_destroy_srq)
STUB_ERRNO(ibv_cmd_destroy_wq)
STUB_ERRNO(ibv_cmd_detach_mcast)
STUB_ERRNO(ibv_cmd_free_dm)
STUB_ERRNO(ibv_cmd_get_context)
STUB_ERRNO(ibv_cmd_modify_cq)
STUB_ERRNO(ibv_cmd_modify_flow_action_esp)
STUB_ERRNO(ibv_cmd_modify_qp)
STUB_ERRNO(ibv_cmd_modify_qp_ex)
STUB_ERRNO(ibv_cmd_modify_srq)
STUB_ERRNO(ibv_cmd_modify_wq)
STUB_ERRNO(ibv_cmd_open_qp)
STUB_ERRNO(ibv_cmd_open_xrcd)
STUB_ERRNO(ibv_cmd_poll_cq)
STUB_ERRNO(ibv_cmd_post_recv)
STUB_ERRNO(ibv_cmd_post_send)
STUB_ERRNO(ibv_cmd_post_srq_recv)
STUB_ERRNO(ibv_cmd_query_context)
STUB_ERRNO(ibv_cmd_query_device_any)
STUB_ERRNO(ibv_cmd_query_mr)
STUB_ERRNO(ibv_cmd_query_port)
STUB_ERRNO(ibv_cmd_query_qp)
STUB_ERRNO(ibv_cmd_query_srq)
STUB_ERRNO(ibv_cmd_read_counters)
STUB_ERRNO(ibv_cmd_reg_dm_mr)
STUB_ERRNO(ibv_cmd_reg_dmabuf_mr)
STUB_ERRNO(ibv_cmd_reg_mr)
STUB_ERRNO(ibv_cmd_req_notify_cq)
STUB_ERRNO(ibv_cmd_rereg_mr)
STUB_ERRNO(ibv_cmd_resize_cq)
STUB_ERRNO(verbs_init_cq)

/* The registration functions of other releases, whose numbers are part of their names. */
#define REGISTER(number)                                                                           \
	VERBS_EXPORT void private_register_driver_##number(void);                                  \
	VERBS_EXPORT void private_register_driver_##number(void)                                   \
	{                                                                                          \
	}                                                                                          \
	VERBS_SYMVER(private_register_driver_##number, verbs_register_driver_##number,             \
		     IBVERBS_PRIVATE_##number)

REGISTER(25);
REGISTER(33);
REGISTER(57);
REGISTER(59);
REGISTER(65);
