#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Libraries that other programs talk through, and programs on them, unmodified, under `faultline run`.

usage: programs.py GROUP    (ucx, ucx-odp, ucx-profiles, mpi, libfabric, gloo)

What is not installed is skipped in words. docs/programs.md tells what each needs. Exit status: 0, 1, or 77.
"""
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

import tools
from tools import FAULTLINE, SKIP, alone, failures, need, pair

HERE = os.path.dirname(os.path.abspath(__file__))
QUIET = {"UCX_WARN_UNUSED_ENV_VARS": "n"}


def need_memory(mib):
    """they pin that much for buffers of their own, and try for ever where it is refused; not so root's, outside of namespaces"""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    with open("/proc/self/uid_map") as f:
        root = os.geteuid() == 0 and f.read().split()[:2] == ["0", "0"]
    if not root and limit != resource.RLIM_INFINITY and limit < mib << 20:
        print(f"skipped: no more than {limit >> 10} KiB may be pinned here (ulimit -l)")
        sys.exit(SKIP)


def must(pattern, text, title):
    if not re.search(pattern, text):
        failures.append(title)
        print(f"FAIL {title}: not said: /{pattern}/\n{text}")


def ucx(tls, test, size, counted=r"SENDs", env=None, n=100, layer=()):
    """counted: what the reports have to show of either side"""
    title = f"UCX {tls} {test} {size} {env or ''}"
    out = pair(["ucx_perftest", "-t", test, "-s", str(size), "-n", str(n), "-w", "10", *layer], [],
               env=dict(QUIET, UCX_TLS=f"{tls},self", **(env or {})))
    must(r"Final:", out[0], title)
    must(counted, "".join(out), title)
    for text in out:
        if re.search(r"UCX +(WARN|ERROR|FATAL)|Caught signal", text):
            failures.append(title)
            print(f"FAIL {title}: a warning\n{text}")


def uct_atomic(device):
    """by the lower layer: the upper one takes a device for atomics only if it has all kinds, and verbs have two"""
    ucx("rc_v", "fadd", 8, r"\d+ atomic", env={"FAULTLINE_DEVICE": device}, layer=("-d", f"{device}_fl0:1", "-x", "rc_verbs"))


def ucx_works():
    need("ucx_info", "ucx_perftest")
    alone(["ucx_info", "-d"], [r"Transport: rc_verbs$", r"Transport: ud_verbs$", r"Device: mlx5_fl0:1$"])
    for size in (8, 4000, 1 << 20):
        ucx("rc_v", "tag_lat" if size == 8 else "tag_bw", size)
        ucx("ud_v", "tag_lat" if size == 8 else "tag_bw", size)
    ucx("rc_v", "ucp_put_bw", 100001, r"\d+ RDMA WRITE")
    ucx("rc_v", "ucp_get", 100001, r"\d+ RDMA READ")
    uct_atomic("mlx5")
    ucx("rc_v", "ucp_am_bw", 300000)
    ucx("ud_v", "ucp_get", 100001)
    ucx("rc_v", "stream_bw", 10000)
    for tls in ("rc_v", "ud_v"):
        ucx(tls, "tag_bw", 65536, env={"FAULTLINE_LINK": "udp"})


def ucx_odp():
    """The whole address space as one region: what is sent is faulted in, and UCX's buffers that it unmaps go from it."""
    need("ucx_perftest")
    env = {"UCX_IB_REG_METHODS": "odp"}
    for tls, test in (("rc_v", "tag_bw"), ("rc_v", "ucp_put_bw"), ("rc_v", "ucp_get"), ("ud_v", "tag_bw")):
        ucx(tls, test, 1 << 20, r"1 MR on demand \(all addresses\)(.*\n)*.*[1-9]\d* page faults? ", env=env, n=20)


def ucx_profiles():
    need("ucx_perftest")
    # completions of these do not tell IPv4 from IPv6, and UCX goes by that
    unchecked = {"UCX_UD_VERBS_ETH_DGID_CHECK": "n"}
    for device in ("rxe", "bnxt_re"):
        ucx("rc_v", "tag_bw", 65536, env=dict(unchecked, FAULTLINE_DEVICE=device))
    uct_atomic("rxe")
    # no shared receive queues, which UCX's RC wants, and fewer receives than it asks for
    ucx("ud_v", "tag_bw", 65536, env=dict(unchecked, FAULTLINE_DEVICE="irdma", UCX_UD_VERBS_RX_QUEUE_LEN="2048"))


def run(title, command, says, env=None, limit=100):
    p = subprocess.Popen([FAULTLINE, "run", "--", *command], env=dict(os.environ, **(env or {})), text=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        out, _ = p.communicate(timeout=limit)
        wrong = p.returncode or not re.search(says, out)
    except subprocess.TimeoutExpired:
        p.terminate()
        out, _ = p.communicate()
        wrong = True
    print(f"{'FAIL' if wrong else 'ok':4} {title}", flush=True)
    if wrong:
        failures.append(title)
        print(f"  status {p.returncode}\n{out}")
    return out


def compile_with(compiler, source, directory, *args):
    exe = os.path.join(directory, "program")
    p = subprocess.run([compiler, "-O1", "-o", exe, os.path.join(HERE, source), *args], text=True, capture_output=True)
    if p.returncode:
        print(f"skipped: {compiler} does not compile here: {p.stderr.strip().splitlines()[-1]}")
        sys.exit(SKIP)
    return exe


def mpi():
    need("mpicc", "mpirun")
    if "Open MPI" not in subprocess.run(["mpirun", "--version"], text=True, capture_output=True).stdout:
        print("skipped: mpirun is not Open MPI's")
        sys.exit(SKIP)
    base = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "plm", "isolated", "--mca", "pml", "ucx"]
    if os.geteuid() == 0:
        base.append("--allow-run-as-root")
    with tempfile.TemporaryDirectory() as directory:
        exe = compile_with("mpicc", "programs-mpi.c", directory)
        for n, tls, extra, env in ((2, "rc_v", ["--mca", "osc", "ucx"], {}), (4, "ud_v", [], {}),
                                   (2, "rc_v", [], {"FAULTLINE_LINK": "udp"}),
                                   (2, "rc_v", [], {"UCX_IB_REG_METHODS": "odp"})):
            title = f"mpirun -np {n}, UCX_TLS={tls} {env or ''}"
            out = run(title, [*base, *extra, "-np", str(n), exe], rf"mpi: {n} ranks, all right",
                      env=dict(QUIET, UCX_TLS=f"{tls},self", **env))
            if len(re.findall(r"on mlx5_fl0 ", out)) != n:
                failures.append(title)
                print(f"FAIL not {n} processes used the device\n{out}")


def libfabric():
    need("fi_info", "fi_pingpong")
    alone(["fi_info", "-p", "verbs"], [r"domain: mlx5_fl0-dgram", r"provider: verbs;ofi_rxd"])
    for env in ({}, {"FAULTLINE_LINK": "udp"}, {"FAULTLINE_DEVICE": "irdma"}):
        pair(["fi_pingpong", "-p", "verbs;ofi_rxd", "-e", "rdm", "-c", "-I", "5"], [r"1m +5 "], env=env,
             port_options=("-B", "-P"))
    os.environ["FAULTLINE_DEVICE"] = "efa"
    alone(["fi_info", "-p", "efa"], [r"domain: efa_fl0-rdm", r"domain: efa_fl0-dgrm"])


def gloo():
    need("g++")
    ranks = 3
    with tempfile.TemporaryDirectory() as directory:
        exe = compile_with("g++", "programs-gloo.cc", directory, "-lgloo")
        for env in ({}, {"FAULTLINE_LINK": "udp"}, {"FAULTLINE_DEVICE": "irdma"}):
            store = tempfile.mkdtemp(dir=directory)
            # one after another would wait for each other: a shell starts all but the last
            script = 'r=1; while [ $r -lt $2 ]; do "$0" $r $2 $1 & r=$((r + 1)); done; "$0" 0 $2 $1; wait'
            out = run(f"gloo, {ranks} ranks {env or ''}", ["sh", "-c", script, exe, store, str(ranks)], "rank 0 of", env=env)
            for rank in range(ranks):
                must(rf"gloo: rank {rank} of {ranks}, all right", out, f"gloo {env or ''}")
            shutil.rmtree(store)


GROUPS = {"ucx": ucx_works, "ucx-odp": ucx_odp, "ucx-profiles": ucx_profiles, "mpi": mpi, "libfabric": libfabric,
          "gloo": gloo}

if __name__ == "__main__":
    need_memory(256)
    GROUPS[sys.argv[1]]()
    if failures:
        print(f"{len(failures)} failed: {failures}")
    sys.exit(1 if failures else 0)
