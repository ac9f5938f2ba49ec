#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# run: libraries and settings are put into the environment, and what the user had there stays.
. "$(dirname "$0")/lib.sh"

expect 0 "$FAULTLINE" run -q --device rxe --netdev lo --name my0 --link udp --pin mlock \
	--notifier none --log error -- env
says out '^FAULTLINE_DEVICE=rxe$' '^FAULTLINE_NETDEV=lo$' '^FAULTLINE_NAME=my0$' '^FAULTLINE_LINK=udp$' \
	'^FAULTLINE_PIN=mlock$' '^FAULTLINE_NOTIFIER=none$' '^FAULTLINE_LOG=error$'
! grep -q '^FAULTLINE_REPORT=.' "$tmp/out" || fail "a report is asked for with --quiet"

expect 0 "$FAULTLINE" run -- env
says out '^FAULTLINE_REPORT=faultline-run/' '^LD_LIBRARY_PATH=/' '^LD_PRELOAD=.*libfaultline-preload.so'
dir=$(sed -n 's/^LD_LIBRARY_PATH=//p' "$tmp/out")
[ -f "$dir/libibverbs.so.1" ] || fail "no libibverbs.so.1 in $dir"

# libc.so.6 is one that surely can be preloaded
# (the command itself, where it is built with a sanitizer, does not mind)
ASAN_OPTIONS=verify_asan_link_order=0 LD_LIBRARY_PATH=/users/own LD_PRELOAD=libc.so.6 "$FAULTLINE" run -q -- env >"$tmp/out"
says out "^LD_LIBRARY_PATH=$dir:/users/own\$" '^LD_PRELOAD=.*libfaultline-preload.so:libc.so.6$'

# the loader really takes ours
if [ -x /usr/bin/ibv_devices ]; then
	"$FAULTLINE" run -q -- ldd /usr/bin/ibv_devices >"$tmp/out"
	says out "libibverbs.so.1 => $dir/"
fi

# one within another: the inner one reports
"$FAULTLINE" run -q -- "$FAULTLINE" run -- "$STUB" >"$tmp/out" 2>"$tmp/err"
says err 'stub .* on mlx5_fl0'

# through a link to the command, and from another directory
ln -s "$FAULTLINE" "$tmp/link"
(cd / && "$tmp/link" run -q -- env) >"$tmp/out"
says out "^LD_LIBRARY_PATH=$dir\$"
finish
