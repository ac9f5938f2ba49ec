/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two processes, one RC connection: latency and bandwidth of the operations beside memcpy of the
 * same sizes, and what registration costs. Prints "name value" lines: microseconds or GB/s.
 *
 * The parent measures; the child is the other end, told over a socket what to do: echo SENDs or
 * WRITEs, take SENDs, or nothing. All is measured in rounds, one batch of each kind a round, and
 * each figure is the median of its rounds: what disturbs the machine for a while disturbs both
 * sides of a ratio.
 *
 * Latency is half a round trip of 8 bytes with both sides polling their CQ. Bandwidth keeps WINDOW
 * requests under way; the other end of a WRITE or READ sleeps, as one-sided targets do.
 */
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 15
#define WINDOW 16
#define SLOT   (1u << 20)
#define AREA   (WINDOW * (uint64_t)SLOT)
#define ECHOES 2000
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

#define NEED(x, what)                                                                              \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			perror(what);                                                              \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

enum command { ECHO_SEND, ECHO_WRITE, TAKE, QUIT };

struct order {
	enum command cmd;
	uint32_t count;
};

struct hello {
	union ibv_gid gid;
	uint32_t qpn, key[2]; /* pinned, on demand */
};

static int sock;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr[2];
static uint8_t *mem[2]; /* pinned and on demand */
static struct hello me, peer;
static uint64_t peer_addr[2];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void tell(const void *p, size_t n)
{
	NEED(write(sock, p, n) == (ssize_t)n, "write");
}

static void hear(void *p, size_t n)
{
	NEED(recv(sock, p, n, MSG_WAITALL) == (ssize_t)n, "the other end");
}

static void *map(uint64_t size, int flags)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1,
		       0);

	NEED(p != MAP_FAILED, "mmap");
	return p;
}

static void connect_qp(void)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
				  .path_mtu = IBV_MTU_4096,
				  .dest_qp_num = peer.qpn,
				  .max_dest_rd_atomic = 16,
				  .min_rnr_timer = 1,
				  .ah_attr = {.is_global = 1,
					      .grh = {.dgid = peer.gid, .hop_limit = 64},
					      .port_num = 1}};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
				  .timeout = 18,
				  .retry_cnt = 7,
				  .rnr_retry = 7,
				  .max_rd_atomic = 16};

	NEED(!ibv_modify_qp(qp, &init,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	     "INIT");
	NEED(!ibv_modify_qp(qp, &rtr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER),
	     "RTR");
	NEED(!ibv_modify_qp(qp, &rts,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
	     "RTS");
}

static void set_up(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	NEED(list && list[0], "no RDMA device");
	struct ibv_context *ctx = ibv_open_device(list[0]);

	NEED(ctx, "open");
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 512, NULL, NULL, 0);
	NEED(pd && cq && !ibv_query_gid(ctx, 1, 0, &me.gid), "PD, CQ, GID");
	struct ibv_qp_init_attr attr = {.send_cq = cq,
					.recv_cq = cq,
					.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 128,
						.max_recv_wr = 128,
						.max_send_sge = 1,
						.max_recv_sge = 1,
						.max_inline_data = 64}};

	qp = ibv_create_qp(pd, &attr);
	NEED(qp, "QP");
	for (int odp = 0; odp < 2; odp++) {
		mem[odp] = map(AREA, 0);
		memset(mem[odp], 1, AREA);
		mr[odp] = ibv_reg_mr(pd, mem[odp], AREA, ACCESS | (odp ? IBV_ACCESS_ON_DEMAND : 0));
		NEED(mr[odp], "register");
		me.key[odp] = mr[odp]->rkey;
	}
	me.qpn = qp->qp_num;
	tell(&me, sizeof(me));
	hear(&peer, sizeof(peer));
	uint64_t mine[2] = {(uintptr_t)mem[0], (uintptr_t)mem[1]};

	tell(mine, sizeof(mine));
	hear(peer_addr, sizeof(peer_addr));
	connect_qp();
	char c = 0;

	tell(&c, 1);
	hear(&c, 1);
}

static void post(enum ibv_wr_opcode op, uint64_t offset, uint64_t to, uint32_t size, bool odp)
{
	struct ibv_sge sge = {(uintptr_t)mem[odp] + offset, size, mr[odp]->lkey};
	struct ibv_send_wr *bad,
		wr = {.sg_list = &sge,
		      .num_sge = 1,
		      .opcode = op,
		      .send_flags = IBV_SEND_SIGNALED |
				    (size <= 64 && op != IBV_WR_RDMA_READ ? IBV_SEND_INLINE : 0),
		      .wr.rdma = {peer_addr[odp] + to, peer.key[odp]}};

	NEED(!ibv_post_send(qp, &wr, &bad), "post_send");
}

static void post_receive(uint64_t offset, uint32_t size)
{
	struct ibv_sge sge = {(uintptr_t)mem[0] + offset, size, mr[0]->lkey};
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};

	NEED(!ibv_post_recv(qp, &wr, &bad), "post_recv");
}

/* takes completions until so many of sends and receives are there; counts what is more for later */
static int64_t sends, receives;

static void reap(int64_t want_sends, int64_t want_receives)
{
	struct ibv_wc wc[16];

	while (sends < want_sends || receives < want_receives) {
		int n = ibv_poll_cq(cq, 16, wc);

		for (int i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS) {
				fprintf(stderr, "rcbench: %s\n", ibv_wc_status_str(wc[i].status));
				exit(1);
			}
			if (wc[i].opcode & IBV_WC_RECV)
				receives++;
			else
				sends++;
		}
	}
	sends -= want_sends;
	receives -= want_receives;
}

/*
 * One receive more than what is announced is always there, as large as any message, so that neither
 * end ever waits for the other's next one.
 */

/* ---- echoes: SENDs by their completions, WRITEs by memory and the CQ that is polled meanwhile
 * ---- */

static void echo_send(uint32_t count, bool first)
{
	for (uint32_t i = 0; i < count; i++) {
		if (first)
			post(IBV_WR_SEND, 0, 0, 8, false);
		reap(first, 1);
		post_receive(AREA - SLOT, SLOT);
		if (!first) {
			post(IBV_WR_SEND, 0, 0, 8, false);
			reap(1, 0);
		}
	}
}

static void await_byte(volatile uint8_t *p, uint8_t value)
{
	struct ibv_wc wc;

	while (*p != value)
		if (ibv_poll_cq(cq, 1, &wc) > 0)
			sends++;
}

static void echo_write(uint32_t count, bool first)
{
	volatile uint8_t *inbox = mem[0] + 135;

	for (uint32_t i = 1; i <= count; i++) {
		uint8_t mark = (uint8_t)(i % 255 + 1);

		if (!first)
			await_byte(inbox, mark);
		memset(mem[0], mark, 8);
		post(IBV_WR_RDMA_WRITE, 0, 128, 8, false);
		if (first)
			await_byte(inbox, mark);
		reap(1, 0);
	}
	*inbox = 0;
}

static void take(uint32_t count)
{
	uint32_t posted = 0;

	for (; posted < WINDOW * 2 && posted < count; posted++)
		post_receive(posted % WINDOW * (uint64_t)SLOT, SLOT);
	char c = 0;

	tell(&c, 1); /* the receives are there */
	for (uint32_t i = 0; i < count; i++) {
		reap(0, 1);
		if (posted < count)
			post_receive(posted++ % WINDOW * (uint64_t)SLOT, SLOT);
	}
}

static void other_end(void)
{
	struct order o;
	char c = 0;

	set_up();
	post_receive(AREA - SLOT, SLOT);
	for (;;) {
		hear(&o, sizeof(o));
		if (o.cmd == QUIT)
			break;
		if (o.cmd == ECHO_SEND)
			echo_send(o.count, false);
		else if (o.cmd == ECHO_WRITE)
			echo_write(o.count, false);
		else
			take(o.count);
		tell(&c, 1);
	}
	exit(0);
}

/* ---- measuring ---- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), by_value);
	return v[n / 2];
}

static double latency(enum command cmd)
{
	struct order o = {.cmd = cmd, .count = ECHOES};
	double t;
	char c;

	tell(&o, sizeof(o));
	t = now();
	if (cmd == ECHO_SEND)
		echo_send(ECHOES, true);
	else
		echo_write(ECHOES, true);
	t = now() - t;
	hear(&c, 1);
	return t / ECHOES / 2 * 1e6;
}

static double bandwidth(enum ibv_wr_opcode op, uint32_t size, bool odp)
{
	uint32_t count = (64u << 20) / size, posted = 0;
	struct order o = {.cmd = TAKE, .count = count};
	double t;
	char c;

	if (op == IBV_WR_SEND) {
		tell(&o, sizeof(o));
		hear(&c, 1);
	}
	t = now();
	for (uint32_t i = 0; i < count; i++) {
		for (; posted < count && posted - i < WINDOW; posted++) {
			uint64_t offset = posted % WINDOW * (uint64_t)SLOT;

			post(op, offset, offset, size, odp);
		}
		reap(1, 0);
	}
	t = now() - t;
	if (op == IBV_WR_SEND)
		hear(&c, 1);
	return (double)count * size / t / 1e9;
}

static double copy(uint32_t size)
{
	uint32_t count = (64u << 20) / size;
	double t = now();

	for (uint32_t i = 0; i < count; i++) {
		uint64_t offset = i % WINDOW * (uint64_t)SLOT;

		memcpy(mem[0] + offset, mem[1] + offset, size);
		__asm__ volatile("" : : "r"(mem[0] + offset) : "memory");
	}
	return (double)count * size / (now() - t) / 1e9;
}

static double registration(uint64_t size, int access, void *at)
{
	double t = now();
	struct ibv_mr *r = ibv_reg_mr(pd, at, size, access);

	t = now() - t;
	NEED(r, "register");
	ibv_dereg_mr(r);
	return t * 1e6;
}

static const char *const op_name[] = {"write", "send", "read"};
static const enum ibv_wr_opcode op_code[] = {IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ};
static const uint32_t sizes[] = {65536, SLOT};

static void measure(void)
{
	static double send_lat[ROUNDS], write_lat[ROUNDS], bw[2][3][ROUNDS], odp[2][ROUNDS],
		ratio[2][ROUNDS], cpy[2][ROUNDS];
	static double reg[3][ROUNDS];
	uint8_t *gib = map(1ul << 30, 0), *vast = map(64ul << 30, MAP_NORESERVE);

	memset(gib, 1, 1ul << 30);
	latency(ECHO_SEND); /* all of it warm */
	for (int r = 0; r < ROUNDS; r++) {
		send_lat[r] = latency(ECHO_SEND);
		write_lat[r] = latency(ECHO_WRITE);
	}
	for (int r = -1; r < ROUNDS; r++)
		for (int s = 0; s < 2; s++) {
			int k = r < 0 ? 0 : r;

			cpy[s][k] = copy(sizes[s]);
			for (int o = 0; o < 3; o++)
				bw[s][o][k] = bandwidth(op_code[o], sizes[s], false);
			odp[s][k] = bandwidth(IBV_WR_RDMA_WRITE, sizes[s], true);
			ratio[s][k] = odp[s][k] / bandwidth(IBV_WR_RDMA_WRITE, sizes[s], false);
		}
	for (int r = 0; r < ROUNDS; r++) {
		if (r < 3)
			reg[0][r] = registration(1ul << 30, ACCESS, gib);
		reg[1][r] = registration(1ul << 30, ACCESS | IBV_ACCESS_ON_DEMAND, gib);
		reg[2][r] = registration(64ul << 30, ACCESS | IBV_ACCESS_ON_DEMAND, vast);
	}
	printf("send_lat_8 %.3f\nwrite_lat_8 %.3f\n", median(send_lat, ROUNDS),
	       median(write_lat, ROUNDS));
	for (int s = 0; s < 2; s++) {
		printf("memcpy_%u %.3f\n", sizes[s], median(cpy[s], ROUNDS));
		for (int o = 0; o < 3; o++)
			printf("%s_bw_%u %.3f\n", op_name[o], sizes[s], median(bw[s][o], ROUNDS));
		printf("odp_write_bw_%u %.3f\nodp_over_pinned_%u %.3f\n", sizes[s],
		       median(odp[s], ROUNDS), sizes[s], median(ratio[s], ROUNDS));
	}
	printf("reg_pinned_1g %.1f\nreg_odp_1g %.1f\nreg_odp_64g %.1f\n", median(reg[0], 3),
	       median(reg[1], ROUNDS), median(reg[2], ROUNDS));
}

int main(int argc, char **argv)
{
	struct order quit = {.cmd = QUIT};
	char number[16];
	int fd[2];

	if (argc == 3 && !strcmp(argv[1], "--other-end")) {
		sock = atoi(argv[2]);
		other_end();
	}
	NEED(!socketpair(AF_UNIX, SOCK_STREAM, 0, fd), "socketpair");
	pid_t pid = fork();

	if (!pid) {
		close(fd[0]);
		snprintf(number, sizeof(number), "%d", fd[1]);
		execl("/proc/self/exe", "rcbench", "--other-end", number, (char *)NULL);
		_exit(127);
	}
	close(fd[1]);
	sock = fd[0];
	set_up();
	post_receive(AREA - SLOT, SLOT);
	measure();
	tell(&quit, sizeof(quit));
	waitpid(pid, NULL, 0);
	return 0;
}
