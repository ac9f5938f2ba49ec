/* SPDX-License-Identifier: BSD-2-Clause */
/* cmocka wants these before itself */
#ifndef FL_TESTS_UTIL_TEST_H
#define FL_TESTS_UTIL_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#endif
