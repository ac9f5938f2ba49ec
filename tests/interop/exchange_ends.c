/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The two ends of the exchange: their TCP connection, this end's device, and its queue pair.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "exchange.h"

bool server, rxe;
int gid_index;
unsigned failures;
const char *case_name;
struct ibv_context *ctx;
struct ibv_pd *pd;
struct ibv_cq *send_cq, *recv_cq;
struct ibv_qp *qp;
struct ibv_mr *mr;
uint8_t *buf;
struct info me, peer;

static int control = -1;

void die(const char *what)
{
	printf("%s: %s: %s\n", case_name ? case_name : "setup", what, strerror(errno));
	exit(1);
}

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* ---- the other end, by TCP ---- */

void swap_info(const void *mine, void *theirs, size_t len)
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

void barrier(void)
{
	char c = 'b';

	swap_info(&c, &c, 1);
}

void connect_control(const char *host, int port)
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
		for (i = 0; i < 10 * PATIENCE && connect(fd, (void *)&a, sizeof(a)); i++) {
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

void open_device(const char *name)
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
	if (!pd || !send_cq || !recv_cq || buf == MAP_FAILED)
		die("PD, CQ, memory");
	mr = ibv_reg_mr_iova(pd, buf, BUF_SIZE, IOVA, RIGHTS);
	if (!mr)
		die("ibv_reg_mr");
	if (ibv_query_gid(ctx, 1, gid_index, &me.gid))
		die("ibv_query_gid");
	me.rkey = mr->rkey;
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
				 .timeout = 17,
				 .retry_cnt = o->retry_cnt ? o->retry_cnt : 7,
				 .rnr_retry = o->rnr_retry,
				 .max_rd_atomic = 4};
	if (ibv_modify_qp(qp, &a,
			  IBV_QP_STATE | IBV_QP_SQ_PSN |
				  (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						   IBV_QP_MAX_QP_RD_ATOMIC
				      : 0)))
		die("to RTS");
}

void new_qp(const struct opt *o)
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

enum ibv_qp_state state(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	return ibv_query_qp(qp, &a, IBV_QP_STATE, &init) ? IBV_QPS_UNKNOWN : a.qp_state;
}

bool is_in_error(void)
{
	double end = now() + PATIENCE;

	while (state() != IBV_QPS_ERR && now() < end)
		usleep(1000);
	return state() == IBV_QPS_ERR;
}

bool async_is(enum ibv_event_type type)
{
	struct pollfd p = {.fd = ctx->async_fd, .events = POLLIN};
	struct ibv_async_event e;

	if (poll(&p, 1, PATIENCE * 1000) <= 0 || ibv_get_async_event(ctx, &e))
		return false;
	ibv_ack_async_event(&e);
	return e.event_type == type;
}
