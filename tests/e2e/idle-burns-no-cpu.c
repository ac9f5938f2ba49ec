/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device that is open, with QPs connected and regions registered, and with nothing to do, takes
 * less than a millisecond of CPU in a second, in both processes, also after traffic.
 */
#include "rc.h"

#include <sys/resource.h>
#include <unistd.h>

static double cpu_of(int who)
{
	struct rusage u;

	getrusage(who, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* jiffies are too coarse: the scheduler's own clock */
static double cpu_of_pid(int pid)
{
	double sum = 0;
	char cmd[128];
	long long ns;
	FILE *f;

	snprintf(cmd, sizeof(cmd), "cat /proc/%d/task/*/schedstat", pid);
	f = popen(cmd, "r");
	CHECK(f, "popen");
	while (fscanf(f, "%lld %*d %*d", &ns) == 1)
		sum += (double)ns / 1e9;
	pclose(f);
	return sum;
}

static void idle(const char *what, struct rc_peer *peer)
{
	double mine = 0, theirs = 0;

	/* the best of some seconds: whoever spins for a while after the last packet may do that */
	for (int i = 0; i < 4; i++) {
		usleep(200000);
		if (rc_peer_is_process(peer))
			theirs = cpu_of_pid(rc_peer_pid(peer));
		mine = cpu_of(RUSAGE_SELF);
		sleep(1);
		mine = cpu_of(RUSAGE_SELF) - mine;
		if (rc_peer_is_process(peer))
			theirs = cpu_of_pid(rc_peer_pid(peer)) - theirs;
		if (mine < 1e-3 && theirs < 1e-3)
			return;
	}
	FAIL("%s: %.0f us of CPU in a second, %.0f us at the peer", what, mine * 1e6, theirs * 1e6);
}

int main(int argc, char **argv)
{
	struct rc_side a;

	rc_main(argc, argv);
	rc_open(&a);
	struct rc_peer *peer = rc_peer_start();
	struct rc_remote r = rc_peer_buf(peer, 1 << 20, ALL_ACCESS | ODP, RC_SAME, RC_ANON);
	uint8_t *m = rc_map(1 << 20);
	struct ibv_mr *mr = rc_reg(&a, m, 1 << 20, ALL_ACCESS | ODP);
	struct rc_msg recv = {.op = RC_RECV, .num_sge = 1, .sge = {{r.buf, 0, 100}}};

	rc_connect_peer(&a, peer, &rc_default);
	CHECK(!rc_call_msg(peer, recv).arg[0], "post_recv");
	idle("connected", peer);
	for (int i = 0; i < 1000; i++) {
		CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)m, 5000, mr->lkey, r.iova, r.key),
		      "post");
		rc_expect(&a, IBV_WC_SUCCESS);
	}
	idle("after traffic", peer);
	CHECK(!ibv_dereg_mr(mr), "dereg");
	rc_close(&a);
	rc_peer_stop(peer);
	return 0;
}
