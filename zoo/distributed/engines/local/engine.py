"""The engine of one process of a job on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, cast

import numpy as np

from zoo.common.tools.errors import InvalidValue
from zoo.distributed.engines.base import OPS, Channel, ClusterError, PeerLost
from zoo.distributed.engines.local.channel import LocalChannel
from zoo.distributed.engines.local.doors import Doors, LocalSelector
from zoo.distributed.engines.local.folder import (
    PREPARING,
    SLICE,
    WORKING,
    Board,
    JobFolder,
    Seat,
    leave_with,
    read,
    write,
)
from zoo.distributed.engines.local.group import Group
from zoo.distributed.engines.memory import Memory
from zoo.distributed.engines.waiting import Deadline, pauses

#: The place that this process was started for, or took by ``with Job(…)``.
seat: Seat | None = None


def launched() -> bool:
    """Return whether this process is a rank of a job."""
    return seat is not None


def place() -> tuple[int, int] | None:
    """Return the rank of this process and the number of ranks; None outside a job."""
    return None if seat is None else (seat.rank, seat.size)


def start() -> LocalEngine:
    """Join the job of this process, or be the only rank of a new one."""
    return LocalEngine(seat)


def can_become() -> bool:
    """Return True: :func:`zoo.distributed.rank_process.become` hands the place in the job on."""
    return True


class LocalEngine:
    """One rank of a job, at its place there; None: the only rank of a new job, which ends with this object.

    Its calls are thread-safe. A rank that was started again cannot take part in collectives: the others are past them.
    """

    name = 'local'

    def __init__(self, place: Seat | None = None) -> None:
        own: JobFolder | None = None
        if place is None:
            own = JobFolder(1)
            place = Seat(str(own.path), 0, 1)
        folder, self.rank, self.size, self.restarts, parent = place
        self.ends_by_errors = bool(parent)
        self._folder = Path(folder)
        self._board = Board(self._folder, self.size)
        self._doors, self._memory = Doors(self._folder, self._board, self.rank), Memory()
        self._groups: dict[tuple[int, ...], Group] = {}
        self._channels: list[LocalChannel] = []
        self._lock = threading.Lock()
        self._label = ''
        _allow_handles()
        if own:
            weakref.finalize(self, own.remove)

    @property
    def label(self) -> str:
        """What messages call this rank besides its number."""
        return self._label

    @label.setter
    def label(self, label: str) -> None:
        self._label = label
        self._board.set_label(self.rank, label)

    def all_reduce(self, buffer: np.ndarray, op: str, group: tuple[int, ...]) -> np.ndarray:
        if op not in OPS:
            raise InvalidValue(f'unknown reduction {op!r}: it is one of {", ".join(OPS)}.')
        if len(group) == 1 or buffer.size == 0:
            return buffer.copy()
        return self._group(group).all_reduce(buffer, {'sum': np.add, 'max': np.maximum, 'min': np.minimum}[op])

    def broadcast(self, buffer: np.ndarray | None, root: int, group: tuple[int, ...]) -> np.ndarray:
        if len(group) == 1:
            assert buffer is not None  # this rank is the root
            return buffer
        return self._group(group).broadcast(buffer, group.index(root))

    def barrier(self, group: tuple[int, ...]) -> None:
        if len(group) > 1:
            self._group(group).barrier()

    def channel(self, source: int, target: int, index: int, maxsize: int, max_bytes: int) -> LocalChannel:
        shared = self._folder, self._board, self._doors, self._memory, self.rank
        made = LocalChannel(*shared, source, target, index, maxsize, max_bytes)
        self._channels.append(made)
        return made

    def selector(self, channels: Sequence[Channel]) -> LocalSelector:
        own = cast('Sequence[LocalChannel]', channels)  # made by this engine
        return LocalSelector(self._doors, self._board, self.rank, [channel.place for channel in own])

    def save(self, name: str, parts: list[memoryview]) -> None:
        write(self._saved(self.rank, name), parts)

    def request(self, rank: int, name: str, timeout: float | None) -> memoryview:
        path, deadline, waits = self._saved(rank, name), Deadline(timeout), pauses(1e-3, SLICE)
        while True:
            gone = rank != self.rank and self._board.gone(rank)
            with contextlib.suppress(FileNotFoundError), open(path, 'rb', buffering=0) as file:
                return read(file.fileno(), np.empty(os.fstat(file.fileno()).st_size, np.uint8), 0)
            if gone:
                raise PeerLost(f'rank {rank} has left and saved nothing as {name!r}.')
            deadline.check(f'rank {rank} has saved nothing as {name!r}')
            self._board.check()
            time.sleep(min(next(waits), deadline.left))

    def allow_restarts(self, times: int, works: bool = True) -> None:
        self._board.allowed[self.rank] = times
        self._board.works[self.rank] = WORKING if works else PREPARING

    def abort(self, message: str) -> NoReturn:
        # In the process that started the job the error ends the other ranks on its way out of ``with Job(…)``.
        if not self.ends_by_errors:
            raise ClusterError(message)
        leave_with(self._folder, self.rank, 'abort', message)

    def close(self) -> None:
        self._board.leave(self.rank)
        for channel in self._channels:
            channel.close()
        self._channels.clear()
        self._doors.close()
        for group in self._groups.values():
            group.close()
        self._groups.clear()

    def _group(self, members: tuple[int, ...]) -> Group:
        if self.restarts:
            raise ClusterError(
                f'rank {self.rank} was started again and cannot join a collective that the others are past: '
                'use queues, save and request, and skip collectives where cluster.restarts > 0.'
            )
        with self._lock:
            if members not in self._groups:
                self._groups[members] = Group(self._folder, self._board, members, self.rank)
            return self._groups[members]

    def _saved(self, rank: int, name: str) -> Path:
        return self._folder / f'saved-{rank}-{hashlib.sha1(name.encode()).hexdigest()}'


def _allow_handles() -> None:
    """Let this process open as many files as the system allows: a learner has three for each queue."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
