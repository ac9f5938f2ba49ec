/* SPDX-License-Identifier: BSD-2-Clause */
/* Keys: their life, what they grant, and arithmetic at the edges of the address space. */
#include <errno.h>
#include "rig.h"

static uint8_t page[4096] __attribute__((aligned(4096)));

#define RW (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static void key_is_published(void)
{
	struct faultline_mr *ent;
	struct hca_mr *mr;
	uint32_t key;

	rig_node();
	mr = rig_mr(page, 100, 0x5000, RW, 9, false);
	key = hca_mr_key(mr);
	ent = (struct faultline_mr *)seg_ptr(hca_node->seg, hca_node->seg->s->mr_table) + (key >> 8);
	CHECK_EQ(ent->key, key);
	CHECK_EQ(key & 1, 0); /* of an index that is used for the first time: UCX needs that */
	CHECK_EQ(ent->pd, 9);
	CHECK_EQ(ent->access, RW);
	CHECK_EQ(ent->kind, FAULTLINE_MR_PINNED);
	CHECK_EQ(ent->iova, 0x5000);
	CHECK_EQ(ent->addr, (uintptr_t)page);
	CHECK_EQ(ent->length, 100);
	hca_mr_destroy(mr);
	CHECK_EQ(ent->key, 0);
	CHECK_EQ(fake_released, 1);
	CHECK_EQ(fake_key_waits, 1);
	mr = rig_mr(page, 100, 0x5000, RW, 9, true);
	ent = (struct faultline_mr *)seg_ptr(hca_node->seg, hca_node->seg->s->mr_table) +
	      (hca_mr_key(mr) >> 8);
	CHECK_EQ(ent->kind, FAULTLINE_MR_ODP);
}

static void keys_do_not_come_back_soon(void)
{
	enum { N = 200000 };
	static uint8_t seen[1u << 29]; /* a bit a key */
	struct hca_mr *mr;
	uint32_t key, i;

	rig_node();
	for (i = 0; i < N; i++) {
		mr = rig_mr(page, 100, 0, RW, PD, false);
		key = hca_mr_key(mr);
		CHECK(key >= 256);
		CHECK(!(seen[key >> 3] & 1 << (key & 7)));
		seen[key >> 3] |= 1 << (key & 7);
		CHECK_EQ(mr_check(PD, key, 0, 100, 0), 0);
		hca_mr_destroy(mr);
		CHECK_EQ(mr_check(PD, key, 0, 100, 0), -EACCES);
		CHECK(!mr_get(key));
	}
}

/* an index used again: the stale key of it stays an error */
static void stale_key_of_a_used_index(void)
{
	struct hca_mr *mr;
	uint32_t stale, i;

	rig_node();
	mr = rig_mr(page, 100, 0, RW, PD, false);
	stale = hca_mr_key(mr);
	hca_mr_destroy(mr);
	for (i = 0; i < 70000; i++) {
		mr = rig_mr(page, 100, 0, RW, PD, false);
		if (hca_mr_key(mr) >> 8 == stale >> 8)
			break;
		hca_mr_destroy(mr);
	}
	CHECK_EQ(hca_mr_key(mr) >> 8, stale >> 8);
	CHECK(hca_mr_key(mr) != stale);
	CHECK_EQ(mr_check(PD, stale, 0, 1, 0), -EACCES);
	CHECK_EQ(mr_check(PD, hca_mr_key(mr), 0, 1, 0), 0);
}

#ifndef __SANITIZE_THREAD__ /* half a million, by one thread */
static void all_keys_in_use(void)
{
	struct hca_mr *mr, *last = NULL;
	struct ib_umem *umem;
	uint32_t n = 0;
	int rc = 0;

	rig_node();
	while (!rc) {
		umem = fake_umem(page, 100, false);
		rc = hca_mr_create(rig.dev, PD, umem, 0, RW, &mr);
		if (!rc) {
			last = mr;
			n++;
		}
	}
	CHECK_EQ(rc, -ENOMEM);
	CHECK(n >= 524287 - 2);
	hca_mr_destroy(last);
	CHECK_EQ(hca_mr_create(rig.dev, PD, umem, 0, RW, &mr), 0);
}
#endif

static void pd_and_access(void)
{
	struct hca_mr *mr;
	uint32_t key;

	rig_node();
	mr = rig_mr(page, 100, 0x5000, IBV_ACCESS_REMOTE_READ, PD, false);
	key = hca_mr_key(mr);
	CHECK_EQ(mr_check(PD, key, 0x5000, 100, IBV_ACCESS_REMOTE_READ), 0);
	CHECK_EQ(mr_check(PD, key, 0x5000, 100, 0), 0);
	CHECK_EQ(mr_check(PD + 1, key, 0x5000, 100, IBV_ACCESS_REMOTE_READ), -EACCES);
	CHECK_EQ(mr_check(PD, key, 0x5000, 100, IBV_ACCESS_REMOTE_WRITE), -EACCES);
	CHECK_EQ(mr_check(PD, key, 0x5000, 100, IBV_ACCESS_LOCAL_WRITE), -EACCES);
	CHECK_EQ(mr_check(PD, key, 0x5000, 100, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC),
		 -EACCES);
	CHECK_EQ(mr_check(PD, key ^ 1, 0x5000, 100, 0), -EACCES);
	CHECK_EQ(mr_check(PD, 0, 0x5000, 100, 0), -EACCES);
	CHECK_EQ(mr_check(PD, 0xffffffff, 0x5000, 100, 0), -EACCES);
	CHECK_EQ(mr_check(PD, key & 0xff, 0x5000, 100, 0), -EACCES);
}

static void bounds(uint64_t iova)
{
	struct hca_mr *mr;
	uint32_t key;

	rig_node();
	mr = rig_mr(page, 100, iova, RW, PD, false);
	key = hca_mr_key(mr);
	CHECK_EQ(mr_check(PD, key, iova, 1, 0), 0);
	CHECK_EQ(mr_check(PD, key, iova, 100, 0), 0);
	CHECK_EQ(mr_check(PD, key, iova + 99, 1, 0), 0);
	CHECK_EQ(mr_check(PD, key, iova, 101, 0), -EACCES);
	CHECK_EQ(mr_check(PD, key, iova + 99, 2, 0), -EACCES);
	CHECK_EQ(mr_check(PD, key, iova + 100, 1, 0), -EACCES);
	CHECK_EQ(mr_check(PD, key, iova - 1, 1, 0), -EACCES);
	CHECK_EQ(mr_check(PD, key, iova - 1, 2, 0), -EACCES);
	CHECK_EQ(mr_check(PD, key, iova - 1, UINT64_MAX, 0), -EACCES);
	CHECK_EQ(mr_check(PD, key, iova, UINT64_MAX, 0), -EACCES);
	CHECK_EQ(mr_check(PD, key, iova + 1, UINT64_MAX, 0), -EACCES);
	CHECK_EQ(mr_check(PD, key, iova + 50, UINT64_MAX - 49, 0), -EACCES);
	CHECK_EQ(mr_check(PD, key, UINT64_MAX, 2, 0), -EACCES);
	CHECK_EQ(mr_check(PD, key, (uintptr_t)page, 1, 0), -EACCES);
}

static void bounds_somewhere(void)
{
	bounds(0x123456789000);
}

static void bounds_at_0(void)
{
	bounds(0);
}

static void bounds_at_the_top(void)
{
	bounds(UINT64_MAX - 99);
}

static void copy_through_sges(void)
{
	struct ibv_sge sge[3];
	struct mr_miss miss;
	uint8_t buf[300];
	unsigned off;

	rig_node();
	sge[0] = (struct ibv_sge){IOVA + 7, 100, rig.key};
	sge[1] = (struct ibv_sge){0, 0, 12345}; /* of no length: its key is not looked at */
	sge[2] = (struct ibv_sge){IOVA + 4090, 200, rig.key};
	for (off = 0; off < 300; off++) {
		memset(buf, 0xee, sizeof(buf));
		CHECK_EQ(mr_copy_sges(PD, sge, 3, off, buf, 300 - off, MR_FROM_MEM, &miss), 0);
		if (off < 100)
			CHECK(!memcmp(buf, rig.mem + 7 + off, 100 - off));
		CHECK_EQ(buf[299 - off], rig.mem[4090 + 199]);
	}
	CHECK_EQ(mr_copy_sges(PD, sge, 3, 1, buf, 300, MR_FROM_MEM, &miss), -EACCES);
	CHECK_EQ(mr_copy_sges(PD, sge, 0, 0, buf, 1, MR_FROM_MEM, &miss), -EACCES);
	CHECK_EQ(mr_copy_sges(PD, sge, 0, 0, buf, 0, MR_FROM_MEM, &miss), 0);
	CHECK_EQ(mr_copy_sges(PD, sge, 3, UINT64_MAX, buf, 1, MR_FROM_MEM, &miss), -EACCES);
}

static void miss_says_what_is_needed(void)
{
	struct mr_miss miss;
	struct hca_mr *mr;
	uint64_t orig;
	uint8_t buf[64];

	rig_node();
	mr = rig_mr(page, 4096, 0x9000, RW | IBV_ACCESS_REMOTE_ATOMIC, PD, true);
	CHECK_EQ(mr_copy(PD, hca_mr_key(mr), 0x9010, buf, 64, MR_FROM_MEM, 0, &miss), -EFAULT);
	CHECK_EQ(miss.key, hca_mr_key(mr));
	CHECK_EQ(miss.addr, (uintptr_t)page + 0x10);
	CHECK_EQ(miss.len, 64);
	CHECK(!miss.write && !miss.force);
	CHECK_EQ(mr_atomic(PD, hca_mr_key(mr), 0x9010, false, 1, 0, &orig, &miss), -EFAULT);
	CHECK(miss.write);
	CHECK_EQ(mr_atomic(PD, hca_mr_key(mr), 0x9014, false, 1, 0, &orig, &miss), -EINVAL);
	CHECK_EQ(mr_atomic(PD, hca_mr_key(mr), 0x9000 + 4092, false, 1, 0, &orig, &miss), -EACCES);
}

/* aligned for the peer, not in memory */
static void atomic_with_an_odd_iova(void)
{
	struct mr_miss miss;
	struct hca_mr *mr;
	uint64_t orig;

	rig_node();
	mr = rig_mr(page + 4, 64, 0x9000, RW | IBV_ACCESS_REMOTE_ATOMIC, PD, false);
	CHECK_EQ(mr_atomic(PD, hca_mr_key(mr), 0x9000, false, 1, 0, &orig, &miss), -EINVAL);
	CHECK_EQ(mr_atomic(PD, hca_mr_key(mr), 0x9004, false, 1, 0, &orig, &miss), -EINVAL);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(key_is_published), TEST(keys_do_not_come_back_soon),
		TEST(stale_key_of_a_used_index),
#ifndef __SANITIZE_THREAD__
		TEST(all_keys_in_use),
#endif
		TEST(pd_and_access),
		TEST(bounds_somewhere), TEST(bounds_at_0), TEST(bounds_at_the_top),
		TEST(copy_through_sges), TEST(miss_says_what_is_needed), TEST(atomic_with_an_odd_iova),
		{NULL, NULL}};

	return rig_main(argc, argv, tests);
}
