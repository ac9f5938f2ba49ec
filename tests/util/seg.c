/* SPDX-License-Identifier: BSD-2-Clause */
/* The segment: its shape, its arena, what others may do with it, and what is refused of others'. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "util/log.h"
#include "util/seg.h"

static struct seg seg;

static int make(void **state)
{
	return seg_create(&seg);
}

static int drop(void **state)
{
	seg_destroy(&seg);
	return 0;
}

static void test_shape(void **state)
{
	const struct faultline_segment *s = seg.s;
	struct stat st;

	assert_int_equal(s->magic, FAULTLINE_SEGMENT_MAGIC);
	assert_int_equal(s->pid, getpid());
	assert_true(s->mr_entries >= 1u << 19);
	assert_true(s->mr_table >= sizeof(*s));
	assert_true(s->arena >= s->mr_table + s->mr_entries * sizeof(struct faultline_mr));
	assert_true(s->arena + s->arena_size <= s->size);
	assert_int_equal(fstat(seg.fd, &st), 0);
	assert_int_equal(st.st_size, s->size);
	/* sparse: a fresh one is a few pages */
	assert_true(st.st_blocks * 512 < 1 << 20);
	assert_true(fcntl(seg.fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(seg.ro_fd, F_GETFD) & FD_CLOEXEC);
}

static void test_others_cannot_write(void **state)
{
	char path[64];
	int fd;

	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, seg.ro_fd, 0),
			 MAP_FAILED);
	assert_int_equal(write(seg.ro_fd, "x", 1), -1);
	/* nor after opening it anew for writing, nor through the descriptor we keep */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", seg.ro_fd);
	fd = open(path, O_RDWR);
	if (fd >= 0) {
		assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
				 MAP_FAILED);
		assert_int_equal(write(fd, "x", 1), -1);
		assert_int_equal(ftruncate(fd, 0), -1);
		close(fd);
	}
	assert_int_equal(ftruncate(seg.fd, 0), -1);
}

static void test_chunks(void **state)
{
	enum { N = 1000 };
	uint64_t off[N], *word;

	for (int i = 0; i < N; i++) {
		off[i] = seg_chunk_alloc(&seg);
		assert_true(off[i] >= seg.s->arena);
		assert_true(off[i] + SEG_CHUNK <= seg.s->arena + seg.s->arena_size);
		assert_int_equal(off[i] % SEG_CHUNK, 0);
		word = seg_ptr(&seg, off[i]);
		for (unsigned k = 0; k < SEG_CHUNK / 8; k++)
			assert_int_equal(word[k], 0);
		memset(word, 0xa5, SEG_CHUNK);
		for (int j = 0; j < i; j++)
			assert_true(off[j] != off[i]);
	}
	for (int i = 0; i < N; i++) {
		seg_chunk_free(&seg, off[i]);
		/* at once, not when it is handed out again */
		word = seg_ptr(&seg, off[i]);
		for (unsigned k = 0; k < SEG_CHUNK / 8; k++)
			assert_int_equal(word[k], 0);
	}
	/* reused, rather than the arena eaten up */
	for (int i = 0; i < N; i++) {
		uint64_t again = seg_chunk_alloc(&seg);

		assert_true(again < seg.s->arena + (uint64_t)N * SEG_CHUNK);
	}
}

static void *churn(void *arg)
{
	uint64_t mine[16];

	for (int round = 0; round < 500; round++) {
		for (int i = 0; i < 16; i++) {
			uint64_t *w;

			mine[i] = seg_chunk_alloc(&seg);
			w = seg_ptr(&seg, mine[i]);
			if (w[0] || w[511])
				return "a chunk is not zero";
			w[0] = w[511] = (uintptr_t)arg;
		}
		for (int i = 0; i < 16; i++) {
			uint64_t *w = seg_ptr(&seg, mine[i]);

			if (w[0] != (uintptr_t)arg || w[511] != (uintptr_t)arg)
				return "two threads have one chunk";
			seg_chunk_free(&seg, mine[i]);
		}
	}
	return NULL;
}

static void test_chunks_by_threads(void **state)
{
	pthread_t t[4];
	void *wrong;

	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, churn, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(t[i], &wrong), 0);
		assert_ptr_equal(wrong, NULL);
	}
}

static void test_peer(void **state)
{
	const struct faultline_segment *s;
	const struct faultline_mr *mr;
	uint64_t entries;

	assert_int_equal(seg_map_peer(seg.ro_fd, &s), 0);
	assert_int_equal(s->pid, getpid());
	cnt_add(&seg.s->device[0], FL_CNT_page_faults, 5);
	assert_int_equal(s->device[0].counter[FL_CNT_page_faults], 5);
	mr = seg_peer_mrs(s, &entries);
	assert_int_equal(entries, seg.s->mr_entries);
	((struct faultline_mr *)seg_ptr(&seg, seg.s->mr_table))[3].key = 77;
	assert_int_equal(mr[3].key, 77);

	/* what the owner says later changes nothing of what was checked */
	seg.s->mr_table = 1ull << 60;
	seg.s->mr_entries = 1ull << 60;
	seg.s->size = 1;
	assert_ptr_equal(seg_peer_mrs(s, &entries), mr);
	assert_true(entries <= 1u << 20);
	seg_unmap_peer(s);
}

static void refused(const char *what)
{
	const struct faultline_segment *s;
	int err = seg_map_peer(seg.ro_fd, &s);

	if (err != -EPROTO)
		fail_msg("%s: %d instead of -EPROTO", what, err);
}

static void test_hostile_peer(void **state)
{
	struct faultline_segment *s = seg.s, good;
	const struct faultline_segment *out;

	memcpy(&good, s, offsetof(struct faultline_segment, device));
#define TRY(change)                                                                                \
	do {                                                                                       \
		change;                                                                            \
		refused(#change);                                                                  \
		memcpy(s, &good, offsetof(struct faultline_segment, device));                      \
	} while (0)
	TRY(s->magic++);
	TRY(s->version++);
	TRY(s->size_of_header -= 8);
	TRY(s->size *= 2);
	TRY(s->mr_table = 0);
	TRY(s->mr_table += 4);
	TRY(s->mr_table = s->size - 8);
	TRY(s->mr_table = UINT64_MAX - 7);
	TRY(s->mr_entries = UINT64_MAX);
	TRY(s->mr_entries = UINT64_MAX / sizeof(struct faultline_mr) + 1);
	TRY(s->arena = s->size);
	TRY(s->arena += 8);
	TRY(s->arena_size = UINT64_MAX);
	TRY(s->num_devices = FAULTLINE_MAX_DEVICES + 1);
	assert_int_equal(seg_map_peer(seg.ro_fd, &out), 0);
	seg_unmap_peer(out);
}

static void test_not_a_segment(void **state)
{
	const struct faultline_segment *s;
	int fd, p[2];

	assert_int_equal(pipe(p), 0);
	assert_true(seg_map_peer(p[0], &s) < 0);
	close(p[0]);
	close(p[1]);
	fd = open("/dev/null", O_RDONLY);
	assert_true(seg_map_peer(fd, &s) < 0);
	close(fd);
	assert_true(seg_map_peer(-1, &s) < 0);
	/* a copy that its owner could cut short under a reader's feet */
	fd = memfd_create("copy", MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, (off_t)seg.s->size), 0);
	assert_int_equal(pwrite(fd, seg.s, sizeof(*seg.s), 0), sizeof(*seg.s));
	assert_int_equal(seg_map_peer(fd, &s), -EPROTO);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(seg_map_peer(fd, &s), 0);
	seg_unmap_peer(s);
	close(fd);
	/* too short for what it says, and for a header */
	fd = memfd_create("short", MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(seg_map_peer(fd, &s), -EPROTO);
	close(fd);
}

/* limits: a smaller one, without a SIGXFSZ; none at all is an error, not a crash */
static int with_limit(int resource, rlim_t limit)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		struct rlimit r = {limit, limit};
		struct seg small;

		fl_log_level = LOG_NONE;
		setrlimit(resource, &r);
		if (seg_create(&small))
			_exit(2);
		_exit(small.s->size < 4ull << 30 && seg_chunk_alloc(&small) ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void test_limits(void **state)
{
	assert_int_equal(with_limit(RLIMIT_FSIZE, 300 << 20), 0);
	assert_int_equal(with_limit(RLIMIT_FSIZE, 1 << 20), 2);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* the sanitizers' shadow does not fit such a limit */
	assert_int_equal(with_limit(RLIMIT_AS, 600 << 20), 0);
	assert_int_equal(with_limit(RLIMIT_AS, 20 << 20), 2);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_shape, make, drop),
		cmocka_unit_test_setup_teardown(test_others_cannot_write, make, drop),
		cmocka_unit_test_setup_teardown(test_chunks, make, drop),
		cmocka_unit_test_setup_teardown(test_chunks_by_threads, make, drop),
		cmocka_unit_test_setup_teardown(test_peer, make, drop),
		cmocka_unit_test_setup_teardown(test_hostile_peer, make, drop),
		cmocka_unit_test_setup_teardown(test_not_a_segment, make, drop),
		cmocka_unit_test(test_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
