/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The extended way to poll: one completion at a time, its fields read by functions. Between start_poll
 * and end_poll the CQ belongs to the thread. The fields come from a copy of the completion, so all of
 * them can be read whether they were asked for at creation or not.
 */
#include "verbs/verbs.h"

uint64_t fl_device_clock(uint64_t ns, uint64_t khz, uint64_t mask)
{
	return (uint64_t)((unsigned __int128)ns * khz / 1000000u) & mask;
}

static struct verbs_cq *to_cq(struct ibv_cq_ex *cqx)
{
	return FL_CAST(verbs_cq, cqx, cqx);
}

static int next_poll(struct ibv_cq_ex *cqx)
{
	struct verbs_cq *cq = to_cq(cqx);

	if (hca_cq_poll_one(cq->hca, &cq->cur) <= 0)
		return ENOENT;
	cqx->wr_id = cq->cur.wc.wr_id;
	cqx->status = cq->cur.wc.status;
	return 0;
}

static void end_poll(struct ibv_cq_ex *cqx)
{
	struct verbs_cq *cq = to_cq(cqx);

	if (!cq->single_threaded)
		pthread_mutex_unlock(&cq->poll_lock);
}

static int start_poll(struct ibv_cq_ex *cqx, struct ibv_poll_cq_attr *attr)
{
	struct verbs_cq *cq = to_cq(cqx);
	int err;

	if (attr->comp_mask)
		return EINVAL;
	if (!cq->single_threaded)
		pthread_mutex_lock(&cq->poll_lock);
	err = next_poll(cqx);
	/* a start that failed is not ended by the caller */
	if (err)
		end_poll(cqx);
	return err;
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cqx)
{
	return to_cq(cqx)->cur.wc.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *cqx)
{
	return to_cq(cqx)->cur.wc.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cqx)
{
	return to_cq(cqx)->cur.wc.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *cqx)
{
	return to_cq(cqx)->cur.wc.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *cqx)
{
	return to_cq(cqx)->cur.wc.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *cqx)
{
	return to_cq(cqx)->cur.wc.src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cqx)
{
	return to_cq(cqx)->cur.wc.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *cqx)
{
	return to_cq(cqx)->cur.wc.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *cqx)
{
	return to_cq(cqx)->cur.wc.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *cqx)
{
	return to_cq(cqx)->cur.wc.dlid_path_bits;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *cqx)
{
	struct verbs_cq *cq = to_cq(cqx);

	return fl_device_clock(cq->cur.timestamp_ns, cq->ts_khz, cq->ts_mask);
}

static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *cqx)
{
	return to_cq(cqx)->cur.realtime_ns;
}

/* VLANs, flow tags and tag matching: creation refuses them, so there are none */
static uint16_t read_cvlan(struct ibv_cq_ex *cqx)
{
	return 0;
}

static uint32_t read_flow_tag(struct ibv_cq_ex *cqx)
{
	return 0;
}

static void read_tm_info(struct ibv_cq_ex *cqx, struct ibv_wc_tm_info *tm_info)
{
	memset(tm_info, 0, sizeof(*tm_info));
}

void fl_cq_ex_fill(struct verbs_cq *cq)
{
	struct ibv_cq_ex *x = &cq->cqx;

	x->start_poll = start_poll;
	x->next_poll = next_poll;
	x->end_poll = end_poll;
	x->read_opcode = read_opcode;
	x->read_vendor_err = read_vendor_err;
	x->read_byte_len = read_byte_len;
	x->read_imm_data = read_imm_data;
	x->read_qp_num = read_qp_num;
	x->read_src_qp = read_src_qp;
	x->read_wc_flags = read_wc_flags;
	x->read_slid = read_slid;
	x->read_sl = read_sl;
	x->read_dlid_path_bits = read_dlid_path_bits;
	x->read_completion_ts = read_completion_ts;
	x->read_cvlan = read_cvlan;
	x->read_flow_tag = read_flow_tag;
	x->read_tm_info = read_tm_info;
	x->read_completion_wallclock_ns = read_completion_wallclock_ns;
}
