#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# doctor: a line for each thing that a device needs; what is taken away is degraded or missing, with a remedy.
. "$(dirname "$0")/lib.sh"

expect 0 "$FAULTLINE" doctor
for what in libraries kernel userfaultfd PSI RLIMIT_MEMLOCK RLIMIT_NOFILE 'huge pages' interface 'UDP port 4791' rmem_max processors; do
	[ "$(grep -Ec "^(ok|degraded) +$what " "$tmp/out")" = 1 ] || {
		fail "not one line of $what"
		cat "$tmp/out"
	}
done
grep -Eq '^(ok|degraded) +(io_uring|pinning) ' "$tmp/out" || fail "nothing of pinning"
silent err
# all that is degraded has a remedy: "what is there: what it costs; what to do"
grep '^degraded' "$tmp/out" | grep -v '^degraded .*: .*; ' && fail "no cost or no remedy"
grep -Eq "^$(grep -c '^ok' "$tmp/out") ok, $(grep -c '^degraded' "$tmp/out") degraded, 0 missing" "$tmp/out" || fail "wrong sums"

# what a limit takes away
expect 0 sh -c "ulimit -n 100; exec '$FAULTLINE' doctor"
says out '^degraded +RLIMIT_NOFILE +100 '

# the port is another's: one that does not share it
python3 - "$tmp" <<'P' &
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 4791))
open(sys.argv[1] + "/bound", "w").close()
time.sleep(20)
P
holder=$!
if wait_until 5 test -e "$tmp/bound"; then
	expect 0 env FAULTLINE_NETDEV=lo "$FAULTLINE" doctor
	says out '^degraded +UDP port 4791 .*ss -lunp' '^degraded +interface +lo'
fi
kill $holder 2>/dev/null

if [ "$(id -u)" = 0 ] && command -v unshare >/dev/null && unshare -n true 2>/dev/null; then
	# no interface at all that is up still has lo; without PSI
	expect 0 unshare -m sh -c "mount --bind /dev/null /proc/pressure/memory 2>/dev/null; exec '$FAULTLINE' doctor"
	[ ! -e /proc/pressure/memory ] || grep -Eq '^(ok|degraded) +PSI ' "$tmp/out" || fail "nothing of PSI"
fi
finish
