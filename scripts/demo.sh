#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# make demo: two processes, one RDMA device each, on this machine as it is: memory registered pinned,
# then on demand; every byte checked. Ends with 0 only when all of it went well.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
faultline=$build/faultline
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
trap 'exit 130' INT TERM
failed=0 steps=0

# a side's output, indented, with its name
show() { # file, name
	while IFS= read -r line; do
		printf '    %-7s| %s\n' "$2" "$line"
	done <"$1"
}

# Runs a server and a client of it, both under faultline; the server's command is the client's without
# the address.
pair() { # title, command...
	title=$1
	shift
	steps=$((steps + 1))
	printf '\n%d. %s\n   $ faultline run -- %s &\n   $ faultline run -- %s 127.0.0.1\n' \
		"$steps" "$title" "$*" "$*"
	timeout -k 5 60 "$faultline" run -o "$out/server.report" -- "$@" >"$out/server" 2>&1 &
	server=$!
	wait_for_port "$server"
	timeout -k 5 60 "$faultline" run -o "$out/client.report" -- "$@" 127.0.0.1 >"$out/client" 2>&1
	client_status=$?
	wait "$server"
	server_status=$?
	show "$out/client" client
	for side in server client; do
		[ ! -f "$out/$side.report" ] || show "$out/$side.report" "$side"
	done
	if [ $client_status = 0 ] && [ $server_status = 0 ]; then
		echo "   OK"
	else
		show "$out/server" server
		echo "   FAILED: server's status $server_status, client's $client_status"
		failed=$((failed + 1))
	fi
	rm -f "$out"/*
}

# 18515 is 4853 in hexadecimal; state 0A is listening. All programs here use that TCP port.
wait_for_port() { # pid of who will listen
	for _ in $(seq 100); do
		grep -q ':4853 [^ ]* 0A' /proc/net/tcp /proc/net/tcp6 2>/dev/null && return
		kill -0 "$1" 2>/dev/null || return
		sleep 0.05
	done
}

echo "Faultline: RDMA between two processes, with a network card that is a library."
"$faultline" devices || exit 1

pair "RDMA WRITE and READ, pinned, then on demand; every byte checked" "$build/examples/write_read"
pair "Debian's ibv_rc_pingpong, pinned memory, data validated" ibv_rc_pingpong -g 0 -c
pair "the same with on-demand paging: nothing is pinned, pages come in as the device touches them" \
	ibv_rc_pingpong -g 0 -c -o
pair "perftest's RDMA WRITE bandwidth, on demand" ib_write_bw -x 0 --odp -n 1000
pair "perftest's RDMA READ bandwidth, on demand" ib_read_bw -x 0 --odp -n 1000

echo
if [ $failed = 0 ]; then
	echo "All $steps went well."
else
	echo "$failed of $steps FAILED."
	exit 1
fi
