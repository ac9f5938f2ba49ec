/* SPDX-License-Identifier: BSD-2-Clause */
/* What `faultline stat` says of this very process: counters of the device, or of a region. */
#ifndef E2E_COUNTERS_H
#define E2E_COUNTERS_H

#include <stdint.h>

double counter_of_device(const char *name);
double counter_of_mr(uint32_t key, const char *name);

#endif
