#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# usage: private-jemalloc.sh COMPILER OUTPUT
# Debian's jemalloc as one object that offers what arena.c calls and nothing else: malloc(), free() and their kind,
# which the library has too, stay the program's.
set -e
lib=$("$1" -print-file-name=libjemalloc_pic.a)
"$1" -r -nostdlib -Wl,-u,mallocx -o "$2.tmp" "$lib"
objcopy --keep-global-symbol=mallocx --keep-global-symbol=dallocx --keep-global-symbol=rallocx \
	--keep-global-symbol=sallocx --keep-global-symbol=mallctl --strip-debug "$2.tmp" "$2"
rm "$2.tmp"
