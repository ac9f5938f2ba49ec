/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening and closing, and the table of operations. An operation whose pointer stays NULL is one that
 * the header's inline functions answer with EOPNOTSUPP themselves.
 */
#include "util/log.h"
#include "verbs/verbs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void set_event_ops(void)
{
	hca_set_event_ops(&fl_event_ops);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct verbs_context_fl *ctx;
	struct verbs_context *v;
	int err;

	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return fail_null(-ENOMEM);
	pthread_once(&once, set_event_ops);
	err = ib_open_device(FL_CAST(verbs_device, device, device)->ib, &ctx->ib);
	if (err)
		goto err_free;
	err = event_queue_init(&ctx->async);
	if (err)
		goto err_close;

	v = &ctx->v;
	v->context.device = device;
	/* stands for the kernel's: programs dup() it and look at its flags, no more */
	v->context.cmd_fd = eventfd(0, EFD_CLOEXEC);
	if (v->context.cmd_fd < 0) {
		err = -errno;
		goto err_queue;
	}
	v->context.async_fd = ctx->async.fd;
	v->context.num_comp_vectors = (int)ctx->ib->device->profile->num_comp_vectors;
	pthread_mutex_init(&v->context.mutex, NULL);
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	v->context.ops.poll_cq = fl_poll_cq;
	v->context.ops.req_notify_cq = fl_req_notify_cq;
	v->context.ops.post_send = fl_post_send;
	v->context.ops.post_recv = fl_post_recv;
	v->context.ops.post_srq_recv = fl_post_srq_recv;
	v->sz = sizeof(*v);
	v->query_port = fl_query_port;
	v->query_device_ex = fl_query_device_ex;
	v->query_rt_values = fl_query_rt_values;
	v->advise_mr = fl_advise_mr;
	v->create_cq_ex = fl_create_cq_ex;
	v->create_qp_ex = fl_create_qp_ex;
	v->create_srq_ex = fl_create_srq_ex;
	v->get_srq_num = fl_get_srq_num;
	v->open_xrcd = fl_open_xrcd;
	v->close_xrcd = fl_close_xrcd;
	v->open_qp = fl_open_qp;
	return &v->context;

err_queue:
	event_queue_destroy(&ctx->async);
err_close:
	fl_err("%s: cannot be opened: no descriptor for its events: %s%s", device->name, strerror(-err),
	       err == -EMFILE ? " (limit: ulimit -n)" : "");
	ib_close_device(ctx->ib);
err_free:
	free(ctx);
	return fail_null(err);
}

int ibv_close_device(struct ibv_context *context)
{
	struct verbs_context_fl *ctx = to_fl_context(context);
	int err = ib_close_device(ctx->ib);

	if (err)
		return fail_errno(err);
	close(context->cmd_fd);
	event_queue_destroy(&ctx->async);
	pthread_mutex_destroy(&context->mutex);
	free(ctx);
	return 0;
}

/* ---- sharing a context between processes: not here ---- */

struct ibv_context *ibv_import_device(int cmd_fd)
{
	return fail_null(-EOPNOTSUPP);
}

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	return fail_null(-EOPNOTSUPP);
}

void ibv_unimport_pd(struct ibv_pd *pd)
{
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	return fail_null(-EOPNOTSUPP);
}

void ibv_unimport_mr(struct ibv_mr *mr)
{
}

struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
	return fail_null(-EOPNOTSUPP);
}

void ibv_unimport_dm(struct ibv_dm *dm)
{
}
