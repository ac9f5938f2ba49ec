/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What it costs to lose a page and to get it again, by an explicit and by an implicit region; and an arena
 * against registering each buffer. "name value" a line, microseconds; bench.py makes a table of them.
 * Each figure is a median, and what is compared is measured in turns.
 */
#include <errno.h>
#include <faultline/arena.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE	4096ul
#define REPEATS 301
#define BULK	256ul /* pages */
#define ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp; /* connected to itself */
static struct ibv_mr *src_mr;
static char *src;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static double median(double *t)
{
	qsort(t, REPEATS, sizeof(t[0]), by_value);
	return t[REPEATS / 2];
}

static void *map(size_t size)
{
	void *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (m == MAP_FAILED)
		die("mmap");
	/* small pages: the figures are by page */
	madvise(m, size, MADV_NOHUGEPAGE);
	return m;
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {8, 8, 1, 1, 0}};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS};
	union ibv_gid gid;

	pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	cq = pd ? ibv_create_cq(ctx, 16, NULL, NULL, 0) : NULL;
	init.send_cq = init.recv_cq = cq;
	qp = cq ? ibv_create_qp(pd, &init) : NULL;
	if (!qp || ibv_query_gid(ctx, 1, 0, &gid))
		die("no device");
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("INIT");
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
				 .path_mtu = IBV_MTU_4096,
				 .dest_qp_num = qp->qp_num,
				 .max_dest_rd_atomic = 1,
				 .min_rnr_timer = 12,
				 .ah_attr = {.is_global = 1, .grh = {.dgid = gid, .hop_limit = 64}, .port_num = 1}};
	if (ibv_modify_qp(qp, &a,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	if (ibv_modify_qp(qp, &a,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				  IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
	src = map(BULK * PAGE);
	memset(src, 1, BULK * PAGE);
	src_mr = ibv_reg_mr(pd, src, BULK * PAGE, IBV_ACCESS_LOCAL_WRITE);
	if (!src_mr)
		die("ibv_reg_mr");
}

/* an RDMA WRITE and its completion */
static double rdma_write(void *to, uint32_t rkey, size_t len)
{
	struct ibv_sge sge = {(uintptr_t)src, (uint32_t)len, src_mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_RDMA_WRITE,
				       .send_flags = IBV_SEND_SIGNALED,
				       .wr.rdma = {(uintptr_t)to, rkey}};
	struct ibv_wc wc;
	double t = now();
	int n;

	if (ibv_post_send(qp, &wr, &bad))
		die("ibv_post_send");
	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	t = now() - t;
	if (n < 0 || wc.status)
		die(ibv_wc_status_str(wc.status));
	return t;
}

static void refaults(const char *name, struct ibv_mr *mr, char *m, char *plain, size_t pages)
{
	static double cold[REPEATS], warm[REPEATS], populate[REPEATS], store[REPEATS];
	size_t size = pages * PAGE, len = pages == 1 ? 8 : size;

	rdma_write(m, mr->rkey, len);
	for (int i = 0; i < REPEATS; i++) {
		if (madvise(m, size, MADV_DONTNEED) || madvise(plain, size, MADV_DONTNEED))
			die("MADV_DONTNEED");
		populate[i] = now();
		if (madvise(plain, size, MADV_POPULATE_WRITE))
			die("MADV_POPULATE_WRITE");
		populate[i] = now() - populate[i];
		/* under some hypervisors the first store costs far more than the page: it is to be told apart */
		store[i] = now();
		for (size_t p = 0; p < pages; p++)
			((volatile char *)plain)[p * PAGE] = 1;
		store[i] = now() - store[i] + populate[i];
		cold[i] = rdma_write(m, mr->rkey, len);
		warm[i] = rdma_write(m, mr->rkey, len);
	}
	printf("%s_%zu_cold %f\n%s_%zu_warm %f\n", name, pages, median(cold), name, pages, median(warm));
	printf("%s_%zu_populate %f\n%s_%zu_store %f\n", name, pages, median(populate), name, pages, median(store));
}

static void regions(void)
{
	char *m = map(BULK * PAGE), *plain = map(BULK * PAGE);
	struct ibv_mr *mr = ibv_reg_mr(pd, m, BULK * PAGE, ACCESS | IBV_ACCESS_ON_DEMAND);

	if (!mr)
		die("ibv_reg_mr");
	refaults("explicit", mr, m, plain, 1);
	refaults("explicit", mr, m, plain, BULK);
	ibv_dereg_mr(mr);
	mr = ibv_reg_mr(pd, NULL, SIZE_MAX, ACCESS | IBV_ACCESS_ON_DEMAND);
	if (mr) {
		refaults("implicit", mr, m, plain, 1);
		refaults("implicit", mr, m, plain, BULK);
		ibv_dereg_mr(mr);
	}
	munmap(m, BULK * PAGE);
	munmap(plain, BULK * PAGE);
}

/* a buffer is allocated, written to by the device, and freed: registered by itself, or of an arena */
static void buffers(size_t size)
{
	static double pinned[REPEATS], on_demand[REPEATS], arena[REPEATS], plain[REPEATS];
	struct faultline_arena *a = faultline_arena_create(pd, 1ul << 30, ACCESS);

	if (!a)
		die("faultline_arena_create");
	for (int i = 0; i < REPEATS; i++) {
		for (int odp = 0; odp < 2; odp++) {
			double t = now();
			char *p = malloc(size);
			struct ibv_mr *mr = ibv_reg_mr(pd, p, size, ACCESS | (odp ? IBV_ACCESS_ON_DEMAND : 0));

			if (!mr)
				die("ibv_reg_mr");
			rdma_write(p, mr->rkey, size);
			ibv_dereg_mr(mr);
			free(p);
			*(odp ? &on_demand[i] : &pinned[i]) = now() - t;
		}
		double t = now();
		char *p = faultline_arena_alloc(a, size);

		rdma_write(p, a->mr->rkey, size);
		faultline_arena_free(a, p);
		arena[i] = now() - t;
		plain[i] = rdma_write(a->base, a->mr->rkey, size);
	}
	printf("buffer_%zu_pinned %f\nbuffer_%zu_on_demand %f\n", size, median(pinned), size, median(on_demand));
	printf("buffer_%zu_arena %f\nbuffer_%zu_write %f\n", size, median(arena), size, median(plain));
	faultline_arena_destroy(a);
}

int main(void)
{
	open_device();
	regions();
	buffers(4096);
	buffers(65536);
	buffers(1 << 20);
	return 0;
}
