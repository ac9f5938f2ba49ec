# SPDX-License-Identifier: BSD-2-Clause
# Sourced by the tests of the command. $FAULTLINE and $STUB are set by meson.
set -u
: "${FAULTLINE:?the command}" "${STUB:?the stub program}"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
failures=0
# meson puts directories of libraries into LD_LIBRARY_PATH
unset FAULTLINE_CONFIG FAULTLINE_REPORT FAULTLINE_DEVICE FAULTLINE_NETDEV LD_LIBRARY_PATH LD_PRELOAD
export XDG_CONFIG_HOME="$tmp"

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

# expect STATUS COMMAND...: runs it with output in $tmp/out and $tmp/err
expect() {
	want=$1
	shift
	"$@" >"$tmp/out" 2>"$tmp/err"
	got=$?
	[ $got = "$want" ] || {
		fail "status $got, not $want: $*"
		cat "$tmp/err"
	}
}

# says FILE PATTERN...: every extended regular expression is on a line of it
says() {
	file=$tmp/$1
	shift
	for p in "$@"; do
		grep -Eq -- "$p" "$file" || {
			fail "not said: $p"
			cat "$file"
		}
	done
}

silent() {
	[ ! -s "$tmp/$1" ] || {
		fail "$1 should be empty"
		cat "$tmp/$1"
	}
}

# wait_until SECONDS COMMAND...
wait_until() {
	tries=$(($1 * 20))
	shift
	while ! "$@"; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || return 1
		sleep 0.05
	done
}

finish() {
	[ $failures = 0 ]
	exit
}
