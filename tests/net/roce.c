/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Headers: every opcode goes out and comes back the same, as a packet and as a record of a ring; every
 * truncation of every packet is refused, or is a shorter packet that can be; random bytes do no harm.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "net/impl.h"

static struct roce_pkt sample(unsigned op, uint32_t payload)
{
	return (struct roce_pkt){.opcode = op, .opcode_last = op, .se = op & 1, .ackreq = !(op & 1),
				 .pkey = 0xabcd, .dest_qpn = 0x123456, .psn = 0xfffffe, .npkts = 1, .mtu = 1024,
				 .va = 0x0123456789abcdef, .rkey = 0xdeadbeef, .dma_len = 0x80000000,
				 .swap_add = 0x1122334455667788, .compare = 0x99aabbccddeeff00,
				 .atomic_orig = 0xfedcba9876543210, .imm = 0x01020304, .syndrome = 0x6c,
				 .msn = 0x654321, .qkey = 0x80010000, .src_qpn = 0xabcdef, .srqn = 0x2468ac, .flow = 0x13579b,
				 .payload_len = payload};
}

static void same(const struct roce_pkt *a, const struct roce_pkt *b)
{
	uint32_t f = roce_opcode[a->opcode].flags | roce_opcode[a->opcode_last].flags;

	assert_int_equal(a->opcode, b->opcode);
	assert_int_equal(a->opcode_last, b->opcode_last);
	assert_int_equal(a->se, b->se);
	assert_int_equal(a->ackreq, b->ackreq);
	assert_int_equal(a->pkey, b->pkey);
	assert_int_equal(a->dest_qpn, b->dest_qpn);
	assert_int_equal(a->psn, b->psn);
	assert_int_equal(a->npkts, b->npkts);
	assert_int_equal(a->payload_len, b->payload_len);
	if (f & (ROCE_F_RETH | ROCE_F_ATOMIC))
		assert_int_equal(a->va, b->va);
	if (f & (ROCE_F_RETH | ROCE_F_ATOMIC | ROCE_F_IETH))
		assert_int_equal(a->rkey, b->rkey);
	if (f & ROCE_F_RETH)
		assert_int_equal(a->dma_len, b->dma_len);
	if (f & ROCE_F_ATOMIC) {
		assert_int_equal(a->swap_add, b->swap_add);
		assert_int_equal(a->compare, b->compare);
	}
	if (f & ROCE_F_AETH) {
		assert_int_equal(a->syndrome, b->syndrome);
		assert_int_equal(a->msn, b->msn);
	}
	if (f & ROCE_F_ATMACK)
		assert_int_equal(a->atomic_orig, b->atomic_orig);
	if (f & ROCE_F_IMMDT)
		assert_int_equal(a->imm, b->imm);
	if (f & ROCE_F_DETH) {
		assert_int_equal(a->qkey, b->qkey);
		assert_int_equal(a->src_qpn, b->src_qpn);
	}
	if (f & ROCE_F_XRCETH)
		assert_int_equal(a->srqn, b->srqn);
	if (f & ROCE_F_RDETH)
		assert_int_equal(a->flow, b->flow);
}

static void round_trip(void **state)
{
	unsigned op, known = 0;
	uint32_t payload;

	for (op = 0; op < 256; op++) {
		const struct roce_opcode_info *info = &roce_opcode[op];

		if (!info->name) {
			uint8_t zero[64] = {op};
			struct roce_pkt pkt;

			assert_int_equal(roce_parse(zero, sizeof(zero), &pkt), -EPROTO);
			continue;
		}
		known++;
		for (payload = 0; payload < (info->flags & ROCE_F_PAYLOAD ? 9 : 1); payload++) {
			struct roce_pkt in = sample(op, payload), out;
			uint8_t buf[128];
			size_t n, len, cut;

			memset(buf, 0x5a, sizeof(buf));
			n = roce_build_headers(&in, 0, buf);
			assert_int_equal(n, info->hdr_bytes);
			len = n + ((payload + 3) & ~3u);
			assert_int_equal(roce_parse(buf, len, &out), 0);
			same(&in, &out);
			if (payload)
				assert_ptr_equal(out.payload, buf + n);
			for (cut = 0; cut < len; cut++) {
				uint8_t *exact = malloc(cut ? cut : 1); /* a sanitizer sees a read past it */
				int ret;

				memcpy(exact, buf, cut);
				ret = roce_parse(exact, cut, &out);
				if (!ret)
					assert_true(cut >= n && out.payload_len <= cut - n);
				if (cut < n || cut & 3)
					assert_int_equal(ret, -EPROTO);
				free(exact);
			}
			if (!(info->flags & ROCE_F_PAYLOAD))
				assert_int_equal(roce_parse(buf, len + 4, &out), -EPROTO);
			buf[1] |= 1; /* tver */
			assert_int_equal(roce_parse(buf, len, &out), -EPROTO);
		}
	}
	assert_int_equal(known, 23 + 23 + 12 + 2 + 11 + 1); /* RC, XRC, UC, UD, of RD what SRD uses, and the CNP */
}

/* opcodes as the specification numbers them, not as our table does */
static void known_numbers(void **state)
{
	assert_string_equal(roce_opcode[0x0c].name, "RC_RDMA_READ_REQUEST");
	assert_string_equal(roce_opcode[0x14].name, "RC_FETCH_ADD");
	assert_string_equal(roce_opcode[0x2b].name, "UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE");
	assert_string_equal(roce_opcode[0x64].name, "UD_SEND_ONLY");
	assert_null(roce_opcode[0x15].name);
	assert_null(roce_opcode[0x2c].name);
	assert_string_equal(roce_opcode[0xa0].name, "XRC_SEND_FIRST");
	assert_string_equal(roce_opcode[0xb4].name, "XRC_FETCH_ADD");
	assert_string_equal(roce_opcode[0xb7].name, "XRC_SEND_ONLY_WITH_INVALIDATE");
	assert_null(roce_opcode[0xb5].name);
	assert_null(roce_opcode[0xb8].name);
	assert_string_equal(roce_opcode[0x44].name, "RD_SEND_ONLY");
	assert_string_equal(roce_opcode[0x55].name, "RD_RESYNC");
	assert_int_equal(roce_opcode[0x4b].hdr_bytes, 44);
	assert_int_equal(roce_opcode[0x51].hdr_bytes, 20);
	assert_int_equal(roce_opcode[0xa1].hdr_bytes, 16);
	assert_int_equal(roce_opcode[0xab].hdr_bytes, 36);
	assert_int_equal(roce_opcode[0xac].hdr_bytes, 32);
	assert_int_equal(roce_opcode[0xae].hdr_bytes, 12);
	assert_int_equal(roce_opcode[0xb1].hdr_bytes, 16);
	assert_int_equal(roce_opcode[0xb3].hdr_bytes, 44);
	assert_int_equal(roce_opcode[0x13].hdr_bytes, 40);
	assert_int_equal(roce_opcode[0x0b].hdr_bytes, 32);
	assert_int_equal(roce_opcode[0x12].hdr_bytes, 24);
}

/* A14.3: the XRCETH stands right behind the BTH: eight reserved bits, which are not looked at, and the SRQ number */
static void xrceth(void **state)
{
	struct roce_pkt in = sample(0xac, 0), out;
	uint8_t buf[64] = {0};
	size_t n = roce_build_headers(&in, 0, buf);

	assert_memory_equal(buf + 12, ((uint8_t[]){0, 0x24, 0x68, 0xac, 0x01, 0x23}), 6);
	buf[12] = 0xff;
	assert_int_equal(roce_parse(buf, n, &out), 0);
	same(&in, &out);
}

static void pad_past_payload(void **state)
{
	struct roce_pkt in = sample(IBV_OPCODE_RC_SEND_ONLY, 1), out;
	uint8_t buf[64] = {0};
	size_t n = roce_build_headers(&in, 0, buf);

	assert_int_equal(roce_parse(buf, n, &out), -EPROTO);
	assert_int_equal(roce_parse(buf, n + 4, &out), 0);
	assert_int_equal(out.payload_len, 1);
}

static void train_opcodes(void **state)
{
	static const uint8_t trains[][3] = {
		{IBV_OPCODE_RC_SEND_FIRST, IBV_OPCODE_RC_SEND_MIDDLE, IBV_OPCODE_RC_SEND_LAST},
		{IBV_OPCODE_RC_SEND_MIDDLE, IBV_OPCODE_RC_SEND_MIDDLE, IBV_OPCODE_RC_SEND_LAST_WITH_IMMEDIATE},
		{IBV_OPCODE_RC_SEND_FIRST, IBV_OPCODE_RC_SEND_MIDDLE, 0x16},
		{IBV_OPCODE_RC_SEND_MIDDLE, IBV_OPCODE_RC_SEND_MIDDLE, IBV_OPCODE_RC_SEND_MIDDLE},
		{IBV_OPCODE_UC_RDMA_WRITE_FIRST, IBV_OPCODE_UC_RDMA_WRITE_MIDDLE, IBV_OPCODE_UC_RDMA_WRITE_LAST},
		{IBV_OPCODE_RC_RDMA_WRITE_FIRST, IBV_OPCODE_RC_RDMA_WRITE_MIDDLE,
		 IBV_OPCODE_RC_RDMA_WRITE_LAST_WITH_IMMEDIATE},
		{0xa0, 0xa1, 0xa3}, /* XRC SEND, with immediate */
		{0xa6, 0xa7, 0xa9}, /* XRC WRITE, with immediate */
		{0xad, 0xae, 0xaf}, /* XRC READ response */
		{0x4d, 0x4e, 0x4f}, /* RD READ response */
		{IBV_OPCODE_RC_RDMA_READ_RESPONSE_FIRST, IBV_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE,
		 IBV_OPCODE_RC_RDMA_READ_RESPONSE_LAST},
		{IBV_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE, IBV_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE,
		 IBV_OPCODE_RC_RDMA_READ_RESPONSE_LAST},
	};
	uint8_t line[REC_LINE], rec[8192];
	uint32_t off, size, got;
	unsigned t, i;

	for (t = 0; t < sizeof(trains) / sizeof(trains[0]); t++) {
		struct roce_pkt in = sample(trains[t][0], 2 * 1024 + 7), out;

		in.npkts = 3;
		in.opcode_last = trains[t][2];
		for (i = 0; i < 3; i++) {
			uint8_t buf[64 + 1024];
			size_t n = roce_build_headers(&in, i, buf);

			assert_int_equal(roce_pkt_opcode(&in, i), trains[t][i]);
			assert_int_equal(roce_parse(buf, n + (i < 2 ? 1024 : 8), &out), 0);
			assert_int_equal(out.psn, (0xfffffe + i) & 0xffffff);
			assert_int_equal(out.payload_len, i < 2 ? 1024 : 7);
			assert_int_equal(out.se, i == 2 && in.se);
			assert_int_equal(out.ackreq, i == 2 && in.ackreq);
		}
		size = train_encode(&in, line, &off);
		assert_true(size && size % 64 == 0 && off == 64 && size >= off + in.payload_len);
		memset(rec, 0, sizeof(rec));
		memcpy(rec, line, sizeof(line));
		assert_int_equal(train_decode(rec, sizeof(rec), &out, &got), 0);
		assert_int_equal(got, size);
		assert_int_equal(out.mtu, 1024);
		same(&in, &out);
		/* not all of it there: the framing is wrong */
		assert_int_equal(train_decode(rec, size - 64, &out, &got), -EPROTO);
		assert_int_equal(got, 0);
	}
}

/* 8 bytes and their headers are one cache line */
static void small_record(void **state)
{
	struct roce_pkt in = sample(IBV_OPCODE_RC_RDMA_WRITE_ONLY, 8), out;
	uint8_t line[REC_LINE] = {0};
	uint32_t off, got;

	assert_int_equal(train_encode(&in, line, &off), 64);
	memcpy(line + off, "12345678", 8);
	assert_int_equal(train_decode(line, 64, &out, &got), 0);
	same(&in, &out);
	assert_memory_equal(out.payload, "12345678", 8);
}

/* what a datagram's receive begins with, byte by byte */
static void grh_bytes(void **state)
{
	static const uint8_t v4[GRH_LEN] = {
		[20] = 0x45, 0x20, 0, 0x3c, 0, 0, 0x40, 0, 0x40, 17, 0x26, 0x8f, 10, 0, 0, 1, 10, 0, 0, 2};
	static const uint8_t v6[GRH_LEN] = {
		0x65, 0xab, 0xcd, 0xef, 0x10, 0x08, 17, 7, 0xfe, 0x80, [23] = 1, [24] = 0xfe, 0x80, [39] = 2};
	struct net_path_attr a = {.sgid = {[10] = 0xff, 0xff, 10, 0, 0, 1},
				  .dgid = {[10] = 0xff, 0xff, 10, 0, 0, 2},
				  .tclass = 0x20};
	uint8_t grh[GRH_LEN];

	grh_make(grh, &a, 32);
	assert_memory_equal(grh, v4, GRH_LEN);
	assert_true(grh_ok(grh));
	a = (struct net_path_attr){.sgid = {0xfe, 0x80, [15] = 1}, .dgid = {0xfe, 0x80, [15] = 2},
				   .tclass = 0x5a, .hop_limit = 7, .flow_label = 0xbcdef};
	grh_make(grh, &a, 0x1000);
	assert_memory_equal(grh, v6, GRH_LEN);
	assert_true(grh_ok(grh));
	grh[0] = 0x45;
	assert_false(grh_ok(grh));
}

/* A datagram takes its GRH along, in either kind of record; one that cannot be is refused. */
static void datagram_records(void **state)
{
	static const uint32_t lens[] = {0, 1, 8, 1000, 4096};
	struct net_path_attr a = {.sgid = {[10] = 0xff, 0xff, 1, 2, 3, 4}, .dgid = {[10] = 0xff, 0xff}};
	uint8_t rec[8192] = {0}, packet[4200] = {0}, grh[GRH_LEN];
	uint32_t off, size, got, i;
	struct roce_pkt in, out;
	size_t hdr;

	grh_make(grh, &a, 100);
	for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		in = sample(0x64 + i % 2, lens[i]);
		size = train_encode(&in, rec, &off);
		assert_true(size % 64 == 0 && off >= REC_LINE + GRH_LEN && off + lens[i] <= size);
		memcpy(rec + off - GRH_LEN, grh, GRH_LEN);
		memset(rec + off, 0xd0, lens[i]);
		assert_int_equal(train_decode(rec, sizeof(rec), &out, &got), 0);
		assert_int_equal(got, size);
		same(&in, &out);
		assert_memory_equal(out.grh, grh, GRH_LEN);
		assert_ptr_equal(out.payload, rec + off);
		rec[off - GRH_LEN] = 1;
		assert_int_equal(train_decode(rec, sizeof(rec), &out, &got), -EPROTO);
		/* as another opcode's it would be framed otherwise */
		rec[off - GRH_LEN] = 0;
		rec[16] = IBV_OPCODE_UC_SEND_ONLY;
		assert_int_not_equal(train_decode(rec, sizeof(rec), &out, &got), 0);

		hdr = roce_build_headers(&in, 0, packet);
		memset(packet + hdr, 0xd1, lens[i]);
		size = raw_encode(grh, i & 1, (hdr + lens[i] + 3) & ~3u, rec, &off);
		memcpy(rec + off, packet, (hdr + lens[i] + 3) & ~3u);
		assert_int_equal(train_decode(rec, sizeof(rec), &out, &got), 0);
		assert_int_equal(got, size);
		same(&in, &out);
		assert_int_equal(out.ce, i & 1);
		assert_true(out.handed_over);
		assert_memory_equal(out.grh, grh, GRH_LEN);
		rec[16] = 1;
		assert_int_equal(train_decode(rec, sizeof(rec), &out, &got), -EPROTO);
	}
}

static void noise(void **state)
{
	struct roce_pkt in, out;
	uint8_t rec[2048], *exact;
	uint32_t off, size, i;
	size_t n;

	srandom(1);
	for (i = 0; i < 300000; i++) {
		in = sample(i % 4 ? random() % 0x18 : 0x60 + random() % 8, random() % 64);
		in.npkts = 1 + random() % 3;
		in.mtu = 256;
		in.opcode_last = in.opcode & 0x60 ? in.opcode : random() % 0x18;
		memset(rec, random(), sizeof(rec));
		train_encode(&in, rec, &off);
		for (n = random() % 4; n; n--)
			rec[random() % REC_LINE] ^= 1 << random() % 8;
		if (!train_decode(rec, sizeof(rec), &out, &size)) {
			assert_true(size >= REC_LINE && size <= sizeof(rec));
			if (out.payload_len)
				assert_true(out.payload >= rec &&
					    out.payload + out.payload_len <= rec + size);
			if (out.grh)
				assert_true(out.grh >= rec && out.grh + GRH_LEN <= rec + size);
			assert_true(out.npkts >= 1 && roce_opcode[out.opcode].name);
			assert_true(roce_opcode[out.opcode_last].name);
		}
		n = random() % 80;
		exact = malloc(n ? n : 1);
		memcpy(exact, rec + 16, n);
		roce_parse(exact, n, &out);
		free(exact);
	}
}

static void psn_circle(void **state)
{
	assert_true(psn_cmp(0xffffff, 0) < 0);
	assert_true(psn_cmp(0, 0xffffff) > 0);
	assert_true(psn_cmp(5, 5) == 0);
	assert_true(psn_cmp(0x7fffff, 0) > 0);
	assert_int_equal(psn_add(0xffffff, 2), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),	 cmocka_unit_test(known_numbers),
		cmocka_unit_test(xrceth), cmocka_unit_test(pad_past_payload), cmocka_unit_test(train_opcodes),
		cmocka_unit_test(small_record),	 cmocka_unit_test(noise),
		cmocka_unit_test(grh_bytes),	 cmocka_unit_test(datagram_records),
		cmocka_unit_test(psn_circle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
