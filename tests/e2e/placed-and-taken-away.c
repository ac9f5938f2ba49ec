/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process whose memory is written directly by a peer, amid which it takes that away: deregisters, unmaps, puts
 * the QP into error, destroys it, takes its rights. When the call has returned not a byte lands any more. Two
 * threads do so, and two threads of the peer write. Then peers are killed amid their copies: what they had
 * announced holds nobody up. Arguments: seconds, peers to kill.
 */
#include "counters.h"
#include "rc.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SPAN  (4 * PAGE)
#define PAIRS 2
#define MARK  0xee
#define WATCH_US 200
/* nobody else's, the sanitizers' neither */
#ifdef __SANITIZE_THREAD__
#define PLACE 0x4000000000ull
#else
#define PLACE 0x300000000000ull
#endif

/* what both processes see */
static struct shared {
	_Atomic bool stop;
	bool patient; /* nothing is taken away: retries are for a busy machine */
	_Atomic uint64_t placed;
	struct pair {
		struct rc_hello target, initiator;
		uint64_t addr;
		uint32_t rkey;
		_Atomic uint32_t offered, answered, ready, ended; /* the round they are of */
		_Atomic uint64_t done;				  /* WRITEs of this round */
	} pair[PAIRS];
} *sh;

static void spin_until(_Atomic uint32_t *v, uint32_t round)
{
	while (atomic_load(v) != round && !atomic_load(&sh->stop))
		usleep(20);
}

/* rc.c's PSNs are for one thread */
static void make_qp(struct rc_side *s)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct rc_opt opt = rc_default;

	if (!sh->patient) {
		opt.timeout = 10; /* 4 ms */
		opt.retry = 3;
	}
	pthread_mutex_lock(&lock);
	rc_make_qp(s, &opt);
	pthread_mutex_unlock(&lock);
}

/* ---- the initiator ---- */

static void *initiator(void *arg)
{
	struct pair *p = arg;
	struct rc_side s = {0};
	uint8_t *m;
	struct ibv_mr *mr;

	rc_open(&s);
	m = rc_map(SPAN);
	memset(m, 0xaa, SPAN);
	mr = rc_reg(&s, m, SPAN, ALL_ACCESS);
	for (uint32_t round = 1, n = 0;; round++) {
		struct ibv_wc wc = {.status = IBV_WC_SUCCESS};

		spin_until(&p->offered, round);
		if (atomic_load(&sh->stop))
			break;
		make_qp(&s);
		p->initiator = s.me;
		atomic_store(&p->answered, round);
		rc_connect(&s, &p->target);
		spin_until(&p->ready, round);
		while (wc.status == IBV_WC_SUCCESS && !atomic_load(&sh->stop)) {
			uint32_t len = 1 + n++ * 397 % 6000, at = n * 1031 % (uint32_t)(SPAN - 6000);

			CHECK(!rc_post(&s, IBV_WR_RDMA_WRITE, (uintptr_t)m, len, mr->lkey, p->addr + at, p->rkey), "post");
			CHECK(rc_poll(&s, &wc, 20), "a WRITE has no end");
			atomic_fetch_add(&p->done, 1);
			for (double until = rc_now() + 3e-6; rc_now() < until;)
				;
		}
		CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_REM_ACCESS_ERR ||
			      wc.status == IBV_WC_RETRY_EXC_ERR || wc.status == IBV_WC_REM_INV_REQ_ERR,
		      "status %d", wc.status);
		atomic_store(&p->ended, round);
	}
	atomic_store(&sh->placed, counter_now(FL_CNT_direct_placements));
	return NULL;
}

/* ---- the target ---- */

static void watch(const uint8_t *buf, uint8_t value, const char *what, uint32_t round)
{
	usleep(WATCH_US);
	for (uint64_t i = 0; i < SPAN; i++)
		CHECK(buf[i] == value, "round %u: byte %lu was written after %s had returned", round, i, what);
}

static void mark_and_watch(uint8_t *buf, const char *what, uint32_t round)
{
	memset(buf, MARK, SPAN);
	watch(buf, MARK, what, round);
}

static void to_err(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "to ERR");
}

/* at a place of one's own: no other thread's mmap() comes there while it is unmapped */
static void *map_at(void *place)
{
	return mmap(place, SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

/* takes something away, and sees that it is */
static void take_away(struct rc_side *s, uint8_t *buf, struct ibv_mr **mr, unsigned how, uint32_t round)
{
	struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_READ};

	switch (how) {
	case 0:
		CHECK(!ibv_dereg_mr(*mr), "ibv_dereg_mr");
		*mr = NULL;
		mark_and_watch(buf, "ibv_dereg_mr()", round);
		break;
	case 1:
		to_err(s->qp);
		mark_and_watch(buf, "the change to ERR", round);
		break;
	case 2:
		CHECK(!ibv_destroy_qp(s->qp), "ibv_destroy_qp");
		s->qp = NULL;
		mark_and_watch(buf, "ibv_destroy_qp()", round);
		break;
	case 3:
		CHECK(!ibv_modify_qp(s->qp, &attr, IBV_QP_ACCESS_FLAGS), "less rights");
		mark_and_watch(buf, "the change of its rights", round);
		break;
	default: /* pinned: its pages stay the device's, and what comes to be at their addresses is not */
		CHECK(!munmap(buf, SPAN), "munmap");
		CHECK(map_at(buf) == buf, "mmap: %s", strerror(errno));
		watch(buf, 0, "munmap()", round);
	}
}

static void offer(struct rc_side *s, struct pair *p, uint8_t *buf, const struct ibv_mr *mr, uint32_t round)
{
	make_qp(s);
	p->target = s->me;
	p->addr = (uintptr_t)buf;
	p->rkey = mr->rkey;
	atomic_store(&p->done, 0);
	atomic_store(&p->offered, round);
	spin_until(&p->answered, round);
	rc_connect(s, &p->initiator);
	atomic_store(&p->ready, round);
}

static _Atomic uint32_t rounds;

static void *target(void *arg)
{
	struct pair *p = arg;
	unsigned seed = (unsigned)(p - sh->pair) + 3;
	struct rc_side s = {0};

	rc_open(&s);
	for (uint32_t round = 1; !atomic_load(&sh->stop); round++) {
		unsigned how = (unsigned)rand_r(&seed) % 5, enough = 10 + (unsigned)rand_r(&seed) % 60;
		uint8_t *buf = map_at((void *)(PLACE + ((uint64_t)(p - sh->pair) << 30)));
		struct ibv_mr *mr;

		CHECK(buf != MAP_FAILED, "mmap");
		memset(buf, MARK, SPAN);
		mr = rc_reg(&s, buf, SPAN, ALL_ACCESS | (how < 4 && round & 1 ? ODP : 0));
		offer(&s, p, buf, mr, round);
		while (atomic_load(&p->done) < enough && atomic_load(&p->ended) != round && !atomic_load(&sh->stop))
			usleep(20);
		usleep((unsigned)rand_r(&seed) % 50);
		take_away(&s, buf, &mr, how, round);
		if (s.qp)
			to_err(s.qp);
		spin_until(&p->ended, round);
		if (mr)
			CHECK(!ibv_dereg_mr(mr), "ibv_dereg_mr");
		munmap(buf, SPAN);
		atomic_fetch_add(&rounds, 1);
	}
	return NULL;
}

/* ---- main ---- */

static pid_t start_initiator(char *self, int fd, int pairs, bool patient)
{
	char fd_text[16], pairs_text[16];
	char *argv[] = {self, "--initiator", fd_text, pairs_text, NULL};
	pid_t pid;

	snprintf(fd_text, sizeof(fd_text), "%d", fd);
	snprintf(pairs_text, sizeof(pairs_text), "%d", pairs);
	memset(sh, 0, sizeof(*sh));
	sh->patient = patient;
	pid = fork();
	if (!pid) {
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	CHECK(pid > 0, "fork");
	return pid;
}

static void run_threads(void *(*fn)(void *), int pairs, double seconds)
{
	pthread_t t[PAIRS];

	for (int i = 0; i < pairs; i++)
		CHECK(!pthread_create(&t[i], NULL, fn, &sh->pair[i]), "pthread_create");
	if (seconds > 0) {
		usleep((useconds_t)(seconds * 1e6));
		atomic_store(&sh->stop, true);
	}
	for (int i = 0; i < pairs; i++)
		pthread_join(t[i], NULL);
}

static void killed(char *self, int fd, int peers)
{
	struct rc_side s = {0};
	unsigned seed = 9;

	rc_open(&s);
	for (int i = 0; i < peers; i++) {
		uint8_t *buf = rc_map(SPAN);
		struct ibv_mr *mr = rc_reg(&s, buf, SPAN, ALL_ACCESS);
		pid_t pid = start_initiator(self, fd, 1, true);

		offer(&s, &sh->pair[0], buf, mr, 1);
		while (atomic_load(&sh->pair[0].done) < 20)
			usleep(50);
		usleep((unsigned)rand_r(&seed) % 100);
		CHECK(!kill(pid, SIGKILL), "kill");
		if (i & 1) /* it is gone, what it has announced is not; else it may be dying still */
			CHECK(waitpid(pid, NULL, 0) == pid, "waitpid");
		CHECK(!ibv_dereg_mr(mr), "ibv_dereg_mr");
		mark_and_watch(buf, "ibv_dereg_mr()", (uint32_t)i);
		if (!(i & 1))
			CHECK(waitpid(pid, NULL, 0) == pid, "waitpid");
		munmap(buf, SPAN);
	}
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 3;
	int peers = argc > 2 ? atoi(argv[2]) : 10, fd, status;
	bool is_initiator = argc == 4 && !strcmp(argv[1], "--initiator");
	pid_t pid;

	setenv("FAULTLINE_LOG", "error", 1); /* what is taken away here is told for pages */
	fd = is_initiator ? atoi(argv[2]) : memfd_create("shared", 0);
	CHECK(fd >= 0 && (is_initiator || !ftruncate(fd, sizeof(*sh))), "memfd_create");
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(sh != MAP_FAILED, "mmap");
	if (is_initiator) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_threads(initiator, atoi(argv[3]), 0);
		return 0;
	}
	alarm(50 + (unsigned)seconds); /* who waits for ever fails */
	pid = start_initiator(argv[0], fd, PAIRS, false);
	run_threads(target, PAIRS, seconds);
	CHECK(waitpid(pid, &status, 0) == pid && !status, "the initiator: %#x", status);
	printf("%u rounds, %lu placements\n", atomic_load(&rounds), atomic_load(&sh->placed));
	if (!atomic_load(&sh->placed))
		rc_skip("no direct placement here: may a process reach into another (ptrace_scope)?");
	killed(argv[0], fd, peers);
	return 0;
}
