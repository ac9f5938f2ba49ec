/* SPDX-License-Identifier: BSD-2-Clause */
/* Places: where the bytes of a GPU's buffer are, or were as long as an importer still maps them. */
#include "dmabuf/vram.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "dmabuf/exporter.h"
#include "dmabuf/rules.h"

#define PATTERN 0xdb /* what is left where a buffer was */

unsigned place_pieces(const struct place *p)
{
	return p->pieces ? p->num : 1;
}

/* the i-th piece: where the library's threads find it, and how long it is */
char *place_piece(const struct place *p, unsigned i, size_t *size)
{
	if (!p->pieces) {
		*size = p->size;
		return p->addr;
	}
	*size = p->pieces[i].size;
	return p->vram->base + p->pieces[i].offset;
}

int place_file(const struct place *p)
{
	return p->pieces ? p->vram->fd : p->fd;
}

uint64_t place_offset(const struct place *p, unsigned i)
{
	return p->pieces ? p->pieces[i].offset : 0;
}

void place_fill(struct place *p, int byte)
{
	for (unsigned i = 0; i < place_pieces(p); i++) {
		size_t n;
		char *at = place_piece(p, i, &n);

		memset(at, byte, n);
	}
}

static bool place_is_filled(struct place *p, unsigned char byte)
{
	for (unsigned i = 0; i < place_pieces(p); i++) {
		size_t n;
		char *at = place_piece(p, i, &n);

		if (at[0] != (char)byte || memcmp(at, at + 1, n - 1))
			return false;
	}
	return true;
}

/* to or from the bytes from offset on */
void place_copy(struct place *p, size_t offset, char *buf, size_t length, bool write)
{
	for (unsigned i = 0; length; i++) {
		size_t n;
		char *at = place_piece(p, i, &n);

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

int place_system(struct vram *v, size_t size, struct place **out)
{
	struct place *p = calloc(1, sizeof(*p));
	void *addr;
	int err;

	if (!p)
		return -ENOMEM;
	err = exporter_memory("vram", true, size, &p->fd, &addr);
	if (err) {
		free(p);
		return err;
	}
	p->vram = v;
	p->refs = 1;
	p->size = size;
	p->addr = addr;
	*out = p;
	return 0;
}

/* in what is free of the device's memory; -ENOSPC */
int place_try_device(struct vram *v, size_t size, bool contiguous, struct place **out)
{
	struct place *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	*p = (struct place){.vram = v, .refs = 1, .size = size, .fd = -1};
	fl_lock(&v->dev->lock);
	err = vram_mm_alloc(&v->mm, size, contiguous, &p->pieces, &p->num);
	if (!err)
		v->dev->used = v->mm.size - v->mm.free;
	fl_unlock(&v->dev->lock);
	if (err)
		free(p);
	else
		*out = p;
	return err;
}

void place_get(struct place *p)
{
	fl_lock(&p->vram->dev->lock);
	p->refs++;
	fl_unlock(&p->vram->dev->lock);
}

void place_excuse(struct place *p)
{
	fl_lock(&p->vram->dev->lock);
	if (!p->excused && p->left && p->pieces)
		p->vram->excused += p->size;
	p->excused = true;
	fl_unlock(&p->vram->dev->lock);
}

/* by the last importer of a place that was left: who: its name, for what it may have done; NULL: the buffer */
void place_put(struct place *p, const char *who)
{
	struct vram *v = p->vram;
	bool last;

	fl_lock(&v->dev->lock);
	last = !--p->refs;
	fl_unlock(&v->dev->lock);
	if (!last)
		return;
	if (p->left && !p->excused && !place_is_filled(p, PATTERN))
		dma_buf_rule_broken(7, "vram", who ? who : "?",
				    "an importer wrote to a stale mapping after its fences");
	if (p->pieces) {
		fl_lock(&v->dev->lock);
		vram_mm_free(&v->mm, p->pieces, p->num);
		v->dev->used = v->mm.size - v->mm.free;
		if (p->left) {
			v->stale -= p->size;
			v->excused -= p->excused ? p->size : 0;
		}
		fl_unlock(&v->dev->lock);
	} else {
		munmap(p->addr, p->size);
		close(p->fd);
	}
	free(p);
}

/* The buffer has left it, the fences are waited for, and the bytes are copied. */
void place_leave(struct place *p)
{
	bool mapped;

	place_fill(p, PATTERN);
	fl_lock(&p->vram->dev->lock);
	mapped = p->refs > 1;
	if (mapped) {
		p->left = true;
		if (p->pieces) {
			p->vram->stale += p->size;
			p->vram->excused += p->excused ? p->size : 0;
		}
	}
	fl_unlock(&p->vram->dev->lock);
	place_put(p, NULL);
}

/* the part of a place's pieces that is [offset, offset + length), at addr */
int place_mmap(struct place *p, size_t offset, size_t length, int prot, char *addr)
{
	for (unsigned i = 0; length; i++) {
		size_t n;

		place_piece(p, i, &n);
		if (offset >= n) {
			offset -= n;
			continue;
		}
		n -= offset;
		n = n < length ? n : length;
		if (mmap(addr, n, prot, MAP_SHARED | MAP_FIXED, place_file(p), (off_t)(place_offset(p, i) + offset)) ==
		    MAP_FAILED)
			return -errno;
		addr += n;
		length -= n;
		offset = 0;
	}
	return 0;
}
