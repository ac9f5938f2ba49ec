#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Memory that cannot be watched, as of files before Linux 6.7, is told of, with the reason, and accesses to it are
# right all the same; where all can be watched nothing is said. $1: a program that registers memory of all kinds.
set -u
err=$(mktemp) || exit 1
trap 'rm -f "$err"' EXIT
fail()
{
	echo "FAIL: $*"
	cat "$err"
	exit 1
}
unset FAULTLINE_LOG VERBS_LOG_LEVEL

FAULTLINE_WITHOUT=wp-async "$FAULTLINE" run -q -- "$1" 2>"$err" || fail "status $?"
grep -q 'userfaultfd: ' "$err" && exit 77 # there is none here, which is what is said then
grep -Eq 'on-demand memory in 0x[0-9a-f]+-0x[0-9a-f]+ cannot be watched: [A-Z]' "$err" || fail 'not told of'
FAULTLINE_NOTIFIER=none "$FAULTLINE" run -q -- "$1" 2>"$err" || fail "without notifications: status $?"
"$FAULTLINE" run -q -- "$1" 2>"$err" || fail "status $?"
! grep -q 'cannot be watched' "$err" || ! "$FAULTLINE" doctor | grep -q WP_ASYNC || fail 'told of nothing'
exit 0
