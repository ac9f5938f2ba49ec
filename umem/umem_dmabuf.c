/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Importing dma-bufs. The device finds the bytes by a map: an immutable list of pieces, made from the
 * exporter's sg_table when the buffer is mapped and published in one pointer. An access announces
 * itself (dma_begin), reads the pointer, copies piece by piece, and is done; who takes the map away clears
 * the pointer first and then waits for the announced accesses. So inside invalidate_mappings the DMA
 * under way has ended and the mapping is given back, and no fence of ours is needed.
 *
 * dynamic	map at registration and at every fault (a worker: it may wait for a move), unmap when told
 * pinned	pin, map; the exporter has no way to tell, and must not move it
 * revocable	pin, map; when told: the key dies (revoke()), then unmap and unpin, once and for all
 *
 * Everything but the pointer is under the buffer's reservation lock.
 */
#include "umem/umem_dmabuf.h"

#include <errno.h>
#include <stdlib.h>
#include "dmabuf/dma-buf.h"
#include "umem/umem_internal.h"
#include "util/log.h"
#include "util/probe.h"
#include "util/provoke.h"

struct piece {
	uint64_t end; /* offset in the buffer of what follows it */
	uint64_t addr; /* of its first byte */
};

struct dmabuf_map {
	const uint32_t *revoked; /* of the sg_table */
	unsigned num;
	struct piece piece[];
};

struct ib_umem_dmabuf {
	struct ib_umem umem;
	struct dma_buf_dev dev;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attach;
	struct dmabuf_map *map; /* atomic; read inside a hazard, written under the reservation lock */
	struct sg_table *sgt;
	bool pinned, revoked;
	void (*revoke)(void *priv);
	void *revoke_priv;
};

static struct ib_umem_dmabuf *to_dmabuf(const struct ib_umem *umem)
{
	return (struct ib_umem_dmabuf *)umem; /* its first member */
}

/* ---- counters ---- */

static uint64_t num_pages(const struct ib_umem *umem)
{
	return ((umem->address + umem->length - 1) >> PAGE_SHIFT) - (umem->address >> PAGE_SHIFT) + 1;
}

/* The event of a move may come while the key's entry is taken away: it is read once. */
static struct faultline_mr *mr_stat(const struct ib_umem *umem)
{
	return __atomic_load_n(&umem->stat, __ATOMIC_RELAXED);
}

/* as page_faults or page_prefetch; what is mapped at registration is neither */
enum mapped_by { BY_REGISTRATION, BY_FAULT, BY_PREFETCH };

static void count_mapped(struct ib_umem *umem, enum mapped_by by)
{
	struct faultline_device *d = umem->dev->stat;
	struct faultline_mr *mr = mr_stat(umem);
	uint64_t n = num_pages(umem);

	cnt_add(d, FL_CNT_mapped_pages, n);
	if (by == BY_FAULT)
		cnt_add(d, FL_CNT_page_faults, n);
	else if (by == BY_PREFETCH)
		cnt_add(d, FL_CNT_page_prefetch, n);
	if (!mr)
		return;
	if (by == BY_FAULT)
		__atomic_fetch_add(&mr->page_faults, n, __ATOMIC_RELAXED);
	else if (by == BY_PREFETCH)
		__atomic_fetch_add(&mr->page_prefetch, n, __ATOMIC_RELAXED);
	__atomic_fetch_add(&mr->dma_maps, n, __ATOMIC_RELAXED);
	__atomic_store_n(&mr->mapped_pages, n, __ATOMIC_RELAXED);
}

static void count_unmapped(struct ib_umem *umem)
{
	struct faultline_mr *mr = mr_stat(umem);
	uint64_t n = num_pages(umem);

	ib_dma_unmap_pages(umem->dev, n);
	__atomic_fetch_sub(&umem->dev->stat->counter[FL_CNT_mapped_pages], n, __ATOMIC_RELAXED);
	if (!mr)
		return;
	__atomic_fetch_add(&mr->dma_unmaps, n, __ATOMIC_RELAXED);
	__atomic_store_n(&mr->mapped_pages, 0, __ATOMIC_RELAXED);
}

static void count_pinned(struct ib_umem *umem, bool on)
{
	struct faultline_mr *mr = mr_stat(umem);
	uint64_t n = num_pages(umem);

	cnt_add(umem->dev->stat, FL_CNT_pinned_pages, on ? n : -n);
	if (mr)
		__atomic_store_n(&mr->pinned_pages, on ? n : 0, __ATOMIC_RELAXED);
}

/* What was mapped and pinned before there was an entry to count in. */
void ib_umem_dmabuf_publish(struct ib_umem *umem)
{
	struct ib_umem_dmabuf *d = to_dmabuf(umem);
	bool locked = dma_resv_held(d->dmabuf->resv); /* the revocable kind's owner holds it */
	uint64_t n = num_pages(umem), mapped;

	if (!locked)
		dma_resv_lock(d->dmabuf->resv, NULL);
	mapped = d->map ? n : 0;
	__atomic_store_n(&umem->stat->mapped_pages, mapped, __ATOMIC_RELAXED);
	__atomic_store_n(&umem->stat->dma_maps, umem->stat->dma_unmaps + mapped, __ATOMIC_RELAXED);
	__atomic_store_n(&umem->stat->pinned_pages, d->pinned ? n : 0, __ATOMIC_RELAXED);
	if (!locked)
		dma_resv_unlock(d->dmabuf->resv);
}

/* ---- mapping; reservation lock held ---- */

static struct dmabuf_map *make_map(const struct sg_table *sgt)
{
	struct dmabuf_map *map = malloc(sizeof(*map) + sgt->nents * sizeof(map->piece[0]));
	uint64_t end = 0;

	if (!map)
		return NULL;
	map->revoked = sgt->revoked;
	map->num = sgt->nents;
	for (unsigned i = 0; i < sgt->nents; i++) {
		end += sgt->sgl[i].dma_length;
		map->piece[i] = (struct piece){.end = end, .addr = sgt->sgl[i].dma_address};
	}
	return map;
}

static int ib_umem_dmabuf_map_pages(struct ib_umem_dmabuf *d, enum mapped_by by)
{
	struct dmabuf_map *map;
	int err;

	if (d->map)
		return 0;
	if (d->revoked)
		return -ENODEV;
	err = ib_dma_map_pages(d->umem.dev, num_pages(&d->umem));
	if (err)
		return err;
	err = dma_buf_map_attachment(d->attach, DMA_BIDIRECTIONAL, &d->sgt);
	if (err)
		goto err_dma;
	/* the bytes may be on their way to where they were just said to be */
	dma_resv_wait_timeout(d->dmabuf->resv, DMA_RESV_USAGE_KERNEL, DMA_FENCE_FOREVER);
	dma_buf_assert_usable(d->attach);
	map = make_map(d->sgt);
	if (!map) {
		err = -ENOMEM;
		goto err_attachment;
	}
	__atomic_store_n(&d->map, map, __ATOMIC_SEQ_CST);
	count_mapped(&d->umem, by);
	return 0;

err_attachment:
	dma_buf_unmap_attachment(d->attach, d->sgt, DMA_BIDIRECTIONAL);
	d->sgt = NULL;
err_dma:
	ib_dma_unmap_pages(d->umem.dev, num_pages(&d->umem));
	return err;
}

static void ib_umem_dmabuf_unmap_pages(struct ib_umem_dmabuf *d)
{
	struct dmabuf_map *map = d->map;

	if (!map)
		return;
	/* pairs with walk(), which announces itself and then reads it: it sees this, or we wait for it */
	__atomic_store_n(&d->map, NULL, __ATOMIC_SEQ_CST);
	dma_wait_range(d->umem.address, d->umem.address + d->umem.length);
	free(map);
	dma_buf_unmap_attachment(d->attach, d->sgt, DMA_BIDIRECTIONAL);
	d->sgt = NULL;
	count_unmapped(&d->umem);
}

static void unpin(struct ib_umem_dmabuf *d)
{
	if (!d->pinned)
		return;
	d->pinned = false;
	dma_buf_unpin(d->attach);
	count_pinned(&d->umem, false);
}

/* ---- being told ---- */

static void count_invalidated(struct ib_umem_dmabuf *d)
{
	struct faultline_mr *mr = mr_stat(&d->umem);
	uint64_t n = d->map ? num_pages(&d->umem) : 0;

	cnt_add(d->umem.dev->stat, FL_CNT_page_invalidations, n);
	if (mr)
		__atomic_fetch_add(&mr->page_invalidations, n, __ATOMIC_RELAXED);
	FL_PROBE3(invalidate, d->umem.address, d->umem.address + d->umem.length, n);
}

static void invalidate_dynamic(struct dma_buf_attachment *attach)
{
	struct ib_umem_dmabuf *d = attach->importer_priv;

	count_invalidated(d);
	ib_umem_dmabuf_unmap_pages(d);
}

static void ib_umem_dmabuf_revoke(struct dma_buf_attachment *attach)
{
	struct ib_umem_dmabuf *d = attach->importer_priv;

	/* before it is pinned it is a move, and pinning finds out; also before attaching has returned */
	if (!d->pinned)
		return;
	d->revoked = true;
	count_invalidated(d);
	if (d->revoke)
		d->revoke(d->revoke_priv);
	ib_umem_dmabuf_unmap_pages(d);
	unpin(d);
}

/* ---- the device's side ---- */

static enum umem_way way(const struct ib_umem *umem, uint64_t addr, size_t len, bool write, bool failed)
{
	const struct ib_umem_dmabuf *d = to_dmabuf(umem);

	if (!umem->ops->fault || __atomic_load_n(&d->map, __ATOMIC_SEQ_CST))
		return UMEM_BY_COPY;
	return UMEM_FAULT;
}

/* Has the process that lends it taken it back while we were too slow (dmabuf/dma-buf.h, sg_table.revoked)? */
static bool withdrawn(const struct dmabuf_map *map)
{
	/* pairs with lose() in dmabuf/remote_serve.c: it sees the bytes of the copy, or we see the mark */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(map->revoked, __ATOMIC_SEQ_CST);
}

/* Calls fn for each piece of [addr, addr + len) in turn, inside a hazard. */
static int walk(struct ib_umem *umem, uint32_t key, uint64_t addr, size_t len,
		int (*fn)(void *arg, void *mem, size_t n), void *arg)
{
	struct ib_umem_dmabuf *d = to_dmabuf(umem);
	struct faultline_hazard *h = dma_begin(addr, addr + len, key);
	/* pairs with ib_umem_dmabuf_unmap_pages() */
	const struct dmabuf_map *map = __atomic_load_n(&d->map, __ATOMIC_SEQ_CST);
	int err = map ? 0 : umem->ops->fault ? -EFAULT : -EACCES;
	unsigned lo = 0, hi = map ? map->num : 0;

	provoke_race(PROVOKE_ACCESS_CHECKED);
	while (lo < hi) { /* the first piece that ends behind addr */
		unsigned mid = (lo + hi) / 2;

		if (map->piece[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; !err && len; lo++) {
		uint64_t start = lo ? map->piece[lo - 1].end : 0;
		size_t n = map->piece[lo].end - addr < len ? map->piece[lo].end - addr : len;

		err = fn(arg, (void *)(uintptr_t)(map->piece[lo].addr + (addr - start)), n);
		addr += n;
		len -= n;
	}
	if (map && map->revoked && !err && withdrawn(map))
		err = -EACCES;
	dma_end(h);
	return err;
}

struct copy {
	char *buf;
	bool to_pages;
};

static int copy_piece(void *arg, void *mem, size_t n)
{
	struct copy *c = arg;
	size_t left = c->to_pages ? copy_guarded(mem, c->buf, n) : copy_guarded(c->buf, mem, n);

	c->buf += n;
	return left ? -EACCES : 0; /* a driver's memory that has gone without a word */
}

static int copy(struct ib_umem *umem, uint32_t key, uint64_t addr, void *buf, size_t len, bool to_pages)
{
	return walk(umem, key, addr, len, copy_piece, &(struct copy){.buf = buf, .to_pages = to_pages});
}

struct atomic_op {
	bool cmpswap;
	uint64_t swap_add, compare, *orig;
};

static int atomic_piece(void *arg, void *mem, size_t n)
{
	struct atomic_op *a = arg;
	int err = a->cmpswap ? cmpxchg64_guarded(mem, a->compare, a->swap_add, a->orig)
			     : fetch_add64_guarded(mem, a->swap_add, a->orig);

	return err ? -EACCES : 0;
}

static int atomic(struct ib_umem *umem, uint32_t key, uint64_t addr, bool cmpswap, uint64_t swap_add,
		  uint64_t compare, uint64_t *orig)
{
	struct atomic_op a = {.cmpswap = cmpswap, .swap_add = swap_add, .compare = compare, .orig = orig};

	return walk(umem, key, addr, 8, atomic_piece, &a);
}

/* All of it, whatever part is asked for: a buffer moves as a whole. */
static int fault(struct ib_umem *umem, uint64_t addr, size_t len, unsigned flags)
{
	struct ib_umem_dmabuf *d = to_dmabuf(umem);
	int ret = 0;

	if (flags & UMEM_FAULT_WRITE && !umem->writable)
		return -EPERM;
	if (flags & UMEM_FAULT_NOSLEEP) /* the lock may be a mover's, who waits for device and disk */
		return __atomic_load_n(&d->map, __ATOMIC_SEQ_CST) ? 0 : -EAGAIN;
	dma_resv_lock(d->dmabuf->resv, NULL);
	if (!d->map) {
		ret = ib_umem_dmabuf_map_pages(d, flags & UMEM_FAULT_PREFETCH ? BY_PREFETCH : BY_FAULT);
		if (!ret)
			ret = (int)num_pages(umem);
	}
	dma_resv_unlock(d->dmabuf->resv);
	return ret;
}

/* ---- life ---- */

static void release(struct ib_umem *umem)
{
	struct ib_umem_dmabuf *d = to_dmabuf(umem);

	/* the key is dead: nothing is under way */
	dma_resv_lock(d->dmabuf->resv, NULL);
	d->revoke = NULL;
	ib_umem_dmabuf_unmap_pages(d);
	unpin(d);
	dma_resv_unlock(d->dmabuf->resv);
	dma_buf_detach(d->dmabuf, d->attach);
	dma_buf_put(d->dmabuf);
	free(d);
}

#define DMABUF_OPS .kind = UMEM_DMABUF, .way = way, .copy = copy, .atomic = atomic, .release = release
static const struct umem_ops dynamic_ops = {DMABUF_OPS, .fault = fault};
static const struct umem_ops pinned_ops = {DMABUF_OPS};

static const struct dma_buf_attach_ops attach_dynamic = {.allow_peer2peer = true,
							 .invalidate_mappings = invalidate_dynamic};
static const struct dma_buf_attach_ops attach_pinned = {.allow_peer2peer = true};
static const struct dma_buf_attach_ops attach_revocable = {.allow_peer2peer = true,
							   .invalidate_mappings = ib_umem_dmabuf_revoke};

static int get(struct umem_device *dev, uint64_t offset, size_t size, int fd, unsigned access,
	       const struct umem_ops *ops, const struct dma_buf_attach_ops *attach_ops, struct ib_umem_dmabuf **out)
{
	struct ib_umem_dmabuf *d;
	uint64_t end;
	int err;

	if (!size || __builtin_add_overflow(offset, size, &end))
		return -EINVAL;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	err = dma_buf_get(fd, &d->dmabuf);
	if (err)
		goto err_free;
	err = -EINVAL;
	if (d->dmabuf->size < end)
		goto err_put;
	d->umem = (struct ib_umem){
		.ops = ops, .dev = dev, .address = offset, .length = size, .writable = umem_writable(access)};
	d->dev = (struct dma_buf_dev){.name = dev->stat->name, .stat = dev->stat};
	err = dma_buf_dynamic_attach(d->dmabuf, &d->dev, attach_ops, d, &d->attach);
	if (err)
		goto err_put;
	*out = d;
	return 0;

err_put:
	dma_buf_put(d->dmabuf);
err_free:
	free(d);
	return err;
}

int ib_umem_dmabuf_get(struct umem_device *dev, uint64_t offset, size_t size, int fd, unsigned access,
		       struct ib_umem **umem)
{
	struct ib_umem_dmabuf *d;
	int err = get(dev, offset, size, fd, access, &dynamic_ops, &attach_dynamic, &d);

	if (err)
		return err;
	dma_resv_lock(d->dmabuf->resv, NULL);
	err = ib_umem_dmabuf_map_pages(d, BY_REGISTRATION);
	dma_resv_unlock(d->dmabuf->resv);
	if (err)
		release(&d->umem);
	else
		*umem = &d->umem;
	return err;
}

/* returns with the lock held, unless it fails */
static int get_pinned_and_lock(struct umem_device *dev, uint64_t offset, size_t size, int fd, unsigned access,
			       const struct dma_buf_attach_ops *attach_ops, struct ib_umem_dmabuf **out)
{
	struct ib_umem_dmabuf *d;
	int err = get(dev, offset, size, fd, access, &pinned_ops, attach_ops, &d);

	if (err)
		return err;
	dma_resv_lock(d->dmabuf->resv, NULL);
	err = dma_buf_pin(d->attach);
	if (!err) {
		d->pinned = true;
		count_pinned(&d->umem, true);
		err = ib_umem_dmabuf_map_pages(d, BY_REGISTRATION);
	}
	if (err) {
		/* the one place that unpins what was pinned is release() */
		dma_resv_unlock(d->dmabuf->resv);
		release(&d->umem);
		return err;
	}
	*out = d;
	return 0;
}

int ib_umem_dmabuf_get_pinned(struct umem_device *dev, uint64_t offset, size_t size, int fd, unsigned access,
			      struct ib_umem **umem)
{
	struct ib_umem_dmabuf *d;
	int err = get_pinned_and_lock(dev, offset, size, fd, access, &attach_pinned, &d);

	if (err)
		return err;
	dma_resv_unlock(d->dmabuf->resv);
	*umem = &d->umem;
	return 0;
}

int ib_umem_dmabuf_get_pinned_revocable_and_lock(struct umem_device *dev, uint64_t offset, size_t size, int fd,
						 unsigned access, struct ib_umem **umem)
{
	struct ib_umem_dmabuf *d;
	int err = get_pinned_and_lock(dev, offset, size, fd, access, &attach_revocable, &d);

	if (!err)
		*umem = &d->umem;
	return err;
}

void ib_umem_dmabuf_set_revoke_locked(struct ib_umem *umem, void (*revoke)(void *priv), void *priv)
{
	struct ib_umem_dmabuf *d = to_dmabuf(umem);

	dma_resv_assert_held(d->dmabuf->resv);
	d->revoke = revoke;
	d->revoke_priv = priv;
	if (d->revoked)
		revoke(priv);
}

void ib_umem_dmabuf_revoke_unlock(struct ib_umem *umem)
{
	dma_resv_unlock(to_dmabuf(umem)->dmabuf->resv);
}
