/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bytes at offsets around and beyond 4 GiB of a region on demand land there, not at the offset's
 * low 32 bits; also with an iova that is not the address, and for the last bytes of the region.
 */
#include "rc.h"

#define SIZE (5ul << 30)
#define LEN  100003u

static struct rc_side a;
static struct rc_peer *peer;

int main(int argc, char **argv)
{
	static const uint64_t offsets[] = {0, (1ul << 31) - 5, (1ul << 32) - 50001,
					   (1ul << 32) + 123457, SIZE - LEN};

	rc_main(argc, argv);
	rc_open(&a);
	peer = rc_peer_start();
	rc_connect_peer(&a, peer, &rc_default);
	uint8_t *m = rc_map_as(SIZE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	struct ibv_mr *mr = rc_reg(&a, m, SIZE, ALL_ACCESS | ODP);

	for (int other_iova = 0; other_iova < 2; other_iova++) {
		struct rc_remote r = rc_peer_buf(peer, SIZE, ALL_ACCESS | ODP,
						 other_iova ? 0x5000 : RC_SAME, RC_NORESERVE);

		for (int i = 0; i < 5; i++) {
			/* gathered from the far end as well */
			uint64_t from = offsets[4 - i];

			rc_fill(m + from, LEN, from, 20 + (uint64_t)i);
			CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m + from, LEN, mr->lkey,
				       r.iova + offsets[i], r.key),
			      "post");
			rc_expect(&a, IBV_WC_SUCCESS);
		}
		for (int i = 0; i < 5; i++)
			CHECK(rc_call(peer, RC_DIFFERS, r.buf, offsets[i], LEN, offsets[4 - i],
				      20 + i) == UINT64_MAX,
			      "WRITE at offset %#lx", offsets[i]);
		CHECK(!madvise(m, SIZE, MADV_DONTNEED), "madvise");
		for (int i = 0; i < 5; i++) {
			CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)m + offsets[i], LEN,
				       mr->lkey, r.iova + offsets[i], r.key),
			      "post");
			rc_expect(&a, IBV_WC_SUCCESS);
			CHECK(rc_differs(m + offsets[i], LEN, offsets[4 - i], 20 + (uint64_t)i) ==
				      UINT64_MAX,
			      "READ at offset %#lx", offsets[i]);
		}
		rc_call(peer, RC_UNBUF, r.buf);
	}
	CHECK(!ibv_dereg_mr(mr), "dereg");
	rc_close(&a);
	rc_peer_stop(peer);
	return 0;
}
