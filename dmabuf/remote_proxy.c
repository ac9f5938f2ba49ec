/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Proxies: importers of a buffer of this process, each for one in another process (remote.h). All but their callback
 * runs in the worker of their connection. What the other side asks for is checked as if it meant harm: it may
 * hurt itself, and break no rule of dma-buf.h here.
 */
#include "dmabuf/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "dmabuf/exporter.h"
#include "dmabuf/internal.h"
#include "util/log.h"
#include "util/provoke.h"

struct proxy_map {
	struct cds_list_head node; /* the oldest first */
	uint64_t id;
	struct sg_table *sgt;
};

struct proxy {
	struct cds_list_head node; /* of the connection's */
	uint64_t id;
	struct dma_remote_conn *conn;
	struct dma_buf_dev dev;
	char name[64];
	struct dma_buf_attachment *attach;
	struct dma_remote_told told;
	uint64_t context, seqno; /* of the fences */
	/* under the reservation */
	bool pinned;
	struct cds_list_head maps;
	unsigned num_maps;
	uint64_t last_map;
};

/* ---- being told ---- */

static void proxy_invalidate(struct dma_buf_attachment *attach)
{
	struct proxy *p = attach->importer_priv;
	struct dma_remote_msg msg = {.type = DMA_REMOTE_INVALIDATE};
	struct dma_fence *fence = NULL;

	if (!attach->maps && !attach->pins) /* nothing that it could let go of */
		return;
	msg.id = p->id;
	/* what is pinned is dead when this returns; and without memory for a fence it is waited for here, too */
	if (!attach->pins && !dma_resv_reserve_fences(attach->dmabuf->resv, 1))
		fence = dma_fence_create(p->context, ++p->seqno);
	msg.seq = dma_remote_tell(p->conn, &p->told, &fence);
	if (msg.seq) {
		if (fence)
			dma_resv_add_fence(attach->dmabuf->resv, fence, DMA_RESV_USAGE_BOOKKEEP);
		dma_remote_send(p->conn, &msg, -1);
		if (!fence)
			dma_remote_wait_told(p->conn, &p->told);
	}
	dma_fence_put(fence);
}

/* [may be told][peer to peer] */
static const struct dma_buf_attach_ops proxy_ops[2][2] = {
	{{.allow_peer2peer = false}, {.allow_peer2peer = true}},
	{{.allow_peer2peer = false, .invalidate_mappings = proxy_invalidate},
	 {.allow_peer2peer = true, .invalidate_mappings = proxy_invalidate}},
};

/* ---- undoing; reservation held ---- */

static void unmap_one(struct proxy *p, struct proxy_map *m)
{
	cds_list_del(&m->node);
	p->num_maps--;
	dma_buf_unmap_attachment(p->attach, m->sgt, DMA_BIDIRECTIONAL);
	free(m);
}

static void unpin(struct proxy *p)
{
	if (p->pinned)
		dma_buf_unpin(p->attach);
	p->pinned = false;
}

/* no lock held */
static void proxy_free(struct proxy *p)
{
	struct dma_buf *dmabuf = p->conn->dmabuf;
	struct proxy_map *m, *next;

	dma_resv_lock(dmabuf->resv, NULL);
	cds_list_for_each_entry_safe(m, next, &p->maps, node)
		unmap_one(p, m);
	unpin(p);
	dma_resv_unlock(dmabuf->resv);
	dma_buf_detach(dmabuf, p->attach);
	cds_list_del(&p->node);
	p->conn->num_proxies--;
	free(p);
}

static struct proxy *find(struct dma_remote_conn *c, uint64_t id)
{
	struct proxy *p;

	cds_list_for_each_entry(p, &c->proxies, node)
		if (p->id == id)
			return p;
	return NULL;
}

static void undo_one(struct dma_remote_conn *c, const struct dma_remote_msg *msg)
{
	struct proxy *p = find(c, msg->id);
	struct proxy_map *m, *next;

	/* it may have been detached meanwhile, by who did not wait for our answer: no harm */
	if (!p)
		return;
	if (msg->type == DMA_REMOTE_UNPIN) {
		unpin(p);
		return;
	}
	cds_list_for_each_entry_safe(m, next, &p->maps, node)
		if (m->id == msg->map)
			unmap_one(p, m);
}

/* All that waits to be undone in one go: who looks in between must not see half of a revocation. */
static void undo(struct dma_remote_conn *c, struct dma_remote_call *call)
{
	dma_resv_lock(c->dmabuf->resv, NULL);
	undo_one(c, &call->msg);
	while ((call = dma_remote_next(c, true))) {
		undo_one(c, &call->msg);
		dma_remote_free_call(call);
	}
	dma_resv_unlock(c->dmabuf->resv);
}

/* It is lost: it has no pin any more. What it has mapped it may still write to, so that stays. */
static void give_up(struct dma_remote_conn *c)
{
	const struct dma_buf_ops *ops;
	struct proxy_map *m;
	struct proxy *p;

	c->given_up = true;
	if (!c->dmabuf)
		return;
	ops = c->dmabuf->ops;
	dma_resv_lock(c->dmabuf->resv, NULL);
	cds_list_for_each_entry(p, &c->proxies, node) {
		unpin(p);
		cds_list_for_each_entry(m, &p->maps, node)
			if (ops->mapping_lost)
				ops->mapping_lost(p->attach, m->sgt);
	}
	dma_resv_unlock(c->dmabuf->resv);
}

/* ---- what is asked for ---- */

static int answer(struct dma_remote_conn *c, const struct dma_remote_msg *call, struct dma_remote_msg a, int fd)
{
	a.type = DMA_REMOTE_ANSWER;
	a.call = call->type;
	a.seq = call->seq;
	a.id = call->id;
	return dma_remote_send(c, &a, fd);
}

/* The page, and in it room for as many pieces as the buffer can be in. The descriptor, or a negative errno. */
static int make_page(struct dma_remote_conn *c)
{
	size_t size = dma_remote_page_size(c->dmabuf->size);
	void *addr;
	int fd, err = exporter_memory("page", false, size, &fd, &addr);

	if (err)
		return err;
	c->page_size = size;
	dma_remote_set_page(c, addr);
	return fd;
}

static void hello(struct dma_remote_conn *c, const struct dma_remote_call *call)
{
	int err = call->msg.err < 0 ? -EMFILE : call->fd < 0 || c->dmabuf || c->page ? -EPROTO : 0, fd = -1;

	if (!err && call->msg.num != DMA_REMOTE_VERSION)
		err = -EPROTO;
	if (!err)
		err = dma_buf_find(call->fd, &c->dmabuf);
	if (!err && c->dmabuf->file < 0) { /* imported itself: not ours to give */
		dma_buf_put(c->dmabuf);
		c->dmabuf = NULL;
		err = -EINVAL;
	}
	if (!err) {
		fd = make_page(c);
		err = fd < 0 ? fd : 0;
	}
	answer(c, &call->msg, (struct dma_remote_msg){.err = err, .num = c->dmabuf ? c->dmabuf->size : 0}, fd);
	if (fd >= 0)
		close(fd);
}

static int attach(struct dma_remote_conn *c, const struct dma_remote_msg *msg)
{
	struct proxy *p;
	int err;

	if (find(c, msg->id))
		return -EEXIST;
	if (c->num_proxies == DMA_REMOTE_ATTACHMENTS)
		return -ENOSPC;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->id = msg->id;
	p->conn = c;
	CDS_INIT_LIST_HEAD(&p->maps);
	CDS_INIT_LIST_HEAD(&p->told.node);
	p->context = dma_fence_context_alloc(1);
	snprintf(p->name, sizeof(p->name), "%s of process %d", msg->name, (int)c->pid);
	for (char *s = p->name; *s; s++) /* it goes into messages */
		*s = *s >= ' ' && *s <= '~' ? *s : '?';
	p->dev.name = p->name;
	err = dma_buf_dynamic_attach(c->dmabuf, &p->dev,
				     &proxy_ops[!!(msg->flags & DMA_REMOTE_TOLD)][!!(msg->flags & DMA_REMOTE_P2P)], p,
				     &p->attach);
	if (err) {
		free(p);
		return err;
	}
	p->attach->lost = &c->lost;
	cds_list_add(&p->node, &c->proxies);
	c->num_proxies++;
	return 0;
}

/* reservation held */
static int map(struct dma_remote_conn *c, struct proxy *p, struct proxy_map **out)
{
	struct proxy_map *m;
	int err;

	/* rule 2, which it must not break in our name */
	if (!p->pinned && !dma_buf_attach_revocable(p->attach))
		return -EPERM;
	if (p->num_maps == DMA_REMOTE_MAPS)
		return -ENOSPC;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	err = dma_buf_map_attachment(p->attach, DMA_BIDIRECTIONAL, &m->sgt);
	if (err) {
		free(m);
		return err;
	}
	m->id = ++p->last_map;
	cds_list_add_tail(&m->node, &p->maps);
	p->num_maps++;
	dma_resv_wait_timeout(c->dmabuf->resv, DMA_RESV_USAGE_KERNEL, DMA_FENCE_FOREVER);
	dma_buf_assert_usable(p->attach);
	if (m->sgt->file < 0 || m->sgt->nents > c->dmabuf->size / 4096) {
		unmap_one(p, m);
		return -EOPNOTSUPP;
	}
	for (unsigned i = 0; i < m->sgt->nents; i++) {
		c->page->piece[i].offset = m->sgt->sgl[i].offset;
		c->page->piece[i].length = m->sgt->sgl[i].dma_length;
	}
	*out = m;
	return 0;
}

/* Pins or maps, and answers before anybody can take it away again: remote.h says why. */
static void call_locked(struct dma_remote_conn *c, const struct dma_remote_msg *msg)
{
	struct dma_remote_msg a = {0};
	struct proxy *p = find(c, msg->id);
	struct proxy_map *m = NULL;
	int fd = -1;

	dma_resv_lock(c->dmabuf->resv, NULL);
	if (!p) {
		a.err = -ENOENT;
	} else if (msg->type == DMA_REMOTE_PIN) {
		a.err = p->pinned ? -EALREADY : dma_buf_pin(p->attach);
		p->pinned = p->pinned || !a.err;
	} else {
		a.err = map(c, p, &m);
	}
	if (m) {
		a.map = m->id;
		a.num = m->sgt->nents;
		a.flags = m->sgt->peer2peer ? DMA_REMOTE_P2P : 0;
		fd = m->sgt->file;
		provoke_race(PROVOKE_DMA_MAPPED);
	}
	if (answer(c, msg, a, fd) && m) {
		unmap_one(p, m); /* it never heard of it; be it for want of room for descriptors on their way */
		answer(c, msg, (struct dma_remote_msg){.err = -EMFILE}, -1);
	}
	dma_resv_unlock(c->dmabuf->resv);
}

static void serve(struct dma_remote_conn *c, struct dma_remote_call *call)
{
	const struct dma_remote_msg *msg = &call->msg;
	struct dma_remote_msg a = {0};
	struct proxy *p;

	if (msg->type == DMA_REMOTE_HELLO) {
		hello(c, call);
		return;
	}
	if (!c->dmabuf || !c->page) {
		a.err = -EPROTO;
		answer(c, msg, a, -1);
		return;
	}
	switch (msg->type) {
	case DMA_REMOTE_PIN:
	case DMA_REMOTE_MAP:
		call_locked(c, msg);
		return;
	case DMA_REMOTE_UNMAP:
	case DMA_REMOTE_UNPIN:
		undo(c, call);
		return;
	case DMA_REMOTE_ATTACH:
		a.err = attach(c, msg);
		break;
	case DMA_REMOTE_DETACH:
		p = find(c, msg->id);
		if (p)
			proxy_free(p);
		break;
	case DMA_REMOTE_BYE:
		if (!cds_list_empty(&c->proxies)) {
			a.err = -EBUSY;
			break;
		}
		dma_buf_put(c->dmabuf);
		c->dmabuf = NULL;
	}
	answer(c, msg, a, -1);
}

void dma_remote_work(struct dma_remote_conn *c)
{
	struct dma_remote_call *call;
	struct proxy *p, *next;
	bool ended;

	for (;;) {
		call = dma_remote_next(c, false);
		if (call) {
			serve(c, call);
			dma_remote_free_call(call);
		} else if (__atomic_load_n(&c->lost, __ATOMIC_ACQUIRE) && !c->given_up) {
			give_up(c);
		} else {
			break;
		}
	}
	/* it has ended, whatever it had: no thread of it runs any more. Counted when what it had is gone: who sees the one
	 * sees the other */
	ended = !cds_list_empty(&c->proxies) && !c->given_up;
	cds_list_for_each_entry_safe(p, next, &c->proxies, node)
		proxy_free(p);
	dma_buf_count(DMA_BUF_IMPORTERS_ENDED, ended);
	if (c->dmabuf)
		dma_buf_put(c->dmabuf);
	if (c->page)
		munmap(c->page, c->page_size);
}
