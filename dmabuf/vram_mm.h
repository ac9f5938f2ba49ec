/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which parts of a device's memory are free: holes in the order of their addresses. The first holes that are
 * large enough are taken, or, where pieces will do, the first holes whatever their size: it fragments, as
 * simple allocators of devices do. Not thread-safe.
 */
#ifndef FL_DMABUF_VRAM_MM_H
#define FL_DMABUF_VRAM_MM_H

#include <stdbool.h>
#include <stddef.h>
#include <urcu/list.h>

struct vram_mm {
	size_t size, free;
	struct cds_list_head holes;
};

struct vram_piece {
	size_t offset, size;
};

int vram_mm_init(struct vram_mm *mm, size_t size); /* 0 or -ENOMEM */
void vram_mm_fini(struct vram_mm *mm);

/*
 * size: whole pages. *pieces is malloc'ed, one if contiguous. -ENOSPC: there is no room, or not in one piece;
 * -ENOMEM: the process has no memory.
 */
int vram_mm_alloc(struct vram_mm *mm, size_t size, bool contiguous, struct vram_piece **pieces, unsigned *num);
/* gives them back and frees the array */
void vram_mm_free(struct vram_mm *mm, struct vram_piece *pieces, unsigned num);
size_t vram_mm_largest(const struct vram_mm *mm);

#endif
