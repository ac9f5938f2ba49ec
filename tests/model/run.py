#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Verifies odp.pml, children.pml and pin.pml with spin, as they are in several settings, and with each of their
mutations, which must fail.

usage: run.py [--deep] [mutation ...]

--deep explores larger settings, for minutes. A mutation named is run alone and its trail printed, step by
step. Exit status: 0, 1, or 77 (spin or a compiler is missing).
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

# settings of the model as it is: all of it is explored, without an error
WHOLE = ["OPS=2", "OPS=2 NO_USERFAULTFD", "OPS=1 DEREG", "OPS=1 CYCLES=0 DEREG DISCARD"]
DEEP = ["OPS=2 CYCLES=2", "OPS=2 DISCARD", "OPS=2 DEREG", "OPS=1 DEREG DISCARD", "OPS=1 DEVICES=2",
        "OPS=1 CYCLES=0 DISCARD DEVICES=2"]

# What is wrong, where it shows, and how: an assertion, or processes that wait for ever.
ASSERTION, FOR_EVER = "assertion violated", "invalid end state"
MUTATIONS = {
    # a fault against an invalidation
    "M_NO_RETRY": ("OPS=2", ASSERTION),
    "M_RETRY_OUTSIDE_LOCK": ("OPS=2", ASSERTION),
    "M_NO_SET_SEQ": ("OPS=2", ASSERTION),
    "M_SET_SEQ_AFTER_UNLOCK": ("OPS=2", ASSERTION),
    "M_READ_BEGIN_DOES_NOT_WAIT": ("OPS=2", ASSERTION),
    "M_HOOK_ENDS_EARLY": ("OPS=2 NO_USERFAULTFD", ASSERTION),
    "M_NO_WATCH_AGAIN": ("OPS=2 CYCLES=2", ASSERTION),
    # an access against an invalidation
    "M_NO_WAIT_FOR_ACCESS": ("OPS=2", ASSERTION),
    "M_WAIT_BEFORE_CLEAR": ("OPS=2", ASSERTION),
    "M_ANNOUNCE_AFTER_LOOK": ("OPS=2", ASSERTION),
    "M_RELAXED_ANNOUNCE": ("OPS=2", ASSERTION),
    "M_NO_LOOK_AT_STOP": ("OPS=2", ASSERTION),
    "M_NO_QUIESCE": ("OPS=2", ASSERTION),
    "M_READ_BEFORE_STOP": ("OPS=2", ASSERTION),
    "M_START_BEFORE_INVALIDATE": ("OPS=2", ASSERTION),
    # deregistration
    "M_NO_WAIT_FOR_KEY": ("OPS=1 DEREG", ASSERTION),
    "M_NO_WAIT_FOR_REFS": ("OPS=1 DEREG", ASSERTION),
    "M_KEY_DIES_LAST": ("OPS=1 DEREG", ASSERTION),
    "M_KEY_NOT_SEEN_AGAIN": ("OPS=2 DEREG", ASSERTION),
    "M_GET_WITHOUT_LOOK": ("OPS=1 DEREG", ASSERTION),
    "M_REMOVE_DOES_NOT_WAIT": ("OPS=1 DEREG DISCARD", ASSERTION),
    "M_PUT_FORGOTTEN": ("OPS=1 DEREG", FOR_EVER),
    # waiting
    "M_NO_BROADCAST": ("OPS=2", FOR_EVER),
    "M_NO_NEW_SEQ": ("OPS=2", FOR_EVER),
    "M_FORGETS_TO_UNLOCK": ("OPS=2", FOR_EVER),
    "M_NO_RESUME": ("OPS=2", FOR_EVER),
    "M_PAUSED_AFTER_QUEUED": ("OPS=2", FOR_EVER),
    "M_QUEUE_SEEN_WITHOUT_LOCK": ("OPS=2", FOR_EVER),
    "M_WAKE_BEFORE_RESOLVED": ("OPS=2", ASSERTION),
    # Not a step taken away but a limit of userfaultfd, which tells of an munmap() after the fact: another
    # thread's mmap() may be given the place before. Hooks do not have it.
    "OTHER_MAPS": ("OPS=2", ASSERTION),
}

# children.pml
CHILDREN_WHOLE, CHILDREN_DEEP = ["OPS=1"], ["OPS=2"]
CHILDREN = {
    "M_USE_NOT_COUNTED": ("OPS=1", ASSERTION),
    "M_PUT_QUEUES_UNLOCKED": ("OPS=2", ASSERTION),
    "M_PUT_DOES_NOT_QUEUE": ("OPS=1", ASSERTION),
    "M_NO_WAIT_FOR_ACCESS": ("OPS=2", ASSERTION),
    "M_WAIT_BEFORE_OUT": ("OPS=2", ASSERTION),
    "M_UNUSED_NOT_SEEN_AGAIN": ("OPS=1", ASSERTION),
    "M_REMOVE_DOES_NOT_WAIT": ("OPS=2", ASSERTION),
    "M_NOT_UNQUEUED": ("OPS=2", ASSERTION),
}
# pin.pml
PIN_WHOLE = ["CYCLES=1", "CYCLES=2"]
PIN = {name: ("CYCLES=1", ASSERTION) for name in (
    "M_PIN_NOT_STALE", "M_NO_WAIT_FOR_PINNED", "M_PIN_NO_RETRY", "M_UNPIN_LEAVES_STALE", "M_PINS_NOT_SEEN_MOVED",
    "M_FAULT_ENTERS_PINNED")}
MODELS = {"odp.pml": MUTATIONS, "children.pml": CHILDREN, "pin.pml": PIN}


def verify(model, defines, whole=False, trail=False):
    """The errors that spin finds, as text; "" for none."""
    with tempfile.TemporaryDirectory(prefix="model-") as where:
        flags = ["-D" + d for d in defines.split()]
        subprocess.run(["spin", *flags, "-a", os.path.join(HERE, model)], cwd=where, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([os.environ.get("CC", "gcc"), "-O1" if whole else "-O0", "-w", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=4000", "-o",
                        "pan", "pan.c"], cwd=where, check=True)
        out = subprocess.run(["./pan", "-m100000"], cwd=where, text=True, stdout=subprocess.PIPE).stdout
        found = re.search(r"^State-vector.*errors: (\d+)", out, re.M)
        if not found or "max search depth too small" in out or "out of memory" in out:
            return "not explored: " + out
        if trail and int(found.group(1)):
            subprocess.run(["spin", *flags, "-k", model + ".trail", "-p", "-g", os.path.join(HERE, model)], cwd=where)
        return "".join(re.findall(r"^pan:\d+: (.*?) \(at depth", out, re.M)) if int(found.group(1)) else ""


def main():
    for tool in ("spin", os.environ.get("CC", "gcc").split()[0]):
        if not shutil.which(tool):
            print(f"skipped: {tool} is not installed")
            return 77
    deep = "--deep" in sys.argv[1:]
    named = [a for a in sys.argv[1:] if not a.startswith("--")]
    if named:
        for name in named:
            for model, mutations in MODELS.items():
                if name in mutations:
                    print(model, name, verify(model, f"{name} {mutations[name][0]}", trail=True))
        return 0
    jobs = [("odp.pml", s, "") for s in WHOLE + (DEEP if deep else [])]
    jobs += [("children.pml", s, "") for s in CHILDREN_WHOLE + (CHILDREN_DEEP if deep else [])]
    jobs += [("pin.pml", s, "") for s in PIN_WHOLE]
    jobs += [(model, f"{name} {setting}", how) for model, mutations in MODELS.items()
             for name, (setting, how) in mutations.items()]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (model, defines, expected), found in zip(jobs, pool.map(lambda j: verify(j[0], j[1], not j[2]), jobs)):
            ok = expected in found if expected else not found
            failed += not ok
            print(f"{'ok' if ok else 'NOT OK'}: {model}: {defines}: {found or 'no error'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
