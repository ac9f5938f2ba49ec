# SPDX-License-Identifier: BSD-2-Clause
"""The guest of `make interop`, its wire, and the programs at both ends of it.

The guest (scripts/interop-guest.sh) has a shell on TCP port 7000; each connection is one command. Both
machines have an IPv4 and an IPv6 address on the tap, by which they also find each other for the
programs' own TCP exchange.
"""
import atexit
import os
import re
import socket
import subprocess
import threading
import time

TAP = "fl-interop"
HOST4, GUEST4 = "10.99.0.1", "10.99.0.2"
HOST6, GUEST6 = "fd99::1", "fd99::2"
SHELL_PORT = 7000
LIMIT = 300  # seconds for a case: an emulated guest, and what else the machine does
BOOT_LIMIT = 240


class GuestRun:
    """A command in the guest; as much of Popen as is needed here."""

    def __init__(self, command, limit):
        self.text = ""
        self.returncode = None
        self.sock = socket.create_connection((GUEST4, SHELL_PORT), timeout=limit)
        self.sock.sendall(f"timeout -s KILL {limit} sh -c '{command}' 2>&1 </dev/null; "
                          "s=$?; echo; echo status=$s; exit\n".encode())
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        data = b""
        try:
            while chunk := self.sock.recv(65536):
                data += chunk
        except OSError:
            pass
        self.sock.close()
        text = data.decode(errors="replace")
        end = re.search(r"\nstatus=(\d+)\n?$", text)
        self.text = text[: end.start()] if end else text
        self.returncode = int(end.group(1)) if end else 255

    def wait(self, limit):
        self.thread.join(limit)
        return (255 if self.returncode is None else self.returncode), self.text


class HostRun:
    def __init__(self, command, limit, env):
        self.process = subprocess.Popen(["timeout", "-s", "KILL", str(limit), *command], env=env, text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)

    def wait(self, limit):
        try:
            text = self.process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            text = self.process.communicate()[0]
        return self.process.returncode, text


class Guest:
    def __init__(self, directory, extra_files, mtu):
        self.log = os.path.join(directory, "console.log")
        self.initrd = os.path.join(directory, "initrd.run")
        self._network(mtu)
        self._initrd(directory, extra_files)
        self.qemu = None
        atexit.register(self.stop)
        for _ in range(3):  # emulated, one boot in a while does not come up
            self._boot(directory, mtu)
            if self._up():
                return
            self.stop()
        raise RuntimeError(f"the guest does not come up, see {self.log}")

    @staticmethod
    def _network(mtu):
        for command in ("ip link set lo up", f"ip tuntap add dev {TAP} mode tap",
                        f"ip link set {TAP} mtu {mtu} up", f"ip addr add {HOST4}/24 dev {TAP}",
                        f"ip addr add {HOST6}/64 dev {TAP} nodad"):
            subprocess.run(command.split(), check=True)

    def _initrd(self, directory, extra_files):
        """The image, and behind it a second archive with what this run brings along."""
        with open(self.initrd, "wb") as out:
            with open(os.path.join(directory, "initrd"), "rb") as f:
                out.write(f.read())
            for path in extra_files:
                out.write(b"\0" * (-out.tell() % 4))
                names = os.path.basename(path).encode() + b"\n"
                out.write(subprocess.run(["busybox", "cpio", "-o", "-L", "-H", "newc"], input=names, check=True,
                                         cwd=os.path.dirname(path), stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL).stdout)

    def _boot(self, directory, mtu):
        settings = f"fl.MTU={mtu} fl.IPV4={GUEST4}/24 fl.IPV6={GUEST6}/64"
        with open(self.log, "wb") as log:
            self.qemu = subprocess.Popen(
                ["qemu-system-x86_64", "-machine", "q35", "-cpu", "max,la57=off", "-smp", "2", "-m", "1G",
                 "-accel", "kvm" if os.access("/dev/kvm", os.W_OK) else "tcg,thread=multi",
                 "-kernel", os.path.join(directory, "vmlinuz"), "-initrd", self.initrd,
                 "-append", f"console=ttyS0 earlyprintk=serial panic=-1 mitigations=off no_timer_check {settings}",
                 "-netdev", f"tap,id=n0,ifname={TAP},script=no,downscript=no",
                 "-device", "virtio-net-pci,netdev=n0", "-nographic", "-no-reboot"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def _up(self):
        end = time.monotonic() + BOOT_LIMIT
        while time.monotonic() < end and self.qemu.poll() is None:
            try:
                with socket.create_connection((GUEST4, SHELL_PORT), timeout=2):
                    pass
                return self.run("ls /sys/class/infiniband/rxe0")[0] == 0
            except OSError:
                time.sleep(0.5)
        return False

    def start(self, command, limit=LIMIT):
        return GuestRun(command, limit)

    def run(self, command, limit=LIMIT):
        return self.start(command, limit).wait(limit + 5)

    def wait_for_port(self, port, limit=LIMIT):
        self.run(f'i=0; while ! grep -qi ":{port:04x} [^ ]* 0A" /proc/net/tcp /proc/net/tcp6 && '
                 f"[ $i -lt {limit * 10} ]; do sleep 0.1; i=$((i + 1)); done", limit + 5)

    def gid_index(self, address):
        for i in range(16):
            _, gid = self.run(f"cat /sys/class/infiniband/rxe0/ports/1/gids/{i}")
            raw = bytes.fromhex(gid.strip().replace(":", "")) if gid.count(":") == 7 else b""
            if raw == gid_of(address):
                return i
        raise RuntimeError(f"rxe has no GID of {address}")

    def stop(self):
        if self.qemu and self.qemu.poll() is None:
            self.qemu.kill()
            self.qemu.wait()


def gid_of(address):
    if ":" in address:
        return socket.inet_pton(socket.AF_INET6, address)
    return b"\0" * 10 + b"\xff\xff" + socket.inet_pton(socket.AF_INET, address)


def wait_for_host_port(port, limit=LIMIT):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table) as f:
                if any(f":{port:04X} " in line and " 0A " in line for line in f):
                    return
        time.sleep(0.05)
