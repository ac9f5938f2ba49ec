/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Under `faultline run`: the files that the kernel would have for a device are found at their usual places by each
 * call that takes a path, from children and by relative paths too; and no other path becomes another one.
 */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "check.h"

#define CLASS  "/sys/class/infiniband"
#define DEVICE CLASS "/mlx5_fl0"
#define STATE  DEVICE "/ports/1/state"
#define NODE   "/dev/infiniband/uverbs0"

/* the C library's, for programs of old and for those with checks */
extern int __open_2(const char *path, int flags);
extern int __open64_2(const char *path, int flags);
extern char *__realpath_chk(const char *path, char *resolved, size_t size);
extern ssize_t __readlink_chk(const char *path, char *to, size_t len, size_t size);
extern int __xstat(int version, const char *path, struct stat *st);
extern int __xstat64(int version, const char *path, struct stat64 *st);
extern int __lxstat(int version, const char *path, struct stat *st);
extern int __lxstat64(int version, const char *path, struct stat64 *st);

/* by a pointer: its declaration promises what a program may not keep */
static int (*volatile any_access)(const char *path, int mode) = access;

static void says(int fd)
{
	char buf[16] = "";

	CHECK(fd >= 0 && read(fd, buf, sizeof(buf)) == 10 && !strcmp(buf, "4: ACTIVE\n"));
	close(fd);
}

static void says_file(FILE *f)
{
	char buf[16];

	CHECK(f && fgets(buf, sizeof(buf), f) && !strcmp(buf, "4: ACTIVE\n"));
	fclose(f);
}

static void opening(void)
{
	int dir = open(DEVICE, O_RDONLY | O_DIRECTORY);

	says(open(STATE, O_RDONLY));
	says(open64(STATE, O_RDONLY));
	says(openat(AT_FDCWD, STATE, O_RDONLY));
	says(openat64(dir, STATE, O_RDONLY)); /* an absolute path: the descriptor is not looked at */
	says(openat(dir, "ports/1/state", O_RDONLY));
	says(__open_2(STATE, O_RDONLY));
	says(__open64_2(STATE, O_RDONLY));
	says_file(fopen(STATE, "r"));
	says_file(fopen64(STATE, "re"));
	close(dir);
	CHECK(open(DEVICE "/nothing", O_RDONLY) < 0 && errno == ENOENT);
	dir = open(NODE, O_RDWR);
	CHECK(dir >= 0);
	close(dir);
}

static void looking(void)
{
	struct stat64 s64;
	struct statx sx;
	struct stat s;

	CHECK(!stat(NODE, &s) && S_ISCHR(s.st_mode));
	CHECK(!stat64(NODE, &s64) && S_ISCHR(s64.st_mode));
	CHECK(!__xstat(1, NODE, &s) && S_ISCHR(s.st_mode));
	CHECK(!__xstat64(1, NODE, &s64) && S_ISCHR(s64.st_mode));
	CHECK(!lstat(DEVICE, &s) && S_ISLNK(s.st_mode));
	CHECK(!lstat64(DEVICE, &s64) && S_ISLNK(s64.st_mode));
	CHECK(!__lxstat(1, DEVICE, &s) && S_ISLNK(s.st_mode));
	CHECK(!__lxstat64(1, DEVICE, &s64) && S_ISLNK(s64.st_mode));
	CHECK(!fstatat(AT_FDCWD, STATE, &s, 0) && S_ISREG(s.st_mode));
	CHECK(!fstatat64(AT_FDCWD, STATE, &s64, 0) && S_ISREG(s64.st_mode));
	CHECK(!statx(AT_FDCWD, NODE, 0, STATX_TYPE, &sx) && S_ISCHR(sx.stx_mode));
	CHECK(!access(NODE, R_OK | W_OK) && !faccessat(AT_FDCWD, NODE, R_OK | W_OK, 0));
	CHECK(access("/dev/infiniband/uverbs9", F_OK) && errno == ENOENT);
	CHECK(getxattr(STATE, "user.x", NULL, 0) < 0 && errno != ENOENT);
	CHECK(lgetxattr(DEVICE, "user.x", NULL, 0) < 0 && errno != ENOENT);
}

static int devices_only(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

static int devices_only64(const struct dirent64 *e)
{
	return e->d_name[0] != '.';
}

static void listing(void)
{
	DIR *dir = opendir(CLASS);
	struct dirent64 **list64;
	struct dirent **list, *e;
	int n = 0;

	CHECK(dir);
	while ((e = readdir(dir)))
		n += !strcmp(e->d_name, "mlx5_fl0");
	closedir(dir);
	CHECK(n == 1);
	CHECK(scandir(CLASS, &list, devices_only, alphasort) == 1 && !strcmp(list[0]->d_name, "mlx5_fl0"));
	CHECK(scandir64(CLASS, &list64, devices_only64, alphasort64) == 1);
	free(list[0]);
	free(list);
	free(list64[0]);
	free(list64);
}

static void names(void)
{
	char real[PATH_MAX], *made = realpath(DEVICE, NULL), to[PATH_MAX] = "";
	const char *tail = "/infiniband/mlx5_fl0";

	CHECK(made && !strcmp(made + strlen(made) - strlen(tail), tail));
	CHECK(realpath(DEVICE, real) == real && !strcmp(real, made));
	CHECK(__realpath_chk(DEVICE, real, sizeof(real)) == real && !strcmp(real, made));
	free(made);
	made = canonicalize_file_name(DEVICE);
	CHECK(made && !strcmp(real, made));
	free(made);
	CHECK(readlink(DEVICE, to, sizeof(to)) > 0 && !strncmp(to, "../../devices/", 14));
	CHECK(__readlink_chk(DEVICE, to, sizeof(to), sizeof(to)) > 0);
}

static void elsewhere(void)
{
	char file[] = "/tmp/faultline-test-XXXXXX";
	int fd = mkstemp(file), mask = umask(022);
	struct stat s;

	CHECK(fd >= 0);
	close(fd);
	CHECK(!unlink(file));
	fd = open(file, O_CREAT | O_WRONLY, 0640); /* the mode comes through */
	CHECK(fd >= 0 && !fstat(fd, &s) && (s.st_mode & 07777) == 0640);
	close(fd);
	CHECK(!unlink(file));
	fd = openat64(AT_FDCWD, file, O_CREAT | O_WRONLY, 0604);
	CHECK(fd >= 0 && !stat(file, &s) && (s.st_mode & 07777) == 0604);
	close(fd);
	CHECK(!unlink(file));
	umask((mode_t)mask);
	CHECK(!access("/sys/class/net/lo", F_OK) && !access("/dev/null", W_OK) && !access("/proc/self/maps", R_OK));
	CHECK(access("/sys/class/infinibands", F_OK) && access("/dev/infinibandit", F_OK));
	CHECK(any_access(NULL, F_OK) && errno == EFAULT);
	CHECK(any_access((const char *)1, F_OK) && errno == EFAULT);
	CHECK(any_access((const char *)-4096, F_OK) && errno == EFAULT);
}

int main(void)
{
	opening();
	looking();
	listing();
	names();
	elsewhere();
	CHECK(!system("test -c " NODE " && grep -q ACTIVE " STATE));
	CHECK(!chdir(DEVICE));
	says(open("ports/1/state", O_RDONLY));
	return 0;
}
