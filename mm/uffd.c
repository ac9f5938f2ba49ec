/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The source of invalidations that works for unmodified programs: userfaultfd.
 *
 * Ranges are registered for write protection in its asynchronous form, and nothing is ever write
 * protected, so that the application's own faults cost what they always did. What we want are the
 * events: UNMAP, REMOVE and REMAP, for memory of every kind. The thread that changes the mapping sleeps
 * in the kernel until its event has been read. Hence the order here: an event is announced (poll), all
 * device access stops, the event is read (now that thread runs on, and may map something else there),
 * its range is taken from the device's tables, access goes on. UNMAP and REMAP come after the page
 * tables changed; REMOVE comes before, so pages may be found present once more in between. That
 * costs a fault less than it should, and never wrong data, since access is by virtual address.
 *
 * What the event thread calls, allocates and frees and maps nothing: the application may be asleep
 * inside free(), with the allocator's lock, until this thread has read its event.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "mm/mm_internal.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/provoke.h"

#define STACK_SIZE (2u << 20) /* address space: what is touched is small, sanitizers want more */
#define MAX_MSGS   32
#define MAX_STRAYS 64

int mm_stop_dma;
static uint32_t no_mirror, *stop_mirror = &no_mirror;

static int uffd = -1;
static enum { UFFD_NOT_TRIED, UFFD_RUNS, UFFD_NONE } state;
static char wanted[sizeof(((struct fl_config *)0)->notifier)] = "auto";
static bool without_wp_async;
static bool is_async; /* of uffd; set before it runs */
static int start_error;	   /* why it does not run */
static int not_registered; /* why a range last was not; by the watch lock */
static void *stack;
static sem_t thread_ready;

/* Where mremap() has carried watched memory, to be let go. One writer, the event thread; readers hold the
 * watch lock. When it is full a mapping stays watched, which costs events nobody needs. */
static struct fl_mutex stray_lock = FL_MUTEX_INIT(LOCK_LEAF);
static struct {
	uint64_t start, end;
} strays[MAX_STRAYS];
static unsigned num_strays;

/* ---- the stop ---- */

static void stop_dma(void)
{
	/* pairs with dma_begin(): announce, then look at this (umem/dma.c) */
	__atomic_store_n(stop_mirror, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&mm_stop_dma, 1, __ATOMIC_SEQ_CST);
	notifier_quiesce();
}

static void start_dma(void)
{
	__atomic_store_n(stop_mirror, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&mm_stop_dma, 0, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &mm_stop_dma, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void mm_mirror_stop_dma(uint32_t *word)
{
	stop_mirror = word; /* before there is a thread that stores to it, or after a fork */
}

void mm_wait_start_dma(void)
{
	while (__atomic_load_n(&mm_stop_dma, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &mm_stop_dma, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
}

/* ---- the event thread ---- */

static void invalidate(uint64_t start, uint64_t end, enum mmu_notifier_event event)
{
	struct mmu_notifier_range range = {.start = start, .end = end, .event = event};

	mmu_notifier_invalidate_range_start(&range);
	mmu_notifier_invalidate_range_end(&range);
}

static void add_stray(uint64_t start, uint64_t end)
{
	fl_lock(&stray_lock);
	if (num_strays < MAX_STRAYS) {
		strays[num_strays].start = start;
		strays[num_strays++].end = end;
	}
	fl_unlock(&stray_lock);
}

static void handle(const struct uffd_msg *msg)
{
	switch (msg->event) {
	case UFFD_EVENT_UNMAP:
		invalidate(msg->arg.remove.start, msg->arg.remove.end, MMU_NOTIFY_UNMAP);
		break;
	case UFFD_EVENT_REMOVE:
		invalidate(msg->arg.remove.start, msg->arg.remove.end, MMU_NOTIFY_CLEAR);
		break;
	case UFFD_EVENT_REMAP:
		/* the old place goes by an UNMAP as well, but for MREMAP_DONTUNMAP */
		invalidate(msg->arg.remap.from, msg->arg.remap.from + msg->arg.remap.len,
			   MMU_NOTIFY_UNMAP);
		add_stray(msg->arg.remap.to, msg->arg.remap.to + msg->arg.remap.len);
		break;
	default:
		break;
	}
}

static void *event_thread(void *arg)
{
	struct uffd_msg msg[MAX_MSGS];
	struct pollfd pfd = {.fd = uffd, .events = POLLIN};

	/* thread-local data of what we call comes into being now, while the heap may be used */
	invalidate(0, 0, MMU_NOTIFY_CLEAR);
	sem_post(&thread_ready);
	for (;;) {
		ssize_t n;

		if (poll(&pfd, 1, -1) <= 0)
			continue;
		stop_dma();
		provoke_race(PROVOKE_EVENT_SEEN);
		n = read(pfd.fd, msg, sizeof(msg));
		for (ssize_t i = 0; n > 0 && i < n / (ssize_t)sizeof(msg[0]); i++)
			handle(&msg[i]);
		start_dma();
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return NULL; /* the descriptor was closed under us: by the application */
	}
}

static int start_thread(void)
{
	pthread_attr_t attr;
	pthread_t t;
	int err;

	if (!stack)
		return -ENOMEM;
	sem_init(&thread_ready, 0, 0);
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, stack, STACK_SIZE);
	err = mm_thread(&t, &attr, event_thread, NULL, "fl-uffd");
	pthread_attr_destroy(&attr);
	if (err)
		return err;
	while (sem_wait(&thread_ready))
		;
	return 0;
}

/* ---- the descriptor ---- */

static int open_uffd(bool *async)
{
	static const uint64_t events =
		UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP;
	/* Before 6.7: plain write protection, for what it takes; before 5.19 that is anonymous memory. */
	static const uint64_t features[] = {
		UFFD_FEATURE_WP_ASYNC,
		UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
		UFFD_FEATURE_PAGEFAULT_FLAG_WP,
	};
	int err = ENOSYS;
	long fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

	if (fd < 0 && errno == EINVAL) /* before 5.11 */
		fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	for (size_t i = without_wp_async; i < sizeof(features) / sizeof(features[0]); i++) {
		struct uffdio_api api = {.api = UFFD_API, .features = events | features[i]};

		if (!ioctl((int)fd, UFFDIO_API, &api)) {
			*async = features[i] == UFFD_FEATURE_WP_ASYNC;
			return (int)fd;
		}
		err = errno;
	}
	close((int)fd);
	return -err;
}

int mm_probe_userfaultfd(bool *async)
{
	int fd = open_uffd(async);

	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

bool uffd_runs(void)
{
	return state == UFFD_RUNS;
}

bool uffd_is_async(void)
{
	return state == UFFD_RUNS && is_async;
}

static void complain(bool loud)
{
	static bool said;

	if (said || !start_error)
		return;
	said = loud;
	fl_log(!loud ? LOG_INFO : !strcmp(wanted, "userfaultfd") ? LOG_ERR : LOG_WARN,
	       "userfaultfd: %s; on-demand regions are not told when memory is unmapped (access stays "
	       "safe). Allow the userfaultfd system call (containers: the seccomp profile) or set "
	       "vm.unprivileged_userfaultfd=1 on kernels before 5.11",
	       strerror(-start_error));
}

bool uffd_start(bool loud)
{
	if (state == UFFD_RUNS)
		return true;
	if (state == UFFD_NOT_TRIED) {
		state = UFFD_NONE;
		if (!strcmp(wanted, "none")) {
			fl_info("memory events: none, by the setting 'notifier'");
			return false;
		}
		uffd = open_uffd(&is_async);
		start_error = uffd < 0 ? uffd : start_thread();
		if (!start_error) {
			state = UFFD_RUNS;
			return true;
		}
		if (uffd >= 0)
			close(uffd);
		uffd = -1;
	}
	complain(loud);
	return false;
}

void uffd_init(const struct fl_config *cfg)
{
	/* before there can be a hole that the application has made, and wants to fill by MAP_FIXED */
	if (!stack) {
		stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
		if (stack == MAP_FAILED)
			stack = NULL;
	}
	without_wp_async = fl_config_lists(cfg->without, "wp-async");
	if (cfg->notifier[0])
		memcpy(wanted, cfg->notifier, sizeof(wanted));
}

void uffd_fork_child(void)
{
	if (uffd >= 0)
		close(uffd);
	uffd = -1;
	state = UFFD_NOT_TRIED;
	num_strays = 0;
	fl_mutex_init(&stray_lock, LOCK_LEAF);
	mm_stop_dma = 0;
	stop_mirror = &no_mirror; /* it was in the parent's segment */
	/* the thread stayed with the parent, its stack is ours alone and serves again */
}

/* ---- ranges ---- */

#define REGISTER_TRIES 16

static int do_register(uint64_t start, uint64_t end)
{
	struct uffdio_register r = {
		.range = {.start = start, .len = end - start},
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	if (!ioctl(uffd, UFFDIO_REGISTER, &r))
		return 0;
	not_registered = errno;
	return -errno;
}

const char *uffd_unwatched_why(void)
{
	return strerror(not_registered);
}

static int do_unregister(uint64_t start, uint64_t end)
{
	struct uffdio_range r = {.start = start, .len = end - start};

	return ioctl(uffd, UFFDIO_UNREGISTER, &r) ? -errno : 0;
}

/*
 * Calls fn for each mapping's part of [start, end); returns their number and that of fn's failures. Only whole
 * huge pages can be watched, and only whole ones, of which no other region has a part, are let go.
 */
static unsigned each_vma(uint64_t start, uint64_t end, int (*fn)(uint64_t, uint64_t), unsigned *failed)
{
	unsigned n = 0;
	struct vma v;

	for (*failed = 0; start < end && !vma_find(start, &v) && v.start < end; start = v.end, n++) {
		uint64_t from = v.start > start ? v.start : start, to = v.end < end ? v.end : end;
		uint64_t in_page = v.page_size - 1;

		if (fn == do_register) {
			from &= ~in_page;
			to = (to + in_page) & ~in_page;
		} else {
			from = (from + in_page) & ~in_page;
			to &= ~in_page;
		}
		if (from < to && fn(from, to))
			++*failed;
	}
	return n;
}

enum uffd_watch uffd_register(uint64_t start, uint64_t end)
{
	unsigned n, failed;

	if (state != UFFD_RUNS)
		return UFFD_UNWATCHED;
	for (int i = 0; i < REGISTER_TRIES; i++) {
		/* one call does holes too, but not a mapping it does not take, nor nothing at all */
		if (!do_register(start, end))
			return UFFD_WATCHED;
		n = each_vma(start, end, do_register, &failed);
		if (!n)
			return UFFD_NOTHING_MAPPED;
		if (!failed)
			return UFFD_WATCHED;
		/* it is not taken, or was there when it was looked at, and gone when it was to be taken */
	}
	return UFFD_UNWATCHED;
}

void uffd_unregister(uint64_t start, uint64_t end)
{
	unsigned failed;

	if (state == UFFD_RUNS && do_unregister(start, end))
		each_vma(start, end, do_unregister, &failed);
}

void uffd_drop_strays(void)
{
	uint64_t start, end;

	for (;;) {
		fl_lock(&stray_lock);
		if (!num_strays) {
			fl_unlock(&stray_lock);
			return;
		}
		num_strays--;
		start = strays[num_strays].start;
		end = strays[num_strays].end;
		fl_unlock(&stray_lock);
		notifier_each_uncovered(start, end, uffd_unregister);
	}
}
