/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two hosts, a case at a time: every operation of RC, UC and UD, and what must be refused, with the
 *statuses and the data checked at both ends. It knows the public verbs only and runs on any device:
 *`make interop` has ours at one end and the kernel's rxe at the other, each as client (which
 *requests) and as server.
 *
 *	interop-exchange DEVICE GID-INDEX PORT [SERVER-ADDRESS [CASE...]]
 *
 * Data has a pattern by position, at odd offsets and lengths beyond the path MTU. Where rxe is
 *known to differ from the specification and from NICs, the check of its side says so ("rxe:").
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUF_SIZE (1ul << 20)
#define IOVA	 0x7700000000ul /* of the pinned region: nothing's address */
#define RIGHTS                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)
#define QKEY	 0x11223344u
#define IMM	 0xabcd1234u
#define GRH	 40u
#define DEPTH	 64
#define PATH_MTU 1024u
/* of the address handles; interop.py looks for them on the wire */
#define HOP_LIMIT  33
#define CLASS	   0x48
#define FLOW_LABEL 0x54321
#define OFFSET	   4133ul /* where data is, at both ends: odd, beyond the first page */

struct info {
	uint32_t qpn, psn, rkey, odp_rkey;
	uint64_t odp_addr;
	union ibv_gid gid;
	uint8_t rxe;
};

struct opt {
	enum ibv_qp_type type;
	uint8_t rnr_retry, rnr_timer;
	unsigned access;
};

static bool server, rxe;
static int control = -1, gid_index;
static unsigned failures;
static const char *case_name;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *send_cq, *recv_cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr, *odp_mr;
static uint8_t *buf, *odp_buf;
static struct info me, peer;

#define CHECK(cond, ...)                                                                           \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			printf("WRONG %s (%s): ", case_name, server ? "server" : "client");        \
			printf(__VA_ARGS__);                                                       \
			printf("\n");                                                              \
			failures++;                                                                \
		}                                                                                  \
	} while (0)

static void die(const char *what)
{
	printf("%s: %s: %s\n", case_name ? case_name : "setup", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* ---- the other end, by TCP ---- */

static void swap_info(const void *mine, void *theirs, size_t len)
{
	size_t got = 0;
	ssize_t n;

	if (write(control, mine, len) != (ssize_t)len)
		die("control connection");
	while (got < len) {
		n = read(control, (char *)theirs + got, len - got);
		if (n <= 0)
			die("the other end is gone");
		got += n;
	}
}

static void barrier(void)
{
	char c = 'b';

	swap_info(&c, &c, 1);
}

static void connect_control(const char *host, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, i;

	if (!host) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(fd, (void *)&a, sizeof(a)) || listen(fd, 1))
			die("listen");
		control = accept(fd, NULL, NULL);
		close(fd);
	} else {
		inet_pton(AF_INET, host, &a.sin_addr);
		for (i = 0; i < 100 && connect(fd, (void *)&a, sizeof(a)); i++) {
			close(fd);
			usleep(100000);
			fd = socket(AF_INET, SOCK_STREAM, 0);
		}
		control = fd;
	}
	if (control < 0)
		die("accept");
	setsockopt(control, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* ---- the device ---- */

static void open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int i;

	for (i = 0; list && list[i]; i++)
		if (!strcmp(name, "-") || !strcmp(ibv_get_device_name(list[i]), name))
			break;
	ctx = list && list[i] ? ibv_open_device(list[i]) : NULL;
	if (!ctx)
		die("no such device");
	rxe = !strncmp(ibv_get_device_name(ctx->device), "rxe", 3);
	ibv_free_device_list(list);
	fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK);
	pd = ibv_alloc_pd(ctx);
	send_cq = ibv_create_cq(ctx, DEPTH, NULL, NULL, 0);
	recv_cq = ibv_create_cq(ctx, DEPTH, NULL, NULL, 0);
	buf = mmap(NULL, BUF_SIZE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
	odp_buf = mmap(NULL, BUF_SIZE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
	if (!pd || !send_cq || !recv_cq || buf == MAP_FAILED || odp_buf == MAP_FAILED)
		die("PD, CQ, memory");
	mr = ibv_reg_mr_iova(pd, buf, BUF_SIZE, IOVA, RIGHTS);
	odp_mr = ibv_reg_mr(pd, odp_buf, BUF_SIZE, RIGHTS | IBV_ACCESS_ON_DEMAND);
	if (!mr || !odp_mr)
		die("ibv_reg_mr");
	if (ibv_query_gid(ctx, 1, gid_index, &me.gid))
		die("ibv_query_gid");
	me.rkey = mr->rkey;
	me.odp_rkey = odp_mr->rkey;
	me.odp_addr = (uintptr_t)odp_buf;
	me.psn = server ? 0xfffff0 : 0xabcdef; /* the server's wraps soon */
	me.rxe = rxe;
}

static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

static void to_rts(const struct opt *o)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
				.port_num = 1,
				.qkey = QKEY,
				.qp_access_flags = o->access};
	bool ud = o->type == IBV_QPT_UD, rc = o->type == IBV_QPT_RC;

	if (ibv_modify_qp(qp, &a,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				  (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)))
		die("to INIT");
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer.qpn,
		.rq_psn = peer.psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = o->rnr_timer,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = peer.gid,
				    .sgid_index = gid_index,
				    .hop_limit = HOP_LIMIT,
				    .traffic_class = CLASS,
				    .flow_label = FLOW_LABEL}},
	};
	if (ibv_modify_qp(
		    qp, &a,
		    IBV_QP_STATE |
			    (ud ? 0
				: IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
			    (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)))
		die("to RTR");
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				 .sq_psn = me.psn,
				 .timeout = 16,
				 .retry_cnt = 5,
				 .rnr_retry = o->rnr_retry,
				 .max_rd_atomic = 4};
	if (ibv_modify_qp(qp, &a,
			  IBV_QP_STATE | IBV_QP_SQ_PSN |
				  (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						   IBV_QP_MAX_QP_RD_ATOMIC
				      : 0)))
		die("to RTS");
}

static void new_qp(const struct opt *o)
{
	struct ibv_qp_init_attr init = {.qp_type = o->type,
					.send_cq = send_cq,
					.recv_cq = recv_cq,
					.cap = {DEPTH - 1, DEPTH - 1, 4, 4, 64}};
	struct ibv_async_event e;

	if (qp)
		ibv_destroy_qp(qp);
	drain(send_cq);
	drain(recv_cq);
	while (!ibv_get_async_event(ctx, &e))
		ibv_ack_async_event(&e);
	qp = ibv_create_qp(pd, &init);
	if (!qp)
		die("ibv_create_qp");
	me.qpn = qp->qp_num;
	swap_info(&me, &peer, sizeof(me));
	to_rts(o);
	barrier();
}

static enum ibv_qp_state state(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	return ibv_query_qp(qp, &a, IBV_QP_STATE, &init) ? IBV_QPS_UNKNOWN : a.qp_state;
}

/* rxe: a moment after the completion, or the NAK, that says so */
static bool is_in_error(void)
{
	double end = now() + 2;

	while (state() != IBV_QPS_ERR && now() < end)
		usleep(1000);
	return state() == IBV_QPS_ERR;
}

static bool async_is(enum ibv_event_type type)
{
	struct pollfd p = {.fd = ctx->async_fd, .events = POLLIN};
	struct ibv_async_event e;

	if (poll(&p, 1, 1000) <= 0 || ibv_get_async_event(ctx, &e))
		return false;
	ibv_ack_async_event(&e);
	return e.event_type == type;
}

/* ---- work and data ---- */

static uint8_t pattern(uint64_t pos, uint64_t seed)
{
	uint64_t x = (pos + 1) * 0x9e3779b97f4a7c15ull + seed * 0xd1b54a32d192ed03ull;

	return (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull >> 56;
}

static void fill(uint8_t *at, uint64_t len, uint64_t seed)
{
	for (uint64_t i = 0; i < len; i++)
		at[i] = pattern(i, seed);
}

static void check_data(const char *what, const uint8_t *at, uint64_t len, uint64_t seed)
{
	for (uint64_t i = 0; i < len; i++) {
		if (at[i] == pattern(i, seed))
			continue;
		CHECK(false, "%s, %lu bytes: byte %lu is %02x, not %02x", what, len, i, at[i],
		      pattern(i, seed));
		return;
	}
}

static bool wait_wc(struct ibv_cq *cq, struct ibv_wc *wc, double seconds)
{
	double end = now() + seconds;

	while (ibv_poll_cq(cq, 1, wc) <= 0) {
		if (now() > end)
			return false;
		usleep(50);
	}
	return true;
}

static void post_recv_at(uint64_t offset, uint32_t len)
{
	struct ibv_sge sge = {IOVA + offset, len, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = offset, .sg_list = &sge, .num_sge = len ? 1 : 0}, *bad;

	if (ibv_post_recv(qp, &wr, &bad))
		die("ibv_post_recv");
}

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge, uint64_t remote,
				  uint32_t rkey)
{
	struct ibv_send_wr wr = {.sg_list = sge,
				 .num_sge = sge->length ? 1 : 0,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED,
				 .imm_data = htonl(IMM)};

	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	return wr;
}

static void expect_send(const char *what, uint32_t len, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	if (!wait_wc(send_cq, &wc, 20)) {
		CHECK(false, "%s of %u bytes: no completion in 20 s", what, len);
		return;
	}
	CHECK(wc.status == status, "%s of %u bytes: %s, not %s", what, len,
	      ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

/* one request, at OFFSET here and there, to its completion */
static void request_done(const char *what, enum ibv_wr_opcode opcode, uint32_t len, uint32_t rkey,
			 enum ibv_wc_status status)
{
	struct ibv_sge sge = {IOVA + OFFSET, len, mr->lkey};
	struct ibv_send_wr wr = request(opcode, &sge, IOVA + OFFSET, rkey), *bad;

	if (ibv_post_send(qp, &wr, &bad))
		die("ibv_post_send");
	expect_send(what, len, status);
}

static const uint32_t sizes[] = {0,    1,	  5, 64, 1023, PATH_MTU, PATH_MTU + 1, 2 * PATH_MTU,
				 5001, 256 * 1024};
#define NUM_SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* ---- the cases; the client requests ---- */

static void expect_recv(const char *what, uint32_t len, bool imm, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	if (!wait_wc(recv_cq, &wc, 20)) {
		CHECK(false, "%s of %u bytes: no receive in 20 s", what, len);
		return;
	}
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == opcode && wc.byte_len == len,
	      "%s of %u bytes: received %s, opcode %d, %u bytes", what, len,
	      ibv_wc_status_str(wc.status), wc.opcode, wc.byte_len);
	CHECK(!!(wc.wc_flags & IBV_WC_WITH_IMM) == imm && (!imm || ntohl(wc.imm_data) == IMM),
	      "%s of %u bytes: immediate data, flags %x", what, len, wc.wc_flags);
}

static void case_send(void)
{
	for (unsigned i = 0; i < NUM_SIZES; i++) {
		uint32_t len = sizes[i];
		bool imm = i & 1;

		if (server) {
			memset(buf, 0, BUF_SIZE);
			post_recv_at(OFFSET, BUF_SIZE - OFFSET);
		} else {
			fill(buf + OFFSET, len, i);
		}
		barrier();
		if (!server)
			request_done("SEND", imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, len, 0,
				     IBV_WC_SUCCESS);
		else
			expect_recv("SEND", len, imm, IBV_WC_RECV);
		barrier();
		if (server) {
			check_data("SEND", buf + OFFSET, len, i);
			CHECK(!buf[OFFSET - 1] && !buf[OFFSET + len],
			      "SEND of %u bytes: written beside it", len);
		}
	}
}

static void case_write(void)
{
	for (unsigned i = 0; i < NUM_SIZES; i++) {
		uint32_t len = sizes[i];
		bool imm = i & 1;

		if (server) {
			memset(buf, 0, BUF_SIZE);
			post_recv_at(0, 0);
		} else {
			fill(buf + OFFSET, len, i);
		}
		barrier();
		if (!server)
			request_done("WRITE", imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
				     len, peer.rkey, IBV_WC_SUCCESS);
		else if (imm)
			expect_recv("WRITE with immediate", len, true, IBV_WC_RECV_RDMA_WITH_IMM);
		barrier();
		if (server) {
			if (!imm)
				usleep(qp->qp_type == IBV_QPT_UC ? 300000 : 0);
			check_data("WRITE", buf + OFFSET, len, i);
			CHECK(!buf[OFFSET - 1] && !buf[OFFSET + len],
			      "WRITE of %u bytes: written beside it", len);
		}
		barrier();
	}
}

static void case_read(void)
{
	for (unsigned i = 0; i < NUM_SIZES; i++) {
		uint32_t len = sizes[i];

		if (server)
			fill(buf + OFFSET, BUF_SIZE / 2, i);
		else
			memset(buf, 0, BUF_SIZE);
		barrier();
		if (!server) {
			request_done("READ", IBV_WR_RDMA_READ, len, peer.rkey, IBV_WC_SUCCESS);
			check_data("READ", buf + OFFSET, len, i);
			CHECK(!buf[OFFSET - 1] && !buf[OFFSET + len],
			      "READ of %u bytes: written beside it", len);
		}
		barrier();
	}
}

/* returns what was there */
static uint64_t atomic(enum ibv_wr_opcode opcode, uint64_t remote, uint32_t rkey,
		       uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge sge = {IOVA + OFFSET, 8, mr->lkey};
	struct ibv_send_wr wr = request(opcode, &sge, remote, rkey), *bad;
	uint64_t old;

	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	if (ibv_post_send(qp, &wr, &bad))
		die("ibv_post_send");
	expect_send("atomic", 8, IBV_WC_SUCCESS);
	memcpy(&old, buf + OFFSET, 8);
	return old;
}

static void case_atomic(void)
{
	uint64_t at = 0x10008, word = 5;

	if (server)
		memcpy(buf + at, &word, 8);
	barrier();
	if (!server) {
		CHECK(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, IOVA + at, peer.rkey, 5,
			     0x1122334455667788) == 5,
		      "compare and swap: what was there");
		CHECK(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, IOVA + at, peer.rkey, 5, 9) ==
			      0x1122334455667788,
		      "compare and swap that does not match: what was there");
		CHECK(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, IOVA + at, peer.rkey, 3, 0) ==
			      0x1122334455667788,
		      "fetch and add: what was there");
	}
	barrier();
	if (server) {
		memcpy(&word, buf + at, 8);
		CHECK(word == 0x112233445566778b, "what is left: %lx", word);
	}
}

/* rxe: its on-demand regions copy to and from the start of the page, so only our data is looked at
 */
static void case_odp(void)
{
	struct ibv_sge sge = {IOVA + OFFSET, 65536, mr->lkey};
	struct ibv_send_wr wr, *bad;

	if (server)
		madvise(odp_buf, BUF_SIZE, MADV_DONTNEED);
	else
		fill(buf + OFFSET, sge.length, 1);
	barrier();
	if (!server) {
		wr = request(IBV_WR_RDMA_WRITE, &sge, peer.odp_addr + OFFSET, peer.odp_rkey);
		if (ibv_post_send(qp, &wr, &bad))
			die("ibv_post_send");
		expect_send("WRITE, on demand", sge.length, IBV_WC_SUCCESS);
		memset(buf, 0, BUF_SIZE);
		wr = request(IBV_WR_RDMA_READ, &sge, peer.odp_addr + OFFSET, peer.odp_rkey);
		if (ibv_post_send(qp, &wr, &bad))
			die("ibv_post_send");
		expect_send("READ, on demand", sge.length, IBV_WC_SUCCESS);
		if (!peer.rxe)
			check_data("READ, on demand", buf + OFFSET, sge.length, 1);
		CHECK(!atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, peer.odp_addr + 0x80008, peer.odp_rkey,
			      7, 0),
		      "fetch and add to a page that was not touched");
	}
	barrier();
	if (server && !rxe) {
		check_data("WRITE, on demand", odp_buf + OFFSET, sge.length, 1);
		CHECK(odp_buf[0x80008] == 7, "fetch and add, on demand");
	}
}

static void case_rnr(void)
{
	struct ibv_sge sge = {IOVA + OFFSET, 2500, mr->lkey};
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, 0, 0), *bad;

	if (!server)
		fill(buf + OFFSET, sge.length, 2);
	barrier();
	if (!server && ibv_post_send(qp, &wr, &bad))
		die("ibv_post_send");
	usleep(200000);
	if (server) {
		post_recv_at(OFFSET, 5000);
		expect_recv("SEND before its receive", sge.length, false, IBV_WC_RECV);
		check_data("SEND before its receive", buf + OFFSET, sge.length, 2);
	} else {
		expect_send("SEND before its receive", sge.length, IBV_WC_SUCCESS);
	}
	barrier();
}

static void refused(const char *what, enum ibv_wr_opcode opcode, uint32_t rkey,
		    enum ibv_wc_status status)
{
	request_done(what, opcode, 3000, rkey, status);
	CHECK(is_in_error(), "%s: the requester's QP is in state %d", what, state());
}

static void case_rnr_exceeded(void)
{
	barrier();
	if (!server)
		refused("SEND without a receive", IBV_WR_SEND, 0, IBV_WC_RNR_RETRY_EXC_ERR);
	barrier();
	if (server)
		CHECK(state() == IBV_QPS_RTS, "the responder's QP is in state %d", state());
}

static void case_bad_rkey(void)
{
	barrier();
	if (!server)
		refused("WRITE, wrong key", IBV_WR_RDMA_WRITE, peer.rkey ^ 1,
			IBV_WC_REM_ACCESS_ERR);
	barrier();
	if (server) {
		CHECK(is_in_error(), "the responder's QP is in state %d", state());
		CHECK(async_is(IBV_EVENT_QP_ACCESS_ERR), "no access error event");
	}
}

static void case_out_of_bounds(void)
{
	struct ibv_sge sge = {IOVA, 3000, mr->lkey};
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, &sge, IOVA + BUF_SIZE - 2999, peer.rkey),
			   *bad;

	barrier();
	if (!server) {
		if (ibv_post_send(qp, &wr, &bad))
			die("ibv_post_send");
		expect_send("READ one byte too far", 3000, IBV_WC_REM_ACCESS_ERR);
	}
	barrier();
	if (server)
		CHECK(is_in_error(), "the responder's QP is in state %d", state());
}

static void case_no_right(void)
{
	barrier();
	if (!server)
		refused("READ that the QP does not allow", IBV_WR_RDMA_READ, peer.rkey,
			IBV_WC_REM_INV_REQ_ERR);
	barrier();
	if (server)
		CHECK(is_in_error(), "the responder's QP is in state %d", state());
}

/* 9.7.4.1.5: a message longer than its receive is an invalid request, and a local length error
 * there. rxe: remote and local operation error */
static void case_too_long(void)
{
	struct ibv_wc wc = {0};

	if (server)
		post_recv_at(OFFSET, 16);
	barrier();
	if (!server)
		refused("SEND longer than its receive", IBV_WR_SEND, 0,
			peer.rxe ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR);
	barrier();
	if (server) {
		CHECK(wait_wc(recv_cq, &wc, 5), "no completion of the receive");
		CHECK(wc.status == (rxe ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_LEN_ERR),
		      "the receive: %s", ibv_wc_status_str(wc.status));
	}
}

#define BURST 24

/* READs, WRITEs and atomics, all under way at once */
static void case_burst(void)
{
	uint64_t counter = 0x80000;

	if (server) {
		memset(buf, 0, BUF_SIZE);
		fill(buf + 0xa0000, 7000, 9);
	} else {
		fill(buf + OFFSET, 7000, 4);
	}
	barrier();
	for (int i = 0; !server && i < BURST; i++) {
		bool read = i % 3 == 1, atom = i % 3 == 2;
		struct ibv_sge sge = {IOVA + (read   ? 0x20000u + i * 8192u
					      : atom ? 0x80000u + i * 8u
						     : OFFSET),
				      atom ? 8 : 7000, mr->lkey};
		struct ibv_send_wr wr = request(read   ? IBV_WR_RDMA_READ
						: atom ? IBV_WR_ATOMIC_FETCH_AND_ADD
						       : IBV_WR_RDMA_WRITE,
						&sge,
						IOVA + (read   ? 0xa0000u
							: atom ? counter
							       : i * 8192u + 1),
						peer.rkey),
				   *bad;

		if (atom)
			wr.wr.atomic.compare_add = 1;
		if (ibv_post_send(qp, &wr, &bad))
			die("ibv_post_send");
	}
	for (int i = 0; !server && i < BURST; i++)
		expect_send("one of a burst", i, IBV_WC_SUCCESS);
	for (int i = 1; !server && i < BURST; i += 3)
		check_data("READ of a burst", buf + 0x20000 + i * 8192, 7000, 9);
	barrier();
	for (int i = 0; server && i < BURST; i += 3)
		check_data("WRITE of a burst", buf + i * 8192 + 1, 7000, 4);
	if (server)
		CHECK(buf[counter] == BURST / 3, "atomics of a burst: %d", buf[counter]);
}

static void case_gone(void)
{
	barrier();
	if (server) {
		ibv_destroy_qp(qp);
		qp = NULL;
	}
	barrier();
	if (!server)
		refused("WRITE to a QP that is gone", IBV_WR_RDMA_WRITE, peer.rkey,
			IBV_WC_RETRY_EXC_ERR);
	barrier();
}

/* UC: what is wrong is dropped, and the next message arrives */
static void case_uc_dropped(void)
{
	if (server) {
		memset(buf, 0, BUF_SIZE);
		post_recv_at(0, 0);
	} else {
		fill(buf + OFFSET, 3000, 6);
	}
	barrier();
	if (!server) {
		request_done("WRITE, wrong key", IBV_WR_RDMA_WRITE, 3000, peer.rkey ^ 1,
			     IBV_WC_SUCCESS);
		request_done("WRITE", IBV_WR_RDMA_WRITE_WITH_IMM, 3000, peer.rkey, IBV_WC_SUCCESS);
	} else {
		expect_recv("WRITE after one that is dropped", 3000, true,
			    IBV_WC_RECV_RDMA_WITH_IMM);
		check_data("WRITE after one that is dropped", buf + OFFSET, 3000, 6);
		CHECK(state() == IBV_QPS_RTS, "the responder's QP is in state %d", state());
	}
	barrier();
}

static void send_datagram(struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint32_t len, bool imm)
{
	struct ibv_sge sge = {IOVA + OFFSET, len, mr->lkey};
	struct ibv_send_wr wr = request(imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, &sge, 0, 0), *bad;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	if (ibv_post_send(qp, &wr, &bad))
		die("ibv_post_send");
	expect_send("datagram", len, IBV_WC_SUCCESS);
}

/* what a datagram says of its sender is where the answer goes */
static void answer(uint32_t len, bool imm)
{
	struct ibv_wc wc = {0};
	struct ibv_ah *ah;

	if (!wait_wc(recv_cq, &wc, 20)) {
		CHECK(false, "no datagram of %u bytes", len);
		return;
	}
	CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == len + GRH && wc.src_qp == peer.qpn &&
		      (wc.wc_flags & IBV_WC_GRH) && !!(wc.wc_flags & IBV_WC_WITH_IMM) == imm,
	      "datagram of %u bytes: %s, %u bytes from QP %x, flags %x", len,
	      ibv_wc_status_str(wc.status), wc.byte_len, wc.src_qp, wc.wc_flags);
	check_data("datagram", buf + 0x40000 + GRH, len, len);
	ah = ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)(buf + 0x40000), 1);
	if (!ah)
		die("ibv_create_ah_from_wc");
	memcpy(buf + OFFSET, buf + 0x40000 + GRH, len);
	send_datagram(ah, wc.src_qp, QKEY, len, imm);
	ibv_destroy_ah(ah);
}

static void case_ud(void)
{
	struct ibv_ah_attr attr = {.is_global = 1,
				   .port_num = 1,
				   .grh = {.dgid = peer.gid,
					   .sgid_index = gid_index,
					   .hop_limit = HOP_LIMIT,
					   .traffic_class = CLASS,
					   .flow_label = FLOW_LABEL}};
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	struct ibv_wc wc = {0};

	if (!ah)
		die("ibv_create_ah");
	for (unsigned i = 0; i < NUM_SIZES && sizes[i] <= PATH_MTU; i++) {
		uint32_t len = sizes[i];
		bool imm = i & 1;

		post_recv_at(0x40000, 4096);
		memset(buf + 0x40000, 0, 4096);
		if (!server)
			fill(buf + OFFSET, len, len);
		barrier();
		if (server) {
			answer(len, imm);
		} else {
			send_datagram(ah, peer.qpn, QKEY + 1, len,
				      imm); /* wrong Q_Key: as if not sent */
			send_datagram(ah, peer.qpn, QKEY, len, imm);
			CHECK(wait_wc(recv_cq, &wc, 20) && wc.byte_len == len + GRH,
			      "no answer to %u bytes", len);
			check_data("answer", buf + 0x40000 + GRH, len, len);
		}
		barrier();
	}
	ibv_destroy_ah(ah);
	CHECK(state() == IBV_QPS_RTS, "the QP is in state %d", state());
}

static const struct {
	const char *name;
	void (*run)(void);
	struct opt opt;
} cases[] = {
	{"rc-send", case_send, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-write", case_write, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-read", case_read, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-atomic", case_atomic, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-odp", case_odp, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-burst", case_burst, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-rnr", case_rnr, {IBV_QPT_RC, 7, 20, RIGHTS}},
	{"rc-rnr-exceeded", case_rnr_exceeded, {IBV_QPT_RC, 2, 14, RIGHTS}},
	{"rc-bad-rkey", case_bad_rkey, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-out-of-bounds", case_out_of_bounds, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-no-right", case_no_right, {IBV_QPT_RC, 7, 12, IBV_ACCESS_REMOTE_WRITE}},
	{"rc-too-long", case_too_long, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-gone", case_gone, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"uc-send", case_send, {IBV_QPT_UC, 0, 0, RIGHTS}},
	{"uc-write", case_write, {IBV_QPT_UC, 0, 0, RIGHTS}},
	{"uc-dropped", case_uc_dropped, {IBV_QPT_UC, 0, 0, RIGHTS}},
	{"ud", case_ud, {IBV_QPT_UD, 0, 0, RIGHTS}},
};
#define NUM_CASES ((int)(sizeof(cases) / sizeof(cases[0])))

static bool wanted(const char *name, int argc, char **argv)
{
	for (int i = 5; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc <= 5;
}

int main(int argc, char **argv)
{
	int mine = 0, index;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 4) {
		fprintf(stderr, "usage: %s DEVICE|- GID-INDEX PORT [SERVER-ADDRESS [CASE...]]\n",
			argv[0]);
		return 2;
	}
	server = argc == 4;
	gid_index = atoi(argv[2]);
	open_device(argv[1]);
	connect_control(server ? NULL : argv[4], atoi(argv[3]));
	for (;;) {
		while (!server && mine < NUM_CASES && !wanted(cases[mine].name, argc, argv))
			mine++;
		swap_info(&mine, &index, sizeof(mine));
		if (!server)
			index = mine;
		if (index >= NUM_CASES)
			break;
		case_name = cases[index].name;
		new_qp(&cases[index].opt);
		cases[index].run();
		mine++;
	}
	printf("%u wrong\n", failures);
	return failures ? 1 : 0;
}
