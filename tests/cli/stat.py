#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""stat: finds processes, shows their counters exactly, as text and JSON; leaves them alone."""
import json
import os
import signal
import subprocess

FAULTLINE, STUB = os.environ["FAULTLINE"], os.environ["STUB"]
ENV = {k: v for k, v in os.environ.items() if not k.startswith("FAULTLINE_")}
LEAK_SLOT, MUTE_SLOT, COLD_SLOT = "1013", "1014", "1015"


def stub(*args):
    p = subprocess.Popen([STUB, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENV)
    assert p.stdout.readline() == "ready\n"
    return p


def stat(*args, status=0):
    r = subprocess.run([FAULTLINE, "stat", *args], capture_output=True, text=True, env=ENV, timeout=20)
    assert r.returncode == status, (args, r)
    return r


def stat_json(*args):
    return json.loads(stat("--json", *args).stdout)


def blocks(pid):
    """what the process's segment takes"""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        if "memfd:faultline" in os.readlink(path):
            return os.stat(path).st_blocks
    raise AssertionError("no segment")


leak = stub("leak", LEAK_SLOT)
mute = stub("clean", MUTE_SLOT, "mute")
cold = stub("cold", COLD_SLOT)
try:
    before = blocks(leak.pid)
    by_pid = {p["pid"]: p for p in stat_json()}
    assert leak.pid in by_pid and mute.pid in by_pid, by_pid

    p = by_pid[leak.pid]
    assert p["comm"] == "stub" and p["slot"] == int(LEAK_SLOT) and 0 <= p["uptime"] < 60, p
    (dev,) = p["devices"]
    assert (dev["name"], dev["profile"], dev["gid"]) == ("mlx5_fl0", "mlx5", "192.0.2.7"), dev
    assert dev["counters"]["rdma_writes"] == 42
    assert dev["counters"]["page_faults"] == 9007199254740993, "not to the last digit"
    assert dev["counters"]["qp"] == 1 and dev["counters"]["rx_icrc_err"] == 0
    assert [(m["key"], m["kind"], m["length"]) for m in p["mrs"]] == [
        (0x101, "pinned", 8192), (0xFFFFFF02, "on-demand", 5 << 20)], p["mrs"]
    assert p["mrs"][1]["page_faults"] == 17 and p["mrs"][1]["page_refaults"] == 5
    assert p["mrs"][1]["pinned_pages"] == 3
    times = p["mrs"][1]["histograms"]
    assert times["fault_time"] == [2, 1] + [0] * 22 and times["stall_time"] == [0] * 23 + [4], times
    assert set(dev["histograms"]) == {"fault_time", "stall_time"}
    assert p["mrs"][0]["access"] == 0x100003
    assert p["mrs"][0]["access_flags"] == ["local-write", "remote-write", "relaxed-ordering"]
    assert by_pid[mute.pid]["mrs"] == []
    # to look at it fills the holes of the header, not of the key table
    assert blocks(leak.pid) - before < 256, (blocks(leak.pid), before)

    # one of them, by pid, by name; none
    assert [p["pid"] for p in stat_json(str(leak.pid))] == [leak.pid]
    assert {leak.pid, mute.pid} <= {p["pid"] for p in stat_json("stub")}
    assert {leak.pid, mute.pid} <= {p["pid"] for p in stat_json("mlx5_fl0")}
    assert "nosuch" in stat("nosuch", status=1).stderr
    assert json.loads(stat("--json", "nosuch", status=1).stdout) == []

    # text: only what is not zero, all of it with --all
    text = stat(str(leak.pid)).stdout
    assert f"stub (pid {leak.pid})" in text and "rdma_writes" in text and "0xffffff02" in text, text
    assert "eth?0" in text and "rx_icrc_err" not in text, text
    assert "local-write,remote-write,relaxed-ordering\n" in text and "local-read\n" in text, text
    assert "rx_icrc_err" in stat("--all", str(leak.pid)).stdout

    text = stat(str(cold.pid)).stdout
    assert "<128us 60 " in text and "<1024us 40 " in text and "<4us 100 " in text, text

    # one that is stopped is read all the same
    os.kill(leak.pid, signal.SIGSTOP)
    assert [p["pid"] for p in stat_json(str(leak.pid))] == [leak.pid]
    os.kill(leak.pid, signal.SIGCONT)

    # top: as many tables as asked for; 100 packets between two looks, and nothing else
    r = subprocess.run([FAULTLINE, "top", "-n", "2", "-d", "0.2"], capture_output=True, text=True, env=ENV, timeout=20)
    rows = [l.split() for l in r.stdout.splitlines() if l.split()[0] == str(leak.pid)]
    assert r.returncode == 0 and len(rows) == 2 and r.stdout.count("PROGRAM") == 2, r
    assert rows[1][1:3] == ["stub", "mlx5_fl0"] and rows[0][4] == "0", rows
    rate = [float(x) for x in rows[1][3:11]]
    assert 20 < rate[1] <= 500 and sum(rate) == rate[1], rows

    # killed: it is gone
    leak.kill()
    leak.wait()
    assert leak.pid not in {p["pid"] for p in stat_json()}
finally:
    for p in (leak, mute, cold):
        p.kill()
        p.wait()
