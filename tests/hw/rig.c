/* SPDX-License-Identifier: BSD-2-Clause */
/* See rig.h: the stage. The peer's side is peer.c. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "rig.h"

#define TEST_SECONDS 120

struct rig_opt opt = {
	.type = IBV_QPT_RC,
	.mtu = IBV_MTU_1024,
	.timeout = 10, /* 4.2 ms */
	.retry_cnt = 3,
	.rnr_retry = 3,
	.min_rnr_timer = 12, /* 0.64 ms */
	.max_rd_atomic = 4,
	.max_dest_rd_atomic = 4,
	.sq_psn = 100,
	.rq_psn = 200,
	.sq_depth = 32,
	.rq_depth = 32,
	.cq_depth = 256,
	.dest_qpn = PEER_QPN,
	.qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};
struct rig rig;
uint8_t pattern[MEM_LEN + 64];

static struct seg seg;
static struct fl_config cfg = {.fault_rnr_ms = 100, .fault_stuck_ms = 2000, .fault_patience_ms = 60000};

/* ---- time, and threads ---- */

static uint64_t fake_now = 1000000000, tick;
static bool real_time, engine_made;
static unsigned workers, workers_idle, wakes;
static __thread bool is_worker;

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __real_pthread_cond_signal(pthread_cond_t *c);
int __wrap_pthread_cond_signal(pthread_cond_t *c);

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	uint64_t now = __atomic_add_fetch(&fake_now, __atomic_load_n(&tick, __ATOMIC_RELAXED), __ATOMIC_RELAXED);

	if (real_time)
		return __real_clock_gettime(id, ts);
	*ts = (struct timespec){now / 1000000000, now % 1000000000};
	return 0;
}

static void *no_engine(void *arg)
{
	for (;;)
		pause();
	return NULL;
}

struct start {
	void *(*fn)(void *);
	void *arg;
};

static void *worker_main(void *arg)
{
	struct start s = *(struct start *)arg;

	free(arg);
	is_worker = true;
	return s.fn(s.arg);
}

/* The first thread the HCA makes is its engine; those after it are fault workers. */
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	struct start *s;

	if (!engine_made) {
		engine_made = true;
		return __real_pthread_create(t, a, opt.engine ? fn : no_engine, arg);
	}
	s = malloc(sizeof(*s));
	*s = (struct start){fn, arg};
	__atomic_fetch_add(&workers, 1, __ATOMIC_SEQ_CST);
	return __real_pthread_create(t, a, worker_main, s);
}

/* A worker waits here only when the queue is empty. */
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	int rc;

	if (is_worker)
		__atomic_fetch_add(&workers_idle, 1, __ATOMIC_SEQ_CST);
	rc = __real_pthread_cond_wait(c, m);
	if (is_worker)
		__atomic_fetch_sub(&workers_idle, 1, __ATOMIC_SEQ_CST);
	return rc;
}

/* Only for workers: all else that waits in the HCA is woken by broadcast. */
int __wrap_pthread_cond_signal(pthread_cond_t *c)
{
	__atomic_fetch_add(&wakes, 1, __ATOMIC_SEQ_CST);
	return __real_pthread_cond_signal(c);
}

unsigned rig_workers(void)
{
	return __atomic_load_n(&workers, __ATOMIC_SEQ_CST);
}

unsigned rig_wakes(void)
{
	return __atomic_load_n(&wakes, __ATOMIC_SEQ_CST);
}

pthread_t rig_thread(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	CHECK(!__real_pthread_create(&t, NULL, fn, arg));
	return t;
}

void rig_workers_idle(void)
{
	unsigned calm = 0;

	/* one that was just woken still counts as idle, so look for a while */
	while (calm < 50) {
		calm = __atomic_load_n(&workers_idle, __ATOMIC_SEQ_CST) ==
				       __atomic_load_n(&workers, __ATOMIC_SEQ_CST)
			       ? calm + 1
			       : 0;
		usleep(200);
	}
}

uint64_t rig_now(void)
{
	return __atomic_load_n(&fake_now, __ATOMIC_RELAXED);
}

void rig_advance(uint64_t ns)
{
	timers_run(__atomic_add_fetch(&fake_now, ns, __ATOMIC_RELAXED));
}

void rig_clock_runs(uint64_t ns)
{
	__atomic_store_n(&tick, ns, __ATOMIC_RELAXED);
}

/* ---- events ---- */

unsigned ev_comp, ev_cq_err, ev_srq_limit, ev_qp[32];

static void on_comp(void *uobject)
{
	__atomic_fetch_add(&ev_comp, 1, __ATOMIC_RELAXED);
}

static void on_cq(void *uobject, enum ibv_event_type type)
{
	CHECK_EQ(type, IBV_EVENT_CQ_ERR);
	__atomic_fetch_add(&ev_cq_err, 1, __ATOMIC_RELAXED);
}

static void on_qp(void *uobject, enum ibv_event_type type)
{
	__atomic_fetch_add(&ev_qp[type & 31], 1, __ATOMIC_RELAXED);
}

static void on_srq(void *uobject, enum ibv_event_type type)
{
	CHECK_EQ(type, IBV_EVENT_SRQ_LIMIT_REACHED);
	__atomic_fetch_add(&ev_srq_limit, 1, __ATOMIC_RELAXED);
}

static const struct hca_event_ops ops = {on_comp, on_cq, on_qp, on_srq};

/* ---- objects ---- */

#define ALL_ACCESS                                                                                 \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

struct hca_mr *rig_mr(void *addr, size_t len, uint64_t iova, unsigned access, uint32_t pd, bool odp)
{
	struct hca_mr *mr;

	CHECK_EQ(hca_mr_create(rig.dev, pd, fake_umem(addr, len, odp), iova, access, &mr), 0);
	return mr;
}

struct hca_srq *rig_srq(uint32_t pd, uint32_t xrcd, struct hca_cq *cq)
{
	struct hca_srq_init init = {.pd = pd, .max_wr = opt.rq_depth, .max_sge = 4, .cq = cq, .xrcd = xrcd};
	struct hca_srq *srq;

	CHECK_EQ(hca_srq_create(rig.dev, &init, &srq), 0);
	return srq;
}

void rig_again(void)
{
	memset(&seg, 0, sizeof(seg));
	memset(&rig, 0, sizeof(rig));
	engine_made = false;
}

void rig_node(void)
{
	if (!getenv("FAULTLINE_LOG"))
		fl_log_level = LOG_NONE; /* errors are what most tests are about */
	fake_net_is_test_thread();
	real_time = opt.engine;
	fake_rx_any_thread = opt.engine;
	hca_set_event_ops(&ops);
	if (opt.fault_model)
		strcpy(cfg.fault_model, opt.fault_model);
	if (opt.provoke)
		strcpy(cfg.provoke, opt.provoke);
	CHECK_EQ(seg_create(&seg), 0);
	CHECK_EQ(hca_node_start(&cfg, &seg), 0);
	rig.stat = &seg.s->device[0];
	if (!opt.profile)
		opt.profile = hca_profile_find("mlx5");
	CHECK_EQ(hca_dev_create(opt.profile, rig.stat, 0, &rig.dev), 0);
	CHECK_EQ(hca_cq_create(rig.dev, opt.cq_depth, false, NULL, &rig.scq), 0);
	CHECK_EQ(hca_cq_create(rig.dev, opt.cq_depth, false, NULL, &rig.rcq), 0);
	rig.mem = aligned_alloc(PAGE_SIZE, MEM_LEN);
	CHECK(rig.mem);
	rig_fill(rig.mem, MEM_LEN, 0);
	rig_fill(pattern, sizeof(pattern), 77);
	rig.umem = fake_umem(rig.mem, MEM_LEN, opt.odp);
	CHECK_EQ(hca_mr_create(rig.dev, PD, rig.umem, IOVA, ALL_ACCESS, &rig.mr), 0);
	rig.key = hca_mr_key(rig.mr);
	if (opt.use_srq)
		rig.srq = opt.type == IBV_QPT_XRC_RECV ? rig_srq(PD, XRCD, rig.rcq) : rig_srq(PD, 0, NULL);
}

int rig_qp_try(struct hca_qp **qp)
{
	struct hca_qp_init init = {
		.type = opt.type,
		.pd = PD,
		.send_cq = rig.scq,
		.recv_cq = rig.rcq,
		.srq = rig.srq,
		.cap = {.max_send_wr = opt.sq_depth,
			.max_recv_wr = opt.rq_depth,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 128},
		.sq_sig_all = !opt.unsignaled,
		.port_mtu = 128u << opt.mtu,
		.open = calloc(1, sizeof(struct hca_qp_open)),
	};

	if (opt.type == IBV_QPT_XRC_SEND || opt.type == IBV_QPT_XRC_RECV) {
		init.recv_cq = NULL;
		init.srq = NULL;
		init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
	}
	if (opt.type == IBV_QPT_XRC_RECV) {
		init.pd = 0;
		init.send_cq = NULL;
		init.xrcd = XRCD;
		init.cap = (struct ibv_qp_cap){.max_send_wr = 0};
	}
	return hca_qp_create(rig.dev, &init, qp);
}

struct hca_qp *rig_qp_new(void)
{
	struct hca_qp *qp;

	CHECK_EQ(rig_qp_try(&qp), 0);
	return qp;
}

int rig_qp_to(struct hca_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {
		.qp_state = state,
		.qp_access_flags = opt.qp_access,
		.port_num = 1,
		.path_mtu = opt.mtu,
		.timeout = opt.timeout,
		.retry_cnt = opt.retry_cnt,
		.rnr_retry = opt.rnr_retry,
		.rq_psn = opt.rq_psn,
		.sq_psn = opt.sq_psn,
		.max_rd_atomic = opt.max_rd_atomic,
		.max_dest_rd_atomic = opt.max_dest_rd_atomic,
		.min_rnr_timer = opt.min_rnr_timer,
		.dest_qp_num = opt.dest_qpn,
	};
	static const uint8_t gid[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
	int mask = IBV_QP_STATE;

	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_ACCESS_FLAGS | IBV_QP_PORT | IBV_QP_PKEY_INDEX;
	else if (state == IBV_QPS_RTR)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	else if (state == IBV_QPS_RTS)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return hca_qp_modify(qp, &attr, mask, gid);
}

void rig_modify_state(struct hca_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	static const uint8_t gid[16];

	CHECK_EQ(hca_qp_modify(qp, &attr, IBV_QP_STATE, gid), 0);
}

void rig_up(void)
{
	rig_node();
	rig.qp = rig_qp_new();
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_INIT), 0);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTR), 0);
	CHECK_EQ(rig_qp_to(rig.qp, IBV_QPS_RTS), 0);
}

enum ibv_qp_state qp_state(void)
{
	struct ibv_qp_attr attr;

	hca_qp_query(rig.qp, &attr);
	return attr.qp_state;
}

uint64_t cnt(enum faultline_counter c)
{
	return rig.stat->counter[c];
}

/* ---- patterns ---- */

/* what is made here is this thread's own, and is moved as a whole */
enum { CHUNK = 4096 };

UNSANITIZED static void make_pattern(uint8_t *chunk, size_t len, size_t pos, uint32_t seed)
{
	size_t i;
	uint32_t x;

	for (i = 0; i < len; i++) {
		x = (uint32_t)(pos + i) * 2654435761u + seed * 40503u;
		chunk[i] = x >> 13 ^ x >> 24;
	}
}

void rig_fill(void *p, size_t len, uint32_t seed)
{
	uint8_t chunk[CHUNK];
	size_t i, n;

	for (i = 0; i < len; i += n) {
		n = len - i < CHUNK ? len - i : CHUNK;
		make_pattern(chunk, n, i, seed);
		memcpy((uint8_t *)p + i, chunk, n);
	}
}

void rig_is(const void *p, size_t len, uint32_t seed)
{
	const uint8_t *b = p;
	uint8_t chunk[CHUNK];
	size_t i, n, k;

	for (i = 0; i < len; i += n) {
		n = len - i < CHUNK ? len - i : CHUNK;
		make_pattern(chunk, n, i, seed);
		if (!memcmp(b + i, chunk, n))
			continue;
		for (k = 0; k < n - 1 && b[i + k] == chunk[k]; k++)
			;
		FAIL("byte %zu of %zu is %#x, not %#x", i + k, len, b[i + k], chunk[k]);
	}
}

/* ---- running ---- */

static bool wanted(int argc, char **argv, const char *name)
{
	int i;

	for (i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc < 2;
}

int rig_fork(void)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid)
		alarm(TEST_SECONDS);
	return pid;
}

int rig_wait(int pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	if (WIFSIGNALED(status))
		fprintf(stderr, "killed by signal %d%s\n", WTERMSIG(status),
			WTERMSIG(status) == SIGALRM ? ", it hangs" : "");
	return status;
}

static bool run(const struct test *t)
{
	pid_t pid = rig_fork();

	if (!pid) {
		t->fn();
		fflush(NULL);
		_Exit(0);
	}
	return !rig_wait(pid);
}

int rig_main(int argc, char **argv, const struct test *tests)
{
	unsigned ran = 0, failed = 0;
	bool ok;

	for (; tests->name; tests++) {
		if (!wanted(argc, argv, tests->name))
			continue;
		ok = run(tests);
		printf("%s %s\n", ok ? "ok  " : "FAIL", tests->name);
		ran++;
		failed += !ok;
	}
	printf("%u run, %u failed\n", ran, failed);
	return failed || !ran ? 1 : 0;
}
