/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gather and scatter lists of odd lengths, empty elements among them, over pinned and on-demand
 * regions in one list: the message is their concatenation, at either side.
 */
#include "rc.h"

#define N    4
#define AREA (1ul << 20)

static struct rc_side a;
static struct rc_peer *peer;
static uint8_t *area[2];
static struct ibv_mr *mr[2];
static struct rc_remote r[2], flat;

static const uint32_t lengths[][N] = {
	{1, 2, 3, 5},	    {0, 4095, 0, 4097},	    {4096, 1, 70001, 13},
	{1023, 1025, 1, 0}, {333, 65537, 7, 12289},
};
static const uint32_t offsets[N] = {3, 100000 + 4091, 300000, 600000 + 17};

static struct ibv_sge local_sge(int i, const uint32_t *len)
{
	return (struct ibv_sge){(uintptr_t)area[i & 1] + offsets[i], len[i], mr[i & 1]->lkey};
}

static void post(enum ibv_wr_opcode opcode, const uint32_t *len)
{
	struct ibv_sge sge[N];
	struct ibv_send_wr *bad, wr = {.sg_list = sge,
				       .num_sge = N,
				       .opcode = opcode,
				       .send_flags = IBV_SEND_SIGNALED,
				       .wr.rdma = {flat.iova + 11, flat.key}};

	for (int i = 0; i < N; i++)
		sge[i] = local_sge(i, len);
	CHECK(!ibv_post_send(a.qp, &wr, &bad), "post");
	rc_expect(&a, IBV_WC_SUCCESS);
}

static void check_flat(const char *what, const uint32_t *len)
{
	uint64_t at = 11;

	for (int i = 0; i < N; at += len[i++])
		CHECK(rc_call(peer, RC_DIFFERS, flat.buf, at, len[i], offsets[i], i) == UINT64_MAX,
		      "%s: element %d of %u bytes", what, i, len[i]);
}

static void one(const uint32_t *len)
{
	struct rc_msg m = {.op = RC_RECV, .num_sge = N};
	uint64_t total = 0, at = 11;

	for (int i = 0; i < N; i++) {
		rc_fill(area[i & 1] + offsets[i], len[i], offsets[i], (uint64_t)i);
		m.sge[i] = (struct rc_call_sge){r[i & 1].buf, offsets[i], len[i]};
		total += len[i];
	}
	rc_call(peer, RC_DONTNEED, flat.buf, 0, AREA);
	post(IBV_WR_RDMA_WRITE, len);
	check_flat("WRITE", len);

	/* the peer's list has the same lengths, then what is left over stays */
	CHECK(!rc_call_msg(peer, m).arg[0], "post_recv");
	post(IBV_WR_SEND, len);
	m = rc_call_msg(peer, (struct rc_msg){.op = RC_WAIT, .arg = {20000}});
	CHECK(m.arg[0] && m.arg[1] == IBV_WC_SUCCESS && m.arg[2] == total,
	      "receive: status %lu, %lu bytes", m.arg[1], m.arg[2]);
	for (int i = 0; i < N; i++)
		CHECK(rc_call(peer, RC_DIFFERS, r[i & 1].buf, offsets[i], len[i], offsets[i], i) ==
			      UINT64_MAX,
		      "SEND: element %d of %u bytes", i, len[i]);

	/* scattered otherwise than gathered */
	m = (struct rc_msg){
		.op = RC_RECV,
		.num_sge = 2,
		.sge = {{flat.buf, 11, total / 3}, {flat.buf, 11 + total / 3, AREA / 2}}};
	rc_call(peer, RC_DONTNEED, flat.buf, 0, AREA);
	CHECK(!rc_call_msg(peer, m).arg[0], "post_recv");
	post(IBV_WR_SEND, len);
	rc_call(peer, RC_WAIT, 20000);
	check_flat("SEND into two", len);

	/* READ: the flat buffer into the list */
	rc_call(peer, RC_FILL, flat.buf, 11, total, 0, 9);
	for (int i = 0; i < N; i++)
		memset(area[i & 1] + offsets[i], 0, len[i]);
	post(IBV_WR_RDMA_READ, len);
	at = 0;
	for (int i = 0; i < N; at += len[i++])
		CHECK(rc_differs(area[i & 1] + offsets[i], len[i], at, 9) == UINT64_MAX,
		      "READ: element %d of %u bytes", i, len[i]);
}

int main(int argc, char **argv)
{
	rc_main(argc, argv);
	rc_open(&a);
	peer = rc_peer_start();
	for (int i = 0; i < 2; i++) {
		area[i] = rc_map(AREA);
		mr[i] = rc_reg(&a, area[i], AREA, ALL_ACCESS | (i ? ODP : 0));
		r[i] = rc_peer_buf(peer, AREA, ALL_ACCESS | (i ? ODP : 0), RC_SAME, RC_ANON);
	}
	flat = rc_peer_buf(peer, AREA, ALL_ACCESS | ODP, 0x1000, RC_ANON);
	for (enum ibv_mtu mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++) {
		struct rc_opt opt = rc_default;

		opt.mtu = mtu;
		rc_connect_peer(&a, peer, &opt);
		for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
			one(lengths[i]);
	}
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_dereg_mr(mr[i]), "dereg");
	rc_close(&a);
	rc_peer_stop(peer);
	return 0;
}
