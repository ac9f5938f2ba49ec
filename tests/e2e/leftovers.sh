#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A program that ends with objects it never destroyed: `faultline run` says which, also when it was
# killed; one that cleans up leaves nothing. $1: the program that leaves.
set -u
: "${FAULTLINE:?the command}"
report=$(mktemp) || exit 1
trap 'rm -f "$report"' EXIT
failed=0

run() { # status, arguments of the program
	want=$1
	shift
	"$FAULTLINE" run -o "$report" -- "$@"
	got=$?
	[ $got = "$want" ] || {
		echo "FAIL: status $got, not $want"
		failed=1
	}
}

says() {
	grep -Eq -- "$1" "$report" || {
		echo "FAIL: the report does not say: $1"
		cat "$report"
		failed=1
	}
}

run 0 "$1" nothing
says '^ +left over +nothing$'
run 0 "$1" leave
says 'left over: .*1 context.*1 PD.*1 CQ.*1 QP.*1 MR \(pinned, 4096 bytes\).*1 MR \(on demand, 4096 bytes\)'
run 137 "$1" die
says 'left over: .*1 QP'
says 'signal 9'
exit $failed
