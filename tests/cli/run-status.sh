#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# run: the program's arguments reach it untouched, and its status comes back as a shell would give it.
. "$(dirname "$0")/lib.sh"

for n in 0 1 7 125 255; do
	expect $n "$FAULTLINE" run -- sh -c "exit $n"
done
expect 143 "$FAULTLINE" run -- sh -c 'kill -TERM $$'
says err 'killed by signal 15'
expect 137 "$FAULTLINE" run -- sh -c 'kill -KILL $$'

# a directory of PATH that this user may not search would make it "cannot be executed"
expect 127 env PATH=/usr/bin:/bin "$FAULTLINE" run -- nosuchprogram
says err 'nosuchprogram'
expect 127 "$FAULTLINE" run -- /nonexistent/program
: >"$tmp/plain"
expect 126 "$FAULTLINE" run -- "$tmp/plain"
says err 'Permission denied'
! grep -q 'opened no device' "$tmp/err" || fail "a report about a program that never ran"
expect 126 "$FAULTLINE" run -- "$tmp"

expect 0 "$FAULTLINE" run -- printf '%s|' --device -q '' 'a b' "it's"
[ "$(cat "$tmp/out")" = "--device|-q||a b|it's|" ] || fail "arguments: $(cat "$tmp/out")"
# without --: the first that is no option is the program
expect 0 "$FAULTLINE" run -q printf '%s|' -q
[ "$(cat "$tmp/out")" = "-q|" ] || fail "arguments: $(cat "$tmp/out")"
silent err

echo from-stdin | "$FAULTLINE" run -q -- cat >"$tmp/out"
says out '^from-stdin$'
finish
