/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC domains, and the QPs that are their targets.
 *
 * A domain is known by the inode of a file, or by nothing (fd -1). Who opens it has an object of his own, which
 * counts the SRQs and QPs made with it; the domain goes with the last of these objects. A target is a QP
 * proper, and one or more QPs of the application that stand for it: the one that made it, and those opened.
 *
 * In the kernel a file's domain is the host's. Here the device is the process's, and so are its domains: an SRQ
 * of another process cannot be reached, and a target of another process cannot be opened.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/internal.h"
#include "util/cancel.h"

/* LOCK_CORE: all but what never changes */
struct ib_xrc_domain {
	struct cds_list_head list; /* the device's, when it has an inode */
	struct cds_list_head tgts;
	unsigned opens;
	uint32_t number;
	bool has_inode;
	dev_t dev;
	ino_t ino;
	int fd; /* keeps the inode from becoming another file's; -1: there is none */
};

static uint32_t next_number;

uint32_t ib_xrcd_number(const struct ib_xrcd *xrcd)
{
	return xrcd->domain->number;
}

/* LOCK_CORE held */
static struct ib_xrc_domain *find_domain(struct ib_device *dev, const struct stat *st)
{
	struct ib_xrc_domain *d;

	cds_list_for_each_entry (d, &dev->xrc_domains, list)
		if (d->dev == st->st_dev && d->ino == st->st_ino)
			return d;
	return NULL;
}

/*
 * A descriptor of the same file, of the kind that cannot be read: closing another would drop the locks that the
 * application has on the file. Without /proc there is none.
 */
static int hold_file(int fd)
{
	char path[sizeof("/proc/self/fd/") + 12];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_PATH | O_CLOEXEC);
}

static struct ib_xrc_domain *new_domain(int fd, const struct stat *st)
{
	struct ib_xrc_domain *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	CDS_INIT_LIST_HEAD(&d->tgts);
	d->fd = -1;
	if (fd != -1) {
		d->has_inode = true;
		d->dev = st->st_dev;
		d->ino = st->st_ino;
		d->fd = hold_file(fd);
	}
	return d;
}

static void free_domain(struct ib_xrc_domain *d)
{
	if (!d)
		return;
	if (d->fd != -1)
		close(d->fd);
	free(d);
}

/* *d, which is new, becomes the domain to use: itself, or the file's if there is one by now. LOCK_CORE held. */
static int choose_domain(struct ib_device *dev, int fd, const struct stat *st, int oflags,
			 struct ib_xrc_domain **d, struct ib_xrc_domain **unused)
{
	struct ib_xrc_domain *there = fd == -1 ? NULL : find_domain(dev, st);

	*unused = *d;
	if (there && (oflags & O_EXCL))
		return -EINVAL;
	if (fd != -1 && !there && !(oflags & O_CREAT))
		return -EAGAIN;
	if (there) {
		*d = there;
	} else {
		*unused = NULL;
		if (fd != -1)
			cds_list_add(&(*d)->list, &dev->xrc_domains);
	}
	(*d)->opens++;
	return 0;
}

int ib_open_xrcd(struct ib_ucontext *ucontext, int fd, int oflags, struct ib_xrcd **xrcd)
{
	NO_CANCEL;
	struct ib_device *dev = ucontext->device;
	struct ib_xrc_domain *d, *unused = NULL;
	struct stat st;
	struct ib_xrcd *x;
	int err;

	if (!ib_ucontext_alive(ucontext))
		return -EIO;
	if (!ib_has_xrc(dev->profile))
		return -EOPNOTSUPP;
	if (fd != -1 && fstat(fd, &st))
		return -EBADF;
	err = ib_reserve(dev, IB_XRCD);
	if (err)
		return err;
	x = calloc(1, sizeof(*x));
	d = new_domain(fd, &st);
	if (!x || !d) {
		unused = d;
		err = -ENOMEM;
		goto err_free;
	}
	d->number = __atomic_add_fetch(&next_number, 1, __ATOMIC_RELAXED);
	fl_lock(&dev->lock);
	err = choose_domain(dev, fd, &st, oflags, &d, &unused);
	fl_unlock(&dev->lock);
	if (err)
		goto err_free;
	free_domain(unused);
	x->domain = d;
	ib_uobject_add(&x->uobj, ucontext, IB_XRCD);
	cnt_inc(dev->stat, FL_CNT_xrcd);
	*xrcd = x;
	return 0;

err_free:
	free_domain(unused);
	free(x);
	ib_unreserve(dev, IB_XRCD);
	return err;
}

int ib_close_xrcd(struct ib_xrcd *xrcd)
{
	NO_CANCEL;
	struct ib_device *dev = xrcd->uobj.ucontext->device;
	struct ib_xrc_domain *d = xrcd->domain;
	int err = ib_uobject_remove(&xrcd->uobj, IB_XRCD);
	bool last;

	if (err)
		return err;
	fl_lock(&dev->lock);
	last = --d->opens == 0;
	if (last && d->has_inode)
		cds_list_del(&d->list);
	fl_unlock(&dev->lock);
	if (last)
		free_domain(d);
	cnt_dec(dev->stat, FL_CNT_xrcd);
	free(xrcd);
	return 0;
}

/* ---- targets ---- */

int ib_xrc_tgt_create(struct ib_xrcd *xrcd, struct ib_qp *q)
{
	struct ib_device *dev = xrcd->uobj.ucontext->device;
	struct ib_xrc_tgt *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->hca = q->hca;
	t->opens = 1;
	q->tgt = t;
	fl_lock(&dev->lock);
	cds_list_add(&t->list, &xrcd->domain->tgts);
	fl_unlock(&dev->lock);
	return 0;
}

bool ib_xrc_tgt_close(struct ib_qp *q)
{
	struct ib_device *dev = q->uobj.ucontext->device;
	struct ib_xrc_tgt *t = q->tgt;
	bool last;

	hca_qp_close(t->hca, &q->open);
	fl_lock(&dev->lock);
	last = --t->opens == 0;
	if (last)
		cds_list_del(&t->list);
	fl_unlock(&dev->lock);
	if (last)
		free(t);
	return last;
}

/* One more use of the target with this number; NULL: the domain has none. */
static struct ib_xrc_tgt *tgt_get(struct ib_xrcd *xrcd, uint32_t qp_num)
{
	struct ib_device *dev = xrcd->uobj.ucontext->device;
	struct ib_xrc_tgt *t, *found = NULL;

	fl_lock(&dev->lock);
	cds_list_for_each_entry (t, &xrcd->domain->tgts, list)
		if (hca_qp_num(t->hca) == qp_num)
			found = t;
	if (found)
		found->opens++;
	fl_unlock(&dev->lock);
	return found;
}

int ib_open_qp(struct ib_xrcd *xrcd, enum ibv_qp_type type, uint32_t qp_num, void *uobject, struct ib_qp **qp)
{
	NO_CANCEL;
	struct ib_ucontext *uc = xrcd->uobj.ucontext;
	struct ib_device *dev = uc->device;
	struct ib_qp *q;
	int err;

	if (!ib_ucontext_alive(uc))
		return -EIO;
	if (type != IBV_QPT_XRC_RECV)
		return -EINVAL;
	err = ib_reserve(dev, IB_QP);
	if (err)
		return err;
	q = calloc(1, sizeof(*q));
	err = -ENOMEM;
	if (!q)
		goto err_unreserve;
	ib_need(&q->needs, &xrcd->uobj);
	err = ib_needs_get(&q->needs, uc);
	if (err)
		goto err_free;
	q->tgt = tgt_get(xrcd, qp_num);
	err = -EINVAL;
	if (!q->tgt)
		goto err_put;
	q->hca = q->tgt->hca;
	q->qp_type = type;
	q->qp_num = qp_num;
	q->open.uobject = uobject;
	CDS_INIT_LIST_HEAD(&q->mcast);
	hca_qp_open(q->hca, &q->open);
	ib_uobject_add(&q->uobj, uc, IB_QP);
	cnt_inc(dev->stat, FL_CNT_qp);
	*qp = q;
	return 0;

err_put:
	ib_needs_put(&q->needs);
err_free:
	free(q);
err_unreserve:
	ib_unreserve(dev, IB_QP);
	return err;
}
