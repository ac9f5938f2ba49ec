/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The registry: the one piece of global state. It reads the settings once, makes the list of devices
 * from them, and brings the process's runtime up when the first device is opened: segment, then mm,
 * then HCA, each a step that is done once and, if it failed, tried again at the next open. Nothing is
 * ever taken down but by the end of the process or by fork.
 *
 * Fork. The child has a copy of the memory but none of the threads, pins, userfaultfds or rings. So it
 * forgets all of it and counts its generation up: a context knows the generation it was opened in, and
 * is dead in any other. Devices stay, so that a pointer to one is good in the child too. LOCK_REGISTRY
 * is held over fork(), which means that the runtime is never seen half made, and the lock of connections, which the
 * child closes its copies of.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "core/internal.h"
#include "util/config.h"
#include "util/log.h"
#include "util/cancel.h"

static struct registry {
	struct fl_mutex lock;
	bool configured; /* settings read, devices made, fork handlers in place */
	bool seg_up, mm_up, node_up;
	bool forking; /* the node's part in a fork() has begun */
	uint32_t generation;
	struct fl_config cfg;
	struct seg seg;
	unsigned num;
	struct ib_device *dev[FAULTLINE_MAX_DEVICES];
} registry = {.lock = FL_MUTEX_INIT(LOCK_REGISTRY)};

static void fork_prepare(void)
{
	bool amid = fl_locks_held; /* fork() in a signal handler, on top of one of our functions: it must not wait for that */

	fl_lock(&registry.lock);
	registry.forking = registry.node_up && !amid;
	if (registry.forking)
		hca_node_fork_begin();
}

static void node_fork_end(void)
{
	if (registry.forking)
		hca_node_fork_end();
	registry.forking = false;
}

static void fork_parent(void)
{
	node_fork_end();
	fl_unlock(&registry.lock);
}

static void fork_child(void)
{
	node_fork_end();
	__atomic_fetch_add(&registry.generation, 1, __ATOMIC_RELAXED);
	if (registry.mm_up)
		mm_fork_child();
	if (registry.node_up)
		hca_node_fork_child();
	for (unsigned i = 0; i < registry.num; i++) {
		struct ib_device *dev = registry.dev[i];

		/* another thread of the parent may have held it */
		fl_mutex_init(&dev->lock, LOCK_CORE);
		CDS_INIT_LIST_HEAD(&dev->xrc_domains);
		dev->hca = NULL;
		dev->stat = NULL;
		dev->umem.stat = NULL;
		dev->umem.dma_mapped = 0;
		memset(dev->count, 0, sizeof(dev->count));
	}
	if (registry.seg_up)
		seg_destroy(&registry.seg);
	registry.seg_up = registry.mm_up = registry.node_up = false;
	fl_unlock(&registry.lock);
	fl_log_init();
}

bool ib_ucontext_alive(const struct ib_ucontext *ucontext)
{
	return ucontext->generation == __atomic_load_n(&registry.generation, __ATOMIC_RELAXED);
}

/* How many devices of this profile there are already: they are numbered as a driver numbers its own. */
static unsigned devices_of(const struct hca_profile *profile)
{
	unsigned n = 0;

	for (unsigned i = 0; i < registry.num; i++)
		n += registry.dev[i]->profile == profile;
	return n;
}

static void add_device(const char *profile_name, bool only)
{
	const struct fl_config *cfg = &registry.cfg;
	const struct hca_profile *profile = hca_profile_find(profile_name);
	struct ib_device *dev;
	char name[sizeof(dev->name)];
	int err;

	if (!profile) {
		fl_err("device \"%s\": there is no such profile; `faultline devices` lists them",
		       profile_name);
		return;
	}
	if (registry.num == FAULTLINE_MAX_DEVICES) {
		fl_err("device \"%s\": left out, there can be %d devices", profile_name,
		       FAULTLINE_MAX_DEVICES);
		return;
	}
	if (only && cfg->name[0])
		snprintf(name, sizeof(name), "%s", cfg->name);
	else
		snprintf(name, sizeof(name), "%s_fl%u", profile->name, devices_of(profile));

	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return;
	err = ib_device_init(dev, profile, name, cfg->netdev, registry.num);
	if (err) {
		fl_err("device %s: network device \"%s\": %s; set FAULTLINE_NETDEV to one that is there",
		       name, cfg->netdev[0] ? cfg->netdev : "(any)", strerror(-err));
		free(dev);
		return;
	}
	if (cfg->vendor_id)
		dev->vendor_id = cfg->vendor_id;
	if (cfg->vendor_part_id)
		dev->vendor_part_id = cfg->vendor_part_id;
	dev->umem.seg = &registry.seg;
	dev->umem.dma_aperture = (cfg->iommu_aperture_kib + 3) / 4;
	registry.dev[registry.num++] = dev;
}

static void configure(void)
{
	char list[sizeof(registry.cfg.device)], *save, *word;

	fl_log_init();
	/* what is wrong with the settings has been said; the rest of them counts */
	(void)fl_config_load(&registry.cfg);
	memcpy(list, registry.cfg.device, sizeof(list));
	list[sizeof(list) - 1] = '\0';

	bool only = !strchr(list, ',');

	for (word = strtok_r(list, ", ", &save); word; word = strtok_r(NULL, ", ", &save))
		add_device(word, only);
	pthread_atfork(fork_prepare, fork_parent, fork_child);
	registry.configured = true;
}

int ib_get_devices(struct ib_device *const **list)
{
	NO_CANCEL;
	fl_lock(&registry.lock);
	if (!registry.configured)
		configure();
	fl_unlock(&registry.lock);
	/* neither changes any more */
	*list = registry.dev;
	return (int)registry.num;
}

/* Hands the segment to `faultline run`, so that it can report even when this process is killed. */
static void report(void)
{
	const char *name = registry.cfg.report;
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	size_t len = strnlen(name, sizeof(addr.sun_path) - 1);
	char byte = 'F', control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			     .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	struct timeval patience = {.tv_sec = 1}; /* bounds connect(), too */
	int fd;

	if (!name[0])
		return;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	memcpy(addr.sun_path + 1, name, len);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &registry.seg.ro_fd, sizeof(int));
	if (connect(fd, (struct sockaddr *)&addr,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)) ||
	    sendmsg(fd, &msg, MSG_NOSIGNAL) != 1)
		fl_info("report to `faultline run` (@%s): %s", name, strerror(errno));
	close(fd);
}

static void publish_devices(void)
{
	struct faultline_segment *s = registry.seg.s;

	for (unsigned i = 0; i < registry.num; i++) {
		struct ib_device *dev = registry.dev[i];
		struct faultline_device *d = &s->device[i];

		snprintf(d->name, sizeof(d->name), "%s", dev->name);
		snprintf(d->profile, sizeof(d->profile), "%s", dev->profile->name);
		snprintf(d->netdev, sizeof(d->netdev), "%s", dev->netdev_name);
		memcpy(d->gid, dev->gid[0], sizeof(d->gid));
		dev->stat = d;
		dev->umem.stat = d;
	}
	s->num_devices = registry.num;
}

/* LOCK_REGISTRY held */
static int bring_up(void)
{
	int err;

	if (!registry.seg_up) {
		err = seg_create(&registry.seg);
		if (err) {
			fl_err("shared segment: %s", strerror(-err));
			return err;
		}
		publish_devices();
		dma_init(&registry.seg);
		mm_private_add(registry.seg.s, registry.seg.map_size);
		if (registry.seg.peers)
			mm_private_add(registry.seg.peers, sizeof(*registry.seg.peers));
		registry.seg_up = true;
		report();
	}
	if (!registry.mm_up) {
		err = mm_init(&registry.cfg);
		if (err)
			return err;
		registry.mm_up = true;
	}
	if (!registry.node_up) {
		err = hca_node_start(&registry.cfg, &registry.seg);
		if (err) {
			if (err != -ENFILE) /* which net has said */
				fl_err("the device cannot be started: %s%s", strerror(-err),
				       err == -EMFILE ? " (limit: ulimit -n)" : "");
			return err;
		}
		registry.node_up = true;
	}
	return 0;
}

int ib_open_device(struct ib_device *dev, struct ib_ucontext **ucontext)
{
	NO_CANCEL;
	struct ib_ucontext *uc;
	int err;

	uc = calloc(1, sizeof(*uc));
	if (!uc)
		return -ENOMEM;
	uc->device = dev;
	for (int k = 0; k < IB_KINDS; k++)
		CDS_INIT_LIST_HEAD(&uc->objects[k]);

	fl_lock(&registry.lock);
	err = bring_up();
	if (!err && !dev->hca)
		err = hca_dev_create(dev->profile, dev->stat, dev->index, &dev->hca);
	uc->generation = registry.generation;
	fl_unlock(&registry.lock);
	if (err) {
		free(uc);
		return err;
	}
	ib_device_refresh(dev);
	cnt_inc(dev->stat, FL_CNT_ctx);
	*ucontext = uc;
	return 0;
}

static void destroy_leftover(struct ib_uobject *uobj, enum ib_kind kind)
{
	switch (kind) {
	case IB_QP:
		ib_detach_all_mcast((struct ib_qp *)uobj);
		ib_destroy_qp((struct ib_qp *)uobj);
		break;
	case IB_MR:
		ib_dereg_mr((struct ib_mr *)uobj);
		break;
	case IB_AH:
		ib_destroy_ah((struct ib_ah *)uobj);
		break;
	case IB_SRQ:
		ib_destroy_srq((struct ib_srq *)uobj);
		break;
	case IB_XRCD:
		ib_close_xrcd((struct ib_xrcd *)uobj);
		break;
	case IB_CQ:
		ib_destroy_cq((struct ib_cq *)uobj);
		break;
	default:
		ib_dealloc_pd((struct ib_pd *)uobj);
	}
}

int ib_close_device(struct ib_ucontext *ucontext)
{
	NO_CANCEL;
	static const char *const names[IB_KINDS] = {"QP", "MR", "AH", "SRQ", "XRC domain", "CQ", "PD"};
	struct ib_device *dev = ucontext->device;

	if (!ib_ucontext_alive(ucontext))
		return -EIO;
	for (int k = 0; k < IB_KINDS; k++) {
		struct cds_list_head *head = &ucontext->objects[k];
		unsigned left = 0;

		/* kinds come in an order in which nothing uses what is destroyed */
		while (!cds_list_empty(head)) {
			destroy_leftover(cds_list_first_entry(head, struct ib_uobject, list),
					 (enum ib_kind)k);
			left++;
		}
		if (left)
			fl_warn("%s: closed with %u %s%s left; the device destroyed them", dev->name,
				left, names[k], left > 1 ? "s" : "");
	}
	cnt_dec(dev->stat, FL_CNT_ctx);
	/* the last one: whatever was mapped has been unmapped, or the accounts of ours are wrong */
	if (!__atomic_load_n(&dev->stat->counter[FL_CNT_ctx], __ATOMIC_RELAXED) && ib_dma_mapped(&dev->umem))
		fl_err("%s: closed with %llu pages mapped for DMA: a leak of the device's own", dev->name,
		       (unsigned long long)ib_dma_mapped(&dev->umem));
	free(ucontext);
	return 0;
}
