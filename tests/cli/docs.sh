#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The man pages name every setting, variable and option that there is.
. "$(dirname "$0")/lib.sh"
docs=$(dirname "$0")/../../docs

# in mdoc a long option is written "Fl -name"
options() { "$FAULTLINE" "$1" --help | grep -o -- '--[a-z][a-z-]*' | sort -u | sed 's/^--//'; }
for c in run stat top devices doctor; do
	for o in $(options $c); do
		[ "$o" = help ] || grep -Eq "Fl -$o( |\$)" "$docs/faultline-$c.1" || fail "faultline-$c.1: no --$o"
	done
done

"$FAULTLINE" run --help | sed -n '/^Settings/,$p' | grep -o '^  [a-z_]* *FAULTLINE_[A-Z_]*' >"$tmp/settings"
[ "$(wc -l <"$tmp/settings")" -ge 9 ] || fail "run --help lists no settings"
while read -r name variable; do
	grep -q "^.It Va $name Pq Ev $variable" "$docs/faultline.conf.5" || fail "faultline.conf.5: no $name, $variable"
done <"$tmp/settings"

if command -v man >/dev/null; then
	for page in "$docs"/*.[1-8]; do
		man -l --warnings "$page" 2>"$tmp/warnings" >/dev/null
		[ ! -s "$tmp/warnings" ] || fail "$page: $(cat "$tmp/warnings")"
	done
fi
finish
