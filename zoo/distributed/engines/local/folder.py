"""The folder of a job: the files and named pipes that the ranks and the watching process share."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from zoo.distributed.engines.base import PeerLost

#: A job folder goes to the temporary folder if shared memory has less free space than this, bytes.
ENOUGH = 256 << 20

#: Seconds between two looks of a waiting rank whether the others are still there.
SLICE = 0.1

#: Whether a rank does its work: it never says; it has not begun, and will say when it does; it has begun.
UNTOLD, PREPARING, WORKING = 0, 1, 2

#: The state of a rank that has not left.
RUNNING = 0
_LEFT = 1


class Seat(NamedTuple):
    """The place of this process in a job."""

    folder: str
    rank: int
    size: int
    restarts: int = 0  # how often this rank was started again
    parent: int = 0  # the process id of the watching process; 0 in that process itself


class Board:
    """What all ranks know of each other: a small mapped file, and some files of text, in the job's folder.

    Attributes:
        states: int64 ``[size]``, :data:`RUNNING` or not.
        restarts, allowed: int64 ``[size]``, how often each rank was started again, and how often it allows that.
        beats: int64 ``[size]``, counted up by each rank while it runs.
        works: int64 ``[size]``, whether each rank does its work: :data:`UNTOLD`, :data:`PREPARING` or :data:`WORKING`.
        selecting: int64 ``[size]``, 1 while a rank waits for several queues at its door.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        words = np.asarray(np.memmap(folder / 'board', np.int64, 'r+', shape=(1 + 6 * size,)))
        self._failed, rows = words[:1], words[1:].reshape(6, size)
        self.states, self.restarts, self.allowed, self.beats, self.works, self.selecting = rows

    def gone(self, rank: int) -> bool:
        """Return whether a rank has left for good."""
        return self.states[rank] != RUNNING

    def leave(self, rank: int) -> None:
        """Note that a rank has left for good."""
        self.states[rank] = _LEFT

    def fail(self, message: str) -> None:
        """Note that the job has failed."""
        write_text(self._folder / 'failure', message)
        self._failed[0] = 1

    def check(self, ranks: tuple[int, ...] = (), what: str = '') -> None:
        """Raise if the job has failed, or if one of these ranks has left.

        Raises:
            PeerLost: with the message of the failure; or: a rank left that ``what``, for which this rank waits, needs.
        """
        if self._failed[0]:
            raise PeerLost((self._folder / 'failure').read_text())
        for rank in ranks:
            if self.gone(rank):
                raise PeerLost(f'rank {rank} has left, and {what} needs it.')

    def set_label(self, rank: int, label: str) -> None:
        """Set what messages call a rank besides its number, such as ``'actor 2'``."""
        write_text(self._folder / f'label-{rank}', label)

    def called(self, rank: int) -> str:
        """Return what messages call a rank: ``'rank 3 (actor 2)'``."""
        try:
            return f'rank {rank} ({(self._folder / f"label-{rank}").read_text()})'
        except FileNotFoundError:
            return f'rank {rank}'

    def last_words(self, rank: int) -> tuple[str, str] | None:
        """Return the kind and the message of :func:`leave_with` by a rank that has ended; None: there is no message."""
        try:
            kind, _, message = (self._folder / f'error-{rank}').read_text().partition('\n')
        except FileNotFoundError:
            return None
        return kind, message

    def forget_last_words(self, rank: int) -> None:
        """Remove the message with which a rank ended."""
        (self._folder / f'error-{rank}').unlink(missing_ok=True)


class JobFolder:
    """A new folder of a job, with its board, in shared memory if there is enough.

    The process that makes it holds a lock on a file in it. A folder with a lock that nobody holds is left over from a
    job that was killed: the next job removes it.
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
        write(self.path / 'board', [memoryview(np.zeros(1 + 6 * size, np.int64)).cast('B')])

    def remove(self) -> None:
        """Remove the folder and everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


class Bell:
    """A named pipe: one process waits at it, others write to it. A full pipe has woken its reader already."""

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
        """Return how many rings came, up to ``most``; 0 if none came for that many seconds."""
        if not self._poll.poll(max(0.0, seconds) * 1000):
            return 0
        with contextlib.suppress(BlockingIOError):
            return len(os.read(self.handle, most))
        return 0

    def close(self) -> None:
        """Close this process's end."""
        os.close(self.handle)


def leave_with(folder: Path, rank: int, kind: str, message: str) -> NoReturn:
    """End this process, which the watching process started, with a message for that one to print.

    The kind is ``'error'``; ``'lost'``: the cause is that another rank is lost; or ``'abort'``: the message names its
    rank itself. The watching process puts number and role of the rank before the other messages.
    """
    with contextlib.suppress(OSError):  # the job is over
        write_text(folder / f'error-{rank}', f'{kind}\n{message}')
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(1)  # a normal exit would wait for the threads of whatever this process used


def write(path: Path, parts: list[memoryview]) -> None:
    """Write a file that appears whole, in place of an older one."""
    temporary = path.with_name(f'{path.name}.{os.getpid()}-{threading.get_ident()}')
    with open(temporary, 'wb', buffering=0) as file:
        for part in parts:
            done = 0
            while done < part.nbytes:
                done += file.write(part[done:])
    os.replace(temporary, path)


def write_text(path: Path, text: str) -> None:
    """Write a file of text that appears whole, in place of an older one."""
    write(path, [memoryview(text.encode())])


def read(handle: int, array: np.ndarray, start: int) -> memoryview:
    """Fill a uint8 array with the bytes of a file from ``start``, and return it."""
    data, done = memoryview(array), 0
    while done < array.size:
        done += os.preadv(handle, [data[done:]], start + done)
    return data
