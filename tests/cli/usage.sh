#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Help goes to standard output with status 0; bad usage is status 2 with a hint on standard error.
. "$(dirname "$0")/lib.sh"

for c in '' run stat top devices doctor; do
	# shellcheck disable=SC2086
	expect 0 "$FAULTLINE" $c --help
	says out '^Usage: faultline'
	silent err
done
expect 0 "$FAULTLINE" --version
says out '^faultline [0-9]+\.[0-9]+'

expect 2 "$FAULTLINE"
expect 2 "$FAULTLINE" frobnicate
says err "no command 'frobnicate'" 'Try'
expect 2 "$FAULTLINE" run
expect 2 "$FAULTLINE" run --
expect 2 "$FAULTLINE" run --frobnicate -- true
says err 'frobnicate' "Try 'faultline run --help'"
expect 2 "$FAULTLINE" run --device
expect 2 "$FAULTLINE" run --device nosuch -- true
says err "'nosuch'"
expect 2 "$FAULTLINE" run --device mlx5, -- true
expect 2 "$FAULTLINE" run --netdev nosuchdev0 -- true
says err "'nosuchdev0'"
expect 2 "$FAULTLINE" run --link tcp -- true
says err 'auto, ring or udp'
expect 2 "$FAULTLINE" run --config /nonexistent -- true
says err '/nonexistent'
expect 2 "$FAULTLINE" stat a b
expect 2 "$FAULTLINE" devices extra
expect 2 "$FAULTLINE" doctor extra
expect 2 "$FAULTLINE" top -d 0
expect 2 "$FAULTLINE" top -n none

expect 0 "$FAULTLINE" devices
says out '^PROFILE' '^mlx5 ' '^rxe ' '^DEVICE' '^mlx5_fl0 '
says out '^mlx5 .* dynamic ' '^rxe  *explicit  *none ' '^irdma  *none  *pinned, revocable  *RC UD  *none ' \
	'^mana  *none  *pinned  *RC  *none ' '^efa  *none  *pinned  *UD SRD '
expect 0 "$FAULTLINE" devices --device rxe,mlx5,rxe --netdev lo
says out '^rxe_fl0 ' '^mlx5_fl0 ' '^rxe_fl1 '
expect 0 "$FAULTLINE" devices --json
python3 - <<'EOF' "$tmp/out" || fail "devices --json: wrong"
import json, sys
p = {p["name"]: p for p in json.load(open(sys.argv[1]))["profiles"]}
assert set(p) == {"mlx5", "rxe", "irdma", "bnxt_re", "mana", "efa"}, p.keys()
assert p["mlx5"]["on_demand_operations"]["ud"] == ["send"] and "on demand" in p["mlx5"]["access"]
assert p["irdma"]["dma_buf"] == "pinned, revocable" and p["irdma"]["limits"]["sge"] == 13
assert not any(p[n]["on_demand_operations"]["rc"] for n in ("irdma", "bnxt_re", "mana", "efa"))
EOF

"$FAULTLINE" --help >/dev/full 2>"$tmp/err" && fail "a full disk is not noticed"
says err 'No space left'
finish
