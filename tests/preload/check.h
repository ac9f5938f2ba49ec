/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef FL_TESTS_PRELOAD_CHECK_H
#define FL_TESTS_PRELOAD_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s (%m)\n", __FILE__, __LINE__, #x);               \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#endif
