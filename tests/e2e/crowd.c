/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * More processes than cores on one address: four clients, each with a peer of its own. Writes, reads, messages and
 * datagrams, every byte checked. Amid it the peer of one client is killed, and another client with its peer.
 * Whose own peer has gone is told; the others lose nothing of their connections, and of datagrams nothing wrong
 * comes to them. Over udp all share the port, and what comes to one process is mostly another's.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "rc.h"

#define CLIENTS 4
#define LOSES_PEER 1 /* these two do not end well */
#define DIES 2
#define ROUNDS 25 /* before the killing, and after it */
#define SIZE 65536u
#define QKEY 0x1234u
#define GRAMS 16 /* between two looks at what came */
#define GRAM 1024u
#define GRH 40u

static struct shared {
	_Atomic bool stop;
	_Atomic uint32_t rounds[CLIENTS];
	_Atomic int peer[CLIENTS]; /* its process */
} *sh;

/* ---- datagrams: a QP and a place for each ---- */

struct grams {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint8_t *buf;
	struct ibv_mr *mr;
};

static void gram_recv(struct grams *g, uint64_t i)
{
	struct ibv_sge sge = {(uintptr_t)g->buf + i * 2 * GRAM, GRAM + GRH, g->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(g->qp, &wr, &bad), "ibv_post_recv: %m");
}

static void grams_open(struct rc_side *s, struct grams *g)
{
	struct ibv_qp_init_attr init = {.cap = {GRAMS, GRAMS, 1, 1, 0}, .sq_sig_all = 1};

	g->cq = init.send_cq = init.recv_cq = ibv_create_cq(s->ctx, 4 * GRAMS, NULL, NULL, 0);
	CHECK(g->cq, "ibv_create_cq: %m");
	g->buf = rc_map(GRAMS * 2 * GRAM);
	g->mr = rc_reg(s, g->buf, GRAMS * 2 * GRAM, ALL_ACCESS);
	g->qp = rc_make_ud(s->pd, &init, QKEY);
}

static void grams_close(struct grams *g)
{
	CHECK(!ibv_destroy_qp(g->qp) && !ibv_dereg_mr(g->mr) && !ibv_destroy_cq(g->cq), "destroying: %m");
}

/* At the peer: first, what it is to get datagrams with; then, how many came from that QP; at last, from none. */
static void own(struct rc_side *s, struct rc_msg *m)
{
	static struct grams g;
	uint64_t from = m->arg[0], seed = m->arg[1], got = 0;
	struct ibv_wc wc;

	if (!g.qp) {
		grams_open(s, &g);
		for (uint64_t i = 0; i < GRAMS; i++)
			gram_recv(&g, i);
		m->arg[0] = g.qp->qp_num;
		return;
	}
	if (!from) {
		grams_close(&g);
		return;
	}
	for (; ibv_poll_cq(g.cq, 1, &wc) > 0; got++) {
		uint8_t *data = g.buf + wc.wr_id * 2 * GRAM + GRH;
		uint32_t len = wc.byte_len - GRH;

		CHECK(!wc.status && wc.src_qp == from, "a datagram from %#x, status %d", wc.src_qp, wc.status);
		CHECK(rc_differs(data, len, len, seed) == UINT64_MAX, "a datagram of %u bytes is wrong", len);
		gram_recv(&g, wc.wr_id);
	}
	m->arg[0] = got;
}

/* ---- a client ---- */

struct client {
	struct rc_side s;
	struct rc_peer *peer;
	struct grams g;
	struct ibv_ah *ah;
	uint32_t gram_qpn;
	uint8_t *m;
	struct ibv_mr *mr;
	struct rc_remote r;
	uint64_t seed;
};

static void client_open(struct client *c, uint64_t seed)
{
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};

	c->seed = seed;
	rc_open(&c->s);
	c->peer = rc_peer_start();
	c->m = rc_map(2 * SIZE);
	c->mr = rc_reg(&c->s, c->m, 2 * SIZE, ALL_ACCESS);
	c->r = rc_peer_buf(c->peer, SIZE, ALL_ACCESS | ODP, RC_SAME, RC_ANON);
	rc_connect_peer(&c->s, c->peer, &rc_default);
	grams_open(&c->s, &c->g);
	c->gram_qpn = (uint32_t)rc_call(c->peer, RC_OWN);
	to.grh.dgid = c->s.me.gid; /* all are at one address */
	c->ah = ibv_create_ah(c->s.pd, &to);
	CHECK(c->ah, "ibv_create_ah: %m");
}

/* false: the connection is broken */
static bool request(struct client *c, enum ibv_wr_opcode op, uint32_t at, uint32_t len)
{
	uint64_t local = (uintptr_t)c->m + (op == IBV_WR_RDMA_READ ? SIZE : 0) + at;
	struct ibv_wc wc;

	CHECK(!rc_post(&c->s, op, local, len, c->mr->lkey, c->r.iova + at, c->r.key), "post");
	CHECK(rc_poll(&c->s, &wc, 40), "no completion");
	if (wc.status != IBV_WC_SUCCESS)
		fprintf(stderr, "client %lu: %s\n", c->seed, ibv_wc_status_str(wc.status));
	return wc.status == IBV_WC_SUCCESS;
}

static void send_gram(struct client *c, uint32_t n)
{
	uint32_t len = n * 37 % GRAM;
	struct ibv_sge sge = {(uintptr_t)c->g.buf, len, c->g.mr->lkey};
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1,
				       .wr.ud = {c->ah, c->gram_qpn, QKEY}};
	struct ibv_wc wc;
	double end = rc_now() + 20;

	rc_fill(c->g.buf, len, len, c->seed);
	CHECK(!ibv_post_send(c->g.qp, &wr, &bad), "ibv_post_send");
	while (!ibv_poll_cq(c->g.cq, 1, &wc))
		CHECK(rc_now() < end, "a datagram does not leave");
	CHECK(!wc.status, "a datagram: status %d", wc.status);
}

/* One of each kind; false: the connection is broken. */
static bool client_round(struct client *c, uint32_t n)
{
	uint32_t len = 1 + n * 7919 % 60000, at = n * 131 % 5000;
	uint64_t wrong;

	rc_fill(c->m + at, len, n, c->seed);
	if (!request(c, IBV_WR_RDMA_WRITE, at, len) || !request(c, IBV_WR_RDMA_READ, at, len))
		return false;
	wrong = rc_differs(c->m + SIZE + at, len, n, c->seed);
	CHECK(wrong == UINT64_MAX, "client %lu, round %u: byte %lu of %u comes back wrong", c->seed, n, wrong, len);
	send_gram(c, n);
	return true;
}

/* Where it is the peer's turn as well: not when it may be killed. */
static void with_peer(struct client *c, uint32_t n, uint64_t *grams)
{
	uint32_t len = 1 + n * 4099 % 60000;
	struct rc_msg recv = {.op = RC_RECV, .num_sge = 1, .sge = {{c->r.buf, 0, SIZE}}};

	CHECK(!rc_call_msg(c->peer, recv).arg[0], "the peer's receive");
	rc_fill(c->m, len, 0, c->seed + n);
	CHECK(request(c, IBV_WR_SEND, 0, len), "a message");
	CHECK(rc_call(c->peer, RC_WAIT, 20000) == 1, "the peer's receive has no end");
	CHECK(rc_call(c->peer, RC_DIFFERS, c->r.buf, 0, len, 0, c->seed + n) == UINT64_MAX, "a message is wrong");
	*grams += rc_call(c->peer, RC_OWN, c->g.qp->qp_num, c->seed);
}

static void client(unsigned i)
{
	static struct client c;
	bool udp = !strcmp(getenv("E2E_LINK"), "udp");
	uint64_t grams = 0;
	uint32_t n;

	client_open(&c, i + 1);
	atomic_store(&sh->peer[i], rc_peer_pid(c.peer));
	for (n = 0; !atomic_load(&sh->stop); n++) {
		if (!client_round(&c, n)) {
			CHECK(i == LOSES_PEER, "the connection is broken, and the peer lives");
			return;
		}
		if (i != LOSES_PEER && i != DIES && n % GRAMS == GRAMS - 1)
			with_peer(&c, n, &grams);
		atomic_fetch_add(&sh->rounds[i], 1);
	}
	CHECK(i != LOSES_PEER && i != DIES, "went on without its peer");
	/* in shared memory what was sent before a connection's request has come before it */
	CHECK(udp ? grams > 0 : grams == n / GRAMS * GRAMS, "%lu datagrams of %u came", grams, n);
	rc_call(c.peer, RC_OWN, 0);
	rc_peer_stop(c.peer);
}

/* ---- all of them ---- */

static pid_t start_client(int fd, unsigned i)
{
	char fd_text[16], i_text[16];
	pid_t pid;

	snprintf(fd_text, sizeof(fd_text), "%d", fd);
	snprintf(i_text, sizeof(i_text), "%u", i);
	pid = fork();
	CHECK(pid >= 0, "fork: %m");
	if (!pid) {
		execl("/proc/self/exe", "client", "--client", fd_text, i_text, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static void wait_rounds(const pid_t *pid, const bool *counts, uint32_t more)
{
	uint32_t from[CLIENTS];

	for (unsigned i = 0; i < CLIENTS; i++)
		from[i] = atomic_load(&sh->rounds[i]);
	for (unsigned i = 0; i < CLIENTS; i++)
		while (counts[i] && atomic_load(&sh->rounds[i]) - from[i] < more) {
			CHECK(waitpid(pid[i], NULL, WNOHANG) == 0, "client %u has ended", i);
			usleep(1000);
		}
}

int main(int argc, char **argv)
{
	bool counts[CLIENTS] = {true, true, true, true};
	int fd, status;
	pid_t pid[CLIENTS];

	rc_own = own;
	rc_main(argc, argv);
	fd = argc == 4 ? atoi(argv[2]) : memfd_create("shared", 0);
	CHECK(fd >= 0 && (argc == 4 || !ftruncate(fd, sizeof(*sh))), "memfd_create: %m");
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(sh != MAP_FAILED, "mmap: %m");
	if (argc == 4) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		client((unsigned)atoi(argv[3]));
		return 0;
	}
	alarm(100); /* who waits for ever fails */
	for (unsigned i = 0; i < CLIENTS; i++)
		pid[i] = start_client(fd, i);
	wait_rounds(pid, counts, ROUNDS);
	CHECK(!kill(atomic_load(&sh->peer[LOSES_PEER]), SIGKILL) && !kill(pid[DIES], SIGKILL), "kill: %m");
	counts[LOSES_PEER] = counts[DIES] = false;
	wait_rounds(pid, counts, ROUNDS);
	CHECK(waitpid(pid[LOSES_PEER], &status, 0) == pid[LOSES_PEER] && !status, "who lost its peer: %#x", status);
	CHECK(waitpid(pid[DIES], NULL, 0) == pid[DIES], "waitpid: %m");
	atomic_store(&sh->stop, true);
	for (unsigned i = 0; i < CLIENTS; i++)
		if (counts[i])
			CHECK(waitpid(pid[i], &status, 0) == pid[i] && !status, "client %u: %#x", i, status);
	for (unsigned i = 0; i < CLIENTS; i++)
		printf("client %u: %u rounds\n", i, atomic_load(&sh->rounds[i]));
	return 0;
}
