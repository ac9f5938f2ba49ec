/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory as the HCA sees it, under the test's thumb: regions without pins or notifiers, faults that
 * resolve, sleep until the test lets them, or fail, and copies that fail where the test says.
 */
#ifndef FL_TESTS_HW_FAKE_MEM_H
#define FL_TESTS_HW_FAKE_MEM_H

#include "umem/umem.h"

struct fake_range {
	uint64_t start, end;
};

extern struct fake_range fake_sleeps; /* faults in it would sleep: a worker must wait at the gate */
extern struct fake_range fake_denied; /* faults in it fail with -EFAULT */
extern struct fake_range fake_broken; /* copies to or from it fail, whatever the table says */
extern unsigned fake_faults, fake_forced; /* faults to resolve; those with FORCE */
extern unsigned fake_may_sleep;		  /* those by a thread that may: by workers */
extern unsigned fake_released;		  /* regions given back */
extern unsigned fake_key_waits;		  /* calls of dma_wait_key() */

/* pinned, or on demand with nothing present */
struct ib_umem *fake_umem(void *addr, size_t len, bool odp);
/* takes pages out of the table */
void fake_invalidate(struct ib_umem *umem, uint64_t start, uint64_t end);

/* waits until so many workers stand at the gate */
void fake_gate_wait(unsigned workers);
/* lets them all go, and those that come; each fault returns rc, 0 being good */
void fake_gate_open(int rc);
void fake_gate_close(void);

#endif
