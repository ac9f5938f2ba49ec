#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Sums meson's test logs: summary.py "BUILDS THAT FAILED" NAME=TESTLOG.JSON...

Prints the end of each failed test's output, then `N passed, N failed[, N skipped]`. A test that failed and
passed when it was run again (again.json beside the log) counts as passed, and is named.

summary.py --failed TESTLOG.JSON: the names of the tests that failed, if they are few."""
import json
import os
import sys

TAIL = 40
FEW = 5
GOOD = ("OK", "EXPECTEDFAIL", "SKIP")
passed = failed = skipped = 0


def read(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as f:
        return [json.loads(line) for line in f if line.strip()]


if sys.argv[1] == "--failed":
    names = [t["name"].split(" / ")[-1] for t in read(sys.argv[2]) if t["result"] not in GOOD]
    print(" ".join(names) if len(names) <= FEW else "")
    sys.exit(0)

for build in sys.argv[1].split():
    print(f"FAILED: the build {build}")
    failed += 1

for arg in sys.argv[2:]:
    name, path = arg.split("=", 1)
    tests = read(path)
    again = {t["name"] for t in read(os.path.join(os.path.dirname(path), "again.json"))
             if t["result"] in GOOD}
    if not tests:
        print(f"FAILED: {name}: no test has run")
        failed += 1
    for t in tests:
        if t["result"] in ("OK", "EXPECTEDFAIL"):
            passed += 1
        elif t["result"] == "SKIP":
            skipped += 1
            why = (t.get("stdout", "") + t.get("stderr", "")).strip().splitlines()
            print(f"skipped: {name}: {t['name']}: {why[-1] if why else 'it says not why'}")
        elif t["name"] in again:
            passed += 1
            print(f"unsteady: {name}: {t['name']}: failed at first, passed when run alone")
        else:
            failed += 1
            print(f"\nFAILED: {name}: {t['name']} ({t['result']}, {t.get('duration', 0):.1f} s)")
            out = (t.get("stdout", "") + t.get("stderr", "")).strip().splitlines()
            for line in out[-TAIL:]:
                print(f"    {line}")

print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
sys.exit(1 if failed else 0)
