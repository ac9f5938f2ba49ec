#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The exchange of `make interop`, all cases, with our device at both ends.
exchange=$1
port=$((20000 + $$ % 10000))
out=$(mktemp) || exit 1
trap 'rm -f "$out"; kill "$server" 2>/dev/null' EXIT
"$FAULTLINE" run -q -- "$exchange" - 0 $port >"$out" 2>&1 &
server=$!
"$FAULTLINE" run -q -- "$exchange" - 0 $port 127.0.0.1
client=$?
wait "$server"
status=$?
server=
cat "$out"
[ $client = 0 ] && [ $status = 0 ]
