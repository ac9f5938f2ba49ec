/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The data of every operation arrives where it belongs and nowhere else: each role pinned and on
 * demand, each path MTU, lengths around the MTU, odd offsets, iova apart from the address. Memory
 * on demand is cold at each operation, so that faults come in the middle of messages.
 */
#include "rc.h"

#define GUARD 96u
#define AREA  (3ul << 20)
#define OLD   1 /* seed of what is there before; cold memory holds zeros instead */
#define NEW   2

static struct rc_side a;
static struct rc_peer *peer;

struct ours {
	struct ibv_mr *mr;
	uint64_t iova;
};
static struct ours ours[4];
static struct rc_remote theirs[4];

static const char *const kinds[] = {"pinned", "pinned iova", "on-demand", "on-demand iova"};

static bool is_odp(int kind)
{
	return kind >= 2;
}

static uint64_t iova_of(int kind)
{
	return kind == 1 ? 0 : kind == 3 ? 0x7654321000000ull : RC_SAME;
}

/* pinned and on-demand memory share no page: one that is discarded would stay behind in the pin */
static void set_up(void)
{
	for (int k = 0; k < 4; k++) {
		int access = ALL_ACCESS | (is_odp(k) ? ODP : 0);
		void *area = rc_map(AREA);

		ours[k].iova = iova_of(k) == RC_SAME ? (uintptr_t)area : iova_of(k);
		ours[k].mr = ibv_reg_mr_iova2(a.pd, area, AREA, ours[k].iova, (unsigned)access);
		if (!ours[k].mr)
			rc_skip_if_memlocked(errno);
		CHECK(ours[k].mr, "register %s: %s", kinds[k], strerror(errno));
		theirs[k] = rc_peer_buf(peer, AREA, access, iova_of(k), RC_ANON);
	}
}

/* what receives: guards of the old pattern around; the inside old too (warm), or never touched
 * (cold) */
static void prepare_local(int k, uint64_t off, uint64_t len, uint64_t seed)
{
	uint8_t *p = ours[k].mr->addr;

	if (is_odp(k))
		CHECK(!madvise(p, AREA, MADV_DONTNEED), "madvise: %s", strerror(errno));
	rc_fill(p + off - GUARD, GUARD, off - GUARD, OLD);
	rc_fill(p + off + len, GUARD, off + len, OLD);
	if (seed == NEW || !is_odp(k))
		rc_fill(p + off, len, off, seed);
}

static void prepare_remote(int k, uint64_t off, uint64_t len, uint64_t seed)
{
	uint64_t b = theirs[k].buf;

	if (is_odp(k))
		rc_call(peer, RC_DONTNEED, b, 0, AREA);
	rc_call(peer, RC_FILL, b, off - GUARD, GUARD, off - GUARD, OLD);
	rc_call(peer, RC_FILL, b, off + len, GUARD, off + len, OLD);
	if (seed == NEW || !is_odp(k))
		rc_call(peer, RC_FILL, b, off, len, off, seed);
}

static void check_remote(const char *what, int k, uint64_t off, uint64_t len, uint64_t src)
{
	uint64_t b = theirs[k].buf;
	uint64_t bad = rc_call(peer, RC_DIFFERS, b, off, len, src, NEW);

	CHECK(bad == UINT64_MAX, "%s: wrong byte %lu of %lu at the peer (%s)", what, bad, len,
	      kinds[k]);
	CHECK(rc_call(peer, RC_DIFFERS, b, off - GUARD, GUARD, off - GUARD, OLD) == UINT64_MAX &&
		      rc_call(peer, RC_DIFFERS, b, off + len, GUARD, off + len, OLD) == UINT64_MAX,
	      "%s: bytes around the target's %lu changed (%s)", what, len, kinds[k]);
}

static void check_local(const char *what, int k, uint64_t off, uint64_t len, uint64_t src)
{
	uint8_t *p = ours[k].mr->addr;
	uint64_t bad = rc_differs(p + off, len, src, NEW);

	CHECK(bad == UINT64_MAX, "%s: wrong byte %lu of %lu here (%s)", what, bad, len, kinds[k]);
	CHECK(rc_differs(p + off - GUARD, GUARD, off - GUARD, OLD) == UINT64_MAX &&
		      rc_differs(p + off + len, GUARD, off + len, OLD) == UINT64_MAX,
	      "%s: bytes around the sink's %lu changed (%s)", what, len, kinds[k]);
}

static void expect_recv(const char *what, uint32_t len, enum ibv_wc_opcode opcode, bool imm)
{
	struct rc_msg m = rc_call_msg(peer, (struct rc_msg){.op = RC_WAIT, .arg = {20000}});

	CHECK(m.arg[0], "%s: the peer's receive does not complete", what);
	CHECK(m.arg[1] == IBV_WC_SUCCESS, "%s: receive: %s", what,
	      ibv_wc_status_str((enum ibv_wc_status)m.arg[1]));
	CHECK(m.arg[2] == len, "%s: byte_len %lu, not %u", what, m.arg[2], len);
	CHECK(m.arg[3] == opcode, "%s: opcode %lu, not %d", what, m.arg[3], opcode);
	CHECK(!imm || (m.arg[4] == 0x1badcafe && (m.arg[5] & IBV_WC_WITH_IMM)),
	      "%s: immediate %#lx, flags %#lx", what, m.arg[4], m.arg[5]);
}

static void one(enum ibv_wr_opcode opcode, const char *what, int lk, int rk, uint32_t len,
		uint64_t loff, uint64_t roff)
{
	bool two_sided = opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
	bool imm = opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool read = opcode == IBV_WR_RDMA_READ;

	prepare_local(lk, loff, len, read ? OLD : NEW);
	prepare_remote(rk, roff, len, read ? NEW : OLD);
	if (two_sided || imm) {
		struct rc_msg m = {
			.op = RC_RECV, .num_sge = 1, .sge = {{theirs[rk].buf, roff, len}}};

		CHECK(!rc_call_msg(peer, m).arg[0], "post_recv");
	}
	CHECK(!rc_post(&a, opcode, ours[lk].iova + loff, len, ours[lk].mr->lkey,
		       theirs[rk].iova + roff, theirs[rk].key),
	      "%s: post", what);
	struct ibv_wc wc;

	CHECK(rc_poll(&a, &wc, 20), "%s of %u, %s to %s: no completion", what, len, kinds[lk],
	      kinds[rk]);
	CHECK(wc.status == IBV_WC_SUCCESS, "%s of %u, %s to %s: %s", what, len, kinds[lk],
	      kinds[rk], ibv_wc_status_str(wc.status));
	if (two_sided || imm)
		expect_recv(what, len, two_sided ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM, imm);
	if (read)
		check_local(what, lk, loff, len, roff);
	else
		check_remote(what, rk, roff, len, loff);
}

static void atomics(int lk, int rk)
{
	uint64_t off = 3 * PAGE + 40, loff = 5 * PAGE + 16, b = theirs[rk].buf;
	uint64_t *result = (uint64_t *)((uint8_t *)ours[lk].mr->addr + loff);

	for (int i = 0; i < 2; i++) {
		prepare_local(lk, loff, 8, OLD);
		prepare_remote(rk, off, 8, OLD);
		rc_call(peer, RC_SET, b, off, 41);
		CHECK(!rc_post_atomic(
			      &a, i ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP,
			      ours[lk].iova + loff, ours[lk].mr->lkey, theirs[rk].iova + off,
			      theirs[rk].key, i ? 0x100000001ull : 41, 0xfedcba9876543210ull),
		      "post");
		rc_expect(&a, IBV_WC_SUCCESS);
		CHECK(*result == 41, "atomic: result %#lx (%s, %s)", *result, kinds[lk], kinds[rk]);
		uint64_t now = rc_call(peer, RC_GET, b, off);

		CHECK(now == (i ? 0x10000002aull : 0xfedcba9876543210ull),
		      "atomic: the word is %#lx", now);
		/* a swap that does not match leaves the word, and says what it is */
		CHECK(!rc_post_atomic(&a, IBV_WR_ATOMIC_CMP_AND_SWP, ours[lk].iova + loff,
				      ours[lk].mr->lkey, theirs[rk].iova + off, theirs[rk].key, 41,
				      7),
		      "post");
		rc_expect(&a, IBV_WC_SUCCESS);
		CHECK(*result == now && rc_call(peer, RC_GET, b, off) == now,
		      "swap without a match");
		CHECK(rc_call(peer, RC_DIFFERS, b, off - GUARD, GUARD, off - GUARD, OLD) ==
				      UINT64_MAX &&
			      rc_call(peer, RC_DIFFERS, b, off + 8, GUARD, off + 8, OLD) ==
				      UINT64_MAX,
		      "atomic: neighbours of the word changed");
		uint8_t *p = (uint8_t *)result;

		CHECK(rc_differs(p - GUARD, GUARD, loff - GUARD, OLD) == UINT64_MAX &&
			      rc_differs(p + 8, GUARD, loff + 8, OLD) == UINT64_MAX,
		      "atomic: neighbours of the result changed");
	}
}

static void inline_data(int rk)
{
	for (uint32_t len = 0; len <= 64; len += 16 - (len == 0)) {
		uint8_t data[64];
		uint64_t off = 2 * PAGE - 5;
		struct ibv_sge sge[2] = {{(uintptr_t)data, len / 3, 0},
					 {(uintptr_t)data + len / 3, len - len / 3, 0}};
		struct ibv_send_wr *bad, wr = {.sg_list = sge,
					       .num_sge = 2,
					       .opcode = IBV_WR_RDMA_WRITE,
					       .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
					       .wr.rdma = {theirs[rk].iova + off, theirs[rk].key}};

		rc_fill(data, sizeof(data), 1000, NEW);
		prepare_remote(rk, off, len, OLD);
		CHECK(!ibv_post_send(a.qp, &wr, &bad), "post inline");
		memset(data, 0xee, sizeof(data)); /* the buffer is ours again at once */
		rc_expect(&a, IBV_WC_SUCCESS);
		check_remote("inline WRITE", rk, off, len, 1000);
	}
}

int main(int argc, char **argv)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		const char *name;
	} ops[] = {
		{IBV_WR_RDMA_WRITE, "WRITE"},
		{IBV_WR_RDMA_WRITE_WITH_IMM, "WRITE_WITH_IMM"},
		{IBV_WR_RDMA_READ, "READ"},
		{IBV_WR_SEND, "SEND"},
		{IBV_WR_SEND_WITH_IMM, "SEND_WITH_IMM"},
	};

	rc_main(argc, argv);
	rc_open(&a);
	peer = rc_peer_start();
	set_up();
	for (enum ibv_mtu mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++) {
		uint32_t m = 128u << mtu;
		uint32_t lens[] = {0, 1, 7, m - 1, m, m + 1, 65539, (1u << 20) + 1};
		struct rc_opt opt = rc_default;

		opt.mtu = mtu;
		rc_connect_peer(&a, peer, &opt);
		for (size_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++)
			for (int k = 0; k < 16; k++)
				for (size_t l = 0; l < sizeof(lens) / sizeof(lens[0]); l++)
					/* the big ones by the plain kinds only, with every MTU */
					if (lens[l] < 65536 || k % 5 == 0)
						one(ops[o].opcode, ops[o].name, k / 4, k % 4,
						    lens[l], PAGE + 13 + l, 2 * PAGE - 3 - 4 * l);
		for (int k = 0; k < 16; k++)
			atomics(k / 4, k % 4);
		for (int k = 0; k < 4; k++)
			inline_data(k);
	}
	for (int k = 0; k < 4; k++)
		CHECK(!ibv_dereg_mr(ours[k].mr), "dereg");
	rc_close(&a);
	rc_peer_stop(peer);
	return 0;
}
