#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# make interop: our device against the kernel's soft RoCE, which runs in a guest (interop-guest.sh) behind a tap.
#   interop.sh BUILD [CASE...]     CASE is the beginning of a name, such as exchange-rc or write_bw
# Says what it lacks, and ends with 0, where that cannot be.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1
shift
guest=$build/interop

skip() {
	echo "interop: skipped: $*"
	exit 0
}

[ "$(uname -m)" = x86_64 ] || skip "this machine is no x86-64"
# in a user namespace there would be a tap, but tcpdump could not become the user it captures as
[ "$(id -u)" = 0 ] || skip "this is not root, who can make a tap and capture what goes over it"
sh scripts/setup.sh interop || skip "what scripts/packages.txt lists for it is not installed"
for program in qemu-system-x86_64 tcpdump tshark busybox xz ip python3; do
	command -v $program >/dev/null || skip "no $program here"
done
namespace="unshare --net"
$namespace true 2>/dev/null || skip "no network namespace can be made here"
$namespace ip tuntap add dev fl-interop mode tap 2>/dev/null || skip "no tap can be made here (/dev/net/tun)"
sh scripts/interop-guest.sh "$guest" || skip "the guest could not be made"

exec $namespace python3 tests/interop/interop.py "$build/faultline" "$build/tests/interop/interop-exchange" \
	"$build/native/libfaultline.so.1" "$guest" "$@"
