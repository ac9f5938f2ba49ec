/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each device profile answers as its driver does: what is expected is written down here once more,
 * by hand, as seen from a program. All devices are open at once in this process, and send to each
 * other.
 */
#include "tests/verbs/test.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>

enum { MLX5, RXE, IRDMA, BNXT_RE, MANA, EFA, NUM };
#define BUF (64u << 10)

struct expected {
	const char *name;
	uint32_t vendor, max_qp_wr, max_sge, inline_data, gid_tbl_len, max_msg_sz, lid;
	enum ibv_atomic_cap atomics;
	int rd_atom, init_rd_atom;
	int rc, uc, ud, driver, xrc;	    /* what ibv_create_qp says */
	int on_demand, implicit, atomic_mr, huge_mr; /* what ibv_reg_mr says to the access flag */
	int srq, cq_ex, cq_stamps, resize, builders;
	uint8_t link_layer;
};

static const struct expected want[NUM] = {
	[MLX5] = {.name = "mlx5_fl0", .vendor = 0x00fa17, .max_qp_wr = 32768, .max_sge = 30,
		.inline_data = 1024, .gid_tbl_len = 256, .max_msg_sz = 1u << 31,
		.atomics = IBV_ATOMIC_HCA, .rd_atom = 16, .init_rd_atom = 16,
		.driver = EOPNOTSUPP, .link_layer = IBV_LINK_LAYER_ETHERNET},
	[RXE] = {.name = "rxe_fl0", .vendor = 0xffffff, .max_qp_wr = 1048576, .max_sge = 32,
		.inline_data = 512, .gid_tbl_len = 1024, .max_msg_sz = 1u << 31,
		.atomics = IBV_ATOMIC_HCA, .rd_atom = 128, .init_rd_atom = 128,
		.driver = EOPNOTSUPP, .xrc = EOPNOTSUPP, .implicit = EINVAL,
		.huge_mr = EOPNOTSUPP, .cq_stamps = EOPNOTSUPP,
		.link_layer = IBV_LINK_LAYER_ETHERNET},
	[IRDMA] = {.name = "irdma_fl0", .vendor = 0x8086, .max_qp_wr = 4063, .max_sge = 13,
		.inline_data = 101, .gid_tbl_len = 32, .max_msg_sz = 0x7fffffff, .lid = 1,
		.atomics = IBV_ATOMIC_NONE, .rd_atom = 127, .init_rd_atom = 255,
		.uc = EOPNOTSUPP, .driver = EOPNOTSUPP, .xrc = EOPNOTSUPP,
		.on_demand = EOPNOTSUPP, .implicit = EOPNOTSUPP, .srq = EOPNOTSUPP,
		.cq_stamps = EOPNOTSUPP, .builders = EOPNOTSUPP,
		.link_layer = IBV_LINK_LAYER_ETHERNET},
	[BNXT_RE] = {.name = "bnxt_re_fl0", .vendor = 0x14e4, .max_qp_wr = 65535, .max_sge = 6,
		.inline_data = 96, .gid_tbl_len = 256, .max_msg_sz = 1u << 30,
		.atomics = IBV_ATOMIC_GLOB, .rd_atom = 126, .init_rd_atom = 126, .uc = EINVAL,
		.driver = EINVAL, .xrc = EINVAL, .on_demand = EOPNOTSUPP,
		.implicit = EOPNOTSUPP, .cq_ex = EOPNOTSUPP, .cq_stamps = EOPNOTSUPP,
		.link_layer = IBV_LINK_LAYER_ETHERNET},
	[MANA] = {.name = "mana_fl0", .vendor = 0x1414, .max_qp_wr = 2048, .max_sge = 15,
		.inline_data = 0, .gid_tbl_len = 16, .max_msg_sz = 1u << 30,
		.atomics = IBV_ATOMIC_NONE, .rd_atom = 32, .init_rd_atom = 32,
		.uc = EOPNOTSUPP, .ud = EOPNOTSUPP, .driver = EOPNOTSUPP, .xrc = EOPNOTSUPP,
		.on_demand = EOPNOTSUPP, .implicit = EOPNOTSUPP, .huge_mr = EOPNOTSUPP,
		.srq = EOPNOTSUPP, .cq_ex = EOPNOTSUPP, .cq_stamps = EOPNOTSUPP,
		.resize = EOPNOTSUPP, .builders = EOPNOTSUPP,
		.link_layer = IBV_LINK_LAYER_ETHERNET},
	[EFA] = {.name = "efa_fl0", .vendor = 0x1d0f, .max_qp_wr = 4096, .max_sge = 2,
		.inline_data = 32, .gid_tbl_len = 1, .max_msg_sz = 4096,
		.atomics = IBV_ATOMIC_NONE, .rc = EOPNOTSUPP, .uc = EOPNOTSUPP,
		.driver = EOPNOTSUPP, .xrc = EOPNOTSUPP, .on_demand = EOPNOTSUPP,
		.implicit = EOPNOTSUPP, .atomic_mr = EOPNOTSUPP, .huge_mr = EOPNOTSUPP,
		.srq = EOPNOTSUPP, .cq_stamps = EOPNOTSUPP, .resize = EOPNOTSUPP,
		.link_layer = IBV_LINK_LAYER_UNSPECIFIED},
};

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *buf;
};

static struct side side[NUM];

static int open_all(void **state)
{
	struct ibv_device **list;
	int n;

	setenv("FAULTLINE_CONFIG", "/dev/null", 1);
	setenv("FAULTLINE_DEVICE", "mlx5,rxe,irdma,bnxt_re,mana,efa", 1);
	setenv("FAULTLINE_NETDEV", "lo", 1);
	unsetenv("FAULTLINE_NAME");
	list = ibv_get_device_list(&n);
	if (!list || n != NUM)
		return -1;
	for (int i = 0; i < NUM; i++) {
		struct side *s = &side[i];

		if (strcmp(ibv_get_device_name(list[i]), want[i].name))
			return -1;
		s->ctx = ibv_open_device(list[i]);
		s->pd = s->ctx ? ibv_alloc_pd(s->ctx) : NULL;
		s->cq = s->pd ? ibv_create_cq(s->ctx, 16, NULL, NULL, 0) : NULL;
		s->buf = mmap(NULL, BUF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (!s->cq || s->buf == MAP_FAILED)
			return -1;
	}
	ibv_free_device_list(list);
	return 0;
}

static int close_all(void **state)
{
	for (int i = 0; i < NUM; i++) {
		struct side *s = &side[i];

		if (ibv_destroy_cq(s->cq) || ibv_dealloc_pd(s->pd) || ibv_close_device(s->ctx))
			return -1;
		munmap(s->buf, BUF);
	}
	return 0;
}

static int make_qp(struct side *s, enum ibv_qp_type type, struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr init = {
		.send_cq = s->cq, .recv_cq = s->cq, .qp_type = type, .cap = cap, .sq_sig_all = 1};

	errno = 0;
	s->qp = ibv_create_qp(s->pd, &init);
	return s->qp ? 0 : errno;
}

static const struct ibv_qp_cap small = {
	.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1};

/* what creation said; a QP that came to be is gone again */
static int try_qp(struct side *s, enum ibv_qp_type type, struct ibv_qp_cap cap)
{
	int err = make_qp(s, type, cap);

	if (!err)
		assert_int_equal(ibv_destroy_qp(s->qp), 0);
	s->qp = NULL;
	return err;
}

static int try_mr(struct side *s, int access)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr(s->pd, s->buf, BUF, access);
	if (!mr)
		return errno;
	assert_int_equal(ibv_dereg_mr(mr), 0);
	return 0;
}

/* every assertion in a loop is about some device: say which when it fails */
#define each_device(i)                                                                             \
	for (int i = 0; i < NUM && (print_message("%s\n", want[i].name), true); i++)

static void attributes(void **state)
{
	each_device (i) {
		struct ibv_device_attr_ex attr;
		struct ibv_port_attr port;
		union ibv_gid gid;

		assert_int_equal(ibv_query_device_ex(side[i].ctx, NULL, &attr), 0);
		assert_int_equal(attr.orig_attr.vendor_id, want[i].vendor);
		assert_int_equal(attr.orig_attr.max_qp_wr, want[i].max_qp_wr);
		assert_int_equal(attr.orig_attr.max_sge, want[i].max_sge);
		assert_int_equal(attr.orig_attr.atomic_cap, want[i].atomics);
		assert_int_equal(attr.orig_attr.max_qp_rd_atom, want[i].rd_atom);
		assert_int_equal(attr.orig_attr.max_qp_init_rd_atom, want[i].init_rd_atom);
		assert_int_equal(!(attr.odp_caps.general_caps & IBV_ODP_SUPPORT),
				 !!want[i].on_demand);
		if (want[i].on_demand)
			assert_int_equal(attr.odp_caps.general_caps |
						 attr.odp_caps.per_transport_caps.rc_odp_caps |
						 attr.odp_caps.per_transport_caps.uc_odp_caps |
						 attr.odp_caps.per_transport_caps.ud_odp_caps |
						 attr.xrc_odp_caps,
					 0);
		assert_int_equal(!attr.orig_attr.max_srq, !!want[i].srq);

		assert_int_equal(ibv_query_port(side[i].ctx, 1, &port), 0);
		assert_int_equal(port.gid_tbl_len, want[i].gid_tbl_len);
		assert_int_equal(port.max_msg_sz, want[i].max_msg_sz);
		assert_int_equal(port.lid, want[i].lid);
		assert_int_equal(port.link_layer, want[i].link_layer);
		assert_int_equal(ibv_query_gid(side[i].ctx, 1, 0, &gid), 0);
		errno = 0;
		assert_int_equal(ibv_query_gid(side[i].ctx, 1, (int)want[i].gid_tbl_len, &gid), -1);
		assert_int_equal(errno, EINVAL);
	}
}

static void qp_types(void **state)
{
	each_device (i) {
		struct side *s = &side[i];

		assert_int_equal(try_qp(s, IBV_QPT_RC, small), want[i].rc);
		assert_int_equal(try_qp(s, IBV_QPT_UC, small), want[i].uc);
		assert_int_equal(try_qp(s, IBV_QPT_UD, small), want[i].ud);
		assert_int_equal(try_qp(s, IBV_QPT_DRIVER, small), want[i].driver);
		assert_int_equal(try_qp(s, IBV_QPT_XRC_SEND, small), want[i].xrc);
	}
}

/* all of XRC or nothing: the flag, domains, SRQs of them, SRQ numbers, QPs that are opened */
static void xrc(void **state)
{
	each_device (i) {
		struct ibv_xrcd_init_attr xa = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
						.fd = -1};
		struct ibv_srq_init_attr_ex sa = {.attr = {.max_wr = 4, .max_sge = 1}, .srq_type = IBV_SRQT_XRC,
						  .comp_mask = IBV_SRQ_INIT_ATTR_TYPE};
		struct ibv_srq_init_attr plain = {.attr = {.max_wr = 4, .max_sge = 1}};
		struct ibv_qp_open_attr oa = {.comp_mask = 0};
		bool has = !want[i].xrc;
		struct side *s = &side[i];
		struct ibv_device_attr_ex attr;
		struct ibv_xrcd *xrcd;
		struct ibv_srq *srq;
		uint32_t num;

		assert_int_equal(ibv_query_device_ex(s->ctx, NULL, &attr), 0);
		assert_int_equal(!!(attr.orig_attr.device_cap_flags & IBV_DEVICE_XRC), has);
		assert_int_equal(!!attr.xrc_odp_caps, has);
		errno = 0;
		xrcd = ibv_open_xrcd(s->ctx, &xa);
		assert_int_equal(errno, has ? 0 : EOPNOTSUPP);
		errno = 0;
		assert_null(ibv_create_srq_ex(s->ctx, &sa));
		assert_int_equal(errno, has ? EINVAL : EOPNOTSUPP);
		errno = 0;
		assert_null(ibv_open_qp(s->ctx, &oa));
		assert_int_equal(errno, has ? EINVAL : EOPNOTSUPP);
		srq = ibv_create_srq(s->pd, &plain);
		if (srq) {
			assert_int_equal(ibv_get_srq_num(srq, &num), has ? 0 : EOPNOTSUPP);
			assert_int_equal(ibv_destroy_srq(srq), 0);
		}
		if (has)
			assert_int_equal(ibv_close_xrcd(xrcd), 0);
	}
}

/* as much as it says that it has, and one more */
static void limits(void **state)
{
	each_device (i) {
		enum ibv_qp_type type = want[i].rc ? IBV_QPT_UD : IBV_QPT_RC;
		struct ibv_qp_cap cap = small;
		struct side *s = &side[i];

		cap.max_send_sge = cap.max_recv_sge = want[i].max_sge;
		assert_int_equal(try_qp(s, type, cap), 0);
		cap.max_send_sge++;
		assert_int_equal(try_qp(s, type, cap), EINVAL);
		cap = small;
		cap.max_inline_data = want[i].inline_data;
		assert_int_equal(try_qp(s, type, cap), 0);
		cap.max_inline_data++;
		assert_int_equal(try_qp(s, type, cap), EINVAL);
		cap = small;
		cap.max_recv_wr = want[i].max_qp_wr + 1;
		assert_int_equal(try_qp(s, type, cap), EINVAL);
	}
}

static void access_flags(void **state)
{
	const int rw = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	each_device (i) {
		struct side *s = &side[i];
		struct ibv_mr *mr;

		assert_int_equal(try_mr(s, rw), 0);
		assert_int_equal(try_mr(s, rw | IBV_ACCESS_RELAXED_ORDERING), 0);
		assert_int_equal(try_mr(s, rw | IBV_ACCESS_ON_DEMAND), want[i].on_demand);
		assert_int_equal(try_mr(s, rw | IBV_ACCESS_REMOTE_ATOMIC), want[i].atomic_mr);
		assert_int_equal(try_mr(s, rw | IBV_ACCESS_HUGETLB), want[i].huge_mr);
		errno = 0;
		mr = ibv_reg_mr(s->pd, NULL, SIZE_MAX, rw | IBV_ACCESS_ON_DEMAND);
		assert_int_equal(mr ? 0 : errno, want[i].implicit);
		if (mr)
			assert_int_equal(ibv_dereg_mr(mr), 0);
		/* who imports dma-bufs looks at the descriptor */
		errno = 0;
		assert_null(ibv_reg_dmabuf_mr(s->pd, 0, BUF, 0, -1, rw));
		assert_int_equal(errno, i == RXE ? EOPNOTSUPP : EBADF);
		/* the standard's rule comes first, whatever the device */
		assert_int_equal(try_mr(s, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ON_DEMAND), EINVAL);
	}
}

static int try_cq_ex(struct side *s, uint64_t flags)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 8, .wc_flags = flags};
	struct ibv_cq_ex *cq;

	errno = 0;
	cq = ibv_create_cq_ex(s->ctx, &attr);
	if (!cq)
		return errno;
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	return 0;
}

static int try_builders(struct side *s, enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = s->cq, .recv_cq = s->cq, .qp_type = type, .cap = small, .pd = s->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = ops};
	struct ibv_qp *qp;

	errno = 0;
	qp = ibv_create_qp_ex(s->ctx, &init);
	if (!qp)
		return errno;
	assert_int_equal(ibv_destroy_qp(qp), 0);
	return 0;
}

static void verbs_that_it_has(void **state)
{
	struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 4, .max_sge = 1}};

	each_device (i) {
		enum ibv_qp_type type = want[i].rc ? IBV_QPT_UD : IBV_QPT_RC;
		struct side *s = &side[i];
		struct ibv_srq *srq;

		errno = 0;
		srq = ibv_create_srq(s->pd, &srq_attr);
		assert_int_equal(srq ? 0 : errno, want[i].srq);
		if (srq)
			assert_int_equal(ibv_destroy_srq(srq), 0);
		assert_int_equal(try_cq_ex(s, IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM),
				 want[i].cq_ex);
		assert_int_equal(try_cq_ex(s, IBV_WC_EX_WITH_BYTE_LEN |
						      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP),
				 want[i].cq_stamps);
		assert_int_equal(ibv_resize_cq(s->cq, 32), want[i].resize);
		assert_int_equal(try_builders(s, type, IBV_QP_EX_WITH_SEND), want[i].builders);
		assert_int_equal(try_builders(s, type, IBV_QP_EX_WITH_SEND |
							       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD),
				 want[i].builders || want[i].atomics == IBV_ATOMIC_NONE ? EOPNOTSUPP
											: 0);
	}
}

/* ---- traffic ---- */

static void connect_to(struct side *s, const struct side *peer)
{
	const struct expected *w = &want[s - side], *pw = &want[peer - side];
	uint8_t depth = (uint8_t)(w->init_rd_atom < pw->rd_atom ? w->init_rd_atom : pw->rd_atom);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						      IBV_ACCESS_REMOTE_READ |
						      IBV_ACCESS_REMOTE_ATOMIC};

	assert_int_equal(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
							     IBV_QP_ACCESS_FLAGS), 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = (uint8_t)w->rd_atom, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}}};
	assert_int_equal(ibv_query_gid(peer->ctx, 1, 0, &attr.ah_attr.grh.dgid), 0);
	assert_int_equal(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
							     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
							     IBV_QP_MAX_DEST_RD_ATOMIC |
							     IBV_QP_MIN_RNR_TIMER), 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
				    .rnr_retry = 7, .max_rd_atomic = depth};
	assert_int_equal(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT |
							     IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
							     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

static void reg(struct side *s)
{
	const struct expected *w = &want[s - side];

	/* on demand where it can */
	s->mr = ibv_reg_mr(s->pd, s->buf, BUF,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   (w->atomic_mr ? 0 : IBV_ACCESS_REMOTE_ATOMIC) |
				   (w->on_demand ? 0 : IBV_ACCESS_ON_DEMAND));
	assert_non_null(s->mr);
}

static enum ibv_wc_status next(struct side *s, struct ibv_wc *wc)
{
	time_t end = time(NULL) + 10;
	int n;

	while (!(n = ibv_poll_cq(s->cq, 1, wc)) && time(NULL) < end)
		;
	assert_int_equal(n, 1);
	return wc->status;
}

static int rdma(struct side *s, const struct side *peer, enum ibv_wr_opcode op, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)s->buf, len, s->mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = op};

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)peer->buf;
		wr.wr.atomic.rkey = peer->mr->rkey;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)peer->buf;
		wr.wr.rdma.rkey = peer->mr->rkey;
	}
	return ibv_post_send(s->qp, &wr, &bad);
}

static void fill(uint8_t *p, unsigned seed)
{
	for (unsigned i = 0; i < BUF; i++)
		p[i] = (uint8_t)((i * 2654435761u + seed * 40503u) >> 13);
}

/* a writes to b, reads it back, and adds to it where both can */
static void talk(struct side *a, struct side *b)
{
	uint8_t keep[BUF];
	struct ibv_wc wc;
	uint64_t before;

	fill(a->buf, (unsigned)(a - side) * NUM + (unsigned)(b - side));
	memcpy(keep, a->buf, BUF);
	memset(b->buf, 0, BUF);
	assert_int_equal(rdma(a, b, IBV_WR_RDMA_WRITE, BUF), 0);
	assert_int_equal(next(a, &wc), IBV_WC_SUCCESS);
	assert_memory_equal(b->buf, keep, BUF);
	memset(a->buf, 0, BUF);
	assert_int_equal(rdma(a, b, IBV_WR_RDMA_READ, BUF), 0);
	assert_int_equal(next(a, &wc), IBV_WC_SUCCESS);
	assert_memory_equal(a->buf, keep, BUF);

	if (want[a - side].atomics == IBV_ATOMIC_NONE) {
		assert_int_equal(rdma(a, b, IBV_WR_ATOMIC_FETCH_AND_ADD, 8), EINVAL);
		return;
	}
	memcpy(&before, b->buf, 8);
	assert_int_equal(rdma(a, b, IBV_WR_ATOMIC_FETCH_AND_ADD, 8), 0);
	if (want[b - side].atomics == IBV_ATOMIC_NONE) {
		/* the responder does not know the opcode; nothing is changed, and both QPs are dead */
		assert_int_equal(next(a, &wc), IBV_WC_REM_INV_REQ_ERR);
		assert_memory_equal(b->buf, &before, 8);
		return;
	}
	assert_int_equal(next(a, &wc), IBV_WC_SUCCESS);
	assert_memory_equal(a->buf, &before, 8);
	before += 5;
	assert_memory_equal(b->buf, &before, 8);
}

static void rc_between_all(void **state)
{
	for (int i = 0; i < NUM; i++) {
		for (int j = 0; j < NUM; j++) {
			struct side *a = &side[i], *b = &side[j];

			if (i == j || want[i].rc || want[j].rc)
				continue;
			print_message("%s to %s\n", want[i].name, want[j].name);
			reg(a);
			reg(b);
			assert_int_equal(make_qp(a, IBV_QPT_RC, small), 0);
			assert_int_equal(make_qp(b, IBV_QPT_RC, small), 0);
			connect_to(a, b);
			connect_to(b, a);
			talk(a, b);
			assert_int_equal(ibv_destroy_qp(a->qp) | ibv_destroy_qp(b->qp) |
						 ibv_dereg_mr(a->mr) | ibv_dereg_mr(b->mr), 0);
		}
	}
}

static void ud_ready(struct side *s)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 17};

	assert_int_equal(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
							     IBV_QP_QKEY), 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

static void datagram(struct side *a, struct side *b)
{
	struct ibv_ah_attr ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};
	struct ibv_sge to = {(uintptr_t)b->buf, 2048, b->mr->lkey};
	struct ibv_sge from = {(uintptr_t)a->buf, 1000, a->mr->lkey};
	struct ibv_recv_wr *bad_recv, recv = {.sg_list = &to, .num_sge = 1};
	struct ibv_send_wr *bad, wr = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_wc wc;
	struct ibv_ah *ah;

	assert_int_equal(ibv_query_gid(b->ctx, 1, 0, &ah_attr.grh.dgid), 0);
	ah = ibv_create_ah(a->pd, &ah_attr);
	assert_non_null(ah);
	assert_int_equal(ibv_post_recv(b->qp, &recv, &bad_recv), 0);
	fill(a->buf, 99);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = b->qp->qp_num;
	wr.wr.ud.remote_qkey = 17;
	assert_int_equal(ibv_post_send(a->qp, &wr, &bad), 0);
	assert_int_equal(next(a, &wc), IBV_WC_SUCCESS);
	assert_int_equal(next(b, &wc), IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 40 + 1000);
	assert_int_equal(wc.src_qp, a->qp->qp_num);
	assert_memory_equal(b->buf + 40, a->buf, 1000);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void ud_between_all(void **state)
{
	for (int i = 0; i < NUM; i++) {
		for (int j = 0; j < NUM; j++) {
			struct side *a = &side[i], *b = &side[j];

			if (i == j || want[i].ud || want[j].ud)
				continue;
			print_message("%s to %s\n", want[i].name, want[j].name);
			/* pinned: a datagram's fault drops it */
			a->mr = ibv_reg_mr(a->pd, a->buf, BUF, IBV_ACCESS_LOCAL_WRITE);
			b->mr = ibv_reg_mr(b->pd, b->buf, BUF, IBV_ACCESS_LOCAL_WRITE);
			assert_true(a->mr && b->mr);
			assert_int_equal(make_qp(a, IBV_QPT_UD, small), 0);
			assert_int_equal(make_qp(b, IBV_QPT_UD, small), 0);
			ud_ready(a);
			ud_ready(b);
			datagram(a, b);
			assert_int_equal(ibv_destroy_qp(a->qp) | ibv_destroy_qp(b->qp) |
						 ibv_dereg_mr(a->mr) | ibv_dereg_mr(b->mr), 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attributes),	     cmocka_unit_test(qp_types), cmocka_unit_test(xrc),
		cmocka_unit_test(limits),	     cmocka_unit_test(access_flags),
		cmocka_unit_test(verbs_that_it_has), cmocka_unit_test(rc_between_all),
		cmocka_unit_test(ud_between_all),
	};

	return cmocka_run_group_tests(tests, open_all, close_all);
}
