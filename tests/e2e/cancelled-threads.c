/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that are cancelled while they post, poll and register take no lock of the device along: the
 * verbs are no cancellation points. What the threads did not finish goes on, and the QP works.
 */
#include <pthread.h>
#include <unistd.h>
#include "rc.h"

#define SIZE   (64 * PAGE)
#define ROUNDS 60

static struct rc_side a, b;
static uint8_t *from, *to;
static struct ibv_mr *mr_from, *mr_to;

static void *poster(void *arg)
{
	struct ibv_wc wc;

	for (;;) {
		rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)from, SIZE, mr_from->lkey, (uintptr_t)to,
			mr_to->rkey);
		ibv_poll_cq(a.cq, 1, &wc);
		pthread_testcancel();
	}
	return NULL;
}

static void *poller(void *arg)
{
	struct ibv_wc wc;

	for (;;) {
		ibv_poll_cq(b.cq, 1, &wc);
		pthread_testcancel();
	}
	return NULL;
}

static void *registrar(void *arg)
{
	for (;;) {
		struct ibv_mr *mr = ibv_reg_mr(b.pd, to, SIZE, ALL_ACCESS | ODP);

		if (mr)
			ibv_dereg_mr(mr);
		pthread_testcancel();
	}
	return NULL;
}

int main(void)
{
	static void *(*const body[])(void *) = {poster, poller, registrar};
	pthread_t thread[3];
	struct ibv_wc wc;

	rc_open(&a);
	rc_open(&b);
	rc_pair(&a, &b, &rc_default);
	from = rc_map(SIZE);
	to = rc_map(SIZE);
	mr_from = rc_reg(&a, from, SIZE, ALL_ACCESS | ODP);
	mr_to = rc_reg(&b, to, SIZE, ALL_ACCESS | ODP);
	for (int i = 0; i < ROUNDS; i++) {
		for (int k = 0; k < 3; k++)
			CHECK(!pthread_create(&thread[k], NULL, body[k], NULL), "pthread_create");
		CHECK(!madvise(to, SIZE, MADV_DONTNEED), "madvise");
		usleep((useconds_t)(i * 97 % 2000));
		for (int k = 0; k < 3; k++)
			pthread_cancel(thread[k]);
		for (int k = 0; k < 3; k++)
			pthread_join(thread[k], NULL);
	}
	while (rc_poll(&a, &wc, 0.5))
		CHECK(wc.status == IBV_WC_SUCCESS, "a WRITE: %s", ibv_wc_status_str(wc.status));
	rc_fill(from, SIZE, 0, 5);
	CHECK(!rc_post(&a, IBV_WR_RDMA_WRITE, (uintptr_t)from, SIZE, mr_from->lkey, (uintptr_t)to,
		       mr_to->rkey),
	      "post");
	rc_expect(&a, IBV_WC_SUCCESS);
	CHECK(rc_differs(to, SIZE, 0, 5) == UINT64_MAX, "wrong data");
	return 0;
}
