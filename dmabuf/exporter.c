/* SPDX-License-Identifier: BSD-2-Clause */
/* What is common to all exporters: devices, and the way from an application's descriptor to a buffer. */
#include "dmabuf/exporter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "dmabuf/internal.h"
#include "mm/mm.h"
#include "util/cancel.h"

#define PAGE	     4096ul
#define DEFAULT_SIZE (16ul << 20)

static const struct exporter_kind *const kinds[] = {
	[FAULTLINE_DMABUF_MEMFD] = &exporter_memfd,
	[FAULTLINE_DMABUF_ACCEL] = &exporter_accel,
	[FAULTLINE_DMABUF_VRAM] = &exporter_vram,
	[FAULTLINE_DMABUF_VFIO] = &exporter_vfio,
};

/* 0: too large, or nothing */
static size_t whole_pages(size_t size)
{
	return size > SIZE_MAX - PAGE ? 0 : (size + PAGE - 1) & ~(PAGE - 1);
}

int exporter_memory(const char *name, bool device, size_t size, int *fd, void **addr)
{
	char full[64];
	int err;

	if (device)
		mm_has_device_files();
	snprintf(full, sizeof(full), "%s%s", device ? MM_DEVICE_FILE : DMA_FILE_NAME, name);
	*fd = memfd_create(full, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return -errno;
	if (ftruncate(*fd, (off_t)size) || fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		goto err;
	*addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (*addr != MAP_FAILED)
		return 0;
err:
	err = -errno;
	close(*fd);
	return err;
}

int exporter_open(const struct faultline_dmabuf_device_attr *attr, struct faultline_dmabuf_device **out)
{
	NO_CANCEL;
	struct faultline_dmabuf_device *dev;
	int err;

	if ((unsigned)attr->kind >= sizeof(kinds) / sizeof(kinds[0]) || attr->flags & ~kinds[attr->kind]->flags)
		return -EINVAL;
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return -ENOMEM;
	dev->number = attr->kind;
	dev->kind = kinds[attr->kind];
	dev->flags = attr->flags;
	/* system memory has no size of its own */
	dev->size = attr->kind == FAULTLINE_DMABUF_MEMFD ? 0 : whole_pages(attr->size ? attr->size : DEFAULT_SIZE);
	snprintf(dev->name, sizeof(dev->name), "%s", attr->name ? attr->name : dev->kind->name);
	dev->pid = getpid();
	fl_mutex_init(&dev->lock, LOCK_DMA_EXPORTER);
	err = dev->size || attr->kind == FAULTLINE_DMABUF_MEMFD ? 0 : -EINVAL;
	if (!err && dev->kind->open)
		err = dev->kind->open(dev);
	if (err) {
		fl_mutex_destroy(&dev->lock);
		free(dev);
		return err;
	}
	*out = dev;
	return 0;
}

int exporter_close(struct faultline_dmabuf_device *dev)
{
	NO_CANCEL;
	bool busy;

	if (dev->pid != getpid())
		return -EIO;
	dma_buf_reap(); /* what the application has closed before is no buffer any more */
	fl_lock(&dev->lock);
	busy = dev->buffers;
	fl_unlock(&dev->lock);
	if (busy)
		return -EBUSY;
	if (dev->kind->close)
		dev->kind->close(dev);
	fl_mutex_destroy(&dev->lock);
	free(dev);
	return 0;
}

int exporter_device_info(struct faultline_dmabuf_device *dev, struct faultline_dmabuf_device_info *info)
{
	NO_CANCEL;
	if (dev->pid != getpid())
		return -EIO;
	dma_buf_reap();
	memset(info, 0, sizeof(*info));
	fl_lock(&dev->lock);
	info->size = dev->size;
	info->buffers = dev->buffers;
	info->used = dev->used;
	info->largest_free = dev->size > dev->used ? dev->size - dev->used : 0;
	info->alloc_failures = dev->alloc_failures;
	if (dev->kind->device_info)
		dev->kind->device_info(dev, info);
	fl_unlock(&dev->lock);
	return 0;
}

int exporter_alloc(struct faultline_dmabuf_device *dev, size_t size, unsigned flags, int *fd)
{
	NO_CANCEL;
	struct dma_buf *dmabuf;
	int err;

	if (dev->pid != getpid())
		return -EIO;
	size = whole_pages(size);
	if (!size || flags & ~dev->kind->alloc_flags)
		return -EINVAL;
	dma_buf_reap();
	err = dev->kind->alloc(dev, size, flags, &dmabuf);
	if (err) {
		fl_lock(&dev->lock);
		dev->alloc_failures++;
		fl_unlock(&dev->lock);
		return err;
	}
	*fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (*fd >= 0)
		return 0;
	dma_buf_put(dmabuf);
	return *fd;
}

int exporter_evict(struct faultline_dmabuf_device *dev, size_t bytes)
{
	NO_CANCEL;
	if (dev->pid != getpid())
		return -EIO;
	dma_buf_reap();
	return dev->kind->evict ? dev->kind->evict(dev, bytes) : -EOPNOTSUPP;
}

/* ---- by descriptor ---- */

static struct faultline_dmabuf_device *device_of(struct dma_buf *dmabuf)
{
	return ((struct exporter_buf *)dmabuf->priv)->dev;
}

/* A buffer of this process's exporters, with a reference. Buffers in the table with a file are all theirs,
 * but for those that a unit test exports itself. */
static int get(int fd, struct dma_buf **dmabuf, struct faultline_dmabuf_device **dev)
{
	int err = dma_buf_find(fd, dmabuf);

	if (err)
		return err;
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if ((*dmabuf)->exp_name == kinds[i]->name) {
			*dev = device_of(*dmabuf);
			return 0;
		}
	}
	dma_buf_put(*dmabuf);
	return -EINVAL;
}

int exporter_access(int fd, size_t offset, void *buf, size_t length, bool write)
{
	NO_CANCEL;
	struct faultline_dmabuf_device *dev;
	struct dma_buf *b;
	int err = get(fd, &b, &dev);
	size_t end;

	if (err)
		return err;
	if (__builtin_add_overflow(offset, length, &end) || end > b->size)
		err = -ERANGE;
	else
		err = dev->kind->access(b, offset, buf, length, write);
	dma_buf_put(b);
	return err;
}

int exporter_mmap(int fd, size_t offset, size_t length, int prot, void **addr)
{
	NO_CANCEL;
	struct faultline_dmabuf_device *dev;
	struct dma_buf *b;
	int err = get(fd, &b, &dev);

	if (err)
		return err;
	err = dma_buf_mmap(b, offset, length, prot, addr);
	dma_buf_put(b);
	return err;
}

int exporter_munmap(int fd, void *addr, size_t length)
{
	NO_CANCEL;
	struct faultline_dmabuf_device *dev;
	struct dma_buf *b;
	int err = get(fd, &b, &dev);

	if (err)
		return err;
	if (munmap(addr, length))
		err = -errno;
	else if (dev->kind->munmap)
		dev->kind->munmap(b);
	dma_buf_put(b);
	return err;
}

int exporter_cpu_access(int fd, bool begin)
{
	NO_CANCEL;
	struct faultline_dmabuf_device *dev;
	struct dma_buf *b;
	int err = get(fd, &b, &dev);

	if (err)
		return err;
	err = begin ? dma_buf_begin_cpu_access(b, DMA_BIDIRECTIONAL) : dma_buf_end_cpu_access(b, DMA_BIDIRECTIONAL);
	dma_buf_put(b);
	return err;
}

int exporter_move(int fd, enum faultline_dmabuf_place to)
{
	NO_CANCEL;
	struct faultline_dmabuf_device *dev;
	struct dma_buf *b;
	int err = get(fd, &b, &dev);

	if (err)
		return err;
	if (to != FAULTLINE_DMABUF_SYSTEM && to != FAULTLINE_DMABUF_DEVICE)
		err = -EINVAL;
	else
		err = dev->kind->move ? dev->kind->move(b, to) : -EOPNOTSUPP;
	dma_buf_put(b);
	return err;
}

int exporter_revoke(int fd)
{
	NO_CANCEL;
	struct faultline_dmabuf_device *dev;
	struct dma_buf *b;
	int err = get(fd, &b, &dev);

	if (err)
		return err;
	err = dev->kind->revoke ? dev->kind->revoke(b) : -EOPNOTSUPP;
	dma_buf_put(b);
	return err;
}

int exporter_info(int fd, struct faultline_dmabuf_info *info)
{
	NO_CANCEL;
	struct faultline_dmabuf_device *dev;
	struct dma_buf_attachment *a;
	struct dma_buf *b;
	int err = get(fd, &b, &dev);

	if (err)
		return err;
	memset(info, 0, sizeof(*info));
	info->size = b->size;
	info->kind = dev->number;
	info->pieces = 1;
	info->place = dev->number == FAULTLINE_DMABUF_MEMFD ? FAULTLINE_DMABUF_SYSTEM : FAULTLINE_DMABUF_DEVICE;
	dma_resv_lock(b->resv, NULL);
	cds_list_for_each_entry(a, &b->attachments, node) {
		info->attachments++;
		info->maps += a->maps;
		info->pins += a->pins;
	}
	if (dev->kind->info)
		dev->kind->info(b, info);
	dma_resv_unlock(b->resv);
	dma_buf_put(b);
	return 0;
}

int exporter_fail(int fd, enum faultline_dmabuf_call call, int err)
{
	NO_CANCEL;
	static const enum dma_buf_fail what[] = {
		[FAULTLINE_DMABUF_CALL_ATTACH] = DMA_BUF_FAIL_ATTACH,
		[FAULTLINE_DMABUF_CALL_PIN] = DMA_BUF_FAIL_PIN,
		[FAULTLINE_DMABUF_CALL_MAP] = DMA_BUF_FAIL_MAP,
	};
	struct dma_buf *b;
	int r;

	if ((unsigned)call >= sizeof(what) / sizeof(what[0]) || err < 0)
		return -EINVAL;
	/* of any buffer: it is the framework that fails (a foreign one only while it is imported) */
	r = dma_buf_get(fd, &b);
	if (r)
		return r;
	dma_buf_inject_fail(b, what[call], err);
	dma_buf_put(b);
	return 0;
}

int exporter_totals(struct faultline_dmabuf_totals *totals)
{
	NO_CANCEL;
	struct dma_buf_totals t;

	dma_buf_reap();
	dma_buf_totals(&t);
	*totals = (struct faultline_dmabuf_totals){
		.buffers = t.buffers,
		.attachments = t.attachments,
		.maps = t.maps,
		.pins = t.pins,
		.moves = t.moves,
		.evictions = t.evictions,
		.invalidations = t.invalidations,
		.revocations = t.revocations,
		.fence_waits = t.fence_waits,
		.rule_breaks = t.rule_breaks,
		.importers_ended = t.importers_ended,
		.importers_lost = t.importers_lost,
	};
	return 0;
}
