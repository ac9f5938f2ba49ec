/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What RC and UC carry: every operation in every size, many under way at once, a receive that comes
 * late; and that UC drops what it may not do.
 */
#include <string.h>
#include <unistd.h>
#include "exchange.h"

void case_send(void)
{
	for (unsigned i = 0; i < NUM_SIZES; i++) {
		uint32_t len = sizes[i];
		bool imm = i & 1;

		if (server) {
			memset(buf, 0, BUF_SIZE);
			post_recv_at(OFFSET, BUF_SIZE - OFFSET);
		} else {
			fill(buf + OFFSET, len, i);
		}
		barrier();
		if (!server)
			request_done("SEND", imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, len, 0,
				     IBV_WC_SUCCESS);
		else
			expect_recv("SEND", len, imm, IBV_WC_RECV);
		barrier();
		if (server) {
			check_data("SEND", buf + OFFSET, len, i);
			CHECK(!buf[OFFSET - 1] && !buf[OFFSET + len],
			      "SEND of %u bytes: written beside it", len);
		}
	}
}

void case_write(void)
{
	for (unsigned i = 0; i < NUM_SIZES; i++) {
		uint32_t len = sizes[i];
		bool imm = i & 1;

		if (server) {
			memset(buf, 0, BUF_SIZE);
			post_recv_at(0, 0);
		} else {
			fill(buf + OFFSET, len, i);
		}
		barrier();
		if (!server)
			request_done("WRITE", imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
				     len, peer.rkey, IBV_WC_SUCCESS);
		else if (imm)
			expect_recv("WRITE with immediate", len, true, IBV_WC_RECV_RDMA_WITH_IMM);
		/* UC's completion says that it was sent; what follows says that it is there */
		if (!imm && qp->qp_type == IBV_QPT_UC && !server)
			request_done("WRITE of nothing", IBV_WR_RDMA_WRITE_WITH_IMM, 0, peer.rkey,
				     IBV_WC_SUCCESS);
		else if (!imm && qp->qp_type == IBV_QPT_UC)
			expect_recv("WRITE of nothing", 0, true, IBV_WC_RECV_RDMA_WITH_IMM);
		barrier();
		if (server) {
			check_data("WRITE", buf + OFFSET, len, i);
			CHECK(!buf[OFFSET - 1] && !buf[OFFSET + len],
			      "WRITE of %u bytes: written beside it", len);
		}
		barrier();
	}
}

void case_read(void)
{
	for (unsigned i = 0; i < NUM_SIZES; i++) {
		uint32_t len = sizes[i];

		if (server)
			fill(buf + OFFSET, BUF_SIZE / 2, i);
		else
			memset(buf, 0, BUF_SIZE);
		barrier();
		if (!server) {
			request_done("READ", IBV_WR_RDMA_READ, len, peer.rkey, IBV_WC_SUCCESS);
			check_data("READ", buf + OFFSET, len, i);
			CHECK(!buf[OFFSET - 1] && !buf[OFFSET + len],
			      "READ of %u bytes: written beside it", len);
		}
		barrier();
	}
}

/* returns what was there */
static uint64_t atomic(enum ibv_wr_opcode opcode, uint64_t remote, uint32_t rkey,
		       uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge sge = {IOVA + OFFSET, 8, mr->lkey};
	struct ibv_send_wr wr = request(opcode, &sge, remote, rkey);
	uint64_t old;

	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	post_send(&wr);
	expect_send("atomic", 8, IBV_WC_SUCCESS);
	memcpy(&old, buf + OFFSET, 8);
	return old;
}

void case_atomic(void)
{
	uint64_t at = 0x10008, word = 5;

	if (server)
		memcpy(buf + at, &word, 8);
	barrier();
	if (!server) {
		CHECK(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, IOVA + at, peer.rkey, 5,
			     0x1122334455667788) == 5,
		      "compare and swap: what was there");
		CHECK(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, IOVA + at, peer.rkey, 5, 9) ==
			      0x1122334455667788,
		      "compare and swap that does not match: what was there");
		CHECK(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, IOVA + at, peer.rkey, 3, 0) ==
			      0x1122334455667788,
		      "fetch and add: what was there");
	}
	barrier();
	if (server) {
		memcpy(&word, buf + at, 8);
		CHECK(word == 0x112233445566778b, "what is left: %lx", word);
	}
}
void case_rnr(void)
{
	struct ibv_sge sge = {IOVA + OFFSET, 2500, mr->lkey};
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, 0, 0);

	if (!server)
		fill(buf + OFFSET, sge.length, 2);
	barrier();
	if (!server)
		post_send(&wr);
	usleep(200000);
	if (server) {
		post_recv_at(OFFSET, 5000);
		expect_recv("SEND before its receive", sge.length, false, IBV_WC_RECV);
		check_data("SEND before its receive", buf + OFFSET, sge.length, 2);
	} else {
		expect_send("SEND before its receive", sge.length, IBV_WC_SUCCESS);
	}
	barrier();
}

#define BURST 24

/* READs, WRITEs and atomics, all under way at once */
void case_burst(void)
{
	uint64_t counter = 0x80000;

	if (server) {
		memset(buf, 0, BUF_SIZE);
		fill(buf + 0xa0000, 7000, 9);
	} else {
		fill(buf + OFFSET, 7000, 4);
	}
	barrier();
	for (int i = 0; !server && i < BURST; i++) {
		bool read = i % 3 == 1, atom = i % 3 == 2;
		struct ibv_sge sge = {IOVA + (read   ? 0x20000u + i * 8192u
					      : atom ? 0x80000u + i * 8u
						     : OFFSET),
				      atom ? 8 : 7000, mr->lkey};
		struct ibv_send_wr wr = request(read   ? IBV_WR_RDMA_READ
						: atom ? IBV_WR_ATOMIC_FETCH_AND_ADD
						       : IBV_WR_RDMA_WRITE,
						&sge,
						IOVA + (read   ? 0xa0000u
							: atom ? counter
							       : i * 8192u + 1),
						peer.rkey);

		if (atom)
			wr.wr.atomic.compare_add = 1;
		post_send(&wr);
	}
	for (int i = 0; !server && i < BURST; i++)
		expect_send("one of a burst", i, IBV_WC_SUCCESS);
	for (int i = 1; !server && i < BURST; i += 3)
		check_data("READ of a burst", buf + 0x20000 + i * 8192, 7000, 9);
	barrier();
	for (int i = 0; server && i < BURST; i += 3)
		check_data("WRITE of a burst", buf + i * 8192 + 1, 7000, 4);
	if (server)
		CHECK(buf[counter] == BURST / 3, "atomics of a burst: %d", buf[counter]);
}

/* UC: what is wrong is dropped, and the next message arrives */
void case_uc_dropped(void)
{
	if (server) {
		memset(buf, 0, BUF_SIZE);
		post_recv_at(0, 0);
	} else {
		fill(buf + OFFSET, 3000, 6);
	}
	barrier();
	if (!server) {
		request_done("WRITE, wrong key", IBV_WR_RDMA_WRITE, 3000, peer.rkey ^ 1,
			     IBV_WC_SUCCESS);
		request_done("WRITE", IBV_WR_RDMA_WRITE_WITH_IMM, 3000, peer.rkey, IBV_WC_SUCCESS);
	} else {
		expect_recv("WRITE after one that is dropped", 3000, true,
			    IBV_WC_RECV_RDMA_WITH_IMM);
		check_data("WRITE after one that is dropped", buf + OFFSET, 3000, 6);
		CHECK(state() == IBV_QPS_RTS, "the responder's QP is in state %d", state());
	}
	barrier();
}
