/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SRD among many: one QP of this process speaks to the QPs of several peers (threads with contexts of their own,
 * or processes) at once. Each message arrives once, whatever the wire does to it; what is written is there, and is
 * read back; an error is the work request's alone; a peer that is killed holds up nobody else.
 * argv: "kill" for the last; "refused" on a device that is no EFA, where there is none of it.
 */
#include <arpa/inet.h>
#include <infiniband/efadv.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "rc.h"

#define QKEY	 0x11111111u
#define PEERS	 4
#define QPS	 2 /* of a peer */
#define MESSAGES 150u /* to each QP */
#define DEPTH	 256
#define SLOT	 4096ul
#define REGION	 (1u << 20)
#define SEED_OUT 11
#define SEED_IN	 12
#define SEED_RDMA 13

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp[QPS];
	uint8_t *buf; /* DEPTH receives, DEPTH sends, the region */
	struct ibv_mr *mr;
	uint32_t mtu;
};

struct hello {
	union ibv_gid gid;
	uint32_t qpn[QPS], rkey;
	uint64_t addr;
};

struct done {
	uint64_t id;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t src_qp, len, imm, vendor_err;
	bool has_imm, has_sgid;
	union ibv_gid sgid;
};

static uint8_t *region(const struct side *s)
{
	return s->buf + 2 * DEPTH * SLOT;
}

static struct ibv_qp *make_qp(struct side *s, uint8_t rnr_retry)
{
	struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_DRIVER, .pd = s->pd, .sq_sig_all = 1,
					   .send_cq = ibv_cq_ex_to_cq(s->cq), .recv_cq = ibv_cq_ex_to_cq(s->cq),
					   .cap = {DEPTH, DEPTH, 1, 1, 32},
					   .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					   .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
							     IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE |
							     IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM};
	struct efadv_qp_init_attr efa = {.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY, .rnr_retry = rnr_retry};
	struct ibv_qp *qp = efadv_create_qp_ex(s->ctx, &init, &efa, sizeof(efa));

	CHECK(qp, "efadv_create_qp_ex: %m");
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT: %m");
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "RTR: %m");
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY), "RTS: %m");
	return qp;
}

static void post_recv(struct side *s, unsigned q, unsigned i)
{
	struct ibv_sge sge = {(uintptr_t)s->buf + i * SLOT, SLOT, s->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
	int rc = ibv_post_recv(s->qp[q], &wr, &bad);

	CHECK(!rc, "posting a receive: %d", rc);
}

static void side_open(struct side *s, struct hello *h)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 4 * DEPTH, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct efadv_cq_init_attr efa = {.wc_flags = EFADV_WC_EX_WITH_SGID};
	size_t size = 2 * DEPTH * SLOT + REGION;
	struct ibv_port_attr port;

	s->ctx = rc_open_device();
	s->pd = ibv_alloc_pd(s->ctx);
	s->cq = efadv_create_cq(s->ctx, &attr, &efa, sizeof(efa));
	CHECK(s->pd && s->cq && !ibv_query_port(s->ctx, 1, &port), "PD, CQ, port: %m");
	s->mtu = 128u << port.active_mtu;
	s->buf = rc_map(size);
	s->mr = ibv_reg_mr(s->pd, s->buf, size,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	if (!s->mr)
		rc_skip_if_memlocked(errno);
	CHECK(s->mr, "ibv_reg_mr: %m");
	for (unsigned q = 0; q < QPS; q++) {
		s->qp[q] = make_qp(s, 7);
		h->qpn[q] = s->qp[q]->qp_num;
	}
	for (unsigned i = 0; i < DEPTH; i++)
		post_recv(s, i % QPS, i);
	h->rkey = s->mr->rkey;
	h->addr = (uintptr_t)region(s);
	CHECK(!ibv_query_gid(s->ctx, 1, 0, &h->gid), "ibv_query_gid: %m");
}

static void side_close(struct side *s)
{
	for (unsigned q = 0; q < QPS; q++)
		CHECK(!ibv_destroy_qp(s->qp[q]), "ibv_destroy_qp: %m");
	CHECK(!ibv_dereg_mr(s->mr) && !ibv_destroy_cq(ibv_cq_ex_to_cq(s->cq)) && !ibv_dealloc_pd(s->pd) &&
		      !ibv_close_device(s->ctx),
	      "destroying: %m");
}

static bool poll_once(struct side *s, struct done *d)
{
	struct ibv_poll_cq_attr attr = {0};

	if (ibv_start_poll(s->cq, &attr))
		return false;
	*d = (struct done){.id = s->cq->wr_id, .status = s->cq->status, .opcode = ibv_wc_read_opcode(s->cq),
			   .src_qp = ibv_wc_read_src_qp(s->cq), .len = ibv_wc_read_byte_len(s->cq),
			   .imm = ntohl(ibv_wc_read_imm_data(s->cq)), .vendor_err = ibv_wc_read_vendor_err(s->cq),
			   .has_imm = ibv_wc_read_wc_flags(s->cq) & IBV_WC_WITH_IMM};
	d->has_sgid = d->opcode & IBV_WC_RECV && !efadv_wc_read_sgid(efadv_cq_from_ibv_cq_ex(s->cq), &d->sgid);
	ibv_end_poll(s->cq);
	return true;
}

static struct done wait_done(struct side *s)
{
	double end = rc_now() + 30;
	struct done d;

	while (!poll_once(s, &d))
		CHECK(rc_now() < end, "no completion");
	return d;
}

static struct ibv_ah *make_ah(struct side *s, const union ibv_gid *gid)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .hop_limit = 64}};
	struct ibv_ah *ah = ibv_create_ah(s->pd, &attr);

	CHECK(ah, "ibv_create_ah: %m");
	return ah;
}

static struct ibv_ah *ah;

static int post(struct side *s, struct ibv_qp *qp, enum ibv_wr_opcode op, uint64_t id, void *p, uint32_t len, uint32_t qpn,
		uint32_t qkey, uint64_t raddr, uint32_t rkey)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);

	ibv_wr_start(x);
	x->wr_id = id;
	x->wr_flags = IBV_SEND_SIGNALED;
	if (op == IBV_WR_SEND_WITH_IMM)
		ibv_wr_send_imm(x, htonl(id));
	else if (op == IBV_WR_RDMA_WRITE)
		ibv_wr_rdma_write(x, rkey, raddr);
	else if (op == IBV_WR_RDMA_WRITE_WITH_IMM)
		ibv_wr_rdma_write_imm(x, rkey, raddr, htonl(id));
	else
		ibv_wr_rdma_read(x, rkey, raddr);
	ibv_wr_set_ud_addr(x, ah, qpn, qkey);
	ibv_wr_set_sge(x, s->mr->lkey, (uintptr_t)p, len);
	return ibv_wr_complete(x);
}

static uint32_t size_of(const struct side *s, uint32_t number)
{
	return 4 + number * 37 % (s->mtu - 3);
}

/* RDMA operation i has a place and a pattern of its own */
#define RDMAS	   5
#define RDMA_PLACE (REGION / 8)

static uint32_t rdma_size(const struct side *s, unsigned i)
{
	const uint32_t sizes[RDMAS] = {1, s->mtu, s->mtu + 1, 100001, REGION / 2};

	return sizes[i];
}

/* ---- a peer: says everything back to whom it came from, and counts ---- */

static void echo(struct side *s, struct ibv_ah **back, const struct done *d, uint8_t *seen, unsigned *busy)
{
	uint8_t *got = s->buf + d->id * SLOT, *out = s->buf + (DEPTH + d->id) * SLOT;
	struct ibv_sge sge = {(uintptr_t)out, d->len, s->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = d->id, .opcode = IBV_WR_SEND_WITH_IMM, .sg_list = &sge, .num_sge = 1,
				 .send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(d->imm)}, *bad;

	CHECK(d->has_imm && d->imm < PEERS * QPS * MESSAGES, "number %u", d->imm);
	CHECK(!seen[d->imm]++, "message %u came twice", d->imm);
	CHECK(d->len == size_of(s, d->imm) && rc_differs(got, d->len, d->imm, SEED_OUT) == UINT64_MAX,
	      "message %u of %u bytes is not what was sent", d->imm, d->len);
	/* of one whose address has no handle the address is told */
	CHECK(d->has_sgid || *back, "the sender's address is not told");
	if (!*back)
		*back = make_ah(s, &d->sgid);
	rc_fill(out, d->len, d->imm, SEED_IN);
	wr.wr.ud.ah = *back;
	wr.wr.ud.remote_qpn = d->src_qp;
	wr.wr.ud.remote_qkey = QKEY;
	CHECK(!ibv_post_send(s->qp[d->id % QPS], &wr, &bad), "answering: %m");
	++*busy;
}

static void *peer(void *arg)
{
	int sock = *(int *)arg;
	struct side s = {0};
	struct hello h = {0};
	uint8_t seen[PEERS * QPS * MESSAGES] = {0};
	struct ibv_ah *back = NULL;
	unsigned busy = 0;
	struct done d;
	char end;

	side_open(&s, &h);
	CHECK(write(sock, &h, sizeof(h)) == sizeof(h), "the socket: %m");
	while (busy || recv(sock, &end, 1, MSG_DONTWAIT) < 0) {
		if (!poll_once(&s, &d))
			continue;
		CHECK(!d.status, "status %d", d.status);
		if (d.opcode == IBV_WC_RECV) {
			echo(&s, &back, &d, seen, &busy);
		} else if (d.opcode == IBV_WC_SEND) {
			busy--;
			post_recv(&s, d.id % QPS, d.id);
		} else {
			CHECK(d.opcode == IBV_WC_RECV_RDMA_WITH_IMM && d.has_imm && d.imm < RDMAS && d.len == rdma_size(&s, d.imm),
			      "kind %d, %u bytes", d.opcode, d.len);
			CHECK(rc_differs(region(&s) + d.imm * RDMA_PLACE, d.len, 0, SEED_RDMA + d.imm) == UINT64_MAX,
			      "%u bytes that we are told of are not there", d.len);
			post_recv(&s, d.id % QPS, d.id);
		}
	}
	CHECK(!back || !ibv_destroy_ah(back), "ibv_destroy_ah: %m");
	side_close(&s);
	close(sock);
	return NULL;
}

/* ---- the hub ---- */

static struct side me;
static struct hello to[PEERS];
static uint8_t answered[PEERS * QPS * MESSAGES], completed[PEERS * QPS * MESSAGES];

static uint32_t qpn_of(uint32_t number)
{
	uint32_t t = number % (PEERS * QPS);

	return to[t / QPS].qpn[t % QPS];
}

static void each_arrives_once(void)
{
	const uint32_t all = PEERS * QPS * MESSAGES;
	uint32_t sent = 0, done = 0, back = 0;
	struct done d;

	while (done < all || back < all) {
		/* no more than the receives here hold answers to; a buffer is free when its message is done, in any order */
		while (sent < all && sent - back < DEPTH / QPS && (sent < DEPTH || completed[sent - DEPTH])) {
			uint8_t *p = me.buf + (DEPTH + sent % DEPTH) * SLOT;

			rc_fill(p, size_of(&me, sent), sent, SEED_OUT);
			CHECK(!post(&me, me.qp[0], IBV_WR_SEND_WITH_IMM, sent, p, size_of(&me, sent), qpn_of(sent), QKEY, 0, 0),
			      "posting %u", sent);
			sent++;
		}
		d = wait_done(&me);
		CHECK(!d.status, "status %d", d.status);
		if (d.opcode == IBV_WC_SEND) {
			CHECK(d.id < sent && !completed[d.id]++, "%u completed twice", (unsigned)d.id);
			done++;
			continue;
		}
		CHECK(d.has_imm && d.imm < sent && !answered[d.imm]++, "answer %u", d.imm);
		CHECK(d.src_qp == qpn_of(d.imm), "answer %u from QP %#x", d.imm, d.src_qp);
		CHECK(d.len == size_of(&me, d.imm) &&
			      rc_differs(me.buf + d.id * SLOT, d.len, d.imm, SEED_IN) == UINT64_MAX,
		      "answer %u: %u bytes", d.imm, d.len);
		post_recv(&me, 0, d.id);
		back++;
	}
}

static void expect(enum ibv_wc_status status, const char *what)
{
	struct done d = wait_done(&me);

	CHECK(d.status == status, "%s: %s, not %s (%u)", what, ibv_wc_status_str(d.status), ibv_wc_status_str(status),
	      d.vendor_err);
}

/* To all at once; what was written is read back, with and without being told of. */
static void writes_and_reads(void)
{
	uint8_t *out = region(&me), *in = out + REGION / 2;

	for (unsigned i = 0; i < RDMAS; i++) {
		uint32_t len = rdma_size(&me, i);

		rc_fill(out, len, 0, SEED_RDMA + i);
		for (unsigned p = 0; p < PEERS; p++) {
			enum ibv_wr_opcode op = p & 1 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM;

			CHECK(!post(&me, me.qp[0], op, i, out, len, to[p].qpn[0], QKEY, to[p].addr + i * RDMA_PLACE,
				    to[p].rkey), "WRITE");
		}
		for (unsigned p = 0; p < PEERS; p++)
			expect(IBV_WC_SUCCESS, "WRITE");
		for (unsigned p = 0; p < PEERS; p++) {
			memset(in, 0, len);
			CHECK(!post(&me, me.qp[0], IBV_WR_RDMA_READ, 0, in, len, to[p].qpn[1], QKEY,
				    to[p].addr + i * RDMA_PLACE, to[p].rkey), "READ");
			expect(IBV_WC_SUCCESS, "READ");
			CHECK(rc_differs(in, len, 0, SEED_RDMA + i) == UINT64_MAX, "%u bytes read", len);
		}
	}
}

/* Each is told of, and the QP goes on. */
static void errors(void)
{
	uint8_t *p = region(&me);
	struct ibv_qp *patient = make_qp(&me, 2);

	CHECK(!post(&me, me.qp[0], IBV_WR_RDMA_WRITE, 0, p, 16, to[0].qpn[0], QKEY, to[0].addr + REGION - 8,
		    to[0].rkey), "post");
	expect(IBV_WC_REM_ACCESS_ERR, "beyond the region");
	CHECK(!post(&me, me.qp[0], IBV_WR_RDMA_READ, 0, p, 8, to[0].qpn[0], QKEY, to[0].addr, to[0].rkey ^ 0x100),
	      "post");
	expect(IBV_WC_REM_ACCESS_ERR, "a wrong key");
	CHECK(!post(&me, me.qp[0], IBV_WR_SEND_WITH_IMM, 0, p, 8, to[0].qpn[0], QKEY ^ 1, 0, 0), "post");
	expect(IBV_WC_REM_INV_RD_REQ_ERR, "a wrong Q_Key");
	CHECK(!post(&me, me.qp[0], IBV_WR_SEND_WITH_IMM, 0, p, me.mtu + 1, to[0].qpn[0], QKEY, 0, 0), "post");
	expect(IBV_WC_LOC_LEN_ERR, "longer than the MTU");
	CHECK(!post(&me, me.qp[0], IBV_WR_SEND_WITH_IMM, 0, p - (1 << 30), 8, to[0].qpn[0], QKEY, 0, 0), "post");
	expect(IBV_WC_LOC_PROT_ERR, "memory of no key");
	/* to itself, to a QP without receives */
	struct ibv_ah *there = ah;

	ah = make_ah(&me, &to[0].gid);
	CHECK(!post(&me, patient, IBV_WR_SEND_WITH_IMM, 0, p, 8, patient->qp_num, QKEY, 0, 0), "post");
	expect(IBV_WC_RNR_RETRY_EXC_ERR, "no receive");
	CHECK(!ibv_destroy_qp(patient) && !ibv_destroy_ah(ah), "destroying: %m");
	ah = there;
	CHECK(rc_state(me.qp[0]) == IBV_QPS_RTS, "state %d", rc_state(me.qp[0]));
	CHECK(!post(&me, me.qp[0], IBV_WR_RDMA_READ, 0, p, 8, to[0].qpn[0], QKEY, to[0].addr, to[0].rkey), "post");
	expect(IBV_WC_SUCCESS, "a READ after them");
}

/* Requests to a peer that is dead fail in time; others do not wait for them. */
static void one_is_killed(pid_t pid)
{
	double killed = rc_now();
	unsigned failed = 0, done = 0;
	uint8_t *p = region(&me);
	struct done d;

	CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid, "kill: %m");
	for (unsigned i = 0; i < 8; i++)
		CHECK(!post(&me, me.qp[0], IBV_WR_RDMA_WRITE, 0, p, 8, to[0].qpn[0], QKEY, to[0].addr, to[0].rkey), "post");
	while (failed < 8) {
		if (done < 200) {
			CHECK(!post(&me, me.qp[0], IBV_WR_RDMA_READ, 1, p, 8, to[1].qpn[0], QKEY, to[1].addr, to[1].rkey),
			      "post");
			done++;
		}
		d = wait_done(&me);
		CHECK(d.id ? d.status == IBV_WC_SUCCESS : d.status == IBV_WC_RESP_TIMEOUT_ERR, "%s of %s",
		      ibv_wc_status_str(d.status), d.id ? "the one that lives" : "the one that was killed");
		failed += !d.id;
		CHECK(d.id || done == 200, "told after %.1f s, before the others were served", rc_now() - killed);
	}
	CHECK(rc_now() - killed < 20, "told after %.1f s", rc_now() - killed);
}

static void all_is_refused(void)
{
	struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_DRIVER, .cap = {1, 1, 1, 1, 0},
					   .comp_mask = IBV_QP_INIT_ATTR_PD};
	struct efadv_qp_init_attr qp_attr = {.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD};
	struct ibv_cq_init_attr_ex cq = {.cqe = 1};
	struct efadv_cq_init_attr cq_attr = {0};
	struct efadv_device_attr dev;
	struct efadv_ah_attr ah_attr;
	union ibv_gid gid;

	me.ctx = rc_open_device();
	me.pd = ibv_alloc_pd(me.ctx);
	init.pd = me.pd;
	init.send_cq = init.recv_cq = ibv_create_cq(me.ctx, 8, NULL, NULL, 0);
	CHECK(init.send_cq && !ibv_query_gid(me.ctx, 1, 0, &gid), "CQ or GID: %m");
	ah = make_ah(&me, &gid);
	CHECK(efadv_query_device(me.ctx, &dev, sizeof(dev)) == EOPNOTSUPP, "efadv_query_device");
	CHECK(efadv_query_ah(ah, &ah_attr, sizeof(ah_attr)) == EOPNOTSUPP, "efadv_query_ah");
	CHECK(!efadv_create_cq(me.ctx, &cq, &cq_attr, sizeof(cq_attr)) && errno == EOPNOTSUPP, "efadv_create_cq: %m");
	CHECK(!efadv_create_qp_ex(me.ctx, &init, &qp_attr, sizeof(qp_attr)) && errno == EOPNOTSUPP,
	      "efadv_create_qp_ex: %m");
	CHECK(!efadv_create_driver_qp(me.pd, (struct ibv_qp_init_attr *)&init, EFADV_QP_DRIVER_TYPE_SRD) &&
		      errno == EOPNOTSUPP,
	      "efadv_create_driver_qp: %m");
	CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_cq(init.send_cq) && !ibv_dealloc_pd(me.pd) && !ibv_close_device(me.ctx),
	      "destroying: %m");
}

/* What efa's own calls refuse, and ibv_create_qp(). */
static void attributes(void)
{
	struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_DRIVER, .cap = {1, 1, 1, 1, 0}, .pd = me.pd,
					   .send_cq = ibv_cq_ex_to_cq(me.cq), .recv_cq = ibv_cq_ex_to_cq(me.cq),
					   .comp_mask = IBV_QP_INIT_ATTR_PD};
	struct efadv_qp_init_attr attr = {.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD + 1};
	struct efadv_device_attr dev;
	struct ibv_qp *qp;

	CHECK(!efadv_query_device(me.ctx, &dev, sizeof(dev)) && dev.max_rdma_size >= 1u << 30 &&
		      dev.device_caps & EFADV_DEVICE_ATTR_CAPS_RDMA_READ && dev.device_caps & EFADV_DEVICE_ATTR_CAPS_RNR_RETRY,
	      "efadv_query_device: capabilities %#x", dev.device_caps);
	CHECK(efadv_query_device(me.ctx, &dev, 8) == EINVAL, "a structure of nothing");
	CHECK(!efadv_create_qp_ex(me.ctx, &init, &attr, sizeof(attr)) && errno == EOPNOTSUPP, "no SRD: %m");
	attr.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD;
	attr.comp_mask = 1;
	CHECK(!efadv_create_qp_ex(me.ctx, &init, &attr, sizeof(attr)) && errno == EINVAL, "comp_mask: %m");
	attr.comp_mask = 0;
	init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	CHECK(!efadv_create_qp_ex(me.ctx, &init, &attr, sizeof(attr)) && errno == EOPNOTSUPP, "atomics: %m");
	CHECK(!ibv_create_qp(me.pd, (struct ibv_qp_init_attr *)&init) && errno == EOPNOTSUPP, "ibv_create_qp: %m");
	qp = efadv_create_driver_qp(me.pd, (struct ibv_qp_init_attr *)&init, EFADV_QP_DRIVER_TYPE_SRD);
	CHECK(qp && !ibv_destroy_qp(qp), "efadv_create_driver_qp: %m");
}

int main(int argc, char **argv)
{
	const char *link = getenv("E2E_LINK");
	bool process = link && strcmp(link, "loop"), kills = argc > 1;
	pthread_t thread[PEERS];
	int sock[PEERS][2], status;
	struct hello mine;
	pid_t pid[PEERS] = {0};

	if (kills && !strcmp(argv[1], "refused")) {
		all_is_refused();
		return 0;
	}
	for (unsigned i = 0; i < PEERS; i++) {
		CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sock[i]), "socketpair: %m");
		pid[i] = process ? fork() : 0;
		if (process && !pid[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			peer(&sock[i][1]);
			return 0;
		}
		if (!process)
			CHECK(!pthread_create(&thread[i], NULL, peer, &sock[i][1]), "pthread_create");
	}
	side_open(&me, &mine);
	for (unsigned i = 0; i < DEPTH; i++) /* all are for the first QP's answers */
		if (i % QPS)
			post_recv(&me, 0, i);
	for (unsigned i = 0; i < PEERS; i++)
		CHECK(recv(sock[i][0], &to[i], sizeof(to[i]), MSG_WAITALL) == sizeof(to[i]), "the socket: %m");
	ah = make_ah(&me, &to[0].gid);
	attributes();
	if (kills) {
		one_is_killed(pid[0]);
	} else {
		each_arrives_once();
		writes_and_reads();
		errors();
	}
	for (unsigned i = kills; i < PEERS; i++) {
		CHECK(write(sock[i][0], "", 1) == 1, "the socket: %m");
		if (process)
			CHECK(waitpid(pid[i], &status, 0) == pid[i] && !status, "a peer: %#x", status);
		else
			pthread_join(thread[i], NULL);
	}
	CHECK(!ibv_destroy_ah(ah), "ibv_destroy_ah: %m");
	side_close(&me);
	return 0;
}
