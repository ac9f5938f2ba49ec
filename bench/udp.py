#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""make bench: RoCEv2 over a veth pair between two network namespaces, beside one TCP stream of iperf3. As root.

usage: udp.py    ($FAULTLINE: the command)

Each round has both, one after the other; ratios are taken within a round. The rows with a bottleneck are a
token bucket of 200 Mbit with a queue of 60 KB, and loss of 1 %, by --impair, of an unlimited path. Several pairs of
processes at once share one address and port, which the kernel chooses one of them for; beside them as many pairs that
have an address each.
"""
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

ROUNDS = 3
SERVER, CLIENT = "10.98.7.1", "10.98.7.2"
BOTTLENECK = 200e6 / 8 / (1 << 20)  # MiB/s


def sh(*args, check=True):
    return subprocess.run(args, check=check, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


class Pair:
    """two namespaces and a veth pair, for as long as it is open"""

    def __init__(self, mtu, slow=False):
        self.ns = [f"flbench{os.getpid()}{end}" for end in "ab"]
        self.mtu, self.slow = mtu, slow

    def __enter__(self):
        for n in self.ns:
            sh("ip", "netns", "add", n)
        sh("ip", "link", "add", "flb0", "netns", self.ns[0], "type", "veth", "peer", "name", "flb0", "netns", self.ns[1])
        for n, address in zip(self.ns, (SERVER, CLIENT)):
            sh("ip", "-n", n, "addr", "add", address + "/24", "dev", "flb0")
            sh("ip", "-n", n, "link", "set", "lo", "up")
            sh("ip", "-n", n, "link", "set", "flb0", "mtu", str(self.mtu), "up")
            if self.slow:
                sh("tc", "-n", n, "qdisc", "add", "dev", "flb0", "root", "tbf", "rate", "200mbit", "burst", "32k",
                   "limit", "60k")
        return self

    def __exit__(self, *_):
        for n in self.ns:
            sh("ip", "netns", "del", n, check=False)

    def run(self, server, client, env=None):
        """what the client printed; None where it failed"""
        env = dict(os.environ, **(env or {}))
        s = subprocess.Popen(["ip", "netns", "exec", self.ns[0]] + server, env=env, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        try:
            time.sleep(1)
            c = subprocess.run(["ip", "netns", "exec", self.ns[1]] + client, env=env, text=True, timeout=40,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            return c.stdout if c.returncode == 0 else None
        except subprocess.TimeoutExpired:
            return None
        finally:
            s.kill()
            s.wait()

    def perftest(self, program, *args, column=3, impair=""):
        """a figure of perftest's line of results, or None"""
        command = [os.environ["FAULTLINE"], "run", "-q", "--", program] + list(args)
        out = self.run(command, command + [SERVER], {"FAULTLINE_NETDEV": "flb0", "FAULTLINE_IMPAIR": impair})
        lines = [line.split() for line in (out or "").splitlines() if re.match(r"^ \d+ ", line)]
        return float(lines[-1][column]) if lines else None

    def tcp(self):
        """MiB/s of one stream"""
        out = self.run(["iperf3", "-s", "-1"], ["iperf3", "-c", SERVER, "-t", "3", "-f", "M"])
        rates = re.findall(r"([\d.]+) MBytes/sec.*receiver", out or "")
        return float(rates[-1]) if rates else None


def row(what, figure, beside="", goal="", ok=None):
    print(f"{what:46} {figure:>14}    {beside:28} {goal:12} {'' if ok is None else 'ok' if ok else 'MISSED'}".rstrip())


def show(value, unit, form="{:.0f}"):
    return "no result" if value is None else form.format(value) + " " + unit


def med(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def beside_tcp(mtu):
    have = shutil.which("iperf3")
    ours, theirs = [], []
    with Pair(mtu) as pair:
        for _ in range(ROUNDS):
            ours.append(pair.perftest("ib_write_bw", "-s", "65536", "-D", "3"))
            theirs.append(pair.tcp() if have else None)
        over = med(o / t for o, t in zip(ours, theirs) if o and t)
        row(f"ib_write_bw 64 KiB over veth, MTU {mtu}", show(med(ours), "MiB/s"),
            f"{over:.2f} x TCP" if over else "iperf3 is not installed" if not have else "", ">= 1 x TCP",
            over >= 1 if over else None)
        row("  iperf3, one TCP stream", show(med(theirs), "MiB/s"))
        if mtu < 9000:
            rate = med(pair.perftest("ib_write_bw", "-s", "8", "-D", "3", column=4) for _ in range(ROUNDS))
            row("  8-byte WRITEs", show(rate, "M/s", "{:.2f}"))
            lat = med(pair.perftest("ib_send_lat", "-s", "8", "-n", "2000", column=4) for _ in range(ROUNDS))
            row("  ib_send_lat 8 B, half round trip", show(lat, "us", "{:.1f}"))
            loss = med(pair.perftest("ib_write_bw", "-s", "65536", "-D", "3", impair="loss=1%") for _ in range(ROUNDS))
            row("  with 1 % of the packets lost", show(loss, "MiB/s"))


PAIRS = 4


def side(pair, end, i, shared, size, to=None):
    """one end of pair i"""
    name = "flb0" if shared else f"flb{i}"
    command = ["ip", "netns", "exec", pair.ns[end], os.environ["FAULTLINE"], "run", "-q", "--", "ib_write_bw", "-s",
               str(size), "-D", "3", "-p", str(18600 + i)] + ([to] if to else [])
    return subprocess.Popen(command, env=dict(os.environ, FAULTLINE_NETDEV=name), text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL)


def several(pair, shared, size, column):
    """sum of the pairs' figures; None where one failed"""
    servers = [side(pair, 0, i, shared, size) for i in range(PAIRS)]
    time.sleep(2)
    clients = [side(pair, 1, i, shared, size, SERVER if shared or not i else f"10.98.{100 + i}.1") for i in range(PAIRS)]
    total = 0.0
    for p in clients + servers:
        try:
            out = p.communicate(timeout=40)[0]
        except subprocess.TimeoutExpired:
            p.kill()
            p.communicate()
            out = ""
        lines = [line.split() for line in out.splitlines() if re.match(r"^ \d+ ", line)]
        if p in clients:
            total = None if not lines or total is None else total + float(lines[-1][column])
    return total


def one_address():
    with Pair(1500) as pair:
        for i in range(1, PAIRS):
            sh("ip", "link", "add", f"flb{i}", "netns", pair.ns[0], "type", "veth", "peer", "name", f"flb{i}", "netns",
               pair.ns[1])
            for n, end in zip(pair.ns, "12"):
                sh("ip", "-n", n, "addr", "add", f"10.98.{100 + i}.{end}/24", "dev", f"flb{i}")
                sh("ip", "-n", n, "link", "set", f"flb{i}", "up")
        for size, column, unit, form in ((65536, 3, "MiB/s", "{:.0f}"), (8, 4, "M/s", "{:.3f}")):
            shared, own = [], []
            for _ in range(ROUNDS):
                shared.append(several(pair, True, size, column))
                own.append(several(pair, False, size, column))
            over = med(s / o for s, o in zip(shared, own) if s and o)
            row(f"{PAIRS} x ib_write_bw {size} B at one address", show(med(shared), unit, form),
                f"{over:.2f} x an address each" if over else "", ">= 0.5 x", over >= 0.5 if over else None)


def bottleneck():
    with Pair(1500, slow=True) as pair:
        rate = med(pair.perftest("ib_write_bw", "-s", "65536", "-D", "3") for _ in range(ROUNDS))
        share = rate / BOTTLENECK if rate else None
        row("ib_write_bw 64 KiB, 200 Mbit and a short queue", show(rate, "MiB/s", "{:.1f}"),
            f"{share:.2f} x the rate" if share else "", ">= 0.7 x", share >= 0.7 if share else None)


def main():
    missing = [p for p in ("ip", "tc", "ib_write_bw") if not shutil.which(p)]
    if os.geteuid() or missing:
        print("skipped: needs root" + (", and " + ", ".join(missing) if missing else ""))
        return
    beside_tcp(1500)
    beside_tcp(9000)
    one_address()
    bottleneck()


main()
