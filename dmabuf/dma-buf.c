/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The framework: it stands between exporter and importer, calls each as the contract (dma-buf.h) says, counts,
 * and in debug builds stops at the first breach. It moves no bytes.
 *
 * Lifetime. A dma_buf has references of those who import it, and one that stands for all descriptors the
 * application has of it, in whatever process (dma-file.c says how their end is seen). That reference is given
 * up at the next call into the framework after the last close(), without a thread of our own: whoever
 * looks, or wants the memory, calls. The table of buffers finds them by the inode of a descriptor.
 *
 * Locks. LOCK_DMA_BUF guards the table and the last step of a reference count to zero. The reservation guards
 * attachments, pins, maps and, by the exporters' own rule, the place of the bytes. Exporters' functions are
 * never called under LOCK_DMA_BUF.
 */
#include "dmabuf/dma-buf.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dmabuf/internal.h"
#include "dmabuf/remote.h"
#include "util/log.h"
#include "util/seg.h"

static struct {
	struct fl_mutex lock;
	struct cds_list_head bufs;
	struct cds_list_head closed; /* application and importers are done with them; to be released */
	unsigned unwatched;	     /* exported ones that cannot be watched: looked at each time */
	unsigned destroying;	     /* threads that release some now */
	pthread_cond_t destroyed;
} table = {
	.lock = FL_MUTEX_INIT(LOCK_DMA_BUF),
	.bufs = CDS_LIST_HEAD_INIT(table.bufs),
	.closed = CDS_LIST_HEAD_INIT(table.closed),
	.destroyed = PTHREAD_COND_INITIALIZER,
};

static void stat_add(struct dma_buf_attachment *attach, enum faultline_counter c, int n)
{
	if (attach->dev->stat)
		cnt_add(attach->dev->stat, c, (uint64_t)(int64_t)n);
}

/* ---- lifetime ---- */

/* its last reference is gone, and it is in no table */
static void destroy(struct dma_buf *dmabuf)
{
	DMA_BUF_RULE(9, cds_list_empty(&dmabuf->attachments), "a buffer is released with an attachment left");
	dmabuf->ops->release(dmabuf);
	if (dmabuf->file >= 0)
		close(dmabuf->file);
	dma_buf_discard(dmabuf);
}

/* table.lock held: gives up one reference; the last one puts it on the list of those to be released */
static void put_locked(struct dma_buf *dmabuf)
{
	/* acq_rel: pairs with the other puts, so that all use comes before the release */
	if (__atomic_sub_fetch(&dmabuf->refs, 1, __ATOMIC_ACQ_REL))
		return;
	if (dmabuf->file >= 0) {
		if (dmabuf->watch < 0)
			table.unwatched--;
		dma_file_unwatch(dmabuf->watch);
	}
	cds_list_del(&dmabuf->node);
	cds_list_add(&dmabuf->node, &table.closed);
}

static void look(struct dma_buf *dmabuf)
{
	struct dma_file file = {.fd = dmabuf->file};

	/* where leases cannot tell, the end of its one description was the end */
	if (!dmabuf->exported || !dma_file_alone(&file, dmabuf->watch >= 0 && dmabuf->descriptions == 1))
		return;
	dmabuf->exported = false;
	put_locked(dmabuf);
}

/*
 * Finds what the application has closed, and releases what nobody has any more. No lock held. all: looks at every
 * buffer; one that somebody else had open for a moment as its event came is found so.
 */
static void reap(bool all)
{
	struct dma_buf *b, *next;
	CDS_LIST_HEAD(dead);
	int watch;

	fl_lock(&table.lock);
	while ((watch = dma_file_next_closed()) >= 0)
		cds_list_for_each_entry_safe(b, next, &table.bufs, node)
			if (b->file >= 0 && (b->watch == watch || watch == DMA_FILE_ANY))
				look(b);
	if (table.unwatched || all)
		cds_list_for_each_entry_safe(b, next, &table.bufs, node)
			if (b->file >= 0 && (b->watch < 0 || all))
				look(b);
	if (cds_list_empty(&table.closed)) {
		fl_unlock(&table.lock);
		return;
	}
	cds_list_splice(&table.closed, &dead);
	CDS_INIT_LIST_HEAD(&table.closed);
	table.destroying++;
	fl_unlock(&table.lock);
	cds_list_for_each_entry_safe(b, next, &dead, node)
		destroy(b);
	fl_lock(&table.lock);
	if (!--table.destroying)
		pthread_cond_broadcast(&table.destroyed);
	fl_unlock(&table.lock);
}

/* The child of a fork has none of the parent's buffers: its descriptors of them are another process's. */
static void forget(void)
{
	fl_mutex_init(&table.lock, LOCK_DMA_BUF);
	CDS_INIT_LIST_HEAD(&table.bufs);
	CDS_INIT_LIST_HEAD(&table.closed);
	table.unwatched = table.destroying = 0;
	pthread_cond_init(&table.destroyed, NULL);
	dma_file_forget_watches();
	dma_remote_fork_child();
	dma_buf_reset_counts();
}

static void hook_fork(void)
{
	pthread_atfork(dma_remote_fork_begin, dma_remote_fork_end, forget);
}

static void prepare(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, hook_fork);
}

static void enter(void)
{
	prepare();
	reap(false);
}

void dma_buf_reap(void)
{
	prepare();
	reap(true);
	/* what another thread has found closed is gone, too */
	fl_lock(&table.lock);
	while (table.destroying)
		fl_cond_wait(&table.destroyed, &table.lock);
	fl_unlock(&table.lock);
}

int dma_buf_create(const struct dma_buf_export_info *info, struct dma_buf **dmabuf)
{
	struct dma_buf *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->size = info->size;
	b->ops = info->ops;
	b->exp_name = info->exp_name;
	b->priv = info->priv;
	b->refs = 1;
	b->file = b->watch = -1;
	dma_resv_init(&b->own_resv);
	b->resv = info->resv ? info->resv : &b->own_resv;
	CDS_INIT_LIST_HEAD(&b->attachments);
	CDS_INIT_LIST_HEAD(&b->node);
	dma_buf_count(DMA_BUF_BUFFERS, 1);
	*dmabuf = b;
	return 0;
}

void dma_buf_discard(struct dma_buf *b)
{
	dma_resv_fini(&b->own_resv);
	free(b);
	dma_buf_count(DMA_BUF_BUFFERS, -1);
}

int dma_buf_export(const struct dma_buf_export_info *info, struct dma_buf **dmabuf)
{
	struct dma_file file;
	struct dma_buf *b;
	int err = -EINVAL;

	enter();
	if (info->size && !(info->size & 4095) && info->ops && info->ops->map_dma_buf &&
	    info->ops->unmap_dma_buf && info->ops->release && !info->ops->pin == !info->ops->unpin)
		err = dma_buf_create(info, &b);
	if (err) {
		if (info->storage >= 0)
			close(info->storage);
		return err;
	}
	err = dma_file_open(&file, info->exp_name, info->size, info->storage);
	if (err) {
		dma_buf_discard(b);
		return err;
	}
	b->file = file.fd;
	b->dev = file.dev;
	b->ino = file.ino;
	b->cpu_mappable = info->storage >= 0;
	fl_lock(&table.lock);
	b->watch = dma_file_watch(&file);
	if (b->watch < 0)
		table.unwatched++;
	cds_list_add(&b->node, &table.bufs);
	fl_unlock(&table.lock);
	*dmabuf = b;
	return 0;
}

int dma_buf_fd(struct dma_buf *dmabuf, int flags)
{
	struct dma_file file = {.fd = dmabuf->file};
	int fd;

	enter();
	if (dmabuf->file < 0)
		return -EINVAL;
	fl_lock(&table.lock);
	fd = dma_file_new_fd(&file, dmabuf->cpu_mappable, flags);
	if (fd >= 0) {
		dmabuf->descriptions++;
		if (dmabuf->exported) /* there is a reference for all of them already */
			put_locked(dmabuf);
		dmabuf->exported = true;
	}
	fl_unlock(&table.lock);
	return fd;
}

/* table.lock held */
static struct dma_buf *find_locked(const struct stat *st)
{
	struct dma_buf *b;

	cds_list_for_each_entry(b, &table.bufs, node)
		if (b->ino == st->st_ino && b->dev == st->st_dev)
			return b;
	return NULL;
}

static int find(const struct stat *st, struct dma_buf **dmabuf)
{
	struct dma_buf *b;

	fl_lock(&table.lock);
	b = find_locked(st);
	if (b)
		get_dma_buf(b);
	fl_unlock(&table.lock);
	*dmabuf = b;
	return b ? 0 : -EINVAL;
}

int dma_buf_find(int fd, struct dma_buf **dmabuf)
{
	struct stat st;

	enter();
	if (fstat(fd, &st))
		return -errno;
	return find(&st, dmabuf);
}

int dma_buf_get(int fd, struct dma_buf **dmabuf)
{
	struct dma_buf *b, *there;
	struct dma_foreign f;
	struct stat st;
	int err, own;

	enter();
	if (fstat(fd, &st))
		return -errno;
	if (!find(&st, dmabuf))
		return 0;
	err = dma_foreign_probe(fd, &f);
	if (err)
		return err;
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return -errno;
	err = f.token ? dma_remote_import(own, f.token, &b) : dma_foreign_import(own, f.kernels, &b);
	if (err)
		return err;
	b->dev = st.st_dev;
	b->ino = st.st_ino;
	fl_lock(&table.lock);
	there = find_locked(&st); /* another thread was faster */
	if (there)
		get_dma_buf(there);
	else
		cds_list_add(&b->node, &table.bufs);
	fl_unlock(&table.lock);
	if (there)
		destroy(b);
	*dmabuf = there ? there : b;
	return 0;
}

void get_dma_buf(struct dma_buf *dmabuf)
{
	__atomic_fetch_add(&dmabuf->refs, 1, __ATOMIC_RELAXED);
}

void dma_buf_put(struct dma_buf *dmabuf)
{
	DMA_BUF_RULE(1, !dma_resv_held(dmabuf->resv), "dma_buf_put() with the reservation held");
	fl_lock(&table.lock);
	put_locked(dmabuf);
	fl_unlock(&table.lock);
	enter();
}

/* ---- importing ---- */

/* takes the error that a test has left there */
static int fail(struct dma_buf *dmabuf, enum dma_buf_fail what)
{
	return -__atomic_exchange_n(&dmabuf->fail[what], 0, __ATOMIC_RELAXED);
}

void dma_buf_inject_fail(struct dma_buf *dmabuf, enum dma_buf_fail what, int err)
{
	__atomic_store_n(&dmabuf->fail[what], err, __ATOMIC_RELAXED);
}

int dma_buf_dynamic_attach(struct dma_buf *dmabuf, struct dma_buf_dev *dev,
			   const struct dma_buf_attach_ops *importer_ops, void *importer_priv,
			   struct dma_buf_attachment **attach)
{
	struct dma_buf_attachment *a;
	int err;

	DMA_BUF_RULE(1, !dma_resv_held(dmabuf->resv), "attach with the reservation held");
	if (!dev)
		return -EINVAL;
	err = fail(dmabuf, DMA_BUF_FAIL_ATTACH);
	if (err)
		return err;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->dmabuf = dmabuf;
	a->dev = dev;
	a->importer_ops = importer_ops;
	a->importer_priv = importer_priv;
	a->peer2peer = importer_ops && importer_ops->allow_peer2peer;
	err = dmabuf->ops->attach ? dmabuf->ops->attach(dmabuf, a) : 0;
	if (err) {
		free(a);
		return err;
	}
	dma_resv_lock(dmabuf->resv, NULL);
	cds_list_add(&a->node, &dmabuf->attachments);
	dma_resv_unlock(dmabuf->resv);
	dma_buf_count(DMA_BUF_ATTACHMENTS, 1);
	stat_add(a, FL_CNT_dmabuf_attachments, 1);
	*attach = a;
	return 0;
}

int dma_buf_attach(struct dma_buf *dmabuf, struct dma_buf_dev *dev, struct dma_buf_attachment **attach)
{
	return dma_buf_dynamic_attach(dmabuf, dev, NULL, NULL, attach);
}

void dma_buf_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	DMA_BUF_RULE(1, !dma_resv_held(dmabuf->resv), "detach with the reservation held");
	DMA_BUF_RULE(9, !attach->maps && !attach->pins, "detach with a map or a pin left");
	dma_resv_lock(dmabuf->resv, NULL);
	cds_list_del(&attach->node);
	dma_resv_unlock(dmabuf->resv);
	if (dmabuf->ops->detach)
		dmabuf->ops->detach(dmabuf, attach);
	dma_buf_count(DMA_BUF_ATTACHMENTS, -1);
	stat_add(attach, FL_CNT_dmabuf_attachments, -1);
	free(attach);
}

bool dma_buf_attach_revocable(const struct dma_buf_attachment *attach)
{
	return attach->importer_ops && attach->importer_ops->invalidate_mappings;
}

static int pin(struct dma_buf_attachment *attach)
{
	struct dma_buf *dmabuf = attach->dmabuf;
	int err = fail(dmabuf, DMA_BUF_FAIL_PIN);

	/* the exporter sees an attachment's first pin and last unpin; what nests between is counted here */
	if (!err && !attach->pins && dmabuf->ops->pin)
		err = dmabuf->ops->pin(attach);
	if (err)
		return err;
	attach->pins++;
	dma_buf_count(DMA_BUF_PINS, 1);
	stat_add(attach, FL_CNT_dmabuf_pins, 1);
	return 0;
}

static void unpin(struct dma_buf_attachment *attach)
{
	if (!--attach->pins && attach->dmabuf->ops->unpin)
		attach->dmabuf->ops->unpin(attach);
	dma_buf_count(DMA_BUF_PINS, -1);
	stat_add(attach, FL_CNT_dmabuf_pins, -1);
}

int dma_buf_pin(struct dma_buf_attachment *attach)
{
	dma_resv_assert_held(attach->dmabuf->resv);
	DMA_BUF_RULE(2, dma_buf_attachment_is_dynamic(attach), "a static attachment is pinned by the framework");
	return pin(attach);
}

void dma_buf_unpin(struct dma_buf_attachment *attach)
{
	dma_resv_assert_held(attach->dmabuf->resv);
	DMA_BUF_RULE(4, attach->pins, "more unpins than pins");
	unpin(attach);
}

int dma_buf_map_attachment(struct dma_buf_attachment *attach, enum dma_data_direction dir,
			   struct sg_table **sgt)
{
	struct dma_buf *dmabuf = attach->dmabuf;
	bool is_static = !dma_buf_attachment_is_dynamic(attach);
	int err;

	dma_resv_assert_held(dmabuf->resv);
	DMA_BUF_RULE(6, !dma_buf_invalidating, "a map inside invalidate_mappings");
	DMA_BUF_RULE(2, is_static || dma_buf_attach_revocable(attach) || attach->pins,
		     "a map without invalidate_mappings and without a pin");
	if (is_static) {
		err = pin(attach);
		if (err)
			return err;
	}
	err = fail(dmabuf, DMA_BUF_FAIL_MAP);
	if (!err)
		err = dmabuf->ops->map_dma_buf(attach, dir, sgt);
	if (err) {
		if (is_static)
			unpin(attach);
		return err;
	}
	attach->maps++;
	dma_buf_count(DMA_BUF_MAPS, 1);
	stat_add(attach, FL_CNT_dmabuf_maps, 1);
	return 0;
}

void dma_buf_unmap_attachment(struct dma_buf_attachment *attach, struct sg_table *sgt,
			      enum dma_data_direction dir)
{
	dma_resv_assert_held(attach->dmabuf->resv);
	DMA_BUF_RULE(4, attach->maps, "more unmaps than maps");
	attach->maps--;
	if (attach->stale) /* older mappings are unmapped before newer ones */
		attach->stale--;
	attach->dmabuf->ops->unmap_dma_buf(attach, sgt, dir);
	dma_buf_count(DMA_BUF_MAPS, -1);
	stat_add(attach, FL_CNT_dmabuf_unmaps, 1);
	if (!dma_buf_attachment_is_dynamic(attach))
		unpin(attach);
}

void dma_buf_assert_usable(struct dma_buf_attachment *attach)
{
	dma_resv_assert_held(attach->dmabuf->resv);
	DMA_BUF_RULE(8, attach->maps > attach->stale, "a mapping is used that is gone, or was never made");
	DMA_BUF_RULE(8, dma_resv_test_signaled(attach->dmabuf->resv, DMA_RESV_USAGE_KERNEL),
		     "a mapping is used before the move's fence is signalled");
}

/* ---- for exporters ---- */

bool dma_buf_is_pinned(struct dma_buf *dmabuf)
{
	struct dma_buf_attachment *a;

	dma_resv_assert_held(dmabuf->resv);
	cds_list_for_each_entry(a, &dmabuf->attachments, node)
		if (a->pins)
			return true;
	return false;
}

void dma_buf_invalidate_attachment(struct dma_buf_attachment *a)
{
	dma_resv_assert_held(a->dmabuf->resv);
	dma_buf_count(a->pins ? DMA_BUF_REVOCATIONS : DMA_BUF_INVALIDATIONS, 1);
	stat_add(a, a->pins ? FL_CNT_dmabuf_revocations : FL_CNT_dmabuf_invalidations, 1);
	a->stale = a->maps;
	dma_buf_invalidating++;
	a->importer_ops->invalidate_mappings(a);
	dma_buf_invalidating--;
}

void dma_buf_invalidate_mappings(struct dma_buf *dmabuf)
{
	struct dma_buf_attachment *a;

	dma_resv_assert_held(dmabuf->resv);
	cds_list_for_each_entry(a, &dmabuf->attachments, node) {
		if (dma_buf_attach_revocable(a))
			dma_buf_invalidate_attachment(a);
		else if (a->pins)
			dma_buf_rule_broken(5, dmabuf->exp_name, a->dev->name,
					    "memory that an importer has pinned is taken away, which it cannot be told");
	}
}

struct sg_table *dma_buf_alloc_sgt(unsigned nents)
{
	struct sg_table *t = calloc(1, sizeof(*t) + nents * sizeof(t->sgl[0]));

	if (t) {
		t->nents = nents;
		t->file = -1;
	}
	return t;
}

/* ---- CPU access ---- */

int dma_buf_begin_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	DMA_BUF_RULE(1, !dma_resv_held(dmabuf->resv), "CPU access begins with the reservation held");
	/* what writes must be done for who reads, and what reads as well for who writes */
	dma_resv_wait_timeout(dmabuf->resv, dir == DMA_FROM_DEVICE ? DMA_RESV_USAGE_WRITE : DMA_RESV_USAGE_READ,
			      DMA_FENCE_FOREVER);
	return dmabuf->ops->begin_cpu_access ? dmabuf->ops->begin_cpu_access(dmabuf, dir) : 0;
}

int dma_buf_end_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	DMA_BUF_RULE(1, !dma_resv_held(dmabuf->resv), "CPU access ends with the reservation held");
	return dmabuf->ops->end_cpu_access ? dmabuf->ops->end_cpu_access(dmabuf, dir) : 0;
}

int dma_buf_mmap(struct dma_buf *dmabuf, size_t offset, size_t length, int prot, void **addr)
{
	size_t end;

	DMA_BUF_RULE(1, !dma_resv_held(dmabuf->resv), "mmap with the reservation held");
	if (!length || offset & 4095 || __builtin_add_overflow(offset, length, &end) || end > dmabuf->size)
		return -EINVAL;
	return dmabuf->ops->mmap ? dmabuf->ops->mmap(dmabuf, offset, length, prot, addr) : -ENODEV;
}
