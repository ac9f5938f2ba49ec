/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer killed in the middle of traffic: who still has requests under way is told within the time
 * that its QP's attributes imply, and can use the device with others afterwards; nothing stays in
 * /dev/shm.
 */
#include "rc.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>

#define TIMEOUT 16 /* 268 ms */
#define RETRY	3

static int shm_entries(void)
{
	DIR *d = opendir("/dev/shm");
	struct dirent *e;
	int n = 0;

	CHECK(d, "/dev/shm: %s", strerror(errno));
	while ((e = readdir(d)))
		n += !!strstr(e->d_name, "faultline");
	closedir(d);
	return n;
}

int main(int argc, char **argv)
{
	struct rc_opt opt = rc_default;
	struct rc_side a;
	struct rc_peer *peer;
	struct ibv_wc wc;
	int before;

	rc_main(argc, argv);
	before = shm_entries();
	rc_open(&a);
	uint8_t *m = rc_map(1 << 20);
	struct ibv_mr *mr = rc_reg(&a, m, 1 << 20, ALL_ACCESS);

	opt.timeout = TIMEOUT;
	opt.retry = RETRY;
	for (int round = 0; round < 4; round++) {
		enum ibv_wr_opcode op = round & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
		double unit = 4.096e-6 * (1 << TIMEOUT), killed = 0;
		int done = 0, posted = 0;

		peer = rc_peer_start();
		if (!rc_peer_is_process(peer))
			rc_skip("needs a peer in another process: E2E_LINK=shm or udp");
		struct rc_remote r = rc_peer_buf(peer, 1 << 20, ALL_ACCESS | (round & 2 ? ODP : 0),
						 RC_SAME, RC_ANON);

		rc_connect_peer(&a, peer, &opt);
		for (wc.status = IBV_WC_SUCCESS; wc.status == IBV_WC_SUCCESS;) {
			for (; posted - done < 8; posted++)
				CHECK(!rc_post(&a, op, (uintptr_t)m, 1 << 20, mr->lkey, r.iova,
					       r.key),
				      "post");
			CHECK(rc_poll(&a, &wc, 20), "no completion after the peer was killed");
			if (++done == 20) {
				CHECK(!kill(rc_peer_pid(peer), SIGKILL), "kill");
				killed = rc_now();
			}
		}
		CHECK(killed > 0, "an error before the peer was killed: %s",
		      ibv_wc_status_str(wc.status));
		CHECK(wc.status == IBV_WC_RETRY_EXC_ERR, "%s", ibv_wc_status_str(wc.status));
		CHECK(rc_now() - killed < 4 * (RETRY + 1) * unit + 1, "told only after %.3f s",
		      rc_now() - killed);
		while (++done < posted)
			rc_expect(&a, IBV_WC_WR_FLUSH_ERR);
		CHECK(waitpid(rc_peer_pid(peer), NULL, 0) == rc_peer_pid(peer), "waitpid");
	}
	CHECK(!ibv_dereg_mr(mr), "dereg");
	rc_close(&a);
	CHECK(shm_entries() <= before, "%d entries in /dev/shm, %d before", shm_entries(), before);
	return 0;
}
