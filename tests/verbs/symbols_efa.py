#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""symbols_efa.py LIBRARY: our libefa exports what rdma-core's has, in the same versions, and no name without one."""
import glob
import sys

from symbols import exports, soname

WANT = ['efadv_create_driver_qp@@EFA_1.0', 'efadv_create_qp_ex@@EFA_1.1', 'efadv_query_ah@@EFA_1.1',
        'efadv_query_device@@EFA_1.1', 'efadv_cq_from_ibv_cq_ex@@EFA_1.2', 'efadv_create_cq@@EFA_1.2',
        'efadv_query_mr@@EFA_1.3']


def main():
    ours = exports(sys.argv[1])
    bad = ['missing: ' + name for name in WANT if name not in ours]
    bad += ['not rdma-core\'s: ' + name for name in ours if name not in WANT]
    if soname(sys.argv[1]) != ['libefa.so.1']:
        bad.append('soname: %s' % soname(sys.argv[1]))
    for path in glob.glob('/usr/lib/*/libefa.so.1'):
        # a later release has calls that are for hardware alone: rings and doorbells
        bad += ['missing, %s has it: %s' % (path, n) for n in exports(path)
                if n not in ours and n.split('@')[-1] in ('EFA_1.0', 'EFA_1.1', 'EFA_1.2', 'EFA_1.3')]
    print('\n'.join(bad) if bad else '%d exports' % len(ours))
    return bool(bad)


sys.exit(main())
