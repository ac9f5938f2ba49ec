/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * write_read: two processes, RDMA WRITE and READ, pinned and on demand, every byte checked.
 *
 *     faultline run -- build/examples/write_read &            # the target
 *     faultline run -- build/examples/write_read 127.0.0.1    # the initiator
 *
 * The target registers a buffer and does nothing more; the initiator writes a pattern into it,
 * reads it back into another buffer and compares. Both connect over TCP to tell each other what a
 * verbs connection needs. It is an ordinary verbs program: it knows nothing of Faultline, and runs
 * on any RDMA device that has on-demand paging.
 *
 * What it takes care of, since others do not: a pattern that depends on the position, so that data
 * at the wrong place is seen; odd offsets and lengths that are no multiple of page or MTU.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT "18515"
/* one at the target, two at the initiator: pinned, all fit the usual limit of 8 MiB for a user */
#define BUF_SIZE (3ul << 19)

static const struct {
	uint64_t offset; /* in the target's buffer */
	uint32_t length;
} transfers[] = {
	{0, 1},	       {1, 7},	       {4093, 8},	 {8192, 4096},
	{12345, 4097}, {65537, 65535}, {200001, 500009}, {262143, 1179649},
};
#define NUM_TRANSFERS (sizeof(transfers) / sizeof(transfers[0]))

/* what each side tells the other */
struct hello {
	uint64_t addr;
	uint32_t rkey, qpn, psn;
	union ibv_gid gid;
};

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
	struct hello mine, theirs;
};

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...)
{
	int err = errno;
	va_list ap;

	fprintf(stderr, "write_read: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, err ? ": %s\n" : "\n", strerror(err));
	exit(1);
}

/* ---- TCP ---- */

static int tcp_listen(void)
{
	struct addrinfo hints = {
		.ai_family = AF_INET, .ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
	struct addrinfo *ai;
	int fd, one = 1;

	if (getaddrinfo(NULL, PORT, &hints, &ai))
		die("no address to listen at");
	fd = socket(ai->ai_family, ai->ai_socktype, 0);
	if (fd < 0)
		die("socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, 1))
		die("cannot listen at TCP port " PORT);
	freeaddrinfo(ai);
	return fd;
}

/* the target may have been started at the same moment: try for some seconds */
static int tcp_connect(const char *host)
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

static void exchange(int fd, const void *out, void *in, size_t len)
{
	if (write(fd, out, len) != (ssize_t)len)
		die("write to the other side");
	if (recv(fd, in, len, MSG_WAITALL) != (ssize_t)len)
		die("the other side is gone");
}

/* both are here before either goes on */
static void meet(int fd)
{
	char out = 'm', in;

	exchange(fd, &out, &in, 1);
}

/* ---- verbs ---- */

static struct ibv_context *open_device(void)
{
	struct ibv_device **list;
	struct ibv_context *ctx;

	errno = 0;
	list = ibv_get_device_list(NULL);
	if (!list || !list[0])
		die("no RDMA device; run it under 'faultline run'");
	ctx = ibv_open_device(list[0]);
	if (!ctx)
		die("cannot open %s", ibv_get_device_name(list[0]));
	ibv_free_device_list(list);
	return ctx;
}

static void to_rtr(struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = s->theirs.qpn,
		.rq_psn = s->theirs.psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr =
			{
				.is_global = 1,
				.grh = {.dgid = s->theirs.gid, .sgid_index = 0, .hop_limit = 64},
				.port_num = 1,
			},
	};

	if ((errno = ibv_modify_qp(s->qp, &attr,
				   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER)))
		die("QP to RTR");
}

static void to_rts(struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = s->mine.psn,
		.max_rd_atomic = 1,
	};

	if ((errno = ibv_modify_qp(s->qp, &attr,
				   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC)))
		die("QP to RTS");
}

static void make_qp(struct side *s)
{
	struct ibv_qp_init_attr init = {
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	s->qp = ibv_create_qp(s->pd, &init);
	if (!s->qp)
		die("create QP");
	if ((errno = ibv_modify_qp(s->qp, &attr,
				   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					   IBV_QP_ACCESS_FLAGS)))
		die("QP to INIT");
	s->mine.qpn = s->qp->qp_num;
	s->mine.psn = (uint32_t)getpid() & 0xffffff;
}

static void wait_for(struct side *s, const char *what)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(s->cq, 1, &wc)) == 0)
		;
	errno = 0;
	if (n < 0)
		die("poll CQ");
	if (wc.status != IBV_WC_SUCCESS)
		die("%s: %s", what, ibv_wc_status_str(wc.status));
}

static void rdma(struct side *s, enum ibv_wr_opcode opcode, uint64_t local, uint64_t offset,
		 uint32_t length)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->buf + local, .length = length, .lkey = s->mr->lkey};
	struct ibv_send_wr *bad,
		wr = {
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {.remote_addr = s->theirs.addr + offset, .rkey = s->theirs.rkey},
		};

	if ((errno = ibv_post_send(s->qp, &wr, &bad)))
		die("post");
	wait_for(s, opcode == IBV_WR_RDMA_WRITE ? "RDMA WRITE" : "RDMA READ");
}

/* ---- the work ---- */

/* no period that a page or a packet divides */
static uint8_t pattern(uint64_t pos, unsigned seed)
{
	uint64_t x = (pos + seed) * 0x9e3779b97f4a7c15ull;

	return (uint8_t)(x >> 56);
}

static void check(const uint8_t *p, uint64_t len, uint64_t pos, unsigned seed, const char *who)
{
	for (uint64_t i = 0; i < len; i++) {
		if (p[i] == pattern(pos + i, seed))
			continue;
		errno = 0;
		die("%s: wrong byte at %llu: %02x, not %02x", who, (unsigned long long)(pos + i),
		    p[i], pattern(pos + i, seed));
	}
}

/* the initiator's buffer: first half what is written, second half what is read back */
static void initiate(struct side *s, unsigned seed)
{
	for (size_t t = 0; t < NUM_TRANSFERS; t++) {
		uint64_t offset = transfers[t].offset, back = BUF_SIZE + 3;
		uint32_t length = transfers[t].length;

		for (uint32_t i = 0; i < length; i++)
			s->buf[5 + i] = pattern(offset + i, seed);
		rdma(s, IBV_WR_RDMA_WRITE, 5, offset, length);
		rdma(s, IBV_WR_RDMA_READ, back, offset, length);
		check(s->buf + back, length, offset, seed, "read back");
	}
}

/* later transfers cover parts of earlier ones with the same bytes */
static void check_target(struct side *s, unsigned seed)
{
	for (size_t t = 0; t < NUM_TRANSFERS; t++)
		check(s->buf + transfers[t].offset, transfers[t].length, transfers[t].offset, seed,
		      "target");
}

static void round_of(struct side *s, int tcp, bool initiator, bool odp, unsigned seed)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     (odp ? IBV_ACCESS_ON_DEMAND : 0);
	size_t size = initiator ? 2 * BUF_SIZE : BUF_SIZE;
	struct timespec t0, t1;
	uint64_t bytes = 0;

	/* fresh memory each time: on demand, the device's own accesses bring it in */
	s->buf = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->buf == MAP_FAILED)
		die("mmap");
	s->mr = ibv_reg_mr(s->pd, s->buf, size, access);
	if (!s->mr)
		die("register %zu bytes %s", size, odp ? "on demand" : "pinned (ulimit -l?)");
	make_qp(s);
	s->mine.addr = (uintptr_t)s->buf;
	s->mine.rkey = s->mr->rkey;
	exchange(tcp, &s->mine, &s->theirs, sizeof(s->mine));
	to_rtr(s);
	to_rts(s);
	meet(tcp);

	clock_gettime(CLOCK_MONOTONIC, &t0);
	if (initiator)
		initiate(s, seed);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	meet(tcp);
	if (initiator) {
		for (size_t t = 0; t < NUM_TRANSFERS; t++)
			bytes += transfers[t].length;
		printf("%-10s %zu WRITEs and %zu READs of 1 byte to 1.1 MiB, %llu bytes each way: data right, %.1f ms\n",
		       odp ? "on demand:" : "pinned:", NUM_TRANSFERS, NUM_TRANSFERS,
		       (unsigned long long)bytes,
		       (double)(t1.tv_sec - t0.tv_sec) * 1e3 +
			       (double)(t1.tv_nsec - t0.tv_nsec) / 1e6);
	} else {
		check_target(s, seed);
		printf("%-10s the target's memory holds what was written\n",
		       odp ? "on demand:" : "pinned:");
	}
	if ((errno = ibv_destroy_qp(s->qp)) || (errno = ibv_dereg_mr(s->mr)))
		die("close");
	munmap(s->buf, size);
}

int main(int argc, char **argv)
{
	bool initiator = argc > 1;
	struct ibv_device_attr_ex attr;
	struct side s = {0};
	int tcp, listener = -1;

	if (argc > 2 || (initiator && argv[1][0] == '-')) {
		fprintf(stderr, "usage: write_read [HOST]\n");
		return 2;
	}
	s.ctx = open_device();
	if ((errno = ibv_query_device_ex(s.ctx, NULL, &attr)))
		die("query device");
	s.pd = ibv_alloc_pd(s.ctx);
	s.cq = s.pd ? ibv_create_cq(s.ctx, 16, NULL, NULL, 0) : NULL;
	if (!s.cq)
		die("PD and CQ");
	if (ibv_query_gid(s.ctx, 1, 0, &s.mine.gid))
		die("GID 0 of port 1");
	if (initiator) {
		tcp = tcp_connect(argv[1]);
	} else {
		listener = tcp_listen();
		tcp = accept(listener, NULL, NULL);
	}
	if (tcp < 0)
		die("connect");

	round_of(&s, tcp, initiator, false, 1);
	if (attr.odp_caps.general_caps & IBV_ODP_SUPPORT)
		round_of(&s, tcp, initiator, true, 2);
	else
		printf("on demand: this device has no on-demand paging\n");

	close(tcp);
	if (listener >= 0)
		close(listener);
	if ((errno = ibv_destroy_cq(s.cq)) || (errno = ibv_dealloc_pd(s.pd)) ||
	    (errno = ibv_close_device(s.ctx)))
		die("close");
	return 0;
}
