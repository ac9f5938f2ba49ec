/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file behind a buffer's descriptor. It is a memfd of the buffer's size, sealed against growing and
 * shrinking: it can be dup()ed, sent to another process, and mapped where it is the buffer's memory; it is known
 * again by its inode, whatever number it has. A buffer whose memory must not be mapped by its descriptor has an
 * empty memfd to stand for it, handed out write-only, of which mmap() is refused.
 *
 * A buffer must go when the application has closed its last descriptor, in any process, and a memfd tells nobody
 * when that is. But each description of a file (what dup() and SCM_RIGHTS share, and what a mapping keeps open)
 * reports its end to inotify, before the close() returns. Equal reports are merged, so they are no count; they
 * say when to look. The look is a lease: the kernel gives a write lease to who has the file open alone. So
 * the application's descriptors are of a description of their own, opened through /proc/self/fd.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dmabuf/internal.h"
#include "dmabuf/remote.h"
#include "util/log.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* the process's watcher; -1: not yet, -2: not to be had. Under LOCK_DMA_BUF */
static int watcher = -1;

static int reopen(int fd, int flags)
{
	char path[32];
	int n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = open(path, flags);
	return n < 0 ? -errno : n;
}

int dma_file_open(struct dma_file *file, const char *exp_name, size_t size, int storage)
{
	char name[64];
	struct stat st;
	int fd = storage, own;

	if (fd < 0) {
		uint64_t token = dma_remote_serve();

		snprintf(name, sizeof(name), token ? DMA_FILE_NAME "%.20s@%" PRIx64 : DMA_FILE_NAME "%.20s", exp_name, token);
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (fd < 0)
			return -errno;
		if (ftruncate(fd, (off_t)size))
			goto err;
	}
	if (fcntl(fd, F_ADD_SEALS, SEALS) && errno != EPERM) /* EPERM: sealed before */
		goto err;
	/* memfd_create()'s own description is not among the writers that a lease looks for: one that is */
	own = reopen(fd, O_RDWR | O_CLOEXEC);
	close(fd);
	if (own < 0)
		return own;
	/* who opens the file while we look breaks the lease: that must not be a deadly SIGIO */
	fcntl(own, F_SETSIG, SIGURG);
	if (fstat(own, &st)) {
		fd = own;
		goto err;
	}
	*file = (struct dma_file){.fd = own, .dev = st.st_dev, .ino = st.st_ino};
	return 0;
err:
	own = -errno;
	close(fd);
	return own;
}

int dma_file_new_fd(const struct dma_file *file, bool mappable, int flags)
{
	return reopen(file->fd, (mappable ? O_RDWR : O_WRONLY) | (flags & O_CLOEXEC));
}

bool dma_file_alone(const struct dma_file *file, bool unknown)
{
	if (!fcntl(file->fd, F_SETLEASE, F_WRLCK)) {
		fcntl(file->fd, F_SETLEASE, F_UNLCK);
		return true;
	}
	return errno == EAGAIN ? false : unknown;
}

int dma_file_watch(const struct dma_file *file)
{
	char path[32];
	int wd;

	if (watcher == -1) {
		watcher = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
		if (watcher < 0) {
			fl_warn("inotify is not to be had (fs.inotify.max_user_instances?): dma-buf descriptors are "
				"looked at one by one to find those that were closed");
			watcher = -2;
		}
	}
	if (watcher < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
	wd = inotify_add_watch(watcher, path, IN_CLOSE);
	return wd < 0 ? -1 : wd;
}

void dma_file_unwatch(int watch)
{
	if (watch >= 0 && watcher >= 0)
		inotify_rm_watch(watcher, watch);
}

int dma_file_next_closed(void)
{
	struct inotify_event e;

	/* no names in them, so that one is read at a time */
	while (watcher >= 0 && read(watcher, &e, sizeof(e)) == sizeof(e))
		if (e.mask & (IN_CLOSE | IN_Q_OVERFLOW))
			return e.mask & IN_Q_OVERFLOW ? DMA_FILE_ANY : e.wd;
	return -1;
}

void dma_file_forget_watches(void)
{
	if (watcher >= 0)
		close(watcher);
	watcher = -1;
}
