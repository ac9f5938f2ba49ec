/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that goes, told in the caller's thread. Between the application's call and the kernel the
 * library takes the range from the device's tables, and says so to nobody afterwards: what userfaultfd
 * would do with two threads waking each other, after the fact, is done by one, before it. As a kernel's
 * munmap() calls its notifiers' invalidate_range_start and _end.
 *
 * This must never be noticed. Without the library, and as long as nothing is registered, a call costs
 * one look at a variable more. The calls are the kernel's own, so that they work from inside of an
 * allocator and before anything is initialised; what the C library does inside of itself (free(), the
 * heap's brk) is not seen here, and userfaultfd catches it.
 */
#undef _FILE_OFFSET_BITS /* mmap() and mmap64() are two symbols here */
#include "preload/preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define HERE   __builtin_return_address(0)

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

_Static_assert(sizeof(long) == 8, "system calls that take offsets as one argument");

static const struct faultline_mm_ops *mm; /* atomic; set once */

void preload_mm_install(const struct faultline_mm_ops *ops)
{
	__atomic_store_n(&mm, ops, __ATOMIC_RELEASE); /* pairs with watching() */
}

/* NULL as long as nothing of this process is registered */
static const struct faultline_mm_ops *watching(void)
{
	const struct faultline_mm_ops *ops = __atomic_load_n(&mm, __ATOMIC_ACQUIRE);

	return ops && __atomic_load_n(ops->regions, __ATOMIC_RELAXED) ? ops : NULL;
}

static uint64_t page_up(uint64_t n)
{
	return (n + 4095) & ~4095ull; /* more than the kernel's pages are taken away by no mistake */
}

/* Takes a range away, when somebody watches it: then an end() is owed. errno stays. */
static bool begin(const struct faultline_mm_ops *ops, const void *at, uint64_t len, bool discard,
		  const char *by, const void *caller)
{
	uint64_t start = (uintptr_t)at, end = start + page_up(len);
	int saved = errno;
	bool owed;

	/* what the kernel will refuse takes nothing away */
	if (start & 4095 || end <= start)
		return false;
	owed = ops->begin(start, end, discard, by, caller);
	errno = saved;
	return owed;
}

static void end(const struct faultline_mm_ops *ops, bool owed)
{
	int saved = errno;

	if (owed)
		ops->end();
	errno = saved;
}

/* ---- the calls ---- */

EXPORT int munmap(void *addr, size_t len)
{
	const struct faultline_mm_ops *ops = watching();
	bool owed = ops && begin(ops, addr, len, false, "munmap()", HERE);
	int ret = (int)syscall(SYS_munmap, addr, len);

	end(ops, owed);
	return ret;
}

static const char *discards(int advice)
{
	switch (advice) {
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
		return "madvise(MADV_DONTNEED)";
	case MADV_FREE:
		return "madvise(MADV_FREE)";
	case MADV_REMOVE:
		return "madvise(MADV_REMOVE)";
	default:
		return NULL;
	}
}

EXPORT int madvise(void *addr, size_t len, int advice)
{
	const struct faultline_mm_ops *ops = watching();
	const char *by = ops ? discards(advice) : NULL;
	bool owed = by && begin(ops, addr, len, true, by, HERE);
	int ret = (int)syscall(SYS_madvise, addr, len, advice);

	end(ops, owed);
	return ret;
}

static void *map(void *addr, size_t len, int prot, int flags, int fd, off_t off, const void *caller)
{
	const struct faultline_mm_ops *ops = flags & MAP_FIXED ? watching() : NULL;
	bool owed = ops && begin(ops, addr, len, false, "mmap(MAP_FIXED)", caller);
	void *ret = (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);

	end(ops, owed);
	return ret;
}

EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return map(addr, len, prot, flags, fd, off, HERE);
}

EXPORT void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t off)
{
	return map(addr, len, prot, flags, fd, off, HERE);
}

static void *remap(void *old, size_t old_len, size_t len, int flags, void *to)
{
	return (void *)syscall(SYS_mremap, old, old_len, len, flags, to);
}

static void *remap_watched(const struct faultline_mm_ops *ops, void *old, size_t old_len, size_t len,
			   int flags, void *to, const void *caller)
{
	static const char by[] = "mremap()";
	bool fixed = flags & MREMAP_FIXED, from_owed = false, to_owed = false;
	void *ret;

	if (fixed || flags & ~MREMAP_MAYMOVE) {
		from_owed = old_len && begin(ops, old, old_len, false, by, caller);
		to_owed = fixed && begin(ops, to, len, false, by, caller);
	} else if (page_up(len) < page_up(old_len)) {
		from_owed = begin(ops, (char *)old + page_up(len), page_up(old_len) - page_up(len), false, by,
				  caller);
	} else if (page_up(len) > page_up(old_len) && flags) {
		/* may stay where it is, and then nothing has gone */
		ret = remap(old, old_len, len, 0, NULL);
		if (ret != MAP_FAILED)
			return ret;
		from_owed = old_len && begin(ops, old, old_len, false, by, caller);
	}
	ret = remap(old, old_len, len, flags, to);
	end(ops, to_owed);
	end(ops, from_owed);
	return ret;
}

EXPORT void *mremap(void *old, size_t old_len, size_t len, int flags, ...)
{
	const struct faultline_mm_ops *ops = watching();
	void *to = NULL;
	va_list ap;

	if (flags & ~MREMAP_MAYMOVE) { /* MREMAP_FIXED, MREMAP_DONTUNMAP */
		va_start(ap, flags);
		to = va_arg(ap, void *);
		va_end(ap);
	}
	return ops ? remap_watched(ops, old, old_len, len, flags, to, HERE)
		   : remap(old, old_len, len, flags, to);
}

EXPORT int shmdt(const void *addr)
{
	const struct faultline_mm_ops *ops = watching();
	int saved = errno, ret;
	/* the library finds out how long the segment is */
	bool owed = ops && ops->begin((uintptr_t)addr, 0, false, "shmdt()", HERE);

	errno = saved;
	ret = (int)syscall(SYS_shmdt, addr);
	end(ops, owed);
	return ret;
}

EXPORT void *shmat(int id, const void *addr, int flags)
{
	const struct faultline_mm_ops *ops = flags & SHM_REMAP ? watching() : NULL;
	uintptr_t at = (uintptr_t)addr;
	bool owed = false;
	struct shmid_ds ds;
	void *ret;

	if (flags & SHM_RND)
		at &= ~((uintptr_t)SHMLBA - 1);
	if (ops) {
		int saved = errno;

		if (!shmctl(id, IPC_STAT, &ds))
			owed = begin(ops, (void *)at, ds.shm_segsz, false, "shmat(SHM_REMAP)", HERE);
		errno = saved;
	}
	ret = (void *)syscall(SYS_shmat, id, addr, flags);
	end(ops, owed);
	return ret;
}

/* ---- files: what goes from one goes from its mappings ---- */

static unsigned begin_file(int fd, uint64_t from, uint64_t to, const char *by, const void *caller)
{
	const struct faultline_mm_ops *ops = watching();
	int saved = errno;
	unsigned owed;

	if (!ops || ops->size <= offsetof(struct faultline_mm_ops, begin_file) || from >= to)
		return 0;
	owed = ops->begin_file(fd, from, to, by, caller);
	errno = saved;
	return owed;
}

static void end_file(unsigned owed)
{
	const struct faultline_mm_ops *ops = __atomic_load_n(&mm, __ATOMIC_ACQUIRE);

	for (; owed; owed--)
		end(ops, true);
}

static int allocate(int fd, int mode, off_t from, off_t len, const void *caller)
{
	unsigned owed = 0;
	int ret;

	/* a page that is emptied in part stays */
	if (from < 0 || len <= 0)
		;
	else if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		owed = begin_file(fd, page_up((uint64_t)from), (uint64_t)(from + len) & ~4095ull, "fallocate()", caller);
	else if (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE))
		owed = begin_file(fd, (uint64_t)from & ~4095ull, INT64_MAX & ~4095ull, "fallocate()", caller);
	ret = (int)syscall(SYS_fallocate, fd, mode, from, len);
	end_file(owed);
	return ret;
}

EXPORT int fallocate(int fd, int mode, off_t from, off_t len)
{
	return allocate(fd, mode, from, len, HERE);
}

EXPORT int fallocate64(int fd, int mode, off64_t from, off64_t len)
{
	return allocate(fd, mode, from, len, HERE);
}

static int cut(int fd, off_t len, const void *caller)
{
	unsigned owed = len < 0 ? 0 : begin_file(fd, page_up((uint64_t)len), INT64_MAX & ~4095ull, "ftruncate()", caller);
	int ret = (int)syscall(SYS_ftruncate, fd, len);

	end_file(owed);
	return ret;
}

EXPORT int ftruncate(int fd, off_t len)
{
	return cut(fd, len, HERE);
}

EXPORT int ftruncate64(int fd, off64_t len)
{
	return cut(fd, len, HERE);
}

/* ---- the break: the C library keeps its own idea of it ---- */

static int (*real_brk)(void *);
static void *(*real_sbrk)(intptr_t);

void preload_real(void *known, const char *name)
{
	void **fn = known;

	if (!__atomic_load_n(fn, __ATOMIC_RELAXED))
		__atomic_store_n(fn, dlsym(RTLD_NEXT, name), __ATOMIC_RELAXED);
}

static bool break_falls(const struct faultline_mm_ops *ops, uint64_t now, uint64_t to, const char *by,
			const void *caller)
{
	uint64_t from = page_up(to);

	return from < now && begin(ops, (void *)from, now - from, false, by, caller);
}

EXPORT int brk(void *to)
{
	const struct faultline_mm_ops *ops = watching();
	bool owed = ops && break_falls(ops, (uint64_t)syscall(SYS_brk, 0), (uintptr_t)to, "brk()", HERE);
	int ret;

	preload_real(&real_brk, "brk");
	ret = real_brk(to);
	end(ops, owed);
	return ret;
}

EXPORT void *sbrk(intptr_t by)
{
	const struct faultline_mm_ops *ops = by < 0 ? watching() : NULL;
	bool owed = false;
	void *ret;

	if (ops) {
		uint64_t now = (uint64_t)syscall(SYS_brk, 0);

		owed = break_falls(ops, now, now + (uint64_t)by, "sbrk()", HERE);
	}
	preload_real(&real_sbrk, "sbrk");
	ret = real_sbrk(by);
	end(ops, owed);
	return ret;
}
