#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# run: the report gives advice when the counters call for it, the one that fits, and none when they do not.
. "$(dirname "$0")/lib.sh"

# advised STUB-ARGUMENT LINES PATTERN...: so many pieces of advice, which say this
advised() {
	expect 0 "$FAULTLINE" run -- "$STUB" "$1"
	n=$(grep -c '^  advice ' "$tmp/err")
	[ "$n" = "$2" ] || fail "$1: $n pieces of advice, not $2"
	# folded lines, as one
	tr '\n' ' ' <"$tmp/err" | tr -s ' ' >"$tmp/one"
	shift 2
	[ $# = 0 ] || says one "$@"
	awk 'length($0) > 100 && /^              / { exit 1 }' "$tmp/err" || fail "a line of advice is too long"
}

advised clean 0
advised quiet 0
advised thrash 1 'thrash: 5000 pages were unmapped or discarded by the program' 'faultline_mr_pin\(\)'
advised swapped 1 'thrash: 5000 pages were swapped out' 'mlock\(\)' 'madvise\(MADV_WILLNEED\)'
says one '5000 of them faulted again within a second' '6000 pages invalidated \(5900 swapped out\)'
advised reclaim 1 'reclaim: the kernel swapped out 300 pages'
advised stale 1 'a bug of the program: .* 1 time after'
advised churn 1 '5003 regions of .* on average were registered'
advised rnr 3 '20 RNR NAKs were sent since a page fault' '30 RNR NAKs were sent for want of a receive' '11 RNR NAKs came'
advised cold 1 'cold start: page faults took' 'IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE'
says one 'fault time half under 128 us, 99 % under 1 ms; 100 paused a queue pair, half for less than 4 us'
# slow, but too few to prefetch
advised few 0
advised impaired 0
says err '^  impaired    packets sent: 3 lost, 12 marked$'
finish
