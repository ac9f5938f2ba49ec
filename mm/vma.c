/* SPDX-License-Identifier: BSD-2-Clause */
/* What /proc/self knows of mappings and pages, and populating them. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "mm/mm_internal.h"
#include "util/clock.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

#define SWAP_KNOWN_MS 100

/* Descriptors of /proc/self files stay with the process that opened them; -1: not yet, -2: cannot be. */
static int maps_fd = -1, pagemap_fd = -1;
static uint64_t swap_answer; /* when, in ms, above one bit: yes; atomic */
static bool no_query, no_scan; /* kernels before 6.11, 6.7 */

static int proc_fd(int *fd, const char *path)
{
	int cur = __atomic_load_n(fd, __ATOMIC_ACQUIRE);

	if (cur != -1)
		return cur;
	int got = open(path, O_RDONLY | O_CLOEXEC);

	if (got < 0)
		got = -2;
	if (!__atomic_compare_exchange_n(fd, &cur, got, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		if (got >= 0)
			close(got);
		return cur;
	}
	return got;
}

void vma_fork_child(void)
{
	/* they describe the parent */
	if (maps_fd >= 0)
		close(maps_fd);
	if (pagemap_fd >= 0)
		close(pagemap_fd);
	maps_fd = pagemap_fd = -1;
	swap_answer = 0;
}

static void set_name(struct vma *v, const char *name)
{
	static const char *const shmem[] = {"/memfd:", "/dev/shm/", "/SYSV", "/dev/zero"};
	static const char device[] = "/memfd:" MM_DEVICE_FILE;

	v->shmem = false;
	v->device = v->file && !strncmp(name, device, sizeof(device) - 1);
	for (size_t i = 0; v->file && i < sizeof(shmem) / sizeof(shmem[0]); i++)
		v->shmem |= !strncmp(name, shmem[i], strlen(shmem[i]));
}

/* one line: start-end perms offset major:minor inode [name] */
static bool parse_line(const char *line, struct vma *v)
{
	const char *p = line;
	uint64_t n[5] = {0}; /* start, end, offset, major, minor */

	for (int i = 0; i < 5; i++, p++) {
		if (i == 2) { /* perms */
			p = strchr(p, ' ');
			if (!p)
				return false;
			p++;
		}
		for (; *p && !strchr("-: ", *p); p++)
			n[i] = n[i] << 4 | (uint64_t)(*p <= '9' ? *p - '0' : *p - 'a' + 10);
		if (!*p)
			return false;
	}
	v->start = n[0];
	v->end = n[1];
	v->page_size = PAGE_SIZE;
	v->offset = n[2];
	v->dev = makedev((unsigned)n[3], (unsigned)n[4]);
	v->inode = strtoull(p, NULL, 10);
	v->file = v->inode != 0;
	p = strchr(p, '/');
	set_name(v, p ? p : "");
	return true;
}

/* Does the kernel not have the call, or not let us? Another error is of this question, and not of the next one. */
static bool is_missing(int err)
{
	return err == ENOTTY || err == ENOSYS || err == EPERM || err == EACCES;
}

/* for kernels that cannot be asked for one mapping; reads the list through a buffer on the stack */
static int find_in_list(uint64_t addr, struct vma *v)
{
	char buf[4096 + 1];
	size_t have = 0;
	int ret = -ENOENT, fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -EACCES; /* not "nothing there": it cannot be told */
	for (;;) {
		ssize_t n = read(fd, buf + have, sizeof(buf) - 1 - have);
		char *line = buf, *nl;

		if (n <= 0)
			break;
		have += (size_t)n;
		buf[have] = 0;
		while ((nl = strchr(line, '\n'))) {
			*nl = 0;
			if (parse_line(line, v) && v->end > addr) {
				ret = 0;
				goto out;
			}
			line = nl + 1;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
	}
out:
	close(fd);
	return ret;
}

int vma_find(uint64_t addr, struct vma *v)
{
	char name[64];
	struct procmap_query q = {
		.size = sizeof(q),
		.query_flags = PROCMAP_QUERY_COVERING_OR_NEXT_VMA,
		.query_addr = addr,
		.vma_name_addr = (uintptr_t)name,
		.vma_name_size = sizeof(name),
	};
	int fd = proc_fd(&maps_fd, "/proc/self/maps"), err;

	if (fd < 0 || __atomic_load_n(&no_query, __ATOMIC_RELAXED))
		return find_in_list(addr, v);
	err = ioctl(fd, PROCMAP_QUERY, &q) ? errno : 0;
	if (err == ENAMETOOLONG) {
		/* not one of the short names that matter */
		q.vma_name_addr = q.vma_name_size = 0;
		err = ioctl(fd, PROCMAP_QUERY, &q) ? errno : 0;
	}
	if (err == ENOENT)
		return -ENOENT;
	if (err) {
		if (is_missing(err))
			__atomic_store_n(&no_query, true, __ATOMIC_RELAXED);
		return find_in_list(addr, v);
	}
	if (!q.vma_name_size)
		name[0] = 0;
	v->start = q.vma_start;
	v->end = q.vma_end;
	v->page_size = q.vma_page_size > PAGE_SIZE ? q.vma_page_size : PAGE_SIZE;
	v->offset = q.vma_offset;
	v->dev = makedev(q.dev_major, q.dev_minor);
	v->inode = q.inode;
	v->file = q.inode != 0;
	set_name(v, name);
	return 0;
}

/* ---- states of pages ---- */

/* The first run of pages of [start, end) that are, or are not, in the CPU's tables: false if there is none. */
static bool next_run(bool present, uint64_t start, uint64_t end, uint64_t *from, uint64_t *to, bool *swapped)
{
	int fd = proc_fd(&pagemap_fd, "/proc/self/pagemap");
	uint64_t pte[64];

	if (fd < 0)
		return false;
	if (!__atomic_load_n(&no_scan, __ATOMIC_RELAXED)) {
		struct page_region r;
		struct pm_scan_arg arg = {
			.size = sizeof(arg),
			.start = start,
			.end = end,
			.vec = (uintptr_t)&r,
			.vec_len = 1,
			.category_inverted = present ? 0 : PAGE_IS_PRESENT,
			.category_mask = PAGE_IS_PRESENT,
			.return_mask = PAGE_IS_SWAPPED,
		};
		int n = ioctl(fd, PAGEMAP_SCAN, &arg);

		if (n >= 0) {
			*from = r.start;
			*to = r.end;
			*swapped = n && r.categories & PAGE_IS_SWAPPED;
			return n > 0;
		}
		if (is_missing(errno))
			__atomic_store_n(&no_scan, true, __ATOMIC_RELAXED);
	}
	for (uint64_t at = start; at < end;) {
		size_t n = (end - at) >> PAGE_SHIFT;

		n = n < 64 ? n : 64;
		if (pread(fd, pte, n * 8, (off_t)(at >> PAGE_SHIFT) * 8) != (ssize_t)(n * 8))
			return false;
		for (size_t i = 0; i < n; i++) {
			if (pte[i] >> 63 != present)
				continue;
			*from = at + i * PAGE_SIZE;
			*to = *from + PAGE_SIZE;
			*swapped = pte[i] >> 62 & 1;
			return true;
		}
		at += n * PAGE_SIZE;
	}
	return false;
}

bool vma_all_watched(uint64_t start, uint64_t end)
{
	struct page_region r;
	struct pm_scan_arg arg = {
		.size = sizeof(arg),
		.start = start,
		.end = end,
		.vec = (uintptr_t)&r,
		.vec_len = 1,
		.category_mask = PAGE_IS_WPALLOWED,
		.return_mask = PAGE_IS_WPALLOWED,
	};
	int fd = proc_fd(&pagemap_fd, "/proc/self/pagemap"), n;

	if (fd < 0 || __atomic_load_n(&no_scan, __ATOMIC_RELAXED))
		return true; /* not to be told */
	n = ioctl(fd, PAGEMAP_SCAN, &arg);
	return n < 0 || (n > 0 && r.start <= start && r.end >= end);
}

/* ---- device memory ---- */

static bool device_files; /* atomic: there may be mappings of some */

void mm_has_device_files(void)
{
	__atomic_store_n(&device_files, true, __ATOMIC_RELAXED);
}

bool vma_device(uint64_t start, uint64_t end, uint64_t *at)
{
	struct vma v;

	if (!__atomic_load_n(&device_files, __ATOMIC_RELAXED))
		return false;
	for (; start < end && !vma_find(start, &v) && v.start < end; start = v.end) {
		if (v.device) {
			*at = v.start > start ? v.start : start;
			return true;
		}
	}
	return false;
}

/* ---- what is absent ---- */

static bool next_absent(uint64_t start, uint64_t end, uint64_t *from, uint64_t *to, bool *swapped)
{
	return next_run(false, start, end, from, to, swapped);
}

bool mm_next_present(uint64_t start, uint64_t end, uint64_t *from, uint64_t *to)
{
	bool swapped;

	return next_run(true, start, end, from, to, &swapped);
}

unsigned vma_absent_runs(uint64_t start, uint64_t end, struct page_region *run, unsigned max, uint64_t *next)
{
	int fd = proc_fd(&pagemap_fd, "/proc/self/pagemap");
	struct pm_scan_arg arg = {
		.size = sizeof(arg),
		.start = start,
		.end = end,
		.vec = (uintptr_t)run,
		.vec_len = max,
		.category_inverted = PAGE_IS_PRESENT,
		.category_mask = PAGE_IS_PRESENT,
	};
	uint64_t from, to;
	bool swapped;
	int n;

	*next = end;
	if (fd < 0)
		return 0;
	if (!__atomic_load_n(&no_scan, __ATOMIC_RELAXED)) {
		n = ioctl(fd, PAGEMAP_SCAN, &arg);
		if (n >= 0) {
			*next = n && arg.walk_end < end ? arg.walk_end : end;
			return (unsigned)n;
		}
		if (is_missing(errno))
			__atomic_store_n(&no_scan, true, __ATOMIC_RELAXED);
	}
	if (!next_absent(start, end, &from, &to, &swapped))
		return 0;
	run[0] = (struct page_region){.start = from, .end = to};
	*next = to;
	return 1;
}

bool mm_probe_pagemap_scan(void)
{
	struct page_region run;
	uint64_t next, page = (uintptr_t)&run & PAGE_MASK;

	vma_absent_runs(page, page + PAGE_SIZE, &run, 1, &next);
	return proc_fd(&pagemap_fd, "/proc/self/pagemap") >= 0 && !__atomic_load_n(&no_scan, __ATOMIC_RELAXED);
}

/*
 * Asked for by each fault, and changed by an administrator now and then: an answer is good for a while. Who
 * faults within it, on what was swapped out by swap that came within it, sleeps where he would not have.
 */
static bool has_swap(void)
{
	uint64_t was = __atomic_load_n(&swap_answer, __ATOMIC_RELAXED), now = now_ms_coarse();
	struct sysinfo si;

	if (!was || now - (was >> 1) >= SWAP_KNOWN_MS) {
		was = now << 1 | (!sysinfo(&si) && si.totalswap);
		__atomic_store_n(&swap_answer, was, __ATOMIC_RELAXED);
	}
	return was & 1;
}

/* Its pages are new and zero, or come from swap. */
static bool needs_swap_only(const struct vma *v)
{
	return !v->file || v->shmem;
}

/* a page of a file that is neither in our tables nor in memory must be read from somewhere */
static bool uncached(uint64_t start, uint64_t end)
{
	unsigned char vec[256];

	for (uint64_t at = start; at < end; at += sizeof(vec) * PAGE_SIZE) {
		size_t n = (end - at) >> PAGE_SHIFT;

		n = n < sizeof(vec) ? n : sizeof(vec);
		if (mincore((void *)at, n * PAGE_SIZE, vec))
			return false;
		for (size_t i = 0; i < n; i++)
			if (!(vec[i] & 1))
				return true;
	}
	return false;
}

bool vma_would_sleep(uint64_t start, uint64_t end, struct vma *v)
{
	uint64_t from, to;
	bool swapped;

	if (start >= v->start && end <= v->end && needs_swap_only(v) && !has_swap())
		return false;
	for (uint64_t at = start; at < end && next_absent(at, end, &from, &to, &swapped); at = to) {
		if (swapped)
			return true;
		for (uint64_t p = from; p < to; p = v->end) {
			if ((p < v->start || p >= v->end) && (vma_find(p, v) || v->start >= to))
				break;
			uint64_t s = v->start > p ? v->start : p, e = v->end < to ? v->end : to;

			/* an absent page of shmem is new and zero, or in swap: no telling apart */
			if (v->file && !(v->shmem && !has_swap()) && uncached(s, e))
				return true;
		}
	}
	return false;
}

bool vma_absent(uint64_t start, uint64_t end)
{
	uint64_t from, to;
	bool swapped;

	return next_absent(start, end, &from, &to, &swapped);
}

/* ---- populating ---- */

/* Touch each page, as a fault does; an atomic add of nothing is a write. The only way before Linux 5.14. */
int mm_touch(uint64_t start, uint64_t end, bool write)
{
	for (uint64_t p = start; p < end; p += PAGE_SIZE) {
		uint64_t v;

		if (write ? fetch_add64_guarded((uint64_t *)p, 0, &v) != 0
			  : copy_guarded(&v, (void *)p, 1) != 0)
			return -EFAULT;
	}
	return 0;
}

static int populate_known; /* 1 yes, 2 no */

static bool can_populate(void)
{
	int k = __atomic_load_n(&populate_known, __ATOMIC_RELAXED);

	if (!k) {
		/* a length of 0 is checked for nothing but the advice */
		k = madvise((void *)PAGE_SIZE, 0, MADV_POPULATE_READ) ? 2 : 1;
		__atomic_store_n(&populate_known, k, __ATOMIC_RELAXED);
	}
	return k == 1;
}

#define NO_MEMORY_TRIES 64

static int populate(uint64_t start, uint64_t end, bool write)
{
	unsigned char vec;
	int err, tries = 0;

	if (!can_populate())
		return mm_touch(start, end, write);
again:
	do
		err = madvise((void *)start, end - start,
			      write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ)
			      ? errno
			      : 0;
	while (err == EINTR || err == EAGAIN);
	if (!err)
		return 0;
	/* ENOMEM is a hole or a lack of memory; mincore() knows holes. EINVAL: no right, device memory;
	 * EFAULT, EHWPOISON: SIGBUS */
	if (err == ENOMEM && end - start == PAGE_SIZE && !mincore((void *)start, PAGE_SIZE, &vec)) {
		if (++tries < NO_MEMORY_TRIES)
			goto again; /* or a hole that was filled between the two, as often as its owner likes */
		return -ENOMEM;
	}
	return -EFAULT;
}

int mm_populate(uint64_t start, uint64_t end, bool write, uint64_t *failed)
{
	int ret = populate(start, end, write);
	uint64_t good = start, bad = end;

	if (!ret)
		return 0;
	/* the first page that fails lies in [good, bad): halve it */
	while (bad - good > PAGE_SIZE) {
		uint64_t mid = good + (((bad - good) / 2) & PAGE_MASK);

		if (populate(good, mid, write))
			bad = mid;
		else
			good = mid;
	}
	ret = populate(good, bad, write);
	if (failed)
		*failed = good;
	return ret; /* 0: what failed before is there by now; the rest is the caller's next try */
}

void vma_init(const struct fl_config *cfg)
{
	no_query |= fl_config_lists(cfg->without, "procmap-query");
	no_scan |= fl_config_lists(cfg->without, "pagemap-scan");
	if (fl_config_lists(cfg->without, "populate"))
		populate_known = 2;
}
