#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs programs of Debian's packages, unmodified, under `faultline run`: a server and a client of each.

usage: tools.py GROUP    (devices, pingpong, perftest-bw, perftest-lat, perftest-odp, perftest-udp, ud, xrc,
                          netns, bottleneck, profiles, srd)

Every pair has a TCP port of its own, a time limit, and must end with status 0 at both sides with what
it should have said. Tests run in parallel, so ports are drawn and tried. Exit status: 0, 1, or 77.
"""
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

FAULTLINE = os.environ["FAULTLINE"]
SKIP = 77
failures = []


def need(*programs):
    for p in programs:
        if not shutil.which(p):
            print(f"skipped: {p} is not installed")
            sys.exit(SKIP)


def free_port():
    # not from the range that the kernel draws from: nobody's outgoing connection takes it meanwhile
    while True:
        port = 10000 + int.from_bytes(os.urandom(2), "big") % 20000
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("", port))
                return port
            except OSError:
                continue


def listening(port, pid):
    want = f":{port:04X} "
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{table}") as f:
                if any(want in line and " 0A " in line for line in f):
                    return True
        except OSError:
            pass
    return False


def stop(process):
    if process.poll() is None:
        process.kill()
    process.communicate()


LEAVES = ("ib_atomic_lat",  # its server exits as it stands
          "fi_pingpong")    # libfabric closes no device


def pair(command, expect, limit=40, env=None, server_prefix=(), client_prefix=(), host="127.0.0.1", port_options=("-p", "-p")):
    """
    command: with its port appended, by the options of server and client; the client's has the host too. expect: patterns
    in both outputs.
    """
    port = free_port()
    env = dict(os.environ, **(env or {}))
    title = " ".join([*command, port_options[0], str(port)])
    start = time.monotonic()

    def begin(prefix, option, extra):
        return subprocess.Popen([*prefix, FAULTLINE, "run", "--", *command, option, str(port), *extra], env=env, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    server = begin(server_prefix, port_options[0], [])
    while not listening(port, server.pid) and server.poll() is None and time.monotonic() < start + 10:
        time.sleep(0.02)
    client = begin(client_prefix, port_options[1], [host])
    wrong = None
    out = ["", ""]
    for i, p in enumerate((client, server)):
        try:
            out[i], _ = p.communicate(timeout=max(1, start + limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            wrong = f"{('client', 'server')[i]} did not end within {limit} s"
            break
    if wrong:
        for i, p in enumerate((client, server)):
            if p.poll() is None:
                p.terminate()
                try:
                    out[i], _ = p.communicate(timeout=5)
                except subprocess.TimeoutExpired:
                    stop(p)
    elif client.returncode or server.returncode:
        wrong = f"status {client.returncode} of the client, {server.returncode} of the server"
    else:
        for pattern in expect:
            for side, text in zip(("client", "server"), out):
                if not re.search(pattern, text):
                    wrong = f"the {side} does not say /{pattern}/"
        for side, text in zip(("client", "server"), out):
            if re.search(r"^  left over:", text, re.M) and command[0] not in LEAVES and not wrong:
                wrong = f"the {side} left something over"
    print(f"{'FAIL' if wrong else 'ok':4} {time.monotonic() - start:5.1f} s  {title}", flush=True)
    if wrong:
        failures.append(title)
        print(f"  {wrong}\n  -- client:\n{out[0]}\n  -- server:\n{out[1]}", flush=True)
    return out


def alone(command, expect):
    p = subprocess.run([FAULTLINE, "run", "-q", "--", *command], text=True, capture_output=True, timeout=30)
    wrong = None if p.returncode == 0 else f"status {p.returncode}"
    for pattern in expect:
        if not re.search(pattern, p.stdout, re.M):
            wrong = f"does not say /{pattern}/"
    print(f"{'FAIL' if wrong else 'ok':4} {' '.join(command)}")
    if wrong:
        failures.append(" ".join(command))
        print(f"  {wrong}\n{p.stdout}\n{p.stderr}")


def devices():
    need("ibv_devices", "ibv_devinfo", "ibv_asyncwatch")
    alone(["ibv_devices"], [r"^\s+mlx5_fl0\s+[0-9a-f]{16}$"])
    alone(["ibv_devinfo"], [r"hca_id:\s+mlx5_fl0", r"state:\s+PORT_ACTIVE", r"link_layer:\s+Ethernet"])
    alone(["ibv_devinfo", "-v"],
          [r"transport:\s+InfiniBand", r"ODP_SUPPORT", r"rc_odp_caps:\s+SUPPORT_SEND\s+SUPPORT_RECV\s+SUPPORT_WRITE"
           r"\s+SUPPORT_READ\s+SUPPORT_ATOMIC", r"GID\[\s+0\]:\s+::ffff:127\.0\.0\.1, RoCE v2", r"max_msg_sz:\s+0x80000000"])
    alone(["ibv_devinfo", "-l"], [r"1 HCA found", r"mlx5_fl0"])
    alone(["ibv_devinfo", "-d", "mlx5_fl0", "-i", "1"], [r"active_mtu:\s+4096"])
    os.environ["FAULTLINE_DEVICE"] = "mlx5,rxe"
    alone(["ibv_devices"], [r"mlx5_fl0", r"rxe_fl0"])
    alone(["ibv_devinfo", "-v", "-d", "rxe_fl0"], [r"vendor_id:\s+0xffffff"])


def pingpong():
    need("ibv_rc_pingpong")
    base = ["ibv_rc_pingpong", "-g", "0", "-n", "200"]
    says = [r"200 iters in"]
    # not -t with -e: it takes an event for a completion that it has polled already as an error
    for extra in ([], ["-e"], ["-o"], ["-N"], ["-t"], ["-c"], ["-o", "-c"], ["-o", "-e", "-c"], ["-N", "-o", "-c"],
                  ["-r", "1", "-c"], ["-l", "5"]):
        pair(base + extra, says)
    for size in (1, 63, 4095, 65537, 1 << 20):
        pair(base + ["-c", "-s", str(size)], says)
    pair(base + ["-c", "-o", "-s", str(1 << 20)], says)
    for mtu in (256, 512, 1024, 2048, 4096):
        pair(base + ["-c", "-m", str(mtu), "-s", "10001"], says)


SIZES = (2, 4096, 65536, 1 << 20)
BW_ROW = r"(?m)^ *{} +\d+ +[\d.]+"


def bw(tool, *extra, size=65536, n=200):
    # the line with the result is on both sides, but for tests by one side's clock alone
    args = [tool, "-x", "0", "-F", "-s", str(size), *extra]
    if "-D" not in extra:
        args += ["-n", str(n)]
    return pair(args, [])


def result(outputs, size, title):
    if not re.search(BW_ROW.format(size), outputs[0]):
        failures.append(title)
        print(f"FAIL the client prints no result of {size} bytes: {title}\n{outputs[0]}")


def perftest_bw():
    need("ib_write_bw")
    for tool in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
        for size in SIZES:
            result(bw(tool, size=size), size, tool)
        result(bw(tool, "-q", "4"), 65536, tool)
        result(bw(tool, "-e") if tool == "ib_send_bw" else bw(tool, "-m", "1024"), 65536, tool)
        result(bw(tool, "--use_old_post_send"), 65536, tool)
        result(bw(tool, "-l", "8"), 65536, tool)
        result(bw(tool, "-D", "1"), 65536, tool)
    for tool in ("ib_write_bw", "ib_send_bw"):
        result(bw(tool, "-b"), 65536, tool)
    result(bw("ib_write_bw", "-I", "64", size=64), 64, "inline")
    for kind in ("FETCH_AND_ADD", "CMP_AND_SWAP"):
        result(pair(["ib_atomic_bw", "-x", "0", "-F", "-n", "200", "-A", kind], []), 8, kind)


def perftest_lat():
    need("ib_write_lat")
    for tool in ("ib_write_lat", "ib_read_lat", "ib_send_lat"):
        for size in SIZES:
            result(pair([tool, "-x", "0", "-F", "-n", "200", "-s", str(size)], []), size, tool)
    result(pair(["ib_send_lat", "-x", "0", "-F", "-n", "200", "-e"], []), 2, "events")
    result(pair(["ib_send_lat", "-x", "0", "-F", "-n", "200", "--use_old_post_send"], []), 2, "old post_send")
    for kind in ("FETCH_AND_ADD", "CMP_AND_SWAP"):
        result(pair(["ib_atomic_lat", "-x", "0", "-F", "-n", "200", "-A", kind], []), 8, kind)


def perftest_odp():
    need("ib_write_bw")
    for tool in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
        for size in (2, 65536, 1 << 20):
            result(bw(tool, "--odp", size=size), size, tool)
    for tool in ("ib_write_lat", "ib_read_lat", "ib_send_lat"):
        result(pair([tool, "-x", "0", "-F", "-n", "200", "-s", "4096", "--odp"], []), 4096, tool)
    result(bw("ib_write_bw", "--odp", "-q", "4", "-b"), 65536, "odp -q 4 -b")


def perftest_udp():
    need("ib_write_bw")
    os.environ["FAULTLINE_LINK"] = "udp"
    for tool in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
        result(bw(tool, "--odp", size=65536), 65536, tool)
    # ib_write_lat spins on memory on both sides: between namespaces, where each has its own socket
    for tool in ("ib_read_lat", "ib_send_lat"):
        result(pair([tool, "-x", "0", "-F", "-n", "200", "-s", "4096"], []), 4096, tool)
    pair(["ibv_rc_pingpong", "-g", "0", "-n", "200", "-c", "-s", "100001"], [r"200 iters in"])
    pair(["ibv_rc_pingpong", "-g", "0", "-n", "200", "-e", "-o"], [r"200 iters in"])
    # processes of this user that read nothing, as when they are stopped, are in nobody's way
    deaf = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
    for d in deaf:
        d.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        d.bind(("127.0.0.1", 4791))
    for _ in range(3):
        pair(["ibv_rc_pingpong", "-g", "0", "-n", "100"], [r"100 iters in"])
    for d in deaf:
        d.close()


def ud():
    need("ibv_ud_pingpong", "ib_send_bw")
    for extra in (["-c"], ["-e", "-c"], ["-s", "1", "-c"], ["-s", "4096", "-c"], ["-r", "1"]):
        pair(["ibv_ud_pingpong", "-g", "0", "-n", "200", *extra], [r"200 iters in"])
    for size in (2, 64, 1024, 4096):
        result(bw("ib_send_bw", "-c", "UD", size=size), size, "ib_send_bw UD")
        result(pair(["ib_send_lat", "-c", "UD", "-x", "0", "-F", "-n", "200", "-s", str(size)], []), size, "UD")
    for extra in (["-e"], ["-b"], ["-q", "4"], ["-l", "8"], ["--use-srq"], ["--use_old_post_send"]):
        result(bw("ib_send_bw", "-c", "UD", *extra, size=1024), 1024, f"ib_send_bw UD {extra}")
    result(bw("ib_send_bw", "-c", "UD", "-I", "64", size=64), 64, "ib_send_bw UD inline")
    # over udp: netns, since what comes to another process of this user on this host may be lost with it


def xrc():
    need("ibv_xsrq_pingpong", "ib_send_bw")
    for extra in ([], ["-n", "100", "-s", "65537"], ["-o"], ["-e"]):
        pair(["ibv_xsrq_pingpong", "-g", "0", *extra], [r"success"])
    for tool in ("ib_send_bw", "ib_write_bw", "ib_read_bw"):
        result(bw(tool, "-c", "XRC", n=100), 65536, tool + " XRC")
    result(bw("ib_send_bw", "-c", "XRC", "--odp", "-q", "4", "-b", n=100), 65536, "ib_send_bw XRC, on demand")
    result(pair(["ib_send_lat", "-c", "XRC", "-x", "0", "-F", "-n", "100"], []), 2, "ib_send_lat XRC")
    result(pair(["ib_atomic_bw", "-c", "XRC", "-x", "0", "-F", "-n", "100"], []), 8, "ib_atomic_bw XRC")
    refused("rxe", ["ibv_xsrq_pingpong", "-g", "0"], "XRC")


def ip(*args):
    return subprocess.run(["ip", *args], capture_output=True, text=True)


def wait_up(ns):
    end = time.monotonic() + 20
    while "state UP" not in ip("-n", ns, "link", "show", "v0").stdout and time.monotonic() < end:
        time.sleep(0.05)


@contextlib.contextmanager
def two_hosts():
    """two namespaces joined by veth v0, and how to run a pair across"""
    tag = f"fl{os.getpid() % 100000}"
    one, two = tag + "a", tag + "b"
    try:
        if ip("netns", "add", one).returncode or ip("netns", "add", two).returncode:
            print("skipped: no right to make network namespaces")
            sys.exit(SKIP)
        if ip("link", "add", "v0", "netns", one, "type", "veth", "peer", "name", "v0", "netns", two).returncode:
            print("skipped: no veth here")
            sys.exit(SKIP)
        for ns, addr in ((one, "10.98.7.1/24"), (two, "10.98.7.2/24")):
            ip("-n", ns, "addr", "add", addr, "dev", "v0")
            ip("-n", ns, "link", "set", "lo", "up")
            ip("-n", ns, "link", "set", "v0", "up")
        wait_up(one)
        wait_up(two)
        os.environ["FAULTLINE_NETDEV"] = "v0"

        def across(command, expect=()):
            return pair(command, expect, host="10.98.7.1", server_prefix=["ip", "netns", "exec", one],
                        client_prefix=["ip", "netns", "exec", two])

        yield one, two, across
    finally:
        ip("netns", "del", one)
        ip("netns", "del", two)


def netns():
    need("ip", "ib_write_bw")
    with two_hosts() as (one, two, across):
        for mtu, active in ((1500, 1024), (9000, 4096)):
            for ns in (one, two):
                ip("-n", ns, "link", "set", "v0", "mtu", str(mtu))
            info = subprocess.run(["ip", "netns", "exec", one, FAULTLINE, "run", "-q", "--", "ibv_devinfo"],
                                  capture_output=True, text=True).stdout
            if not re.search(rf"active_mtu:\s+{active}", info):
                failures.append(f"active_mtu with netdev MTU {mtu}")
                print(info)
            across(["ibv_rc_pingpong", "-g", "0", "-n", "200", "-c", "-m", str(active)], [r"200 iters in"])
            across(["ibv_rc_pingpong", "-g", "0", "-n", "100", "-o", "-c", "-s", "100001", "-m", str(active)],
                   [r"100 iters in"])
            for tool in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
                for odp in ([], ["--odp"]):
                    result(across([tool, "-x", "0", "-F", "-s", "65536", "-n", "200", *odp]), 65536, tool)
            result(across(["ib_send_lat", "-x", "0", "-F", "-n", "200", "-s", "1000"]), 1000, "ib_send_lat")
            across(["ibv_ud_pingpong", "-g", "0", "-n", "200", "-c", "-s", str(active)], [r"200 iters in"])
            result(across(["ib_send_lat", "-c", "UD", "-x", "0", "-F", "-n", "200", "-s", "1000"]), 1000, "UD")
            result(across(["ib_atomic_lat", "-x", "0", "-F", "-n", "200"]), 8, "ib_atomic_lat")


RATE = 200e6 / 8  # bytes a second
FLOOR = 0.4       # of it: 0.8 is usual, and without a congestion window it is below 0.1
BUSY = 0.5        # of the time somebody waited for a CPU: then a rate says nothing


def cpu_waited():
    """seconds, since the machine started, in which somebody waited for a CPU"""
    try:
        with open("/proc/pressure/cpu") as f:
            return int(f.readline().split("total=")[1]) / 1e6
    except OSError:
        return 0.0


def bottleneck():
    """
    A path of 200 Mbit with a queue of 60 KB, which a window overruns. Most of what it lets through is data that had not
    come before; and in the best of some runs, on a machine with nothing else to do, it is not idle for long.
    """
    need("ip", "tc", "ib_write_bw")
    size, n = 65536, 200
    best, dropped, judged = 0.0, False, False
    with two_hosts() as (one, two, across):
        tc = ["tc", "-n", two, "-s", "-j", "qdisc"]
        shape = subprocess.run(["tc", "-n", two, "qdisc", "add", "dev", "v0", "root", "tbf", "rate", "200mbit", "burst",
                                "32k", "limit", "60k"], capture_output=True, text=True)
        if shape.returncode:
            print(f"skipped: no token bucket here: {shape.stderr.strip()}")
            sys.exit(SKIP)

        def counted():
            shown = json.loads(subprocess.run([*tc, "show", "dev", "v0"], capture_output=True, text=True).stdout)
            return shown[0]["bytes"], shown[0]["drops"]

        for _ in range(4):
            before, waited, start = counted(), cpu_waited(), time.monotonic()
            out = across(["ib_write_bw", "-x", "0", "-F", "-s", str(size), "-n", str(n)])
            result(out, size, "ib_write_bw behind a bottleneck")
            through, drops = (now - then for now, then in zip(counted(), before))
            row = re.search(BW_ROW.format(size) + r" +([\d.]+)", out[0])
            if not row:
                return
            rate = float(row.group(1)) * (1 << 20)  # the average
            share = size * n / through
            busy = (cpu_waited() - waited) / (time.monotonic() - start)
            best = max(best, rate)
            dropped = dropped or drops > 0
            judged = judged or busy < BUSY
            print(f"     {rate / RATE:.2f} of the rate; {share:.2f} of what went through was new; {drops} dropped; a CPU "
                  f"was waited for {busy:.0%} of the time")
            if share < FLOOR:
                failures.append("most of what went through had come before")
            if dropped and (busy >= BUSY or best >= FLOOR * RATE):
                break
    if not dropped and not failures:
        print("skipped: this machine is too busy to fill 200 Mbit")
        sys.exit(SKIP)
    if not judged:
        print("the rate is not judged: others wanted the CPUs")
    elif best < FLOOR * RATE:
        failures.append(f"{best / RATE:.2f} of the rate")


def srd():
    need("ib_send_bw", "ib_read_bw")
    for link in ("auto", "udp"):
        env = {"FAULTLINE_DEVICE": "efa", "FAULTLINE_LINK": link, "FAULTLINE_VENDOR_PART_ID": "0xefa1"}
        for size in (2, 1024, 4096):
            result(pair(["ib_send_bw", "-c", "SRD", "-x", "0", "-F", "-n", "500", "-s", str(size)], [], env=env), size, "SRD")
        for size in (2, 4096, 65536):
            result(pair(["ib_read_bw", "-c", "SRD", "-x", "0", "-F", "-n", "200", "-s", str(size)], [], env=env), size, "SRD")
        result(pair(["ib_send_lat", "-c", "SRD", "-x", "0", "-F", "-n", "200", "-s", "64"], [], env=env), 64, "SRD")
    env = {"FAULTLINE_DEVICE": "efa"}
    for extra in (["-q", "4"], ["-b"]):
        result(pair(["ib_send_bw", "-c", "SRD", "-x", "0", "-F", "-n", "500", "-s", "1024", *extra], [], env=env), 1024, "SRD")


def refused(device, command, why):
    """The program finds that the device does not have it, and says so; it never gets as far as its peer."""
    p = subprocess.run([FAULTLINE, "run", "-q", "--device", device, "--", *command], text=True, timeout=30,
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wrong = p.returncode == 0 or not re.search(why, p.stdout)
    print(f"{'FAIL' if wrong else 'ok':4} {device}: {' '.join(command)}")
    if wrong:
        failures.append(f"{device}: {' '.join(command)}")
        print(f"  status {p.returncode}\n{p.stdout}")


def profiles():
    need("ibv_rc_pingpong", "ib_write_bw", "ib_send_bw")
    for device in ("irdma", "bnxt_re", "mana"):
        env = {"FAULTLINE_DEVICE": device}
        pair(["ibv_rc_pingpong", "-g", "0", "-n", "100", "-c"], [r"100 iters in"], env=env)
        for tool in ("ib_write_bw", "ib_send_bw"):
            pair([tool, "-x", "0", "-F", "-s", "65536", "-n", "100"], [BW_ROW.format(65536)], env=env)
    for device in ("irdma", "bnxt_re", "efa"):
        pair(["ibv_ud_pingpong", "-g", "0", "-n", "100", "-c"], [r"100 iters in"], env={"FAULTLINE_DEVICE": device})
    refused("irdma", ["ibv_rc_pingpong", "-g", "0", "-o"], "isn't ODP capable")
    refused("irdma", ["ibv_srq_pingpong", "-g", "0"], "Couldn't create SRQ")
    refused("bnxt_re", ["ibv_uc_pingpong", "-g", "0"], "Couldn't create QP")
    refused("mana", ["ibv_ud_pingpong", "-g", "0"], "Couldn't create QP")
    refused("efa", ["ibv_rc_pingpong", "-g", "0"], "Couldn't create QP")


GROUPS = {"devices": devices, "pingpong": pingpong, "perftest-bw": perftest_bw, "perftest-lat": perftest_lat,
          "perftest-odp": perftest_odp, "perftest-udp": perftest_udp, "ud": ud, "xrc": xrc, "netns": netns,
          "bottleneck": bottleneck, "profiles": profiles, "srd": srd}

if __name__ == "__main__":
    GROUPS[sys.argv[1]]()
    if failures:
        print(f"{len(failures)} failed: {failures}")
    sys.exit(1 if failures else 0)
