/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pages that were invalidated within the last second, so that a fault knows whether it only brings back
 * what has just gone (thrash). Callers hold the region's umem_mutex; `now`: refault_now().
 */
#ifndef FL_UMEM_REFAULT_H
#define FL_UMEM_REFAULT_H

#include <stdbool.h>
#include <stdint.h>

uint32_t refault_now(void);
/* the page of this region goes now */
void refault_note(uint32_t region, uint64_t page, uint32_t now);
/* Did any page of any region go within a second? Cheap: most faults are of pages that never went. */
bool refault_any(uint32_t now);
/* Did this one? Then it is forgotten. */
bool refault_take(uint32_t region, uint64_t page, uint32_t now);

#endif
