/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attaching UD QPs to multicast groups. A QP keeps the list of those it is in: to attach it once
 * more is no error and changes nothing, and it cannot be destroyed before it has left them (both as
 * in the kernel's uverbs).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "core/internal.h"
#include "util/cancel.h"

struct mcast_entry {
	struct cds_list_head list;
	uint8_t gid[16];
	int ifindex; /* where it was joined */
};

static struct mcast_entry *find(struct ib_qp *qp, const union ibv_gid *gid)
{
	struct mcast_entry *e;

	cds_list_for_each_entry (e, &qp->mcast, list)
		if (!memcmp(e->gid, gid, sizeof(e->gid)))
			return e;
	return NULL;
}

static int check(struct ib_qp *qp, const union ibv_gid *gid)
{
	if (!ib_ucontext_alive(qp->uobj.ucontext))
		return -EIO;
	if (!qp->uobj.ucontext->device->profile->attr.max_mcast_grp)
		return -EOPNOTSUPP;
	return qp->qp_type == IBV_QPT_UD && gid_is_multicast(gid->raw) ? 0 : -EINVAL;
}

/*
 * Both with the device locked throughout: who attaches a group that another thread is about to leave is in it after
 * that, or never was.
 */
int ib_attach_mcast(struct ib_qp *qp, const union ibv_gid *gid)
{
	NO_CANCEL;
	struct ib_device *dev = qp->uobj.ucontext->device;
	struct mcast_entry *e;
	int err = check(qp, gid);

	if (err)
		return err;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	memcpy(e->gid, gid, sizeof(e->gid));
	fl_lock(&dev->lock);
	e->ifindex = dev->netdev.ifindex;
	if (!find(qp, gid)) {
		err = hca_attach_mcast(qp->hca, e->gid, e->ifindex);
		if (!err) {
			cds_list_add(&e->list, &qp->mcast);
			e = NULL;
		}
	}
	fl_unlock(&dev->lock);
	free(e);
	return err;
}

int ib_detach_mcast(struct ib_qp *qp, const union ibv_gid *gid)
{
	NO_CANCEL;
	struct ib_device *dev = qp->uobj.ucontext->device;
	struct mcast_entry *e;
	int err = check(qp, gid);

	if (err)
		return err;
	fl_lock(&dev->lock);
	e = find(qp, gid);
	if (e) {
		hca_detach_mcast(qp->hca, e->gid, e->ifindex);
		cds_list_del(&e->list);
	}
	fl_unlock(&dev->lock);
	if (!e)
		return -EINVAL;
	free(e);
	return 0;
}

void ib_detach_all_mcast(struct ib_qp *qp)
{
	struct mcast_entry *e, *next;

	cds_list_for_each_entry_safe (e, next, &qp->mcast, list) {
		hca_detach_mcast(qp->hca, e->gid, e->ifindex);
		cds_list_del(&e->list);
		free(e);
	}
}
