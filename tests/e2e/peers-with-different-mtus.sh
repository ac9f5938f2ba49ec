#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Two ends of a connection that were set up with different path MTUs: an error in time, and a message that names
# both sizes; never a silent hang. What fits in one packet of either goes through. $1: the program that does it.
set -u
err=$(mktemp) || exit 1
trap 'rm -f "$err"' EXIT
unset FAULTLINE_LOG VERBS_LOG_LEVEL

timeout 50 "$FAULTLINE" run -q -- "$1" 2>"$err" || {
	echo "FAIL: status $?"
	cat "$err"
	exit 1
}
for sizes in '1024 .* path MTU is 256' '256 .* path MTU is 1024'; do
	grep -q "a packet of $sizes" "$err" || {
		echo "FAIL: not told of $sizes"
		cat "$err"
		exit 1
	}
done
