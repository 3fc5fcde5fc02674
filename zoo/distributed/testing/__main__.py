"""``LAUNCHER python -m zoo.distributed.testing [PROGRAM]``: one rank of a program of the suite."""

from __future__ import annotations

import faulthandler
import sys

import numpy as np

from zoo.distributed import Cluster, Layout, connect
from zoo.distributed.testing import PROGRAMS, RANKS, conformance
from zoo.distributed.testing.promises import PROMISES


def main(arguments: list[str]) -> None:
    """Join the cluster, and run the program on it."""
    program = arguments[0] if arguments else 'conformance'
    if program not in PROGRAMS or not __debug__:
        sys.exit(f'zoo.distributed.testing runs {", ".join(PROGRAMS)}, by a Python without -O.')
    faulthandler.dump_traceback_later(150, exit=True)  # a hang tells where
    cluster = connect(learners=1, actors=RANKS - 1)
    if program == 'conformance':
        checks = conformance.conform(cluster)
    else:
        everyone = Cluster(cluster.engine, Layout(RANKS))
        PROMISES[program](everyone)
        checks = int(everyone.role_all_reduce(np.ones(1, np.int64), 'sum')[0])
    if cluster.rank == 0:
        print(f'{program}: {checks} checks passed', flush=True)
    cluster.barrier()
    cluster.close()


if __name__ == '__main__':
    main(sys.argv[1:])
