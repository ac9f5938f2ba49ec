#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# run: signals sent to it reach the program; when it is killed the program goes too.
. "$(dirname "$0")/lib.sh"

# says its pid, then what it gets; reads from a pipe that never ends
cat >"$tmp/app" <<'END'
#!/usr/bin/python3
import os, signal, sys, time
def got(num, frame):
    print("got", signal.Signals(num).name, flush=True)
    if num != signal.SIGUSR1:
        sys.exit(33)
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(s, got)
print("pid", os.getpid(), flush=True)
while True:
    time.sleep(60)
END
chmod +x "$tmp/app"

start() {
	: >"$tmp/out"
	# not `&` alone: the shell would make it ignore SIGINT and SIGQUIT
	python3 -c '
import os, signal, sys
for s in (signal.SIGINT, signal.SIGQUIT): signal.signal(s, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$FAULTLINE" run -q -- "$tmp/app" >"$tmp/out" 2>"$tmp/err" &
	run=$!
	wait_until 10 grep -q '^pid' "$tmp/out" || fail "the program did not start"
	app=$(sed -n 's/^pid //p' "$tmp/out")
}

for s in TERM INT HUP QUIT; do
	start
	kill -$s $run
	wait $run
	got=$?
	[ $got = 33 ] || fail "SIG$s: status $got, not the program's"
	says out "^got SIG$s\$"
	[ "$(grep -c '^got' "$tmp/out")" = 1 ] || fail "SIG$s came more than once"
done

start
kill -USR1 $run
wait_until 5 grep -q 'got SIGUSR1' "$tmp/out" || fail "SIGUSR1 did not arrive"
kill -0 $run || fail "it ended before the program"
kill -KILL $run
wait $run 2>/dev/null
gone() { ! kill -0 "$app" 2>/dev/null; }
wait_until 5 gone || {
	fail "the program outlives a killed faultline run"
	kill -KILL "$app"
}

# the program is killed, not run
start
kill -KILL "$app"
wait $run
got=$?
[ $got = 137 ] || fail "program killed: status $got"
finish
