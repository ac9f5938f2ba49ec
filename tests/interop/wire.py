# SPDX-License-Identifier: BSD-2-Clause
"""What went over the wire: captures, the ICRC of each packet, and what tshark thinks of them.

The ICRC is computed here from the packet by the specification alone (A17.3.3), with nothing of ours.
"""
import collections
import os
import signal
import struct
import subprocess
import time
import zlib

ROCE_PORT = 4791
SENDERS = ("host", "guest")
HOP_LIMIT, CLASS, FLOW_LABEL = 33, 0x48, 0x54321  # of the exchange's address handles


class Capture:
    def __init__(self, interface, path):
        self.path = path
        self.process = subprocess.Popen(
            ["tcpdump", "-i", interface, "-w", path, "-s", "0", "-B", "16384", "-U", "--immediate-mode", "-Z", "root",
             "udp", "port", str(ROCE_PORT)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()  # "listening on"
        if "listening" not in line:
            line += self.process.stderr.readline()
        if "listening" not in line:
            raise RuntimeError(f"tcpdump: {line}")

    def stop(self):
        time.sleep(0.2)
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()


def packets(path):
    with open(path, "rb") as f:
        data = f.read()
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    at = 24
    while at + 16 <= len(data):
        kept, length = struct.unpack(order + "II", data[at + 8:at + 16])
        yield data[at + 16:at + 16 + kept], length
        at += 16 + kept


def icrc_of(ip, l4):
    header = bytearray(ip)
    if ip[0] >> 4 == 4:
        header[1] = header[8] = header[10] = header[11] = 0xFF
    else:
        header[0] |= 0x0F
        header[1] = header[2] = header[3] = header[7] = 0xFF
    rest = bytearray(l4[:-4])
    rest[6] = rest[7] = rest[12] = 0xFF
    return zlib.crc32(b"\xff" * 8 + bytes(header) + bytes(rest)) & 0xFFFFFFFF


class Summary:
    """counts by direction: 'host' is what the host's address sent"""

    def __init__(self, path, host_addresses):
        self.good, self.bad, self.cut = collections.Counter(), collections.Counter(), 0
        self.opcodes, self.fields = collections.Counter(), collections.Counter()
        for frame, length in packets(path):
            if len(frame) < length:
                self.cut += 1
                continue
            kind = struct.unpack(">H", frame[12:14])[0]
            if kind == 0x0800:
                end = 14 + (frame[14] & 15) * 4
                ip, l4 = frame[14:end], frame[end:14 + struct.unpack(">H", frame[16:18])[0]]
                source, tclass, hop, label = ip[12:16], ip[1], ip[8], None
            elif kind == 0x86DD:
                ip, l4 = frame[14:54], frame[54:54 + struct.unpack(">H", frame[18:20])[0]]
                source, tclass, hop = ip[8:24], (ip[0] << 4 | ip[1] >> 4) & 0xFF, ip[7]
                label = struct.unpack(">I", ip[:4])[0] & 0xFFFFF
            else:
                continue
            who = "host" if source in host_addresses else "guest"
            right = struct.unpack("<I", l4[-4:])[0] == icrc_of(ip, l4)
            (self.good if right else self.bad)[who] += 1
            self.opcodes[who, l4[8]] += 1
            self.fields[who, "tclass", tclass] += 1
            self.fields[who, "hop", hop] += 1
            self.fields[who, "sport", struct.unpack(">H", l4[:2])[0]] += 1
            self.fields[who, "label", label] += 1

    def wrong(self, senders):
        found = [f"{n} packets of the {who} with a wrong ICRC" for who, n in self.bad.items()]
        found += [f"no packet of the {who}" for who in senders if not self.good[who]]
        return found + ([f"{self.cut} packets cut by the capture"] if self.cut else [])

    def not_as_told(self, answers):
        """
        What the exchange's address handles say, in the packets: the class, but for ECN; in ours also the hop limit,
        and the flow label, over IPv6 as such and for both as the source port. (rxe's have the route's hop limit,
        no flow label, and a port by both QPNs.) An address handle that was made of a received datagram has
        what that had, which of rxe's is the class alone: answers says who sends so.
        """
        port = (FLOW_LABEL & 0x3FFF ^ FLOW_LABEL >> 14) | 0xC000
        want = {"tclass": lambda v: v & ~3 == CLASS, "hop": lambda v: v == HOP_LIMIT, "sport": lambda v: v == port,
                "label": lambda v: v in (None, FLOW_LABEL)}
        told = {("host", field) for field in want if "host" not in answers} | {(who, "tclass") for who in SENDERS}
        return [f"{n} packets of the {who} with {field} {value}" for (who, field, value), n in self.fields.items()
                if (who, field) in told and not want[field](value)]

    def __str__(self):
        return f"{self.good['host']} + {self.good['guest']} packets"


# what tshark would guess that a payload may be
GUESSES = ("rpcordma", "smb_direct", "smc", "nvme-rdma", "lnet", "iser", "infiniband_sdp", "fcoib",
           "infiniband.eoib")


def malformed(path):
    """What tshark finds malformed, or is not RoCE to it. A payload is no protocol of its own here."""
    guesses = [word for name in GUESSES for word in ("--disable-protocol", name)]
    env = dict(os.environ, HOME=os.path.dirname(path))
    out = subprocess.run(["tshark", *guesses, "-r", path, "-Y", "_ws.malformed || !infiniband", "-T", "fields",
                          "-e", "frame.number", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info"], env=env,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if out.returncode:
        return [f"tshark ended with status {out.returncode}"]
    return [f"tshark: frame {line}" for line in out.stdout.splitlines()]
