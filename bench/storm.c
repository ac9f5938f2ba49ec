/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What page faults cost, and what storms of them do to others. Both ends are in this process, on the loop
 * link; prints "name value" lines. An argument picks one:
 *
 *   touch    first touch of a page by a WRITE, and of many by one WRITE, over what madvise(MADV_POPULATE_WRITE)
 *	      costs, alone and with a store to each page (under a hypervisor with shadow page tables the first
 *	      store costs as much again, or ten times that in bulk); the cost of the WRITE itself, measured
 *	      warm, is taken off. And the same fault with no copy behind it, by ibv_advise_mr()
 *   cold     a cold GiB by WRITEs of 1 MiB, over memset of a fresh one
 *   quiet    p99 of 8-byte WRITEs on one QP while another storms over 10,000 cold pages, over p99 alone; and while
 *	      it writes to them when they are warm: what another busy thread costs, without any fault
 *   damming  two READs of cold pages, the second 0 to 5 ms after the first: how long the second takes
 *   flood    1 to 256 QPs that read into cold pages: bytes sent beyond the useful ones, over these
 *
 * damming and flood are worth running with `faultline run --fault-model connectx` as well.
 */
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include "tests/e2e/rc.h"

#define ROUNDS 7

static struct rc_opt opt;

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double quantile(double *v, size_t n, double q)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[(size_t)((double)(n - 1) * q)];
}

static void pair(struct rc_side *a, struct rc_side *b, const struct rc_opt *o)
{
	rc_open(a);
	rc_open(b);
	rc_pair(a, b, o);
}

static void done(struct rc_side *s)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(s->cq, 1, &wc)))
		;
	CHECK(n == 1 && wc.status == IBV_WC_SUCCESS, "%s", n == 1 ? ibv_wc_status_str(wc.status) : "poll");
}

static double write_us(struct rc_side *s, struct ibv_mr *from, uint32_t len, struct ibv_mr *to, uint64_t off)
{
	double t = rc_now();

	CHECK(!rc_post(s, IBV_WR_RDMA_WRITE, (uintptr_t)from->addr, len, from->lkey,
		       (uintptr_t)to->addr + off, to->rkey), "post");
	done(s);
	return (rc_now() - t) * 1e6;
}

/* memory that no huge page fills at once: what is measured is the price of a page */
static uint8_t *fresh(uint64_t size)
{
	uint8_t *p = rc_map(size);

	madvise(p, size, MADV_NOHUGEPAGE);
	return p;
}

/* with_store: the time up to and with a store to each page, beside the one without */
static double populate_us(uint8_t *p, uint64_t len, double *with_store)
{
	double t = rc_now(), us;

	CHECK(!madvise(p, len, MADV_POPULATE_WRITE), "madvise: %s", strerror(errno));
	us = (rc_now() - t) * 1e6;
	for (uint64_t off = 0; off < len; off += PAGE)
		*(volatile uint8_t *)(p + off) = 1;
	*with_store = (rc_now() - t) * 1e6;
	return us;
}

/* the pages come into the device's table by a fault, and nothing is copied */
static double advise_us(struct rc_side *s, struct ibv_mr *mr, void *p, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)p, len, mr->lkey};
	double t = rc_now();
	int err = ibv_advise_mr(s->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);

	CHECK(!err, "ibv_advise_mr: %s", strerror(err));
	return (rc_now() - t) * 1e6;
}

/* ---- first touch ---- */

#define TOUCHES 512
#define BULK	(1u << 20)

/* Medians of a round; `pages` are what one WRITE, or one call, brings. */
struct touched {
	double us, over_populate, over_store, fault_us, fault_over_populate;
};

static struct touched touch_round(struct rc_side *a, struct rc_side *b, struct ibv_mr *src, size_t pages, size_t n)
{
	static double cold[TOUCHES], warm[TOUCHES], plain[TOUCHES], store[TOUCHES], fault[TOUCHES];
	size_t len = pages * PAGE, size = n * 2 * len;
	uint8_t *m[3] = {fresh(size), fresh(size), fresh(size)};
	struct ibv_mr *mr[2] = {rc_reg(b, m[0], size, ALL_ACCESS | ODP), rc_reg(b, m[1], size, ALL_ACCESS | ODP)};
	struct touched t;

	/* every other piece, and not in a row: nothing that comes with a neighbour counts */
	for (size_t i = 0; i < n; i++) {
		uint64_t off = i * 331 % n * 2 * len;

		cold[i] = write_us(a, src, pages == 1 ? 8 : (uint32_t)len, mr[0], off);
		warm[i] = write_us(a, src, pages == 1 ? 8 : (uint32_t)len, mr[0], off);
		fault[i] = advise_us(b, mr[1], m[1] + off, (uint32_t)len);
		plain[i] = populate_us(m[2] + off, len, &store[i]);
	}
	t.us = quantile(cold, n, 0.5) - quantile(warm, n, 0.5);
	t.fault_us = quantile(fault, n, 0.5);
	t.over_populate = t.us / quantile(plain, n, 0.5);
	t.over_store = t.us / quantile(store, n, 0.5);
	t.fault_over_populate = t.fault_us / quantile(plain, n, 0.5);
	for (int i = 0; i < 2; i++)
		ibv_dereg_mr(mr[i]);
	for (int i = 0; i < 3; i++)
		munmap(m[i], size);
	return t;
}

static void touch_kind(const char *name, size_t pages, size_t n)
{
	double v[5][ROUNDS];
	struct rc_side a = {0}, b = {0};

	pair(&a, &b, &opt);
	struct ibv_mr *src = rc_reg(&a, memset(rc_map(BULK), 1, BULK), BULK, ALL_ACCESS);

	for (int r = 0; r < ROUNDS; r++) {
		struct touched t = touch_round(&a, &b, src, pages, n);

		v[0][r] = t.us;
		v[1][r] = t.over_populate;
		v[2][r] = t.over_store;
		v[3][r] = t.fault_us;
		v[4][r] = t.fault_over_populate;
	}
	printf("%s_us %.3f\n%s_over_populate %.3f\n%s_over_store %.3f\n", name, quantile(v[0], ROUNDS, 0.5), name,
	       quantile(v[1], ROUNDS, 0.5), name, quantile(v[2], ROUNDS, 0.5));
	printf("%s_fault_us %.3f\n%s_fault_over_populate %.3f\n", name, quantile(v[3], ROUNDS, 0.5), name,
	       quantile(v[4], ROUNDS, 0.5));
}

static void touch(void)
{
	touch_kind("touch", 1, TOUCHES);
	touch_kind("bulk", BULK / PAGE, 16);
}

/* ---- a cold GiB ---- */

static void cold(void)
{
	const uint64_t gib = 1ul << 30, piece = 1ul << 20;
	struct rc_side a = {0}, b = {0};
	double ratio[3], t[2];

	pair(&a, &b, &opt);
	struct ibv_mr *src = rc_reg(&a, memset(rc_map(piece), 1, piece), piece, ALL_ACCESS);

	for (int r = 0; r < 3; r++) {
		uint8_t *m = rc_map(gib);

		t[0] = rc_now();
		memset(m, 1, gib);
		t[0] = rc_now() - t[0];
		munmap(m, gib);
		m = rc_map(gib);
		struct ibv_mr *mr = rc_reg(&b, m, gib, ALL_ACCESS | ODP);
		uint64_t posted = 0;

		t[1] = rc_now();
		for (uint64_t i = 0; i < gib / piece; i++) {
			for (; posted < gib / piece && posted - i < 8; posted++)
				CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)src->addr, piece, src->lkey,
					       (uintptr_t)m + posted * piece, mr->rkey), "post");
			done(&a);
		}
		t[1] = rc_now() - t[1];
		ibv_dereg_mr(mr);
		munmap(m, gib);
		ratio[r] = t[0] / t[1];
	}
	printf("cold_gib_gbs %.3f\ncold_over_memset %.3f\n", (double)gib / t[1] / 1e9, quantile(ratio, 3, 0.5));
}

/* ---- a quiet QP beside a storm ---- */

#define STORM_PAGES 10000

#define WARM_ROUNDS 20

static struct {
	struct rc_side a, b;
	bool warm, go, over;
} storm;

static void *storm_main(void *arg)
{
	struct ibv_mr *src = rc_reg(&storm.a, memset(rc_map(PAGE), 1, PAGE), PAGE, ALL_ACCESS);
	uint8_t *m = fresh(STORM_PAGES * PAGE);
	struct ibv_mr *mr = rc_reg(&storm.b, m, STORM_PAGES * PAGE, ALL_ACCESS | ODP);
	uint32_t posted = 0, num = STORM_PAGES * (storm.warm ? WARM_ROUNDS : 1);

	if (storm.warm)
		advise_us(&storm.b, mr, m, STORM_PAGES * PAGE);
	while (!__atomic_load_n(&storm.go, __ATOMIC_ACQUIRE))
		usleep(100);
	for (uint32_t i = 0; i < num; i++) {
		for (; posted < num && posted - i < 16; posted++)
			CHECK(!rc_post(&storm.a, IBV_WR_RDMA_WRITE, (uintptr_t)src->addr, 8, src->lkey,
				       (uintptr_t)m + posted * 7919ull % STORM_PAGES * PAGE, mr->rkey), "post");
		done(&storm.a);
	}
	__atomic_store_n(&storm.over, true, __ATOMIC_RELEASE);
	return NULL;
}

static void quiet(void)
{
	enum { MOST = 200000 };
	static double lat[MOST];
	struct rc_side a = {0}, b = {0};
	double alone[ROUNDS], beside[2][ROUNDS], ratio[2][ROUNDS];

	pair(&a, &b, &opt);
	struct ibv_mr *src = rc_reg(&a, memset(rc_map(PAGE), 1, PAGE), PAGE, ALL_ACCESS);
	struct ibv_mr *dst = rc_reg(&b, memset(rc_map(PAGE), 1, PAGE), PAGE, ALL_ACCESS | ODP);

	write_us(&a, src, 8, dst, 0);
	rc_open(&storm.a);
	rc_open(&storm.b);
	for (int i = 0; i < 2 * ROUNDS; i++) {
		int r = i / 2, warm = i % 2;
		pthread_t t;
		size_t n;

		storm.warm = warm;
		rc_pair(&storm.a, &storm.b, &opt);
		storm.go = storm.over = false;
		CHECK(!pthread_create(&t, NULL, storm_main, NULL), "thread");
		for (n = 0; n < 10000; n++)
			lat[n] = write_us(&a, src, 8, dst, 0);
		alone[r] = quantile(lat, n, 0.99);
		__atomic_store_n(&storm.go, true, __ATOMIC_RELEASE);
		for (n = 0; n < MOST && !__atomic_load_n(&storm.over, __ATOMIC_ACQUIRE); n++)
			lat[n] = write_us(&a, src, 8, dst, 0);
		beside[warm][r] = quantile(lat, n, 0.99);
		ratio[warm][r] = beside[warm][r] / alone[r];
		pthread_join(t, NULL);
	}
	printf("quiet_p99_us %.2f\nquiet_p99_in_storm_us %.2f\nstorm_over_quiet %.3f\n",
	       quantile(alone, ROUNDS, 0.5), quantile(beside[0], ROUNDS, 0.5), quantile(ratio[0], ROUNDS, 0.5));
	printf("quiet_p99_beside_warm_us %.2f\nwarm_over_quiet %.3f\n", quantile(beside[1], ROUNDS, 0.5),
	       quantile(ratio[1], ROUNDS, 0.5));
}

/* ---- the pitfalls ---- */

static void damming(void)
{
	struct rc_opt o = opt;
	struct rc_side a = {0}, b = {0};

	o.timeout = 14;	  /* 67 ms: the second READ's stall, if it is dammed */
	o.rnr_timer = 14; /* 1.28 ms */
	pair(&a, &b, &o);
	uint8_t *m = fresh(64 * PAGE);
	struct ibv_mr *mr = rc_reg(&b, m, 64 * PAGE, ALL_ACCESS | ODP);
	struct ibv_mr *dst = rc_reg(&a, memset(rc_map(PAGE), 1, PAGE), PAGE, ALL_ACCESS);

	for (int half_ms = 0; half_ms <= 10; half_ms++) {
		double t;

		rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)dst->addr, 64, dst->lkey,
			(uintptr_t)m + (uint64_t)half_ms * 4 * PAGE, mr->rkey);
		usleep((useconds_t)half_ms * 500 + 50); /* the RNR NAK takes its way, too */
		t = rc_now();
		rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)dst->addr + 64, 64, dst->lkey,
			(uintptr_t)m + ((uint64_t)half_ms * 4 + 2) * PAGE, mr->rkey);
		done(&a);
		done(&a);
		printf("second_read_after_%d.%d_ms %.3f\n", half_ms / 2, half_ms % 2 * 5, (rc_now() - t) * 1e3);
	}
}

#define FLOOD_LEN 4096u

/* payload bytes that this process has sent, by `faultline stat` */
static uint64_t sent_bytes(void)
{
	char cmd[256], line[256];
	uint64_t v = 0;
	FILE *f;

	snprintf(cmd, sizeof(cmd), "LD_PRELOAD= \"$FAULTLINE\" stat --json %d | tr ',{}' '\\n\\n\\n' | grep '\"sent_bytes\"'",
		 (int)getpid());
	f = popen(cmd, "r");
	CHECK(f && fgets(line, sizeof(line), f) && sscanf(strrchr(line, ':') + 1, "%lu", &v) == 1,
	      "faultline stat says nothing of sent_bytes");
	pclose(f);
	return v;
}

static void flood(void)
{
	static struct rc_side a[256], b[256];
	static struct ibv_mr *mr[256], *src[256];
	struct rc_opt o = opt;

	o.timeout = 18;
	rc_open(&a[0]);
	rc_open(&b[0]);
	for (int n = 1; n <= 256; n *= 4) {
		for (int i = 0; i < n; i++) {
			if (i) { /* QPs of one context each */
				a[i] = a[0];
				b[i] = b[0];
				a[i].qp = b[i].qp = NULL;
			}
			rc_pair(&a[i], &b[i], &o);
			mr[i] = rc_reg(&a[i], fresh(FLOOD_LEN), FLOOD_LEN, ALL_ACCESS | ODP);
			src[i] = rc_reg(&b[i], memset(rc_map(FLOOD_LEN), 1, FLOOD_LEN), FLOOD_LEN, ALL_ACCESS);
		}
		uint64_t before = sent_bytes();
		double t = rc_now();

		for (int i = 0; i < n; i++)
			rc_post(&a[i], IBV_WR_RDMA_READ, (uintptr_t)mr[i]->addr, FLOOD_LEN, mr[i]->lkey,
				(uintptr_t)src[i]->addr, src[i]->rkey);
		for (int i = 0; i < n; i++)
			done(&a[0]);
		t = rc_now() - t;
		printf("flood_ratio_%d %.3f\nflood_ms_%d %.3f\n", n,
		       (double)(sent_bytes() - before) / (n * (double)FLOOD_LEN) - 1, n, t * 1e3);
		for (int i = 1; i < n; i++) {
			ibv_destroy_qp(a[i].qp);
			ibv_destroy_qp(b[i].qp);
		}
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {{"touch", touch}, {"cold", cold}, {"quiet", quiet}, {"damming", damming}, {"flood", flood}};

	opt = rc_default;
	opt.rnr_retry = 7;
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (argc < 2 || !strcmp(argv[1], all[i].name))
			all[i].run();
	return 0;
}
