/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions that releases after the headers we build with have added. A program built there must find
 * the names to load at all; the functions answer as on a device that has no such thing.
 */
#include "verbs/verbs.h"

struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;
struct ibv_buf;
struct ibv_buf_init_attr;

struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attr);
int ibv_dealloc_dmah(struct ibv_dmah *dmah);
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed);
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm);
struct ibv_buf *ibv_alloc_buf(struct ibv_pd *pd, struct ibv_buf_init_attr *attr);
int ibv_free_buf(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf);

VERBS_EXPORT struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attr)
{
	return fail_null(-EOPNOTSUPP);
}

VERBS_EXPORT int ibv_dealloc_dmah(struct ibv_dmah *dmah)
{
	return fail_errno(-EOPNOTSUPP);
}

VERBS_EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
	return fail_null(-EOPNOTSUPP);
}

VERBS_EXPORT int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed)
{
	return fail_errno(-EOPNOTSUPP);
}

VERBS_EXPORT int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm)
{
	errno = EOPNOTSUPP;
	return -1;
}

VERBS_EXPORT struct ibv_buf *ibv_alloc_buf(struct ibv_pd *pd, struct ibv_buf_init_attr *attr)
{
	return fail_null(-EOPNOTSUPP);
}

VERBS_EXPORT int ibv_free_buf(struct ibv_buf *buf)
{
	return fail_errno(-EOPNOTSUPP);
}

VERBS_EXPORT struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf)
{
	return fail_null(-EOPNOTSUPP);
}
