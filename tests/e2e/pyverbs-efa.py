#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""rdma-core's own tests of EFA, which Debian ships with its documentation, on the device: SRD, and what efadv
has. All must pass."""
import importlib
import os
import re
import subprocess
import sys
import tempfile

odp = importlib.import_module('pyverbs-odp')
AT_LEAST = 16


def main():
    if not odp.there():
        print('rdma-core with its tests, or python3-pyverbs, is not installed')
        return 77
    with tempfile.TemporaryDirectory() as tmp:
        odp.copy_tests(os.path.join(tmp, 'tests'))
        out = subprocess.run([os.environ['FAULTLINE'], 'run', '-q', '--device', 'efa', '--', '/usr/bin/python3',
                              'tests/run_tests.py', '-v', '--dev', 'efa_fl0', '--port', '1', 'test_efa_srd',
                              'test_efadv'],
                             cwd=tmp, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100).stdout
    print(out)
    ran = re.search(r'^Ran (\d+) tests', out, re.M)
    # one that is skipped is told of behind the OK
    good = ran and int(ran.group(1)) >= AT_LEAST and re.search(r'^OK$', out, re.M)
    print('%s tests' % ran.group(1) if good else 'not all of them ran and passed')
    return not good


sys.exit(main())
