#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Sums meson's test logs: summary.py "BUILDS THAT FAILED" NAME=TESTLOG.JSON...

Prints the end of each failed test's output, then `N passed, N failed[, N skipped]`."""
import json
import os
import sys

TAIL = 40
passed = failed = skipped = 0

for build in sys.argv[1].split():
    print(f"FAILED: the build {build}")
    failed += 1

for arg in sys.argv[2:]:
    name, path = arg.split("=", 1)
    tests = []
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace") as f:
            tests = [json.loads(line) for line in f if line.strip()]
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
        else:
            failed += 1
            print(f"\nFAILED: {name}: {t['name']} ({t['result']}, {t.get('duration', 0):.1f} s)")
            out = (t.get("stdout", "") + t.get("stderr", "")).strip().splitlines()
            for line in out[-TAIL:]:
                print(f"    {line}")

print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
sys.exit(1 if failed else 0)
