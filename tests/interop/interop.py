#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""make interop: our device here, the kernel's rxe in a guest, each program at both ends of the wire.

usage: interop.py FAULTLINE EXCHANGE LIBFAULTLINE GUEST-DIR [CASE...]   in a network namespace of its own

Every case runs twice: the guest as the server, then the host. It is well when both ends say so, every
packet that was captured has a right ICRC, and tshark finds none malformed.
"""
import os
import re
import signal
import sys
import time
from ipaddress import IPv6Address, ip_address

import exchange
import guest as g
import wire

FAULTLINE, EXCHANGE, LIBFAULTLINE, DIRECTORY = (os.path.abspath(a) for a in sys.argv[1:5])
WANTED = sys.argv[5:]
PORT = 18600

# name: command; GID stands for the GID's index, each side's own
TOOLS = {
    "rc_pingpong": "ibv_rc_pingpong -g GID -c -n 100 -s 5000",
    "rc_pingpong_odp": "ibv_rc_pingpong -g GID ODP -n 100 -s 5000",
    "rc_pingpong_events": "ibv_rc_pingpong -g GID -e -n 100",
    "uc_pingpong": "ibv_uc_pingpong -g GID -c -n 100 -s 5000",
    "ud_pingpong": "ibv_ud_pingpong -g GID -c -n 100 -s 1000",
    "srq_pingpong": "ibv_srq_pingpong -g GID -c -n 100 -q 4",
    "write_bw": "ib_write_bw -x GID -F -n 100 -s 65536 -u 17",
    "write_bw_uc": "ib_write_bw -x GID -F -n 200 -s 5000 -c UC -u 17",
    "read_bw": "ib_read_bw -x GID -F -n 100 -s 65536 -o 16 -u 17",
    "send_bw": "ib_send_bw -x GID -F -n 100 -s 65536 -u 17",
    "send_bw_ud": "ib_send_bw -x GID -F -n 200 -s 1000 -c UD -r 512 -u 17",
    "send_bw_both": "ib_send_bw -x GID -F -n 200 -s 3000 -b -q 2 -u 17",
    "atomic_lat": "ib_atomic_lat -x GID -F -n 100 -o 16 -u 17",
    "send_lat": "ib_send_lat -x GID -F -n 100 -s 2000 -u 17",
}
ONE_WAY = ["write_bw_uc", "send_bw_ud"]  # only the client sends: nothing is acknowledged
# what the wire does to RoCE packets of both directions, in the guest (netem)
WEATHER = {
    "loss": "loss 1%",
    "reorder": "delay 2ms reorder 3% duplicate 1%",
}
# -u: a guest that is slow is not gone
WEATHER_TOOLS = {
    "write_bw": "ib_write_bw -x GID -F -n 30 -s 65536 -u 17",
    "read_bw": "ib_read_bw -x GID -F -n 30 -s 65536 -o 16 -u 17",
    "send_bw_both": "ib_send_bw -x GID -F -n 100 -s 3000 -b -q 2 -u 17",
    "atomic_lat": "ib_atomic_lat -x GID -F -n 100 -o 16 -u 17",
}
TC = "/bin/tc"  # not the shell's own, which knows no netem
V6 = ["rc_pingpong", "uc_pingpong", "ud_pingpong", "write_bw", "read_bw", "atomic_lat"]


class Runner:
    def __init__(self, guest):
        self.guest = guest
        self.failed = self.passed = 0
        self.port = PORT
        self.env = dict(os.environ, FAULTLINE_NETDEV=g.TAP, FAULTLINE_CONFIG="/dev/null")
        self.captures = os.path.join(DIRECTORY, "captures")
        os.makedirs(self.captures, exist_ok=True)
        self.gid = {}
        for v6, (host, there) in {False: (g.HOST4, g.GUEST4), True: (g.HOST6, g.GUEST6)}.items():
            self.gid[v6] = self.host_gid_index(host), guest.gid_index(there)

    def host_gid_index(self, address):
        text = self.on_host(["ibv_devinfo", "-v"], 20).wait(25)[1]
        want = ip_address(address)
        for line in text.splitlines():
            if "GID[" not in line:
                continue
            number, gid = line.split("[")[1].split("]:")
            gid = IPv6Address(gid.split(",")[0].strip())
            if gid == want or gid.ipv4_mapped == want:
                return int(number)
        raise RuntimeError(f"no GID of {address} here: {text}")

    def on_host(self, command, limit, env=None):
        return g.HostRun([FAULTLINE, "run", "-q", "--", *command], limit, dict(self.env, **(env or {})))

    def pair(self, name, command, v6, host_serves, limit=g.LIMIT):
        self.port += 1
        here, there = self.gid[v6]
        command += f" -p {self.port}"
        mine = command.replace("GID", str(here)).replace("ODP", "-o").split()
        theirs = command.replace("GID", str(there)).replace("ODP", "-c")
        if host_serves:
            host = self.on_host(mine, limit)
            g.wait_for_host_port(self.port)
            guest = self.guest.start(f"{theirs} {g.HOST4}", limit)
        else:
            guest = self.guest.start(theirs, limit)
            self.guest.wait_for_port(self.port)
            host = self.on_host([*mine, g.GUEST4], limit)
        return host.wait(limit + 5), guest.wait(limit + 5)

    def case(self, name, run, v6, one_way=False, roles=(False, True)):
        """run(host_serves) -> ((status, text) here, (status, text) there)"""
        for host_serves in roles:
            title = f"{name}{'6' if v6 else ''}-{'host' if host_serves else 'guest'}-serves"
            if WANTED and not any(title.startswith(w) for w in WANTED):
                continue
            path = os.path.join(self.captures, title + ".pcap")
            capture = wire.Capture(g.TAP, path)
            start = time.monotonic()
            try:
                (host, host_text), (there, there_text) = run(host_serves)
            finally:
                capture.stop()
            wrong = [f"status {code} at the {who}" for who, code in (("host", host), ("guest", there)) if code]
            summary = wire.Summary(path, self.addresses())
            senders = wire.SENDERS
            if one_way:
                senders = ("guest",) if host_serves else ("host",)
            wrong += summary.wrong(senders)
            if "exchange-" in name:
                answers = {"host" if host_serves else "guest"} if name == "exchange-ud" else set()
                wrong += summary.not_as_told(answers)
            wrong += wire.malformed(path)[:5]
            seconds = time.monotonic() - start
            if not wrong:
                self.passed += 1
                print(f"ok    {title:32} {seconds:5.1f} s  {summary}", flush=True)
                os.unlink(path)
                continue
            self.failed += 1
            print(f"FAIL  {title:32} {seconds:5.1f} s  {'; '.join(wrong)}", flush=True)
            for who, text in (("host", host_text), ("guest", there_text)):
                print("".join(f"    {who}| {line}\n" for line in text.splitlines()[-25:]), end="", flush=True)

    @staticmethod
    def addresses():
        return {g.gid_of(g.HOST4)[12:], g.gid_of(g.HOST6)}

    def tools(self):
        for v6 in (False, True):
            for name, command in TOOLS.items():
                if not v6 or name in V6:
                    self.case(name, lambda serves: self.pair(name, command, v6, serves), v6,
                              name in ONE_WAY)


    def weather(self, how):
        """how: netem's words; None: fair again"""
        commands = [f"{TC} qdisc del dev {where}" for where in ("eth0 clsact", "ifb0 root", "ifb1 root")]
        if how:
            commands = [f"{TC} qdisc add dev eth0 clsact"]
            for direction, device in (("ingress", "ifb0"), ("egress", "ifb1")):
                commands += [f"ip link set {device} up",
                             f"{TC} qdisc add dev {device} root netem limit 100000 {how}",
                             f"{TC} filter add dev eth0 {direction} protocol ip flower ip_proto udp dst_port "
                             f"{wire.ROCE_PORT} action mirred egress redirect dev {device}"]
        for command in commands:
            code, text = self.guest.run(command)
            if code:
                raise RuntimeError(f"{command}: {text}")

    def dropped(self):
        """packets that netem has lost, of each direction"""
        found = []
        for device in ("ifb0", "ifb1"):
            text = self.guest.run(f"{TC} -s qdisc show dev {device}")[1]
            found.append(int(re.search(r"dropped (\d+)", text).group(1)))
        return found

    def in_all_weathers(self):
        for weather, how in WEATHER.items():
            self.weather(how)
            for name, command in WEATHER_TOOLS.items():
                self.case(f"{weather}_{name}", lambda serves: self.pair(name, command, False, serves), False)
            exchange.run_in(self, EXCHANGE, weather)
            print(f"      {weather}: netem dropped {' + '.join(map(str, self.dropped()))} packets", flush=True)
            self.weather(None)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the guest goes too
    guest = g.Guest(DIRECTORY, [EXCHANGE, LIBFAULTLINE], 1500)
    runner = Runner(guest)
    runner.tools()
    exchange.run(runner, EXCHANGE)
    runner.in_all_weathers()
    print(f"interop: {runner.passed} passed, {runner.failed} failed; the kernel's is "
          f"{open(os.path.join(DIRECTORY, 'version')).read().strip()}")
    return 1 if runner.failed else 0


sys.exit(main())
