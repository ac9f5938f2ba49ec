/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mixed traffic over a wire that loses, repeats and reorders (FAULTLINE_IMPAIR, set by who runs it): RC with SENDs,
 * WRITEs with and without immediate, inline and gathered, READs and atomics; UC and UD beside. Every byte
 * is checked. RC loses, repeats and reorders nothing; what UC and UD deliver is whole. Twice: with
 * pinned memory, and on demand while pages are taken away. Argument: seconds for each, default 2.
 */
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "rc.h"

#define LANES	16
#define LANE	(64u << 10)
#define MSG	8192u
#define RECVS	64u
#define UD_MSG	1000u
#define QKEY	0x1234u
#define GRH	40u
#define COUNTER 0u /* in the page behind the lanes */
#define SWAPPED 8u

enum { RC, UC, UD, TYPES };
static const enum ibv_qp_type qp_type[TYPES] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};

struct end {
	struct rc_side side;
	struct ibv_cq *cq[TYPES];
	struct ibv_qp *qp[TYPES];
	struct {
		struct rc_hello rc; /* its PSN is that of all three */
		uint32_t qpn[TYPES];
		uint64_t addr;
		uint32_t rkey;
	} me, peer;
	uint8_t *mem, *recv[TYPES];
	struct ibv_mr *mr, *recv_mr[TYPES];
	int sock;
	bool odp;
};

struct result { /* what the passive end has seen */
	uint64_t rc, uc, ud;
};

static double seconds = 2;

static uint64_t random64(void)
{
	static uint64_t x = 88172645463325252ull;

	x ^= x << 13;
	x ^= x >> 7;
	return x ^= x << 17;
}

static void to_state(struct end *e, int t, enum ibv_qp_state state)
{
	struct rc_opt opt = rc_default;
	struct ibv_qp_attr a = {.qp_state = state, .port_num = 1, .qkey = QKEY, .path_mtu = opt.mtu,
				.dest_qp_num = e->peer.qpn[t], .rq_psn = e->peer.rc.psn,
				.sq_psn = e->me.rc.psn, .qp_access_flags = opt.qp_access,
				.max_rd_atomic = 4, .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
				.timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				.ah_attr = {.is_global = 1, .port_num = 1,
					    .grh = {.dgid = e->peer.rc.gid, .hop_limit = 64}}};
	int mask = IBV_QP_STATE;

	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (t == UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	else if (state == IBV_QPS_RTR && t != UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			(t == RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
	else if (state == IBV_QPS_RTS)
		mask |= IBV_QP_SQ_PSN | (t == RC ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
							   IBV_QP_MAX_QP_RD_ATOMIC
						 : 0);
	CHECK(!ibv_modify_qp(e->qp[t], &a, mask), "QP %d to state %d: %s", t, state, strerror(errno));
}

static void post_recv(struct end *e, int t, uint64_t i)
{
	struct ibv_sge sge = {(uintptr_t)e->recv[t] + i * (MSG + GRH), MSG + GRH, e->recv_mr[t]->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(e->qp[t], &wr, &bad), "ibv_post_recv: %s", strerror(errno));
}

static void open_end(struct end *e, int sock, bool odp)
{
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 256, .max_recv_wr = RECVS, .max_send_sge = 4,
						.max_recv_sge = 1, .max_inline_data = 64}};
	size_t size = 3 * LANES * LANE + PAGE;
	int access = ALL_ACCESS | (odp ? ODP : 0), t;
	const void *volatile me;
	unsigned i;

	rc_open(&e->side);
	e->sock = sock;
	e->odp = odp;
	e->mem = rc_map(size);
	e->mr = rc_reg(&e->side, e->mem, size, access);
	e->me.rc = e->side.me;
	e->me.rc.psn = 0xffff00; /* soon wraps */
	e->me.addr = (uintptr_t)e->mem;
	e->me.rkey = e->mr->rkey;
	for (t = 0; t < TYPES; t++) {
		e->cq[t] = ibv_create_cq(e->side.ctx, 1024, NULL, NULL, 0);
		CHECK(e->cq[t], "ibv_create_cq: %s", strerror(errno));
		init.send_cq = init.recv_cq = e->cq[t];
		init.qp_type = qp_type[t];
		e->qp[t] = ibv_create_qp(e->side.pd, &init);
		CHECK(e->qp[t], "ibv_create_qp: %s", strerror(errno));
		e->me.qpn[t] = e->qp[t]->qp_num;
		e->recv[t] = rc_map(RECVS * (MSG + GRH));
		e->recv_mr[t] = rc_reg(&e->side, e->recv[t], RECVS * (MSG + GRH), access);
		to_state(e, t, IBV_QPS_INIT);
		for (i = 0; i < RECVS; i++)
			post_recv(e, t, i);
	}
	me = &e->me; /* gcc loses sight of its size, under sanitizers, if it is written from in place */
	CHECK(write(sock, me, sizeof(e->me)) == sizeof(e->me), "hello");
}

static void connect_end(struct end *e)
{
	int t;
	char c;

	CHECK(read(e->sock, &e->peer, sizeof(e->peer)) == sizeof(e->peer), "hello");
	for (t = 0; t < TYPES; t++) {
		to_state(e, t, IBV_QPS_RTR);
		to_state(e, t, IBV_QPS_RTS);
	}
	CHECK(write(e->sock, "r", 1) == 1 && read(e->sock, &c, 1) == 1, "ready");
}

static bool poll_one(struct end *e, int t, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(e->cq[t], 1, wc);

	CHECK(n >= 0, "ibv_poll_cq");
	CHECK(!n || wc->status == IBV_WC_SUCCESS, "QP %d, id %lu: %s (vendor %#x)", t, wc->wr_id,
	      ibv_wc_status_str(wc->status), wc->vendor_err);
	return n;
}

/* ---- the end that is written to ---- */

/* bytes of a message: its number, then a pattern of it */
static void check_message(const uint8_t *p, uint32_t len, const char *what)
{
	uint64_t seq;

	CHECK(len >= 8, "%s of %u bytes", what, len);
	memcpy(&seq, p, 8);
	CHECK(rc_differs(p + 8, len - 8, 8, seq & 0xffff) == UINT64_MAX, "%s %lu is damaged", what, seq);
}

static void received(struct end *e, int t, const struct ibv_wc *wc, struct result *r)
{
	const uint8_t *p = e->recv[t] + wc->wr_id * (MSG + GRH);

	switch (t) {
	case RC:
		CHECK(wc->wc_flags & IBV_WC_WITH_IMM && wc->imm_data == htobe32((uint32_t)r->rc),
		      "RC message %u where %lu is due", be32toh(wc->imm_data), r->rc);
		if (wc->opcode == IBV_WC_RECV)
			check_message(p, wc->byte_len, "RC SEND");
		r->rc++;
		break;
	case UC:
		check_message(p, wc->byte_len, "UC SEND");
		r->uc++;
		break;
	default:
		CHECK(wc->byte_len > GRH, "datagram of %u bytes", wc->byte_len);
		check_message(p + GRH, wc->byte_len - GRH, "datagram");
		r->ud++;
	}
	post_recv(e, t, wc->wr_id);
}

static void *passive(void *arg)
{
	struct end *e = arg;
	struct result r = {0};
	struct ibv_wc wc;
	uint64_t turn;
	char c;
	int t;

	connect_end(e);
	for (turn = 0;; turn++) {
		for (t = 0; t < TYPES; t++)
			while (poll_one(e, t, &wc))
				received(e, t, &wc, &r);
		/* pages that hold nothing at the moment: those of receives whose data was read */
		if (e->odp && turn % 512 == 0)
			madvise(e->recv[UC], RECVS * (MSG + GRH), MADV_PAGEOUT);
		if (turn % 64 == 0 && recv(e->sock, &c, 1, MSG_DONTWAIT) == 1)
			break;
	}
	CHECK(write(e->sock, &r, sizeof(r)) == sizeof(r), "result");
	CHECK(read(e->sock, &c, 1) == 1, "end"); /* answers to its last requests may be on their way */
	return NULL;
}

/* ---- the end that works ---- */

struct lane {
	enum { IDLE, WRITING, READING, SENDING, ADDING, SWAPPING } doing;
	uint32_t len, pos;
	uint64_t seed, expect;
};

struct work {
	struct end *e;
	struct lane lane[LANES];
	uint64_t done[SWAPPING + 1];
	uint64_t rc_msgs, uc_msgs, ud_msgs, added, swapped, seed;
	uint8_t *uc_buf;
	struct ibv_mr *uc_mr;
	struct ibv_ah *ah;
	unsigned uc_out, ud_out;
};

static uint8_t *lane_src(const struct work *w, unsigned i)
{
	return w->e->mem + i * LANE;
}

static uint8_t *lane_dst(const struct work *w, unsigned i)
{
	return w->e->mem + (LANES + i) * LANE;
}

static void post(struct work *w, int t, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->send_flags |= IBV_SEND_SIGNALED;
	CHECK(!ibv_post_send(w->e->qp[t], wr, &bad), "ibv_post_send: %s", strerror(errno));
}

/* cuts [p, p + len) into one to four pieces */
static int gather(const struct work *w, uint8_t *p, uint32_t len, struct ibv_sge sge[4])
{
	int n = len < 64 ? 1 : 1 + random64() % 4, i;
	uint32_t part;

	for (i = 0; i < n; i++) {
		part = i == n - 1 ? len : random64() % (len + 1);
		sge[i] = (struct ibv_sge){(uintptr_t)p, part, w->e->mr->lkey};
		p += part;
		len -= part;
	}
	return n;
}

static void begin_write(struct work *w, unsigned i, bool imm)
{
	struct lane *l = &w->lane[i];
	struct ibv_sge sge[4];
	struct ibv_send_wr wr = {.wr_id = i, .sg_list = sge, .opcode = IBV_WR_RDMA_WRITE};

	l->doing = WRITING;
	l->seed = ++w->seed & 0xffff;
	l->len = random64() % 4 ? random64() % 5000 : random64() % (LANE / 2);
	l->pos = random64() % (LANE / 2);
	rc_fill(lane_src(w, i), l->len, l->pos, l->seed);
	wr.num_sge = gather(w, lane_src(w, i), l->len, sge);
	wr.wr.rdma.remote_addr = w->e->peer.addr + i * LANE + l->pos;
	wr.wr.rdma.rkey = w->e->peer.rkey;
	if (l->len <= 64 && random64() & 1)
		wr.send_flags = IBV_SEND_INLINE;
	if (imm) {
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.imm_data = htobe32((uint32_t)w->rc_msgs++);
	}
	post(w, RC, &wr);
	if (wr.send_flags & IBV_SEND_INLINE)
		memset(lane_src(w, i), 0, l->len);
}

static void begin_read(struct work *w, unsigned i)
{
	struct lane *l = &w->lane[i];
	struct ibv_sge sge[4];
	struct ibv_send_wr wr = {.wr_id = i, .sg_list = sge, .opcode = IBV_WR_RDMA_READ};

	l->doing = READING;
	if (w->e->odp && random64() % 8 == 0)
		madvise(lane_dst(w, i), LANE, MADV_DONTNEED);
	memset(lane_dst(w, i), 0x5a, l->len);
	wr.num_sge = gather(w, lane_dst(w, i), l->len, sge);
	wr.wr.rdma.remote_addr = w->e->peer.addr + i * LANE + l->pos;
	wr.wr.rdma.rkey = w->e->peer.rkey;
	post(w, RC, &wr);
}

static void begin_send(struct work *w, unsigned i)
{
	struct lane *l = &w->lane[i];
	struct ibv_sge sge[4];
	struct ibv_send_wr wr = {.wr_id = i, .sg_list = sge, .opcode = IBV_WR_SEND_WITH_IMM};
	uint64_t seq = ++w->seed;

	l->doing = SENDING;
	l->len = 8 + random64() % (MSG - 8);
	memcpy(lane_src(w, i), &seq, 8);
	rc_fill(lane_src(w, i) + 8, l->len - 8, 8, seq & 0xffff);
	wr.num_sge = gather(w, lane_src(w, i), l->len, sge);
	wr.imm_data = htobe32((uint32_t)w->rc_msgs++);
	post(w, RC, &wr);
}

static void begin_atomic(struct work *w, unsigned i)
{
	struct lane *l = &w->lane[i];
	struct ibv_sge sge = {(uintptr_t)lane_dst(w, i), 8, w->e->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};

	wr.wr.atomic.remote_addr = w->e->peer.addr + 3 * LANES * LANE;
	wr.wr.atomic.rkey = w->e->peer.rkey;
	if (random64() & 1) {
		l->doing = ADDING;
		l->expect = w->added++;
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.remote_addr += COUNTER;
		wr.wr.atomic.compare_add = 1;
	} else {
		l->doing = SWAPPING;
		l->expect = w->swapped++;
		wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		wr.wr.atomic.remote_addr += SWAPPED;
		wr.wr.atomic.compare_add = l->expect;
		wr.wr.atomic.swap = l->expect + 1;
	}
	post(w, RC, &wr);
}

static void begin(struct work *w, unsigned i)
{
	switch (random64() % 5) {
	case 0:
		begin_send(w, i);
		break;
	case 1:
		begin_atomic(w, i);
		break;
	default:
		begin_write(w, i, random64() % 3 == 0);
	}
}

static void completed(struct work *w, unsigned i, bool more)
{
	struct lane *l = &w->lane[i];
	uint64_t v, at;

	w->done[l->doing]++;
	switch (l->doing) {
	case WRITING:
		begin_read(w, i);
		return;
	case READING:
		at = rc_differs(lane_dst(w, i), l->len, l->pos, l->seed);
		CHECK(at == UINT64_MAX, "byte %lu of %u at %u, seed %lu, is wrong", at, l->len, l->pos, l->seed);
		break;
	case ADDING:
	case SWAPPING:
		memcpy(&v, lane_dst(w, i), 8);
		CHECK(v == l->expect, "an atomic found %lu where %lu is due", v, l->expect);
		break;
	default:
		break;
	}
	l->doing = IDLE;
	if (more)
		begin(w, i);
}

/* one message of an unreliable transport, if the last ones are out */
static void send_unreliable(struct work *w, int t)
{
	unsigned *out = t == UC ? &w->uc_out : &w->ud_out;
	uint8_t *p = w->uc_buf + (t == UC ? 0 : MSG);
	uint32_t len = 8 + random64() % ((t == UC ? MSG : UD_MSG) - 8);
	struct ibv_sge sge = {(uintptr_t)p, len, w->uc_mr->lkey};
	struct ibv_send_wr wr = {.wr_id = t, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	uint64_t seq = ++w->seed;

	if (*out)
		return;
	memcpy(p, &seq, 8);
	rc_fill(p + 8, len - 8, 8, seq & 0xffff);
	if (t == UD) {
		wr.wr.ud.ah = w->ah;
		wr.wr.ud.remote_qpn = w->e->peer.qpn[UD];
		wr.wr.ud.remote_qkey = QKEY;
	}
	post(w, t, &wr);
	++*out;
	w->uc_msgs += t == UC;
	w->ud_msgs += t == UD;
}

static bool busy(const struct work *w)
{
	unsigned i, n = w->uc_out + w->ud_out;

	for (i = 0; i < LANES; i++)
		n += w->lane[i].doing != IDLE;
	return n;
}

static void active(struct end *e)
{
	struct ibv_ah_attr ah = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};
	struct work w = {.e = e};
	struct result r;
	struct ibv_wc wc;
	double end, quiet;
	uint64_t turn, before;
	unsigned i;

	connect_end(e);
	w.uc_buf = rc_map(2 * MSG);
	w.uc_mr = rc_reg(&e->side, w.uc_buf, 2 * MSG, IBV_ACCESS_LOCAL_WRITE | (e->odp ? ODP : 0));
	ah.grh.dgid = e->peer.rc.gid;
	w.ah = ibv_create_ah(e->side.pd, &ah);
	CHECK(w.ah, "ibv_create_ah: %s", strerror(errno));
	end = rc_now() + seconds;
	quiet = end + 60;
	for (i = 0; i < LANES; i++)
		begin(&w, i);
	for (turn = 0; busy(&w); turn++) {
		bool more = rc_now() < end;

		while (poll_one(e, RC, &wc))
			completed(&w, wc.wr_id, more);
		while (poll_one(e, UC, &wc))
			w.uc_out--;
		while (poll_one(e, UD, &wc))
			w.ud_out--;
		before = w.done[SENDING] + w.done[READING];
		if (more && turn % 16 == 0) {
			send_unreliable(&w, UC);
			send_unreliable(&w, UD);
		}
		CHECK(rc_now() < quiet, "stuck: %lu operations done", before);
	}
	/* as RC messages are acknowledged they have been received; those of the others had their time */
	usleep(20000);
	CHECK(write(e->sock, "d", 1) == 1 && read(e->sock, &r, sizeof(r)) == sizeof(r), "result");
	printf("%s: %lu WRITEs, %lu READs, %lu SENDs, %lu atomics; %lu of %lu UC, %lu of %lu UD\n",
	       e->odp ? "on demand" : "pinned", w.done[WRITING], w.done[READING], w.done[SENDING],
	       w.done[ADDING] + w.done[SWAPPING], r.uc, w.uc_msgs, r.ud, w.ud_msgs);
	CHECK(r.rc == w.rc_msgs, "%lu RC messages received, %lu sent", r.rc, w.rc_msgs);
	CHECK(w.done[READING] > 10 && w.done[SENDING] && w.done[ADDING] && w.done[SWAPPING], "next to nothing done");
	CHECK(r.uc && r.ud, "nothing came by %s", r.uc ? "UD" : "UC");
	CHECK(write(e->sock, "e", 1) == 1, "end");
}

static void soak(bool odp)
{
	const char *link = getenv("E2E_LINK");
	bool loop = !link || !strcmp(link, "loop");
	static struct end a, b;
	pthread_t thread;
	int sv[2], status;
	pid_t pid;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv), "socketpair");
	fflush(stdout);
	pid = loop ? 0 : fork();
	if (!loop && !pid) {
		open_end(&b, sv[1], odp);
		passive(&b);
		exit(0);
	}
	open_end(&a, sv[0], odp);
	if (loop) {
		open_end(&b, sv[1], odp);
		CHECK(!pthread_create(&thread, NULL, passive, &b), "pthread_create");
		active(&a);
		pthread_join(thread, NULL);
	} else {
		active(&a);
		CHECK(waitpid(pid, &status, 0) == pid && !status, "the other end failed");
	}
}

int main(int argc, char **argv)
{
	int kind, status, rc = 0;
	pid_t pid;

	if (argc > 1)
		seconds = atof(argv[1]);
	/* a process each: a device that a parent has open is not its child's */
	for (kind = 0; kind < 2; kind++) {
		pid = fork();
		if (!pid) {
			soak(kind);
			fflush(stdout);
			_exit(0);
		}
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid, "fork");
		if (WIFEXITED(status) && WEXITSTATUS(status) == SKIP)
			rc = SKIP;
		else
			CHECK(!status, "%s memory: see above", kind ? "on-demand" : "pinned");
	}
	return rc;
}
