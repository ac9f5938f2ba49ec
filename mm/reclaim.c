/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel reclaims: no event tells that it swapped a page out or dropped it from the page cache. By
 * its address the page stays right, but who accesses it waits for the disk; for the device that would be the
 * engine, and every queue pair with it. So, while memory is short, a thread looks over what devices have in
 * their tables and takes out what is not in the CPU's: the next access is a page fault, which a worker
 * resolves and which pauses one queue pair.
 *
 * Memory is short when the kernel says so: a PSI trigger on the process's own control group, else on the whole
 * machine (where waiting for the group's limit counts too). Without PSI (CONFIG_PSI off, a container that
 * hides it, before Linux 6.5 without CAP_SYS_RESOURCE) the process's own major faults must tell: they are looked at every 2 s,
 * so the first accesses do stall, and only then is reclaim noticed. A look at all pages every so often instead
 * would cost all processes for what happens to few.
 *
 * A thread of its own, which sleeps: a look over 100 GiB takes tens of milliseconds, and for as long neither
 * userfaultfd's thread may be away (who unmaps waits for it) nor the engine. It allocates nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "mm/mm_internal.h"
#include "util/clock.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/probe.h"

/* Who is not privileged may ask for windows of 2 s, or a multiple, only (kernel/sched/psi.c). */
#define TRIGGER_PRIVILEGED "some 10000 500000"
#define TRIGGER		   "some 40000 2000000" /* us of 2 s in which some task waited: 2 % */
#define PRESSURE_MS	   4000 /* it lasts for so long after it was last told: two windows */
#define PERIOD_MS	   100u /* between looks while it lasts */
#define SHARE		   20u	/* but at most this part of the time is spent looking */
#define NO_PSI_MS	   2000
#define RUNS		   128u
#define STEP		   (1ull << 30) /* of one question to the tables, under mm's lock */

static bool started; /* by the watch lock */
static int psi_fd = -1;
static uint64_t *scans;

static uint64_t now_ms(void)
{
	return now_ns() / 1000000;
}

/* ---- the look ---- */

static bool take_away(uint64_t start, uint64_t end)
{
	struct mmu_notifier_range range = {.start = start, .end = end, .event = MMU_NOTIFY_RECLAIM};

	/* what is absent as a rule never was there: no invalidation, at which faults would begin anew */
	if (!notifier_holds(start, end))
		return false;
	mmu_notifier_invalidate_range_start(&range);
	mmu_notifier_invalidate_range_end(&range);
	return true;
}

void mm_reclaim_scan(void)
{
	struct page_region run[RUNS];
	uint64_t at = 0, start, end, next, began = now_ms(), *counter = __atomic_load_n(&scans, __ATOMIC_ACQUIRE);
	unsigned taken = 0;

	while (notifier_next(at, true, &start, &end)) {
		for (; start < end; start = next) {
			unsigned n = vma_absent_runs(start, end, run, RUNS, &next);

			for (unsigned i = 0; i < n; i++)
				for (uint64_t a = run[i].start; a < run[i].end; a += STEP)
					taken += take_away(a, run[i].end - a < STEP ? run[i].end : a + STEP);
		}
		at = end;
	}
	if (counter)
		__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
	FL_PROBE2(reclaim_scan, taken, (now_ms() - began) * 1000);
}

void mm_count_scans(uint64_t *counter)
{
	/* its segment is there; pairs with mm_reclaim_scan() */
	__atomic_store_n(&scans, counter, __ATOMIC_RELEASE);
}

/* ---- when ---- */

static int try_trigger(const char *path, const char *trigger)
{
	int err, fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (write(fd, trigger, strlen(trigger) + 1) >= 0)
		return fd;
	err = -errno;
	close(fd);
	return err;
}

static bool own_group(char *path, size_t size)
{
	FILE *cgroup = fopen("/proc/self/cgroup", "re"), *mountinfo = fopen("/proc/self/mountinfo", "re");
	static const char file[] = "/memory.pressure";
	bool found = cgroup && mountinfo && cgroup_dir(cgroup, mountinfo, path, size - sizeof(file));

	if (found)
		strcat(path, file);
	if (cgroup)
		fclose(cgroup);
	if (mountinfo)
		fclose(mountinfo);
	return found;
}

static int open_psi(void)
{
	char group[4096];
	const char *path[] = {own_group(group, sizeof(group)) ? group : NULL, "/proc/pressure/memory"};
	int fd = -ENOENT;

	for (size_t i = 0; i < sizeof(path) / sizeof(path[0]); i++) {
		if (!path[i])
			continue;
		fd = try_trigger(path[i], TRIGGER_PRIVILEGED);
		if (fd < 0)
			fd = try_trigger(path[i], TRIGGER);
		if (fd >= 0) {
			fl_debug("memory pressure: by %s", path[i]);
			return fd;
		}
	}
	return fd;
}

int mm_probe_psi(void)
{
	int fd = open_psi();

	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

/* Has a thread of ours waited for a disk or swap since the last call? */
static bool has_stalled(void)
{
	static long last;
	struct rusage ru;
	long before = last;

	if (getrusage(RUSAGE_SELF, &ru))
		return false;
	last = ru.ru_majflt;
	return last != before;
}

static void *reclaim_thread(void *arg)
{
	uint64_t pressed = 0, period = PERIOD_MS;

	has_stalled();
	for (;;) {
		struct pollfd pfd = {.fd = psi_fd, .events = POLLPRI};
		uint64_t began, now = now_ms();
		int wait = now < pressed ? (int)period : psi_fd >= 0 ? -1 : NO_PSI_MS;

		if (poll(&pfd, 1, wait) < 0)
			continue;
		if (pfd.revents & (POLLERR | POLLNVAL)) {
			/* the control group is gone, or the application closed what is not its own */
			if (!(pfd.revents & POLLNVAL))
				close(psi_fd);
			psi_fd = -1;
		}
		began = now_ms();
		if (pfd.revents & POLLPRI || (psi_fd < 0 && has_stalled()))
			pressed = began + PRESSURE_MS;
		if (began >= pressed)
			continue;
		mm_reclaim_scan();
		period = (now_ms() - began) * SHARE;
		period = period > PERIOD_MS ? period : PERIOD_MS;
	}
	return NULL;
}

void reclaim_start(void)
{
	pthread_t t;
	int err;

	if (started)
		return;
	started = true;
	psi_fd = open_psi();
	if (psi_fd < 0) {
		fl_info("memory pressure: PSI is not to be had (%s): pages of on-demand regions that are swapped "
			"out are noticed by the stalls they cause, within 2 s",
			strerror(-psi_fd));
		psi_fd = -1;
	}
	err = mm_thread(&t, NULL, reclaim_thread, NULL, "fl-reclaim");
	if (!err)
		return;
	fl_warn("memory pressure: no thread to look for swapped-out pages: %s", strerror(-err));
	if (psi_fd >= 0)
		close(psi_fd);
	psi_fd = -1;
}

void reclaim_fork_child(void)
{
	if (psi_fd >= 0)
		close(psi_fd);
	psi_fd = -1;
	started = false;
	mm_count_scans(NULL);
}
