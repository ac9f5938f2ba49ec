/* SPDX-License-Identifier: BSD-2-Clause */
#include "rc.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/sanitize.h"

const struct rc_opt rc_default = {
	.mtu = IBV_MTU_1024,
	.timeout = 16, /* 268 ms: a busy machine is not to be taken for a dead peer */
	.retry = 7,
	.rnr_retry = 7,
	.rnr_timer = 12,
	.rd_atomic = 4,
	.qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	.send_wr = 64,
	.recv_wr = 64,
	.sge = 4,
	.inline_data = 64,
};

void rc_fail(const char *file, int line, const char *fmt, ...)
{
	const char *name = strrchr(file, '/');
	va_list ap;

	fprintf(stderr, "FAIL %s:%d: ", name ? name + 1 : file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

void rc_skip(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "skipped: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(SKIP);
}

/* also within a user namespace, whose root has no right to pin */
static bool is_root(void)
{
	unsigned inside = 1, outside = 1;
	FILE *f = fopen("/proc/self/uid_map", "re");

	if (f) {
		if (fscanf(f, "%u %u", &inside, &outside) != 2)
			outside = 1;
		fclose(f);
	}
	return !geteuid() && !inside && !outside;
}

void rc_skip_if_memlocked(int err)
{
	struct rlimit limit;

	if (err == ENOMEM && !is_root() && !getrlimit(RLIMIT_MEMLOCK, &limit) && limit.rlim_cur != RLIM_INFINITY)
		rc_skip("no more than %lu KiB may be pinned here (ulimit -l)", (unsigned long)limit.rlim_cur / 1024);
}

long rc_pinned_kb(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long sum = 0;

	CHECK(f, "/proc/self/status");
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, "VmPin:", 6) || !strncmp(line, "VmLck:", 6))
			sum += atol(line + 6);
	fclose(f);
	return sum;
}

double rc_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- a side ---- */

struct ibv_context *rc_open_device(void)
{
	const char *name = getenv("DEV");
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *ctx = NULL;

	CHECK(list, "ibv_get_device_list: %s", strerror(errno));
	if (!n)
		rc_skip("no RDMA device");
	for (int i = 0; i < n && !ctx; i++)
		if (!name || !strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	CHECK(ctx, "no device %s, or it does not open: %s", name ? name : "", strerror(errno));
	ibv_free_device_list(list);
	return ctx;
}

void rc_open(struct rc_side *s)
{
	memset(s, 0, sizeof(*s));
	s->ctx = rc_open_device();
	s->pd = ibv_alloc_pd(s->ctx);
	CHECK(s->pd, "ibv_alloc_pd: %s", strerror(errno));
	s->cq = ibv_create_cq(s->ctx, 1024, NULL, NULL, 0);
	CHECK(s->cq, "ibv_create_cq: %s", strerror(errno));
	CHECK(!ibv_query_gid(s->ctx, 1, 0, &s->me.gid), "ibv_query_gid: %s", strerror(errno));
}

void rc_make_qp(struct rc_side *s, const struct rc_opt *opt)
{
	struct ibv_qp_init_attr init = {
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = opt->send_wr,
			.max_recv_wr = opt->recv_wr,
			.max_send_sge = opt->sge,
			.max_recv_sge = opt->sge,
			.max_inline_data = opt->inline_data},
	};
	static uint32_t psn = 0xfffff0; /* soon wraps */
	struct ibv_wc wc;

	if (s->qp)
		CHECK(!ibv_destroy_qp(s->qp), "ibv_destroy_qp: %s", strerror(errno));
	while (ibv_poll_cq(s->cq, 1, &wc) > 0)
		;
	s->opt = *opt;
	s->qp = ibv_create_qp(s->pd, &init);
	CHECK(s->qp, "ibv_create_qp: %s", strerror(errno));
	s->me.qpn = s->qp->qp_num;
	s->me.psn = psn++ & 0xffffff;
}

int rc_to_init(struct ibv_qp *qp, uint32_t access)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};

	return ibv_modify_qp(qp, &a,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int rc_to_rtr(struct ibv_qp *qp, const struct rc_opt *opt, const struct rc_hello *peer)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = opt->mtu,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = opt->rd_atomic,
		.min_rnr_timer = opt->rnr_timer,
		.ah_attr = {.is_global = 1,
			    .grh = {.dgid = peer->gid, .hop_limit = 64},
			    .port_num = 1},
	};

	return ibv_modify_qp(qp, &a,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

int rc_to_rts(struct ibv_qp *qp, const struct rc_opt *opt, uint32_t psn)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.timeout = opt->timeout,
		.retry_cnt = opt->retry,
		.rnr_retry = opt->rnr_retry,
		.sq_psn = psn,
		.max_rd_atomic = opt->rd_atomic,
	};

	return ibv_modify_qp(qp, &a,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void rc_connect(struct rc_side *s, const struct rc_hello *peer)
{
	int err = rc_to_init(s->qp, s->opt.qp_access);

	CHECK(!err, "QP to INIT: %s", strerror(err));
	err = rc_to_rtr(s->qp, &s->opt, peer);
	CHECK(!err, "QP to RTR: %s", strerror(err));
	err = rc_to_rts(s->qp, &s->opt, s->me.psn);
	CHECK(!err, "QP to RTS: %s", strerror(err));
}

void rc_pair(struct rc_side *a, struct rc_side *b, const struct rc_opt *opt)
{
	rc_make_qp(a, opt);
	rc_make_qp(b, opt);
	rc_connect(a, &b->me);
	rc_connect(b, &a->me);
}

struct ibv_qp *rc_make_ud(struct ibv_pd *pd, struct ibv_qp_init_attr *init, uint32_t qkey)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey};
	struct ibv_qp *qp;

	init->qp_type = IBV_QPT_UD;
	qp = ibv_create_qp(pd, init);
	CHECK(qp, "ibv_create_qp: %m");
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
	      "UD QP to INIT: %m");
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "UD QP to RTR: %m");
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "UD QP to RTS: %m");
	return qp;
}

enum ibv_qp_state rc_state(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), "ibv_query_qp: %s", strerror(errno));
	return attr.qp_state;
}

void rc_close(struct rc_side *s)
{
	if (s->qp)
		CHECK(!ibv_destroy_qp(s->qp), "ibv_destroy_qp: %s", strerror(errno));
	for (int i = 0; i < RC_MAX_BUFS; i++)
		if (s->buf[i].mr)
			CHECK(!ibv_dereg_mr(s->buf[i].mr), "ibv_dereg_mr: %s", strerror(errno));
	CHECK(!ibv_destroy_cq(s->cq), "ibv_destroy_cq: %s", strerror(errno));
	CHECK(!ibv_dealloc_pd(s->pd), "ibv_dealloc_pd: %s", strerror(errno));
	CHECK(!ibv_close_device(s->ctx), "ibv_close_device: %s", strerror(errno));
}

/*
 * Where the kernel does not put mappings by itself: a hole that a test makes is to stay one, and
 * not to be what the next mmap() of whoever finds.
 */
static void *quiet_place(size_t size)
{
#ifdef __SANITIZE_THREAD__
	static uintptr_t next = 0x1000000000;
#else
	static uintptr_t next = 0x200000000000;
#endif
	return (void *)__atomic_fetch_add(&next, (size + (4ul << 20)) & ~(PAGE - 1), __ATOMIC_RELAXED);
}

void *rc_map_as(size_t size, int prot, int flags, int fd)
{
	void *p = mmap(quiet_place(size), size, prot, flags, fd, 0);

	CHECK(p != MAP_FAILED, "mmap of %zu bytes: %s", size, strerror(errno));
	return p;
}

void *rc_map(size_t size)
{
	return rc_map_as(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

struct ibv_mr *rc_reg(struct rc_side *s, void *addr, size_t size, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(s->pd, addr, size, access);

	if (!mr)
		rc_skip_if_memlocked(errno);
	CHECK(mr, "ibv_reg_mr of %zu bytes, access %#x: %s", size, (unsigned)access,
	      strerror(errno));
	return mr;
}

/* ---- work ---- */

int rc_post(struct rc_side *s, enum ibv_wr_opcode opcode, uint64_t local, uint32_t len,
	    uint32_t lkey, uint64_t remote, uint32_t rkey)
{
	struct ibv_sge sge = {.addr = local, .length = len, .lkey = lkey};
	struct ibv_send_wr *bad, wr = {
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = opcode,
					 .send_flags = IBV_SEND_SIGNALED,
					 .imm_data = htobe32(0x1badcafe),
					 .wr.rdma = {.remote_addr = remote, .rkey = rkey},
				 };

	return ibv_post_send(s->qp, &wr, &bad);
}

int rc_post_atomic(struct rc_side *s, enum ibv_wr_opcode opcode, uint64_t local, uint32_t lkey,
		   uint64_t remote, uint32_t rkey, uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge sge = {.addr = local, .length = 8, .lkey = lkey};
	struct ibv_send_wr *bad, wr = {
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = opcode,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.atomic = {.remote_addr = remote,
						       .rkey = rkey,
						       .compare_add = compare_add,
						       .swap = swap},
				 };

	return ibv_post_send(s->qp, &wr, &bad);
}

int rc_post_recv(struct rc_side *s, uint64_t addr, uint32_t len, uint32_t lkey, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = addr, .length = len, .lkey = lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};

	return ibv_post_recv(s->qp, &wr, &bad);
}

bool rc_poll(struct rc_side *s, struct ibv_wc *wc, double seconds)
{
	double end = rc_now() + seconds;
	int n;

	do {
		n = ibv_poll_cq(s->cq, 1, wc);
		CHECK(n >= 0, "ibv_poll_cq: %d", n);
		if (n)
			return true;
	} while (rc_now() < end);
	return false;
}

enum ibv_wc_status rc_wait(struct rc_side *s)
{
	struct ibv_wc wc;

	CHECK(rc_poll(s, &wc, 20), "no completion within 20 s");
	return wc.status;
}

void rc_expect_at(const char *file, int line, struct rc_side *s, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	if (!rc_poll(s, &wc, 20))
		rc_fail(file, line, "no completion within 20 s; expected %s",
			ibv_wc_status_str(status));
	if (wc.status != status)
		rc_fail(file, line, "completion: %s (opcode %d, vendor_err %#x); expected %s",
			ibv_wc_status_str(wc.status), wc.opcode, wc.vendor_err,
			ibv_wc_status_str(status));
}

/* ---- patterns ---- */

/* what is made here is this thread's own, and is moved as a whole */
enum { CHUNK = 4096 };

UNSANITIZED static uint64_t mix(uint64_t x)
{
	x *= 0x9e3779b97f4a7c15ull;
	x ^= x >> 29;
	return x * 0xbf58476d1ce4e5b9ull;
}

/* len bytes from pos on, in whole words: where in chunk they begin; chunk holds CHUNK bytes and a word */
UNSANITIZED static const uint8_t *make_pattern(uint64_t *chunk, uint64_t len, uint64_t pos, uint64_t seed)
{
	uint64_t i;

	for (i = 0; i * 8 < pos % 8 + len; i++)
		chunk[i] = mix(pos / 8 + i + (seed << 48));
	return (uint8_t *)chunk + pos % 8;
}

void rc_fill(void *p, uint64_t len, uint64_t pos, uint64_t seed)
{
	uint64_t chunk[CHUNK / 8 + 1], i, n;

	for (i = 0; i < len; i += n) {
		n = len - i < CHUNK ? len - i : CHUNK;
		memcpy((uint8_t *)p + i, make_pattern(chunk, n, pos + i, seed), n);
	}
}

uint64_t rc_differs(const void *p, uint64_t len, uint64_t pos, uint64_t seed)
{
	const uint8_t *b = p, *want;
	uint64_t chunk[CHUNK / 8 + 1], i, n, k;

	for (i = 0; i < len; i += n) {
		n = len - i < CHUNK ? len - i : CHUNK;
		want = make_pattern(chunk, n, pos + i, seed);
		if (!memcmp(b + i, want, n))
			continue;
		for (k = 0; k < n - 1 && b[i + k] == want[k]; k++)
			;
		return i + k;
	}
	return UINT64_MAX;
}

/* ---- a peer ---- */

struct rc_peer {
	int fd, pid; /* -1 and 0: here */
	struct rc_side side;
};

static void *map_kind(uint64_t size, enum rc_mem mem)
{
	int flags = mem == RC_SHARED ? MAP_SHARED | MAP_ANONYMOUS : MAP_PRIVATE | MAP_ANONYMOUS;
	int prot = mem == RC_READ_ONLY ? PROT_READ : PROT_READ | PROT_WRITE;

	if (mem == RC_SLOW)
		return rc_map_slow(size);
	return rc_map_as(size, prot, flags | (mem == RC_NORESERVE ? MAP_NORESERVE : 0), -1);
}

static void make_buf(struct rc_side *s, struct rc_msg *m)
{
	uint64_t size = m->arg[0], iova = m->arg[2];
	int access = (int)m->arg[1];
	uint64_t i = 0;

	while (i < RC_MAX_BUFS && s->buf[i].addr)
		i++;
	CHECK(i < RC_MAX_BUFS, "peer: too many buffers");
	struct rc_buf *b = &s->buf[i];

	b->addr = map_kind(size, (enum rc_mem)m->arg[3]);
	b->size = size;
	b->iova = iova == RC_SAME ? (uintptr_t)b->addr : iova;
	b->mr = ibv_reg_mr_iova2(s->pd, b->addr, size, b->iova, (unsigned)access);
	memcpy(m->arg,
	       (uint64_t[6]){i, b->iova, b->mr ? b->mr->rkey : 0, (uintptr_t)b->addr,
			     b->mr ? 0 : (uint64_t)errno},
	       sizeof(m->arg));
}

static void wait_recv(struct rc_side *s, struct rc_msg *m)
{
	struct ibv_wc wc = {0};
	bool got = rc_poll(s, &wc, (double)m->arg[0] / 1e3);

	memcpy(m->arg,
	       (uint64_t[6]){got, wc.status, wc.byte_len, wc.opcode, be32toh(wc.imm_data),
			     wc.wc_flags},
	       sizeof(m->arg));
}

static uint64_t next_event(struct rc_side *s, int ms)
{
	struct pollfd pfd = {.fd = s->ctx->async_fd, .events = POLLIN};
	struct ibv_async_event e;

	if (poll(&pfd, 1, ms) != 1)
		return UINT64_MAX;
	CHECK(!ibv_get_async_event(s->ctx, &e), "ibv_get_async_event: %s", strerror(errno));
	ibv_ack_async_event(&e);
	return e.event_type;
}

static uint64_t post_recv_list(struct rc_side *s, const struct rc_msg *m)
{
	struct ibv_sge sge[4];
	struct ibv_recv_wr *bad, wr = {.sg_list = sge, .num_sge = (int)m->num_sge};

	for (uint32_t i = 0; i < m->num_sge; i++) {
		struct rc_buf *b = &s->buf[m->sge[i].buf];

		sge[i] = (struct ibv_sge){b->iova + m->sge[i].offset, (uint32_t)m->sge[i].length,
					  b->mr->lkey};
	}
	return (uint64_t)ibv_post_recv(s->qp, &wr, &bad);
}

void (*rc_own)(struct rc_side *s, struct rc_msg *m);

static void handle(struct rc_side *s, struct rc_msg *m)
{
	struct rc_buf *b = &s->buf[m->arg[0] % RC_MAX_BUFS];
	uint8_t *at = b->addr + m->arg[1];
	uint64_t len = m->arg[2];
	struct ibv_qp_attr attr;

	switch (m->op) {
	case RC_MAKE_QP:
		rc_make_qp(s, &m->opt);
		m->hello = s->me;
		break;
	case RC_CONNECT:
		rc_connect(s, &m->hello);
		break;
	case RC_BUF:
		make_buf(s, m);
		break;
	case RC_UNBUF:
		CHECK(!b->mr || !ibv_dereg_mr(b->mr), "peer: ibv_dereg_mr: %s", strerror(errno));
		munmap(b->addr, b->size);
		memset(b, 0, sizeof(*b));
		break;
	case RC_FILL:
		rc_fill(at, len, m->arg[3], m->arg[4]);
		break;
	case RC_DIFFERS:
		m->arg[0] = rc_differs(at, len, m->arg[3], m->arg[4]);
		break;
	case RC_RECV:
		m->arg[0] = post_recv_list(s, m);
		break;
	case RC_WAIT:
		wait_recv(s, m);
		break;
	case RC_STATE:
		m->arg[0] = rc_state(s->qp);
		break;
	case RC_DESTROY_QP:
		CHECK(!ibv_destroy_qp(s->qp), "peer: ibv_destroy_qp: %s", strerror(errno));
		s->qp = NULL;
		break;
	case RC_TO_STATE:
		attr.qp_state = (enum ibv_qp_state)m->arg[0];
		m->arg[0] = (uint64_t)ibv_modify_qp(s->qp, &attr, IBV_QP_STATE);
		break;
	case RC_EVENT:
		m->arg[0] = next_event(s, (int)m->arg[0]);
		break;
	case RC_GET:
		memcpy(&m->arg[0], at, 8);
		break;
	case RC_SET:
		memcpy(at, &m->arg[2], 8);
		break;
	case RC_MUNMAP:
		CHECK(!munmap(at, len), "peer: munmap: %s", strerror(errno));
		break;
	case RC_REMAP:
		CHECK(mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
			   -1, 0) == at,
		      "peer: mmap: %s", strerror(errno));
		break;
	case RC_DONTNEED:
		CHECK(!madvise(at, len, MADV_DONTNEED), "peer: madvise: %s", strerror(errno));
		break;
	case RC_OWN:
		rc_own(s, m);
		break;
	case RC_PROTECT:
		CHECK(!mprotect(at, len, (int)m->arg[3]), "peer: mprotect: %s", strerror(errno));
		break;
	}
}

void rc_main(int argc, char **argv)
{
	struct rc_side s;
	struct rc_msg m;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3 || strcmp(argv[1], "--peer"))
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int fd = atoi(argv[2]);

	rc_open(&s);
	while (recv(fd, &m, sizeof(m), MSG_WAITALL) == sizeof(m)) {
		handle(&s, &m);
		CHECK(send(fd, &m, sizeof(m), MSG_NOSIGNAL) == sizeof(m), "peer: answer: %s",
		      strerror(errno));
	}
	rc_close(&s);
	exit(0);
}

struct rc_peer *rc_peer_start(void)
{
	const char *link = getenv("E2E_LINK");
	struct rc_peer *p = calloc(1, sizeof(*p));
	char number[16];
	int fd[2];

	CHECK(p, "no memory");
	p->fd = -1;
	if (!link || !strcmp(link, "loop")) {
		rc_open(&p->side);
		return p;
	}
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), "socketpair: %s",
	      strerror(errno));
	snprintf(number, sizeof(number), "%d", fd[1]);
	p->pid = fork();
	CHECK(p->pid >= 0, "fork: %s", strerror(errno));
	if (!p->pid) {
		fcntl(fd[1], F_SETFD, 0);
		execl("/proc/self/exe", "peer", "--peer", number, (char *)NULL);
		_exit(127);
	}
	close(fd[1]);
	p->fd = fd[0];
	return p;
}

bool rc_peer_is_process(const struct rc_peer *p)
{
	return p->pid;
}

int rc_peer_pid(const struct rc_peer *p)
{
	return p->pid;
}

struct rc_msg rc_call_msg(struct rc_peer *p, struct rc_msg m)
{
	enum rc_op op = m.op;

	if (!p->pid) {
		handle(&p->side, &m);
		return m;
	}
	CHECK(send(p->fd, &m, sizeof(m), MSG_NOSIGNAL) == sizeof(m) &&
		      recv(p->fd, &m, sizeof(m), MSG_WAITALL) == sizeof(m),
	      "the peer is gone in call %d", op);
	return m;
}

void rc_connect_peer(struct rc_side *s, struct rc_peer *p, const struct rc_opt *opt)
{
	struct rc_hello theirs =
		rc_call_msg(p, (struct rc_msg){.op = RC_MAKE_QP, .opt = *opt}).hello;

	rc_make_qp(s, opt);
	rc_connect(s, &theirs);
	rc_call_msg(p, (struct rc_msg){.op = RC_CONNECT, .hello = s->me});
}

struct rc_remote rc_peer_buf(struct rc_peer *p, uint64_t size, int access, uint64_t iova,
			     enum rc_mem mem)
{
	struct rc_msg m = rc_call_msg(
		p, (struct rc_msg){.op = RC_BUF, .arg = {size, (uint64_t)access, iova, mem}});

	rc_skip_if_memlocked((int)m.arg[4]);
	CHECK(!m.arg[4], "peer: registering %#lx bytes, access %#x: %s", (unsigned long)size,
	      (unsigned)access, strerror((int)m.arg[4]));
	return (struct rc_remote){
		.buf = m.arg[0], .iova = m.arg[1], .key = (uint32_t)m.arg[2], .addr = m.arg[3]};
}

void rc_peer_stop(struct rc_peer *p)
{
	int status;

	if (!p->pid) {
		rc_close(&p->side);
	} else {
		close(p->fd);
		CHECK(waitpid(p->pid, &status, 0) == p->pid && WIFEXITED(status) &&
			      !WEXITSTATUS(status),
		      "the peer ended with status %#x", status);
	}
	free(p);
}
