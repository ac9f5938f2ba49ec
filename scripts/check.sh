#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Builds and tests each of the builds named: a directory (as `build`), or asan or tsan, which are made
# here. The last line says how many tests passed, failed and were skipped, over all of them.
set -u
cd "$(dirname "$0")/.." || exit 1

# The sanitizers' own settings: every report is a failure; programs of others may leak what they like.
# A segment of 4 GiB, sparse, is no reason to report "out of memory".
export ASAN_OPTIONS="detect_leaks=0:handle_segv=1:allow_user_segv_handler=1:abort_on_error=0:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:${UBSAN_OPTIONS:-}"
export TSAN_OPTIONS="halt_on_error=0:exitcode=66:second_deadlock_stack=1:${TSAN_OPTIONS:-}"

logs=
failed_builds=
# All of it ends in 25 minutes, with the set-up before it; what hangs must leave time to say so.
end=$(($(date +%s) + 1360))

left() {
	seconds=$((end - $(date +%s)))
	echo $((seconds > 10 ? seconds : 10))
}

setup_dir() { # directory, options of meson
	dir=$1
	shift
	[ -f "$dir/build.ninja" ] || meson setup "$dir" "$@" >"$dir.setup.log" 2>&1 || {
		cat "$dir.setup.log"
		return 1
	}
	rm -f "$dir.setup.log"
}

run() { # name, directory, factor of the tests' time-outs, options of meson setup
	name=$1 dir=$2 factor=$3
	shift 3
	echo "== $name"
	if ! setup_dir "$dir" "$@" || ! ninja -C "$dir" >"$dir/ninja.log" 2>&1; then
		[ -f "$dir/ninja.log" ] && tail -40 "$dir/ninja.log"
		failed_builds="$failed_builds $name"
		return
	fi
	rm -f "$dir/meson-logs/testlog.json" "$dir/meson-logs/again.json"
	# meson's own summary is left out: ours, over all builds, comes last
	timeout -k 20 "$(left)" meson test -C "$dir" --no-rebuild -t "$factor" $suites >"$dir/test.log" 2>&1
	[ $? -lt 124 ] || failed_builds="$failed_builds $name(out-of-time)"
	grep -E '^ *[0-9]+/[0-9]+ ' "$dir/test.log"
	# A few that fail get a second try, alone: two tests at a time and a busy machine are not what they
	# are about. One that passes then is named as unsteady.
	again=$(python3 scripts/summary.py --failed "$dir/meson-logs/testlog.json")
	# shellcheck disable=SC2086
	[ -z "$again" ] || timeout -k 20 "$(left)" meson test -C "$dir" --no-rebuild -t "$factor" --num-processes 1 \
		--logbase again $again >"$dir/again.log" 2>&1
	logs="$logs $name=$dir/meson-logs/testlog.json"
}

for b in "$@"; do
	suites=
	case $b in
	asan)
		suites='--no-suite nosan'
		run asan build-asan 4 -Db_sanitize=address,undefined -Ddebug_locks=true -Dbuildtype=debugoptimized
		;;
	tsan)
		suites='--no-suite nosan --no-suite notsan'
		run tsan build-tsan 6 -Db_sanitize=thread -Ddebug_locks=true -Dbuildtype=debugoptimized
		;;
	*)
		run "$b" "$b" 1
		;;
	esac
done

# shellcheck disable=SC2086
exec python3 scripts/summary.py "$failed_builds" $logs
