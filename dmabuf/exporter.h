/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Exporters: devices that lend their memory, behind <faultline/dmabuf.h>, whose functions these are with negative
 * errno. A kind of device is a table of functions (exporter_fixed.c: memory that stays where it is;
 * exporter_vram.c: memory that moves).
 */
#ifndef FL_DMABUF_EXPORTER_H
#define FL_DMABUF_EXPORTER_H

#include <sys/types.h>
#include "dmabuf/dma-buf.h"
#include "faultline/dmabuf.h"

int exporter_open(const struct faultline_dmabuf_device_attr *attr, struct faultline_dmabuf_device **dev);
int exporter_close(struct faultline_dmabuf_device *dev);
int exporter_device_info(struct faultline_dmabuf_device *dev, struct faultline_dmabuf_device_info *info);
int exporter_alloc(struct faultline_dmabuf_device *dev, size_t size, unsigned flags, int *fd);
int exporter_evict(struct faultline_dmabuf_device *dev, size_t bytes);

int exporter_access(int fd, size_t offset, void *buf, size_t length, bool write);
int exporter_mmap(int fd, size_t offset, size_t length, int prot, void **addr);
int exporter_munmap(int fd, void *addr, size_t length);
int exporter_cpu_access(int fd, bool begin);
int exporter_move(int fd, enum faultline_dmabuf_place to);
int exporter_revoke(int fd);
int exporter_info(int fd, struct faultline_dmabuf_info *info);
int exporter_fail(int fd, enum faultline_dmabuf_call call, int err);
int exporter_totals(struct faultline_dmabuf_totals *totals);

/* ---- inside dmabuf/: what a kind of device does ---- */

struct exporter_kind {
	const char *name;
	unsigned flags;	      /* FAULTLINE_DMABUF_NO_* that it knows */
	unsigned alloc_flags; /* FAULTLINE_DMABUF_CONTIGUOUS */
	int (*open)(struct faultline_dmabuf_device *dev);   /* optional */
	void (*close)(struct faultline_dmabuf_device *dev); /* optional */
	int (*alloc)(struct faultline_dmabuf_device *dev, size_t size, unsigned flags, struct dma_buf **dmabuf);
	/* the device's own access; no lock held; within the buffer */
	int (*access)(struct dma_buf *dmabuf, size_t offset, void *buf, size_t length, bool write);
	void (*munmap)(struct dma_buf *dmabuf); /* optional: a mapping of ops->mmap is gone */
	void (*info)(struct dma_buf *dmabuf, struct faultline_dmabuf_info *info); /* reservation held */
	void (*device_info)(struct faultline_dmabuf_device *dev, struct faultline_dmabuf_device_info *info);
	/* optional: EOPNOTSUPP */
	int (*move)(struct dma_buf *dmabuf, enum faultline_dmabuf_place to);
	int (*evict)(struct faultline_dmabuf_device *dev, size_t bytes);
	int (*revoke)(struct dma_buf *dmabuf);
};

extern const struct exporter_kind exporter_memfd, exporter_accel, exporter_vram, exporter_vfio;

struct faultline_dmabuf_device {
	const struct exporter_kind *kind;
	enum faultline_dmabuf_kind number;
	unsigned flags;
	size_t size; /* of its memory, whole pages */
	char name[32];
	pid_t pid; /* whose it is: the child of a fork has none of them */
	struct fl_mutex lock; /* LOCK_DMA_EXPORTER: all below, and the kind's own */
	uint64_t buffers, used;
	uint64_t alloc_failures;
	void *priv; /* the kind's */
};

/* the first member of every buffer's priv: by it a dma_buf of ours is known, and leads to its device */
struct exporter_buf {
	struct faultline_dmabuf_device *dev;
};

/* A memfd of that size, sealed, and mapped for the library's threads; device: of a device's. 0 or negative errno. */
int exporter_memory(const char *name, bool device, size_t size, int *fd, void **addr);

#endif
