/* SPDX-License-Identifier: BSD-2-Clause */
/* First fit over a list of holes; neighbours are joined when they are freed. */
#include "dmabuf/vram_mm.h"

#include <errno.h>
#include <stdlib.h>

struct hole {
	struct cds_list_head node;
	size_t offset, size;
};

static struct hole *hole_at(struct cds_list_head *node)
{
	return cds_list_entry(node, struct hole, node);
}

int vram_mm_init(struct vram_mm *mm, size_t size)
{
	struct hole *h = malloc(sizeof(*h));

	if (!h)
		return -ENOMEM;
	*h = (struct hole){.size = size};
	mm->size = mm->free = size;
	CDS_INIT_LIST_HEAD(&mm->holes);
	cds_list_add(&h->node, &mm->holes);
	return 0;
}

void vram_mm_fini(struct vram_mm *mm)
{
	struct hole *h, *next;

	cds_list_for_each_entry_safe(h, next, &mm->holes, node)
		free(h);
}

int vram_mm_alloc(struct vram_mm *mm, size_t size, bool contiguous, struct vram_piece **pieces, unsigned *num)
{
	struct vram_piece *p;
	struct hole *h, *next;
	unsigned n = 0;
	size_t left = size;

	if (size > mm->free)
		return -ENOSPC;
	cds_list_for_each_entry(h, &mm->holes, node) {
		if (contiguous && h->size < size)
			continue;
		n++;
		if (h->size >= left || contiguous) {
			left = 0;
			break;
		}
		left -= h->size;
	}
	if (left)
		return -ENOSPC;
	p = malloc(n * sizeof(*p));
	if (!p)
		return -ENOMEM;
	n = 0;
	left = size;
	cds_list_for_each_entry_safe(h, next, &mm->holes, node) {
		size_t take = h->size < left ? h->size : left;

		if (!left)
			break;
		if (contiguous && h->size < size)
			continue;
		p[n++] = (struct vram_piece){h->offset, take};
		h->offset += take;
		h->size -= take;
		left -= take;
		if (!h->size) {
			cds_list_del(&h->node);
			free(h);
		}
	}
	mm->free -= size;
	*pieces = p;
	*num = n;
	return 0;
}

/* the hole before where one at that offset would be, or the head */
static struct cds_list_head *place_for(struct vram_mm *mm, size_t offset)
{
	struct cds_list_head *prev = &mm->holes;
	struct hole *h;

	cds_list_for_each_entry(h, &mm->holes, node) {
		if (h->offset > offset)
			break;
		prev = &h->node;
	}
	return prev;
}

static void free_one(struct vram_mm *mm, size_t offset, size_t size)
{
	struct cds_list_head *prev = place_for(mm, offset), *next = prev->next;
	struct hole *h;

	if (prev != &mm->holes && hole_at(prev)->offset + hole_at(prev)->size == offset) {
		h = hole_at(prev);
		h->size += size;
	} else {
		h = malloc(sizeof(*h));
		if (!h)
			return; /* the device's memory gets smaller by that piece */
		*h = (struct hole){.offset = offset, .size = size};
		cds_list_add(&h->node, prev);
	}
	mm->free += size;
	if (next != &mm->holes && h->offset + h->size == hole_at(next)->offset) {
		h->size += hole_at(next)->size;
		cds_list_del(next);
		free(hole_at(next));
	}
}

void vram_mm_free(struct vram_mm *mm, struct vram_piece *pieces, unsigned num)
{
	for (unsigned i = 0; i < num; i++)
		free_one(mm, pieces[i].offset, pieces[i].size);
	free(pieces);
}

size_t vram_mm_largest(const struct vram_mm *mm)
{
	size_t largest = 0;
	struct hole *h;

	cds_list_for_each_entry(h, &mm->holes, node)
		if (h->size > largest)
			largest = h->size;
	return largest;
}
