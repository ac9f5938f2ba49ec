/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fault models end to end, by FAULTLINE_FAULT_MODEL. A cold page at the responder and rnr_retry 0: an
 * error as on hardware, or success; with 7 success in both. Packet damming: of two READs of cold pages the
 * second, posted while the first waits, stalls for the ACK time-out, or never does. Packet flood: reading into
 * cold pages over many QPs sends the most of it in vain, the more the more there are; or nothing.
 */
#include "rc.h"

#include <unistd.h>

#define QPS 256 /* at most */

static struct rc_side a;
static struct rc_peer *peer;
static bool connectx;

static void cold_page(uint8_t rnr_retry, struct ibv_mr *src, const struct rc_remote *to, uint64_t off)
{
	struct rc_opt o = rc_default;
	enum ibv_wc_status want = connectx && !rnr_retry ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_SUCCESS;

	o.rnr_retry = rnr_retry;
	rc_connect_peer(&a, peer, &o);
	rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)src->addr, 64, src->lkey, to->iova + off, to->key);
	rc_expect(&a, want);
	if (want == IBV_WC_SUCCESS)
		CHECK(rc_call(peer, RC_DIFFERS, to->buf, off, 64, 0, 5) == UINT64_MAX, "data");
}

/* the longest that a second READ took, in seconds */
static double dam(struct ibv_mr *dst, const struct rc_remote *from)
{
	struct rc_opt o = rc_default;
	double worst = 0;

	o.timeout = 14;	  /* 67 ms */
	o.rnr_timer = 16; /* 2.56 ms, 9 ms as connectx has it */
	rc_connect_peer(&a, peer, &o);
	for (uint64_t i = 0; i < 6; i++) {
		double t;

		rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)dst->addr, 64, dst->lkey, from->iova + i * 4 * PAGE,
			from->key);
		usleep(1000 + (useconds_t)i * 700);
		t = rc_now();
		rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)dst->addr, 64, dst->lkey,
			from->iova + (i * 4 + 2) * PAGE, from->key);
		rc_expect(&a, IBV_WC_SUCCESS);
		rc_expect(&a, IBV_WC_SUCCESS);
		t = rc_now() - t;
		worst = t > worst ? t : worst;
	}
	return worst;
}

/* reads into cold pages over QPs of our own, all at once: retransmissions by `faultline stat` */
static double retransmissions(void)
{
	char cmd[200], line[100];
	double n = -1;
	FILE *f;

	snprintf(cmd, sizeof(cmd),
		 "LD_PRELOAD= \"$FAULTLINE\" stat --json %d | tr ',{}' '\\n\\n\\n' | grep '\"completer_retry_err\"'",
		 (int)getpid());
	f = popen(cmd, "r");
	CHECK(f, "popen");
	while (fgets(line, sizeof(line), f))
		if (strchr(line, ':'))
			n = strtod(strrchr(line, ':') + 1, NULL);
	pclose(f);
	CHECK(n >= 0, "faultline stat says nothing of retransmissions");
	return n;
}

/* how many READs were sent again for each that was needed, over so many QPs */
static double flood(unsigned qps)
{
	static struct rc_side from[QPS], to[QPS];
	struct rc_opt o = rc_default;
	double before;

	o.timeout = 18; /* nothing here is for the ACK timer */
	if (!from[0].ctx) {
		rc_open(&from[0]);
		rc_open(&to[0]);
	}
	for (unsigned i = 0; i < qps; i++) {
		if (i && !from[i].ctx) {
			from[i] = from[0];
			to[i] = to[0];
			from[i].qp = to[i].qp = NULL;
		}
		rc_pair(&from[i], &to[i], &o);
	}
	uint8_t *cold = rc_map(qps * PAGE), *warm = rc_map(PAGE);
	struct ibv_mr *dst = rc_reg(&to[0], cold, qps * PAGE, ALL_ACCESS | ODP),
		      *src = rc_reg(&from[0], memset(warm, 1, PAGE), PAGE, ALL_ACCESS);

	madvise(cold, qps * PAGE, MADV_NOHUGEPAGE);
	before = retransmissions();
	for (unsigned i = 0; i < qps; i++)
		CHECK(!rc_post(&to[i], IBV_WR_RDMA_READ, (uintptr_t)cold + (uint64_t)i * PAGE, PAGE, dst->lkey,
			       (uintptr_t)warm, src->rkey), "post");
	for (unsigned i = 0; i < qps; i++)
		rc_expect(&to[0], IBV_WC_SUCCESS);
	for (unsigned i = 0; i < qps; i++)
		CHECK(!memcmp(cold + (uint64_t)i * PAGE, warm, PAGE), "data");
	CHECK(!ibv_dereg_mr(dst) && !ibv_dereg_mr(src), "dereg");
	munmap(cold, qps * PAGE);
	munmap(warm, PAGE);
	return (retransmissions() - before) / qps;
}

int main(int argc, char **argv)
{
	const char *model = getenv("FAULTLINE_FAULT_MODEL");

	rc_main(argc, argv);
	connectx = model && !strcmp(model, "connectx");
	rc_open(&a);
	peer = rc_peer_start();
	uint8_t *m = rc_map(PAGE);
	struct rc_remote cold = rc_peer_buf(peer, 64 * PAGE, ALL_ACCESS | ODP, RC_SAME, RC_ANON);

	rc_fill(m, PAGE, 0, 5);
	struct ibv_mr *mr = rc_reg(&a, m, PAGE, ALL_ACCESS);

	cold_page(0, mr, &cold, 0);
	cold_page(7, mr, &cold, 2 * PAGE);

	double s = dam(mr, &cold);

	/* a cold page that a huge page had brought along does not fault: six tries, one is enough */
	CHECK(connectx ? s > 0.06 : s < 0.06, "the second READ took %.1f ms", s * 1e3);

	double one = flood(1), some = flood(QPS / 8), many = flood(QPS);

	printf("second READ %.1f ms at worst; for each READ sent again: of one QP %.1f, of %d %.1f, of %d %.1f\n", s * 1e3,
	       one, QPS / 8, some, QPS, many);
	if (connectx)
		CHECK(some > 1 && many > some, "READs are not sent again");
	else
		CHECK(!one && !some && !many, "READs are sent again");
	return 0;
}
