#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The example between two processes, and what faultline says of them while they run and afterwards.
# In a network namespace of its own, where that is allowed: its ports are then nobody else's.
if [ "${1:-}" != inside ] && unshare -rn true 2>/dev/null; then
	exec unshare -rn sh "$0" inside
fi
. "$(dirname "$0")/lib.sh"
: "${WRITE_READ:?the example program}"
[ "${1:-}" != inside ] || ip link set lo up || exit 77

for link in auto udp; do
	"$FAULTLINE" run --link $link --netdev lo -o "$tmp/target.report" -- "$WRITE_READ" >"$tmp/target" 2>&1 &
	target=$!
	expect 0 timeout 60 "$FAULTLINE" run --link $link --netdev lo -- "$WRITE_READ" 127.0.0.1
	says out '^pinned: .*data right' '^on demand: .*data right'
	says err 'memory +1 MR pinned \(3\.0 MiB\), 1 MR on demand \(3\.0 MiB\)' \
		'operations +16 RDMA WRITEs, 16 RDMA READs' 'paging +[1-9][0-9]* page fault' 'left over +nothing'
	! grep -q 'trouble.*access_err' "$tmp/err" || fail "accesses were refused"
	wait $target || {
		fail "$link: the target's status is $?"
		cat "$tmp/target"
	}
	says target "^pinned: .*holds what was written" '^on demand: .*holds what was written'
	says target.report 'operations +none completed here' 'paging +[1-9][0-9]* page fault' 'left over +nothing'
done

# a target that waits for its initiator, seen by stat; killed with its run, it leaves nothing
"$FAULTLINE" run -q --netdev lo -- "$WRITE_READ" >"$tmp/target" 2>&1 &
target=$!
seen() { "$FAULTLINE" stat --json write_read >"$tmp/json" 2>/dev/null && grep -q '"name":.*"mlx5_fl0"' "$tmp/json"; }
wait_until 10 seen || fail "stat does not see it"
kill -KILL $target
wait $target 2>/dev/null
gone() { ! "$FAULTLINE" stat write_read >/dev/null 2>&1; }
wait_until 10 gone || fail "something of it is left"
finish
