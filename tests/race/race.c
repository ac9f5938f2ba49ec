/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Races of teardown that kernels have shipped, each a stress test by name: usage: race NAME [seconds].
 *
 *  dereg-against-invalidation   memory goes while its region is deregistered: a freed key invalidated again
 *  implicit-child-against-dereg an implicit region's children empty while it is deregistered
 *  reference-put-once           deregistration amid faults and prefetches returns: a reference that is
 *                               not given back hangs it, one given back twice frees what is in use
 *  allocation-under-the-lock    the allocator's own unmapping is told while faults and registrations allocate
 *  unpin-once                   mapping for DMA fails after pinning: the pins are given back, once
 *  unlock-on-missing-page       faults that find no page leave no lock behind
 *  srq-against-its-messages     an XRC domain's SRQ goes while messages name it: one that is freed completes nothing
 *  attach-against-detach        a QP joins a multicast group in one thread and leaves it in another: it is in it or not
 *
 * What they assert is that all calls return, that statuses are the possible ones, that data is right
 * where nothing interferes, and that nothing is left at the end.
 */
#include <faultline/odp.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tests/e2e/rc.h"

#define PAGES 16u
#define SPAN  (PAGES * PAGE)

static double until;
static bool over(void)
{
	return rc_now() > until;
}

static pthread_t thread(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	CHECK(!pthread_create(&t, NULL, fn, arg), "pthread_create");
	return t;
}

static void start(struct rc_side *s)
{
	rc_open(s);
	rc_make_qp(s, &rc_default);
	rc_connect(s, &s->me); /* to itself */
}

/* Unmaps and maps [arg, arg + SPAN) piece by piece, by calls that are hooked and by ones that are not. */
static void *churn(void *arg)
{
	char *base = arg;
	unsigned seed = 5;

	while (!over()) {
		unsigned n = 1 + (unsigned)rand_r(&seed) % 4, page = (unsigned)rand_r(&seed) % (PAGES - n);
		char *at = base + page * PAGE;

		switch (rand_r(&seed) % 3) {
		case 0:
			CHECK(!munmap(at, n * PAGE), "munmap");
			break;
		case 1:
			CHECK(!syscall(SYS_munmap, at, n * PAGE), "munmap");
			break;
		default:
			CHECK(!madvise(at, n * PAGE, MADV_DONTNEED), "MADV_DONTNEED");
			continue;
		}
		CHECK(mmap(at, n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at,
		      "mmap");
	}
	return NULL;
}

/* waits for what was posted; an error takes a new QP */
static enum ibv_wc_status finish(struct rc_side *s)
{
	enum ibv_wc_status status = rc_wait(s);

	if (status != IBV_WC_SUCCESS) {
		rc_make_qp(s, &rc_default);
		rc_connect(s, &s->me);
	}
	return status;
}

static bool possible(enum ibv_wc_status status)
{
	return status == IBV_WC_SUCCESS || status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_LOC_PROT_ERR ||
	       status == IBV_WC_REM_OP_ERR || status == IBV_WC_WR_FLUSH_ERR;
}

struct buffers {
	char *local, *area;
	struct ibv_mr *mr;
};

static struct buffers buffers(struct rc_side *s)
{
	struct buffers b = {rc_map(SPAN), rc_map(SPAN), NULL};

	b.mr = rc_reg(s, b.local, SPAN, IBV_ACCESS_LOCAL_WRITE);
	return b;
}

static void prefetch(struct rc_side *s, struct ibv_mr *mr, void *at, size_t size, bool wait)
{
	struct ibv_sge sge = {(uintptr_t)at, (uint32_t)size, mr->lkey};

	/* it may fail: pages are missing */
	ibv_advise_mr(s->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, wait ? IBV_ADVISE_MR_FLAG_FLUSH : 0, &sge, 1);
}

/* ---- the races ---- */

static void dereg_against_invalidation(struct rc_side *s)
{
	struct buffers b = buffers(s);
	pthread_t t = thread(churn, b.area);
	unsigned rounds = 0;

	while (!over()) {
		struct ibv_mr *mr = rc_reg(s, b.area, SPAN, ALL_ACCESS | ODP);
		enum ibv_wc_status status;

		prefetch(s, mr, b.area, SPAN, rounds & 1);
		CHECK(!rc_post(s, IBV_WR_RDMA_WRITE, (uintptr_t)b.local, SPAN, b.mr->lkey, (uintptr_t)b.area, mr->rkey),
		      "post");
		CHECK(!ibv_dereg_mr(mr), "ibv_dereg_mr");
		status = finish(s);
		CHECK(possible(status), "%s", ibv_wc_status_str(status));
		rounds++;
	}
	pthread_join(t, NULL);
	CHECK(rounds, "no round");
	ibv_dereg_mr(b.mr);
}

static void implicit_child_against_dereg(struct rc_side *s)
{
	enum { CHUNKS = 8 };
	struct buffers b = buffers(s);
	size_t far = 1ul << 30; /* each place its own child */
	char *sparse = rc_map_as(CHUNKS * far, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	pthread_t t = thread(churn, sparse + far);
	unsigned rounds = 0;

	while (!over()) {
		struct ibv_mr *mr = ibv_reg_mr(s->pd, NULL, SIZE_MAX, ALL_ACCESS | ODP);
		enum ibv_wc_status status;

		if (!mr)
			rc_skip("the device has no implicit on-demand regions");
		for (unsigned i = 0; i < CHUNKS; i++)
			prefetch(s, mr, sparse + i * far, SPAN, i & 1);
		CHECK(!rc_post(s, IBV_WR_RDMA_WRITE, (uintptr_t)b.local, SPAN, b.mr->lkey, (uintptr_t)(sparse + far),
			       mr->rkey),
		      "post");
		status = finish(s);
		CHECK(possible(status), "%s", ibv_wc_status_str(status));
		/* the children are emptied, and go some 20 ms later, one after another; as the parent does */
		if (rounds & 1)
			syscall(SYS_madvise, sparse + 2 * far, (CHUNKS - 2) * far, MADV_DONTNEED);
		else
			madvise(sparse + 2 * far, (CHUNKS - 2) * far, MADV_DONTNEED);
		usleep(rounds % 8 ? 20000 + rounds % 8 * 100 : 0);
		CHECK(!rc_post(s, IBV_WR_RDMA_WRITE, (uintptr_t)b.local, SPAN, b.mr->lkey, (uintptr_t)(sparse + 3 * far),
			       mr->rkey),
		      "post");
		CHECK(!ibv_dereg_mr(mr), "ibv_dereg_mr");
		status = finish(s);
		CHECK(possible(status), "%s", ibv_wc_status_str(status));
		rounds++;
	}
	pthread_join(t, NULL);
	CHECK(rounds, "no round");
	munmap(sparse, CHUNKS * far);
	ibv_dereg_mr(b.mr);
}

static void reference_put_once(struct rc_side *s)
{
	size_t size = 4ul << 20; /* several faults */
	char *local = rc_map(size), *area = rc_map(size);
	struct ibv_mr *local_mr = rc_reg(s, local, size, IBV_ACCESS_LOCAL_WRITE | ODP);
	unsigned rounds = 0;

	while (!over()) {
		struct ibv_mr *mr = rc_reg(s, area, size, ALL_ACCESS | ODP);
		enum ibv_wc_status status;
		double t;

		madvise(area, size, MADV_DONTNEED);
		CHECK(!rc_post(s, rounds & 1 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, (uintptr_t)local, (uint32_t)size,
			       local_mr->lkey, (uintptr_t)area, mr->rkey),
		      "post");
		prefetch(s, mr, area, size, false);
		if (rounds % 3 == 0) /* the fault first: its result is that of the whole */
			CHECK(finish(s) == IBV_WC_SUCCESS, "an operation that nothing disturbs");
		t = rc_now();
		CHECK(!ibv_dereg_mr(mr), "ibv_dereg_mr");
		CHECK(rc_now() - t < 20, "ibv_dereg_mr took %.0f s", rc_now() - t);
		if (rounds % 3) {
			status = finish(s);
			CHECK(possible(status), "%s", ibv_wc_status_str(status));
		}
		rounds++;
	}
	CHECK(rounds, "no round");
	ibv_dereg_mr(local_mr);
}

static void *allocate(void *arg)
{
	unsigned seed = 3;

	/* large blocks are mapped and unmapped inside malloc() and free(), past all hooks */
	while (!over()) {
		char *p[8];

		for (int i = 0; i < 8; i++) {
			size_t size = 1000 + (size_t)rand_r(&seed) % 300000;

			p[i] = malloc(size);
			CHECK(p[i], "malloc");
			memset(p[i], i, size);
		}
		for (int i = 0; i < 8; i++)
			free(p[i]);
		malloc_trim(0);
	}
	return NULL;
}

static void allocation_under_the_lock(struct rc_side *s)
{
	struct buffers b = buffers(s);
	/* the heap too, as far as it may grow */
	char *heap = (char *)((uintptr_t)sbrk(0) & ~(PAGE - 1));
	struct ibv_mr *all = ibv_reg_mr(s->pd, NULL, SIZE_MAX, ALL_ACCESS | ODP);
	struct ibv_mr *brk_mr = rc_reg(s, heap - SPAN, 64ul << 20, ALL_ACCESS | ODP);
	pthread_t t[2] = {thread(allocate, NULL), thread(allocate, NULL)};
	unsigned rounds = 0;

	while (!over()) {
		char *p = malloc(200000);
		struct ibv_mr *mr;

		CHECK(p, "malloc");
		mr = rc_reg(s, p, 200000, ALL_ACCESS | ODP);
		CHECK(!rc_post(s, IBV_WR_RDMA_WRITE, (uintptr_t)b.local, SPAN, b.mr->lkey, (uintptr_t)p,
			       all && rounds & 1 ? all->rkey : mr->rkey),
		      "post");
		rc_expect(s, IBV_WC_SUCCESS);
		prefetch(s, brk_mr, heap - SPAN, 2 * SPAN, true);
		free(p); /* with the region on it */
		CHECK(!ibv_dereg_mr(mr), "ibv_dereg_mr");
		rounds++;
	}
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	CHECK(rounds, "no round");
	ibv_dereg_mr(brk_mr);
	if (all)
		ibv_dereg_mr(all);
	ibv_dereg_mr(b.mr);
}

/* run with an aperture of 64 pages */
static void unpin_once(struct rc_side *s)
{
	char *small = rc_map(16 * PAGE), *large = rc_map(128 * PAGE);
	struct ibv_mr *mr = rc_reg(s, small, 16 * PAGE, ALL_ACCESS), *again, *odp;
	long pinned = rc_pinned_kb();
	unsigned rounds = 0;

	odp = rc_reg(s, large, 128 * PAGE, ALL_ACCESS | ODP);
	while (!over()) {
		int err;

		errno = 0;
		again = ibv_reg_mr(s->pd, large, 128 * PAGE, ALL_ACCESS);
		CHECK(!again && errno == ENOMEM, "128 pages through an aperture of 64: %s", again ? "done" : strerror(errno));
		err = faultline_mr_pin(odp, large, 128 * PAGE);
		CHECK(err == ENOMEM || err == EOPNOTSUPP, "pinned 128 pages through an aperture of 64: %s", strerror(err));
		/* what was given back can be had, the neighbour's pins are its own */
		again = ibv_reg_mr(s->pd, large, 32 * PAGE, ALL_ACCESS);
		CHECK(again, "32 pages: %s", strerror(errno));
		rc_fill(small, 16 * PAGE, 0, rounds);
		CHECK(!rc_post(s, IBV_WR_RDMA_WRITE, (uintptr_t)small, 16 * PAGE, mr->lkey, (uintptr_t)large, again->rkey),
		      "post");
		rc_expect(s, IBV_WC_SUCCESS);
		CHECK(rc_differs(large, 16 * PAGE, 0, rounds) == UINT64_MAX, "data");
		CHECK(!ibv_dereg_mr(again), "ibv_dereg_mr");
		if (!(rounds & 15))
			madvise(large, 128 * PAGE, MADV_DONTNEED);
		rounds++;
	}
	CHECK(rounds, "no round");
	ibv_dereg_mr(odp);
	for (int i = 0; i < 5000 && rc_pinned_kb() != pinned; i++) /* there are kernels that unpin a little later */
		usleep(1000);
	CHECK(rc_pinned_kb() == pinned, "%ld KiB are pinned, %ld were", rc_pinned_kb(), pinned);
	ibv_dereg_mr(mr);
}

static void unlock_on_missing_page(struct rc_side *s)
{
	struct buffers b = buffers(s);
	struct ibv_mr *mr = rc_reg(s, b.area, SPAN, ALL_ACCESS | ODP);
	unsigned rounds = 0;

	while (!over()) {
		char *hole = b.area + PAGE * (1 + rounds % (PAGES - 2));
		enum ibv_wc_status status;

		/* present in the table by now, and then gone without a word (PROT_NONE), or unmapped */
		if (rounds & 1) {
			CHECK(!mprotect(hole, PAGE, PROT_NONE), "mprotect");
		} else {
			CHECK(!munmap(hole, PAGE), "munmap");
		}
		prefetch(s, mr, b.area, SPAN, true);
		CHECK(faultline_mr_pin(mr, b.area, SPAN), "a hole was pinned");
		CHECK(!rc_post(s, IBV_WR_RDMA_WRITE, (uintptr_t)b.local, SPAN, b.mr->lkey, (uintptr_t)b.area, mr->rkey),
		      "post");
		status = finish(s);
		/* the QP is its own responder, whose error may flush it */
		CHECK(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_WR_FLUSH_ERR, "a WRITE to a hole: %s", ibv_wc_status_str(status));
		/* each of these takes the lock */
		CHECK(!madvise(b.area, PAGE, MADV_DONTNEED), "MADV_DONTNEED");
		CHECK(mmap(hole, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == hole, "mmap");
		rc_fill(b.local, SPAN, 0, rounds);
		CHECK(!rc_post(s, IBV_WR_RDMA_WRITE, (uintptr_t)b.local, SPAN, b.mr->lkey, (uintptr_t)b.area, mr->rkey),
		      "post");
		rc_expect(s, IBV_WC_SUCCESS);
		CHECK(rc_differs(b.area, SPAN, 0, rounds) == UINT64_MAX, "data");
		rounds++;
	}
	CHECK(rounds, "no round");
	CHECK(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	ibv_dereg_mr(b.mr);
}

/* ---- XRC: SRQs that come and go under the messages that name them ---- */

static struct {
	struct ibv_xrcd *xrcd;
	struct ibv_qp *ini, *tgt;
	struct ibv_mr *mr;
	char *mem;
	uint32_t srqn; /* of the SRQ there is, or was; atomic */
} x;

static void xrc_connect(struct rc_side *s)
{
	struct rc_hello ini = s->me, tgt = s->me;

	ini.psn = tgt.psn = 0;
	ini.qpn = x.ini->qp_num;
	tgt.qpn = x.tgt->qp_num;
	CHECK(!rc_to_init(x.ini, 0) && !rc_to_rtr(x.ini, &rc_default, &tgt) && !rc_to_rts(x.ini, &rc_default, 0) &&
		      !rc_to_init(x.tgt, rc_default.qp_access) && !rc_to_rtr(x.tgt, &rc_default, &ini) &&
		      !rc_to_rts(x.tgt, &rc_default, 0),
	      "XRC: connect");
}

static void xrc_reset(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "RESET");
}

/* sends and WRITEs, to whatever SRQ there is; an error connects both anew */
static void *xrc_send(void *arg)
{
	struct rc_side *s = arg;
	struct ibv_wc wc;
	unsigned n = 0, good = 0;

	while (!over()) {
		struct ibv_sge sge = {(uintptr_t)x.mem, n % 3 ? 30000 : 100, x.mr->lkey};
		struct ibv_send_wr wr = {.opcode = n % 4 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1,
					 .send_flags = IBV_SEND_SIGNALED}, *bad;

		wr.wr.rdma.remote_addr = (uintptr_t)x.mem + PAGE;
		wr.wr.rdma.rkey = x.mr->rkey;
		wr.qp_type.xrc.remote_srqn = __atomic_load_n(&x.srqn, __ATOMIC_RELAXED);
		CHECK(!ibv_post_send(x.ini, &wr, &bad), "ibv_post_send");
		CHECK(rc_poll(s, &wc, 20), "no completion");
		CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_REM_INV_RD_REQ_ERR ||
			      wc.status == IBV_WC_RNR_RETRY_EXC_ERR,
		      "%s", ibv_wc_status_str(wc.status));
		good += wc.status == IBV_WC_SUCCESS;
		if (wc.status != IBV_WC_SUCCESS) {
			xrc_reset(x.ini);
			xrc_reset(x.tgt);
			xrc_connect(s);
		}
		n++;
	}
	CHECK(good, "no message of %u arrived", n);
	return NULL;
}

static void srq_against_its_messages(struct rc_side *s)
{
	struct ibv_xrcd_init_attr xa = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1};
	struct ibv_srq_init_attr_ex sa = {
		.attr = {.max_wr = 8, .max_sge = 1}, .srq_type = IBV_SRQT_XRC, .pd = s->pd,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_XRCD};
	struct ibv_qp_init_attr_ex qi = {.qp_type = IBV_QPT_XRC_SEND, .send_cq = s->cq, .pd = s->pd,
					 .cap = {.max_send_wr = 4, .max_send_sge = 1},
					 .comp_mask = IBV_QP_INIT_ATTR_PD},
				   qt = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD};
	unsigned rounds = 0, received = 0;
	pthread_t t;

	x.xrcd = sa.xrcd = qt.xrcd = ibv_open_xrcd(s->ctx, &xa);
	x.ini = ibv_create_qp_ex(s->ctx, &qi);
	x.tgt = ibv_create_qp_ex(s->ctx, &qt);
	CHECK(x.xrcd && x.ini && x.tgt, "XRC: %s", strerror(errno));
	x.mem = rc_map(SPAN);
	x.mr = rc_reg(s, x.mem, SPAN, ALL_ACCESS);
	xrc_connect(s);
	t = thread(xrc_send, s);
	while (!over()) {
		struct ibv_cq *cq = sa.cq = ibv_create_cq(s->ctx, 16, NULL, NULL, 0);
		struct ibv_srq *srq = ibv_create_srq_ex(s->ctx, &sa);
		struct ibv_sge sge = {(uintptr_t)x.mem + 8 * PAGE, 8 * PAGE, x.mr->lkey};
		struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
		double end = rc_now() + (rounds % 8) / 1e4;
		struct ibv_wc wc;
		uint32_t num;

		CHECK(cq && srq && !ibv_get_srq_num(srq, &num), "SRQ: %s", strerror(errno));
		for (int i = 0; i < 8; i++)
			CHECK(!ibv_post_srq_recv(srq, &wr, &bad), "ibv_post_srq_recv");
		__atomic_store_n(&x.srqn, num, __ATOMIC_RELAXED);
		do
			while (ibv_poll_cq(cq, 1, &wc) > 0) {
				received += wc.status == IBV_WC_SUCCESS;
				CHECK(!ibv_post_srq_recv(srq, &wr, &bad), "ibv_post_srq_recv");
			}
		while (rc_now() < end && !over());
		CHECK(!ibv_destroy_srq(srq), "ibv_destroy_srq");
		CHECK(!ibv_destroy_cq(cq), "ibv_destroy_cq");
		rounds++;
	}
	pthread_join(t, NULL);
	CHECK(rounds && received, "%u rounds, %u messages", rounds, received);
	CHECK(!ibv_destroy_qp(x.ini) && !ibv_destroy_qp(x.tgt) && !ibv_close_xrcd(x.xrcd), "XRC: the end");
	ibv_dereg_mr(x.mr);
}

/* ---- multicast ---- */

static unsigned mcast_turn;

static union ibv_gid mcast_group(void)
{
	unsigned turn = __atomic_load_n(&mcast_turn, __ATOMIC_RELAXED);

	return (union ibv_gid){.raw = {[10] = 0xff, 0xff, 239, 7, (uint8_t)(turn >> 8), (uint8_t)turn}};
}

static void *leave(void *qp)
{
	while (!over()) {
		union ibv_gid group = mcast_group();
		int rc = ibv_detach_mcast(qp, &group, 0);

		CHECK(!rc || rc == EINVAL, "ibv_detach_mcast: %s", strerror(rc));
	}
	return NULL;
}

static void attach_against_detach(struct rc_side *s)
{
	struct ibv_qp_init_attr init = {.send_cq = s->cq, .recv_cq = s->cq, .cap = {1, 1, 1, 1, 0}};
	struct ibv_qp *qp = rc_make_ud(s->pd, &init, 1);
	union ibv_gid group = mcast_group();
	pthread_t t;

	if (ibv_attach_mcast(qp, &group, 0))
		rc_skip("no multicast group can be joined here");
	t = thread(leave, qp);
	while (!over()) {
		int rc;

		/* one that is not left as often as it was joined takes up a place: there are some dozens */
		group = mcast_group();
		rc = ibv_attach_mcast(qp, &group, 0);
		CHECK(!rc, "ibv_attach_mcast, %u groups before it: %s", mcast_turn, strerror(rc));
		rc = ibv_detach_mcast(qp, &group, 0);
		CHECK(!rc || rc == EINVAL, "ibv_detach_mcast: %s", strerror(rc));
		__atomic_store_n(&mcast_turn, mcast_turn + 1, __ATOMIC_RELAXED);
	}
	pthread_join(t, NULL);
	CHECK(mcast_turn, "no round");
	CHECK(!ibv_destroy_qp(qp), "ibv_destroy_qp");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(struct rc_side *s);
	} races[] = {
		{"dereg-against-invalidation", dereg_against_invalidation},
		{"implicit-child-against-dereg", implicit_child_against_dereg},
		{"reference-put-once", reference_put_once},
		{"allocation-under-the-lock", allocation_under_the_lock},
		{"unpin-once", unpin_once},
		{"unlock-on-missing-page", unlock_on_missing_page},
		{"srq-against-its-messages", srq_against_its_messages},
		{"attach-against-detach", attach_against_detach},
	};
	struct rc_side s;

	alarm(100); /* a hang is a failure */
	for (size_t i = 0; argc > 1 && i < sizeof(races) / sizeof(races[0]); i++) {
		if (strcmp(argv[1], races[i].name))
			continue;
		start(&s);
		until = rc_now() + (argc > 2 ? atof(argv[2]) : 1);
		races[i].run(&s);
		rc_close(&s);
		return 0;
	}
	FAIL("which race?");
}
