/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Torture of dma-buf regions through the whole device. Lanes carry a pattern from the host's memory into a GPU's
 * buffer, from that into another, and back to the host, add to a counter that all share, and look at every byte;
 * the GPU is too small for both buffers. Meanwhile one thread moves the buffers, one evicts them, one pins them by
 * a second NIC that cannot follow, and one revokes a third device's memory amid WRITEs into it. Nothing may be lost
 * or torn, an access to revoked memory never succeeds, and in the end nothing is left mapped, pinned or attached.
 *
 * usage: faultline run --device mlx5,irdma -- torture-dmabuf [SECONDS]
 */
#include <faultline/dmabuf.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include "tests/e2e/rc.h"

#define LANES	3
#define STRIPE	(5 * PAGE + 1000) /* a lane's: stripes share pages */
#define COUNTER (LANES * STRIPE)
#define RESULTS (COUNTER + 64) /* what atomics give back, a word a lane */
#define SIZE	(16 * PAGE)

static struct faultline_dmabuf_device *gpu;
static int fd[2];
static int stop;
static uint64_t added, rounds, moves, pins, revoked, written_before;

static bool stopped(void)
{
	return __atomic_load_n(&stop, __ATOMIC_RELAXED);
}

static void count(uint64_t *what)
{
	__atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

static bool happened(void)
{
	return __atomic_load_n(&rounds, __ATOMIC_RELAXED) > 2 * LANES && __atomic_load_n(&moves, __ATOMIC_RELAXED) &&
	       __atomic_load_n(&pins, __ATOMIC_RELAXED) && __atomic_load_n(&revoked, __ATOMIC_RELAXED) > 1;
}

static void pause_us(unsigned us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static void open_on(struct rc_side *s, const char *device)
{
	setenv("DEV", device, 1);
	rc_open(s);
}

static struct ibv_mr *reg(struct rc_side *s, int buffer, int access)
{
	/* the offset in the buffer is the address */
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(s->pd, 0, SIZE, 0, buffer, access);

	CHECK(mr, "ibv_reg_dmabuf_mr: %s", strerror(errno));
	return mr;
}

/* ---- lanes ---- */

static struct lane {
	unsigned id;
	struct rc_side a, b; /* a asks, b's regions are asked for */
	uint8_t *host;
	struct ibv_mr *host_mr, *a_mr[2], *b_mr[2];
} lane[LANES];

static void lane_reg(struct lane *l)
{
	for (unsigned i = 0; i < 2; i++) {
		l->a_mr[i] = reg(&l->a, fd[i], ALL_ACCESS);
		l->b_mr[i] = reg(&l->b, fd[i], ALL_ACCESS);
	}
}

static void lane_dereg(struct lane *l)
{
	for (unsigned i = 0; i < 2; i++)
		CHECK(!ibv_dereg_mr(l->a_mr[i]) && !ibv_dereg_mr(l->b_mr[i]), "ibv_dereg_mr: %s", strerror(errno));
}

static void done(struct lane *l, int posted)
{
	CHECK(!posted, "post: %s", strerror(posted));
	rc_expect(&l->a, IBV_WC_SUCCESS);
}

static void lane_round(struct lane *l, uint64_t seed)
{
	uint64_t host = (uintptr_t)l->host, at = l->id * STRIPE + seed % 64, len = STRIPE - 64 - seed % 5 * 700;
	uint64_t wrong;
	int err;

	rc_fill(l->host, len, at, seed);
	done(l, rc_post(&l->a, IBV_WR_RDMA_WRITE, host, (uint32_t)len, l->host_mr->lkey, at, l->b_mr[0]->rkey));
	done(l, rc_post(&l->a, IBV_WR_RDMA_WRITE, at, (uint32_t)len, l->a_mr[0]->lkey, at, l->b_mr[1]->rkey));
	memset(l->host, 0, STRIPE);
	done(l, rc_post(&l->a, IBV_WR_RDMA_READ, host, (uint32_t)len, l->host_mr->lkey, at, l->b_mr[1]->rkey));
	wrong = rc_differs(l->host, len, at, seed);
	CHECK(wrong == UINT64_MAX, "lane %u: wrong byte at %lu", l->id, (unsigned long)(at + wrong));
	done(l, rc_post_atomic(&l->a, IBV_WR_ATOMIC_FETCH_AND_ADD, RESULTS + 8 * l->id, l->a_mr[1]->lkey, COUNTER,
			       l->b_mr[0]->rkey, 3, 0));
	count(&added);
	if (seed % 8 == 0) {
		err = faultline_dmabuf_read(fd[seed / 8 % 2], l->host, at, len);
		CHECK(!err, "from the device's side: %s", strerror(err));
		wrong = rc_differs(l->host, len, at, seed);
		CHECK(wrong == UINT64_MAX, "lane %u: the GPU sees a wrong byte at %lu", l->id, (unsigned long)(at + wrong));
	}
	count(&rounds);
}

static void *run_lane(void *arg)
{
	struct lane *l = arg;

	for (uint64_t seed = l->id; !stopped(); seed += LANES) {
		lane_round(l, seed);
		if (seed % 11 == 0) {
			lane_dereg(l);
			lane_reg(l);
		}
	}
	return NULL;
}

static void lane_open(struct lane *l, unsigned id)
{
	l->id = id;
	open_on(&l->a, "mlx5_fl0");
	open_on(&l->b, "mlx5_fl0");
	rc_pair(&l->a, &l->b, &rc_default);
	l->host = rc_map(STRIPE);
	l->host_mr = rc_reg(&l->a, l->host, STRIPE, IBV_ACCESS_LOCAL_WRITE);
	lane_reg(l);
}

static void lane_close(struct lane *l)
{
	lane_dereg(l);
	CHECK(!ibv_dereg_mr(l->host_mr), "ibv_dereg_mr: %s", strerror(errno));
	rc_close(&l->a);
	rc_close(&l->b);
}

/* ---- those who are in the way ---- */

static void *mover(void *arg)
{
	for (unsigned i = 0; !stopped(); i++) {
		int err = faultline_dmabuf_move(fd[i % 2], i & 2 ? FAULTLINE_DMABUF_DEVICE : FAULTLINE_DMABUF_SYSTEM);

		CHECK(!err || err == EBUSY || err == ENOMEM, "move: %s", strerror(err));
		if (!err)
			count(&moves);
		pause_us(150);
	}
	return NULL;
}

static void *evictor(void *arg)
{
	while (!stopped()) {
		int err = faultline_dmabuf_evict(gpu, SIZE);

		CHECK(!err || err == ENOSPC, "evict: %s", strerror(err));
		pause_us(700);
	}
	return NULL;
}

static struct rc_side pinning;

static void *pinner(void *arg)
{
	for (unsigned i = 0; !stopped(); i++) {
		struct ibv_mr *mr = reg(&pinning, fd[i % 2], IBV_ACCESS_LOCAL_WRITE);
		int err = faultline_dmabuf_move(fd[i % 2], FAULTLINE_DMABUF_SYSTEM);

		CHECK(err == EBUSY, "a pinned buffer moves: %s", strerror(err));
		CHECK(!ibv_dereg_mr(mr), "ibv_dereg_mr: %s", strerror(errno));
		count(&pins);
		pause_us(900);
	}
	return NULL;
}

static struct rc_side from, into;
static int lent; /* the buffer that is to be revoked */
static bool gone;

static void *revoke_it(void *arg)
{
	int err;

	pause_us((uintptr_t)arg);
	err = faultline_dmabuf_revoke(lent);
	CHECK(!err, "revoke: %s", strerror(err));
	__atomic_store_n(&gone, true, __ATOMIC_SEQ_CST);
	return NULL;
}

/* writes until that is an error, which it is at the latest when the revocation has returned */
static void write_until_revoked(struct ibv_mr *host, struct ibv_mr *mr)
{
	enum ibv_wc_status status;
	bool was_gone;

	do {
		was_gone = __atomic_load_n(&gone, __ATOMIC_SEQ_CST);
		CHECK(!rc_post(&from, IBV_WR_RDMA_WRITE, (uintptr_t)host->addr, SIZE, host->lkey, 0, mr->rkey), "post");
		status = rc_wait(&from);
		CHECK(status == IBV_WC_SUCCESS || status == IBV_WC_REM_ACCESS_ERR, "%s", ibv_wc_status_str(status));
		CHECK(status != IBV_WC_SUCCESS || !was_gone, "revoked memory is written");
		if (status == IBV_WC_SUCCESS)
			count(&written_before);
	} while (status == IBV_WC_SUCCESS);
}

static void *revoker(void *arg)
{
	struct faultline_dmabuf_device_attr attr = {.kind = FAULTLINE_DMABUF_VFIO};
	struct ibv_mr *host = rc_reg(&from, rc_map(SIZE), SIZE, IBV_ACCESS_LOCAL_WRITE), *mr;
	struct faultline_dmabuf_device *dev;
	pthread_t t;

	CHECK(!faultline_dmabuf_open(&attr, &dev), "open");
	for (uintptr_t i = 0; !stopped(); i++) {
		rc_pair(&from, &into, &rc_default);
		CHECK(!faultline_dmabuf_alloc(dev, SIZE, 0, &lent), "alloc");
		mr = reg(&into, lent, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		gone = false;
		CHECK(!pthread_create(&t, NULL, revoke_it, (void *)(i % 9 * 100)), "thread");
		write_until_revoked(host, mr);
		CHECK(!pthread_join(t, NULL) && !ibv_dereg_mr(mr) && !close(lent), "the end");
		count(&revoked);
	}
	CHECK(!ibv_dereg_mr(host) && !faultline_dmabuf_close(dev), "the device's memory is in use");
	return NULL;
}

int main(int argc, char **argv)
{
	static void *(*const others[])(void *) = {mover, evictor, pinner, revoker};
	struct faultline_dmabuf_device_attr attr = {.kind = FAULTLINE_DMABUF_VRAM, .size = SIZE + SIZE / 2};
	double end = rc_now() + (argc > 1 ? atof(argv[1]) : 2);
	struct faultline_dmabuf_totals t;
	pthread_t thread[LANES + 4];
	uint64_t sum;

	CHECK(!faultline_dmabuf_open(&attr, &gpu), "open");
	for (unsigned i = 0; i < 2; i++)
		CHECK(!faultline_dmabuf_alloc(gpu, SIZE, 0, &fd[i]), "alloc");
	for (unsigned i = 0; i < LANES; i++)
		lane_open(&lane[i], i);
	open_on(&pinning, "irdma_fl0");
	open_on(&from, "irdma_fl0");
	open_on(&into, "irdma_fl0");
	for (unsigned i = 0; i < LANES; i++)
		CHECK(!pthread_create(&thread[i], NULL, run_lane, &lane[i]), "thread");
	for (unsigned i = 0; i < 4; i++)
		CHECK(!pthread_create(&thread[LANES + i], NULL, others[i], NULL), "thread");
	/* a slow machine takes longer until each has had its turn */
	while (rc_now() < end || !happened())
		pause_us(10000);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < LANES + 4; i++)
		CHECK(!pthread_join(thread[i], NULL), "join");

	CHECK(!faultline_dmabuf_read(fd[0], &sum, COUNTER, 8) && sum == 3 * added, "the counter is %lu, not %lu",
	      (unsigned long)sum, (unsigned long)(3 * added));
	for (unsigned i = 0; i < LANES; i++)
		lane_close(&lane[i]);
	rc_close(&pinning);
	rc_close(&from);
	rc_close(&into);
	CHECK(!close(fd[0]) && !close(fd[1]) && !faultline_dmabuf_close(gpu), "the GPU's memory is in use");
	CHECK(!faultline_dmabuf_totals(&t), "totals");
	printf("%lu rounds, %lu moves, %lu pins, %lu revocations after %lu WRITEs; %lu evictions, %lu invalidations\n",
	       (unsigned long)rounds, (unsigned long)moves, (unsigned long)pins, (unsigned long)revoked,
	       (unsigned long)written_before, (unsigned long)t.evictions, (unsigned long)t.invalidations);
	CHECK(!t.buffers && !t.attachments && !t.maps && !t.pins && !t.rule_breaks, "something is left");
	return 0;
}
