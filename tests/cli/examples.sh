#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The examples that are two processes by themselves, on devices with and without what they are about: they
# run everywhere, and say what they did instead where something is missing.
. "$(dirname "$0")/lib.sh"
: "${EXAMPLES:?the directory of the examples}"

on() {
	device=$1 example=$2
	expect 0 timeout 60 "$FAULTLINE" run --netdev lo --device "$device" -- "$EXAMPLES/$example"
	says err 'left over +nothing'
}

# one key for the whole address space where there are implicit regions, else one a value
implicit() { "$FAULTLINE" devices | grep -q "^$1 .*explicit, implicit"; }
for device in mlx5 rxe irdma; do
	on $device kv_store
	says out '^client: [0-9]+ puts, [0-9]+ gets, [0-9]+ deletes: data right'
	if implicit $device; then
		says out '^server: [0-9]+ values came and [0-9]+ went under one key'
		says err 'memory +1 MR on demand \(all addresses\)'
	elif [ $device = irdma ]; then
		says out '^server: .*registrations \(pinned;'
	else
		says out '^server: .*registrations \(on demand;'
	fi
done

on mlx5 storage_target
says out '^initiator: .*data right' '^target: .*data on demand, nothing copied; the ring pinned'
says err 'memory +1 MR pinned .*, 1 MR on demand \(256 MiB\)'
# the same program where there is no on-demand paging
on irdma storage_target
says out '^initiator: .*data right' '^target: .*by a pinned bounce buffer'
says err 'memory +2 MRs pinned'

for example in kv_store storage_target gpu_peer; do
	expect 2 "$EXAMPLES/$example" on disk
	says err "^usage: $example"
done

# a NIC that follows when the GPU moves its buffer, and one that pins it
on mlx5,irdma gpu_peer
says out '^accelerator and mlx5_fl0: data right; its memory never moves \(0 moves, 0 pins\)' \
	'^GPU and mlx5_fl0: data right; moved .*\(1 move, 0 pins\)' \
	'^accelerator and irdma_fl0: data right; its memory never moves \(0 moves, 1 pin\)' \
	'^GPU and irdma_fl0: data right; pinned: it cannot move .*\(0 moves, 1 pin\)'
finish
