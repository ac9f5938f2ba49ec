/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files that the kernel has for a device, and that some programs go by: UCX takes no device that has no
 * /dev/infiniband/uverbsN, and reads in /sys/class/infiniband what kind of RoCE a GID is. `faultline run` makes a
 * tree of them (cli/sysfs.c) and says in FAULTLINE_SYSFS where. Here a path below these directories becomes one in
 * that tree, in calls that take a path. The tree is real, so that what follows (reading a directory, relative
 * paths, children) needs no help of ours; devices that the kernel may have are not seen beside it, as by verbs.
 *
 * A call costs a short system call more, which asks whether the path may be read. Calls that take a descriptor and a path relative to it are the kernel's.
 */
#undef _FILE_OFFSET_BITS /* open() and open64() are two symbols here */
#undef _FORTIFY_SOURCE
#include "preload/preload.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define LONGEST 512 /* of a path in the tree */

/* the C library's names for them in programs that were compiled with checks, or long ago */
EXPORT int __open_2(const char *path, int flags);
EXPORT int __open64_2(const char *path, int flags);
EXPORT char *__realpath_chk(const char *path, char *resolved, size_t size);
EXPORT ssize_t __readlink_chk(const char *path, char *to, size_t len, size_t size);
EXPORT int __xstat(int version, const char *path, struct stat *st);
EXPORT int __xstat64(int version, const char *path, struct stat64 *st);
EXPORT int __lxstat(int version, const char *path, struct stat *st);
EXPORT int __lxstat64(int version, const char *path, struct stat64 *st);

/* "": there is none. Written once, before there are threads; by whoever's constructor is first */
static char root[LONGEST / 2];
static bool known;

static void __attribute__((constructor)) find_root(void)
{
	const char *env = known ? NULL : getenv("FAULTLINE_SYSFS");

	if (env && strlen(env) < sizeof(root))
		strcpy(root, env);
	known = true;
}

static bool below(const char *path, const char *dir, const char *next)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && strchr(next, path[n]); /* the end of the string is among them */
}

/* A program may ask the kernel whether a place is one by giving it as a path: that is EFAULT, and not to be touched. */
static bool readable(const char *path)
{
	int saved = errno;
	/* the kernel reads 8 bytes before it looks at the first argument, which is none */
	bool yes = syscall(SYS_rt_sigprocmask, -1, path, NULL, 8) && errno == EINVAL;

	errno = saved;
	return yes;
}

/* noipa: the headers promise that no path is NULL; programs pass it all the same */
__attribute__((noipa)) static const char *place(const char *path, char in_tree[LONGEST])
{
	find_root();
	if (!path || !root[0] || !readable(path) || path[0] != '/' || (path[1] != 's' && path[1] != 'd'))
		return path;
	if (!below(path, "/sys/class/infiniband", "/_") && !below(path, "/dev/infiniband", "/"))
		return path;
	if (strlen(root) + strlen(path) >= LONGEST)
		return path;
	strcpy(stpcpy(in_tree, root), path);
	return in_tree;
}

/*
 * The C library's function of that name. Found at the start: a signal handler may call open(), and must not find
 * the loader amid something. What constructors before ours call is found when they do.
 */
#define REAL(type, name, params)                                                                   \
	static type(*real_##name) params;                                                          \
	static void __attribute__((constructor)) find_##name(void)                                 \
	{                                                                                          \
		preload_real(&real_##name, #name);                                                 \
	}

/* a function that takes a path: all as it is, but for that */
#define BY_PATH(type, name, params, ...)                                                           \
	REAL(type, name, params)                                                                   \
	EXPORT type name params                                                                    \
	{                                                                                          \
		char in_tree[LONGEST];                                                             \
                                                                                                   \
		path = place(path, in_tree);                                                       \
		preload_real(&real_##name, #name);                                                 \
		return real_##name(__VA_ARGS__);                                                   \
	}

BY_PATH(FILE *, fopen, (const char *path, const char *mode), path, mode)
BY_PATH(FILE *, fopen64, (const char *path, const char *mode), path, mode)
BY_PATH(int, __open_2, (const char *path, int flags), path, flags)
BY_PATH(int, __open64_2, (const char *path, int flags), path, flags)
BY_PATH(int, access, (const char *path, int mode), path, mode)
BY_PATH(int, faccessat, (int dir, const char *path, int mode, int flags), dir, path, mode, flags)
BY_PATH(int, stat, (const char *path, struct stat *st), path, st)
BY_PATH(int, stat64, (const char *path, struct stat64 *st), path, st)
BY_PATH(int, lstat, (const char *path, struct stat *st), path, st)
BY_PATH(int, lstat64, (const char *path, struct stat64 *st), path, st)
BY_PATH(int, fstatat, (int dir, const char *path, struct stat *st, int flags), dir, path, st, flags)
BY_PATH(int, fstatat64, (int dir, const char *path, struct stat64 *st, int flags), dir, path, st, flags)
BY_PATH(int, statx, (int dir, const char *path, int flags, unsigned mask, struct statx *st), dir, path, flags, mask, st)
BY_PATH(int, __xstat, (int version, const char *path, struct stat *st), version, path, st)
BY_PATH(int, __xstat64, (int version, const char *path, struct stat64 *st), version, path, st)
BY_PATH(int, __lxstat, (int version, const char *path, struct stat *st), version, path, st)
BY_PATH(int, __lxstat64, (int version, const char *path, struct stat64 *st), version, path, st)
BY_PATH(DIR *, opendir, (const char *path), path)
BY_PATH(int, chdir, (const char *path), path)
BY_PATH(int, scandir,
	(const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
	 int (*order)(const struct dirent **, const struct dirent **)),
	path, list, filter, order)
BY_PATH(int, scandir64,
	(const char *path, struct dirent64 ***list, int (*filter)(const struct dirent64 *),
	 int (*order)(const struct dirent64 **, const struct dirent64 **)),
	path, list, filter, order)
BY_PATH(char *, realpath, (const char *path, char *resolved), path, resolved)
BY_PATH(char *, __realpath_chk, (const char *path, char *resolved, size_t size), path, resolved, size)
BY_PATH(char *, canonicalize_file_name, (const char *path), path)
BY_PATH(ssize_t, getxattr, (const char *path, const char *name, void *value, size_t size), path, name, value, size)
BY_PATH(ssize_t, lgetxattr, (const char *path, const char *name, void *value, size_t size), path, name, value, size)
BY_PATH(ssize_t, readlink, (const char *path, char *to, size_t len), path, to, len)
BY_PATH(ssize_t, __readlink_chk, (const char *path, char *to, size_t len, size_t size), path, to, len, size)

/* those that may have a mode */
#define MODE_AFTER(flags)                                                                          \
	({                                                                                         \
		mode_t m_ = 0;                                                                     \
		if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) {                     \
			va_list ap_;                                                               \
			va_start(ap_, flags);                                                      \
			m_ = va_arg(ap_, mode_t);                                                  \
			va_end(ap_);                                                               \
		}                                                                                  \
		m_;                                                                                \
	})

#define OPEN(name)                                                                                 \
	REAL(int, name, (const char *, int, ...))                                                  \
	EXPORT int name(const char *path, int flags, ...)                                          \
	{                                                                                          \
		mode_t mode = MODE_AFTER(flags);                                                   \
		char in_tree[LONGEST];                                                             \
                                                                                                   \
		path = place(path, in_tree);                                                       \
		preload_real(&real_##name, #name);                                                 \
		return real_##name(path, flags, mode);                                             \
	}
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                               \
	REAL(int, name, (int, const char *, int, ...))                                             \
	EXPORT int name(int dir, const char *path, int flags, ...)                                 \
	{                                                                                          \
		mode_t mode = MODE_AFTER(flags);                                                   \
		char in_tree[LONGEST];                                                             \
                                                                                                   \
		path = place(path, in_tree);                                                       \
		preload_real(&real_##name, #name);                                                 \
		return real_##name(dir, path, flags, mode);                                        \
	}
OPENAT(openat)
OPENAT(openat64)
