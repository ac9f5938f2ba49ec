#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# One program, on each device and between processes with different ones, by shared memory and by UDP. On
# demand where a side's device can, pinned where not; refused where the device has no such QP.
# usage: profiles.sh WRITE_READ; in a network namespace of its own, where that is allowed.
if [ "${2:-}" != inside ] && unshare -rn true 2>/dev/null; then
	exec unshare -rn sh "$0" "$1" inside
fi
[ "${2:-}" != inside ] || ip link set lo up || exit 77
: "${FAULTLINE:?the command}"
program=$1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
failures=0

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
	cat "$tmp/target" "$tmp/initiator"
}

# what a side's second round is: ODP wins, and who has none stays pinned
second() {
	case ${1%%,*} in mlx5 | rxe) echo 'on demand:' ;; *) echo 'pinned:' ;; esac
}

# pair LINK TARGET'S-DEVICE INITIATOR'S-DEVICE
pair() {
	timeout 60 "$FAULTLINE" run -q --link "$1" --device "$2" -- "$program" >"$tmp/target" 2>&1 &
	target=$!
	timeout 60 "$FAULTLINE" run -q --link "$1" --device "$3" -- "$program" 127.0.0.1 >"$tmp/initiator" 2>&1 ||
		fail "$*: the initiator's status is $?"
	wait $target || fail "$*: the target's status is $?"
	want=2
	[ "$(second "$2")$(second "$3")" != 'pinned:pinned:' ] || want=1
	[ "$(grep -c 'data right' "$tmp/initiator")" = $want ] || fail "$*: not $want rounds"
	[ $want = 1 ] || {
		grep 'data right' "$tmp/initiator" | tail -1 | grep -q "^$(second "$3")" &&
			tail -1 "$tmp/target" | grep -q "^$(second "$2").*holds" || fail "$*: the second round"
	}
}

for device in mlx5 rxe irdma bnxt_re mana; do
	pair auto $device $device
done
pair auto mlx5 irdma
pair auto mana mlx5
pair auto bnxt_re rxe
pair udp irdma mlx5
pair udp irdma bnxt_re

# several in one process: the first is used
pair auto irdma,mlx5 mlx5,irdma

timeout 60 "$FAULTLINE" run -q --device mlx5 -- "$program" >"$tmp/target" 2>&1 &
target=$!
timeout 60 "$FAULTLINE" run -q --device efa -- "$program" 127.0.0.1 >"$tmp/initiator" 2>&1 &&
	fail "efa: no RC, and yet it goes"
grep -q 'create QP: Operation not supported' "$tmp/initiator" || fail "efa: not said why"
wait $target && fail "efa: the target did not see its initiator go"
[ $failures = 0 ]
