/* SPDX-License-Identifier: BSD-2-Clause */
/* The descriptor's life: copies, mappings, other processes, importers; and descriptors that are no dma-buf. */
#include "peer.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define PAGE 4096ul

static uint64_t buffers(void)
{
	struct faultline_dmabuf_totals t;

	exporter_totals(&t);
	return t.buffers;
}

static void copies(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_ACCEL, 0, 0);
	int fd = buffer(dev, PAGE), copy;
	char *p;

	copy = dup(fd);
	close(fd);
	assert_int_equal(buffers(), 1);
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, copy, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(exporter_access(copy, 0, "x", 1, true), 0);
	close(copy);
	assert_int_equal(buffers(), 1); /* a mapping keeps it, as it keeps a file */
	assert_int_equal(p[0], 'x');
	munmap(p, PAGE);
	assert_int_equal(buffers(), 0);
	assert_int_equal(exporter_close(dev), 0);
}

/* several of one kind, closed in one go: each goes, and only these */
static void many(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, 0, 0);
	struct dma_buf *d;
	int fd[32], again;

	for (int i = 0; i < 32; i++)
		fd[i] = buffer(dev, PAGE);
	assert_int_equal(dma_buf_get(fd[0], &d), 0);
	again = dma_buf_fd(d, O_CLOEXEC); /* a second description of it */
	assert_true(fcntl(again, F_GETFD) & FD_CLOEXEC);
	for (int i = 0; i < 31; i++)
		close(fd[i]);
	assert_int_equal(buffers(), 2);
	close(again);
	close(fd[31]);
	assert_int_equal(buffers(), 0);
	assert_int_equal(exporter_close(dev), 0);
}

/* closing the descriptor under a registration is legal */
static void importers_keep_it(void **state)
{
	for (int kind = FAULTLINE_DMABUF_MEMFD; kind <= FAULTLINE_DMABUF_VFIO; kind++) {
		struct faultline_dmabuf_device *dev = device(kind, 0, 0);
		int fd = buffer(dev, PAGE);
		struct importer im;
		char b = 1;

		assert_int_equal(importer_get(&im, fd, REVOCABLE), 0);
		close(fd);
		assert_int_equal(buffers(), 1);
		assert_int_equal(importer_dma(&im, 0, &b, 1, true), 0);
		assert_int_equal(exporter_close(dev), -EBUSY);
		importer_release(&im);
		assert_int_equal(buffers(), 0);
		assert_int_equal(exporter_close(dev), 0);
	}
	assert_nothing_left();
}

/* in the child; what it returns is its exit status */
static int other_process(int sock)
{
	struct importer im;
	char b = 0, c;
	int fd, r;

	if (!receive_with_fd(sock, &c, 1, &fd) || fd < 0)
		return 1;
	if (buffers())
		return 2; /* none of the parent's is the child's */
	if (importer_get(&im, fd, PINNED))
		return 4;
	close(fd);
	if (importer_dma(&im, 0, &b, 1, false) || b != 'p')
		return 5;
	if (importer_dma(&im, 1, "c", 1, true))
		return 6;
	if (write(sock, "w", 1) != 1 || read(sock, &c, 1) != 1)
		return 7; /* the parent has closed its descriptor by now, and looked */
	r = importer_dma(&im, 0, &b, 1, false) || b != 'p' ? 8 : 0;
	importer_release(&im);
	return r;
}

/* whose memory is the file behind the descriptor; for the others see remote.c */
static void to_another_process(void **state)
{
	for (int kind = FAULTLINE_DMABUF_MEMFD; kind <= FAULTLINE_DMABUF_ACCEL; kind++) {
		struct faultline_dmabuf_device *dev = device(kind, 0, 0);
		int sock[2], fd, status;
		char b[2] = {0};
		pid_t pid;

		assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock), 0);
		pid = fork();
		if (!pid) {
			close(sock[0]);
			_exit(other_process(sock[1]));
		}
		close(sock[1]);
		fd = buffer(dev, PAGE);
		assert_int_equal(exporter_access(fd, 0, "p", 1, true), 0);
		send_with_fd(sock[0], "f", 1, fd);
		assert_int_equal(read(sock[0], b, 1), 1);
		assert_int_equal(exporter_access(fd, 1, b, 1, false), 0);
		assert_int_equal(b[0], 'c');
		close(fd);
		assert_int_equal(buffers(), 1); /* the other process has it */
		assert_int_equal(write(sock[0], "g", 1), 1);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
		close(sock[0]);
		assert_int_equal(buffers(), 0); /* and has it no more */
		assert_int_equal(exporter_close(dev), 0);
	}
	assert_nothing_left();
}

/* a child's copies of descriptors count, and its library has none of its parent's buffers */
static void fork_shares(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, 0, 0);
	int fd = buffer(dev, PAGE), go[2], status;
	char b;
	pid_t pid;

	assert_int_equal(pipe(go), 0);
	pid = fork();
	if (!pid) {
		close(go[1]);
		if (exporter_access(fd, 0, &b, 1, false) != -EINVAL || exporter_close(dev) != -EIO)
			_exit(1);
		_exit(read(go[0], &b, 1) == 0 ? 0 : 2);
	}
	close(go[0]);
	close(fd);
	assert_int_equal(buffers(), 1);
	close(go[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(buffers(), 0);
	assert_int_equal(exporter_close(dev), 0);
}

/* without inotify the end of descriptors is seen all the same */
static void without_inotify(void **state)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_inotify_init1, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EMFILE),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = 4, .filter = code};
	int status;
	pid_t pid = fork();

	if (!pid) {
		struct faultline_dmabuf_device *dev;
		int fd, copy;

		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
			_exit(77);
		dev = device(FAULTLINE_DMABUF_VRAM, 0, 0);
		fd = buffer(dev, PAGE);
		copy = dup(fd);
		close(fd);
		if (buffers() != 1)
			_exit(1);
		close(copy);
		_exit(buffers() ? 2 : exporter_close(dev) ? 3 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("skipped: no seccomp filters here\n");
		skip();
	}
	assert_int_equal(status, 0);
}

static void *cancelled_thread(void *arg)
{
	struct faultline_dmabuf_totals t;
	char b = 0;
	int fd = *(int *)arg;

	pthread_cancel(pthread_self()); /* at the first cancellation point that there is */
	exporter_totals(&t);
	exporter_access(fd, 0, &b, 1, true);
	exporter_move(fd, FAULTLINE_DMABUF_SYSTEM);
	*(int *)arg = -1;
	pthread_testcancel();
	return NULL;
}

/* a thread of the program's that is cancelled takes no lock along */
static void cancelled(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, 0, 0);
	int fd = buffer(dev, PAGE), arg = fd;
	pthread_t t;
	void *ret;

	assert_int_equal(pthread_create(&t, NULL, cancelled_thread, &arg), 0);
	assert_int_equal(pthread_join(t, &ret), 0);
	assert_ptr_equal(ret, PTHREAD_CANCELED);
	assert_int_equal(arg, -1); /* it came to the end of them */
	assert_int_equal(buffers(), 1);
	close(fd);
	assert_int_equal(exporter_close(dev), 0);
}

static void not_dma_bufs(void **state)
{
	int memfd = memfd_create("faultline-dmabuf", MFD_CLOEXEC), file, sock[2];
	int liar = memfd_create("faultline-dmabuf:accel", MFD_CLOEXEC); /* by name, but can be cut off */
	struct dma_buf *d;

	assert_int_equal(ftruncate(memfd, PAGE), 0);
	assert_int_equal(ftruncate(liar, PAGE), 0);
	file = open("/proc/self/exe", O_RDONLY);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
	assert_int_equal(dma_buf_get(memfd, &d), -EINVAL);
	assert_int_equal(dma_buf_get(liar, &d), -EINVAL);
	assert_int_equal(dma_buf_get(file, &d), -EINVAL);
	assert_int_equal(dma_buf_get(sock[0], &d), -EINVAL);
	close(sock[0]);
	close(sock[1]);
	close(memfd);
	close(liar);
	close(file);
	assert_int_equal(dma_buf_get(file, &d), -EBADF);
	assert_int_equal(dma_buf_get(-1, &d), -EBADF);
	assert_int_equal(exporter_revoke(-1), -EBADF);
	assert_nothing_left();
}

/* a real one, where this machine has udmabuf and lets us */
static void kernels(void **state)
{
	int dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), memfd, fd;
	struct udmabuf_create create = {.size = 4 * PAGE};
	struct importer im, again;
	char *p, b = 0;

	if (dev < 0) {
		print_message("skipped: /dev/udmabuf: %s\n", strerror(errno));
		skip();
	}
	memfd = memfd_create("source", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(memfd, 4 * PAGE), 0);
	assert_int_equal(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	create.memfd = (unsigned)memfd;
	fd = ioctl(dev, UDMABUF_CREATE, &create);
	assert_true(fd >= 0);
	assert_int_equal(importer_get(&im, fd, PINNED), 0);
	assert_int_equal(importer_get(&again, fd, DYNAMIC), 0);
	assert_ptr_equal(im.dmabuf, again.dmabuf);
	assert_int_equal(im.dmabuf->size, 4 * PAGE);
	close(fd);
	assert_int_equal(importer_dma(&im, 4 * PAGE - 1, "k", 1, true), 0);
	assert_int_equal(importer_dma(&again, 4 * PAGE - 1, &b, 1, false), 0);
	assert_int_equal(b, 'k');
	p = mmap(NULL, 4 * PAGE, PROT_READ, MAP_SHARED, memfd, 0);
	assert_int_equal(p[4 * PAGE - 1], 'k');
	importer_release(&im);
	importer_release(&again);
	munmap(p, 4 * PAGE);
	close(memfd);
	close(dev);
	assert_nothing_left();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* first, while there is no other thread here: the thread sanitizer has none in the child else */
		cmocka_unit_test(without_inotify),
		cmocka_unit_test(copies),      cmocka_unit_test(many),	       cmocka_unit_test(importers_keep_it),
		cmocka_unit_test(to_another_process), cmocka_unit_test(fork_shares),
		cmocka_unit_test(not_dma_bufs), cmocka_unit_test(kernels), cmocka_unit_test(cancelled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
