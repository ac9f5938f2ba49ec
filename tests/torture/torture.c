/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Torture: threads that change memory under the device's hands, with every byte accounted for.
 *
 * A lane is a thread with an area of pages, several MRs on it, and a QP connected to itself. It works in
 * batches: posts a few WRITEs, SENDs, READs and atomics, changes memory and registrations between and after the
 * posts, waits for all completions, and then looks at every word of the area. A word written by the device
 * names lane, place and operation, so that for each word there are at most a few values it may have:
 *
 *  - covered by an operation that was posted after the last change of its page: that operation's, exactly;
 *  - covered before a change that loses contents: that, or zero;
 *  - not covered: as it was; or zero where the change loses contents.
 *
 * A batch may fail only where an operation touched a page that was absent or protected at some time, or a key
 * that was deregistered; then what it covers may also be as it was. Pages moved away by mremap() must not
 * change once it has returned. An atomic counter that all lanes share must add up.
 *
 * Beside them runs a rude thread: it reads the areas through MRs of its own, prefetches, discards what can be
 * had again, maps, unmaps and forks.
 *
 * usage: torture [--seconds N] [--lanes N] [--seed N]; each thread's choices follow from the seed.
 */
#include <faultline/odp.h>
#include <pthread.h>
#include <sys/wait.h>
#include "tests/e2e/rc.h"

#define PAGES	  24u
#define WORDS	  512u /* a page */
#define ALL_WORDS (PAGES * WORDS)
#define MAX_OPS	  6
#define OP_WORDS  (3 * WORDS)
#define MAX_LANES 16
#define KEYS	  3
#define SCRATCH	  1 /* pages moved away at once: more might lie in several mappings, which cannot be moved as one */
#define CHANGED	  3 /* at once, at most */

enum kind { WRITE, SEND, READ, SWAP, ADD, KINDS };

struct op {
	enum kind kind;
	unsigned first, n; /* words of the area */
	unsigned key;
	uint64_t seq;
	uint64_t compare; /* SWAP */
	bool done, failed;
};

struct lane {
	unsigned id, seed;
	struct rc_side s;
	uint64_t *area, *src, *dst;
	struct ibv_mr *src_mr, *dst_mr, *counter_mr, *key[KEYS];
	bool shared, implicit; /* of a file; key 2 is of an implicit region */
	int fd;
	uint64_t *want;
	uint64_t seq;
	uint64_t batches, ops, errors, adds, maybe_adds;

	/* of the batch */
	struct op op[MAX_OPS];
	unsigned num_ops, num_wcs;
	bool failed;
	int zeroed[PAGES], maybe[PAGES]; /* so many operations were posted before it was last; -1: not */
	bool bad[PAGES], pinned[PAGES], dead[KEYS];
	unsigned moved, moved_first;
	uint64_t *scratch, moved_as[SCRATCH * WORDS];
};

static struct lane lanes[MAX_LANES];
static unsigned num_lanes = 3, seed = 1;
static bool stop;
static uint64_t *counter;
static pthread_mutex_t qp_mutex = PTHREAD_MUTEX_INITIALIZER; /* rc_make_qp() is for one thread */

static unsigned dice(struct lane *l, unsigned sides)
{
	return (unsigned)rand_r(&l->seed) % sides;
}

static uint64_t stamp(unsigned lane, unsigned word, uint64_t seq)
{
	return 0xa5ull << 56 | (uint64_t)lane << 48 | (uint64_t)word << 32 | (seq & 0xffffffff);
}

static bool stamp_of(uint64_t v, unsigned lane, unsigned word)
{
	return !v || v >> 32 == stamp(lane, word, 0) >> 32;
}

static void fresh_qp(struct rc_side *s)
{
	struct rc_opt opt = rc_default;

	opt.send_wr = opt.recv_wr = 64;
	pthread_mutex_lock(&qp_mutex);
	rc_make_qp(s, &opt);
	rc_connect(s, &s->me);
	pthread_mutex_unlock(&qp_mutex);
}

/* ---- the area ---- */

static void map(struct lane *l, unsigned page, unsigned n)
{
	void *at = l->area + page * WORDS;
	int flags = l->shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;

	CHECK(mmap(at, n * PAGE, PROT_READ | PROT_WRITE, flags | MAP_FIXED, l->fd, l->shared ? page * PAGE : 0) == at,
	      "mmap: %s", strerror(errno));
}

static void reg_key(struct lane *l, unsigned k)
{
	bool all = k == 2 && l->implicit;

	l->key[k] = all ? ibv_reg_mr(l->s.pd, NULL, SIZE_MAX, ALL_ACCESS | ODP)
			: ibv_reg_mr(l->s.pd, l->area, PAGES * PAGE, ALL_ACCESS | ODP);
	if (!l->key[k] && all) {
		l->implicit = false; /* the device has none */
		reg_key(l, k);
	}
	CHECK(l->key[k], "ibv_reg_mr: %s", strerror(errno));
}

/* ---- a batch: posting ---- */

static void post(struct lane *l)
{
	static const enum ibv_wr_opcode opcode[KINDS] = {IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ,
							 IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
	unsigned i = l->num_ops;
	struct op *op = &l->op[i];
	uint64_t *src = l->src + i * OP_WORDS, *dst = l->dst + i * OP_WORDS;
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	bool to_area;
	int err;

	*op = (struct op){.kind = (enum kind)dice(l, KINDS), .key = dice(l, KEYS), .seq = ++l->seq};
	if (l->dead[op->key])
		op->kind = ADD;
	op->n = op->kind == SWAP ? 1 : 1 + dice(l, dice(l, 3) ? 64 : OP_WORDS);
	op->first = dice(l, ALL_WORDS - op->n);
	to_area = op->kind == WRITE || op->kind == SEND;
	for (unsigned w = 0; to_area && w < op->n; w++)
		src[w] = stamp(l->id, op->first + w, op->seq);
	sge = to_area ? (struct ibv_sge){(uintptr_t)src, op->n * 8, l->src_mr->lkey}
		      : (struct ibv_sge){(uintptr_t)dst, op->n * 8, l->dst_mr->lkey};
	wr.opcode = opcode[op->kind];
	switch (op->kind) {
	case SEND:
		CHECK(!rc_post_recv(&l->s, (uintptr_t)(l->area + op->first), op->n * 8, l->key[op->key]->lkey, 100 + i),
		      "post_recv");
		l->num_wcs++;
		break;
	case SWAP:
		op->compare = l->want[op->first];
		wr.wr.atomic.remote_addr = (uintptr_t)(l->area + op->first);
		wr.wr.atomic.rkey = l->key[op->key]->rkey;
		wr.wr.atomic.compare_add = op->compare;
		wr.wr.atomic.swap = stamp(l->id, op->first, op->seq);
		sge.length = 8;
		break;
	case ADD:
		op->n = 0;
		wr.wr.atomic.remote_addr = (uintptr_t)counter;
		wr.wr.atomic.rkey = l->counter_mr->rkey;
		wr.wr.atomic.compare_add = 1;
		sge.length = 8;
		break;
	default:
		wr.wr.rdma.remote_addr = (uintptr_t)(l->area + op->first);
		wr.wr.rdma.rkey = l->key[op->key]->rkey;
	}
	err = ibv_post_send(l->s.qp, &wr, &bad);
	CHECK(!err, "ibv_post_send: %s", strerror(err));
	l->num_wcs++;
	l->num_ops++;
	l->ops++;
}

/* ---- a batch: changing memory meanwhile ---- */

static void lost(struct lane *l, int *when, unsigned page, unsigned n)
{
	for (unsigned p = page; p < page + n; p++)
		when[p] = (int)l->num_ops;
}

static void absent(struct lane *l, unsigned page, unsigned n)
{
	for (unsigned p = page; p < page + n; p++)
		l->bad[p] = true;
}

static void move_away(struct lane *l, unsigned page, unsigned n)
{
	void *at = l->area + page * WORDS;

	CHECK(mremap(at, n * PAGE, n * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, l->scratch) == l->scratch, "mremap: %s",
	      strerror(errno));
	/* from now on nobody writes there */
	memcpy(l->moved_as, l->scratch, n * PAGE);
	l->moved = n;
	l->moved_first = page * WORDS;
	map(l, page, n);
}

static void change(struct lane *l)
{
	unsigned n = 1 + dice(l, CHANGED), page = dice(l, PAGES - n), k;
	void *at = l->area + page * WORDS;

	for (unsigned p = page; p < page + n; p++)
		if (l->pinned[p])
			return;
	switch (dice(l, 8)) {
	case 0: /* of a file the contents stay */
		CHECK(!madvise(at, n * PAGE, MADV_DONTNEED), "MADV_DONTNEED: %s", strerror(errno));
		if (!l->shared)
			lost(l, l->zeroed, page, n);
		break;
	case 1:
		if (l->shared) {
			CHECK(!madvise(at, n * PAGE, MADV_REMOVE), "MADV_REMOVE: %s", strerror(errno));
			lost(l, l->zeroed, page, n);
		} else {
			CHECK(!madvise(at, n * PAGE, MADV_FREE), "MADV_FREE: %s", strerror(errno));
			lost(l, l->maybe, page, n);
		}
		break;
	case 2: /* mapped over: never absent */
		map(l, page, n);
		if (!l->shared)
			lost(l, l->zeroed, page, n);
		break;
	case 3:
	case 4:
		absent(l, page, n);
		CHECK(!munmap(at, n * PAGE), "munmap: %s", strerror(errno));
		if (dice(l, 2))
			sched_yield();
		map(l, page, n);
		if (!l->shared)
			lost(l, l->zeroed, page, n);
		break;
	case 5:
		if (l->shared || l->moved)
			break;
		absent(l, page, SCRATCH);
		move_away(l, page, SCRATCH);
		lost(l, l->zeroed, page, SCRATCH);
		break;
	case 6:
		absent(l, page, n);
		CHECK(!mprotect(at, n * PAGE, dice(l, 2) ? PROT_READ : PROT_NONE), "mprotect: %s", strerror(errno));
		if (dice(l, 2))
			sched_yield();
		CHECK(!mprotect(at, n * PAGE, PROT_READ | PROT_WRITE), "mprotect: %s", strerror(errno));
		break;
	default:
		k = dice(l, KEYS);
		if (l->dead[k] || dice(l, 4))
			break;
		l->dead[k] = true;
		CHECK(!ibv_dereg_mr(l->key[k]), "ibv_dereg_mr: %s", strerror(errno));
	}
}

static void prefetch(struct lane *l, unsigned key)
{
	unsigned n = 1 + dice(l, 6), page = dice(l, PAGES - n);
	struct ibv_sge sge = {(uintptr_t)(l->area + page * WORDS), n * (uint32_t)PAGE, l->key[key]->lkey};

	ibv_advise_mr(l->s.pd, (enum ibv_advise_mr_advice)dice(l, 3), dice(l, 2) ? IBV_ADVISE_MR_FLAG_FLUSH : 0, &sge,
		      1);
}

/* ---- a batch: the account ---- */

static bool touches_bad(struct lane *l, const struct op *op)
{
	if (op->kind == ADD)
		return false;
	if (l->dead[op->key])
		return true;
	for (unsigned p = op->first / WORDS; p <= (op->first + op->n - 1) / WORDS; p++)
		if (l->bad[p])
			return true;
	return false;
}

static void wait_all(struct lane *l)
{
	bool allowed = false, said = false;
	struct ibv_wc wc;

	for (unsigned i = 0; i < l->num_ops; i++)
		allowed |= touches_bad(l, &l->op[i]);
	for (unsigned i = 0; i < l->num_wcs; i++) {
		struct op *op;

		CHECK(rc_poll(&l->s, &wc, 40), "lane %u: %u of %u completions within 40 s (seed %u)", l->id, i, l->num_wcs,
		      seed);
		op = &l->op[wc.wr_id % 100];
		if (wc.status == IBV_WC_SUCCESS) {
			op->done |= wc.wr_id < 100;
			continue;
		}
		op->failed |= wc.wr_id < 100;
		CHECK(allowed, "lane %u: %s, and all it touched was there all the time (seed %u)", l->id,
		      ibv_wc_status_str(wc.status), seed);
		if (wc.status != IBV_WC_WR_FLUSH_ERR && !said)
			CHECK(touches_bad(l, op), "lane %u: %s of an operation on good memory (seed %u)", l->id,
			      ibv_wc_status_str(wc.status), seed);
		said |= wc.status != IBV_WC_WR_FLUSH_ERR;
		l->failed = true;
	}
	l->errors += l->failed;
}

/* may the device have put v there by one of the operations before `until`? */
static bool by_some_op(struct lane *l, unsigned word, uint64_t v, unsigned until)
{
	for (unsigned i = 0; i < until; i++) {
		struct op *op = &l->op[i];

		if (op->kind != READ && op->kind != ADD && word - op->first < op->n && v == stamp(l->id, word, op->seq))
			return true;
	}
	return false;
}

/* the last of the operations before `until` that has written the word; NULL: none has */
static struct op *last_writer(struct lane *l, unsigned word, unsigned until)
{
	for (unsigned i = until; i-- > 0;) {
		struct op *op = &l->op[i];

		if (op->kind == READ || op->kind == ADD || word - op->first >= op->n)
			continue;
		if (op->kind != SWAP || l->dst[i * OP_WORDS] == op->compare)
			return op;
	}
	return NULL;
}

static void account_word(struct lane *l, unsigned word)
{
	unsigned page = word / WORDS;
	uint64_t v = l->area[word], prev = l->want[word];
	struct op *op = last_writer(l, word, l->num_ops);
	int nth = op ? (int)(op - l->op) : -1;
	bool zero = l->zeroed[page] > nth || l->maybe[page] > nth, ok;

	if (l->failed)
		ok = v == prev || by_some_op(l, word, v, l->num_ops) ||
		     (!v && (l->zeroed[page] >= 0 || l->maybe[page] >= 0));
	else if (op)
		ok = v == stamp(l->id, word, op->seq) || (zero && !v);
	else if (l->zeroed[page] >= 0)
		ok = !v;
	else
		ok = v == prev || (l->maybe[page] >= 0 && !v);
	CHECK(ok, "lane %u, word %u of page %u: %#lx, was %#lx; %s by operation %d, zeroed at %d, %d; %s (seed %u)", l->id,
	      word % WORDS, page, v, prev, op ? "written" : "not written", nth, l->zeroed[page], l->maybe[page],
	      l->failed ? "with an error" : "no error", seed);
	l->want[word] = v;
}

/* what READs and atomics brought, with l->want from before the batch */
static void account_results(struct lane *l)
{
	for (unsigned i = 0; i < l->num_ops; i++) {
		const uint64_t *got = l->dst + i * OP_WORDS;
		struct op *op = &l->op[i];

		if (op->kind == ADD) {
			l->adds += op->done;
			l->maybe_adds += op->failed;
		}
		if (!op->done || (op->kind != READ && op->kind != SWAP))
			continue;
		for (unsigned w = 0; w < op->n; w++) {
			unsigned word = op->first + w, page = word / WORDS;
			struct op *by = last_writer(l, word, i);
			bool changed = l->zeroed[page] >= 0 || l->maybe[page] >= 0, ok;

			ok = got[w] == (by ? stamp(l->id, word, by->seq) : l->want[word]);
			if (!ok && changed)
				ok = !got[w] || got[w] == l->want[word] || by_some_op(l, word, got[w], i);
			CHECK(ok, "lane %u: %s of word %u of page %u brought %#lx, not %#lx (seed %u)", l->id,
			      op->kind == READ ? "READ" : "atomic", word % WORDS, page, got[w], l->want[word], seed);
		}
	}
}

static void account_moved(struct lane *l)
{
	for (unsigned w = 0; w < l->moved * WORDS; w++) {
		unsigned word = l->moved_first + w;
		uint64_t v = l->scratch[w];

		CHECK(v == l->moved_as[w], "lane %u: moved memory changed after mremap() (seed %u)", l->id, seed);
		CHECK(!v || v == l->want[word] || by_some_op(l, word, v, l->num_ops),
		      "lane %u: %#lx in moved memory (seed %u)", l->id, v, seed);
	}
	if (l->moved)
		munmap(l->scratch, l->moved * PAGE);
	l->moved = 0;
}

static void batch(struct lane *l)
{
	unsigned n = 1 + dice(l, MAX_OPS), pin_page = dice(l, PAGES - 4);
	bool pins = !dice(l, 4) &&
		    !faultline_mr_pin(l->key[0], l->area + pin_page * WORDS, 4 * PAGE);

	l->num_ops = l->num_wcs = 0;
	l->failed = false;
	memset(l->bad, 0, sizeof(l->bad));
	memset(l->zeroed, -1, sizeof(l->zeroed));
	memset(l->maybe, -1, sizeof(l->maybe));
	for (unsigned p = 0; p < 4 && pins; p++)
		l->pinned[pin_page + p] = true;
	memset(l->dst, 0xee, MAX_OPS * OP_WORDS * 8);
	if (!dice(l, 3))
		prefetch(l, dice(l, KEYS));
	while (l->num_ops < n) {
		post(l);
		if (!dice(l, 2))
			change(l);
	}
	wait_all(l);
	account_moved(l);
	/* what MADV_FREE took is kept from now on, if it is still there */
	for (unsigned p = 0; p < PAGES; p++)
		if (l->maybe[p] >= 0)
			__atomic_fetch_or(&l->area[p * WORDS], 0, __ATOMIC_RELAXED);
	account_results(l);
	for (unsigned w = 0; w < ALL_WORDS; w++)
		account_word(l, w);
	if (l->failed)
		fresh_qp(&l->s);
	if (pins && !l->dead[0])
		CHECK(!faultline_mr_unpin(l->key[0], l->area + pin_page * WORDS, 4 * PAGE), "unpin");
	memset(l->pinned, 0, sizeof(l->pinned));
	for (unsigned k = 0; k < KEYS; k++)
		if (l->dead[k]) {
			l->dead[k] = false;
			reg_key(l, k);
		}
	l->batches++;
}

static void lane_open(struct lane *l, unsigned id)
{
	size_t buf = MAX_OPS * OP_WORDS * 8;

	l->id = id;
	l->seed = seed * 1000 + id;
	l->shared = id % 2;
	l->implicit = true;
	l->fd = l->shared ? memfd_create("torture", MFD_CLOEXEC) : -1;
	CHECK(!l->shared || !ftruncate(l->fd, PAGES * PAGE), "ftruncate: %s", strerror(errno));
	l->area = rc_map(PAGES * PAGE);
	map(l, 0, PAGES);
	l->scratch = rc_map(SCRATCH * PAGE);
	munmap(l->scratch, SCRATCH * PAGE);
	l->src = rc_map_as(buf, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
	l->dst = rc_map(buf);
	l->want = calloc(ALL_WORDS, sizeof(*l->want));
	CHECK(l->want, "no memory");
	rc_open(&l->s);
	l->src_mr = rc_reg(&l->s, l->src, buf, ODP);
	l->dst_mr = rc_reg(&l->s, l->dst, buf, IBV_ACCESS_LOCAL_WRITE);
	l->counter_mr = rc_reg(&l->s, counter, PAGE, ALL_ACCESS | ODP);
	for (unsigned k = 0; k < KEYS; k++)
		reg_key(l, k);
	fresh_qp(&l->s);
}

static void lane_close(struct lane *l)
{
	for (unsigned k = 0; k < KEYS; k++)
		CHECK(!ibv_dereg_mr(l->key[k]), "ibv_dereg_mr: %s", strerror(errno));
	ibv_dereg_mr(l->src_mr);
	ibv_dereg_mr(l->dst_mr);
	ibv_dereg_mr(l->counter_mr);
	rc_close(&l->s);
}

static void *lane_thread(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		batch(arg);
	return NULL;
}

/* ---- the rude thread ---- */

static void look_in(struct lane *me, struct lane *l)
{
	struct ibv_mr *mr = rc_reg(&me->s, l->area, PAGES * PAGE, ALL_ACCESS | ODP);
	struct ibv_sge sge = {(uintptr_t)l->area, PAGES * PAGE, mr->lkey};
	unsigned n = 1 + dice(me, OP_WORDS), first = dice(me, ALL_WORDS - n);
	enum ibv_wc_status status;

	if (dice(me, 2))
		ibv_advise_mr(me->s.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1);
	CHECK(!rc_post(&me->s, IBV_WR_RDMA_READ, (uintptr_t)me->dst, n * 8, me->dst_mr->lkey,
		       (uintptr_t)(l->area + first), mr->rkey),
	      "post");
	status = rc_wait(&me->s);
	for (unsigned w = 0; status == IBV_WC_SUCCESS && w < n; w++)
		CHECK(stamp_of(me->dst[w], l->id, first + w), "read %#lx in lane %u, word %u (seed %u)", me->dst[w], l->id,
		      first + w, seed);
	if (status != IBV_WC_SUCCESS)
		fresh_qp(&me->s);
	CHECK(!ibv_dereg_mr(mr), "ibv_dereg_mr: %s", strerror(errno));
}

/* The child's copy of private memory stays as it was at the fork, whatever the device writes for the parent. */
static void fork_one(const struct lane *l)
{
#ifndef __SANITIZE_THREAD__
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0, "fork: %s", strerror(errno));
	if (!pid) {
		uint64_t before = l->dst[0];

		usleep(2000);
		_exit(__atomic_load_n(&l->dst[0], __ATOMIC_RELAXED) != before);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status, "the child's memory changed: status %#x", status);
#endif
}

static void *rude(void *arg)
{
	struct lane *me = arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct lane *l = &lanes[dice(me, num_lanes)];
		size_t size = (1 + dice(me, 64)) * PAGE;
		char *m;

		switch (dice(me, 8)) {
		case 0: /* it comes back from its file */
			madvise(l->src, MAX_OPS * OP_WORDS * 8, MADV_DONTNEED);
			break;
		case 1:
			m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			CHECK(m != MAP_FAILED, "mmap: %s", strerror(errno));
			m[size - 1] = 1;
			munmap(m, size);
			break;
		case 2:
			if (!dice(me, 8))
				fork_one(l);
			break;
		default:
			look_in(me, l);
		}
		me->ops++;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static struct lane me;
	double seconds = 2;
	pthread_t t[MAX_LANES + 1];
	uint64_t batches = 0, ops = 0, errors = 0, adds = 0, maybe = 0;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--seconds"))
			seconds = atof(argv[i + 1]);
		else if (!strcmp(argv[i], "--lanes"))
			num_lanes = (unsigned)atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--seed"))
			seed = (unsigned)atoi(argv[i + 1]);
		else
			FAIL("no option %s", argv[i]);
	}
	CHECK(num_lanes && num_lanes <= MAX_LANES, "1 to %d lanes", MAX_LANES);
	counter = rc_map(PAGE);
	for (unsigned i = 0; i < num_lanes; i++)
		lane_open(&lanes[i], i);
	lane_open(&me, MAX_LANES);
	for (unsigned i = 0; i < num_lanes; i++)
		pthread_create(&t[i], NULL, lane_thread, &lanes[i]);
	pthread_create(&t[num_lanes], NULL, rude, &me);
	usleep((unsigned)(seconds * 1e6));
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i <= num_lanes; i++)
		pthread_join(t[i], NULL);
	for (unsigned i = 0; i < num_lanes; i++) {
		batches += lanes[i].batches;
		ops += lanes[i].ops;
		errors += lanes[i].errors;
		adds += lanes[i].adds;
		maybe += lanes[i].maybe_adds;
		lane_close(&lanes[i]);
	}
	lane_close(&me);
	CHECK(*counter >= adds && *counter <= adds + maybe, "the counter is %lu after %lu to %lu additions (seed %u)", *counter,
	      adds, adds + maybe, seed);
	CHECK(batches >= num_lanes && ops > batches, "%lu batches", batches);
	printf("seed %u: %lu operations in %lu batches, %lu of them with errors; %lu rude acts\n", seed, ops, batches, errors,
	       me.ops);
	return 0;
}
