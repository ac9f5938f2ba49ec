/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Accesses in flight. A thread that is about to touch application memory announces range and key in
 * its slot of the segment, looks whether key and pages still stand, copies, and clears the slot. Who
 * takes a key or pages away clears them first and then waits for the slots that name them. Either the
 * access sees them gone, or who takes them sees the access: both sides store, then load, and all four
 * are seq_cst. Peers that place directly (hw/direct.c) announce theirs the same way, in memory that we
 * share with them for it: a hazard a peer, which counts until the connection to the peer hangs up. A peer
 * that is stopped amid a copy, or lies, is waited for, since its bytes may still come; it is named after a
 * second. Only our own user's processes are peers, and these may stop us in more direct ways.
 *
 * A thread claims a slot at its first access and gives it back when it ends. When all are taken the
 * rest share the last one, with a lock held from begin to end.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "umem/umem.h"
#include "umem/umem_internal.h"
#include "util/clock.h"
#include "util/log.h"

#define SHARED_SLOT (FAULTLINE_MAX_HAZARDS - 1)
#define SPINS	    200
#define ASK_SPINS   4096
#define PATIENCE_NS 1000000000ull /* with a peer, before it is named */

#define MAX_PEERS   (sizeof(((struct faultline_peers *)0)->hazard) / sizeof(struct faultline_hazard))

static struct faultline_hazard *hazards;
static struct faultline_peers *peers;
static uint64_t joined[MAX_PEERS / 64]; /* bit by slot; atomic */
static int peer_sock[MAX_PEERS];	/* of those that joined; atomic */
static unsigned generation; /* of `hazards`: counts dma_init() */
static unsigned used;	    /* slots ever claimed are below; atomic */
static unsigned claimed;    /* own slots taken now; atomic */
static struct fl_mutex shared_lock = FL_MUTEX_INIT(LOCK_LEAF);
static pthread_key_t exit_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* static TLS: no allocation at first touch, and quick */
#define IN_STATIC_TLS __attribute__((tls_model("initial-exec")))
static _Thread_local IN_STATIC_TLS struct {
	struct faultline_hazard *slot;
	unsigned generation;
} mine;

static void thread_exit(void *arg)
{
	struct faultline_hazard *h = mine.slot;

	mine.slot = mm_hazard = NULL;
	if (!h || mine.generation != generation)
		return;
	__atomic_fetch_sub(&claimed, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&h->owner, 0, __ATOMIC_RELEASE); /* pairs with claim() */
}

static void make_key(void)
{
	if (pthread_key_create(&exit_key, thread_exit))
		fl_warn("no thread key: slots of threads that end stay taken");
}

void dma_init(struct seg *seg)
{
	pthread_once(&once, make_key);
	hazards = seg->s->hazard;
	peers = seg->peers;
	memset(joined, 0, sizeof(joined));
	fl_mutex_init(&shared_lock, LOCK_LEAF);
	umem_implicit_init();
	umem_pinned_init();
	used = claimed = 0;
	generation++;
	mm_set_quiesce(dma_wait_range);
	mm_mirror_stop_dma(&seg->s->stop_dma);
	mm_count_scans(&seg->s->device[0].counter[FL_CNT_reclaim_scans]);
}

static void raise_used(unsigned to)
{
	unsigned cur = __atomic_load_n(&used, __ATOMIC_RELAXED);

	/* seq_cst: before the first announcement in the slot; pairs with dma_wait_range() and dma_wait_key() */
	while (cur < to && !__atomic_compare_exchange_n(&used, &cur, to, false, __ATOMIC_SEQ_CST,
							__ATOMIC_RELAXED))
		;
}

static __attribute__((noinline)) struct faultline_hazard *claim(void)
{
	uint32_t tid = (uint32_t)syscall(SYS_gettid);

	for (unsigned i = 0; __atomic_load_n(&claimed, __ATOMIC_RELAXED) < SHARED_SLOT && i < SHARED_SLOT;
	     i++) {
		uint32_t nobody = 0;

		/* acquire: who had it is through with it; pairs with thread_exit() */
		if (!__atomic_compare_exchange_n(&hazards[i].owner, &nobody, tid, false,
						 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			continue;
		__atomic_fetch_add(&claimed, 1, __ATOMIC_RELAXED);
		raise_used(i + 1);
		mine.slot = mm_hazard = &hazards[i];
		mine.generation = generation;
		pthread_setspecific(exit_key, mine.slot);
		return mine.slot;
	}
	raise_used(FAULTLINE_MAX_HAZARDS);
	fl_lock(&shared_lock);
	__atomic_store_n(&hazards[SHARED_SLOT].owner, tid, __ATOMIC_RELAXED);
	return &hazards[SHARED_SLOT];
}

struct faultline_hazard *dma_begin(uint64_t start, uint64_t end, uint32_t key)
{
	struct faultline_hazard *h = mine.slot;

	if (__builtin_expect(!h || mine.generation != generation, 0))
		h = claim();
	__atomic_store_n(&h->key, key, __ATOMIC_RELAXED);
	__atomic_store_n(&h->start, start, __ATOMIC_RELEASE);
	/* now it counts; the caller's looks come after. Pairs with overlaps() and uses(). */
	__atomic_store_n(&h->end, end, __ATOMIC_SEQ_CST);
	return h;
}

void dma_end(struct faultline_hazard *h)
{
	/* the copy is done before this is seen; pairs with overlaps() and uses() */
	__atomic_store_n(&h->end, __atomic_load_n(&h->start, __ATOMIC_RELAXED), __ATOMIC_RELEASE);
	if (__builtin_expect(h == &hazards[SHARED_SLOT], 0))
		fl_unlock(&shared_lock);
}

/*
 * `end` is read first: it was stored last, so start and key are of the same announcement or a later
 * one, and a later one looked at keys and pages after they were cleared.
 */
static bool overlaps(const struct faultline_hazard *h, uint64_t start, uint64_t end)
{
	uint64_t e = __atomic_load_n(&h->end, __ATOMIC_SEQ_CST);
	uint64_t s = __atomic_load_n(&h->start, __ATOMIC_ACQUIRE);

	return s < e && s < end && e > start;
}

static bool uses(const struct faultline_hazard *h, uint32_t key)
{
	uint64_t e = __atomic_load_n(&h->end, __ATOMIC_SEQ_CST);
	uint64_t s = __atomic_load_n(&h->start, __ATOMIC_ACQUIRE);

	return s != e && __atomic_load_n(&h->key, __ATOMIC_RELAXED) == key;
}

static void relax(unsigned *spins)
{
	if (++*spins < SPINS) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
	} else {
		sched_yield(); /* its thread was put off the CPU amid a copy */
	}
}

/*
 * Is it time to ask the kernel what the other is doing? Soon at first, and then seldom: on a busy machine each of
 * these yields may take milliseconds.
 */
static bool may_ask(unsigned spins)
{
	return spins > SPINS && (!(spins & (spins - 1)) || !(spins % ASK_SPINS));
}

/* ---- peers ---- */

/*
 * Has this peer ceased to exist? Its descriptors close after its last system call. The socket may be
 * another's by now: then the peer has left, and who asks sees that next.
 */
static bool peer_is_gone(uint32_t slot)
{
	struct pollfd pfd = {.fd = __atomic_load_n(&peer_sock[slot], __ATOMIC_RELAXED), .events = POLLRDHUP};

	if (!(__atomic_load_n(&joined[slot / 64], __ATOMIC_SEQ_CST) >> (slot % 64) & 1))
		return true;
	return poll(&pfd, 1, 0) > 0 && pfd.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL);
}

bool dma_peer_joined(uint32_t slot, int sock)
{
	struct faultline_hazard *h = &peers->hazard[slot];

	/* a hazard has one writer, and one connection that tells of his end */
	if (!peer_is_gone(slot))
		return false;
	/* what one who was killed amid a copy has left is not the announcement of who has the slot now */
	__atomic_store_n(&h->end, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&h->start, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&peer_sock[slot], sock, __ATOMIC_RELAXED);
	/* before the peer can announce anything: it has nothing to announce it in until we send it that */
	__atomic_fetch_or(&joined[slot / 64], 1ull << (slot % 64), __ATOMIC_SEQ_CST);
	return true;
}

void dma_peer_left(uint32_t slot, int sock)
{
	/* the slot may have another connection by now: this one's hang-up was seen after that came */
	if (__atomic_load_n(&peer_sock[slot], __ATOMIC_RELAXED) == sock)
		__atomic_fetch_and(&joined[slot / 64], ~(1ull << (slot % 64)), __ATOMIC_SEQ_CST);
}

static void name_peer(uint32_t slot)
{
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);

	getsockopt(__atomic_load_n(&peer_sock[slot], __ATOMIC_RELAXED), SOL_SOCKET, SO_PEERCRED, &cred, &len);
	fl_warn("memory or a key is being taken away, and process %d, which accesses it directly, has not finished for "
		"a second (is it stopped, or in a debugger?); waiting for it",
		cred.pid);
}

/* Waits for the peers' hazards of which busy() says that they matter. */
static void wait_peers(bool (*busy)(const struct faultline_hazard *h, const void *arg), const void *arg)
{
	for (unsigned w = 0; w < MAX_PEERS / 64; w++) {
		uint64_t bits = __atomic_load_n(&joined[w], __ATOMIC_SEQ_CST);

		for (; bits; bits &= bits - 1) {
			uint32_t slot = w * 64 + (uint32_t)__builtin_ctzll(bits);
			uint64_t since = 0;
			unsigned spins = 0;

			while (busy(&peers->hazard[slot], arg)) {
				relax(&spins);
				if (spins > SPINS && peer_is_gone(slot))
					break;
				if (!may_ask(spins))
					continue;
				if (!since) {
					since = now_ns();
				} else if (since != UINT64_MAX && now_ns() - since > PATIENCE_NS) {
					name_peer(slot);
					since = UINT64_MAX; /* once */
				}
			}
		}
	}
}

struct range {
	uint64_t start, end;
};

static bool peer_overlaps(const struct faultline_hazard *h, const void *arg)
{
	const struct range *r = arg;

	return overlaps(h, r->start, r->end);
}

static bool peer_uses(const struct faultline_hazard *h, const void *arg)
{
	return uses(h, *(const uint32_t *)arg);
}

void dma_wait_peers(void)
{
	/* whatever it touches */
	const struct range all = {0, UINT64_MAX};

	wait_peers(peer_overlaps, &all);
}

/* ---- waiting ---- */

/*
 * A signal handler that takes memory away amid an access of its thread: the access goes on when the handler
 * returns, the handler when the memory is gone, and that waits for the access. What is written then is the
 * handler's doing: the access is not waited for. A hook tells (mm/hooks.c). Without one the thread sleeps in
 * its system call until userfaultfd's event has been read, and the kernel is asked for that, now and then.
 */
static bool waits_for_us(const struct faultline_hazard *h, unsigned spins)
{
	static const char *const calls[] = {"9 ", "11 ", "12 ", "25 ", "28 ", "67 "}; /* of x86-64 */
	char path[48], text[8] = "";
	ssize_t n;
	int fd;

	if (__atomic_load_n(&h->unmapping, __ATOMIC_SEQ_CST))
		return true;
	if (!may_ask(spins))
		return false;
	snprintf(path, sizeof(path), "/proc/self/task/%u/syscall", __atomic_load_n(&h->owner, __ATOMIC_RELAXED));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	/* mmap, munmap, brk, mremap, madvise, shmdt */
	for (size_t i = 0; n > 0 && i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!strncmp(text, calls[i], strlen(calls[i])))
			return true;
	return false;
}

void dma_wait_range(uint64_t start, uint64_t end)
{
	unsigned n = __atomic_load_n(&used, __ATOMIC_SEQ_CST);

	/* Not for our own: a signal handler that unmaps what the copy it interrupted works on. */
	for (unsigned i = 0; i < n; i++) {
		unsigned spins = 0;

		while (&hazards[i] != mine.slot && overlaps(&hazards[i], start, end)) {
			relax(&spins);
			if (waits_for_us(&hazards[i], spins))
				break;
		}
	}
	wait_peers(peer_overlaps, &(struct range){start, end});
}

void dma_wait_key(uint32_t key)
{
	unsigned n = __atomic_load_n(&used, __ATOMIC_SEQ_CST), spins = 0;

	for (unsigned i = 0; i < n; i++)
		while (uses(&hazards[i], key))
			relax(&spins);
	wait_peers(peer_uses, &key);
}
