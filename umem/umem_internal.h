/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this room share. */
#ifndef FL_UMEM_INTERNAL_H
#define FL_UMEM_INTERNAL_H

#include "umem/umem.h"

bool umem_writable(unsigned access);

#endif
