/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters of this very process: what `faultline stat` says of the device, or of a region; and, read at once, without a
 * command, a counter of the first device. */
#ifndef E2E_COUNTERS_H
#define E2E_COUNTERS_H

#include <stdint.h>
#include "faultline/segment.h"

double counter_of_device(const char *name);
double counter_of_mr(uint32_t key, const char *name);
uint64_t counter_now(enum faultline_counter c);

#endif
