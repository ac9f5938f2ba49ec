#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# What a process has pinned when it ends, however it ends, is given back, and what it had left of it is in the
# report, with the DMA maps; past RLIMIT_MEMLOCK a registration fails with a message that names the limit and the
# remedies, and memory on demand is not charged. $1: the program that registers, as an unprivileged user.
set -u
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
chmod 777 "$tmp"
fail()
{
	echo "FAIL: $*"
	cat "$tmp/err"
	exit 1
}
unset FAULTLINE_LOG VERBS_LOG_LEVEL

# the user may lock 8 MiB: each run pins 6, so that none can if one before it kept something
for how in exit exit _exit abort kill kill exit; do
	"$FAULTLINE" run -o "$tmp/report" -- "$1" $how 2>"$tmp/err"
	status=$?
	[ $status = 77 ] && exit 77
	case $how in
	abort) want=134 ;;
	kill) want=137 ;;
	*) want=0 ;;
	esac
	[ $status = $want ] || fail "$how: status $status"
	grep -q 'left over: .*1 MR (pinned, 6.0 MiB).*3 MRs (on demand' "$tmp/report" ||
		fail "$how: the report: $(cat "$tmp/report")"
	# 1536 pinned, 8 by accesses, 4 of them a hot range
	grep -q '1544 DMA-mapped pages' "$tmp/report" || fail "$how: the report: $(cat "$tmp/report")"
done

"$FAULTLINE" run -o "$tmp/report" -- "$1" past 2>"$tmp/err" || fail "past the limit: status $?"
for word in 'RLIMIT_MEMLOCK, 8388608 bytes' 'ulimit -l' 'on demand'; do
	grep -qF "$word" "$tmp/err" || fail "past the limit: not a word of $word"
done
exit 0
