#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""rdma-core's own tests of on-demand paging, which Debian ships with its documentation, on the device:
all that the device claims must pass. Two need huge pages, which root can reserve for the time."""
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile

TESTS = '/usr/share/doc/rdma-core/tests'
HUGE = '/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages'
HUGE_WANTED = 16
# what may be skipped, and for which reason
MAY_SKIP = {'test_odp_rc_huge_traffic': 'huge pages', 'test_odp_rc_huge_user_addr_traffic': 'huge pages'}
AT_LEAST = 17


def reserve():
    """Huge pages, if there are none: how many there were, or None when nothing was changed."""
    try:
        with open(HUGE) as f:
            had = int(f.read())
        if had < HUGE_WANTED:
            with open(HUGE, 'w') as f:
                f.write(str(HUGE_WANTED))
            return had
    except OSError:
        pass
    return None


def copy_tests(to):
    os.mkdir(to)
    for name in os.listdir(TESTS):
        path = os.path.join(TESTS, name)
        if name.endswith('.gz'):
            with gzip.open(path) as src, open(os.path.join(to, name[:-3]), 'wb') as dst:
                shutil.copyfileobj(src, dst)
        elif os.path.isfile(path):
            shutil.copy(path, to)


def there():
    return os.path.isdir(TESTS) and not subprocess.run(['/usr/bin/python3', '-c', 'import pyverbs'],
                                                       stderr=subprocess.DEVNULL).returncode


def main():
    if not there():
        print('rdma-core with its tests, or python3-pyverbs, is not installed')
        return 77
    had = reserve()
    with tempfile.TemporaryDirectory() as tmp:
        copy_tests(os.path.join(tmp, 'tests'))
        try:
            out = subprocess.run([os.environ['FAULTLINE'], 'run', '-q', '--', '/usr/bin/python3',
                                  'tests/run_tests.py', '-v', '--dev', 'mlx5_fl0', '--port', '1', 'test_odp'],
                                 cwd=tmp, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 timeout=100).stdout
        finally:
            if had is not None:
                with open(HUGE, 'w') as f:
                    f.write(str(had))
    print(out)
    results = re.findall(r'^(test_\w+) \(.*?\) \.\.\. (ok|skipped|FAIL|ERROR)(.*)$', out, re.M)
    bad = [name + ': ' + what + why for name, what, why in results
           if what != 'ok' and not (what == 'skipped' and MAY_SKIP.get(name, '\0') in why)]
    if len(results) < AT_LEAST:
        bad.append('%d tests only' % len(results))
    print('\n'.join(bad) or '%d tests' % len(results))
    return bool(bad)


if __name__ == '__main__':
    sys.exit(main())
