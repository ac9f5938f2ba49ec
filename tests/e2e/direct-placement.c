/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer on this host that sleeps, and polls nothing: RDMA WRITEs and READs of its memory one at a time
 * become its memory's own business after the first few (placed without packets; the counter says so), and
 * everything that a packet would have met still holds: what was taken away is refaulted or refused, a key
 * or a QP that is gone is an error, order between placed and sent is kept.
 */
#include "counters.h"
#include "rc.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (64 * PAGE)

static struct rc_side a;
static struct rc_peer *peer;
static uint8_t *m;
static struct ibv_mr *mr;

/* one at a time, with time between; how many were placed */
static uint64_t write_slowly(struct rc_remote *r, int n, uint64_t seed)
{
	uint64_t before = counter_now(FL_CNT_direct_placements);

	for (int i = 0; i < n; i++) {
		uint64_t len = 1 + (uint64_t)i * 397 % 6000, at = (uint64_t)i * 1031 % (SIZE - 6000);

		rc_fill(m, len, 0, seed + (uint64_t)i);
		CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m, (uint32_t)len, mr->lkey, r->iova + at, r->key),
		      "post");
		rc_expect(&a, IBV_WC_SUCCESS);
		CHECK(rc_call(peer, RC_DIFFERS, r->buf, at, len, 0, seed + (uint64_t)i) == UINT64_MAX,
		      "WRITE %d of %lu bytes differs", i, len);
		memset(m, 0, len);
		CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)m, (uint32_t)len, mr->lkey, r->iova + at, r->key),
		      "post");
		rc_expect(&a, IBV_WC_SUCCESS);
		CHECK(rc_differs(m, len, 0, seed + (uint64_t)i) == UINT64_MAX, "READ %d of %lu bytes differs", i,
		      len);
	}
	return counter_now(FL_CNT_direct_placements) - before;
}

static void fresh(const struct rc_opt *opt)
{
	rc_connect_peer(&a, peer, opt);
}

/* WRITE, then a fetch-and-add by packet on the same word, and again: each sees what the other did */
static void keeps_order(struct rc_remote *r)
{
	uint64_t *w = (uint64_t *)m;

	for (uint64_t i = 0; i < 50; i++) {
		w[0] = i * 1000;
		CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)w, 8, mr->lkey, r->iova, r->key), "post");
		CHECK(!rc_post_atomic(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)(w + 1), mr->lkey, r->iova, r->key,
				      7, 0),
		      "post");
		CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)(w + 2), 8, mr->lkey, r->iova, r->key), "post");
		for (int k = 0; k < 3; k++)
			rc_expect(&a, IBV_WC_SUCCESS);
		CHECK(w[1] == i * 1000 && w[2] == i * 1000 + 7, "round %lu: %lu %lu", i, w[1], w[2]);
		usleep(100);
	}
}

int main(int argc, char **argv)
{
	struct rc_opt opt = rc_default;
	uint64_t n;

	rc_main(argc, argv);
	rc_open(&a);
	m = rc_map(SIZE);
	mr = rc_reg(&a, m, SIZE, ALL_ACCESS);
	peer = rc_peer_start();
	CHECK(rc_peer_is_process(peer), "needs E2E_LINK=shm");
	opt.timeout = 12;
	opt.retry = 3;

	for (int odp = 0; odp < 2; odp++) {
		struct rc_remote r = rc_peer_buf(peer, SIZE, ALL_ACCESS | (odp ? ODP : 0), odp ? 0x123000 : RC_SAME,
						 RC_ANON);

		fresh(&opt);
		write_slowly(&r, 20, 1); /* the offer comes, the pages come */
		n = write_slowly(&r, 100, 2);
		if (!n && odp == 0)
			rc_skip("no direct placement here: may a process reach into another (ptrace_scope)?");
		CHECK(n > 100, "%s: only %lu of 200 were placed", odp ? "on demand" : "pinned", n);
		keeps_order(&r);

		/* other memory at the place: on demand it is faulted anew, pinned keeps to the old pages */
		CHECK(!rc_call(peer, RC_REMAP, r.buf, 0, SIZE), "remap");
		if (odp) {
			write_slowly(&r, 20, 3);
		} else {
			CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m, 64, mr->lkey, r.iova, r.key), "post");
			memset(m, 0xff, 64);
			rc_expect(&a, IBV_WC_SUCCESS);
			CHECK(!rc_call(peer, RC_GET, r.buf, 0), "a WRITE landed in memory that was never registered");
		}
		/* a key that is gone; and no access beyond it, nor without the right */
		rc_call(peer, RC_UNBUF, r.buf);
		CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m, 8, mr->lkey, r.iova, r.key), "post");
		rc_expect(&a, IBV_WC_REM_ACCESS_ERR);
		r = rc_peer_buf(peer, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | (odp ? ODP : 0), RC_SAME,
				RC_ANON);
		for (int what = 0; what < 2; what++) {
			fresh(&opt);
			for (int i = 0; i < 30; i++, usleep(50)) {
				CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)m, 8, mr->lkey, r.iova, r.key), "post");
				rc_expect(&a, IBV_WC_SUCCESS);
			}
			if (what)
				rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)m, 16, mr->lkey, r.iova + SIZE - 8, r.key);
			else
				rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m, 8, mr->lkey, r.iova, r.key);
			rc_expect(&a, IBV_WC_REM_ACCESS_ERR);
		}
		rc_call(peer, RC_UNBUF, r.buf);
	}

	/* a QP that is gone; a process that is stopped serves; one that is killed does not */
	struct rc_remote r = rc_peer_buf(peer, SIZE, ALL_ACCESS, RC_SAME, RC_ANON);

	fresh(&opt);
	CHECK(write_slowly(&r, 50, 5) > 40, "not placed any more");
	CHECK(!rc_call(peer, RC_TO_STATE, IBV_QPS_ERR), "ERR");
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m, 8, mr->lkey, r.iova, r.key), "post");
	rc_expect(&a, IBV_WC_RETRY_EXC_ERR);
	fresh(&opt);
	CHECK(write_slowly(&r, 50, 6) > 40, "not placed any more");
	CHECK(!kill(rc_peer_pid(peer), SIGKILL), "kill");
	CHECK(waitpid(rc_peer_pid(peer), NULL, 0) == rc_peer_pid(peer), "waitpid");
	for (int i = 0; i < 3; i++)
		CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m, 8, mr->lkey, r.iova, r.key), "post");
	rc_expect(&a, IBV_WC_RETRY_EXC_ERR);
	CHECK(!ibv_dereg_mr(mr), "dereg");
	return 0;
}
