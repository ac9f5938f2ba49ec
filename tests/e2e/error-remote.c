/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a responder refuses: the requester's status, both QPs' states, the asynchronous event at the
 * responder, and that nothing was written.
 */
#include "rc.h"

static struct rc_side a;
static struct rc_peer *peer;
static uint8_t *mem;
static struct ibv_mr *mr;

struct expect {
	enum ibv_wc_status status;
	bool event;
};
static const struct expect access_error = {IBV_WC_REM_ACCESS_ERR, true};
static const struct expect invalid_request = {IBV_WC_REM_INV_REQ_ERR, false};

static void settle(const char *what, struct expect e)
{
	struct ibv_wc wc;

	CHECK(rc_poll(&a, &wc, 20), "%s: no completion", what);
	CHECK(wc.status == e.status, "%s: %s, not %s", what, ibv_wc_status_str(wc.status),
	      ibv_wc_status_str(e.status));
	CHECK(rc_state(a.qp) == IBV_QPS_ERR, "%s: the requester's state is %d", what,
	      rc_state(a.qp));
	CHECK(rc_call(peer, RC_STATE, 0) == IBV_QPS_ERR, "%s: the responder's state is not ERR",
	      what);
	if (e.event) {
		uint64_t type = rc_call(peer, RC_EVENT, 5000);

		CHECK(type == IBV_EVENT_QP_ACCESS_ERR, "%s: event %ld at the responder", what,
		      (long)type);
	}
}

static void rdma(const char *what, enum ibv_wr_opcode opcode, uint64_t remote, uint32_t rkey,
		 uint32_t len, struct expect e)
{
	rc_connect_peer(&a, peer, &rc_default);
	CHECK(!rc_post(&a, opcode, (uintptr_t)mem, len, mr->lkey, remote, rkey), "%s: post", what);
	settle(what, e);
}

static void atomic(const char *what, uint64_t remote, uint32_t rkey, struct expect e)
{
	rc_connect_peer(&a, peer, &rc_default);
	CHECK(!rc_post_atomic(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)mem, mr->lkey, remote,
			      rkey, 1, 0),
	      "%s: post", what);
	settle(what, e);
}

static void keys_and_bounds(int odp)
{
	uint64_t size = 4 * PAGE;
	struct rc_remote r = rc_peer_buf(peer, size, ALL_ACCESS | odp, RC_SAME, RC_ANON);

	rc_call(peer, RC_FILL, r.buf, 0, size, 0, 5);
	for (enum ibv_wr_opcode op = IBV_WR_RDMA_WRITE; op <= IBV_WR_RDMA_READ;
	     op += IBV_WR_RDMA_READ - IBV_WR_RDMA_WRITE) {
		rdma("variant of the key", op, r.iova, r.key ^ 1, 8, access_error);
		rdma("index of the key", op, r.iova, r.key ^ 0x12300, 8, access_error);
		rdma("key 0", op, r.iova, 0, 8, access_error);
		rdma("one byte past the end", op, r.iova + size - 7, r.key, 8, access_error);
		rdma("before the start", op, r.iova - 1, r.key, 8, access_error);
		rdma("long past the end", op, r.iova + size - PAGE, r.key, 2 * PAGE, access_error);
		rdma("end wraps", op, UINT64_MAX - 3, r.key, 8, access_error);
	}
	CHECK(rc_call(peer, RC_DIFFERS, r.buf, 0, size, 0, 5) == UINT64_MAX,
	      "a refused WRITE wrote");
	atomic("atomic past the end", r.iova + size, r.key, access_error);
	uint32_t key = r.key;

	rc_call(peer, RC_UNBUF, r.buf);
	rdma("a key that is no more", IBV_WR_RDMA_WRITE, r.iova, key, 8, access_error);
}

static void rights_of_the_mr(int odp)
{
	struct rc_remote none =
		rc_peer_buf(peer, PAGE, IBV_ACCESS_LOCAL_WRITE | odp, RC_SAME, RC_ANON);
	struct rc_remote rd =
		rc_peer_buf(peer, PAGE, IBV_ACCESS_REMOTE_READ | odp, RC_SAME, RC_ANON);
	struct rc_remote wr =
		rc_peer_buf(peer, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | odp,
			    RC_SAME, RC_ANON);

	rdma("WRITE without any right", IBV_WR_RDMA_WRITE, none.iova, none.key, 8, access_error);
	rdma("READ without any right", IBV_WR_RDMA_READ, none.iova, none.key, 8, access_error);
	rdma("WRITE where only READ is", IBV_WR_RDMA_WRITE, rd.iova, rd.key, 8, access_error);
	rdma("READ where only WRITE is", IBV_WR_RDMA_READ, wr.iova, wr.key, 8, access_error);
	atomic("atomic where only WRITE is", wr.iova, wr.key, access_error);
	rc_call(peer, RC_UNBUF, none.buf);
	rc_call(peer, RC_UNBUF, rd.buf);
	rc_call(peer, RC_UNBUF, wr.buf);
}

static void rights_of_the_qp(void)
{
	struct rc_remote r = rc_peer_buf(peer, PAGE, ALL_ACCESS, RC_SAME, RC_ANON);
	static const struct {
		enum ibv_wr_opcode op;
		uint32_t lacks;
	} cases[] = {
		{IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE},
		{IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ},
		{IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rc_opt opt = rc_default;

		opt.qp_access &= ~cases[i].lacks;
		rc_connect_peer(&a, peer, &opt);
		if (cases[i].op == IBV_WR_ATOMIC_FETCH_AND_ADD)
			rc_post_atomic(&a, cases[i].op, (uintptr_t)mem, mr->lkey, r.iova, r.key, 1,
				       0);
		else
			rc_post(&a, cases[i].op, (uintptr_t)mem, 8, mr->lkey, r.iova, r.key);
		settle("the QP lacks the right", invalid_request);
	}
	rc_call(peer, RC_UNBUF, r.buf);
}

/* no byte is accessed, so no key is looked at (9.7.4.1.5) */
static void no_bytes_no_key(void)
{
	rc_connect_peer(&a, peer, &rc_default);
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)mem, 0, mr->lkey, 0x1234, 0xdead00),
	      "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)mem, 0, mr->lkey, 0x1234, 0xdead00),
	      "post");
	rc_expect(&a, IBV_WC_SUCCESS);
}

/* what was asked for before the error completes, what after is flushed, all in order */
static void the_rest_is_flushed(void)
{
	struct rc_remote r = rc_peer_buf(peer, PAGE, ALL_ACCESS, RC_SAME, RC_ANON);
	struct ibv_wc wc;

	rc_connect_peer(&a, peer, &rc_default);
	for (uint64_t i = 0; i < 4; i++)
		CHECK(!rc_post_recv(&a, (uintptr_t)mem, 8, mr->lkey, 100 + i), "post_recv");
	for (uint64_t i = 0; i < 5; i++) {
		struct ibv_sge sge = {(uintptr_t)mem, 8, mr->lkey};
		struct ibv_send_wr *bad, wr = {.wr_id = i,
					       .sg_list = &sge,
					       .num_sge = 1,
					       .opcode = IBV_WR_RDMA_WRITE,
					       .send_flags = i == 3 ? 0 : IBV_SEND_SIGNALED,
					       .wr.rdma = {r.iova, i == 1 ? r.key ^ 0x300 : r.key}};
		int err = ibv_post_send(a.qp, &wr, &bad);

		CHECK(!err, "post %lu: %s", i, strerror(err));
	}
	bool seen[2][5] = {0};
	uint64_t next[2] = {0, 0};

	for (int i = 0; i < 9; i++) {
		CHECK(rc_poll(&a, &wc, 20), "completion %d of 9 is missing", i);
		bool recv = wc.wr_id >= 100;
		uint64_t id = recv ? wc.wr_id - 100 : wc.wr_id;
		enum ibv_wc_status want = recv	    ? IBV_WC_WR_FLUSH_ERR
					  : id == 0 ? IBV_WC_SUCCESS
					  : id == 1 ? IBV_WC_REM_ACCESS_ERR
						    : IBV_WC_WR_FLUSH_ERR;

		CHECK(id == next[recv]++, "out of order: %lu", wc.wr_id);
		CHECK(wc.status == want, "request %lu: %s", wc.wr_id, ibv_wc_status_str(wc.status));
		seen[recv][id] = true;
	}
	for (int i = 0; i < 5; i++)
		CHECK(seen[0][i] && (i == 4 || seen[1][i]), "request %d never completed", i);
	/* in ERR whatever is posted is flushed too */
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)mem, 8, mr->lkey, r.iova, r.key),
	      "post in ERR");
	rc_expect(&a, IBV_WC_WR_FLUSH_ERR);
	CHECK(!rc_post_recv(&a, (uintptr_t)mem, 8, mr->lkey, 1), "post_recv in ERR");
	rc_expect(&a, IBV_WC_WR_FLUSH_ERR);
	rc_call(peer, RC_UNBUF, r.buf);
}

/* a key of another PD is no key; needs both PDs in one process */
static void other_pd(void)
{
	struct rc_side b, other;

	rc_open(&b);
	rc_open(&other);
	uint8_t *m = rc_map(PAGE);
	struct ibv_pd *pd2 = ibv_alloc_pd(b.ctx);
	struct ibv_mr *foreign = ibv_reg_mr(pd2, m, PAGE, ALL_ACCESS);

	CHECK(foreign, "register: %s", strerror(errno));
	rc_pair(&a, &b, &rc_default);
	rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)mem, 8, mr->lkey, (uintptr_t)m, foreign->rkey);
	rc_expect(&a, IBV_WC_REM_ACCESS_ERR);
	/* and one of another context */
	struct ibv_mr *theirs = rc_reg(&other, m, PAGE, ALL_ACCESS);

	rc_pair(&a, &b, &rc_default);
	rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)mem, 8, mr->lkey, (uintptr_t)m, theirs->rkey);
	rc_expect(&a, IBV_WC_REM_ACCESS_ERR);
	ibv_dereg_mr(theirs);
	ibv_dereg_mr(foreign);
	ibv_dealloc_pd(pd2);
	rc_close(&other);
	rc_close(&b);
}

int main(int argc, char **argv)
{
	rc_main(argc, argv);
	rc_open(&a);
	peer = rc_peer_start();
	mem = rc_map(4 * PAGE);
	mr = rc_reg(&a, mem, 4 * PAGE, ALL_ACCESS);
	for (int odp = 0; odp < 2; odp++) {
		keys_and_bounds(odp ? ODP : 0);
		rights_of_the_mr(odp ? ODP : 0);
	}
	rights_of_the_qp();
	no_bytes_no_key();
	the_rest_is_flushed();
	other_pd();
	CHECK(!ibv_dereg_mr(mr), "dereg");
	rc_close(&a);
	rc_peer_stop(peer);
	return 0;
}
