/* SPDX-License-Identifier: BSD-2-Clause */
/* See srd_rig.h. */
#include "srd_rig.h"

const uint8_t srd_peer_gid[16] = {[10] = 0xff, 0xff, 10, 0, 0, 2}, srd_my_gid[16] = {[10] = 0xff, 0xff, 10, 0, 0, 1};
struct hca_av srd_av = {.pd = PD, .sgid = {[10] = 0xff, 0xff, 10, 0, 0, 1}, .dgid = {[10] = 0xff, 0xff, 10, 0, 0, 2}};
uint8_t srd_grh[GRH_BYTES];
uint32_t srd_flow_sent;

static const struct hca_av *av_of(struct ibv_ah *ah)
{
	return (const struct hca_av *)ah;
}

void srd_state(enum ibv_qp_state s, int mask)
{
	struct ibv_qp_attr attr = {.qp_state = s, .qkey = QKEY, .port_num = 1, .rnr_retry = opt.rnr_retry};
	static const uint8_t gid[16];

	CHECK_EQ(hca_qp_modify(rig.qp, &attr, IBV_QP_STATE | mask, gid), 0);
}

void srd_new_qp(void)
{
	rig.qp = rig_qp_new();
	srd_state(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	srd_state(IBV_QPS_RTR, 0);
	srd_state(IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY);
}

void srd_up(void)
{
	struct hca_event_ops ops;

	opt.type = IBV_QPT_DRIVER;
	opt.profile = hca_profile_find("efa");
	rig_node();
	ops = hca_event_ops;
	ops.av = av_of;
	hca_set_event_ops(&ops);
	srd_new_qp();
	srd_grh[20] = 0x45;
	memcpy(srd_grh + 32, srd_peer_gid + 12, 4);
	memcpy(srd_grh + 36, srd_my_gid + 12, 4);
}

struct roce_pkt srd_tx_at(const char *file, int line, uint8_t op, uint32_t psn, uint32_t len)
{
	struct roce_pkt pkt = tx_train(file, line, op, op, psn, 1, len);

	srd_flow_sent = pkt.flow;
	return pkt;
}

void srd_drain(void)
{
	struct roce_pkt pkt;

	while (fake_tx_pop(&pkt))
		;
}
