/* SPDX-License-Identifier: BSD-2-Clause */
/* What the object verbs refuse, and with which error: no traffic. */
#include "tests/verbs/test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static void device_list(void **state)
{
	struct ibv_device **a, **b;
	int n = -1;

	a = ibv_get_device_list(&n);
	assert_int_equal(n, 1);
	assert_string_equal(ibv_get_device_name(a[0]), "mlx5_fl0");
	assert_true(ibv_get_device_guid(a[0]) != 0);
	assert_int_equal(a[0]->node_type, IBV_NODE_CA);
	assert_null(a[1]);
	/* the zeros that keep real providers' helpers off */
	for (int i = 0; i < 64; i++)
		assert_int_equal(((char *)(a[0] + 1))[i], 0);
	b = ibv_get_device_list(NULL);
	assert_ptr_equal(a[0], b[0]);
	ibv_free_device_list(a);
	ibv_free_device_list(b);
	assert_string_equal(ibv_get_device_name(ctx->device), "mlx5_fl0");
}

static void context_shape(void **state)
{
	struct verbs_context *v = verbs_get_ctx(ctx);
	int fd;

	assert_non_null(v);
	assert_int_equal(v->sz, sizeof(*v));
	fd = dup(ctx->cmd_fd);
	assert_true(fd >= 0);
	close(fd);
	assert_true(fcntl(ctx->async_fd, F_GETFL) >= 0);
	assert_true(ctx->num_comp_vectors > 0);
}

static void query_sizes(void **state)
{
	struct verbs_context *v = verbs_get_ctx(ctx);
	unsigned char buf[512];
	struct ibv_device_attr_ex attr;
	struct ibv_port_attr port;

	/* smaller than ours, larger than ours: never a byte more than the caller's */
	memset(buf, 0xee, sizeof(buf));
	assert_int_equal(v->query_device_ex(ctx, NULL, (void *)buf, 304), 0);
	assert_int_equal(buf[304], 0xee);
	assert_int_equal(v->query_device_ex(ctx, NULL, (void *)buf, 100), EINVAL);
	assert_int_equal(v->query_device_ex(ctx, NULL, (void *)buf, 480), 0);
	for (int i = 400; i < 480; i++)
		assert_int_equal(buf[i], 0);
	assert_int_equal(buf[480], 0xee);
	assert_int_equal(ibv_query_device_ex(ctx, NULL, &attr), 0);
	assert_int_equal(attr.orig_attr.phys_port_cnt, 1);
	assert_true(attr.orig_attr.node_guid == ibv_get_device_guid(ctx->device));
	assert_true(attr.orig_attr.fw_ver[0]);
	assert_true(attr.odp_caps.general_caps & IBV_ODP_SUPPORT);

	memset(buf, 0xee, sizeof(buf));
	assert_int_equal(v->query_port(ctx, 1, (void *)buf, 52), 0);
	assert_int_equal(buf[52], 0xee);
	memset(buf, 0xee, sizeof(buf));
#undef ibv_query_port
	assert_int_equal(ibv_query_port(ctx, 1, (struct _compat_ibv_port_attr *)buf), 0);
	assert_int_equal(buf[50], 0xee);
	assert_int_equal(___ibv_query_port(ctx, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.active_mtu, IBV_MTU_4096);
	assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(___ibv_query_port(ctx, 0, &port), EINVAL);
	assert_int_equal(___ibv_query_port(ctx, 2, &port), EINVAL);
}

static void gids(void **state)
{
	struct ibv_gid_entry e, table[256];
	union ibv_gid gid;
	__be16 pkey;
	ssize_t n;

	assert_int_equal(ibv_query_gid(ctx, 1, 0, &gid), 0);
	assert_int_equal(gid.raw[10] & gid.raw[11], 0xff); /* IPv4-mapped first */
	assert_int_equal(gid.raw[12], 127);
	assert_int_equal(ibv_query_gid_ex(ctx, 1, 0, &e, 0), 0);
	assert_memory_equal(&e.gid, &gid, 16);
	assert_int_equal(e.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(e.port_num, 1);
	assert_true(e.ndev_ifindex > 0);
	n = ibv_query_gid_table(ctx, table, 256, 0);
	assert_true(n >= 1);
	assert_int_equal(ibv_query_gid_table(ctx, table, (size_t)n - 1, 0), -EINVAL);
	/* empty: an answer for one, an error for the other */
	assert_int_equal(ibv_query_gid(ctx, 1, 200, &gid), 0);
	for (int i = 0; i < 16; i++)
		assert_int_equal(gid.raw[i], 0);
	assert_int_equal(ibv_query_gid_ex(ctx, 1, 200, &e, 0), ENODATA);
	assert_int_equal(ibv_query_gid(ctx, 1, 256, &gid), -1);
	assert_int_equal(ibv_query_gid(ctx, 2, 0, &gid), -1);
	assert_int_equal(ibv_query_pkey(ctx, 1, 0, &pkey), 0);
	assert_int_equal(pkey, 0xffff);
	assert_int_equal(ibv_query_pkey(ctx, 1, 1, &pkey), -1);
	assert_int_equal(ibv_get_pkey_index(ctx, 1, 0xffff), 0);
}

static void pd_in_use(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	void *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, p, 8192, IBV_ACCESS_LOCAL_WRITE);

	assert_non_null(mr);
	assert_int_equal(mr->lkey, mr->rkey);
	assert_true(mr->lkey != 0);
	assert_ptr_equal(mr->addr, p);
	assert_int_equal(mr->length, 8192);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
			 IBV_REREG_MR_ERR_CMD);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	munmap(p, 8192);
}

static void mr_refusals(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	char *p = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned lw = IBV_ACCESS_LOCAL_WRITE, rw = IBV_ACCESS_REMOTE_WRITE, odp = IBV_ACCESS_ON_DEMAND;
	struct ibv_mr *mr;

	munmap(p + 8192, 4096);
	assert_null_errno(ibv_reg_mr(pd, p, 4096, rw), EINVAL);
	assert_null_errno(ibv_reg_mr(pd, p, 4096, IBV_ACCESS_REMOTE_ATOMIC | odp), EINVAL);
	assert_null_errno(ibv_reg_mr(pd, p, 4096, lw | 1u << 30), EINVAL);
	assert_null_errno(ibv_reg_mr(pd, p, 0, lw), EINVAL);
	assert_null_errno(ibv_reg_mr(pd, p, 0, lw | odp), EINVAL);
	assert_null_errno(ibv_reg_mr(pd, (void *)-4096, 8192, lw), EINVAL);
	assert_null_errno(ibv_reg_mr(pd, (void *)-4096, 8192, lw | odp), EOVERFLOW);
	assert_null_errno(ibv_reg_mr(pd, NULL, SIZE_MAX, lw), EINVAL); /* implicit regions are on demand */
	assert_null_errno(ibv_reg_mr(pd, p, 16384, lw), EFAULT);
	assert_null_errno(ibv_reg_mr_iova(pd, p, 4096, 8, lw), EINVAL);
	assert_null_errno(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, lw), EBADF);
	assert_null_errno(ibv_alloc_mw(pd, IBV_MW_TYPE_1), EOPNOTSUPP);
	assert_null_errno(ibv_alloc_null_mr(pd), EOPNOTSUPP);

	mr = ibv_reg_mr(pd, p, 16384, lw | odp);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	/* the optional range is ignored, known or not */
	mr = ibv_reg_mr(pd, p, 4096, lw | IBV_ACCESS_RELAXED_ORDERING | 1u << 29);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	mr = ibv_reg_mr_iova(pd, p + 8, 100, 8, lw);
	assert_non_null(mr);
	assert_ptr_equal(mr->addr, p + 8);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	munmap(p, 16384);
}

static void cq_limits(void **state)
{
	struct ibv_device_attr attr;
	struct ibv_cq *cq;

	assert_int_equal(ibv_query_device(ctx, &attr), 0);
	assert_null_errno(ibv_create_cq(ctx, 0, NULL, NULL, 0), EINVAL);
	assert_null_errno(ibv_create_cq(ctx, -1, NULL, NULL, 0), EINVAL);
	assert_null_errno(ibv_create_cq(ctx, attr.max_cqe + 1, NULL, NULL, 0), EINVAL);
	assert_null_errno(ibv_create_cq(ctx, 1, NULL, NULL, ctx->num_comp_vectors), EINVAL);
	assert_null_errno(ibv_create_cq(ctx, 1, NULL, NULL, -1), EINVAL);

	static const int granted[][2] = {{1, 1}, {2, 3}, {16, 31}, {64, 127}};

	for (int i = 0; i < 4; i++) {
		cq = ibv_create_cq(ctx, granted[i][0], (void *)7, NULL, 0);
		assert_non_null(cq);
		assert_int_equal(cq->cqe, granted[i][1]);
		assert_ptr_equal(cq->cq_context, (void *)7);
		assert_int_equal(ibv_resize_cq(cq, attr.max_cqe + 1), EINVAL);
		assert_int_equal(ibv_resize_cq(cq, 0), EINVAL);
		assert_int_equal(ibv_resize_cq(cq, 200), 0);
		assert_int_equal(cq->cqe, 255);
		assert_int_equal(ibv_destroy_cq(cq), 0);
	}
}

static void cq_ex(void **state)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 10, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_poll_cq_attr poll_attr = {0};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &attr);
	struct ibv_wc wc;

	assert_non_null(cq);
	assert_int_equal(ibv_start_poll(cq, &poll_attr), ENOENT);
	assert_int_equal(ibv_start_poll(cq, &poll_attr), ENOENT);
	poll_attr.comp_mask = 1;
	assert_int_equal(ibv_start_poll(cq, &poll_attr), EINVAL);
	assert_int_equal(ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	attr.wc_flags = IBV_WC_EX_WITH_TM_INFO;
	assert_null_errno(ibv_create_cq_ex(ctx, &attr), EOPNOTSUPP);
	attr.wc_flags = 0;
	attr.comp_mask = 1 << 5;
	assert_null_errno(ibv_create_cq_ex(ctx, &attr), EOPNOTSUPP);
}

static void qp_limits(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 10, NULL, NULL, 0);
	struct ibv_qp_init_attr good = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 3, .max_recv_wr = 3, .max_send_sge = 1,
						.max_recv_sge = 1, .max_inline_data = 33}};
	struct ibv_qp_init_attr init = good;
	struct ibv_qp *qp;

	/* what doubles its wish until it is refused must be refused at last */
	for (uint32_t inl = 64; inl < 1u << 30; inl *= 2) {
		init.cap.max_inline_data = inl;
		qp = ibv_create_qp(pd, &init);
		if (!qp)
			break;
		assert_true(init.cap.max_inline_data >= inl);
		assert_int_equal(ibv_destroy_qp(qp), 0);
		init = good;
	}
	assert_null(qp);
	assert_int_equal(errno, EINVAL);
	init = good;
	init.cap.max_send_sge = 1000;
	assert_null_errno(ibv_create_qp(pd, &init), EINVAL);
	init = good;
	init.cap.max_recv_wr = 1u << 30;
	assert_null_errno(ibv_create_qp(pd, &init), EINVAL);
	init = good;
	init.recv_cq = NULL;
	assert_null_errno(ibv_create_qp(pd, &init), EINVAL);
	init = good;
	init.qp_type = IBV_QPT_RAW_PACKET;
	assert_null_errno(ibv_create_qp(pd, &init), EOPNOTSUPP);
	init.qp_type = IBV_QPT_DRIVER;
	assert_null_errno(ibv_create_qp(pd, &init), EOPNOTSUPP);

	init = good;
	qp = ibv_create_qp(pd, &init);
	assert_non_null(qp);
	assert_true(init.cap.max_send_wr >= 3 && init.cap.max_inline_data >= 33);
	assert_null(ibv_qp_to_qp_ex(qp));
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static int try_rtr(struct ibv_qp *qp, int bad, int mask)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}},
	};

	if (ibv_query_gid(ctx, 1, 0, &attr.ah_attr.grh.dgid))
		return -1;
	switch (bad) {
	case 1:
		attr.ah_attr.is_global = 0;
		break;
	case 2:
		attr.ah_attr.port_num = 2;
		break;
	case 3:
		attr.ah_attr.grh.sgid_index = 200;
		break;
	case 4:
		attr.path_mtu = (enum ibv_mtu)6;
		break;
	case 5:
		attr.max_dest_rd_atomic = 255;
		break;
	case 6:
		attr.min_rnr_timer = 32;
		break;
	}
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
						IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
						IBV_QP_MIN_RNR_TIMER | mask);
}

static int try_rts(struct ibv_qp *qp, uint8_t retry_cnt, uint8_t rnr_retry, uint8_t timeout)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .retry_cnt = retry_cnt,
				   .rnr_retry = rnr_retry, .timeout = timeout, .max_rd_atomic = 1};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void modify_refusals(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 10, NULL, NULL, 0);
	struct ibv_qp *qp = make_rc(pd, cq);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 2};
	int mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
	struct ibv_qp_init_attr init;

	assert_non_null(qp);
	assert_int_equal(to_state(qp, IBV_QPS_ERR), EINVAL);
	assert_int_equal(ibv_modify_qp(qp, &attr, mask), EINVAL);
	attr.port_num = 1;
	attr.pkey_index = 1;
	assert_int_equal(ibv_modify_qp(qp, &attr, mask), EINVAL);
	assert_int_equal(qp->state, IBV_QPS_RESET);
	assert_int_equal(to_init(qp), 0);
	assert_int_equal(qp->state, IBV_QPS_INIT);
	for (int bad = 1; bad <= 6; bad++)
		assert_int_equal(try_rtr(qp, bad, 0), bad == 3 ? ENODATA : EINVAL);
	assert_int_equal(try_rtr(qp, 0, IBV_QP_QKEY), EINVAL);
	assert_int_equal(try_rtr(qp, 0, 0), 0);
	assert_int_equal(try_rts(qp, 8, 7, 14), EINVAL);
	assert_int_equal(try_rts(qp, 7, 8, 14), EINVAL);
	assert_int_equal(try_rts(qp, 7, 7, 32), EINVAL);
	assert_int_equal(try_rts(qp, 7, 7, 14), 0);
	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.retry_cnt, 7);
	assert_int_equal(attr.path_mtu, IBV_MTU_1024);
	assert_ptr_equal(init.send_cq, cq);
	assert_int_equal(init.qp_type, IBV_QPT_RC);
	assert_true(init.cap.max_send_wr >= 4);
	assert_int_equal(to_state(qp, IBV_QPS_RESET), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void builders(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 10, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ,
	};
	struct ibv_qp *qp;
	struct ibv_qp_ex *x;

	qp = ibv_create_qp_ex(ctx, &init);
	assert_non_null(qp);
	x = ibv_qp_to_qp_ex(qp);
	assert_non_null(x);
	/* the state is wrong, as for ibv_post_send */
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_set_sge(x, 1, 0, 0);
	assert_int_equal(ibv_wr_complete(x), EINVAL);
	/* not ours to do */
	ibv_wr_start(x);
	ibv_wr_local_inv(x, 1);
	assert_int_equal(ibv_wr_complete(x), EOPNOTSUPP);
	/* a slot that only a later header knows */
	ibv_wr_start(x);
	((void (**)(struct ibv_qp_ex *))(x + 1))[0](x);
	assert_int_equal(ibv_wr_complete(x), EOPNOTSUPP);
	/* a setter before any request; inline data past the limit */
	ibv_wr_start(x);
	ibv_wr_set_sge(x, 1, 0, 0);
	assert_int_equal(ibv_wr_complete(x), EINVAL);
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_set_inline_data(x, x, 1u << 20);
	assert_int_equal(ibv_wr_complete(x), EINVAL);
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_abort(x);
	ibv_wr_start(x);
	assert_int_equal(ibv_wr_complete(x), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);

	init.send_ops_flags = IBV_QP_EX_WITH_TSO;
	assert_null_errno(ibv_create_qp_ex(ctx, &init), EOPNOTSUPP);
	init.send_ops_flags = 0;
	init.comp_mask |= IBV_QP_INIT_ATTR_IND_TABLE;
	assert_null_errno(ibv_create_qp_ex(ctx, &init), EOPNOTSUPP);
	init.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	assert_null_errno(ibv_create_qp_ex(ctx, &init), EINVAL);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void ah(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_ah_attr attr = {.port_num = 1, .grh = {.hop_limit = 1}};
	uint8_t area[40] = {0};
	/* 127.0.0.9 to 127.0.0.1, with a tag in the type of service; checksum left out */
	uint8_t ip[20] = {0x45, 0xaa, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 9, 127, 0, 0, 1};
	struct ibv_wc wc = {.wc_flags = IBV_WC_GRH};
	struct ibv_ah *h;

	assert_null_errno(ibv_create_ah(pd, &attr), EINVAL); /* not global */
	attr.is_global = 1;
	attr.grh.sgid_index = 200;
	assert_null_errno(ibv_create_ah(pd, &attr), ENODATA);
	attr.grh.sgid_index = 0;
	h = ibv_create_ah(pd, &attr);
	assert_non_null(h);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_destroy_ah(h), 0);

	memcpy(area + 20, ip, sizeof(ip));
	assert_int_equal(ibv_init_ah_from_wc(ctx, 1, &wc, (struct ibv_grh *)area, &attr), 0);
	assert_int_equal(attr.grh.sgid_index, 0);
	assert_int_equal(attr.grh.traffic_class, 0xaa);
	assert_int_equal(attr.grh.dgid.raw[15], 9);
	assert_int_equal(attr.grh.dgid.raw[11], 0xff);
	area[39] = 77; /* to somebody else */
	assert_int_equal(ibv_init_ah_from_wc(ctx, 1, &wc, (struct ibv_grh *)area, &attr), -1);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void unsupported(void **state)
{
	struct ibv_td_init_attr td = {0};
	struct ibv_parent_domain_init_attr parent = {0};

	assert_null_errno(ibv_alloc_td(ctx, &td), EOPNOTSUPP);
	assert_null_errno(ibv_alloc_parent_domain(ctx, &parent), EOPNOTSUPP);
	assert_null_errno(ibv_import_device(ctx->cmd_fd), EOPNOTSUPP);
	assert_int_equal(ibv_fork_init(), 0);
	assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	assert_string_equal(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
	assert_string_equal(ibv_wc_status_str((enum ibv_wc_status)99), "unknown");
	assert_int_equal(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
	assert_int_equal(mult_to_ibv_rate(4), IBV_RATE_10_GBPS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_list), cmocka_unit_test(context_shape),
		cmocka_unit_test(query_sizes), cmocka_unit_test(gids),
		cmocka_unit_test(pd_in_use),   cmocka_unit_test(mr_refusals),
		cmocka_unit_test(cq_limits),   cmocka_unit_test(cq_ex),
		cmocka_unit_test(qp_limits),   cmocka_unit_test(modify_refusals),
		cmocka_unit_test(builders),    cmocka_unit_test(ah),
		cmocka_unit_test(unsupported),
	};

	return cmocka_run_group_tests(tests, open_first, close_it);
}
