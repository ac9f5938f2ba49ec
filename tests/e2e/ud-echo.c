/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams there and back. A responder (a thread with a context of its own, or a process) has several
 * QPs on one SRQ; it answers whoever wrote, by the address that ibv_create_ah_from_wc() makes of the
 * GRH, with the same data, changed. All sizes, at odd offsets, pinned and on demand, inline and in
 * pieces; and what must not arrive: wrong Q_Keys, too long, to QPs without receives.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "rc.h"

#define QKEY	 0x11223344u
#define GRH	 40u
#define QPS	 8 /* of the responder; the last one has no receives */
#define DEPTH	 64
#define SLOT	 8192ul /* of a buffer */
#define SEED_OUT 5
#define SEED_IN	 6

struct side {
	struct ibv_wc early[DEPTH]; /* receives met while waiting for a send */
	unsigned num_early;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp[QPS];
	uint8_t *buf;
	struct ibv_mr *mr;
	uint32_t mtu;
};

struct hello {
	union ibv_gid gid;
	uint32_t qpn[QPS];
};

static struct ibv_qp *make_qp(struct side *s, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {.send_cq = s->cq, .recv_cq = s->cq, .srq = srq,
					.cap = {DEPTH, DEPTH, 3, 2, 64}, .sq_sig_all = 1};

	return rc_make_ud(s->pd, &init, QKEY);
}

static void side_open(struct side *s, bool odp)
{
	struct ibv_port_attr port;

	s->ctx = rc_open_device();
	CHECK(!ibv_query_port(s->ctx, 1, &port), "ibv_query_port: %m");
	s->mtu = 128u << port.active_mtu;
	s->pd = ibv_alloc_pd(s->ctx);
	s->cq = ibv_create_cq(s->ctx, 1024, NULL, NULL, 0);
	CHECK(s->pd && s->cq, "PD or CQ: %m");
	s->buf = rc_map(2 * DEPTH * SLOT);
	s->mr = ibv_reg_mr(s->pd, s->buf, 2 * DEPTH * SLOT, IBV_ACCESS_LOCAL_WRITE | (odp ? ODP : 0));
	CHECK(s->mr, "ibv_reg_mr: %m");
}

static void side_close(struct side *s)
{
	CHECK(!ibv_dereg_mr(s->mr) && !ibv_destroy_cq(s->cq) && !ibv_dealloc_pd(s->pd) &&
		      !ibv_close_device(s->ctx),
	      "destroying: %m");
}

/* receives at odd places, a page's end in the middle of the GRH in some */
static uint8_t *slot(struct side *s, unsigned i)
{
	return s->buf + i * SLOT + (i % 2 ? PAGE - 21 : 7);
}

static void post_recv(struct side *s, unsigned i)
{
	struct ibv_sge sge = {(uintptr_t)slot(s, i), s->mtu + GRH, s->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
	int rc = s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->qp[0], &wr, &bad);

	CHECK(!rc, "posting a receive: %d", rc);
}

static bool poll_for(struct side *s, struct ibv_wc *wc, double seconds)
{
	double end = rc_now() + seconds;

	do {
		if (ibv_poll_cq(s->cq, 1, wc) > 0)
			return true;
	} while (rc_now() < end);
	return false;
}

static struct ibv_wc wait_for(struct side *s, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	CHECK(poll_for(s, &wc, 20), "no completion of kind %d", opcode);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == opcode, "a completion of kind %d, status %d",
	      wc.opcode, wc.status);
	return wc;
}

/* ---- the responder ---- */

static void answer(struct side *s, const struct ibv_wc *wc)
{
	uint32_t len = wc->byte_len - GRH;
	uint8_t *got = slot(s, wc->wr_id), *out = s->buf + (DEPTH + wc->wr_id) * SLOT + 3;
	struct ibv_sge sge = {(uintptr_t)out, len, s->mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_IMM, .sg_list = &sge, .num_sge = 1,
				 .send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(len)}, *bad;
	struct ibv_wc done;
	struct ibv_ah *ah;
	unsigned i;

	CHECK(rc_differs(got + GRH, len, len, SEED_OUT) == UINT64_MAX, "%u bytes: wrong at %zu", len,
	      (size_t)rc_differs(got + GRH, len, len, SEED_OUT));
	rc_fill(out, len, len, SEED_IN);
	ah = ibv_create_ah_from_wc(s->pd, (struct ibv_wc *)wc, (struct ibv_grh *)got, 1);
	CHECK(ah, "ibv_create_ah_from_wc: %m");
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = wc->src_qp;
	wr.wr.ud.remote_qkey = 0x80000000; /* ours, which is theirs */
	for (i = 0; i < QPS && s->qp[i]->qp_num != wc->qp_num; i++)
		;
	CHECK(i < QPS, "for QP %#x?", wc->qp_num);
	CHECK(!ibv_post_send(s->qp[i], &wr, &bad), "answering: %m");
	for (;;) {
		CHECK(poll_for(s, &done, 20), "the answer does not complete");
		if (done.opcode == IBV_WC_SEND)
			break;
		/* who has the answer asks again, maybe before we see ours complete */
		CHECK(s->num_early < DEPTH, "more receives than were posted");
		s->early[s->num_early++] = done;
	}
	CHECK(!done.status, "answering: status %d", done.status);
	CHECK(!ibv_destroy_ah(ah), "ibv_destroy_ah: %m");
	post_recv(s, wc->wr_id);
}

static void *responder(void *arg)
{
	int sock = *(int *)arg;
	struct side s = {0};
	struct hello me = {0};
	struct ibv_srq_init_attr srq = {.attr = {DEPTH, 1, 0}};
	struct ibv_wc wc;
	char end;

	side_open(&s, true);
	s.srq = ibv_create_srq(s.pd, &srq);
	CHECK(s.srq, "ibv_create_srq: %m");
	for (unsigned i = 0; i < QPS; i++) {
		s.qp[i] = make_qp(&s, i < QPS - 1 ? s.srq : NULL);
		me.qpn[i] = s.qp[i]->qp_num;
	}
	for (unsigned i = 0; i < DEPTH; i++)
		post_recv(&s, i);
	CHECK(!ibv_query_gid(s.ctx, 1, 0, &me.gid), "ibv_query_gid: %m");
	CHECK(write(sock, &me, sizeof(me)) == sizeof(me), "the socket: %m");
	while (recv(sock, &end, 1, MSG_DONTWAIT) < 0) {
		if (s.num_early)
			wc = s.early[--s.num_early];
		else if (!ibv_poll_cq(s.cq, 1, &wc))
			continue;
		CHECK(!wc.status && wc.opcode == IBV_WC_RECV, "kind %d, status %d", wc.opcode, wc.status);
		answer(&s, &wc);
	}
	for (unsigned i = 0; i < QPS; i++)
		CHECK(!ibv_destroy_qp(s.qp[i]), "ibv_destroy_qp: %m");
	CHECK(!ibv_destroy_srq(s.srq), "ibv_destroy_srq: %m");
	side_close(&s);
	return NULL;
}

/* ---- the client ---- */

static struct side me;
static struct hello peer;
static struct ibv_ah *ah;
static union ibv_gid my_gid;
static uint8_t header_as_sl;
static bool may_lose;

static int send_sges(struct ibv_sge *sge, int n, uint32_t qpn, uint32_t qkey, unsigned flags)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = n,
				 .send_flags = flags}, *bad;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	return ibv_post_send(me.qp[0], &wr, &bad);
}

/* len bytes of pattern at an odd place, in 3 pieces when it is long enough */
static void send_to(uint32_t qpn, uint32_t qkey, uint32_t len, unsigned flags)
{
	static unsigned turn;
	uint8_t *p = me.buf + (DEPTH + turn % DEPTH) * SLOT + turn % 13;
	uint32_t a = len / 3, b = len / 2;
	struct ibv_sge sge[3] = {{(uintptr_t)p, a, me.mr->lkey},
				 {(uintptr_t)p + a, b - a, me.mr->lkey},
				 {(uintptr_t)p + b, len - b, me.mr->lkey}};

	turn++;
	rc_fill(p, len, len, SEED_OUT);
	CHECK(!send_sges(sge, 3, qpn, qkey, flags), "ibv_post_send: %m");
	if (flags & IBV_SEND_INLINE)
		memset(p, 0, len);
	wait_for(&me, IBV_WC_SEND);
}

static void check_grh(const uint8_t *grh, uint32_t len)
{
	const uint8_t *ip = grh + 20;
	uint32_t sum = 0, total = 20 + 8 + 12 + 8 + 4 + (len + 3) / 4 * 4 + 4;

	if (my_gid.raw[10] != 0xff)
		return;
	CHECK(ip[0] == 0x45 && ip[9] == 17 && (uint32_t)(ip[2] << 8 | ip[3]) == total,
	      "version %#x, protocol %u, %u bytes, not %u", ip[0], ip[9], ip[2] << 8 | ip[3], total);
	CHECK(!memcmp(ip + 12, peer.gid.raw + 12, 4) && !memcmp(ip + 16, my_gid.raw + 12, 4),
	      "addresses in the GRH");
	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
	sum = (sum & 0xffff) + (sum >> 16);
	CHECK(sum == 0xffff || (sum & 0xffff) + (sum >> 16) == 0xffff, "checksum in the GRH");
}

/*
 * Over udp a datagram may come to another process of this user that has the same port, and be lost with
 * it when that ends: it is sent again. Nothing else may lose one here.
 */
static struct ibv_wc wait_or_repeat(uint32_t qpn, uint32_t len)
{
	struct ibv_wc wc;

	for (int i = 0; may_lose && i < 10; i++) {
		if (poll_for(&me, &wc, 1)) {
			CHECK(!wc.status && wc.opcode == IBV_WC_RECV, "kind %d, status %d", wc.opcode,
			      wc.status);
			return wc;
		}
		send_to(qpn, QKEY, len, 0);
	}
	return wait_for(&me, IBV_WC_RECV);
}

static void expect(uint32_t qpn, uint32_t len)
{
	struct ibv_wc wc = wait_or_repeat(qpn, len);
	uint8_t *got = slot(&me, wc.wr_id);

	CHECK(wc.src_qp == qpn, "from QP %#x, not %#x", wc.src_qp, qpn);
	CHECK(wc.byte_len == len + GRH, "%u bytes, not %u", wc.byte_len, len + GRH);
	CHECK(wc.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM) && wc.imm_data == htonl(len),
	      "flags %#x, immediate %u", wc.wc_flags, ntohl(wc.imm_data));
	CHECK(!wc.slid && !wc.pkey_index, "what RoCE has not");
	CHECK(wc.sl == header_as_sl, "service level %u, not %u", wc.sl, header_as_sl);
	CHECK(rc_differs(got + GRH, len, len, SEED_IN) == UINT64_MAX, "%u bytes: wrong at %zu", len,
	      (size_t)rc_differs(got + GRH, len, len, SEED_IN));
	check_grh(got, len);
	post_recv(&me, wc.wr_id);
}

static void there_and_back(bool odp)
{
	const uint32_t sizes[] = {0, 1, 3, 64, 65, 255, 1000, 1023, me.mtu - 1, me.mtu};

	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			send_to(peer.qpn[0], QKEY, sizes[i], 0);
			expect(peer.qpn[0], sizes[i]);
		}
		send_to(peer.qpn[0], QKEY, 61, IBV_SEND_INLINE);
		expect(peer.qpn[0], 61);
		/* next time it faults again */
		CHECK(!odp || !madvise(me.buf, 2 * DEPTH * SLOT, MADV_DONTNEED), "madvise: %m");
	}
}

static void many_destinations(void)
{
	for (unsigned i = 0; i < 10 * QPS; i++) {
		if (i % QPS == QPS - 1)
			continue;
		send_to(peer.qpn[i % QPS], QKEY, 100 + i, 0);
		expect(peer.qpn[i % QPS], 100 + i);
	}
}

/* None of these is answered: the one behind them is. */
static void what_is_dropped(void)
{
	send_to(peer.qpn[0], QKEY ^ 1, 33, 0);
	send_to(peer.qpn[QPS - 1], QKEY, 34, 0);
	send_to(peer.qpn[0] ^ 0x3f00, QKEY, 35, 0);
	send_to(peer.qpn[0], QKEY, 36, 0);
	expect(peer.qpn[0], 36);
}

static void too_long(void)
{
	struct ibv_sge sge = {(uintptr_t)me.buf, me.mtu + 1, me.mr->lkey};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_wc wc;

	CHECK(!send_sges(&sge, 1, peer.qpn[0], QKEY, 0), "posting it: %m");
	CHECK(poll_for(&me, &wc, 20) && wc.status == IBV_WC_LOC_LEN_ERR, "status %d", wc.status);
	CHECK(rc_state(me.qp[0]) == IBV_QPS_SQE, "state %d", rc_state(me.qp[0]));
	CHECK(!ibv_modify_qp(me.qp[0], &attr, IBV_QP_STATE), "back to RTS: %m");
	send_to(peer.qpn[0], QKEY, 77, 0);
	expect(peer.qpn[0], 77);
}

static void to_itself(void)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = my_gid, .hop_limit = 9}};
	struct ibv_ah *there = ah;
	struct ibv_wc wc;
	int got = 0;

	ah = ibv_create_ah(me.pd, &attr);
	CHECK(ah, "ibv_create_ah: %m");
	send_to(me.qp[0]->qp_num, QKEY, 50, 0);
	CHECK(poll_for(&me, &wc, 20) && wc.opcode == IBV_WC_RECV && !wc.status, "kind %d", wc.opcode);
	got = wc.byte_len;
	CHECK(got == 90 && wc.src_qp == me.qp[0]->qp_num, "%d bytes from %#x", got, wc.src_qp);
	CHECK(rc_differs(slot(&me, wc.wr_id) + GRH, 50, 50, SEED_OUT) == UINT64_MAX, "wrong data");
	post_recv(&me, wc.wr_id);
	CHECK(!ibv_destroy_ah(ah), "ibv_destroy_ah: %m");
	ah = there;
}

static void client(int sock, bool odp)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};

	me = (struct side){0};
	side_open(&me, odp);
	me.qp[0] = make_qp(&me, NULL);
	for (unsigned i = 0; i < DEPTH; i++)
		post_recv(&me, i);
	CHECK(!ibv_query_gid(me.ctx, 1, 0, &my_gid), "ibv_query_gid: %m");
	/* ConnectX's completions tell IPv4 from IPv6; others' say nothing */
	if (!strncmp(ibv_get_device_name(me.ctx->device), "mlx5", 4))
		header_as_sl = my_gid.raw[10] == 0xff ? 10 : 9;
	if (sock >= 0)
		CHECK(recv(sock, &peer, sizeof(peer), MSG_WAITALL) == sizeof(peer), "the socket: %m");
	attr.grh.dgid = peer.gid;
	attr.grh.hop_limit = 64;
	ah = ibv_create_ah(me.pd, &attr);
	CHECK(ah, "ibv_create_ah: %m");
	there_and_back(odp);
	many_destinations();
	what_is_dropped();
	too_long();
	to_itself();
	CHECK(!ibv_destroy_qp(me.qp[0]) && !ibv_destroy_ah(ah), "destroying: %m");
	side_close(&me);
}

int main(void)
{
	const char *link = getenv("E2E_LINK");
	bool process = link && strcmp(link, "loop");
	pthread_t thread;
	int sock[2], status;
	pid_t pid = 0;

	may_lose = link && !strcmp(link, "udp");
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sock), "socketpair: %m");
	if (process)
		pid = fork();
	CHECK(pid >= 0, "fork: %m");
	if (process && !pid) {
		close(sock[0]);
		responder(&sock[1]);
		return 0;
	}
	if (!process)
		CHECK(!pthread_create(&thread, NULL, responder, &sock[1]), "pthread_create");
	client(sock[0], true);
	client(-1, false);
	CHECK(write(sock[0], "", 1) == 1, "the socket: %m");
	if (process)
		CHECK(waitpid(pid, &status, 0) == pid && !status, "the responder: %#x", status);
	else
		pthread_join(thread, NULL);
	return 0;
}
