# SPDX-License-Identifier: BSD-2-Clause
"""The exchange (exchange.c) between both ends; the guest has the program from this run's archive."""
import os

import guest as g

CASES = ("rc-send", "rc-write", "rc-read", "rc-atomic", "rc-odp", "rc-odp-implicit",
         "rc-odp-moving", "rc-odp-unmapped", "rc-dmabuf-memfd", "rc-dmabuf-vram", "rc-dmabuf-moving", "rc-burst", "rc-rnr", "rc-rnr-exceeded",
         "rc-bad-rkey", "rc-out-of-bounds", "rc-no-right", "rc-too-long", "rc-gone", "uc-send", "uc-write",
         "uc-dropped", "ud", "ud-multicast")


def pair(runner, program, case, v6, host_serves, limit=g.LIMIT):
    runner.port += 1
    here, there = runner.gid[v6]
    mine = [program, "-", str(here), str(runner.port)]
    theirs = f"LD_LIBRARY_PATH=/ /{os.path.basename(program)} rxe0 {there} {runner.port}"
    if host_serves:
        host = runner.on_host(mine, limit)
        guest = runner.guest.start(f"{theirs} {g.HOST4} {case}", limit)
    else:
        guest = runner.guest.start(theirs, limit)
        host = runner.on_host([*mine, g.GUEST4, case], limit)
    return host.wait(limit + 5), guest.wait(limit + 5)


def run(runner, program):
    for v6 in (False, True):
        for case in CASES:
            runner.case(f"exchange-{case}", lambda serves: pair(runner, program, case, v6, serves), v6,
                        case.startswith("uc") or case == "rc-gone")


WEATHER_CASES = ("rc-send", "rc-write", "rc-read", "rc-atomic", "rc-burst", "rc-rnr", "rc-odp-moving", "rc-dmabuf-moving")


# to rxe a READ is done when an acknowledgement of what came after it overtakes its data
NOT_REQUESTED_BY_RXE = {("reorder", "rc-burst")}


def run_in(runner, program, weather):
    for case in WEATHER_CASES:
        runner.case(f"{weather}_exchange-{case}", lambda serves: pair(runner, program, case, False, serves), False,
                    roles=(False,) if (weather, case) in NOT_REQUESTED_BY_RXE else (False, True))
