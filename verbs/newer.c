/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions that releases after the headers we build with have added. A program built there must find
 * the names to load at all; but for ibv_reg_mr_ex() they answer as on a device that has no such thing.
 */
#include "verbs/verbs.h"

struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_buf;
struct ibv_buf_init_attr;

enum ibv_mr_init_attr_mask {
	IBV_REG_MR_MASK_IOVA = 1 << 0,
	IBV_REG_MR_MASK_ADDR = 1 << 1,
	IBV_REG_MR_MASK_FD = 1 << 2,
	IBV_REG_MR_MASK_FD_OFFSET = 1 << 3,
};

/* what the caller has not set in comp_mask it may not even have */
struct ibv_mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
};

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

/* A DMA handle, a buffer of the library's: there are none here to be given. */
VERBS_EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
	const uint64_t by_fd = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET;
	uint64_t mask = attr->comp_mask;

	if (mask & ~(by_fd | IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_IOVA))
		return fail_null(-EOPNOTSUPP);
	/* of a dma-buf all three must be said: it has no address that could stand for iova */
	if (mask == (by_fd | IBV_REG_MR_MASK_IOVA))
		return ibv_reg_dmabuf_mr(pd, attr->fd_offset, attr->length, attr->iova, attr->fd, attr->access);
	if (mask & by_fd || !(mask & IBV_REG_MR_MASK_ADDR))
		return fail_null(-EINVAL);
	return ibv_reg_mr_iova2(pd, attr->addr, attr->length,
				mask & IBV_REG_MR_MASK_IOVA ? attr->iova : (uintptr_t)attr->addr,
				(unsigned int)attr->access);
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
