/* SPDX-License-Identifier: BSD-2-Clause */
/* The setting `impair`: what the wire is to do to packets, as text and as numbers. */
#ifndef FL_UTIL_IMPAIRMENT_H
#define FL_UTIL_IMPAIRMENT_H

#include <stdbool.h>
#include <stdint.h>

/* Chances are in parts of 2^32: a random 32-bit number below one says yes. */
struct fl_impairment {
	uint64_t loss, reorder, dup, corrupt, ecn;
	uint64_t delay_ns, jitter_ns;
	uint64_t seed;
};

/*
 * "loss=1%,reorder=2%,dup=1%,delay=1ms~200us,corrupt=0.1%,ecn=1%,seed=7", any of them. NULL, or what is wrong
 * with the text.
 */
const char *fl_impairment_parse(const char *text, struct fl_impairment *im);
/* does it do anything at all? */
bool fl_impairment_on(const struct fl_impairment *im);

#endif
