#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# run: what the files of a device say; that they go when the program has ended, and those of a `run` that was killed
# when another comes; that without a place for them programs run all the same.
. "$(dirname "$0")/lib.sh"
export TMPDIR="$tmp"
trees() { find "$tmp" -maxdepth 1 -name 'faultline-sysfs.*' | wc -l; }
gone() { [ "$(trees)" = 0 ]; }
there() { [ "$(trees)" = "$1" ]; }

class=/sys/class/infiniband
# shellcheck disable=SC2016
expect 0 "$FAULTLINE" run -q --netdev lo --device mlx5,efa -- sh -c 'd=/sys/class/infiniband/$1 p=$d/ports/1
	ls /sys/class/infiniband /dev/infiniband
	cat $d/node_type $d/node_guid $d/fw_ver $p/state $p/phys_state $p/rate $p/link_layer $p/lid $p/gids/0 $p/pkeys/0 \
		$p/gid_attrs/types/0 $p/gid_attrs/ndevs/0 $d/device/vendor $d/device/device
	cat /sys/class/infiniband_verbs/uverbs1/ibdev /sys/class/infiniband_verbs/abi_version
	readlink $d/device/driver; cat /sys/class/infiniband/efa_fl0/device/vendor /sys/class/infiniband/efa_fl0/node_type
	[ ! -e $p/gid_attrs/types/200 ] || echo too much' sh mlx5_fl0
says out '^mlx5_fl0$' '^efa_fl0$' '^uverbs0$' '^uverbs1$' '^1: CA$' '^0[0-9a-f:]{18}$' '^16\.' '^4: ACTIVE$' \
	'^5: LinkUp$' '^100 Gb/sec \(4X EDR\)$' '^Ethernet$' '^0x0$' '^0000:0000:0000:0000:0000:ffff:7f00:0001$' \
	'^0xffff$' '^RoCE v2$' '^lo$' '^0xfa17$' '^0x0001$' '^6$' '/drivers/mlx5$' '^0x1d0f$' '^7: unspecified$'
! grep -q 'too much' "$tmp/out" || fail 'a GID that there is not'
gone || fail 'files are left behind'

expect 0 "$FAULTLINE" run -q --netdev lo --name my0 --vendor-id 0x02c9 --part-id 4119 -- \
	cat $class/my0/device/vendor $class/my0/device/device
says out '^0x02c9$' '^0x1017$'
expect 3 "$FAULTLINE" run -q -- sh -c 'exit 3'
expect 127 "$FAULTLINE" run -q -- "$tmp/no such program"
gone || fail 'files are left behind by what failed'

# killed: the next one removes them, but not those of one that runs
"$FAULTLINE" run -q -- sleep 60 &
killed=$!
wait_until 10 there 1 || fail 'no files'
kill -KILL $killed
wait $killed 2>/dev/null
there 1 || fail 'who removed them?'
"$FAULTLINE" run -q -- sh -c ': >"$0.started"; while ! [ -e "$0" ]; do sleep 0.05; done; ls /dev/infiniband' "$tmp/go" \
	>"$tmp/long" &
long=$!
wait_until 10 test -e "$tmp/go.started" || fail 'no program'
expect 0 "$FAULTLINE" run -q -- ls /dev/infiniband
says out '^uverbs0$'
there 1 || fail 'those of a process that runs are gone, or those of one that was killed are not'
: >"$tmp/go"
wait $long || fail 'its files were taken away'
says long '^uverbs0$'
gone || fail 'files are left behind'

# no file may be written: it is said, and the program runs; it has the signal that is for it
(ulimit -f 0 && "$FAULTLINE" run -q -- sh -c 'echo it runs; kill -XFSZ $$' 2>&1 && echo 'without end') | cat >"$tmp/out"
says out 'no files of the device .*: File too large' '^it runs$'
! grep -q 'without end' "$tmp/out" || fail 'SIGXFSZ is ignored in the program'
gone || fail 'what could not be written is left behind'

# a program that goes on as another user finds them, whatever the mask
(umask 077 && "$FAULTLINE" run -q -- sh -c 'umask; stat -L -c %a /sys/class/infiniband /dev/infiniband') >"$tmp/out"
says out '^0077$' '^755$'
! grep -q '^7[0-4]' "$tmp/out" || fail 'a directory is for one user'

# another directory where TMPDIR is none
TMPDIR=/nonexistent expect 0 "$FAULTLINE" run -q -- ls $class
says out '_fl0$'
finish
