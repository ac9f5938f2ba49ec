#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# What is wrong with a setting is said in the words of who set it, once, and fit for a terminal; what the
# machine refuses is named.
. "$(dirname "$0")/lib.sh"

# by an option: its name; refused is not ignored
expect 2 "$FAULTLINE" run -d mlx5, -- true
says err '--device: .*empty name'
grep -q 'ignored' "$tmp/err" && fail "refused and called ignored"
expect 2 "$FAULTLINE" devices --netdev a/b
says err '--netdev: '
# by a variable
expect 2 env FAULTLINE_LINK=tcp "$FAULTLINE" run -- true
says err 'FAULTLINE_LINK: .*"tcp" must be auto, ring or udp'
grep -q 'ignored' "$tmp/err" && fail "refused and called ignored"

# one that is misspelt, or that there is none of, is named once, with the nearest that there is
for quiet in '' -q; do
	# shellcheck disable=SC2086
	expect 0 env FAULTLINE_LIMK=udp FAULTLINE_VENDORID=1 FAULTLINE_LOG=warn "$FAULTLINE" run $quiet -- "$EXAMPLES/storage_target"
	says err 'FAULTLINE_LIMK: .*did you mean FAULTLINE_LINK\?' 'FAULTLINE_VENDORID: .*FAULTLINE_VENDOR_ID\?'
	[ "$(grep -c 'did you mean' "$tmp/err")" = 2 ] || fail "not each once"
done
expect 0 env FAULTLINE_LIMK=udp FAULTLINE_LOG=none "$FAULTLINE" run -q -- true
silent err

# getopt's messages say who speaks
expect 2 "$FAULTLINE" run --frobnicate -- true
says err '^faultline run: .*frobnicate'
expect 2 "$FAULTLINE" stat -Z
says err '^faultline stat: '

# a file that is no configuration file
printf 'dev\033[31mice = x\nlink = \033]0;y\007\n' >"$tmp/faultline.conf"
expect 2 "$FAULTLINE" run -- true
says err 'dev\\x1b\[31mice' '\\x1b\]0;y\\x07'
LC_ALL=C grep -q "$(printf '[\001-\010\016-\037]')" "$tmp/err" && fail "control characters reach the terminal"
rm "$tmp/faultline.conf"

# no descriptors: the limit is named, at the open or at the connection
printf '#!/bin/sh\nulimit -n %s\nexec "%s"\n' 5 "$WRITE_READ" >"$tmp/few"
chmod +x "$tmp/few"
"$FAULTLINE" run -q -- "$tmp/few" >"$tmp/out" 2>"$tmp/err" && fail "a device without descriptors"
says err 'ulimit -n|Too many open files'

if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	# another user's HOME: said once, and no reason to refuse
	chmod 755 "$tmp"
	mkdir "$tmp/home" "$tmp/home/.config"
	echo 'device = rxe' >"$tmp/home/.config/faultline.conf"
	chmod 600 "$tmp/home/.config/faultline.conf"
	if setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$FAULTLINE"; then
		expect 0 env -u XDG_CONFIG_HOME HOME="$tmp/home" setpriv --reuid 65534 --regid 65534 --clear-groups \
			"$FAULTLINE" run -- "$STUB" clean
		[ "$(grep -c 'not readable by this user' "$tmp/err")" = 1 ] || fail "not said once"
	fi
	# no /proc
	if unshare -m sh -c 'mount -t tmpfs none /proc' 2>/dev/null; then
		expect 0 unshare -m sh -c "mount -t tmpfs none /proc && exec '$FAULTLINE' run -q -- true"
	fi
fi
finish
