/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A datagram to a multicast group reaches every QP that is attached to it, once: in the sending
 * process, the sender itself among them, and in another; with the group's address in its GRH. Not
 * one that has left, nor one with another Q_Key, nor one of another group. And what may not be
 * attached. Its GRH has the traffic class and the hop limit of the address handle, since it went
 * over the wire.
 */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "rc.h"

#define QKEY   0x1234u
#define GRH    40u
#define MCAST  0xffffffu
#define LEN    733u
#define SLOT   2048u
#define CLASS  0x68u
#define GROUPS 100 /* joined and left one after the other: more than can be had at once */

struct member {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	uint8_t *buf;
	struct ibv_mr *mr;
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static union ibv_gid own;

static union ibv_gid group(uint8_t last)
{
	union ibv_gid g = {.raw = {[10] = 0xff, 0xff, 239, 7, 7}};

	g.raw[15] = last;
	return g;
}

static void open_all(void)
{
	ctx = rc_open_device();
	pd = ibv_alloc_pd(ctx);
	CHECK(pd, "ibv_alloc_pd: %m");
	CHECK(!ibv_query_gid(ctx, 1, 0, &own), "ibv_query_gid: %m");
}

static struct member join(uint32_t qkey)
{
	struct member m = {.cq = ibv_create_cq(ctx, 64, NULL, NULL, 0), .buf = rc_map(64 * SLOT)};
	struct ibv_qp_init_attr init = {.send_cq = m.cq,
					.recv_cq = m.cq,
					.cap = {16, 16, 1, 1, 0},
					.sq_sig_all = 1};

	CHECK(m.cq, "ibv_create_cq: %m");
	m.mr = ibv_reg_mr(pd, m.buf, 64 * SLOT, IBV_ACCESS_LOCAL_WRITE);
	CHECK(m.mr, "ibv_reg_mr: %m");
	m.qp = rc_make_ud(pd, &init, qkey);
	for (uint64_t i = 1; i < 8; i++) {
		struct ibv_sge sge = {(uintptr_t)m.buf + i * SLOT, SLOT, m.mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;

		CHECK(!ibv_post_recv(m.qp, &wr, &bad), "ibv_post_recv");
	}
	return m;
}

static bool poll(struct member *m, struct ibv_wc *wc, double seconds)
{
	double end = rc_now() + seconds;

	while (ibv_poll_cq(m->cq, 1, wc) < 1)
		if (rc_now() > end)
			return false;
	return true;
}

static void post_datagram(struct member *m, struct ibv_ah *ah, uint64_t seed)
{
	struct ibv_sge sge = {(uintptr_t)m->buf, LEN, m->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .wr.ud = {ah, MCAST, QKEY}},
			   *bad;

	rc_fill(m->buf, LEN, 0, seed);
	CHECK(!ibv_post_send(m->qp, &wr, &bad), "ibv_post_send");
}

static void has(struct member *m, const char *who, uint32_t src, uint64_t seed)
{
	union ibv_gid to = group(1);
	struct ibv_wc wc;

	do
		CHECK(poll(m, &wc, 10), "%s: nothing arrives", who);
	while (wc.opcode == IBV_WC_SEND);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == GRH + LEN && wc.src_qp == src &&
		      (wc.wc_flags & IBV_WC_GRH),
	      "%s: %s, %u bytes, from %x", who, ibv_wc_status_str(wc.status), wc.byte_len,
	      wc.src_qp);
	CHECK(rc_differs(m->buf + wc.wr_id * SLOT + GRH, LEN, 0, seed) == UINT64_MAX, "%s: data",
	      who);
	CHECK(!memcmp(m->buf + wc.wr_id * SLOT + 36, to.raw + 12, 4), "%s: the GRH's destination",
	      who);
	CHECK((m->buf[wc.wr_id * SLOT + 21] & ~3u) == CLASS, "%s: traffic class %02x", who,
	      m->buf[wc.wr_id * SLOT + 21]);
	CHECK(m->buf[wc.wr_id * SLOT + 28] == 3, "%s: hop limit %u", who,
	      m->buf[wc.wr_id * SLOT + 28]);
	CHECK(!memcmp(m->buf + wc.wr_id * SLOT + 32, own.raw + 12, 4), "%s: the GRH's source", who);
}

static void has_no_more(struct member *m, const char *who)
{
	struct ibv_wc wc;

	while (poll(m, &wc, 0.1))
		CHECK(wc.opcode == IBV_WC_SEND, "%s: one too many", who);
}

static void refused(struct member *m)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .send_cq = m->cq, .recv_cq = m->cq, .cap = {1, 1, 1, 1, 0}};
	struct ibv_qp *rc = ibv_create_qp(pd, &init);
	union ibv_gid g = group(1), other = group(9);

	CHECK(rc, "ibv_create_qp: %m");
	CHECK(ibv_attach_mcast(rc, &g, 0) == EINVAL, "an RC QP");
	CHECK(!ibv_destroy_qp(rc), "ibv_destroy_qp");
	CHECK(ibv_attach_mcast(m->qp, &own, 0) == EINVAL, "no multicast address");
	CHECK(ibv_detach_mcast(m->qp, &other, 0) == EINVAL,
	      "detached from a group that it is not in");
	CHECK(ibv_destroy_qp(m->qp) == EBUSY, "destroyed while attached");
	CHECK(!ibv_attach_mcast(m->qp, &g, 0), "attached twice");
}

/* the other process: in the group, tells when, and what it has seen */
static int other_process(int sock)
{
	union ibv_gid g = group(1);
	struct member m;
	uint32_t src;

	open_all();
	m = join(QKEY);
	CHECK(!ibv_attach_mcast(m.qp, &g, 0), "ibv_attach_mcast: %m");
	CHECK(write(sock, "r", 1) == 1 && read(sock, &src, sizeof(src)) == sizeof(src), "socket");
	has(&m, "the other process", src, 1);
	has_no_more(&m, "the other process");
	CHECK(!ibv_detach_mcast(m.qp, &g, 0), "ibv_detach_mcast");
	CHECK(write(sock, "d", 1) == 1, "socket");
	return 0;
}

int main(void)
{
	union ibv_gid g = group(1), g2 = group(2);
	struct ibv_ah_attr to = {
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = g, .hop_limit = 3, .traffic_class = CLASS, .flow_label = 0x54321}};
	struct member sender, member, bad_key, elsewhere;
	struct ibv_ah *ah;
	int sv[2], status;
	char c;
	pid_t pid;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv), "socketpair");
	pid = fork();
	if (!pid)
		return other_process(sv[1]);
	close(sv[1]);
	open_all();
	sender = join(QKEY);
	member = join(QKEY);
	bad_key = join(QKEY + 1);
	elsewhere = join(QKEY);
	CHECK(!ibv_attach_mcast(sender.qp, &g, 0), "ibv_attach_mcast: %m");
	CHECK(!ibv_attach_mcast(member.qp, &g, 0), "ibv_attach_mcast: %m");
	CHECK(!ibv_attach_mcast(bad_key.qp, &g, 0), "ibv_attach_mcast: %m");
	CHECK(!ibv_attach_mcast(elsewhere.qp, &g2, 0), "ibv_attach_mcast: %m");
	refused(&member);
	ah = ibv_create_ah(pd, &to);
	CHECK(ah, "ibv_create_ah: %m");
	CHECK(read(sv[0], &c, 1) == 1, "the other process is gone");
	CHECK(write(sv[0], &sender.qp->qp_num, 4) == 4, "socket");
	post_datagram(&sender, ah, 1);
	has(&member, "a member", sender.qp->qp_num, 1);
	has(&sender, "the sender", sender.qp->qp_num, 1);
	has_no_more(&bad_key, "another Q_Key");
	has_no_more(&elsewhere, "another group");
	CHECK(read(sv[0], &c, 1) == 1, "the other process is gone");
	CHECK(waitpid(pid, &status, 0) == pid && !status, "the other process");

	CHECK(!ibv_detach_mcast(member.qp, &g, 0), "ibv_detach_mcast");
	post_datagram(&sender, ah, 2);
	has(&sender, "the sender", sender.qp->qp_num, 2);
	has_no_more(&member, "one that has left");

	/* places of groups that were left are used again, and what comes there is the new group's
	 */
	for (int i = 0; i < GROUPS; i++) {
		union ibv_gid next = group(100 + i);

		CHECK(!ibv_attach_mcast(member.qp, &next, 0), "group %d: %m", i);
		CHECK(!ibv_detach_mcast(member.qp, &next, 0), "group %d", i);
	}
	CHECK(!ibv_attach_mcast(member.qp, &g, 0), "ibv_attach_mcast: %m");
	post_datagram(&sender, ah, 3);
	has(&member, "one that is back", sender.qp->qp_num, 3);
	CHECK(!ibv_detach_mcast(member.qp, &g, 0) && !ibv_destroy_qp(member.qp),
	      "destroyed after it left: %m");
	ibv_destroy_ah(ah);
	return 0;
}
