/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every transition of every transport with every mask of interest against a table written down here
 * once more, in another form: a line of text per transition, a letter per attribute. Capitals are
 * required, small letters optional.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "core/core.h"

static const struct {
	char letter;
	int bit;
} attrs[] = {
	{'c', IBV_QP_CUR_STATE},	  {'e', IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{'a', IBV_QP_ACCESS_FLAGS},	  {'k', IBV_QP_PKEY_INDEX},
	{'p', IBV_QP_PORT},		  {'q', IBV_QP_QKEY},
	{'v', IBV_QP_AV},		  {'m', IBV_QP_PATH_MTU},
	{'t', IBV_QP_TIMEOUT},		  {'r', IBV_QP_RETRY_CNT},
	{'n', IBV_QP_RNR_RETRY},	  {'x', IBV_QP_RQ_PSN},
	{'o', IBV_QP_MAX_QP_RD_ATOMIC},	  {'l', IBV_QP_ALT_PATH},
	{'w', IBV_QP_MIN_RNR_TIMER},	  {'s', IBV_QP_SQ_PSN},
	{'i', IBV_QP_MAX_DEST_RD_ATOMIC}, {'g', IBV_QP_PATH_MIG_STATE},
	{'z', IBV_QP_CAP},		  {'d', IBV_QP_DEST_QPN},
	{'y', IBV_QP_RATE_LIMIT},
};
#define NUM_ATTRS (sizeof(attrs) / sizeof(attrs[0]))

enum { RESET, INIT, RTR, RTS, SQD, SQE, ERR, STATES };

static const struct {
	int from, to;
	const char *rc, *uc, *ud, *ini, *tgt; /* the last two: XRC's */
} want[] = {
	{RESET, RESET, "", "", "", "", ""},
	{RESET, INIT, "KPA", "KPA", "KPQ", "KPA", "KPA"},
	{INIT, RESET, "", "", "", "", ""},
	{INIT, ERR, "", "", "", "", ""},
	{INIT, INIT, "kpa", "kpa", "kpq", "kpa", "kpa"},
	{INIT, RTR, "VMDXIW" "lak", "VMDX" "lak", "kq", "VMDX" "lak", "VMDXIW" "lak"},
	{RTR, RESET, "", "", "", "", ""},
	{RTR, ERR, "", "", "", "", ""},
	{RTR, RTS, "TRNSO" "clawg", "S" "clag", "S" "cq", "TRNSO" "clag", "TS" "clawg"},
	{RTS, RESET, "", "", "", "", ""},
	{RTS, ERR, "", "", "", "", ""},
	{RTS, RTS, "clawg", "clag", "cq", "clag", "clawg"},
	{RTS, SQD, "e", "e", "e", "e", "e"},
	{SQD, RESET, "", "", "", "", ""},
	{SQD, ERR, "", "", "", "", ""},
	{SQD, RTS, "clawg", "clag", "cq", "clag", "clawg"},
	{SQD, SQD, "pvtrnoilakwg", "vlakg", "kq", "pvtrnolakg", "pvtilakwg"},
	{SQE, RESET, "", "", "", "", ""},
	{SQE, ERR, "", "", "", "", ""},
	{SQE, RTS, "", "ca", "cq", "", ""},
	{ERR, RESET, "", "", "", "", ""},
	{ERR, ERR, "", "", "", "", ""},
};

/* NULL: there is no such transition */
static const char *rule(int from, int to, enum ibv_qp_type type)
{
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		if (want[i].from != from || want[i].to != to)
			continue;
		switch (type) {
		case IBV_QPT_RC:
			return want[i].rc;
		case IBV_QPT_UC:
			return want[i].uc;
		case IBV_QPT_UD:
			return want[i].ud;
		case IBV_QPT_XRC_SEND:
			return want[i].ini;
		default:
			return want[i].tgt;
		}
	}
	return NULL;
}

static void split(const char *r, int *required, int *optional)
{
	*required = *optional = 0;
	for (size_t i = 0; i < NUM_ATTRS; i++) {
		if (strchr(r, attrs[i].letter))
			*optional |= attrs[i].bit;
		if (strchr(r, attrs[i].letter - 'a' + 'A'))
			*required |= attrs[i].bit;
	}
}

static void check(int from, int to, enum ibv_qp_type type, int mask, bool expect)
{
	if (ib_modify_qp_is_ok((enum ibv_qp_state)from, (enum ibv_qp_state)to, type, mask) != expect)
		fail_msg("type %d: %d -> %d, mask %#x: should be %s", type, from, to, mask,
			 expect ? "allowed" : "refused");
}

static void every_transition(void **state)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND,
						IBV_QPT_XRC_RECV};

	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
		for (int from = 0; from < STATES; from++) {
			for (int to = 0; to < STATES; to++) {
				const char *r = rule(from, to, types[t]);
				int required, optional;

				if (!r) {
					/* with nothing, with everything, with each alone */
					check(from, to, types[t], IBV_QP_STATE, false);
					check(from, to, types[t], 0x7fffffff, false);
					for (size_t i = 0; i < NUM_ATTRS; i++)
						check(from, to, types[t], IBV_QP_STATE | attrs[i].bit, false);
					continue;
				}
				split(r, &required, &optional);
				/* all subsets of the attributes: 2^21 of them are too many, so all of
				 * what matters here plus each single attribute that does not */
				for (int sub = required | optional;; sub = (sub - 1) & (required | optional)) {
					check(from, to, types[t], IBV_QP_STATE | sub,
					      (sub & required) == required);
					if (!sub)
						break;
				}
				for (size_t i = 0; i < NUM_ATTRS; i++) {
					if (!((required | optional) & attrs[i].bit))
						check(from, to, types[t], IBV_QP_STATE | required | attrs[i].bit,
						      false);
				}
			}
		}
	}
}

static void nonsense(void **state)
{
	check(RESET, STATES, IBV_QPT_RC, IBV_QP_STATE, false);
	check(STATES, RESET, IBV_QPT_RC, IBV_QP_STATE, false);
	check(-1, ERR, IBV_QPT_RC, IBV_QP_STATE, false);
	check(INIT, ERR, IBV_QPT_RAW_PACKET, IBV_QP_STATE, false);
	check(INIT, RESET, (enum ibv_qp_type)0, IBV_QP_STATE, false);
	/* no state named: the transition is to where it is */
	check(RTS, RTS, IBV_QPT_RC, IBV_QP_ACCESS_FLAGS, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_transition),
		cmocka_unit_test(nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
