/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two QPs of ours, and between them a wire that loses, doubles, reorders, delays and cuts trains, has no
 * room at times, over memory whose pages go away: whatever happens there, each request completes in order,
 * with the right data, once. A seed is a whole run; a failing one is named and can be given again:
 * HW_SEED=n hw-random lossy. And a wire that changes any field of any packet: nothing but an error may come
 * of it.
 */
#include <unistd.h>
#include "rig.h"

enum { SEEDS = SANITIZED ? 5 : 20, SLOTS = 8, RECVS = 3, SLOT = 65536, MAX_LEN = 20000, FLYING = 4096 };

struct wr {
	enum ibv_wr_opcode op;
	uint32_t len, seed;
};

struct side {
	struct hca_qp *qp;
	uint32_t base; /* offset of its memory: local slots, targets of the peer, receive buffers */
	struct wr wr[SLOTS];
	uint32_t posted, done;
	struct wr sends[1024]; /* what the peer will receive, in order */
	uint32_t sent, received;
	uint32_t recvs_posted;
	uint64_t adds, swaps;
};

static struct side side[2];
static struct flying {
	struct roce_pkt pkt;
	uint8_t *data;
	uint32_t hold;
} flying[FLYING];
static uint32_t num_flying;
static uint64_t rng;

static uint32_t rnd(uint32_t n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(rng >> 33) % n;
}

static uint32_t local_off(const struct side *s, uint32_t slot)
{
	return s->base + slot * SLOT + 3;
}

static uint32_t target_off(const struct side *peer, uint32_t slot)
{
	return peer->base + (SLOTS + slot) * SLOT + 5;
}

static uint32_t recv_off(const struct side *s, uint32_t n)
{
	return s->base + (2 * SLOTS + n % RECVS) * SLOT + 1;
}

static uint32_t counter_off(const struct side *s)
{
	return s->base + 32 * SLOT - 64;
}

/* ---- the application ---- */

static uint32_t some_len(void)
{
	switch (rnd(4)) {
	case 0:
		return rnd(20);
	case 1:
		return 250 + rnd(12);
	case 2:
		return rnd(2000);
	default:
		return rnd(MAX_LEN);
	}
}

static void post_one(struct side *s, struct side *peer)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
						 IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
						 IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP};
	uint32_t slot = s->posted % SLOTS;
	struct wr *w = &s->wr[slot];
	bool atomic;
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;

	*w = (struct wr){ops[rnd(7)], some_len(), rnd(1u << 30)};
	atomic = w->op == IBV_WR_ATOMIC_FETCH_AND_ADD || w->op == IBV_WR_ATOMIC_CMP_AND_SWP;
	if (atomic)
		w->len = 8;
	if (w->op == IBV_WR_RDMA_READ)
		rig_fill(rig.mem + target_off(peer, slot), w->len, w->seed);
	else if (!atomic)
		rig_fill(rig.mem + local_off(s, slot), w->len, w->seed);
	sge = (struct ibv_sge){IOVA + local_off(s, slot), w->len, rig.key};
	wr = (struct ibv_send_wr){.wr_id = s->posted, .opcode = w->op, .sg_list = &sge, .num_sge = 1,
				  .send_flags = rnd(5) ? 0 : IBV_SEND_FENCE, .imm_data = w->seed};
	if (atomic) {
		wr.wr.atomic.remote_addr = IOVA + counter_off(peer);
		wr.wr.atomic.rkey = rig.key;
		wr.wr.atomic.compare_add = 1;
		if (w->op == IBV_WR_ATOMIC_CMP_AND_SWP) {
			wr.wr.atomic.remote_addr += 8;
			wr.wr.atomic.compare_add = s->swaps;
			wr.wr.atomic.swap = ++s->swaps;
			w->seed = s->swaps - 1;
		} else {
			w->seed = s->adds++;
		}
	} else {
		wr.wr.rdma.remote_addr = IOVA + target_off(peer, slot);
		wr.wr.rdma.rkey = rig.key;
	}
	if (w->op == IBV_WR_SEND || w->op == IBV_WR_SEND_WITH_IMM || w->op == IBV_WR_RDMA_WRITE_WITH_IMM)
		s->sends[s->sent++ % 1024] = *w;
	CHECK_EQ(hca_post_send(s->qp, &wr, &bad), 0);
	s->posted++;
}

static void check_done(struct side *s, struct side *peer)
{
	uint32_t slot = s->done++ % SLOTS;
	struct wr *w = &s->wr[slot];
	uint64_t v;

	switch (w->op) {
	case IBV_WR_RDMA_READ:
		rig_is(rig.mem + local_off(s, slot), w->len, w->seed);
		break;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		rig_is(rig.mem + target_off(peer, slot), w->len, w->seed);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		memcpy(&v, rig.mem + local_off(s, slot), 8);
		CHECK_EQ(v, w->seed);
		break;
	default:
		break;
	}
}

static void check_received(struct side *s, struct side *peer, const struct ibv_wc *wc)
{
	struct wr *w = &peer->sends[s->received % 1024];

	CHECK_EQ(wc->wr_id, s->received);
	CHECK_EQ(wc->byte_len, w->len);
	CHECK_EQ(!!(wc->wc_flags & IBV_WC_WITH_IMM), w->op != IBV_WR_SEND);
	if (w->op != IBV_WR_SEND)
		CHECK_EQ(wc->imm_data, w->seed);
	if (w->op != IBV_WR_RDMA_WRITE_WITH_IMM)
		rig_is(rig.mem + recv_off(s, s->received), w->len, w->seed);
	s->received++;
}

static void application(uint32_t todo)
{
	struct side *s, *peer;
	struct ibv_wc wc;
	uint32_t i;

	for (i = 0; i < 2; i++) {
		s = &side[i];
		peer = &side[1 - i];
		while (s->recvs_posted - s->received < RECVS && !rnd(3)) {
			struct ibv_sge sge = {IOVA + recv_off(s, s->recvs_posted), MAX_LEN, rig.key};
			struct ibv_recv_wr wr = {s->recvs_posted, NULL, &sge, 1}, *bad;

			CHECK_EQ(hca_post_recv(s->qp, &wr, &bad), 0);
			s->recvs_posted++;
		}
		while (s->posted < todo && s->posted - s->done < SLOTS && rnd(3))
			post_one(s, peer);
	}
	while (hca_cq_poll(rig.scq, 1, &wc)) {
		s = wc.qp_num == hca_qp_num(side[0].qp) ? &side[0] : &side[1];
		if (wc.status)
			FAIL("WR %lu: status %d", (unsigned long)wc.wr_id, wc.status);
		CHECK_EQ(wc.wr_id, s->done);
		check_done(s, &side[s == &side[0]]);
	}
	while (hca_cq_poll(rig.rcq, 1, &wc)) {
		s = wc.qp_num == hca_qp_num(side[0].qp) ? &side[0] : &side[1];
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		check_received(s, &side[s == &side[0]], &wc);
	}
}

/* ---- the wire ---- */

static void fly(const struct roce_pkt *pkt)
{
	struct flying *f;

	if (num_flying == FLYING)
		return;
	f = &flying[num_flying++];
	f->pkt = *pkt;
	f->hold = rnd(50) ? 0 : rnd(200);
	f->data = malloc(pkt->payload_len + 1);
	if (pkt->payload_len)
		memcpy(f->data, pkt->payload, pkt->payload_len);
	f->pkt.payload = f->data;
}

/* the first n packets of a train */
static struct roce_pkt head_of(const struct roce_pkt *pkt, uint32_t n)
{
	struct roce_pkt h = *pkt;

	h.npkts = n;
	h.payload_len = n * pkt->mtu;
	h.opcode_last = roce_pkt_opcode(pkt, n - 1);
	h.ackreq = h.se = false;
	return h;
}

static void launch(const struct roce_pkt *pkt, uint32_t loss)
{
	struct roce_pkt rest = *pkt, head;
	uint32_t n;

	while (rest.npkts > 1 && rnd(2)) {
		n = 1 + rnd(rest.npkts - 1);
		head = head_of(&rest, n);
		if (rnd(1000) >= loss)
			fly(&head);
		pkt_trim(&rest, n);
	}
	if (rnd(1000) >= loss)
		fly(&rest);
	if (rnd(1000) < loss)
		fly(&rest);
}

static void land(uint32_t i)
{
	struct flying f = flying[i];

	memmove(&flying[i], &flying[i + 1], (num_flying - i - 1) * sizeof(f));
	num_flying--;
	fake_rx(&f.pkt);
	free(f.data);
}

static void wire(uint32_t loss)
{
	struct roce_pkt pkt;
	uint32_t i, n;

	while (fake_tx_pop(&pkt))
		launch(&pkt, loss);
	n = 1 + rnd(8);
	for (i = 0; i < num_flying && n;) {
		if (flying[i].hold) {
			flying[i].hold--;
			i++;
		} else if (loss && !rnd(20)) {
			i++; /* overtaken */
		} else {
			land(i);
			n--;
		}
	}
	rx_now();
}

static void two_qps(uint64_t seed)
{
	uint32_t i;

	rng = seed * 7919 + 1;
	opt.mtu = IBV_MTU_256;
	opt.rnr_retry = 7;
	opt.retry_cnt = 7;
	opt.min_rnr_timer = 1;
	opt.max_rd_atomic = 1 + rnd(4);
	opt.max_dest_rd_atomic = 4;
	opt.sq_psn = opt.rq_psn = 0xfffff0 - rnd(1000);
	opt.odp = rnd(2);
	fake_max_train = 4096 << rnd(5);
	if (rnd(2))
		fake_link = "udp";
	rig_node();
	for (i = 0; i < 2; i++) {
		side[i].qp = rig_qp_new();
		side[i].base = i * (MEM_LEN / 2);
		memset(rig.mem + counter_off(&side[i]), 0, 16);
	}
	rig.qp = side[0].qp;
	for (i = 0; i < 2; i++) {
		opt.dest_qpn = hca_qp_num(side[1 - i].qp);
		CHECK_EQ(rig_qp_to(side[i].qp, IBV_QPS_INIT), 0);
		CHECK_EQ(rig_qp_to(side[i].qp, IBV_QPS_RTR), 0);
		CHECK_EQ(rig_qp_to(side[i].qp, IBV_QPS_RTS), 0);
	}
}

static uint64_t seed_of(uint64_t n)
{
	const char *s = getenv("HW_SEED");

	return s ? strtoull(s, NULL, 0) : n;
}

/* Workers are real threads, which the clock of the test must not leave behind. */
static bool workers_work(void)
{
	bool any = false;

	for (int i = 0; i < 2; i++) {
		fl_lock(&side[i].qp->lock);
		for (int role = 0; role < ROLE_NUM; role++)
			any = any || side[i].qp->faulting[role];
		fl_unlock(&side[i].qp->lock);
	}
	return any;
}

static void run_lossy(uint64_t seed, uint32_t loss)
{
	enum { TODO = 400 };
	uint64_t at, next;
	uint32_t steps = 0;

	two_qps(seed);
	while (side[0].done < TODO || side[1].done < TODO) {
		if (++steps > 3000000)
			FAIL("seed %lu: no end in sight: %u and %u of %u are done", (unsigned long)seed,
			     side[0].done, side[1].done, TODO);
		application(TODO);
		if (!rnd(10))
			fake_net_room(rnd(3));
		wire(loss);
		if (!rnd(3))
			fake_net_room(-1);
		if (opt.odp && !rnd(10)) {
			at = (uintptr_t)rig.mem + rnd(MEM_LEN);
			fake_invalidate(rig.umem, at, at + rnd(100000));
		}
		if (!num_flying && !fake_tx_count() && workers_work()) {
			usleep(20);
		} else if (!num_flying && !fake_tx_count()) {
			next = timers_run(rig_now());
			if (next != UINT64_MAX && next > rig_now())
				rig_advance(next - rig_now());
		}
	}
	fake_net_room(-1);
	/* it was no walk in the park */
	if (loss)
		CHECK(cnt(FL_CNT_completer_retry_err) && cnt(FL_CNT_duplicate_request) &&
		      cnt(FL_CNT_out_of_seq_request));
	if (opt.odp)
		CHECK(fake_faults > 100);
	CHECK(fake_eagain);
	CHECK(cnt(FL_CNT_rcvd_rnr_err));
}

static void many_seeds(uint32_t loss)
{
	const char *name = getenv("HW_SEED");
	uint64_t seed, end = name ? 1 : SEEDS;
	pid_t pid;

	for (seed = 0; seed < end; seed++) {
		pid = rig_fork();
		if (!pid) {
			run_lossy(seed_of(seed), loss);
			_Exit(0);
		}
		if (rig_wait(pid))
			FAIL("seed %lu failed: HW_SEED=%lu repeats it", (unsigned long)seed_of(seed),
			     (unsigned long)seed_of(seed));
	}
}

static void clean_wire(void)
{
	many_seeds(0);
}

static void lossy(void)
{
	many_seeds(20);
}

static void very_lossy(void)
{
	many_seeds(100);
}

/* ---- a wire that lies ---- */

static uint32_t some32(uint32_t v)
{
	switch (rnd(6)) {
	case 0:
		return 0;
	case 1:
		return UINT32_MAX;
	case 2:
		return v + rnd(5) - 2;
	case 3:
		return v ^ 1u << rnd(32);
	case 4:
		return 1u << rnd(32);
	default:
		return rnd(UINT32_MAX);
	}
}

/* any field, but what the links themselves make sure of: payload_len is what there is */
static void lie(struct roce_pkt *p)
{
	switch (rnd(16)) {
	case 0:
		p->opcode = rnd(256);
		break;
	case 1:
		p->opcode_last = rnd(256);
		break;
	case 2:
		p->opcode = p->opcode_last = rnd(32);
		break;
	case 3:
		p->psn = some32(p->psn) & ROCE_PSN_MASK;
		break;
	case 4:
		p->npkts = some32(p->npkts);
		break;
	case 5:
		p->mtu = some32(p->mtu);
		break;
	case 6:
		p->va += (int32_t)some32(0);
		break;
	case 7:
		p->rkey = some32(p->rkey);
		break;
	case 8:
		p->dma_len = some32(p->dma_len);
		break;
	case 9:
		p->syndrome = rnd(256);
		break;
	case 10:
		p->payload_len -= p->payload_len ? rnd(p->payload_len) : 0;
		break;
	case 11:
		p->msn = some32(p->msn) & ROCE_PSN_MASK;
		break;
	case 12:
		p->va = (uint64_t)some32(0) << 32 | some32(0);
		break;
	case 13:
		p->opcode = p->opcode_last = IBV_OPCODE_RC_RDMA_READ_REQUEST;
		break;
	default:
		p->ackreq = !p->ackreq;
		break;
	}
}

static void lying_application(void)
{
	struct ibv_wc wc[16];
	struct side *s;
	uint32_t i;

	for (i = 0; i < 2; i++) {
		struct ibv_sge sge = {IOVA + recv_off(&side[i], 0), MAX_LEN, rig.key};
		struct ibv_recv_wr rwr = {1, NULL, &sge, 1}, *rbad;

		s = &side[i];
		hca_post_recv(s->qp, &rwr, &rbad);
		if (s->posted - s->done < SLOTS)
			post_one(s, &side[1 - i]);
		s->done = s->posted; /* nothing is checked but that it survives */
	}
	while (hca_cq_poll(rig.scq, 16, wc))
		;
	while (hca_cq_poll(rig.rcq, 16, wc))
		;
}

static void run_lying(uint64_t seed)
{
	struct roce_pkt pkt;
	uint32_t step, i;

	opt.sq_depth = 1024;
	two_qps(seed);
	for (step = 0; step < 3000; step++) {
		struct ibv_qp_attr attr;

		for (i = 0; i < 2; i++) {
			hca_qp_query(side[i].qp, &attr);
			if (attr.qp_state != IBV_QPS_ERR || rnd(4))
				continue;
			rig_modify_state(side[i].qp, IBV_QPS_RESET);
			opt.dest_qpn = hca_qp_num(side[1 - i].qp);
			CHECK_EQ(rig_qp_to(side[i].qp, IBV_QPS_INIT), 0);
			CHECK_EQ(rig_qp_to(side[i].qp, IBV_QPS_RTR), 0);
			CHECK_EQ(rig_qp_to(side[i].qp, IBV_QPS_RTS), 0);
		}
		hca_qp_query(side[0].qp, &attr);
		if (attr.qp_state == IBV_QPS_RTS)
			hca_qp_query(side[1].qp, &attr);
		if (attr.qp_state == IBV_QPS_RTS)
			lying_application();
		for (i = 0; i < 64 && fake_tx_pop(&pkt); i++) {
			if (rnd(4)) {
				launch(&pkt, 0);
				continue;
			}
			do
				lie(&pkt);
			while (rnd(2));
			fly(&pkt);
		}
		wire(20);
		if (!rnd(4))
			rig_advance(10 * MS);
	}
}

static void lying(void)
{
	const char *name = getenv("HW_SEED");
	uint64_t seed, end = name ? 1 : SEEDS;
	pid_t pid;

	for (seed = 0; seed < end; seed++) {
		pid = rig_fork();
		if (!pid) {
			run_lying(seed_of(seed));
			_Exit(0);
		}
		if (rig_wait(pid))
			FAIL("seed %lu failed: HW_SEED=%lu repeats it", (unsigned long)seed_of(seed),
			     (unsigned long)seed_of(seed));
	}
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {TEST(clean_wire), TEST(lossy), TEST(very_lossy), TEST(lying),
					    {NULL, NULL}};

	return rig_main(argc, argv, tests);
}
