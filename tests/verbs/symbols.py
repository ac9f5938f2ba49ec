#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""symbols.py LIBRARY LIST: the library exports all that the list names, in the same versions, and no
name without a version. Where rdma-core's own library is installed it is compared with that, too."""
import glob
import subprocess
import sys

# nodes that programs linked to later releases want to find
NODES = ['IBVERBS_1.%d' % i for i in (0, 1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18)]
NODES += ['IBVERBS_PRIVATE_%d' % i for i in (25, 33, 34, 57, 59, 65)]


def exports(path):
    """name@version -> (is an object, is weak) of the defined dynamic symbols"""
    out = subprocess.run(['readelf', '-W', '--dyn-syms', path], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    found = {}
    for line in out.splitlines():
        word = line.split()
        if len(word) == 8 and word[0][:-1].isdigit() and word[6] not in ('UND', 'ABS'):
            found[word[7]] = word[3] == 'OBJECT'
    return found


def nodes(path):
    out = subprocess.run(['readelf', '-W', '-V', path], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    section = out.split("Version definition section")[1].split("Version needs section")[0]
    return {line.split('Name: ')[1].split()[0] for line in section.splitlines() if 'Name: ' in line}


def soname(path):
    out = subprocess.run(['readelf', '-W', '-d', path], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    return [line.split('[')[1].rstrip(']') for line in out.splitlines() if 'SONAME' in line]


def main():
    ours = exports(sys.argv[1])
    bad = []
    with open(sys.argv[2]) as f:
        want = [line.strip() for line in f if not line.startswith('#')]
    if len(want) < 180:
        bad.append('the list is short')
    bad += ['missing: ' + name for name in want if name not in ours]
    bad += ['without a version: ' + name for name in ours if '@' not in name]
    bad += ['missing node: ' + n for n in set(NODES) - nodes(sys.argv[1])]
    if soname(sys.argv[1]) != ['libibverbs.so.1']:
        bad.append('soname: %s' % soname(sys.argv[1]))
    if not ours.get('verbs_allow_disassociate_destroy@@IBVERBS_PRIVATE_34'):
        bad.append('verbs_allow_disassociate_destroy is not an object')
    for path in glob.glob('/usr/lib/*/libibverbs.so.1'):
        theirs = exports(path)
        # another release's private names are between it and its own drivers
        bad += ['missing, %s has it: %s' % (path, n) for n in theirs
                if n not in ours and '@IBVERBS_PRIVATE_' not in n]
    print('\n'.join(bad) if bad else '%d exports' % len(ours))
    return bool(bad)


if __name__ == '__main__':
    sys.exit(main())
