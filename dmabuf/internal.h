/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the files of dmabuf/. */
#ifndef FL_DMABUF_INTERNAL_H
#define FL_DMABUF_INTERNAL_H

#include <limits.h>
#include "dmabuf/dma-buf.h"
#include "dmabuf/rules.h"

/* ---- dma-file.c: the file behind a buffer ---- */

/* What the name of the file begins with, as /proc/self/fd shows it, of a device's memory MM_DEVICE_FILE; the exporter's
 * follows, and where other processes cannot have the memory by the file, "@" and in hexadecimal where to ask for it
 * (remote.h). */
#define DMA_FILE_NAME "faultline-dmabuf:"

struct dma_file {
	int fd;		   /* our own description of it */
	uint64_t dev, ino; /* how it is known again */
};

/* storage: a memfd of the size, taken over; -1: one is made to stand for the buffer. 0 or negative errno */
int dma_file_open(struct dma_file *file, const char *exp_name, size_t size, int storage);
/* a descriptor of its own description; mappable: by mmap(), else that is EACCES. */
int dma_file_new_fd(const struct dma_file *file, bool mappable, int flags);
/* Has nobody else it open, in any process, nor mapped by its own description? unknown: what to say where the
 * system cannot tell. */
bool dma_file_alone(const struct dma_file *file, bool unknown);

/* Watches it for the closing of descriptions. Returns a number for it, or -1: it cannot be watched. */
int dma_file_watch(const struct dma_file *file);
void dma_file_unwatch(int watch);
/* The number of a watched file of which some description was closed since; -1: none; DMA_FILE_ANY: there were
 * too many to remember. Under LOCK_DMA_BUF. */
#define DMA_FILE_ANY INT_MAX
int dma_file_next_closed(void);
void dma_file_forget_watches(void); /* in the child of a fork */

/* ---- foreign.c: buffers that are not of this process ---- */

struct dma_foreign {
	bool kernels;
	uint64_t token; /* of the process that has to be asked for it; 0: it is reached by mmap() */
};
/* What kind of descriptor is it? -EINVAL: no dma-buf at all; -EOPNOTSUPP: out of reach. */
int dma_foreign_probe(int fd, struct dma_foreign *foreign);
/* fd is taken over, also where it fails; one reference */
int dma_foreign_import(int fd, bool kernels, struct dma_buf **dmabuf);

/* dma-buf.c: a buffer without a file, not in the table */
int dma_buf_create(const struct dma_buf_export_info *info, struct dma_buf **dmabuf);
/* and its end: what is the exporter's is gone */
void dma_buf_discard(struct dma_buf *dmabuf);

/* releases what the application has closed; every call into dma-buf.c that takes no lock does so as well */
void dma_buf_reap(void);

/* Ours by its descriptor, with a reference; -EINVAL: none of ours. */
int dma_buf_find(int fd, struct dma_buf **dmabuf);

#endif
