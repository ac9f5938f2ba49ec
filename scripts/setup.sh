#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Installs the Debian packages of packages.txt that are missing; silent and without apt when all are there.
#   setup.sh [X]     those "only for X" too
set -eu
list=$(dirname "$0")/packages.txt

if ! command -v dpkg-query >/dev/null; then
	echo "setup: no dpkg here. Install what $list names in this system's way." >&2
	exit 0
fi

missing=
for p in $(awk -v also="${1:-}" '/^# only for / { skip = $4 != also } !skip { sub(/#.*/, ""); print }' "$list"); do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null || true)
	case $status in *installed*) [ "$status" != not-installed ] && continue ;; esac
	missing="$missing $p"
done
[ -n "$missing" ] || exit 0

echo "setup: installing:$missing"
if [ "$(id -u)" = 0 ]; then
	sudo=
elif command -v sudo >/dev/null; then
	sudo=sudo
else
	cat >&2 <<END
setup: packages are missing, and this is neither root nor is there a sudo. As root, run:
    apt-get install$missing
END
	exit 1
fi

# One try with the package lists as they are; fresh lists when that fails.
apt_install() {
	# shellcheck disable=SC2086
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
}
apt_install >/dev/null 2>&1 || { $sudo apt-get update -q && apt_install; }
