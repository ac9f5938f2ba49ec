/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who resolves a page fault. Of those that need no sleep: the thread that met it, unless the QP faults again and
 * again and so holds up others, whose packets that thread is to take in, too. Of those that do: a worker; and the
 * one that has resumed a QP takes that QP's next fault, unless it has others to resume first.
 */
#include <unistd.h>
#include "rig.h"

#define R     200
#define TICK  100ull /* with each look at the clock: some hundred ns between two faults of a QP that storms */
#define QUIET 50000ull
#define FEW   4
#define ALONE 80 /* faults in a row after which a QP counts as alone, and more */

struct end {
	struct hca_qp *qp;
	uint32_t psn;
};

static struct end a, b;
static uint32_t next_page;

static struct end connected(struct hca_qp *qp, uint32_t dest_qpn)
{
	opt.dest_qpn = dest_qpn;
	CHECK_EQ(rig_qp_to(qp, IBV_QPS_INIT), 0);
	CHECK_EQ(rig_qp_to(qp, IBV_QPS_RTR), 0);
	CHECK_EQ(rig_qp_to(qp, IBV_QPS_RTS), 0);
	return (struct end){.qp = qp, .psn = R};
}

/* two QPs that have nothing to do with each other; page 0 is there */
static void up(void)
{
	opt.odp = true;
	opt.timeout = 0;
	rig_node();
	a = connected(rig_qp_new(), PEER_QPN);
	b = connected(rig_qp_new(), PEER_QPN);
	rig.qp = b.qp;
	rx(WRITE(ONLY, b.psn++, 0, 8, 8, pattern));
	TX_ACK(R);
	next_page = 1;
	rig_clock_runs(TICK);
}

static struct roce_pkt write_to(struct end *e, uint32_t page)
{
	rig.qp = e->qp;
	return WRITE(ONLY, e->psn++, page * 4096, 8, 8, pattern);
}

static struct roce_pkt write_cold(struct end *e)
{
	return write_to(e, next_page++);
}

/* all that it was sent, when a worker has done its part */
static void answered(const struct end *e)
{
	struct roce_pkt pkt = {.psn = 0};
	unsigned i;

	for (i = 0; pkt.psn != e->psn - 1 && i < 200000; i++)
		if (fake_tx_pop(&pkt))
			CHECK_EQ(pkt.syndrome, AETH_ACK_NO_CREDIT);
		else
			usleep(100);
	CHECK_EQ(pkt.psn, e->psn - 1);
	TX_NONE();
}

/* a packet that needs no page */
static void serve(struct end *e)
{
	rx(write_to(e, 0));
	answered(e);
}

static unsigned by_workers(void)
{
	return __atomic_load_n(&fake_may_sleep, __ATOMIC_RELAXED);
}

/* a packet that meets a cold page: whether a worker had to resolve it */
static bool by_worker(struct end *e)
{
	unsigned before = by_workers();

	rx(write_cold(e));
	answered(e);
	return by_workers() != before;
}

static void fault_alone(struct end *e)
{
	for (unsigned i = 0; i < ALONE; i++)
		by_worker(e);
}

/* ---- those that need no sleep ---- */

static void a_few_are_resolved_at_once(void)
{
	up();
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < FEW; i++) {
			serve(&b);
			CHECK(!by_worker(&a));
		}
		for (unsigned i = 0; i < 10; i++) {
			serve(&b);
			CHECK(by_worker(&a));
		}
		rig_advance(QUIET);
	}
}

static void who_faults_now_and_then_never_waits(void)
{
	up();
	for (unsigned i = 0; i < 100; i++) {
		rig_advance(QUIET);
		serve(&b);
		CHECK(!by_worker(&a));
	}
}

static void who_holds_up_nobody_is_served_at_once(void)
{
	up();
	fault_alone(&a);
	for (unsigned i = 0; i < 20; i++)
		CHECK(!by_worker(&a));
}

static void not_when_another_has_a_packet(void)
{
	up();
	fault_alone(&a);
	CHECK(!by_worker(&a));
	for (unsigned i = 0; i < 20; i++) {
		serve(&b);
		CHECK(by_worker(&a));
	}
	CHECK(by_worker(&a)); /* and for a while after that: the other may have more */
	fault_alone(&a);
	CHECK(!by_worker(&a));
}

/* it may be alone because nobody else is looked at meanwhile */
static void no_more_than_a_few_of_a_pass(void)
{
	unsigned before;

	up();
	fault_alone(&a);
	before = by_workers();
	for (unsigned i = 0; i < FEW; i++)
		rx_later(write_cold(&a));
	rx_now();
	answered(&a);
	CHECK_EQ(by_workers(), before);
	for (unsigned i = 0; i < FEW + 1; i++)
		rx_later(write_cold(&a));
	rx_now();
	answered(&a);
	CHECK_EQ(by_workers(), before + 1);
}

static void both_ends_in_one_process_are_one(void)
{
	struct hca_qp *qp[2];

	up();
	qp[0] = rig_qp_new();
	qp[1] = rig_qp_new();
	a = connected(qp[0], hca_qp_num(qp[1]));
	b = connected(qp[1], hca_qp_num(qp[0]));
	for (unsigned i = 0; i < ALONE; i++) {
		serve(&b);
		by_worker(&a);
	}
	for (unsigned i = 0; i < 20; i++) {
		serve(&b);
		CHECK(!by_worker(&a));
	}
}

/* what a QP sends, and where its READs go, is for the thread that posts and polls */
static void its_own_sends_and_reads_are_resolved_at_once(void)
{
	struct roce_pkt pkt;

	up();
	for (unsigned i = 0; i < 20; i++) {
		serve(&b);
		rig.qp = a.qp;
		CHECK_EQ(post(wr_data(IBV_WR_SEND, i, next_page++ * 4096, 8)), 0);
		CHECK_EQ(post(wr_data(IBV_WR_RDMA_READ, i, next_page++ * 4096, 8)), 0);
		CHECK(fake_tx_pop(&pkt) && pkt.opcode == IBV_OPCODE_RC_SEND_ONLY);
		CHECK(fake_tx_pop(&pkt) && pkt.opcode == IBV_OPCODE_RC_RDMA_READ_REQUEST);
		rx_read(pkt.psn, 8, pattern);
		SWC(SUCCESS, i);
		SWC(SUCCESS, i);
	}
	CHECK_EQ(by_workers(), 0);
}

/* ---- those that do ---- */

static void up_asleep(void)
{
	up();
	fake_sleeps.start = (uintptr_t)rig.mem + 4096;
	fake_sleeps.end = (uintptr_t)rig.mem + MEM_LEN;
}

static void who_resumed_a_qp_takes_its_next_fault(void)
{
	up_asleep();
	for (unsigned i = 0; i < 32; i++)
		rx(write_cold(&a));
	fake_gate_wait(1);
	fake_gate_open(0);
	answered(&a);
	CHECK_EQ(by_workers(), 32);
	CHECK_EQ(rig_workers(), 1);
	CHECK_EQ(rig_wakes(), 1);
}

/* two QPs wait for one page; the first faults again, and the second's lock is held for long */
static void but_hands_it_over_when_others_wait_to_be_resumed(void)
{
	uint32_t page;

	up_asleep();
	page = next_page;
	rx(write_to(&a, page));
	rx(write_to(&b, page));
	rx(write_to(&a, page + 1));
	fake_gate_wait(1);
	fl_lock(&b.qp->lock);
	fake_gate_open(0);
	answered(&a);
	fl_unlock(&b.qp->lock);
	answered(&b);
	CHECK_EQ(rig_workers(), 2);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(a_few_are_resolved_at_once), TEST(who_faults_now_and_then_never_waits),
		TEST(who_holds_up_nobody_is_served_at_once), TEST(not_when_another_has_a_packet),
		TEST(no_more_than_a_few_of_a_pass), TEST(both_ends_in_one_process_are_one),
		TEST(its_own_sends_and_reads_are_resolved_at_once), TEST(who_resumed_a_qp_takes_its_next_fault),
		TEST(but_hands_it_over_when_others_wait_to_be_resumed), {NULL, NULL}};

	return rig_main(argc, argv, tests);
}
