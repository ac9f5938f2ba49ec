/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A GPU: a small memory whose buffers move. The device's memory is one mapping; a buffer that was evicted is in a
 * memfd of its own. Where a buffer is, is its *place*, and a place outlives the buffer's stay in it: every
 * mapping that an importer has of it holds it too. So a stale mapping never shows another buffer's bytes, and
 * memory that importers do not unmap is not free (it counts as stale; who needs it waits up to a second).
 *
 * A move, with the reservation held: tell the importers, wait for the fences (accesses under way and an earlier
 * move), switch the place, publish a fence. Only then is the lock given up and are the bytes copied; whoever maps in
 * the meantime gets the new place and has to wait for the fence. The old place is overwritten with a pattern, and if
 * mappings of it are left then, the last unmap looks whether somebody has written to it since.
 *
 * Eviction takes from the old end of a list that is in the order of last use. It runs on top of whatever lock of
 * another buffer its caller has, so it tries the victims' reservations and passes over those that are held. It
 * takes no reference: release() takes the reservation too, and the list's lock after it, so that a victim that
 * was found on the list and locked cannot go away before it is unlocked, nor before its fence is signalled.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "dmabuf/exporter.h"
#include "dmabuf/rules.h"
#include "dmabuf/vram.h"
#include "util/log.h"

#define STALE_MS 1000 /* how long importers may take to unmap */
#define BUSY_MS	 100  /* how long to wait for a reservation that is tried, not locked */

struct vram_buf {
	struct exporter_buf buf;
	struct vram *vram;
	struct dma_buf *dmabuf;
	struct cds_list_head lru; /* under dev->lock; empty where it is not in device memory */
	bool contiguous;

	/* under the reservation */
	struct place *place;
	unsigned cpu_maps, cpu_accesses; /* while there are any it stays where it is */
	uint64_t context, seqno;	 /* of the moves' fences */
	uint64_t moves, evictions;
};

static struct vram_buf *to_vram(struct dma_buf *dmabuf)
{
	return dmabuf->priv;
}

/* ---- moving ---- */

static void lru_touch(struct vram_buf *b)
{
	fl_lock(&b->vram->dev->lock);
	cds_list_del_init(&b->lru);
	if (b->place->pieces)
		cds_list_add_tail(&b->lru, &b->vram->lru);
	fl_unlock(&b->vram->dev->lock);
}

static bool may_move(struct vram_buf *b)
{
	return !b->cpu_maps && !b->cpu_accesses && !dma_buf_is_pinned(b->dmabuf);
}

struct move {
	struct place *from, *to;
	struct dma_fence *fence;
};

/*
 * The first half, reservation held: takes over `to`. After it the reservation may be given up, and move_end() must
 * follow soon, in this thread, whatever it holds: others wait for the fence. Fails before anything is done.
 */
static int move_begin(struct vram_buf *b, struct place *to, bool evict, struct move *m)
{
	struct vram *v = b->vram;
	int err = dma_resv_reserve_fences(b->dmabuf->resv, 1);

	m->fence = err ? NULL : dma_fence_create(b->context, ++b->seqno);
	if (!m->fence)
		return -ENOMEM;
	dma_buf_invalidate_mappings(b->dmabuf);
	dma_resv_wait_timeout(b->dmabuf->resv, DMA_RESV_USAGE_BOOKKEEP, DMA_FENCE_FOREVER);
	m->from = b->place;
	m->to = to;
	dma_resv_add_fence(b->dmabuf->resv, m->fence, DMA_RESV_USAGE_KERNEL);
	b->place = to;
	b->moves++;
	b->evictions += evict;
	dma_buf_count(DMA_BUF_MOVES, 1);
	dma_buf_count(DMA_BUF_EVICTIONS, evict);
	fl_lock(&v->dev->lock);
	v->moves++;
	v->evictions += evict;
	v->returns += !m->from->pieces && to->pieces;
	cds_list_del_init(&b->lru);
	if (to->pieces)
		cds_list_add_tail(&b->lru, &v->lru);
	fl_unlock(&v->dev->lock);
	return 0;
}

static void move_end(struct move *m)
{
	size_t done = 0;

	for (unsigned i = 0; i < place_pieces(m->from); i++) {
		size_t n;
		char *at = place_piece(m->from, i, &n);

		place_copy(m->to, done, at, n, true);
		done += n;
	}
	place_leave(m->from);
	dma_fence_signal(m->fence);
	dma_fence_put(m->fence);
}

/* Evicts one buffer, the least recently used that may go and whose reservation is free. -ENOSPC: none may;
 * -EAGAIN: some might, but are locked just now. */
static int evict_one(struct vram *v)
{
	struct vram_buf *b, *victim = NULL;
	bool busy = false;
	struct place *to;
	struct move m;
	int err;

	fl_lock(&v->dev->lock);
	cds_list_for_each_entry(b, &v->lru, lru) {
		if (!dma_resv_trylock(b->dmabuf->resv)) {
			busy = true;
			continue;
		}
		if (may_move(b)) {
			victim = b;
			break;
		}
		dma_resv_unlock(b->dmabuf->resv);
	}
	fl_unlock(&v->dev->lock);
	if (!victim)
		return busy ? -EAGAIN : -ENOSPC;
	err = place_system(v, victim->dmabuf->size, &to);
	if (!err) {
		err = move_begin(victim, to, true, &m);
		if (err)
			place_put(to, NULL);
	}
	dma_resv_unlock(victim->dmabuf->resv);
	if (!err)
		move_end(&m);
	return err;
}

static bool has_stale(struct vram *v)
{
	bool yes;

	fl_lock(&v->dev->lock);
	yes = v->stale > v->excused;
	fl_unlock(&v->dev->lock);
	return yes;
}

/*
 * Makes some room: evicts one, or gives those time who are about to make some. *ms counts that, and it has an end,
 * since it is waited for with a reservation held that others may want. -ENOSPC: there is no more to be had.
 */
static int make_room(struct vram *v, int *ms)
{
	int err = evict_one(v);
	bool stale = err == -ENOSPC && has_stale(v);

	if (err != -EAGAIN && !stale)
		return err;
	if (++*ms > (stale ? STALE_MS : BUSY_MS)) {
		if (stale)
			fl_warn("%s: importers do not unmap what they were told to", v->dev->name);
		return -ENOSPC;
	}
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return 0;
}

/* In device memory, for which others are evicted. */
static int place_device(struct vram *v, size_t size, bool contiguous, struct place **out)
{
	int err = size > v->mm.size ? -ENOSPC : 0, ms = 0;

	while (!err && (err = place_try_device(v, size, contiguous, out)) == -ENOSPC)
		err = make_room(v, &ms);
	return err == -ENOSPC ? -ENOMEM : err;
}

/* both halves' first: finds a place, and begins. Reservation held. */
static int move_start(struct vram_buf *b, enum faultline_dmabuf_place to, struct move *m)
{
	struct place *p;
	int err;

	if (!may_move(b))
		return -EBUSY;
	err = to == FAULTLINE_DMABUF_SYSTEM ? place_system(b->vram, b->dmabuf->size, &p)
					    : place_device(b->vram, b->dmabuf->size, b->contiguous, &p);
	if (err)
		return err;
	err = move_begin(b, p, false, m);
	if (err)
		place_put(p, NULL);
	return err;
}

/* reservation held, and kept */
static int move_locked(struct vram_buf *b, enum faultline_dmabuf_place to)
{
	struct move m;
	int err = move_start(b, to, &m);

	if (!err)
		move_end(&m);
	return err;
}

static int vram_move(struct dma_buf *dmabuf, enum faultline_dmabuf_place to)
{
	struct move m;
	int err;

	dma_resv_lock(dmabuf->resv, NULL);
	err = move_start(to_vram(dmabuf), to, &m);
	dma_resv_unlock(dmabuf->resv);
	if (!err)
		move_end(&m); /* as a copy engine would, with nobody's lock held */
	return err;
}

static int vram_evict(struct faultline_dmabuf_device *dev, size_t bytes)
{
	struct vram *v = dev->priv;
	int err = 0, ms = 0;

	for (;;) {
		bool enough;

		fl_lock(&dev->lock);
		enough = v->mm.free >= bytes;
		fl_unlock(&dev->lock);
		if (enough || err)
			return enough ? 0 : err;
		err = make_room(v, &ms);
	}
}

/* ---- what importers ask for ---- */

static int vram_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	if (to_vram(dmabuf)->buf.dev->flags & FAULTLINE_DMABUF_NO_P2P)
		attach->peer2peer = false;
	return 0;
}

/* Where this importer cannot reach device memory: to system memory. Reservation held. */
static int within_reach(struct dma_buf_attachment *attach)
{
	struct vram_buf *b = to_vram(attach->dmabuf);

	return attach->peer2peer || !b->place->pieces ? 0 : move_locked(b, FAULTLINE_DMABUF_SYSTEM);
}

static int vram_pin(struct dma_buf_attachment *attach)
{
	struct dma_buf_attachment *a;
	int err = 0;

	if (to_vram(attach->dmabuf)->buf.dev->flags & FAULTLINE_DMABUF_NO_PIN)
		return -EOPNOTSUPP;
	/* once pinned it can go nowhere: it has to be where all who are attached can reach it */
	cds_list_for_each_entry(a, &attach->dmabuf->attachments, node)
		if (!err)
			err = within_reach(a);
	return err;
}

static void vram_unpin(struct dma_buf_attachment *attach)
{
}

static int vram_map(struct dma_buf_attachment *attach, enum dma_data_direction dir, struct sg_table **sgt)
{
	struct vram_buf *b = to_vram(attach->dmabuf);
	struct sg_table *t;
	int err = within_reach(attach);

	if (err)
		return err;
	t = dma_buf_alloc_sgt(place_pieces(b->place));
	if (!t)
		return -ENOMEM;
	for (unsigned i = 0; i < t->nents; i++) {
		t->sgl[i].dma_address = (uint64_t)(uintptr_t)place_piece(b->place, i, &t->sgl[i].dma_length);
		t->sgl[i].offset = place_offset(b->place, i);
	}
	t->file = place_file(b->place);
	t->peer2peer = b->place->pieces;
	t->priv = b->place;
	place_get(b->place);
	lru_touch(b);
	*sgt = t;
	return 0;
}

static void vram_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt, enum dma_data_direction dir)
{
	place_put(sgt->priv, attach->dev->name);
	free(sgt);
}

static void vram_mapping_lost(struct dma_buf_attachment *attach, struct sg_table *sgt)
{
	place_excuse(sgt->priv);
}

/* ---- the device's own use, and the CPU's ---- */

/* locks it, with no move under way, or so that none can begin */
static void lock_settled(struct dma_buf *dmabuf)
{
	dma_resv_lock(dmabuf->resv, NULL);
	dma_resv_wait_timeout(dmabuf->resv, DMA_RESV_USAGE_KERNEL, DMA_FENCE_FOREVER);
}

static int vram_access(struct dma_buf *dmabuf, size_t offset, void *buf, size_t length, bool write)
{
	struct vram_buf *b = to_vram(dmabuf);

	lock_settled(dmabuf);
	/* used by the device: back to its memory; where there is no room it works on system memory */
	if (!b->place->pieces && may_move(b))
		move_locked(b, FAULTLINE_DMABUF_DEVICE);
	place_copy(b->place, offset, buf, length, write);
	lru_touch(b);
	dma_resv_unlock(dmabuf->resv);
	return 0;
}

static int vram_begin_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	lock_settled(dmabuf);
	to_vram(dmabuf)->cpu_accesses++;
	dma_resv_unlock(dmabuf->resv);
	return 0;
}

static int vram_end_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct vram_buf *b = to_vram(dmabuf);
	int err = 0;

	dma_resv_lock(dmabuf->resv, NULL);
	if (b->cpu_accesses)
		b->cpu_accesses--;
	else
		err = -EINVAL;
	dma_resv_unlock(dmabuf->resv);
	return err;
}

static int vram_mmap(struct dma_buf *dmabuf, size_t offset, size_t length, int prot, void **addr)
{
	struct vram_buf *b = to_vram(dmabuf);
	size_t whole = (length + 4095) & ~4095ul;
	int err = 0;
	char *at = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return -errno;
	lock_settled(dmabuf);
	err = place_mmap(b->place, offset, whole, prot, at);
	b->cpu_maps += !err;
	dma_resv_unlock(dmabuf->resv);
	if (err)
		munmap(at, whole);
	else
		*addr = at;
	return err;
}

static void vram_munmap(struct dma_buf *dmabuf)
{
	struct vram_buf *b = to_vram(dmabuf);

	dma_resv_lock(dmabuf->resv, NULL);
	if (b->cpu_maps)
		b->cpu_maps--;
	dma_resv_unlock(dmabuf->resv);
}

static void vram_info(struct dma_buf *dmabuf, struct faultline_dmabuf_info *info)
{
	struct vram_buf *b = to_vram(dmabuf);

	info->place = b->place->pieces ? FAULTLINE_DMABUF_DEVICE : FAULTLINE_DMABUF_SYSTEM;
	info->pieces = place_pieces(b->place);
	info->moves = b->moves;
	info->evictions = b->evictions;
}

static void vram_release(struct dma_buf *dmabuf)
{
	struct vram_buf *b = to_vram(dmabuf);
	struct faultline_dmabuf_device *dev = b->buf.dev;

	/* an eviction of it, found on the list before, ends first: see the top of the file */
	dma_resv_lock(dmabuf->resv, NULL);
	dma_resv_wait_timeout(dmabuf->resv, DMA_RESV_USAGE_BOOKKEEP, DMA_FENCE_FOREVER);
	fl_lock(&dev->lock);
	cds_list_del_init(&b->lru);
	dev->buffers--;
	fl_unlock(&dev->lock);
	dma_resv_unlock(dmabuf->resv);
	place_put(b->place, NULL);
	free(b);
}

static const struct dma_buf_ops vram_ops = {
	.attach = vram_attach,
	.pin = vram_pin,
	.unpin = vram_unpin,
	.map_dma_buf = vram_map,
	.unmap_dma_buf = vram_unmap,
	.mapping_lost = vram_mapping_lost,
	.release = vram_release,
	.begin_cpu_access = vram_begin_cpu_access,
	.end_cpu_access = vram_end_cpu_access,
	.mmap = vram_mmap,
};

/* ---- the device ---- */

static int vram_open(struct faultline_dmabuf_device *dev)
{
	struct vram *v = calloc(1, sizeof(*v));
	void *base;
	int err;

	if (!v)
		return -ENOMEM;
	err = exporter_memory("vram", true, dev->size, &v->fd, &base);
	if (err)
		goto err_free;
	err = vram_mm_init(&v->mm, dev->size);
	if (err)
		goto err_memory;
	v->dev = dev;
	v->base = base;
	CDS_INIT_LIST_HEAD(&v->lru);
	dev->priv = v;
	return 0;
err_memory:
	munmap(base, dev->size);
	close(v->fd);
err_free:
	free(v);
	return err;
}

static void vram_close(struct faultline_dmabuf_device *dev)
{
	struct vram *v = dev->priv;

	vram_mm_fini(&v->mm);
	munmap(v->base, dev->size);
	close(v->fd);
	free(v);
}

static int vram_alloc(struct faultline_dmabuf_device *dev, size_t size, unsigned flags, struct dma_buf **dmabuf)
{
	struct vram *v = dev->priv;
	struct vram_buf *b = calloc(1, sizeof(*b));
	int err;

	if (!b)
		return -ENOMEM;
	b->buf.dev = dev;
	b->vram = v;
	b->context = dma_fence_context_alloc(1);
	b->contiguous = flags & FAULTLINE_DMABUF_CONTIGUOUS;
	CDS_INIT_LIST_HEAD(&b->lru);
	err = place_device(v, size, b->contiguous, &b->place);
	if (err)
		goto err_free;
	place_fill(b->place, 0);
	fl_lock(&dev->lock);
	dev->buffers++;
	fl_unlock(&dev->lock);
	err = dma_buf_export(&(struct dma_buf_export_info){.exp_name = dev->kind->name, .ops = &vram_ops,
							   .size = size, .priv = b, .storage = -1},
			     &b->dmabuf);
	if (err)
		goto err_place;
	*dmabuf = b->dmabuf;
	lru_touch(b);
	return 0;
err_place:
	fl_lock(&dev->lock);
	dev->buffers--;
	fl_unlock(&dev->lock);
	place_put(b->place, NULL);
err_free:
	free(b);
	return err;
}

/* dev->lock is held, so a buffer's reservation is only tried: one that is in use just now counts as pinned */
static void vram_device_info(struct faultline_dmabuf_device *dev, struct faultline_dmabuf_device_info *info)
{
	struct vram *v = dev->priv;
	struct vram_buf *b;

	info->largest_free = vram_mm_largest(&v->mm);
	info->stale = v->stale;
	info->moves = v->moves;
	info->evictions = v->evictions;
	info->returns = v->returns;
	cds_list_for_each_entry(b, &v->lru, lru) {
		bool got = dma_resv_trylock(b->dmabuf->resv);

		if (!got || !may_move(b))
			info->pinned += b->dmabuf->size;
		if (got)
			dma_resv_unlock(b->dmabuf->resv);
	}
}

const struct exporter_kind exporter_vram = {
	.name = "vram",
	.flags = FAULTLINE_DMABUF_NO_PIN | FAULTLINE_DMABUF_NO_P2P,
	.alloc_flags = FAULTLINE_DMABUF_CONTIGUOUS,
	.open = vram_open,
	.close = vram_close,
	.alloc = vram_alloc,
	.access = vram_access,
	.munmap = vram_munmap,
	.info = vram_info,
	.device_info = vram_device_info,
	.move = vram_move,
	.evict = vram_evict,
};
