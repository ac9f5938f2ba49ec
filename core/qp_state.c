/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of QP state transitions: which attributes a transition requires and which it takes, by
 * transport. A transition that is not listed does not exist, an attribute that is not listed for it
 * is an error. Any state may go to RESET, and any but RESET to ERR, with no attribute at all.
 */
#include "core/core.h"

enum transport { T_RC, T_UC, T_UD, T_XRC_INI, T_XRC_TGT, T_NUM };

struct transition {
	enum ibv_qp_state from, to;
	int required[T_NUM], optional[T_NUM];
};

/* sets of attributes that go together */
#define CONNECT	 (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RC_RESP	 (IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RC_REQ	 (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)
#define ALT	 (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define INIT_CON (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define INIT_UD	 (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)
/* what a QP that sends takes on the way to or in RTS */
#define RTS_UC (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | ALT)
#define RTS_RC (RTS_UC | IBV_QP_MIN_RNR_TIMER)
#define RTS_UD (IBV_QP_CUR_STATE | IBV_QP_QKEY)
#define RTR_CON (IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX)
#define SQD_CON (IBV_QP_AV | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | ALT)

static const struct transition table[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT,
	 .required = {[T_RC] = INIT_CON, [T_UC] = INIT_CON, [T_UD] = INIT_UD, [T_XRC_INI] = INIT_CON,
		      [T_XRC_TGT] = INIT_CON}},
	{IBV_QPS_INIT, IBV_QPS_INIT,
	 .optional = {[T_RC] = INIT_CON, [T_UC] = INIT_CON, [T_UD] = INIT_UD, [T_XRC_INI] = INIT_CON,
		      [T_XRC_TGT] = INIT_CON}},
	{IBV_QPS_INIT, IBV_QPS_RTR,
	 .required = {[T_RC] = CONNECT | RC_RESP, [T_UC] = CONNECT, [T_XRC_INI] = CONNECT,
		      [T_XRC_TGT] = CONNECT | RC_RESP},
	 .optional = {[T_RC] = RTR_CON, [T_UC] = RTR_CON, [T_UD] = IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
		      [T_XRC_INI] = RTR_CON, [T_XRC_TGT] = RTR_CON}},
	{IBV_QPS_RTR, IBV_QPS_RTS,
	 .required = {[T_RC] = RC_REQ | IBV_QP_SQ_PSN, [T_UC] = IBV_QP_SQ_PSN, [T_UD] = IBV_QP_SQ_PSN,
		      [T_XRC_INI] = RC_REQ | IBV_QP_SQ_PSN, [T_XRC_TGT] = IBV_QP_TIMEOUT | IBV_QP_SQ_PSN},
	 .optional = {[T_RC] = RTS_RC, [T_UC] = RTS_UC, [T_UD] = RTS_UD, [T_XRC_INI] = RTS_UC,
		      [T_XRC_TGT] = RTS_RC}},
	{IBV_QPS_RTS, IBV_QPS_RTS,
	 .optional = {[T_RC] = RTS_RC, [T_UC] = RTS_UC, [T_UD] = RTS_UD, [T_XRC_INI] = RTS_UC,
		      [T_XRC_TGT] = RTS_RC}},
	{IBV_QPS_RTS, IBV_QPS_SQD,
	 .optional = {[T_RC] = IBV_QP_EN_SQD_ASYNC_NOTIFY, [T_UC] = IBV_QP_EN_SQD_ASYNC_NOTIFY,
		      [T_UD] = IBV_QP_EN_SQD_ASYNC_NOTIFY, [T_XRC_INI] = IBV_QP_EN_SQD_ASYNC_NOTIFY,
		      [T_XRC_TGT] = IBV_QP_EN_SQD_ASYNC_NOTIFY}},
	{IBV_QPS_SQD, IBV_QPS_RTS,
	 .optional = {[T_RC] = RTS_RC, [T_UC] = RTS_UC, [T_UD] = RTS_UD, [T_XRC_INI] = RTS_UC,
		      [T_XRC_TGT] = RTS_RC}},
	{IBV_QPS_SQD, IBV_QPS_SQD,
	 .optional = {[T_RC] = IBV_QP_PORT | SQD_CON | RC_REQ | RC_RESP, [T_UC] = SQD_CON,
		      [T_UD] = IBV_QP_PKEY_INDEX | IBV_QP_QKEY, [T_XRC_INI] = IBV_QP_PORT | SQD_CON | RC_REQ,
		      [T_XRC_TGT] = IBV_QP_PORT | SQD_CON | IBV_QP_TIMEOUT | RC_RESP}},
	{IBV_QPS_SQE, IBV_QPS_RTS,
	 .optional = {[T_UC] = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS, [T_UD] = RTS_UD}},
};

static int transport_of(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return T_RC;
	case IBV_QPT_UC:
		return T_UC;
	case IBV_QPT_UD:
	case IBV_QPT_DRIVER: /* SRD, whose table in efa's driver is that of UD with one attribute more */
		return T_UD;
	case IBV_QPT_XRC_SEND:
		return T_XRC_INI;
	case IBV_QPT_XRC_RECV:
		return T_XRC_TGT;
	default:
		return -1;
	}
}

static bool is_state(enum ibv_qp_state s)
{
	return (unsigned)s <= IBV_QPS_ERR;
}

bool ib_modify_qp_is_ok(enum ibv_qp_state cur, enum ibv_qp_state next, enum ibv_qp_type type, int mask)
{
	int t = transport_of(type);
	int attrs = mask & ~IBV_QP_STATE;

	if (type == IBV_QPT_DRIVER && cur == IBV_QPS_RTR && next == IBV_QPS_RTS)
		attrs &= ~IBV_QP_RNR_RETRY;
	if (t < 0 || !is_state(cur) || !is_state(next))
		return false;
	if (next == IBV_QPS_RESET || (next == IBV_QPS_ERR && cur != IBV_QPS_RESET))
		return !attrs;
	for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const struct transition *tr = &table[i];

		if (tr->from == cur && tr->to == next)
			return (attrs & tr->required[t]) == tr->required[t] &&
			       !(attrs & ~(tr->required[t] | tr->optional[t]));
	}
	return false;
}
