/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * <infiniband/verbs.h> as the library that implements it sees it: what it declares is exported, and
 * its macros, which pick among functions for the application, are out of the way. Comes first.
 */
#ifndef FL_VERBS_ABI_H
#define FL_VERBS_ABI_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
#pragma GCC visibility pop

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define VERBS_EXPORT __attribute__((visibility("default")))

/* Gives a function one more name with a version that new programs do not link to. */
#define VERBS_SYMVER(function, name, node) __asm__(".symver " #function ", " #name "@" #node)

#endif
