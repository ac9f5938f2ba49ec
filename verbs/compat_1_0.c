/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The versions @IBVERBS_1.0, of 2006: the same names as today's with objects of another shape. No
 * program in use links to them; they exist so that one that does is told so and not torn apart. All
 * begins with the device list, so that no other can be reached with a good object.
 */
#include "verbs/abi.h"

#include <errno.h>
#include "util/log.h"

static void say_so(const char *name)
{
	fl_err("%s: this program was linked to libibverbs 1.0; link it again, to 1.1 or later", name);
	errno = ENOSYS;
}

/* returns what means failure for the kind of function */
#define COMPAT(type, failure, name)                                                                \
	VERBS_EXPORT type compat_##name(void);                                                     \
	VERBS_EXPORT type compat_##name(void)                                                      \
	{                                                                                          \
		say_so(#name);                                                                     \
		return failure;                                                                    \
	}                                                                                          \
	VERBS_SYMVER(compat_##name, name, IBVERBS_1.0)

COMPAT(void, , ibv_ack_async_event);
COMPAT(void, , ibv_ack_cq_events);
COMPAT(void *, NULL, ibv_alloc_pd);
COMPAT(int, ENOSYS, ibv_attach_mcast);
COMPAT(int, ENOSYS, ibv_close_device);
COMPAT(void *, NULL, ibv_create_ah);
COMPAT(void *, NULL, ibv_create_cq);
COMPAT(void *, NULL, ibv_create_qp);
COMPAT(void *, NULL, ibv_create_srq);
COMPAT(int, ENOSYS, ibv_dealloc_pd);
COMPAT(int, ENOSYS, ibv_dereg_mr);
COMPAT(int, ENOSYS, ibv_destroy_ah);
COMPAT(int, ENOSYS, ibv_destroy_cq);
COMPAT(int, ENOSYS, ibv_destroy_qp);
COMPAT(int, ENOSYS, ibv_destroy_srq);
COMPAT(int, ENOSYS, ibv_detach_mcast);
COMPAT(void, , ibv_free_device_list);
COMPAT(int, -1, ibv_get_async_event);
COMPAT(int, -1, ibv_get_cq_event);
COMPAT(uint64_t, 0, ibv_get_device_guid);
COMPAT(void *, NULL, ibv_get_device_list);
COMPAT(void *, NULL, ibv_get_device_name);
COMPAT(int, ENOSYS, ibv_modify_qp);
COMPAT(int, ENOSYS, ibv_modify_srq);
COMPAT(void *, NULL, ibv_open_device);
COMPAT(int, -1, ibv_query_device);
COMPAT(int, -1, ibv_query_gid);
COMPAT(int, -1, ibv_query_pkey);
COMPAT(int, -1, ibv_query_port);
COMPAT(int, ENOSYS, ibv_query_qp);
COMPAT(int, ENOSYS, ibv_query_srq);
COMPAT(void *, NULL, ibv_reg_mr);
COMPAT(int, ENOSYS, ibv_resize_cq);

/* How drivers made themselves known in the days of 1.1. */
VERBS_EXPORT void compat_ibv_register_driver(const char *name, void *init);
VERBS_EXPORT void compat_ibv_register_driver(const char *name, void *init)
{
}
VERBS_SYMVER(compat_ibv_register_driver, ibv_register_driver, IBVERBS_1.1);
