/* SPDX-License-Identifier: BSD-2-Clause */
#include "examples/common.h"

#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PORT "18515"

static pid_t client;

void no_arguments(int argc, char **argv)
{
	if (argc < 2)
		return;
	fprintf(stderr, "%s: takes no arguments: %s\nusage: %s\n", example_name, argv[1], example_name);
	exit(2);
}

void die(const char *fmt, ...)
{
	int err = errno;
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "%s: ", example_name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, err ? ": %s\n" : "\n", strerror(err));
	exit(1);
}

/* ---- the two ends ---- */

int tcp_accept(void)
{
	struct addrinfo hints = {
		.ai_family = AF_INET, .ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
	struct addrinfo *ai;
	int fd, sock, one = 1;

	if (getaddrinfo(NULL, PORT, &hints, &ai))
		die("no address to listen at");
	fd = socket(ai->ai_family, ai->ai_socktype, 0);
	if (fd < 0)
		die("socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, 1))
		die("cannot listen at TCP port " PORT);
	freeaddrinfo(ai);
	sock = accept(fd, NULL, NULL);
	if (sock < 0)
		die("accept");
	close(fd);
	return sock;
}

int tcp_connect(const char *host)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *ai;
	struct timespec pause = {.tv_nsec = 50000000};

	if (getaddrinfo(host, PORT, &hints, &ai))
		die("no address for %s", host);
	for (int tries = 0; tries < 100; tries++) {
		int fd = socket(ai->ai_family, ai->ai_socktype, 0);

		if (fd < 0)
			die("socket");
		if (connect(fd, ai->ai_addr, ai->ai_addrlen) == 0) {
			freeaddrinfo(ai);
			return fd;
		}
		close(fd);
		nanosleep(&pause, NULL);
	}
	die("cannot connect to %s, TCP port " PORT, host);
}

enum end two_processes(int *sock)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("socketpair");
	/* before any device is open: each process has its own */
	client = fork();
	if (client < 0)
		die("fork");
	*sock = pair[client ? 0 : 1];
	close(pair[client ? 1 : 0]);
	return client ? SERVER : CLIENT;
}

int client_status(void)
{
	int status;

	if (waitpid(client, &status, 0) != client)
		die("waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

void send_all(int sock, const void *data, size_t len)
{
	if (send(sock, data, len, MSG_NOSIGNAL) != (ssize_t)len)
		die("send to the other end");
}

bool recv_all(int sock, void *data, size_t len)
{
	ssize_t n = recv(sock, data, len, MSG_WAITALL);

	if (n && n != (ssize_t)len)
		die("receive from the other end");
	return n;
}

void exchange(int sock, const void *out, void *in, size_t len)
{
	send_all(sock, out, len);
	errno = 0;
	if (!recv_all(sock, in, len))
		die("the other end is gone");
}

void meet(int sock)
{
	char out = 'm', in;

	exchange(sock, &out, &in, 1);
}

/* ---- verbs ---- */

void open_side(struct side *s, int sock, const char *device)
{
	struct ibv_device **list;

	memset(s, 0, sizeof(*s));
	s->sock = sock;
	errno = 0;
	list = ibv_get_device_list(NULL);
	for (int i = 0; list && list[i] && !s->ctx; i++) {
		if (strncmp(ibv_get_device_name(list[i]), device, strlen(device)))
			continue;
		s->ctx = ibv_open_device(list[i]);
		if (!s->ctx)
			die("cannot open %s", ibv_get_device_name(list[i]));
	}
	errno = 0;
	if (!s->ctx)
		die("no RDMA device%s%s; run it under 'faultline run'%s", *device ? " " : "", device,
		    *device ? ", with a --device list that names it" : "");
	ibv_free_device_list(list);
	if ((errno = ibv_query_device_ex(s->ctx, NULL, &s->attr)))
		die("query device");
	s->pd = ibv_alloc_pd(s->ctx);
	s->cq = s->pd ? ibv_create_cq(s->ctx, 16, NULL, NULL, 0) : NULL;
	if (!s->cq)
		die("PD and CQ");
}

void close_side(struct side *s)
{
	if ((s->qp && (errno = ibv_destroy_qp(s->qp))) || (errno = ibv_destroy_cq(s->cq)) ||
	    (errno = ibv_dealloc_pd(s->pd)) || (errno = ibv_close_device(s->ctx)))
		die("close");
}

/* what each end tells the other */
struct hello {
	union ibv_gid gid;
	uint32_t qpn, psn;
};

static void to_init(struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	if ((errno = ibv_modify_qp(s->qp, &attr,
				   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					   IBV_QP_ACCESS_FLAGS)))
		die("QP to INIT");
}

static void to_rtr(struct side *s, const struct hello *theirs)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = theirs->qpn,
		.rq_psn = theirs->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .grh = {.dgid = theirs->gid, .sgid_index = 0, .hop_limit = 64},
			    .port_num = 1},
	};

	if ((errno = ibv_modify_qp(s->qp, &attr,
				   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER)))
		die("QP to RTR");
}

static void to_rts(struct side *s, uint32_t psn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = psn,
		.max_rd_atomic = 1,
	};

	if ((errno = ibv_modify_qp(s->qp, &attr,
				   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC)))
		die("QP to RTS");
}

void connect_qp(struct side *s)
{
	struct ibv_qp_init_attr init = {
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct hello mine = {.psn = (uint32_t)getpid() & 0xffffff}, theirs;

	s->qp = ibv_create_qp(s->pd, &init);
	if (!s->qp)
		die("create QP");
	if (ibv_query_gid(s->ctx, 1, 0, &mine.gid))
		die("GID 0 of port 1");
	mine.qpn = s->qp->qp_num;
	to_init(s);
	exchange(s->sock, &mine, &theirs, sizeof(mine));
	to_rtr(s, &theirs);
	to_rts(s, mine.psn);
	meet(s->sock);
}

struct ibv_mr *reg_mr(struct side *s, void *addr, size_t len, int access, const char *what)
{
	struct ibv_mr *mr = ibv_reg_mr(s->pd, addr, len, access);

	if (!mr)
		die("register %s%s", what, errno == ENOMEM ? " (ulimit -l?)" : "");
	return mr;
}

void rdma(struct side *s, enum ibv_wr_opcode opcode, void *local, uint32_t lkey, uint32_t len,
	  struct remote remote)
{
	struct ibv_sge sge = {.addr = (uintptr_t)local, .length = len, .lkey = lkey};
	struct ibv_send_wr *bad,
		wr = {
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {.remote_addr = remote.addr, .rkey = remote.rkey},
		};
	struct ibv_wc wc;
	int n;

	if ((errno = ibv_post_send(s->qp, &wr, &bad)))
		die("post");
	while ((n = ibv_poll_cq(s->cq, 1, &wc)) == 0)
		;
	errno = 0;
	if (n < 0)
		die("poll CQ");
	if (wc.status != IBV_WC_SUCCESS)
		die("RDMA %s: %s", opcode == IBV_WR_RDMA_WRITE ? "WRITE" : "READ",
		    ibv_wc_status_str(wc.status));
}

uint8_t pattern(uint64_t pos, unsigned seed)
{
	uint64_t x = (pos + seed) * 0x9e3779b97f4a7c15ull;

	return (uint8_t)(x >> 56);
}
