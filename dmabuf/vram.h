/* SPDX-License-Identifier: BSD-2-Clause */
/* Between exporter_vram.c, which moves buffers, and vram_place.c, which knows where they are. */
#ifndef FL_DMABUF_VRAM_H
#define FL_DMABUF_VRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "dmabuf/exporter.h"
#include "dmabuf/vram_mm.h"

struct vram {
	struct faultline_dmabuf_device *dev;
	int fd;
	char *base;

	/* under dev->lock */
	struct vram_mm mm;
	struct cds_list_head lru; /* buffers in device memory, the least recently used first */
	uint64_t stale;		  /* bytes in places that no buffer is in */
	uint64_t excused;	  /* of them: in such that nobody waits to be unmapped */
	uint64_t moves, evictions, returns;
};

struct place {
	struct vram *vram;
	unsigned refs; /* the buffer, and each mapping; under dev->lock, as all of it but the bytes */
	bool left;     /* by its buffer, and filled with the pattern while it was still mapped */
	bool excused;  /* some importer of it is not waited for, and may write to it still */
	size_t size;
	struct vram_piece *pieces; /* NULL: system memory */
	unsigned num;
	int fd; /* of system memory */
	char *addr;
};

unsigned place_pieces(const struct place *p);
/* the i-th piece: where the library's threads find it, and how long it is */
char *place_piece(const struct place *p, unsigned i, size_t *size);
/* the memfd that it is in, and where in that */
int place_file(const struct place *p);
uint64_t place_offset(const struct place *p, unsigned i);
void place_fill(struct place *p, int byte);
/* to or from the bytes from offset on */
void place_copy(struct place *p, size_t offset, char *buf, size_t length, bool write);
/* [offset, offset + length) of it for the CPU, in place of what is at addr; 0 or negative errno */
int place_mmap(struct place *p, size_t offset, size_t length, int prot, char *addr);

/* One reference, the caller's. System memory; or what is free of the device's: -ENOSPC. */
int place_system(struct vram *v, size_t size, struct place **out);
int place_try_device(struct vram *v, size_t size, bool contiguous, struct place **out);
void place_get(struct place *p);
/* who: the importer that gives it up, for what it may have done; NULL: the buffer */
void place_put(struct place *p, const char *who);
/* An importer of it is not waited for: it may write to it after it was left, and unmaps it when it likes. */
void place_excuse(struct place *p);
/* The buffer has left it, the fences are waited for, and the bytes are copied: the buffer's reference. */
void place_leave(struct place *p);

#endif
