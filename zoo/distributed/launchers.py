"""Which launcher started this process, and so which engine connects it."""

from __future__ import annotations

import os

from zoo.common.tools.errors import InvalidValue, unknown
from zoo.distributed.engines import kungfu, mpi
from zoo.distributed.engines.base import Engine
from zoo.distributed.engines.local import engine as local

ENGINES = ('local', 'mpi', 'kungfu')


def start_engine(name: str | None) -> Engine:
    """Start an engine, or (None) the one of the launcher that started this process.

    Raises:
        ClusterError: the engine is not installed, or its launcher did not start this process.
        ValueError: an unknown engine.
    """
    if name is not None and name not in ENGINES:
        raise InvalidValue(unknown('engine', name, ENGINES))
    name = _launched_by() if name is None else name
    if name == 'local':
        return local.LocalEngine(local.seat)
    return mpi.start() if name == 'mpi' else kungfu.start()


def is_launched() -> bool:
    """Return whether this process is a rank that a launcher or a job has started."""
    return local.seat is not None or _launched_by() != 'local'


def launched_place() -> tuple[int, int] | None:
    """Return the rank of this process and the number of ranks; None if the launcher does not tell them this early."""
    launcher, environment = _launched_by(), os.environ
    if launcher == 'local':
        return None if local.seat is None else (local.seat.rank, local.seat.size)
    if launcher == 'kungfu':
        peers = environment.get('KUNGFU_INIT_PEERS', '').split(',')
        own = environment['KUNGFU_SELF_SPEC']
        return (peers.index(own), len(peers)) if own in peers else None
    for prefix in ('OMPI_COMM_WORLD', 'PMI'):
        if f'{prefix}_RANK' in environment and f'{prefix}_SIZE' in environment:
            return int(environment[f'{prefix}_RANK']), int(environment[f'{prefix}_SIZE'])
    return None


def _launched_by() -> str:
    if local.seat is not None:
        return 'local'
    if kungfu.launched():
        return 'kungfu'
    return 'mpi' if mpi.launched() else 'local'
