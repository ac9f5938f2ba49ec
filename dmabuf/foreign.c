/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Buffers that are not of this process: a kernel's dma-buf (udmabuf, dma-heap, a driver's), and one that another
 * Faultline process has made of memory that a descriptor can reach (for other memory: remote.h). Both are imported by
 * mmap() and count as system memory that never moves: a kernel driver's buffer does not while it is mapped for the
 * CPU, or its page faults bring it back. A kernel's is bracketed with DMA_BUF_IOCTL_SYNC as long as anybody has it
 * mapped.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "dmabuf/internal.h"
#include "mm/mm.h"
#include "util/log.h"

struct foreign {
	int fd;
	bool kernels;
	void *addr;	/* mapped at the first attachment, until release; under resv */
	unsigned users; /* maps; under resv */
};

int dma_foreign_probe(int fd, struct dma_foreign *foreign)
{
	static const char prefix[] = "/memfd:" DMA_FILE_NAME;
	char path[32], name[128] = "";
	struct statfs fs;
	const char *at;

	*foreign = (struct dma_foreign){0};
	if (fstatfs(fd, &fs))
		return -errno;
	foreign->kernels = fs.f_type == DMA_BUF_MAGIC;
	if (foreign->kernels)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, name, sizeof(name) - 1) < 0 || strncmp(name, prefix, sizeof(prefix) - 1))
		return -EINVAL;
	mm_has_device_files();
	if ((fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) == 0)
		return -EINVAL; /* somebody else's, by that name: it could be cut off under our copies */
	if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR)
		return 0;
	at = strchr(name, '@');
	foreign->token = at ? strtoull(at + 1, NULL, 16) : 0;
	if (foreign->token)
		return 0;
	fl_warn("this dma-buf is of another process, which could not make a socket to be asked by: only the process "
		"that allocated it can register it");
	return -EOPNOTSUPP;
}

static int sync_ioctl(struct foreign *f, uint64_t flags)
{
	struct dma_buf_sync s = {.flags = flags};
	int r;

	if (!f->kernels)
		return 0;
	do
		r = ioctl(f->fd, DMA_BUF_IOCTL_SYNC, &s);
	while (r && (errno == EINTR || errno == EAGAIN));
	return r ? -errno : 0;
}

static int foreign_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct foreign *f = dmabuf->priv;
	int err = 0;

	dma_resv_lock(dmabuf->resv, NULL);
	if (!f->addr) {
		f->addr = mmap(NULL, dmabuf->size, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
		if (f->addr == MAP_FAILED) {
			err = -errno;
			f->addr = NULL;
			fl_warn("%s: the memory of this dma-buf cannot be reached by the CPU (mmap: %s), and RDMA is "
				"a copy by the CPU here", attach->dev->name, strerror(-err));
			err = -EOPNOTSUPP;
		}
	}
	dma_resv_unlock(dmabuf->resv);
	return err;
}

static int foreign_map(struct dma_buf_attachment *attach, enum dma_data_direction dir, struct sg_table **sgt)
{
	struct foreign *f = attach->dmabuf->priv;
	struct sg_table *t = dma_buf_alloc_sgt(1);
	int err;

	if (!t)
		return -ENOMEM;
	if (!f->users) {
		err = sync_ioctl(f, DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW);
		if (err) {
			free(t);
			return err;
		}
	}
	f->users++;
	t->sgl[0] = (struct scatterlist){(uint64_t)(uintptr_t)f->addr, attach->dmabuf->size, 0};
	*sgt = t;
	return 0;
}

static void foreign_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt, enum dma_data_direction dir)
{
	struct foreign *f = attach->dmabuf->priv;

	if (!--f->users)
		sync_ioctl(f, DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW);
	free(sgt);
}

static void foreign_release(struct dma_buf *dmabuf)
{
	struct foreign *f = dmabuf->priv;

	if (f->addr)
		munmap(f->addr, dmabuf->size);
	close(f->fd);
	free(f);
}

static const struct dma_buf_ops foreign_ops = {
	.attach = foreign_attach,
	.map_dma_buf = foreign_map,
	.unmap_dma_buf = foreign_unmap,
	.release = foreign_release,
};

int dma_foreign_import(int fd, bool kernels, struct dma_buf **dmabuf)
{
	off_t size = lseek(fd, 0, SEEK_END);
	struct foreign *f = NULL;
	int err = -EINVAL;

	if (size <= 0)
		goto err;
	f = calloc(1, sizeof(*f));
	err = -ENOMEM;
	if (!f)
		goto err;
	f->fd = fd;
	f->kernels = kernels;
	err = dma_buf_create(&(struct dma_buf_export_info){.exp_name = kernels ? "the kernel" : "another process",
							   .ops = &foreign_ops, .size = (size_t)size, .priv = f,
							   .storage = -1},
			     dmabuf);
	if (!err)
		return 0;
err:
	free(f);
	close(fd);
	return err;
}
