/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large messages: 64 MiB + 5 by WRITE, READ and SEND; with the argument "2G" a WRITE and a READ of
 * 2 GiB, the most that a message may have, between on-demand regions that are cold on one side.
 */
#include "rc.h"

#include <sys/sysinfo.h>

#define BIG	((64u << 20) + 5)
#define LARGEST (1u << 31)

static struct rc_side a;
static struct rc_peer *peer;

/* a machine that does much else at the same time copies slowly */
static void finish(const char *what)
{
	struct ibv_wc wc;

	CHECK(rc_poll(&a, &wc, 100), "%s does not complete", what);
	CHECK(wc.status == IBV_WC_SUCCESS, "%s: %s", what, ibv_wc_status_str(wc.status));
}

static void messages(uint32_t len, int access, bool send)
{
	uint64_t room = len + 2 * PAGE, bad;
	struct rc_remote r = rc_peer_buf(peer, room, access, RC_SAME, RC_NORESERVE);
	uint8_t *p = mmap(NULL, room, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(p != MAP_FAILED, "mmap: %s", strerror(errno));
	struct ibv_mr *mr = rc_reg(&a, p, room, access);

	rc_fill(p + 9, len, 9, 3);
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)p + 9, len, mr->lkey, r.iova + 77, r.key),
	      "post");
	finish("WRITE");
	bad = rc_call(peer, RC_DIFFERS, r.buf, 77, len, 9, 3);
	CHECK(bad == UINT64_MAX, "WRITE of %u: wrong byte %lu", len, bad);

	CHECK(!madvise(p, room & ~(PAGE - 1), MADV_DONTNEED), "madvise");
	if (!(access & ODP))
		goto out; /* pinned: what was discarded is not what the device reads into */
	CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)p + 5, len, mr->lkey, r.iova + 77, r.key),
	      "post");
	finish("READ");
	bad = rc_differs(p + 5, len, 9, 3);
	CHECK(bad == UINT64_MAX, "READ of %u: wrong byte %lu", len, bad);

	if (send) {
		struct rc_msg m = {.op = RC_RECV, .num_sge = 1, .sge = {{r.buf, 101, len}}};

		CHECK(!rc_call_msg(peer, m).arg[0], "post_recv");
		rc_fill(p, len, 0, 4);
		CHECK(!rc_post(&a, IBV_WR_SEND, (uintptr_t)p, len, mr->lkey, 0, 0), "post");
		finish("SEND");
		m = rc_call_msg(peer, (struct rc_msg){.op = RC_WAIT, .arg = {100000}});
		CHECK(m.arg[0] && m.arg[1] == IBV_WC_SUCCESS && m.arg[2] == len, "receive of %u",
		      len);
		bad = rc_call(peer, RC_DIFFERS, r.buf, 101, len, 0, 4);
		CHECK(bad == UINT64_MAX, "SEND of %u: wrong byte %lu", len, bad);
	}
out:
	CHECK(!ibv_dereg_mr(mr), "dereg");
	munmap(p, room);
	rc_call(peer, RC_UNBUF, r.buf);
}

int main(int argc, char **argv)
{
	struct rc_opt opt = rc_default;
	struct sysinfo si;

	rc_main(argc, argv);
	rc_open(&a);
	peer = rc_peer_start();
	opt.mtu = IBV_MTU_4096;
	rc_connect_peer(&a, peer, &opt);
	if (argc < 2) {
		messages(BIG, ALL_ACCESS | ODP, true);
		messages(BIG, ALL_ACCESS, false);
	} else {
		sysinfo(&si);
		if ((uint64_t)si.freeram * si.mem_unit < 3 * (uint64_t)LARGEST)
			rc_skip("too little free memory for messages of 2 GiB");
		messages(LARGEST, ALL_ACCESS | ODP, false);
	}
	rc_close(&a);
	rc_peer_stop(peer);
	return 0;
}
