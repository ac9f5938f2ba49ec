#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""make bench: Faultline's latency, bandwidth and registration, beside memcpy and UCX's shared memory.

usage: bench.py RCBENCH    ($FAULTLINE: the command)
       bench.py --swap BENCH-SWAP    as root: a working set half as large again as memory
       bench.py --odp BENCH-ODP BENCH-UNMAP    losing pages and getting them again; an arena ($VERBS: the library)

Runs rcbench under `faultline run` and ucx_perftest in turn, several rounds; figures are medians over
the rounds, ratios are taken within a round, then their median. Figures of a machine that does other
things meanwhile are not worth much; ratios are worth more.
"""
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

ROUNDS = 3
SIZES = {65536: "64 KiB", 1 << 20: "1 MiB"}
UCX_TLS = ("posix,self", "sysv,self", "cma,posix,self")


def rcbench(program):
    out = subprocess.run([os.environ["FAULTLINE"], "run", "-q", "--", program], check=True, text=True,
                         stdout=subprocess.PIPE, timeout=180).stdout
    return {name: float(value) for name, value in (line.split() for line in out.splitlines())}


def ucx(tls, test, size, count, port):
    env = dict(os.environ, UCX_TLS=tls, UCX_WARN_UNUSED_ENV_VARS="n", UCX_LOG_LEVEL="error")
    # not with our device: UCX alone
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH"):
        env.pop(name, None)
    args = ["ucx_perftest", "-t", test, "-s", str(size), "-n", str(count), "-w", str(count // 10), "-p", str(port)]
    server = subprocess.Popen(args, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):
            client = subprocess.run(args[:1] + ["127.0.0.1"] + args[1:], env=env, text=True, timeout=60,
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            if client.returncode == 0:
                break
            time.sleep(0.1)
        server.wait(timeout=10)
    except subprocess.TimeoutExpired:
        return None
    finally:
        server.kill()
        server.wait()
    final = re.search(r"^Final:\s+(.*)$", client.stdout, re.M)
    if not final:
        return None
    # iterations, percentile, average and overall latency, average and overall MB/s, messages/s
    numbers = [float(x) for x in final.group(1).split()]
    return numbers[3] if test.endswith("lat") else numbers[5] * (1 << 20) / 1e9


def ucx_round(number):
    port = 13500 + os.getpid() % 10000
    results = {}
    for i, tls in enumerate(UCX_TLS):
        port += 10
        results[tls, "lat"] = ucx(tls, "tag_lat", 8, 50000, port)
        for j, (size, count) in enumerate(((65536, 5000), (1 << 20, 500))):
            results[tls, size] = ucx(tls, "tag_bw", size, count, port + 1 + j)
    return results


def med(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def show(value, form):
    return "-" if value is None else form.format(value)


def row(what, value, unit, beside="", target="", met=None):
    verdict = "" if met is None else "ok" if met else "MISSED"
    print(f"{what:<46} {value:>9} {unit:<5} {beside:<30} {target:<22} {verdict}")


def swap(program):
    """4 KiB WRITEs into more memory than the control group has: pinned, on demand, hot part pinned"""
    run = subprocess.run([os.environ["FAULTLINE"], "run", "-q", "--", program], text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, timeout=280)
    if run.returncode == 77:
        print(run.stderr.strip())
        return
    if run.returncode:
        sys.exit(run.stderr)
    m = {name: float(value) for name, value in (line.split() for line in run.stdout.splitlines())}
    names = {"pinned": "pinned", "odp": "on demand", "odp_hot_pinned": "hot sixth pinned"}
    print(f"{'96 MiB in a control group of 64 MiB':<36}" + "".join(f"{n:>18}" for n in names.values()))
    for what, key, form in (("4 KiB WRITEs a second", "per_s", "{:.0f}"), ("latency, median, us", "p50", "{:.1f}"),
                            ("latency, 99 %, us", "p99", "{:.1f}"), ("latency, longest, us", "max", "{:.0f}")):
        cells = []
        for n in names:
            if f"{n}_killed" in m:
                cells.append("killed (no memory)")
            elif f"{n}_refused" in m:
                cells.append("refused")
            else:
                cells.append(form.format(m[f"{n}_{key}"]) if f"{n}_{key}" in m else "-")
        print(f"{what:<36}" + "".join(f"{c:>18}" for c in cells))


def figures(program, alone=False):
    command, env = [os.environ["FAULTLINE"], "run", "-q", "--", program], None
    if alone:
        command, env = [program], dict(os.environ, LD_LIBRARY_PATH=os.environ["VERBS"])
    out = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, timeout=180, env=env).stdout
    return {name: float(value) for name, value in (line.split() for line in out.splitlines())}


def storm(program):
    """First touch, cold memory, a quiet QP beside a storm; the two pitfalls under both fault models."""
    def run(what, model="ideal"):
        out = subprocess.run([os.environ["FAULTLINE"], "run", "-q", "--fault-model", model, "--", program, what],
                             check=True, text=True, stdout=subprocess.PIPE, timeout=180).stdout
        return {name: float(value) for name, value in (line.split() for line in out.splitlines())}

    row("", "", "", "beside", "to reach", None)
    m = run("touch")
    for kind, what, limit in (("touch", "first touch, 1 page", 3), ("bulk", "first touch, 256 pages by one WRITE", 1.3)):
        over, store = m[f"{kind}_over_populate"], m[f"{kind}_over_store"]
        row(what, f"{over:.2f}", "x", f"{store:.2f} x with a store", f"<= {limit} x populate", over <= limit)
        over = m[f"{kind}_fault_over_populate"]
        row("  the fault alone, by ibv_advise_mr", f"{over:.2f}", "x", f"{m[f'{kind}_fault_us']:.1f} us",
            f"<= {limit} x populate", over <= limit)
    m = run("cold")
    row("cold 1 GiB by WRITEs of 1 MiB", f"{m['cold_gib_gbs']:.2f}", "GB/s", f"{m['cold_over_memset']:.2f} x memset",
        ">= 0.7 x memset", m["cold_over_memset"] >= 0.7)
    m = run("quiet")
    row("quiet QP, WRITE 8 B, 99 %", f"{m['quiet_p99_us']:.2f}", "us")
    row("  beside 10,000 cold pages", f"{m['quiet_p99_in_storm_us']:.2f}", "us", f"{m['storm_over_quiet']:.2f} x quiet",
        "<= 2 x quiet", m["storm_over_quiet"] <= 2)
    row("  beside as busy a QP without faults", f"{m['quiet_p99_beside_warm_us']:.2f}", "us",
        f"{m['warm_over_quiet']:.2f} x quiet")
    ideal, connectx = (run("damming", model) for model in ("ideal", "connectx"))
    for name in ideal:
        row(name.replace("_", " "), f"{ideal[name]:.2f}", "ms", f"{connectx[name]:.2f} ms as connectx")
    ideal, connectx = (run("flood", model) for model in ("ideal", "connectx"))
    for name in ideal:
        if "ratio" in name:
            row(f"sent in vain, {name.rsplit('_', 1)[1]} QPs", f"{ideal[name]:.2f}", "x",
                f"{connectx[name]:.2f} x as connectx", "0", ideal[name] < 0.01)


def on_demand(program, unmap):
    """Losing pages and getting them again; regions of both kinds; an arena."""
    hooks, told, odp = [], [], []
    for _ in range(ROUNDS):
        hooks.append(figures(unmap))
        told.append(figures(unmap, alone=True))
        odp.append(figures(program))

    def both(runs, name, base):
        """the figure, and the median of the ratios within a run"""
        return med(r[name] for r in runs), statistics.median(r[name] / r[base] for r in runs)

    row("", "", "", "beside", "to reach", None)
    for call, what in (("munmap", "munmap"), ("dontneed", "MADV_DONTNEED")):
        for size, name in (("1_1", "1 page"), ("1_64", "1 page of 64"), ("64_64", "64 pages"), ("512_512", "512 pages")):
            def more(runs):
                return med(r[f"{call}_{size}_mapped"] - r[f"{call}_{size}_plain"] for r in runs)

            value, over = both(hooks, f"{call}_{size}_mapped", f"{call}_{size}_plain")
            row(f"{what}, {name}, mapped, hooks", f"{value:.1f}", "us", f"{over:.2f} x not mapped, {more(hooks):+.1f} us",
                "<= 2 x not mapped", over <= 2)
            value, over = both(told, f"{call}_{size}_mapped", f"{call}_{size}_plain")
            row("  told by userfaultfd", f"{value:.1f}", "us", f"{over:.2f} x not mapped, {more(told):+.1f} us")
    for kind in ("explicit", "implicit"):
        if f"{kind}_1_cold" not in odp[0]:
            print(f"{kind} regions: the device has none")
            continue
        for pages, limit in ((1, 3), (256, 1.3)):
            one = f"{kind}_{pages}_"
            cost = [(r[one + "cold"] - r[one + "warm"], r[one + "populate"], r[one + "store"]) for r in odp]
            value, over = med(c / pages for c, _, _ in cost), med(c / p for c, p, _ in cost)
            stored = med(c / s for c, _, s in cost)
            row(f"refault, {kind}, {pages} page{'s' if pages > 1 else ''}", f"{value:.2f}", "us/p",
                f"{over:.2f} x populate, {stored:.2f} x with a store", f"<= {limit} x populate", over <= limit)
        row(f"WRITE 8 B, {kind}, warm", f"{med(r[f'{kind}_1_warm'] for r in odp):.2f}", "us")
    for size, name in ((4096, "4 KiB"), (65536, "64 KiB"), (1 << 20, "1 MiB")):
        value, over = both(odp, f"buffer_{size}_arena", f"buffer_{size}_write")
        row(f"allocate, WRITE, free {name}: arena", f"{value:.1f}", "us", f"{over:.2f} x the WRITE alone")
        for how, text in (("on_demand", "malloc, registered on demand"), ("pinned", "malloc, registered pinned")):
            value, over = both(odp, f"buffer_{size}_{how}", f"buffer_{size}_arena")
            row(f"  {text}", f"{value:.1f}", "us", f"{over:.2f} x the arena")


def main():
    if sys.argv[1] == "--odp":
        on_demand(sys.argv[2], sys.argv[3])
        return
    if sys.argv[1] == "--storm":
        storm(sys.argv[2])
        return
    if sys.argv[1] == "--swap":
        swap(sys.argv[2])
        return
    have_ucx = shutil.which("ucx_perftest")
    ours, theirs = [], []
    for i in range(ROUNDS):
        ours.append(rcbench(sys.argv[1]))
        if have_ucx:
            theirs.append(ucx_round(i))
    m = {k: statistics.median(r[k] for r in ours) for k in ours[0]}

    def ratio(a, b):
        return statistics.median(r[a] / r[b] for r in ours)

    row("", "", "", "beside", "to reach", None)
    row("latency, SEND 8 B, half round trip", f"{m['send_lat_8']:.2f}", "us", "", "<= 2 us", m["send_lat_8"] <= 2)
    row("latency, WRITE 8 B, half round trip", f"{m['write_lat_8']:.2f}", "us")
    for tls in UCX_TLS if have_ucx else ():
        lat = med(r[tls, "lat"] for r in theirs)
        over = med(o["send_lat_8"] / t[tls, "lat"] for o, t in zip(ours, theirs) if t[tls, "lat"])
        row(f"  UCX tag 8 B, {tls}", show(lat, "{:.2f}"), "us", f"SEND is {show(over, '{:.2f}')} x this")
    for size, name in SIZES.items():
        row(f"bandwidth, memcpy {name}", f"{m[f'memcpy_{size}']:.2f}", "GB/s")
        for op in ("write", "send", "read"):
            r = ratio(f"{op}_bw_{size}", f"memcpy_{size}")
            big = size == 1 << 20
            row(f"bandwidth, {op.upper()} {name}", f"{m[f'{op}_bw_{size}']:.2f}", "GB/s", f"{r:.2f} x memcpy",
                ">= 0.5 x memcpy" if big else "", r >= 0.5 if big else None)
        r = m[f"odp_over_pinned_{size}"]
        row(f"bandwidth, WRITE {name}, on demand, warm", f"{m[f'odp_write_bw_{size}']:.2f}", "GB/s",
            f"{r:.2f} x pinned", ">= 0.95 x pinned", r >= 0.95)
        for tls in UCX_TLS if have_ucx else ():
            bw = med(t[tls, size] for t in theirs)
            over = med(o[f"send_bw_{size}"] / t[tls, size] for o, t in zip(ours, theirs) if t[tls, size])
            row(f"  UCX tag {name}, {tls}", show(bw, "{:.2f}"), "GB/s", f"SEND is {show(over, '{:.2f}')} x this")
    row("registration, 1 GiB pinned", f"{m['reg_pinned_1g']:.0f}", "us")
    row("registration, 1 GiB on demand", f"{m['reg_odp_1g']:.1f}", "us", "", "<= 20 us", m["reg_odp_1g"] <= 20)
    row("registration, 64 GiB on demand", f"{m['reg_odp_64g']:.1f}", "us", "", "<= 20 us", m["reg_odp_64g"] <= 20)
    if not have_ucx:
        print("ucx_perftest is not installed (Debian's ucx-utils): no figures of UCX")


if __name__ == "__main__":
    main()
