/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How page faults show on the wire, apart from what the device can do (profile.h). Chosen by the setting
 * fault_model, for the process.
 *
 *   ideal     A fault takes as long as the host needs. What waits for it is kept; nothing is sent in vain.
 *   connectx  As published of ConnectX adapters (Lesokhin et al., ASPLOS 2017; Fukuoka et al., "Pitfalls of
 *	       InfiniBand with On-Demand Paging"), with the two pitfalls of the latter. *Packet damming*: a
 *	       work request that is posted while the QP waits for a fault counts as sent and never is; only
 *	       the ACK time-out finds out, or a later request that makes the peer notice the gap. *Packet
 *	       flood*: the answer to a READ whose destination faults is dropped, and asked for again and again
 *	       until the page is there; faults are served one after the other, so with many QPs the most of
 *	       what is on the wire is sent in vain.
 */
#ifndef FL_HW_FAULT_MODEL_H
#define FL_HW_FAULT_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include "util/config.h"

struct fault_model {
	const char *name;
	bool at_once;	      /* what needs no sleep is resolved by the thread that met it */
	unsigned workers;     /* at most; more than one fault at a time */
	uint64_t (*service_ns)(uint64_t len); /* how long one takes at least; NULL: as long as it does */
	bool rnr_nak;	      /* responder: an RNR NAK, and the request is dropped; else it is kept */
	unsigned rnr_percent; /* how long the wait after an RNR NAK really is */
	uint64_t ask_again_ns; /* requester: an answer that faults is dropped, asked for again after this; 0: kept */
	bool dams;	      /* requester: loses what is posted during either wait */
};

extern const struct fault_model *fault_model;
void fault_model_init(const struct fl_config *cfg);

#endif
