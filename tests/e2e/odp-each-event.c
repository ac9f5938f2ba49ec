/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A table: everything that takes memory away, by every kind of region: explicit and implicit on demand, whose
 * pages the device had or had not; a pinned range in each of them; pinned. Of four pages some are concerned.
 * On demand, they are as the CPU has them at the next access, the others have not been faulted anew, and as
 * many pages are counted as invalidated as were concerned and told of. Pinned, the device has the pages that
 * were there, and what is mapped in their place stays as it is.
 *
 * Run with the preloaded hooks and without them: `told` says which of the two tells of an event.
 */
#include "rc.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <faultline/odp.h>
#include <linux/userfaultfd.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGES 4
#define LEN   (PAGES * PAGE)
#define OLD   1 /* pattern of what was there */
#define OTHER 2 /* of what is put in its place */

enum mem { ANON, SHARED, SYSV, HEAP };
enum outcome {
	GONE,	 /* nothing is there */
	ZERO,	 /* zeros, in other pages */
	REPLACED, /* the other pattern, in other pages */
	KEPT,	 /* what was there, the same pages */
	FREED,	 /* zeros or what was there */
	READABLE, /* what was there, to be read alone */
	GUARDED, /* what was there, out of reach */
};
enum { BY_HOOK = 1, BY_KERNEL = 2 };

static struct rc_side a, b;
static uint8_t *buf, *aside;
static struct ibv_mr *buf_mr, *all;
static int fd;
static char now[128];

/* ---- the events: m is four pages, of which they concern some ---- */

static void unmap(uint8_t *m)
{
	CHECK(!munmap(m + PAGE, 2 * PAGE), "%s: %m", now);
}

static void unmap_unseen(uint8_t *m)
{
	CHECK(!syscall(SYS_munmap, m + PAGE, 2 * PAGE), "%s: %m", now);
}

static void move_away(uint8_t *m)
{
	CHECK(mremap(m + PAGE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, aside) == aside, "%s: %m", now);
}

static void move_onto(uint8_t *m)
{
	CHECK(mremap(aside, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, m + PAGE) == m + PAGE, "%s: %m", now);
}

static void move_and_leave(uint8_t *m)
{
	CHECK(mremap(m + PAGE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, aside) == aside,
	      "%s: %m", now);
}

static void shrink(uint8_t *m)
{
	CHECK(mremap(m, LEN, 2 * PAGE, 0) == m, "%s: %m", now);
}

static void advise(uint8_t *m, int advice)
{
	CHECK(!madvise(m + PAGE, 2 * PAGE, advice), "%s: %m", now);
}

static void dont_need(uint8_t *m)
{
	advise(m, MADV_DONTNEED);
}

static void free_lazily(uint8_t *m)
{
	advise(m, MADV_FREE);
}

static void remove_pages(uint8_t *m)
{
	advise(m, MADV_REMOVE);
}

static void punch(uint8_t *m)
{
	CHECK(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, 2 * PAGE), "%s: %m", now);
}

static void cut_off(uint8_t *m)
{
	CHECK(!ftruncate(fd, 2 * PAGE), "%s: %m", now);
}

static void map_over(uint8_t *m)
{
	CHECK(mmap(m + PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		      m + PAGE,
	      "%s: %m", now);
}

static void attach_over(uint8_t *m)
{
	int shm = shmget(IPC_PRIVATE, 2 * PAGE, 0600);

	CHECK(shm >= 0 && shmat(shm, m + PAGE, SHM_REMAP) == m + PAGE, "%s: %m", now);
	shmctl(shm, IPC_RMID, NULL);
}

static void lower_break(uint8_t *m)
{
	CHECK(sbrk(0) == m + LEN && !brk(m + 2 * PAGE), "%s: %m", now);
}

static void lower_break_by(uint8_t *m)
{
	CHECK(sbrk(0) == m + LEN && sbrk(-(intptr_t)(2 * PAGE)) == m + LEN, "%s: %m", now);
}

static void detach(uint8_t *m)
{
	CHECK(!shmdt(m), "%s: %m", now);
}

static void protect(uint8_t *m)
{
	CHECK(!mprotect(m + PAGE, 2 * PAGE, PROT_READ), "%s: %m", now);
}

static void guard(uint8_t *m)
{
	CHECK(!mprotect(m + PAGE, 2 * PAGE, PROT_NONE), "%s: %m", now);
}

static const struct event {
	const char *name;
	void (*happen)(uint8_t *m);
	enum mem mem;
	unsigned from, to; /* pages concerned */
	enum outcome outcome;
	unsigned told;
	bool same_pages; /* whoever holds them: no others come in their place */
} events[] = {
	{"munmap", unmap, ANON, 1, 3, GONE, BY_HOOK | BY_KERNEL, false},
	{"munmap of shared memory", unmap, SHARED, 1, 3, GONE, BY_HOOK | BY_KERNEL, false},
	{"munmap that no hook sees", unmap_unseen, ANON, 1, 3, GONE, BY_KERNEL, false},
	{"mremap away", move_away, ANON, 1, 3, GONE, BY_HOOK | BY_KERNEL, false},
	{"mremap onto", move_onto, ANON, 1, 3, REPLACED, BY_HOOK | BY_KERNEL, false},
	{"mremap with DONTUNMAP", move_and_leave, ANON, 1, 3, ZERO, BY_HOOK | BY_KERNEL, false},
	{"mremap to less", shrink, ANON, 2, 4, GONE, BY_HOOK | BY_KERNEL, false},
	{"MADV_DONTNEED", dont_need, ANON, 1, 3, ZERO, BY_HOOK | BY_KERNEL, false},
	{"MADV_DONTNEED of shared memory", dont_need, SHARED, 1, 3, KEPT, BY_HOOK | BY_KERNEL, true},
	{"MADV_FREE", free_lazily, ANON, 1, 3, FREED, BY_HOOK | BY_KERNEL, true},
	{"MADV_REMOVE", remove_pages, SHARED, 1, 3, ZERO, BY_HOOK | BY_KERNEL, false},
	{"a hole punched by descriptor", punch, SHARED, 1, 3, ZERO, BY_HOOK, false},
	{"ftruncate", cut_off, SHARED, 2, 4, GONE, BY_HOOK, false},
	{"mmap over", map_over, ANON, 1, 3, ZERO, BY_HOOK | BY_KERNEL, false},
	{"mmap over shared memory", map_over, SHARED, 1, 3, ZERO, BY_HOOK | BY_KERNEL, false},
	{"shmat over", attach_over, ANON, 1, 3, ZERO, BY_HOOK, false},
	{"brk", lower_break, HEAP, 2, 4, GONE, BY_HOOK | BY_KERNEL, false},
	{"sbrk", lower_break_by, HEAP, 2, 4, GONE, BY_HOOK | BY_KERNEL, false},
	{"shmdt", detach, SYSV, 0, 4, GONE, BY_HOOK, false},
	{"mprotect to be read", protect, ANON, 1, 3, READABLE, 0, true},
	{"mprotect to PROT_NONE", guard, ANON, 1, 3, GUARDED, 0, true},
};

static unsigned sources;

/* ---- the memory ---- */

static uint8_t *make(const struct event *e)
{
	uint8_t *m = NULL;
	int shm;

	switch (e->mem) {
	case ANON:
		m = rc_map(LEN);
		break;
	case SHARED:
		fd = memfd_create("e2e", MFD_CLOEXEC);
		CHECK(fd >= 0 && !ftruncate(fd, LEN), "memfd: %m");
		m = rc_map_as(LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
		break;
	case SYSV:
		shm = shmget(IPC_PRIVATE, LEN, 0600);
		m = shmat(shm, NULL, 0);
		CHECK(shm >= 0 && m != MAP_FAILED, "shmat: %m");
		shmctl(shm, IPC_RMID, NULL);
		break;
	case HEAP:
		CHECK(sbrk((intptr_t)(-(uintptr_t)sbrk(0) % PAGE)) != (void *)-1, "sbrk");
		m = sbrk(LEN);
		CHECK(m != (void *)-1, "sbrk");
		break;
	}
	rc_fill(m, LEN, 0, OLD);
	aside = rc_map(2 * PAGE);
	rc_fill(aside, 2 * PAGE, 0, OTHER);
	return m;
}

static void unmake(const struct event *e, uint8_t *m)
{
	if (e->mem == HEAP)
		CHECK(sbrk(0) == m + LEN && sbrk(-(intptr_t)LEN) != (void *)-1, "sbrk");
	else
		munmap(m, LEN);
	if (e->mem == SHARED)
		close(fd);
	munmap(aside, 2 * PAGE);
}

/* memory where there is none now */
static void map_anew(const struct event *e, uint8_t *m)
{
	uint8_t *at = m + e->from * PAGE;
	size_t len = (e->to - e->from) * PAGE;

	if (e->happen == cut_off)
		CHECK(!ftruncate(fd, LEN), "ftruncate");
	else if (e->mem == HEAP)
		CHECK(sbrk((intptr_t)len) == at, "sbrk");
	else
		CHECK(mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			   0) == at, "%s: mmap: %m", now);
}

/* ---- accesses ---- */

static enum ibv_wc_status rdma(enum ibv_wr_opcode op, const uint8_t *at, uint32_t len, struct ibv_mr *mr)
{
	if (rc_state(a.qp) != IBV_QPS_RTS)
		rc_pair(&a, &b, &rc_default);
	CHECK(!rc_post(&a, op, (uintptr_t)buf, len, buf_mr->lkey, (uintptr_t)at, mr->rkey), "%s: post", now);
	return rc_wait(&a);
}

static void refused(enum ibv_wr_opcode op, const uint8_t *at, struct ibv_mr *mr)
{
	enum ibv_wc_status s = rdma(op, at, 100, mr);

	CHECK(s == IBV_WC_REM_ACCESS_ERR, "%s: %s: %s", now, op == IBV_WR_RDMA_READ ? "READ" : "WRITE",
	      ibv_wc_status_str(s));
	CHECK(rc_state(a.qp) == IBV_QPS_ERR && rc_state(b.qp) == IBV_QPS_ERR, "%s: QPs in error", now);
}

static void get(const uint8_t *at, uint32_t len, struct ibv_mr *mr)
{
	enum ibv_wc_status s;

	memset(buf, 0x77, len);
	s = rdma(IBV_WR_RDMA_READ, at, len, mr);
	CHECK(s == IBV_WC_SUCCESS, "%s: READ: %s", now, ibv_wc_status_str(s));
}

static void put(const uint8_t *at, uint32_t len, struct ibv_mr *mr, uint64_t seed)
{
	enum ibv_wc_status s;

	rc_fill(buf, len, 0, seed);
	s = rdma(IBV_WR_RDMA_WRITE, at, len, mr);
	CHECK(s == IBV_WC_SUCCESS, "%s: WRITE: %s", now, ibv_wc_status_str(s));
}

static bool zeros(const uint8_t *p, size_t len)
{
	return !p[0] && !memcmp(p, p + 1, len - 1);
}

static bool has(const uint8_t *p, size_t len, uint64_t pos, uint64_t seed)
{
	return rc_differs(p, len, pos, seed) == UINT64_MAX;
}

/* the CPU and the device see each other's writes */
static void in_step(uint8_t *at, uint32_t len, struct ibv_mr *mr)
{
	static uint64_t seed = 100;

	put(at, len, mr, ++seed);
	CHECK(has(at, len, 0, seed), "%s: the CPU does not see a WRITE", now);
	at[len / 2] ^= 0xff;
	get(at, len, mr);
	CHECK(!memcmp(at, buf, len), "%s: READ gives other data than the CPU has", now);
}

static struct faultline_mr_counters count(struct ibv_mr *mr)
{
	struct faultline_mr_counters c;

	CHECK(!faultline_mr_counters(mr, &c), "counters");
	return c;
}

/* ---- what must be so afterwards ---- */

static void on_demand(const struct event *e, uint8_t *m, struct ibv_mr *mr)
{
	uint8_t *at = m + e->from * PAGE;
	uint32_t len = (e->to - e->from) * PAGE;

	switch (e->outcome) {
	case GONE:
		refused(IBV_WR_RDMA_READ, at, mr);
		refused(IBV_WR_RDMA_WRITE, at + len - 100, mr);
		map_anew(e, m);
		get(at, len, mr);
		CHECK(zeros(buf, len), "%s: READ of new memory gives old data", now);
		break;
	case ZERO:
		get(at, len, mr);
		CHECK(zeros(buf, len), "%s: READ gives old data", now);
		break;
	case REPLACED:
		get(at, len, mr);
		CHECK(has(buf, len, 0, OTHER), "%s: READ gives old data", now);
		break;
	case KEPT:
		get(at, len, mr);
		CHECK(has(buf, len, e->from * PAGE, OLD), "%s: READ gives other data", now);
		break;
	case FREED:
		get(at, len, mr);
		for (uint32_t off = 0; off < len; off += PAGE)
			CHECK(zeros(buf + off, PAGE) || has(buf + off, PAGE, e->from * PAGE + off, OLD),
			      "%s: READ gives what never was", now);
		break;
	case READABLE:
		refused(IBV_WR_RDMA_WRITE, at, mr);
		get(at, len, mr);
		CHECK(has(at, len, e->from * PAGE, OLD) && has(buf, len, e->from * PAGE, OLD), "%s: data", now);
		break;
	case GUARDED:
		refused(IBV_WR_RDMA_READ, at, mr);
		refused(IBV_WR_RDMA_WRITE, at, mr);
		break;
	}
	if (e->outcome == READABLE || e->outcome == GUARDED)
		CHECK(!mprotect(at, len, PROT_READ | PROT_WRITE), "mprotect");
	if (e->outcome == GUARDED)
		CHECK(has(at, len, e->from * PAGE, OLD), "%s: was written", now);
	in_step(at, len, mr);
}

/* pinned: the pages that were there */
static void held(const struct event *e, uint8_t *m, struct ibv_mr *mr)
{
	uint8_t *at = m + e->from * PAGE;
	uint32_t len = (e->to - e->from) * PAGE;

	/* when nobody tells of it, and the place has other pages, those are what is found */
	bool found = !(sources & e->told) && (e->outcome == ZERO || e->outcome == REPLACED);

	get(at, len, mr);
	if (!found)
		CHECK(has(buf, len, e->from * PAGE, OLD), "%s: READ gives other data than the pinned pages hold", now);
	put(at, len, mr, 7);
	get(at, len, mr);
	CHECK(has(buf, len, 0, 7), "%s: READ does not give what was written", now);
	if (e->outcome == READABLE || e->outcome == GUARDED)
		CHECK(!mprotect(at, len, PROT_READ | PROT_WRITE), "mprotect");
	if (e->outcome == GONE)
		map_anew(e, m);
	if (e->same_pages || found)
		CHECK(has(at, len, 0, 7), "%s: the CPU does not see what was written to pages that stayed", now);
	else if (e->outcome == REPLACED)
		CHECK(has(at, len, 0, OTHER), "%s: memory in its place was written", now);
	else
		CHECK(zeros(at, len), "%s: memory in its place was written", now);
	if (e->happen == move_away || e->happen == move_and_leave)
		CHECK(has(aside, len, 0, 7), "%s: the pages are elsewhere, without what was written", now);
}

enum kind { EXPLICIT, IMPLICIT, COLD, IMPLICIT_COLD, HOT, IMPLICIT_HOT, PINNED, KINDS };
static const char *const kind_name[] = {"on demand", "implicit", "on demand, untouched", "implicit, untouched",
	"hot range", "hot range of implicit", "pinned"};

static void one(const struct event *e, enum kind kind)
{
	bool implicit = kind == IMPLICIT || kind == IMPLICIT_COLD || kind == IMPLICIT_HOT;
	bool hot = kind == HOT || kind == IMPLICIT_HOT, cold = kind == COLD || kind == IMPLICIT_COLD;
	uint8_t *m = make(e);
	struct ibv_mr *mr = implicit ? all : rc_reg(&b, m, LEN, ALL_ACCESS | (kind == PINNED ? 0 : ODP));
	struct faultline_mr_counters before, after;
	size_t concerned = e->to - e->from;

	snprintf(now, sizeof(now), "%s, %s", e->name, kind_name[kind]);
	if (hot)
		CHECK(!faultline_mr_pin(mr, m + e->from * PAGE, concerned * PAGE), "%s: faultline_mr_pin", now);
	if (!cold) {
		put(m, LEN, mr, OLD);
		CHECK(has(m, LEN, 0, OLD), "%s: data", now);
	}
	before = count(mr);
	e->happen(m);
	/* an access that comes after the event waits until it has been dealt with */
	if (e->to - e->from < PAGES) {
		uint8_t *left = m + (e->from ? 0 : e->to) * PAGE;

		get(left, PAGE, mr);
		CHECK(has(buf, PAGE, (uint64_t)(left - m), OLD), "%s: READ of what stayed", now);
		if (!cold)
			CHECK(count(mr).page_faults == before.page_faults, "%s: what stayed was faulted anew", now);
	}
	if (hot || kind == PINNED) {
		held(e, m, mr);
		after = count(mr);
		CHECK(after.page_invalidations == before.page_invalidations &&
			      after.pinned_pages == before.pinned_pages,
		      "%s: %lu pages invalidated", now, after.page_invalidations - before.page_invalidations);
		if (hot) {
			CHECK(!faultline_mr_unpin(mr, m + e->from * PAGE, concerned * PAGE), "%s: unpin", now);
			CHECK(count(mr).pinned_pages == 0, "%s: pinned still", now);
			in_step(m + e->from * PAGE, (uint32_t)(concerned * PAGE), mr);
		}
	} else {
		on_demand(e, m, mr);
		after = count(mr);
		if (cold || sources & e->told)
			CHECK(after.page_invalidations - before.page_invalidations == (cold ? 0 : concerned),
			      "%s: %lu pages invalidated of %zu", now,
			      after.page_invalidations - before.page_invalidations, cold ? 0 : concerned);
	}
	if (!implicit)
		CHECK(!ibv_dereg_mr(mr), "dereg");
	unmake(e, m);
}

int main(int argc, char **argv)
{
	struct ibv_device_attr_ex attr;

	rc_main(argc, argv);
	rc_open(&a);
	rc_open(&b);
	if (dlsym(RTLD_DEFAULT, "faultline_preload_ops"))
		sources |= BY_HOOK;
	if (syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY) >= 0)
		sources |= BY_KERNEL;
	CHECK(!ibv_query_device_ex(a.ctx, NULL, &attr), "query");
	buf = rc_map(LEN);
	buf_mr = rc_reg(&a, buf, LEN, ALL_ACCESS);
	if (attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) {
		all = ibv_reg_mr(b.pd, NULL, SIZE_MAX, ALL_ACCESS | ODP);
		CHECK(all, "implicit region");
	}
	rc_pair(&a, &b, &rc_default);
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		for (enum kind k = 0; k < KINDS; k++)
			if (all || (k != IMPLICIT && k != IMPLICIT_COLD && k != IMPLICIT_HOT))
				one(&events[i], k);
	CHECK(!all || !ibv_dereg_mr(all), "dereg");
	CHECK(!ibv_dereg_mr(buf_mr), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
