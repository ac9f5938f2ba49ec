/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices whose memory stays where it is: system memory (memfd), an accelerator, a device of vfio's. A buffer is
 * a memfd, which the library maps for itself; where the application may have it too, the same memfd is the
 * file behind the descriptor. A pin is granted where the buffer is, and costs nothing.
 *
 * What distinguishes them is who may attach. vfio's memory can be revoked: importers are told, their fences
 * waited for, their maps must be gone within a second, and then the bytes are thrown away and the
 * mapping that the DMA used is closed to all access, so that an importer that would not let go is found out.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "dmabuf/exporter.h"
#include "dmabuf/rules.h"
#include "util/log.h"

struct fixed_buf {
	struct exporter_buf buf;
	char *addr;
	int fd;	      /* the memfd, or -1 where the file behind the descriptor is it */
	bool revoked; /* under resv */
};

static struct fixed_buf *to_fixed(struct dma_buf *dmabuf)
{
	return dmabuf->priv;
}

/* ---- attaching ---- */

static int accel_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct faultline_dmabuf_device *dev = to_fixed(dmabuf)->buf.dev;

	if (dev->flags & FAULTLINE_DMABUF_NO_CPU) {
		fl_warn("%s: memory of %s cannot be reached by the CPU, and RDMA is a copy by the CPU here: refused",
			attach->dev->name, dev->name);
		return -EOPNOTSUPP;
	}
	if (!attach->peer2peer || dev->flags & FAULTLINE_DMABUF_NO_P2P) {
		fl_warn("%s: memory of %s can be had peer to peer only, and there is no such path: refused",
			attach->dev->name, dev->name);
		return -EOPNOTSUPP;
	}
	return 0;
}

static int vfio_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	bool revoked;
	int err = accel_attach(dmabuf, attach);

	if (err)
		return err;
	if (!dma_buf_attach_revocable(attach)) {
		fl_warn("%s: memory of %s may be revoked, and this importer cannot let go of it: refused",
			attach->dev->name, to_fixed(dmabuf)->buf.dev->name);
		return -EOPNOTSUPP;
	}
	dma_resv_lock(dmabuf->resv, NULL);
	revoked = to_fixed(dmabuf)->revoked;
	dma_resv_unlock(dmabuf->resv);
	return revoked ? -ENODEV : 0;
}

/* ---- mapping ---- */

static int fixed_pin(struct dma_buf_attachment *attach)
{
	return to_fixed(attach->dmabuf)->revoked ? -ENODEV : 0;
}

static void fixed_unpin(struct dma_buf_attachment *attach)
{
}

static int fixed_map(struct dma_buf_attachment *attach, enum dma_data_direction dir, struct sg_table **sgt)
{
	struct fixed_buf *f = to_fixed(attach->dmabuf);
	struct sg_table *t;

	if (f->revoked)
		return -ENODEV;
	t = dma_buf_alloc_sgt(1);
	if (!t)
		return -ENOMEM;
	t->peer2peer = f->buf.dev->number != FAULTLINE_DMABUF_MEMFD;
	t->file = f->fd >= 0 ? f->fd : attach->dmabuf->file;
	t->sgl[0] = (struct scatterlist){(uint64_t)(uintptr_t)f->addr, attach->dmabuf->size, 0};
	*sgt = t;
	return 0;
}

static void fixed_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt, enum dma_data_direction dir)
{
	free(sgt);
}

static int fixed_mmap(struct dma_buf *dmabuf, size_t offset, size_t length, int prot, void **addr)
{
	struct fixed_buf *f = to_fixed(dmabuf);
	void *p;

	if (f->fd >= 0) /* not the application's to map */
		return -ENODEV;
	p = mmap(NULL, length, prot, MAP_SHARED, dmabuf->file, (off_t)offset);
	if (p == MAP_FAILED)
		return -errno;
	*addr = p;
	return 0;
}

static void fixed_release(struct dma_buf *dmabuf)
{
	struct fixed_buf *f = to_fixed(dmabuf);
	struct faultline_dmabuf_device *dev = f->buf.dev;

	munmap(f->addr, dmabuf->size);
	if (f->fd >= 0)
		close(f->fd);
	fl_lock(&dev->lock);
	dev->buffers--;
	dev->used -= dmabuf->size;
	fl_unlock(&dev->lock);
	free(f);
}

static const struct dma_buf_ops memfd_ops = {
	.map_dma_buf = fixed_map,
	.unmap_dma_buf = fixed_unmap,
	.release = fixed_release,
	.mmap = fixed_mmap,
};

static const struct dma_buf_ops accel_ops = {
	.attach = accel_attach,
	.pin = fixed_pin,
	.unpin = fixed_unpin,
	.map_dma_buf = fixed_map,
	.unmap_dma_buf = fixed_unmap,
	.release = fixed_release,
	.mmap = fixed_mmap,
};

static const struct dma_buf_ops vfio_ops = {
	.attach = vfio_attach,
	.pin = fixed_pin,
	.unpin = fixed_unpin,
	.map_dma_buf = fixed_map,
	.unmap_dma_buf = fixed_unmap,
	.release = fixed_release,
	.mmap = fixed_mmap,
};

/* ---- the device ---- */

/* takes room on the device; system memory has no limit of its own */
static int charge(struct faultline_dmabuf_device *dev, size_t size)
{
	int err = 0;

	fl_lock(&dev->lock);
	if (dev->number != FAULTLINE_DMABUF_MEMFD && size > dev->size - dev->used) {
		err = -ENOMEM;
	} else {
		dev->used += size;
		dev->buffers++;
	}
	fl_unlock(&dev->lock);
	return err;
}

static void uncharge(struct faultline_dmabuf_device *dev, size_t size)
{
	fl_lock(&dev->lock);
	dev->used -= size;
	dev->buffers--;
	fl_unlock(&dev->lock);
}

static int fixed_alloc(struct faultline_dmabuf_device *dev, size_t size, const struct dma_buf_ops *ops,
		       bool cpu, struct dma_buf **dmabuf)
{
	struct fixed_buf *f = calloc(1, sizeof(*f));
	void *addr;
	int fd, err;

	if (!f)
		return -ENOMEM;
	err = charge(dev, size);
	if (err)
		goto err_free;
	err = exporter_memory(dev->kind->name, dev->number != FAULTLINE_DMABUF_MEMFD, size, &fd, &addr);
	if (err)
		goto err_charge;
	f->buf.dev = dev;
	f->addr = addr;
	f->fd = cpu ? -1 : fd;
	err = dma_buf_export(&(struct dma_buf_export_info){.exp_name = dev->kind->name, .ops = ops, .size = size,
							   .priv = f, .storage = cpu ? fd : -1},
			     dmabuf);
	if (!err)
		return 0;
	munmap(addr, size);
	if (f->fd >= 0)
		close(f->fd);
err_charge:
	uncharge(dev, size);
err_free:
	free(f);
	return err;
}

static int memfd_alloc(struct faultline_dmabuf_device *dev, size_t size, unsigned flags, struct dma_buf **dmabuf)
{
	return fixed_alloc(dev, size, &memfd_ops, true, dmabuf);
}

static int accel_alloc(struct faultline_dmabuf_device *dev, size_t size, unsigned flags, struct dma_buf **dmabuf)
{
	return fixed_alloc(dev, size, &accel_ops, !(dev->flags & FAULTLINE_DMABUF_NO_CPU), dmabuf);
}

/* never by its descriptor: a mapping of the application's could not be taken back */
static int vfio_alloc(struct faultline_dmabuf_device *dev, size_t size, unsigned flags, struct dma_buf **dmabuf)
{
	return fixed_alloc(dev, size, &vfio_ops, false, dmabuf);
}

static int fixed_access(struct dma_buf *dmabuf, size_t offset, void *buf, size_t length, bool write)
{
	struct fixed_buf *f = to_fixed(dmabuf);
	int err = 0;

	dma_resv_lock(dmabuf->resv, NULL);
	if (f->revoked)
		err = -ENODEV;
	else if (write)
		memcpy(f->addr + offset, buf, length);
	else
		memcpy(buf, f->addr + offset, length);
	dma_resv_unlock(dmabuf->resv);
	return err;
}

static void fixed_info(struct dma_buf *dmabuf, struct faultline_dmabuf_info *info)
{
	info->revoked = to_fixed(dmabuf)->revoked;
}

/* ---- revoking ---- */

#define UNMAP_MS 1000 /* rule 7's "bounded time": what vfio in the kernel gives an importer */

static const char *who_still_maps(struct dma_buf *dmabuf)
{
	struct dma_buf_attachment *a;

	cds_list_for_each_entry(a, &dmabuf->attachments, node)
		if (a->maps && !dma_buf_attachment_lost(a)) /* what is behind those is nobody's any more */
			return a->dev->name;
	return NULL;
}

static int vfio_revoke(struct dma_buf *dmabuf)
{
	struct fixed_buf *f = to_fixed(dmabuf);
	const char *who;
	int ms = 0;

	dma_resv_lock(dmabuf->resv, NULL);
	if (f->revoked) {
		dma_resv_unlock(dmabuf->resv);
		return -EALREADY;
	}
	f->revoked = true; /* no new map from here on */
	dma_buf_invalidate_mappings(dmabuf);
	dma_resv_wait_timeout(dmabuf->resv, DMA_RESV_USAGE_BOOKKEEP, DMA_FENCE_FOREVER);
	/* who has not unmapped, or unpinned, inside the callback needs the lock to do so */
	while (((who = who_still_maps(dmabuf)) || dma_buf_is_pinned(dmabuf)) && ms < UNMAP_MS) {
		dma_resv_unlock(dmabuf->resv);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		ms++;
		dma_resv_lock(dmabuf->resv, NULL);
	}
	if (who)
		dma_buf_rule_broken(7, dmabuf->exp_name, who, "revoked memory is still mapped after a second");
	madvise(f->addr, dmabuf->size, MADV_REMOVE);
	mprotect(f->addr, dmabuf->size, PROT_NONE);
	dma_resv_unlock(dmabuf->resv);
	return 0;
}

const struct exporter_kind exporter_memfd = {
	.name = "memfd",
	.alloc = memfd_alloc,
	.access = fixed_access,
	.info = fixed_info,
};

const struct exporter_kind exporter_accel = {
	.name = "accel",
	.flags = FAULTLINE_DMABUF_NO_CPU | FAULTLINE_DMABUF_NO_P2P,
	.alloc = accel_alloc,
	.access = fixed_access,
	.info = fixed_info,
};

const struct exporter_kind exporter_vfio = {
	.name = "vfio",
	.flags = FAULTLINE_DMABUF_NO_P2P,
	.alloc = vfio_alloc,
	.access = fixed_access,
	.info = fixed_info,
	.revoke = vfio_revoke,
};
