/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer's shared segment that is scribbled on, before it is mapped and while it is used: mapping refuses it or
 * gives tables that lie within it, and who places directly by what it says (keys, QPs, tables of pages) reads
 * nothing outside of it, and comes back. Argument: seconds.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "tests/hw/rig.h"

static struct seg other;
static _Thread_local uint64_t rng = 7;

static uint64_t rnd(uint64_t n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (rng >> 30) % n;
}

static uint64_t some_value(void)
{
	switch (rnd(6)) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX - rnd(2) * 4095;
	case 2:
		return other.s->arena + rnd(16) * SEG_CHUNK; /* a chunk, perhaps one that points to itself */
	case 3:
		return 1ull << rnd(64);
	case 4:
		return rnd(16);
	default:
		return rnd(UINT32_MAX) << 32 | rnd(UINT32_MAX);
	}
}

/* ---- before ---- */

static void within(const struct faultline_segment *s, const void *table, uint64_t bytes)
{
	uint64_t off = (uint64_t)((const char *)table - (const char *)s);

	CHECK(off <= other.map_size && bytes <= other.map_size - off);
}

static unsigned map_scribbled(void)
{
	struct faultline_segment head = *other.s;
	uint64_t *word = (uint64_t *)other.s, n;
	const struct faultline_segment *s;
	const void *p;
	unsigned mapped = 0;

	for (int i = (int)rnd(3); i >= 0; i--) {
		/* from the sizes on, mostly: the first words are refused at once */
		n = rnd(4) ? offsetof(struct faultline_segment, size) / 8 + rnd(10) : rnd(20);
		word[n] = rnd(2) ? some_value() : word[n] + rnd(5) - 2;
	}
	if (!seg_map_peer(other.ro_fd, &s)) {
		mapped = 1;
		p = seg_peer_mrs(s, &n);
		within(s, p, n * sizeof(struct faultline_mr));
		p = seg_peer_qps(s, &n);
		within(s, p, n * sizeof(struct faultline_qp));
		for (int i = 0; i < 20; i++) {
			p = seg_peer_chunk(s, some_value());
			if (p)
				within(s, p, SEG_CHUNK);
		}
		seg_unmap_peer(s);
	}
	memcpy(other.s, &head, sizeof(head));
	return mapped;
}

/* ---- while it is used ---- */

#define KEYS	 4u
#define DATA_MAX 8192u

static _Atomic bool over;

static void plausible(struct faultline_mr *mr, struct faultline_qp *q, uint32_t i)
{
	mr->key = i << MR_KEY_SHIFT | 1;
	mr->pd = q->pd = 1;
	mr->access = q->access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	mr->kind = i & 1 ? FAULTLINE_MR_ODP : FAULTLINE_MR_PINNED;
	mr->iova = REMOTE_VA;
	mr->addr = 0x100000;
	mr->length = 1 << 20;
	mr->pt = other.s->arena;
	mr->pt_levels = 1 + i;
	mr->stale = 0;
	q->qpn = PEER_QPN;
	q->dest_qpn = hca_qp_num(rig.qp);
	memset(seg_ptr(&other, other.s->arena), UMEM_PT_READ | UMEM_PT_WRITE, 128);
}

/* by words, and back to what is nearly right: what is only noise is refused at the first look */
static void scribble(void)
{
	struct faultline_mr *mrs = seg_ptr(&other, other.s->mr_table);
	struct faultline_qp *q = (struct faultline_qp *)seg_ptr(&other, other.s->qp_table) + PEER_QPN % QP_MAX;
	uint32_t i = (uint32_t)rnd(KEYS);

	plausible(&mrs[i], q, i);
	switch (rnd(4)) {
	case 0:
		((uint64_t *)&mrs[i])[rnd(9)] = some_value();
		break;
	case 1:
		mrs[i].pt = some_value();
		mrs[i].pt_levels = (uint32_t)rnd(9);
		break;
	case 2:
		*(uint64_t *)seg_ptr(&other, other.s->arena + rnd(16 * SEG_CHUNK / 8) * 8) = some_value();
		break;
	default:
		((uint32_t *)q)[rnd(4)] = (uint32_t)some_value();
	}
	other.s->stop_dma = !rnd(10);
}

static void place(void)
{
	struct ibv_send_wr wr = wr_data(rnd(2) ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, 1, 0, 1 + (uint32_t)rnd(DATA_MAX));
	struct roce_pkt pkt;
	struct ibv_wc wc;

	wr.wr.rdma.rkey = (uint32_t)rnd(KEYS) << MR_KEY_SHIFT | 1;
	wr.wr.rdma.remote_addr = rnd(20) ? REMOTE_VA + rnd(1 << 20) : some_value();
	/* as if those before, from idle, had been slow to be acknowledged */
	rig.qp->direct.usable = true;
	rig.qp->direct.slow_acks = UINT32_MAX;
	rig_advance(10000);
	CHECK_EQ(post(wr), 0);
	if (hca_cq_poll(rig.scq, 1, &wc)) {
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		return;
	}
	/* by packet, then */
	CHECK(fake_tx_pop(&pkt));
	if (wr.opcode == IBV_WR_RDMA_READ)
		rx_read(pkt.psn, wr.sg_list->length, pattern);
	else
		rx_ack(psn_add(pkt.psn, pkt.npkts - 1));
	while (fake_tx_pop(&pkt))
		;
	CHECK_EQ(hca_cq_poll(rig.scq, 1, &wc), 1);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK(!fl_locks_held);
}

static void *scribbler(void *arg)
{
	rng = 11;
	while (!over)
		scribble();
	return NULL;
}

int main(int argc, char **argv)
{
	static struct faultline_hazard hazard;
	struct net_peer peer = {.hazard = &hazard};
	unsigned long mapped = 0, tried = 0, places = 0;
	time_t end;
	pthread_t t;

	CHECK_EQ(seg_create(&other), 0);
	CHECK_EQ(seg_map_peer(other.ro_fd, &peer.segment), 0);
	for (; tried < 500; tried++)
		mapped += map_scribbled();
	CHECK(mapped && mapped < tried);
	fake_peer = &peer;
	opt.sq_psn = 0;
	rig_up();
	CHECK_EQ(pthread_create(&t, NULL, scribbler, NULL), 0);
	end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 2);
	do
		for (int i = 0; i < 1000; i++, places++)
			place();
	while (time(NULL) < end);
	over = true;
	pthread_join(t, NULL);
	printf("%lu of %lu scribbled segments mapped; %u of %lu placed\n", mapped, tried, fake_peer_accesses, places);
	fflush(stdout);
	CHECK(fake_peer_accesses && fake_peer_accesses < places);
	CHECK_EQ(cnt(FL_CNT_direct_placements), fake_peer_accesses);
	CHECK_EQ(hazard.start, hazard.end);
	return 0;
}
