#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# own-net.sh PROGRAM ARG...: runs it in a network namespace of its own, where that may be made. The port of
# RoCEv2 is shared by all processes of a namespace, and so is what is lost with one that is killed or hangs.
for how in -n -rn; do
	if unshare $how true 2>/dev/null; then
		# shellcheck disable=SC2016
		exec unshare $how sh -c 'ip link set lo up && exec "$@"' own-net.sh "$@"
	fi
done
exec "$@"
