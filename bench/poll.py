#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""make bench: two programs that poll their memory, which leaves no core to anybody who takes packets.

usage: poll.py    ($FAULTLINE: the command)

Debian's ib_write_lat, 8 bytes, both ends on this host: by direct placement, and by packets in shared memory.
Figures are the median of a run (its "typical" half round trip), then the least of the rounds.
"""
import os
import shutil
import subprocess
import sys
import time

ROUNDS = 3
TARGET = 5.0


def typical(link):
    """us, or None where it did not work"""
    args = [os.environ["FAULTLINE"], "run", "-q", "-l", link, "--", "ib_write_lat", "-s", "8", "-n", "5000"]
    server = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        out = subprocess.run(args + ["127.0.0.1"], text=True, timeout=120, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL).stdout
        server.wait(timeout=10)
    except subprocess.TimeoutExpired:
        return None
    finally:
        server.kill()
        server.wait()
    for line in out.splitlines():
        words = line.split()
        if len(words) > 5 and words[0] == "8" and words[1] == "5000":
            return float(words[4])
    return None


def main():
    if not shutil.which("ib_write_lat"):
        print("skipped: ib_write_lat (Debian's perftest) is not installed")
        return
    best = {}
    for _ in range(ROUNDS):
        for link in ("auto", "ring"):
            t = typical(link)
            if t is not None and t < best.get(link, 1e9):
                best[link] = t
    for link, what in (("auto", "placed directly"), ("ring", "by packets")):
        us = f"{best[link]:.1f} us" if link in best else "did not finish"
        goal = f"    (to reach: <= {TARGET:.0f} us)" if link == "auto" else ""
        print(f"ib_write_lat 8 B, both poll memory, {what:16} {us:>14}{goal}")


sys.exit(main())
