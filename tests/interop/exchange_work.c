/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work requests of the exchange, their completions, and data: a pattern by position.
 */
#include <arpa/inet.h>
#include <string.h>
#include <unistd.h>
#include "exchange.h"

const uint32_t sizes[NUM_SIZES] = {
	0, 1, 5, 64, 1023, PATH_MTU, PATH_MTU + 1, 2 * PATH_MTU, 5001, 256 * 1024};

static uint8_t pattern(uint64_t pos, uint64_t seed)
{
	uint64_t x = (pos + 1) * 0x9e3779b97f4a7c15ull + seed * 0xd1b54a32d192ed03ull;

	return (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull >> 56;
}

void fill(uint8_t *at, uint64_t len, uint64_t seed)
{
	for (uint64_t i = 0; i < len; i++)
		at[i] = pattern(i, seed);
}

void check_data(const char *what, const uint8_t *at, uint64_t len, uint64_t seed)
{
	for (uint64_t i = 0; i < len; i++) {
		if (at[i] == pattern(i, seed))
			continue;
		CHECK(false, "%s, %lu bytes: byte %lu is %02x, not %02x", what, len, i, at[i],
		      pattern(i, seed));
		return;
	}
}

bool wait_wc(struct ibv_cq *cq, struct ibv_wc *wc)
{
	double end = now() + PATIENCE;

	while (ibv_poll_cq(cq, 1, wc) <= 0) {
		if (now() > end)
			return false;
		usleep(50);
	}
	return true;
}

static void post_recv(uint64_t id, struct ibv_sge sge)
{
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = sge.length ? 1 : 0}, *bad;

	if (ibv_post_recv(qp, &wr, &bad))
		die("ibv_post_recv");
}

void post_recv_sge(struct ibv_sge sge)
{
	post_recv(0, sge);
}

void post_recv_at(uint64_t offset, uint32_t len)
{
	post_recv(offset, (struct ibv_sge){IOVA + offset, len, mr->lkey});
}

struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge, uint64_t remote,
			   uint32_t rkey)
{
	struct ibv_send_wr wr = {.sg_list = sge,
				 .num_sge = sge->length ? 1 : 0,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED,
				 .imm_data = htonl(IMM)};

	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	return wr;
}

void post_send(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	if (ibv_post_send(qp, wr, &bad))
		die("ibv_post_send");
}

void expect_send(const char *what, uint32_t len, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	if (!wait_wc(send_cq, &wc)) {
		CHECK(false, "%s of %u bytes: no completion", what, len);
		return;
	}
	CHECK(wc.status == status, "%s of %u bytes: %s, not %s", what, len,
	      ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

void request_done(const char *what, enum ibv_wr_opcode opcode, uint32_t len, uint32_t rkey,
		  enum ibv_wc_status status)
{
	struct ibv_sge sge = {IOVA + OFFSET, len, mr->lkey};
	struct ibv_send_wr wr = request(opcode, &sge, IOVA + OFFSET, rkey);

	post_send(&wr);
	expect_send(what, len, status);
}

void expect_recv(const char *what, uint32_t len, bool imm, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	if (!wait_wc(recv_cq, &wc)) {
		CHECK(false, "%s of %u bytes: no receive", what, len);
		return;
	}
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == opcode && wc.byte_len == len,
	      "%s of %u bytes: received %s, opcode %d, %u bytes", what, len,
	      ibv_wc_status_str(wc.status), wc.opcode, wc.byte_len);
	CHECK(!!(wc.wc_flags & IBV_WC_WITH_IMM) == imm && (!imm || ntohl(wc.imm_data) == IMM),
	      "%s of %u bytes: immediate data, flags %x", what, len, wc.wc_flags);
}

void refused(const char *what, enum ibv_wr_opcode opcode, uint32_t rkey, enum ibv_wc_status status)
{
	request_done(what, opcode, 3000, rkey, status);
	CHECK(is_in_error(), "%s: the requester's QP is in state %d", what, state());
}
