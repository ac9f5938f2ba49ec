/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hooks by themselves, with a library that only takes notes: which ranges it is told, around which
 * calls, and that results and errno are the kernel's. Without a library, and with nothing registered,
 * it is told nothing.
 */
#undef _FILE_OFFSET_BITS
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>
#include "preload/preload.h"
#include "check.h"

#define P 4096ul

extern const struct faultline_preload_ops faultline_preload_ops;

static unsigned regions;
static struct note {
	char *start, *end;
	bool discard;
	const char *by;
	const void *caller;
} volatile note[8];
/* volatile: the compiler knows that munmap() calls nothing of ours back, and is wrong */
static volatile int begun, ended;
static bool uninterested;

static bool begin(uint64_t start, uint64_t end, bool discard, const char *by, const void *caller)
{
	CHECK(begun < 8);
	note[begun] = (struct note){(char *)start, (char *)end, discard, by, caller};
	begun++;
	errno = EXDEV; /* must not be seen */
	return !uninterested;
}

static unsigned begin_file(int fd, uint64_t start, uint64_t end, const char *by, const void *caller)
{
	return begin(start, end, true, by, caller) ? 1 : 0;
}

static void end(void)
{
	ended++;
	errno = EXDEV;
}

static const struct faultline_mm_ops ops = {
	.size = sizeof(ops), .regions = &regions, .begin = begin, .end = end, .begin_file = begin_file};

static void told(int n)
{
	CHECK(begun == n && ended == n);
	begun = ended = 0;
}

static void told_of(const char *by, void *start, size_t len, bool discard)
{
	CHECK(begun >= 1 && note[0].start == start && note[0].end == (char *)start + len);
	CHECK(note[0].discard == discard && !strncmp(note[0].by, by, strlen(by)));
	CHECK(note[0].caller || len == 0);
	told(1);
}

static char *map(size_t n)
{
	char *m = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(m != MAP_FAILED);
	return m;
}

/* the same calls, with the same results, whether anybody is told or not */
static void calls(bool watched)
{
	char *m = map(16 * P), *at;
	int fd = memfd_create("t", 0), shm;

	/* nothing is taken away */
	memset(m, 1, 16 * P);
	CHECK(!madvise(m, P, MADV_WILLNEED) && !mprotect(m, P, PROT_READ) && !mprotect(m, P, 3));
	CHECK(mmap64(NULL, P, PROT_READ, MAP_SHARED, fd, 8 * P) != MAP_FAILED);
	errno = 0;
	CHECK(munmap(m + 1, P) == -1 && errno == EINVAL);
	errno = 0;
	CHECK(munmap(m, 0) == -1 && errno == EINVAL);
	errno = 0;
	CHECK(madvise(m + 1, P, MADV_DONTNEED) == -1 && errno == EINVAL);
	CHECK(mremap(m, P, P, 0) == m);
	CHECK(mmap(m, P, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
	told(0);

	errno = 0;
	CHECK(!madvise(m, P + 1, MADV_DONTNEED) && !errno && !m[0] && !m[P] && m[2 * P] == 1);
	watched ? told_of("madvise(MADV_DONTNEED)", m, 2 * P, true) : told(0);
	CHECK(!madvise(m, P, MADV_FREE));
	watched ? told_of("madvise(MADV_FREE)", m, P, true) : told(0);
	CHECK(!munmap(m + 15 * P, 5));
	watched ? told_of("munmap", m + 15 * P, P, false) : told(0);
	CHECK(mmap(m + 14 * P, P, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m + 14 * P && !m[14 * P]);
	watched ? told_of("mmap", m + 14 * P, P, false) : told(0);
	CHECK(!ftruncate(fd, 4 * P) && pwrite(fd, "x", 1, 2 * P) == 1);
	watched ? told_of("ftruncate", (void *)(4 * P), (INT64_MAX & ~4095ull) - 4 * P, true) : told(0);
	CHECK(mmap64(m + 13 * P, P, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 2 * P) == m + 13 * P && m[13 * P] == 'x');
	watched ? told_of("mmap", m + 13 * P, P, false) : told(0);
	errno = 0;
	CHECK(mmap(m, P, 3, MAP_SHARED | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EBADF);
	begun = ended = 0;

	/* mremap: shrinks, grows in place, moves, is moved over something */
	at = map(8 * P);
	at[0] = 7;
	CHECK(mremap(at, 8 * P, 4 * P, 0) == at);
	watched ? told_of("mremap", at + 4 * P, 4 * P, false) : told(0);
	CHECK(mremap(at, 4 * P, 6 * P, 0) == at);
	told(0);
	CHECK(mremap(at, 6 * P, 7 * P, MREMAP_MAYMOVE) == at);
	told(0);
	CHECK(mremap(at, P, P, MREMAP_MAYMOVE | MREMAP_FIXED, m + 3 * P) == m + 3 * P && m[3 * P] == 7);
	if (watched)
		CHECK(begun == 2 && note[0].start == at && note[0].end == at + P && note[1].start == m + 3 * P &&
		      note[1].end == m + 4 * P);
	told(watched ? 2 : 0);
	CHECK(mremap(m, 2 * P, 300 * P, MREMAP_MAYMOVE) != MAP_FAILED);
	watched ? told_of("mremap", m, 2 * P, false) : told(0);

	shm = shmget(IPC_PRIVATE, 3 * P, 0600);
	at = shmat(shm, NULL, 0);
	shmctl(shm, IPC_RMID, NULL);
	CHECK(at != (void *)-1 && !shmdt(at));
	if (watched)
		CHECK(begun == 1 && note[0].start == at && !note[0].end);
	told(watched ? 1 : 0);

	shm = shmget(IPC_PRIVATE, 2 * P, 0600);
	at = shmat(shm, NULL, 0);
	CHECK(at != (void *)-1 && !shmdt(at));
	watched ? told_of("shmdt", at, (size_t)-(intptr_t)at, false) : told(0);
	CHECK(shmat(shm, m + 8 * P, SHM_REMAP) == m + 8 * P && !m[8 * P] && !m[10 * P - 1]);
	shmctl(shm, IPC_RMID, NULL);
	watched ? told_of("shmat", m + 8 * P, 2 * P, false) : told(0);

	/* of a file: whole pages */
	errno = 0;
	CHECK(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, P - 1, 2 * P + 5) && !errno);
	watched ? told_of("fallocate", (void *)P, 2 * P, true) : told(0);
	CHECK(!fallocate64(fd, 0, 0, 8 * P) && !fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5, P));
	told(0);
	CHECK(!ftruncate64(fd, 5 * P + 1));
	watched ? told_of("ftruncate", (void *)(6 * P), (INT64_MAX & ~4095ull) - 6 * P, true) : told(0);
	CHECK(ftruncate(fd, -1) == -1 && errno == EINVAL && fallocate(fd, 0, 0, 0) == -1 && errno == EINVAL);
	told(0);

	at = sbrk(0);
	CHECK(!brk(at + 10 * P) && sbrk(P) == at + 10 * P && sbrk(0) == at + 11 * P);
	told(0);
	memset(at, 1, 11 * P);
	CHECK(sbrk(-(intptr_t)(4 * P)) == at + 11 * P);
	if (watched)
		CHECK(begun == 1 && note[0].end >= at + 11 * P && note[0].start < at + 8 * P && note[0].start >= at + 7 * P);
	told(watched ? 1 : 0);
	CHECK(!brk(at) && sbrk(0) == at);
	told(watched ? 1 : 0);
	close(fd);
}

static void *in_thread(void *arg)
{
	sigset_t all;
	char *m = map(P);

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	CHECK(!munmap(m, P));
	told_of("munmap", m, P, false);
	return NULL;
}

int main(void)
{
	pthread_t t;
	int status;

	/* stdio's buffers and the like are made now */
	fprintf(stderr, "hooks\n");
	calls(false);
	faultline_preload_ops.mm_install(&ops);
	calls(false);
	regions = 1;
	calls(true);
	CHECK(!pthread_create(&t, NULL, in_thread, NULL));
	pthread_join(t, NULL);
	begun = ended = 0;

	uninterested = true; /* nothing overlaps: no end is owed */
	CHECK(!munmap(map(P), P));
	CHECK(begun == 1 && ended == 0);
	begun = 0;
	uninterested = false;
	if (!fork()) {
		regions = 0;
		calls(false);
		exit(0);
	}
	CHECK(wait(&status) > 0 && !status);
	return 0;
}
