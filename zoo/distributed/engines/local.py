"""The ``local`` engine: the ranks are processes of one machine, started by :mod:`zoo.distributed.jobs`.

A job has a folder in shared memory. Queues and saved messages are files in it, collectives a file that every rank of
the group has mapped, and whoever has to wait reads from a named pipe that the other side writes to: no lock that a
killed process could take with it, no thread that moves messages, and a rank that is started again opens the same files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import shutil
import struct
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

try:
    import fcntl
    import resource
except ImportError as error:
    raise ImportError(
        'zoo.distributed needs named pipes and file locks of a POSIX system: use Linux, macOS or WSL.'
    ) from error

from zoo.distributed.engines.base import GRACE, OPS, ClusterError, MessageTooLarge, PeerLost
from zoo.distributed.engines.memory import Memory

#: How often a rank that waits looks whether the others are still there, seconds.
SLICE = 0.1
#: Memory of one group's collectives, bytes, and the size below which every rank reduces the whole array itself.
EXCHANGE, SMALL = 4 << 20, 64 << 10
#: A job folder goes to the temporary folder where shared memory has less than this, bytes.
ENOUGH = 256 << 20

_RUNNING, _LEFT = 0, 1  # states of a rank
_HEAD, _TAIL, _SOURCE_CLOSED, _TARGET_CLOSED, _SLOTS = range(0, 40, 8)  # words at the beginning of a queue's file
_BEGIN = 64  # where its messages begin


class Seat(NamedTuple):
    """The place of this process in a job."""

    folder: str
    rank: int
    size: int
    restarts: int = 0
    parent: int = 0
    """Process id of the one that watches; 0 for that one itself."""


#: The place that this process was started for, or took by ``with Job(…)``.
seat: Seat | None = None


class LocalEngine:
    """One rank of a job (see :class:`zoo.distributed.engines.base.Engine`). Its calls are thread-safe.

    Args:
        place: which rank of which job; None: the only rank of a job of its own, which is gone with this object.

    Attributes:
        restarts: how often this rank was started again; such a rank cannot take part in collectives.
        ends_by_errors: whether this process was started to be this rank, and is watched.
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
        self._groups: dict[tuple[int, ...], Group] = {}
        self._channels: list[LocalChannel] = []
        self._lock = threading.Lock()
        self._label = ''
        _allow_handles()
        if own:
            weakref.finalize(self, own.remove)

    @property
    def label(self) -> str:
        """What messages call this rank besides its number, such as ``'actor 2'``; the cluster sets it."""
        return self._label

    @label.setter
    def label(self, label: str) -> None:
        self._label = label
        write(self._folder / f'label-{self.rank}', [memoryview(label.encode())])

    def all_reduce(self, buffer: np.ndarray, op: str, group: tuple[int, ...]) -> np.ndarray:
        """See :meth:`zoo.distributed.engines.base.Engine.all_reduce`; sums are added up in the order of the ranks."""
        if op not in OPS:
            raise ValueError(f'unknown reduction {op!r}: it is one of {", ".join(OPS)}.')
        if len(group) == 1 or buffer.size == 0:
            return buffer.copy()
        return self._group(group).all_reduce(buffer, {'sum': np.add, 'max': np.maximum, 'min': np.minimum}[op])

    def broadcast(self, buffer: np.ndarray | None, root: int, group: tuple[int, ...]) -> np.ndarray:
        """See :meth:`zoo.distributed.engines.base.Engine.broadcast`."""
        if len(group) == 1:
            assert buffer is not None  # which the root has
            return buffer
        return self._group(group).broadcast(buffer, group.index(root))

    def barrier(self, group: tuple[int, ...]) -> None:
        """See :meth:`zoo.distributed.engines.base.Engine.barrier`."""
        if len(group) > 1:
            self._group(group).barrier()

    def channel(self, source: int, target: int, index: int, maxsize: int, max_bytes: int) -> LocalChannel:
        """See :meth:`zoo.distributed.engines.base.Engine.channel`."""
        made = LocalChannel(self._folder, self._board, self.rank, source, target, index, maxsize, max_bytes)
        self._channels.append(made)
        return made

    def save(self, name: str, parts: list[memoryview]) -> None:
        """See :meth:`zoo.distributed.engines.base.Engine.save`."""
        write(self._saved(self.rank, name), parts)

    def request(self, rank: int, name: str, timeout: float | None) -> memoryview:
        """See :meth:`zoo.distributed.engines.base.Engine.request`."""
        path, deadline, pause = self._saved(rank, name), deadline_after(timeout), 1e-3
        while True:
            gone = rank != self.rank and self._board.gone(rank)
            with contextlib.suppress(FileNotFoundError), open(path, 'rb', buffering=0) as file:
                return _read(file.fileno(), np.empty(os.fstat(file.fileno()).st_size, np.uint8), 0)
            if gone:
                raise PeerLost(f'rank {rank} has left and saved nothing as {name!r}.')
            if seconds_left(deadline) <= 0:
                raise TimeoutError(f'rank {rank} has saved nothing as {name!r}, in {timeout:g} s.')
            self._board.check()
            time.sleep(min(pause, seconds_left(deadline)))
            pause = min(2 * pause, SLICE)

    def allow_restarts(self, times: int) -> None:
        """See :meth:`zoo.distributed.engines.base.Engine.allow_restarts`."""
        self._board.allowed[self.rank] = times

    def abort(self, message: str) -> NoReturn:
        """See :meth:`zoo.distributed.engines.base.Engine.abort`; in the process that started the job this raises.

        Raises:
            ClusterError: with the message, which on its way out of ``with Job(…)`` ends the other ranks.
        """
        if not self.ends_by_errors:
            raise ClusterError(message)
        leave_with(self._folder, self.rank, 'abort', message)

    def close(self) -> None:
        """See :meth:`zoo.distributed.engines.base.Engine.close`."""
        self._board.leave(self.rank)
        for channel in self._channels:
            channel.close()
        self._channels.clear()
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


class Board:
    """What all ranks know of each other: a small mapped file that the watching process and the ranks write to."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder, self._size = folder, size
        words = np.asarray(np.memmap(folder / 'board', np.int64, 'r+', shape=(1 + 4 * size,)))
        self._failed, self._states, self.restarts, self.allowed, self.beats = words[:1], *words[1:].reshape(4, size)

    def gone(self, rank: int) -> bool:
        """Whether a rank has left for good."""
        return self._states[rank] != _RUNNING

    def leave(self, rank: int) -> None:
        """Say that a rank has left."""
        self._states[rank] = _LEFT

    def fail(self, message: str) -> None:
        """Say that the job has failed."""
        write(self._folder / 'failure', [memoryview(message.encode())])
        self._failed[0] = 1

    def check(self, ranks: tuple[int, ...] = (), what: str = '') -> None:
        """Raise if the job has failed, or if one of these ranks has left.

        Raises:
            PeerLost: with the message of the failure; or that one of the ranks left while this one waits for ``what``.
        """
        if self._failed[0]:
            raise PeerLost((self._folder / 'failure').read_text())
        for rank in ranks:
            if self.gone(rank):
                raise PeerLost(f'rank {rank} has left, and {what} needs it.')


class Bell:
    """A named pipe that one process waits at and others write to. A full one has woken its reader already."""

    def __init__(self, path: Path) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # For reading and writing: opening does not wait for the other side, which may come, go and come again.
        self.handle = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self.handle, select.POLLIN)

    def ring(self) -> None:
        """Wake the reader, now or when it comes."""
        with contextlib.suppress(BlockingIOError):
            os.write(self.handle, b'.')

    def wait(self, seconds: float, most: int = 1 << 16) -> int:
        """How many rings came, up to ``most``; 0 after so many seconds without one."""
        if not self._poll.poll(max(0.0, seconds) * 1000):
            return 0
        with contextlib.suppress(BlockingIOError):
            return len(os.read(self.handle, most))
        return 0

    def close(self) -> None:
        """Let go of the pipe."""
        os.close(self.handle)


class LocalChannel:
    """One end of a queue between two ranks (see :class:`zoo.distributed.engines.base.Channel`).

    A file of ``maxsize`` slots, in the order in which they were filled, and before them two counters: the messages put,
    which only the source writes, and the messages taken, which only the target writes. A process that is killed between
    any two of its steps leaves them true. The file is sparse: a slot takes the memory of the largest message it had.
    """

    def __init__(
        self, folder: Path, board: Board, rank: int, source: int, target: int, index: int, maxsize: int, max_bytes: int
    ) -> None:
        if rank not in (source, target):
            raise ValueError(f'rank {rank} is neither end of the queue from rank {source} to rank {target}.')
        self._name = f'the queue from rank {source} to rank {target}'
        self._board, self._source, self._target = board, source, target
        self._peer = target if rank == source else source
        self._maxsize, self._max_bytes = maxsize, max_bytes
        self._slot = 8 + max_bytes + -max_bytes % 64
        self._ends = [end for end, at in ((_SOURCE_CLOSED, source), (_TARGET_CLOSED, target)) if at == rank]
        self._memory = Memory()
        self._put_lock, self._get_lock = threading.Lock(), threading.Lock()
        self._closing = False
        path = folder / f'queue-{source}-{target}-{index}'
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._filled, self._freed = Bell(path.with_suffix('.filled')), Bell(path.with_suffix('.freed'))
        for end in self._ends:
            self._set(end, 0)
        if rank == target and board.restarts[rank]:
            self._set(_TAIL, self._get(_HEAD))  # those were for the one that died
        self._head, self._tail = self._get(_HEAD), self._get(_TAIL)
        shape = maxsize << 40 | max_bytes
        if self._get(_SLOTS) not in (0, shape):
            raise ClusterError(f'{self._name} was made with another maxsize or max_bytes by its other end.')
        self._set(_SLOTS, shape)

    def put(self, parts: list[memoryview], timeout: float | None) -> None:
        """See :meth:`zoo.distributed.engines.base.Channel.put`."""
        size = sum(part.nbytes for part in parts)
        if size > self._max_bytes:
            raise MessageTooLarge(
                f'a message of {size} bytes for {self._name}, which takes at most {self._max_bytes}: make the queue '
                'with a larger max_bytes.'
            )
        deadline = deadline_after(timeout)
        with self._locked(self._put_lock, deadline, timeout, 'busy'):
            while True:
                if self._is_lost(_TARGET_CLOSED):
                    raise PeerLost(f'{self._name} is closed: its receiver has left.')
                if self._head - self._tail < self._maxsize:
                    break
                self._tail = self._get(_TAIL)
                if self._head - self._tail >= self._maxsize:
                    self._wait(self._freed, deadline, timeout, f'full ({self._maxsize} messages)')
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

    def get(self, timeout: float | None) -> memoryview:
        """See :meth:`zoo.distributed.engines.base.Channel.get`."""
        deadline = deadline_after(timeout)
        with self._locked(self._get_lock, deadline, timeout, 'busy'):
            while self._head == self._tail:
                lost = self._is_lost(_SOURCE_CLOSED)  # before the look at what it has sent
                self._head = self._get(_HEAD)
                if self._head == self._tail:
                    if lost:
                        raise PeerLost(f'{self._name} is closed: its sender has left.')
                    self._wait(self._filled, deadline, timeout, 'empty')
            place = _BEGIN + self._tail % self._maxsize * self._slot
            message = _read(self._file, self._memory.take(self._get(place)), place + 8)
            self._tail += 1
            self._set(_TAIL, self._tail)
            self._freed.ring()
        return message

    def ready(self) -> bool:
        """See :meth:`zoo.distributed.engines.base.Channel.ready`."""
        self._board.check()
        return self._file < 0 or self._is_lost(_SOURCE_CLOSED) or self._get(_HEAD) != self._tail

    def close(self) -> None:
        """See :meth:`zoo.distributed.engines.base.Channel.close`; other threads that wait in it get PeerLost."""
        self._closing = True
        with self._put_lock, self._get_lock:
            if self._file < 0:
                return
            for end in self._ends:
                self._set(end, 1)
            self._filled.ring()
            self._freed.ring()
            os.close(self._file)
            self._file = -1
            self._filled.close()
            self._freed.close()

    @contextlib.contextmanager
    def _locked(self, lock: threading.Lock, deadline: float | None, timeout: float | None, why: str) -> Iterator[None]:
        """Keep the other threads of this end out."""
        if not lock.acquire(timeout=-1 if deadline is None else max(0.0, seconds_left(deadline))):
            raise TimeoutError(f'{self._name} was {why}, in {timeout:g} s.')
        try:
            self._check_open()
            yield
        finally:
            lock.release()

    def _check_open(self) -> None:
        if self._closing:
            raise PeerLost(f'{self._name} is closed: this rank has closed it.')

    def _wait(self, bell: Bell, deadline: float | None, timeout: float | None, state: str) -> None:
        left = seconds_left(deadline)
        if left <= 0:
            raise TimeoutError(f'{self._name} was {state}, in {timeout:g} s.')
        if not bell.wait(min(left, SLICE)):
            self._check_open()
            self._board.check()

    def _is_lost(self, end: int) -> bool:
        return self._board.gone(self._peer) or self._get(end) != 0

    def _get(self, word: int) -> int:
        value = os.pread(self._file, 8, word)
        return struct.unpack('<q', value)[0] if len(value) == 8 else 0

    def _set(self, word: int, value: int) -> None:
        os.pwrite(self._file, struct.pack('<q', value), word)


class Group:
    """The collectives of some ranks: memory that all of them have mapped, and one bell for each.

    There are two sets of places to write to, used in turn, so that a rank may write the next piece while others still
    read the last one: none is two pieces ahead, since each piece has a barrier.
    """

    def __init__(self, folder: Path, board: Board, members: tuple[int, ...], rank: int) -> None:
        self._board, self._members, self._count, self._me = board, members, len(members), members.index(rank)
        self._lock, self._turn = threading.Lock(), 0
        name = hashlib.sha1(repr(members).encode()).hexdigest()[:16]
        self._chunk = max(SMALL, EXCHANGE // self._count // 64 * 64)
        shape = (2, self._count + 1, self._chunk + 64)
        size = int(np.prod(shape))
        with open(folder / f'group-{name}', 'ab') as file:
            # Now, with an error: memory that runs out later would be a bus error.
            os.posix_fallocate(file.fileno(), 0, size) if hasattr(os, 'posix_fallocate') else file.truncate(size)
        memory = np.asarray(np.memmap(folder / f'group-{name}', np.uint8, 'r+', shape=shape))
        self._slots, self._lengths = memory[:, :, : self._chunk], memory[:, :, self._chunk :].view(np.int64)
        others = range(1, self._count) if self._me == 0 else [0]
        self._mine = Bell(folder / f'group-{name}-{self._me}')
        self._others = [Bell(folder / f'group-{name}-{other}') for other in others]

    def all_reduce(self, buffer: np.ndarray, function: np.ufunc) -> np.ndarray:
        """The reduction of the buffers, in the order of the ranks."""
        result = np.empty_like(buffer)
        step = self._chunk // buffer.itemsize
        with self._lock:
            for start in range(0, buffer.size, step):
                piece = buffer[start : start + step]
                turn = self._next()
                slots = self._slots[turn, :, : piece.nbytes].view(buffer.dtype)
                slots[self._me] = piece
                self._meet()
                out = result[start : start + step]
                if piece.nbytes <= SMALL:
                    _reduce(slots[:-1], function, out)
                    continue
                shares = np.linspace(0, piece.size, self._count + 1).astype(int)
                share = slice(shares[self._me], shares[self._me + 1])
                _reduce(slots[:-1, share], function, slots[-1, share])
                self._meet()
                out[:] = slots[-1]
        return result

    def broadcast(self, buffer: np.ndarray | None, root: int) -> np.ndarray:
        """The root's bytes; ``root`` counts within the group."""
        with self._lock:
            size, start = -1, 0
            result = np.empty(0, np.uint8) if buffer is None else buffer  # empty until its size is known
            while start < size or size < 0:
                turn = self._next()
                slot, length = self._slots[turn, root], self._lengths[turn, root, :1]
                if self._me == root:
                    size = length[0] = result.nbytes
                    piece = result[start : start + self._chunk]
                    slot[: piece.nbytes] = piece
                self._meet()
                if self._me != root:
                    if size < 0:
                        size = int(length[0])
                        result = np.empty(size, np.uint8)
                    piece = result[start : start + self._chunk]
                    piece[:] = slot[: piece.nbytes]
                start += self._chunk
        return result

    def barrier(self) -> None:
        """Wait for all."""
        with self._lock:
            self._meet()

    def close(self) -> None:
        """Let go of the bells."""
        for bell in (self._mine, *self._others):
            bell.close()

    def _next(self) -> int:
        self._turn = 1 - self._turn
        return self._turn

    def _meet(self) -> None:
        """A barrier: all ring at the first rank, and once all have, it rings at every other one."""
        if self._me:
            self._others[0].ring()
        missing = 1 if self._me else self._count - 1
        lost_at: float | None = None
        while missing:
            came = self._mine.wait(SLICE, missing)
            missing -= came
            if not came:
                self._board.check()
                try:
                    self._board.check(self._members, f'a collective of ranks {list(self._members)}')
                except PeerLost:
                    # It may have left after its part, and the first rank not yet have told this one that all came.
                    lost_at = time.monotonic() if lost_at is None else lost_at
                    if time.monotonic() - lost_at > GRACE:
                        raise
        if not self._me:
            for bell in self._others:
                bell.ring()


def _reduce(rows: np.ndarray, function: np.ufunc, out: np.ndarray) -> None:
    """The reduction over the first axis, which has two rows or more, in their order."""
    function(rows[0], rows[1], out=out)
    for row in rows[2:]:
        function(out, row, out=out)


class JobFolder:
    """A new job folder, with its board, in shared memory where there is enough.

    Its maker holds a lock in it, by which later jobs see whether it is still in use, and remove it if not: when all
    processes of a job were killed at once, nobody was left to.
    """

    def __init__(self, size: int) -> None:
        root = Path('/dev/shm')
        try:
            space = os.statvfs(root)
            if space.f_bavail * space.f_frsize < ENOUGH or not os.access(root, os.W_OK):
                root = Path(tempfile.gettempdir())
        except OSError:
            root = Path(tempfile.gettempdir())
        for lock in root.glob('zoo-job-*/lock'):
            with contextlib.suppress(OSError), open(lock) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
        self.path = Path(tempfile.mkdtemp(prefix='zoo-job-', dir=root))
        self._lock = open(self.path / 'new-lock', 'w')  # noqa: SIM115  held as long as the folder is
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(self.path / 'new-lock', self.path / 'lock')
        write(self.path / 'board', [memoryview(np.zeros(1 + 4 * size, np.int64)).cast('B')])

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def leave_with(folder: Path, rank: int, kind: str, message: str) -> NoReturn:
    """End this process, which the watching one started, with a message for it to print.

    Args:
        folder: the job's.
        rank: this one.
        kind: ``'error'``, ``'lost'`` if the cause is that another rank is lost, ``'abort'`` if the message says who it
            is from; else the number and role of the rank come before it.
        message: the message.
    """
    with contextlib.suppress(OSError):  # the job is over
        write(folder / f'error-{rank}', [memoryview(f'{kind}\n{message}'.encode())])
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(1)  # the threads of whatever this process used are not waited for


def _allow_handles() -> None:
    """Let this process have as many open files as the system lets it: a learner has three for each queue."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def write(path: Path, parts: list[memoryview]) -> None:
    """Write a file that appears whole, in place of the one before it."""
    temporary = path.with_name(f'{path.name}.{os.getpid()}-{threading.get_ident()}')
    with open(temporary, 'wb', buffering=0) as file:
        for part in parts:
            done = 0
            while done < part.nbytes:
                done += file.write(part[done:])
    os.replace(temporary, path)


def _read(handle: int, array: np.ndarray, start: int) -> memoryview:
    """Fill a uint8 array with the bytes of a file from ``start``."""
    data = memoryview(array)
    done = 0
    while done < array.size:
        done += os.preadv(handle, [data[done:]], start + done)
    return data


def deadline_after(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def seconds_left(deadline: float | None) -> float:
    return float('inf') if deadline is None else deadline - time.monotonic()
