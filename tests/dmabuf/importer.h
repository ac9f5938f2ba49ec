/* SPDX-License-Identifier: BSD-2-Clause */
/* An importer to test exporters with: one of the three kinds, whose DMA is a copy under a lock of its own. */
#ifndef FL_TESTS_DMABUF_IMPORTER_H
#define FL_TESTS_DMABUF_IMPORTER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dmabuf/exporter.h"

enum importer_kind { DYNAMIC, PINNED, REVOCABLE };

struct importer {
	enum importer_kind kind;
	struct dma_buf_dev dev;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attach;
	struct sg_table *sgt; /* under resv */
	bool pinned;	      /* under resv */
	unsigned told;	      /* invalidations, under resv */
	bool revoked;	      /* under resv */
	pthread_mutex_t lock; /* the device's table: sgt is usable */
	bool usable;
	/* a copy that is under way for long (peer.h) */
	pthread_t copying;
	sem_t within, go_on;
	int late;
};

/* the device can use it no more, when this returns */
static inline void importer_stop(struct importer *im)
{
	pthread_mutex_lock(&im->lock);
	im->usable = false;
	pthread_mutex_unlock(&im->lock);
}

static inline void importer_unmap_locked(struct importer *im)
{
	importer_stop(im);
	if (im->sgt)
		dma_buf_unmap_attachment(im->attach, im->sgt, DMA_BIDIRECTIONAL);
	im->sgt = NULL;
	if (im->pinned)
		dma_buf_unpin(im->attach);
	im->pinned = false;
}

static inline void importer_invalidate(struct dma_buf_attachment *attach)
{
	struct importer *im = attach->importer_priv;

	im->told++;
	im->revoked = im->kind == REVOCABLE && im->pinned; /* before its pin it is a move, as any other */
	importer_unmap_locked(im);
}

static const struct dma_buf_attach_ops importer_ops[] = {
	[DYNAMIC] = {.allow_peer2peer = true, .invalidate_mappings = importer_invalidate},
	[PINNED] = {.allow_peer2peer = true},
	[REVOCABLE] = {.allow_peer2peer = true, .invalidate_mappings = importer_invalidate},
};

/* reservation held; makes it usable */
static inline int importer_map_locked(struct importer *im)
{
	int err;

	if (im->sgt)
		return 0;
	if (im->revoked)
		return -ENODEV;
	if (im->kind != DYNAMIC && !im->pinned) {
		err = dma_buf_pin(im->attach);
		if (err)
			return err;
		im->pinned = true;
	}
	err = dma_buf_map_attachment(im->attach, DMA_BIDIRECTIONAL, &im->sgt);
	if (err) {
		im->sgt = NULL;
		return err;
	}
	dma_resv_wait_timeout(im->dmabuf->resv, DMA_RESV_USAGE_KERNEL, DMA_FENCE_FOREVER);
	dma_buf_assert_usable(im->attach);
	pthread_mutex_lock(&im->lock);
	im->usable = true;
	pthread_mutex_unlock(&im->lock);
	return 0;
}

static inline int importer_map(struct importer *im)
{
	int err;

	dma_resv_lock(im->dmabuf->resv, NULL);
	err = importer_map_locked(im);
	dma_resv_unlock(im->dmabuf->resv);
	return err;
}

static inline void importer_release(struct importer *im)
{
	dma_resv_lock(im->dmabuf->resv, NULL);
	importer_unmap_locked(im);
	dma_resv_unlock(im->dmabuf->resv);
	dma_buf_detach(im->dmabuf, im->attach);
	dma_buf_put(im->dmabuf);
	pthread_mutex_destroy(&im->lock);
}

/* attach; pinned kinds also pin and map, as a registration does. ops NULL: the kind's */
static inline int importer_get_ops(struct importer *im, int fd, enum importer_kind kind,
				   const struct dma_buf_attach_ops *ops)
{
	int err;

	memset(im, 0, sizeof(*im));
	im->kind = kind;
	im->dev.name = "nic";
	err = dma_buf_get(fd, &im->dmabuf);
	if (err)
		return err;
	pthread_mutex_init(&im->lock, NULL); /* it may be told before attach returns */
	err = dma_buf_dynamic_attach(im->dmabuf, &im->dev, ops ? ops : &importer_ops[kind], im, &im->attach);
	if (err) {
		dma_buf_put(im->dmabuf);
		pthread_mutex_destroy(&im->lock);
		return err;
	}
	if (kind == DYNAMIC)
		return 0;
	err = importer_map(im);
	if (err)
		importer_release(im);
	return err;
}

static inline int importer_get(struct importer *im, int fd, enum importer_kind kind)
{
	return importer_get_ops(im, fd, kind, NULL);
}

/* im->lock held, and usable */
static inline void importer_walk(struct importer *im, size_t offset, char *buf, size_t length, bool write)
{
	for (unsigned i = 0; length; i++) {
		char *at = (char *)(uintptr_t)im->sgt->sgl[i].dma_address;
		size_t n = im->sgt->sgl[i].dma_length;

		if (offset >= n) {
			offset -= n;
			continue;
		}
		n -= offset;
		n = n < length ? n : length;
		memcpy(write ? at + offset : buf, write ? buf : at + offset, n);
		buf += n;
		length -= n;
		offset = 0;
	}
}

/* after a copy, as every importer has to look (struct sg_table): what was too late is not done */
static inline int importer_too_late(struct importer *im)
{
	uint32_t *revoked = (uint32_t *)(uintptr_t)im->sgt->revoked;

	return revoked && __atomic_fetch_or(revoked, 0, __ATOMIC_SEQ_CST) ? -ENODEV : 0;
}

/* DMA: faults, as a device with on-demand paging does, until it could copy */
static inline int importer_dma(struct importer *im, size_t offset, void *buf, size_t length, bool write)
{
	for (;;) {
		int err;

		pthread_mutex_lock(&im->lock);
		if (im->usable) {
			importer_walk(im, offset, buf, length, write);
			err = importer_too_late(im);
			pthread_mutex_unlock(&im->lock);
			return err;
		}
		pthread_mutex_unlock(&im->lock);
		err = importer_map(im);
		if (err)
			return err;
	}
}

/* ---- shorthands ---- */

static inline struct faultline_dmabuf_device *device(enum faultline_dmabuf_kind kind, size_t size, unsigned flags)
{
	struct faultline_dmabuf_device *dev;

	assert_int_equal(exporter_open(&(struct faultline_dmabuf_device_attr){.kind = kind, .size = size,
									     .flags = flags},
				       &dev),
			 0);
	return dev;
}

static inline int buffer(struct faultline_dmabuf_device *dev, size_t size)
{
	int fd;

	assert_int_equal(exporter_alloc(dev, size, 0, &fd), 0);
	return fd;
}

static inline struct faultline_dmabuf_info info_of(int fd)
{
	struct faultline_dmabuf_info i;

	assert_int_equal(exporter_info(fd, &i), 0);
	return i;
}

static inline struct faultline_dmabuf_device_info device_info(struct faultline_dmabuf_device *dev)
{
	struct faultline_dmabuf_device_info i;

	exporter_device_info(dev, &i);
	return i;
}

static inline void assert_nothing_left(void)
{
	struct faultline_dmabuf_totals t;

	exporter_totals(&t);
	assert_int_equal(t.buffers, 0);
	assert_int_equal(t.attachments, 0);
	assert_int_equal(t.maps, 0);
	assert_int_equal(t.pins, 0);
	assert_int_equal(t.rule_breaks, 0);
}

#endif
