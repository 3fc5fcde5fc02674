"""Queues of the ``local`` engine: a file of slots, and a bell at each end."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from zoo.common.tools.errors import InvalidValue
from zoo.distributed.engines.base import ClusterError, MessageTooLarge, PeerLost
from zoo.distributed.engines.local.doors import Doors
from zoo.distributed.engines.local.folder import SLICE, Bell, Board, read
from zoo.distributed.engines.memory import Memory
from zoo.distributed.engines.waiting import Deadline

_HEAD, _TAIL, _SOURCE_CLOSED, _TARGET_CLOSED, _SLOTS = range(0, 40, 8)  # words at the beginning of the file
_BEGIN = 64  # where the messages begin


class LocalChannel:
    """One end of a queue between two ranks: a file of ``maxsize`` slots, filled in turn.

    Two counters come first: the messages put, which only the source writes, and the messages taken, which only the
    target writes. They stay true when a process is killed between any two steps. The file is sparse: a slot takes the
    memory of the largest message that it has held. :class:`zoo.distributed.engines.base.Engine` has the arguments.
    The source also notes at the target's door what it has put (``doors``).

    Attributes:
        place: the source and the index.

    Raises:
        ClusterError: the other end made the queue with other bounds.
        ValueError: this rank is neither end.
    """

    def __init__(
        self,
        folder: Path,
        board: Board,
        doors: Doors,
        memory: Memory,
        rank: int,
        source: int,
        target: int,
        index: int,
        maxsize: int,
        max_bytes: int,
    ) -> None:
        if rank not in (source, target):
            raise InvalidValue(f'rank {rank} is neither end of the queue from rank {source} to rank {target}.')
        self._name = f'the queue from rank {source} to rank {target}'
        self._board, self._doors, self.place = board, doors, (source, index)
        self._peer = target if rank == source else source
        self._maxsize, self._max_bytes = maxsize, max_bytes
        self._slot = 8 + max_bytes + -max_bytes % 64
        self._ends = [end for end, at in ((_SOURCE_CLOSED, source), (_TARGET_CLOSED, target)) if at == rank]
        self._memory = memory
        self._put_lock, self._get_lock = threading.Lock(), threading.Lock()
        self._closing = False
        path = folder / f'queue-{source}-{target}-{index}'
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._filled, self._freed = Bell(path.with_suffix('.filled')), Bell(path.with_suffix('.freed'))
        for end in self._ends:
            self._set(end, 0)
        if rank == target and board.restarts[rank]:
            self._set(_TAIL, self._get(_HEAD))  # older messages were for the process that died
        self._head, self._tail = self._get(_HEAD), self._get(_TAIL)
        shape = maxsize << 40 | max_bytes
        if self._get(_SLOTS) not in (0, shape):
            raise ClusterError(f'{self._name} was made with another maxsize or max_bytes by its other end.')
        self._set(_SLOTS, shape)
        self._taken = doors.row(index).taken if rank == target else None
        self._note_taken(self._tail)
        self._note_put(self._head)

    def put(self, parts: list[memoryview], timeout: float | None) -> None:
        size = sum(part.nbytes for part in parts)
        if size > self._max_bytes:
            raise MessageTooLarge(
                f'a message of {size} bytes for {self._name}, which takes at most {self._max_bytes}: make the queue '
                'with a larger max_bytes.'
            )
        deadline = Deadline(timeout)
        with self._locked(self._put_lock, deadline):
            while True:
                if self._is_lost(_TARGET_CLOSED):
                    raise PeerLost(f'{self._name} is closed: its receiver has left.')
                if self._head - self._tail < self._maxsize:
                    break
                self._tail = self._get(_TAIL)
                if self._head - self._tail >= self._maxsize:
                    self._wait(self._freed, deadline, f'full ({self._maxsize} messages)')
            place = _BEGIN + self._head % self._maxsize * self._slot
            if len(parts) > 500:  # the system takes 1024
                parts = [memoryview(b''.join(parts))]
            done = os.pwritev(self._file, [struct.pack('<q', size), *parts], place) - 8
            if done != size:  # the system writes up to 2 GB at once
                rest = memoryview(b''.join(parts))
                while done < size:
                    done += os.pwrite(self._file, rest[done:], place + 8 + done)
            self._head += 1
            self._set(_HEAD, self._head)
            self._filled.ring()
            self._note_put(self._head)

    def get(self, timeout: float | None) -> memoryview:
        deadline = Deadline(timeout)
        with self._locked(self._get_lock, deadline):
            while self._head == self._tail:
                lost = self._is_lost(_SOURCE_CLOSED)  # looked at before what it has sent
                self._head = self._get(_HEAD)
                if self._head == self._tail:
                    if lost:
                        raise PeerLost(f'{self._name} is closed: its sender has left.')
                    self._wait(self._filled, deadline, 'empty')
            place = _BEGIN + self._tail % self._maxsize * self._slot
            message = read(self._file, self._memory.take(self._get(place)), place + 8)
            self._tail += 1
            self._set(_TAIL, self._tail)
            self._note_taken(self._tail)
            self._freed.ring()
        return message

    def ready(self) -> bool:
        self._board.check()
        return self._file < 0 or self._is_lost(_SOURCE_CLOSED) or self._get(_HEAD) != self._tail

    def close(self) -> None:
        self._closing = True  # threads that wait in this end see it and raise PeerLost
        with self._put_lock, self._get_lock:
            if self._file < 0:
                return
            for end in self._ends:
                self._set(end, 1)
            self._note_taken(-1)
            self._note_put(-1)
            self._filled.ring()
            self._freed.ring()
            os.close(self._file)
            self._file = -1
            self._filled.close()
            self._freed.close()

    @contextlib.contextmanager
    def _locked(self, lock: threading.Lock, deadline: Deadline) -> Iterator[None]:
        """Keep other threads of this end out."""
        while not lock.acquire(timeout=min(deadline.left, threading.TIMEOUT_MAX)):
            deadline.check(f'{self._name} was busy')
        try:
            self._check_open()
            yield
        finally:
            lock.release()

    def _check_open(self) -> None:
        if self._closing:
            raise PeerLost(f'{self._name} is closed: this rank has closed it.')

    def _wait(self, bell: Bell, deadline: Deadline, state: str) -> None:
        deadline.check(f'{self._name} was {state}')
        if not bell.wait(min(deadline.left, SLICE)):
            self._check_open()
            self._board.check()

    def _note_put(self, put: int) -> None:
        """Note at the target's door what the source, if this is its end, has put; -1: it has closed its end."""
        if self._taken is None:
            self._doors.note(self._peer, self.place[1], put)

    def _note_taken(self, taken: int) -> None:
        if self._taken is not None:
            self._taken[self.place[0]] = taken

    def _is_lost(self, end: int) -> bool:
        return self._board.gone(self._peer) or self._get(end) != 0

    def _get(self, word: int) -> int:
        value = os.pread(self._file, 8, word)
        return struct.unpack('<q', value)[0] if len(value) == 8 else 0

    def _set(self, word: int, value: int) -> None:
        os.pwrite(self._file, struct.pack('<q', value), word)
