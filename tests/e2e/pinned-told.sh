#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Pinned memory that the application takes away is told of: once a region, with its key, who registered
# it and who took it away, and in the report. $1: a program that does all kinds of it. A program that
# deregisters before it frees ($2) is told nothing.
set -u
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
fail()
{
	echo "FAIL: $*"
	cat "$tmp/err"
	exit 1
}
unset FAULTLINE_LOG VERBS_LOG_LEVEL

"$FAULTLINE" run -- "$1" 2>"$tmp/err" || fail "status $?"
grep -q 'io_uring is not to be had' "$tmp/err" && exit 77
for call in 'munmap()' 'madvise(MADV_DONTNEED)' 'mmap(MAP_FIXED)' 'mremap()'; do
	grep -F "$call, called from $1(" "$tmp/err" | grep -qF "registered by $1(" || fail "not told of $call"
done
grep -q 'by mprotect()' "$tmp/err" || fail "not told of mprotect"
grep -q 'trouble  *mr_pinned_stale' "$tmp/err" || fail "not in the report"
grep -o 'pinned MR with key 0x[0-9a-f]*' "$tmp/err" | sort | uniq -d | grep -q . && fail "told twice"

"$FAULTLINE" run -- "$2" 2>"$tmp/err" || fail "status $?"
grep -qE 'mr_pinned_stale|took memory' "$tmp/err" && fail "told of nothing"
exit 0
