#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# scripts/setup.sh against a pretended system: it asks apt for what is missing and for nothing else, and says
# what to do where it may not. FAULTLINE and STUB are not used.
. "$(dirname "$0")/lib.sh"
setup=$(cd "$(dirname "$0")/../../scripts" && pwd)/setup.sh
mkdir "$tmp/bin"
for tool in awk sh sed dirname env cat rm; do
	ln -s "$(command -v $tool)" "$tmp/bin/$tool"
done

pretend() { # name, script
	printf '#!/bin/sh\n%s\n' "$2" >"$tmp/bin/$1"
	chmod +x "$tmp/bin/$1"
}
pretend apt-get 'echo "apt-get $*" >>"$LOG"; [ ! -e "$LOG.stale" ] || { [ "$1" = update ] && rm "$LOG.stale"; }'
pretend id 'echo "${PRETEND_UID:-0}"'
export LOG="$tmp/log"
run() { PATH=$tmp/bin sh "$setup"; }
installed='[ "$1" = -W ] && printf installed'
missing='case $4 in meson) printf not-installed; exit 0;; perftest) exit 1;; iproute2) printf config-files; exit 0;; esac; printf installed'

pretend dpkg-query "$installed"
expect 0 run
silent out
silent err
[ ! -e "$LOG" ] || fail "apt was called though all is there"

pretend dpkg-query "$missing"
expect 0 run
says log '^apt-get install .* meson perftest iproute2$'
[ "$(wc -l <"$LOG")" = 1 ] || fail "more than one call of apt: $(cat "$LOG")"

# package lists are fetched only when it did not go without
: >"$LOG" >"$LOG.stale"
expect 0 run
[ "$(sed 's/^apt-get \([a-z]*\).*/\1/' "$LOG" | tr '\n' ' ')" = "install update install " ] ||
	fail "not install, update, install: $(cat "$LOG")"

export PRETEND_UID=1000
: >"$LOG"
expect 1 run
says err 'neither root nor' 'apt-get install meson perftest iproute2'
[ ! -s "$LOG" ] || fail "apt was called without the right to"
pretend sudo 'echo sudo >>"$LOG"; exec "$@"'
expect 0 run
says log '^sudo$' '^apt-get install '
finish
