/* SPDX-License-Identifier: BSD-2-Clause */
/* For tests that are programs like any other, and know what is installed. */
#ifndef FL_TESTS_NATIVE_CHECK_H
#define FL_TESTS_NATIVE_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define PAGE 4096ul
#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                 \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#endif
