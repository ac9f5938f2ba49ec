/* SPDX-License-Identifier: BSD-2-Clause */
/* What tests ask of the build: is it a sanitizer's, and what need it not look at? */
#ifndef FL_TESTS_SANITIZE_H
#define FL_TESTS_SANITIZE_H

/* slower by far, and with mappings and memory of its own */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* A function that makes bytes by the megabyte, in memory of its caller's alone: each would be looked at. */
#define UNSANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

#endif
