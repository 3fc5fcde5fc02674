"""Which launcher started this process, and so which engine connects it.

Engines are entry points of the group ``zoo.engines``; zoo's own are listed here in the same form. Each names a module
or class that answers for its engine: :class:`zoo.distributed.engines.base.Launcher`.
"""

from __future__ import annotations

import functools
import logging
import os
from importlib import metadata
from typing import cast

from zoo.common.tools.errors import InvalidValue, unknown
from zoo.distributed.engines.base import ClusterError, Engine, Launcher

#: The group of entry points.
GROUP = 'zoo.engines'

_OWN = {
    'local': 'zoo.distributed.engines.local.engine',
    'kungfu': 'zoo.distributed.engines.kungfu',
    'mpi': 'zoo.distributed.engines.mpi',
}
_QUESTIONS = ('launched', 'place', 'start', 'can_become')

log = logging.getLogger('zoo')


@functools.cache
def engines() -> dict[str, metadata.EntryPoint]:
    """Return the entry points of all engines by their names, in the order in which they are asked.

    The job of this process comes first, then installed engines, then zoo's others: the launcher of an installed engine
    may itself use ``mpirun``. An engine with the name of one of zoo's is left out with a warning.
    """
    own = {name: metadata.EntryPoint(name, module, GROUP) for name, module in _OWN.items()}
    found = {}
    for entry in sorted(metadata.entry_points(group=GROUP), key=lambda entry: entry.name):
        if entry.name in own:
            log.warning('%s is left out: zoo has an engine of this name. It needs another one.', _called(entry))
        else:
            found[entry.name] = entry
    return {'local': own.pop('local'), **found, **own}


def start_engine(name: str | None) -> Engine:
    """Start an engine, or (None) the one of the launcher that started this process.

    Raises:
        ClusterError: the engine is not installed or cannot be imported, or its launcher did not start this process.
        ValueError: an unknown engine.
    """
    if name is not None and name not in engines():
        raise InvalidValue(unknown('engine', name, engines()))
    chosen = _launched_by() if name is None else _loaded(engines()[name])
    return (_local() if chosen is None else chosen).start()


def is_launched() -> bool:
    """Return whether this process is a rank that a launcher or a job has started."""
    return _launched_by() is not None


def launched_place() -> tuple[int, int] | None:
    """Return the rank of this process and the number of ranks; None if the launcher does not tell them this early."""
    launcher = _launched_by()
    return None if launcher is None else launcher.place()


def can_become() -> bool:
    """Return whether a new process may take the place of this one: it would lose an engine that runs already."""
    return hasattr(os, 'execve') and all(launcher.can_become() for launcher in _usable())


def _local() -> Launcher:
    return _loaded(metadata.EntryPoint('local', _OWN['local'], GROUP))


def _launched_by() -> Launcher | None:
    """Return the launcher that has started this process; None: there is none."""
    if _local().launched():  # before the others are looked for, which takes an actor's start some milliseconds
        return _local()
    return next((launcher for launcher in _usable() if launcher.launched()), None)


@functools.cache
def _usable() -> tuple[Launcher, ...]:
    """Return what answers for all engines that can be imported. Of the others a warning says why not."""
    found = []
    for entry in engines().values():
        try:
            found.append(_loaded(entry))
        except ClusterError as error:
            log.warning('%s', error)
    return tuple(found)


def _loaded(entry: metadata.EntryPoint) -> Launcher:
    """Import what answers for an engine.

    Raises:
        ClusterError: it cannot be imported, or does not answer all questions.
    """
    try:
        answers = entry.load()
    except Exception as error:
        why = ' '.join(str(error).split())[:200]
        raise ClusterError(
            f'{_called(entry)} cannot be imported from {entry.value!r} ({type(error).__name__}: {why}): repair or '
            'uninstall that package.'
        ) from error
    missing = [f'{name}()' for name in _QUESTIONS if not callable(getattr(answers, name, None))]
    if missing:
        raise ClusterError(
            f'{_called(entry)} has no {", ".join(missing)} in {entry.value!r}: an engine answers all questions of '
            'zoo.distributed.engines.base.Launcher.'
        )
    return cast(Launcher, answers)


def _called(entry: metadata.EntryPoint) -> str:
    package = '' if entry.dist is None else f' of the package {entry.dist.name}'
    return f'the engine {entry.name!r}{package}'
