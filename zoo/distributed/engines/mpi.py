"""The ``mpi`` engine: ranks that ``mpirun`` started, through mpi4py.

MPI is the message-passing standard of clusters; ``mpirun`` starts one process per rank, on one machine or several.
Collectives are MPI's own, on one communicator per group. Queues and save / request are non-blocking messages on a
communicator of their own. A rank that waits moves the messages on; while none waits, a thread does that.

Why not MPI's one-sided windows for save / request: MPI promises no progress to a rank that is not inside MPI. With Open
MPI a ``Get`` from a rank that computes for three seconds returns after three seconds, through shared memory as over
TCP. So a thread of the target has to enter MPI in any case, and may as well answer a message.

Why waiting never spins: there are often more ranks than cores, and MPI's own waiting takes a core from a rank that has
work to do. Every wait here polls: at once, then after sleeps that grow to half a millisecond. The collectives are the
non-blocking ones, which take no longer, so a wait for one of them sees when a rank leaves.
"""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np

from zoo.common.tools.errors import InvalidType
from zoo.distributed.engines.base import ClusterError
from zoo.distributed.engines.endings import heed_signal, watch_ends
from zoo.distributed.engines.memory import Memory
from zoo.distributed.engines.messages import LARGEST_TAG, Arrival, MessageEngine, Result
from zoo.distributed.engines.neighbor import process_identity
from zoo.distributed.engines.waiting import Deadline, pauses

HOW_TO_GET = "pip install 'zoo-rl[mpi]', then start the program with: mpirun -n <ranks> python <program>"

# Open MPI reads these when it starts. The UCX windows of its wheel print an error that means nothing. A rank that waits
# inside MPI, which is short here, lets the others run.
_SETTINGS = {'OMPI_MCA_osc': '^ucx', 'OMPI_MCA_mpi_yield_when_idle': '1'}

#: The tag of the message that says: this rank is about to make a group. It belongs to no queue.
_MEETING = 8

#: The largest piece of a broadcast, bytes: MPI counts in 32 bits.
_PIECE = 1 << 30

# Seconds. A wait polls at once for some turns, then sleeps between two polls.
_SHORTEST_PAUSE, _LONGEST_PAUSE, _IDLE_PAUSE = 20e-6, 500e-6, 5e-3
_TURNS_WITHOUT_PAUSE = 30
_JOIN_LIMIT = 5.0


class _Incoming(NamedTuple):
    """A message on its way into ``data``, complete when ``request`` is."""

    request: Any
    data: np.ndarray

    def complete(self) -> bool:
        return self.request.Test()


class _Outgoing(NamedTuple):
    """A message on its way out of ``data``, or an unwanted one on its way in. ``done`` is called at its end."""

    request: Any
    data: np.ndarray
    done: Callable[[], None] | None = None


def launched() -> bool:
    """Return whether this process is one of several that a launcher of MPI has started."""
    return any(int(os.environ.get(name) or 1) > 1 for name in ('OMPI_COMM_WORLD_SIZE', 'PMI_SIZE'))


def place() -> tuple[int, int] | None:
    """Return the rank of this process and the number of ranks; None if ``mpirun`` does not tell them by variables."""
    for prefix in ('OMPI_COMM_WORLD', 'PMI'):
        if f'{prefix}_RANK' in os.environ and f'{prefix}_SIZE' in os.environ:
            return int(os.environ[f'{prefix}_RANK']), int(os.environ[f'{prefix}_SIZE'])
    return None


def can_become() -> bool:
    """Return whether MPI does not run yet in this process."""
    return 'mpi4py.MPI' not in sys.modules


def start() -> MpiEngine:
    """Join the ranks that ``mpirun`` has started. Returns once all of them have called this.

    Raises:
        ClusterError: this process is not one of several that ``mpirun`` started; mpi4py or MPI is missing or too old.
    """
    if not launched():
        raise ClusterError(f'the engine mpi was asked for outside mpirun: {HOW_TO_GET}.')
    engine = MpiEngine()
    watch_ends(engine)
    heed_signal(engine)
    return engine


def _start_mpi() -> Any:
    """Return the module ``mpi4py.MPI``, with MPI running and open to several threads."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import mpi4py

        mpi4py.rc.thread_level = 'multiple'
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, but no MPI library
        raise ClusterError(f'the engine mpi cannot be loaded ({error}): {HOW_TO_GET}.') from error
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise ClusterError(
            'this MPI was built without MPI_THREAD_MULTIPLE, which the engine mpi needs: use Open MPI 5.'
        )
    largest = cast(int, MPI.COMM_WORLD.Get_attr(MPI.TAG_UB))  # every MPI has it
    if largest < LARGEST_TAG:
        raise ClusterError(
            f'the transport of this MPI has tags up to {largest}, but the engine mpi needs {LARGEST_TAG}: choose '
            'another transport, with Open MPI by --mca pml ob1.'
        )
    return MPI


class MpiEngine(MessageEngine):
    """One rank of ``MPI.COMM_WORLD``. Its calls are thread-safe."""

    name = 'mpi'

    def __init__(self) -> None:
        self._mpi = MPI = _start_mpi()
        self._world = MPI.COMM_WORLD
        super().__init__(self._world.Get_rank(), self._world.Get_size(), self._world.allgather(process_identity()))
        self._messages = self._world.Dup()  # this and the next two are guarded by self._lock
        self._status = MPI.Status()
        self._outgoing: list[_Outgoing] = []
        self._groups: dict[tuple[int, ...], Any] = {}
        self._meetings: set[tuple[int, bytes]] = set()  # (rank, group): ranks that are about to make a group
        self._abandoned: list[Any] = []
        self._memory = Memory()
        self._wake = threading.Event()
        self._pump = threading.Thread(target=self._keep_moving, name='zoo-mpi', daemon=True)
        self._pump.start()
        atexit.register(self.close)  # runs before mpi4py's own, which ends MPI

    def _all_reduce(self, buffer: np.ndarray, op: str, group: tuple[int, ...]) -> np.ndarray:
        MPI, result = self._mpi, self._memory.take(buffer.nbytes).view(buffer.dtype)
        operation = {'sum': MPI.SUM, 'max': MPI.MAX, 'min': MPI.MIN}[op]
        try:
            request = self._group(group).Iallreduce(buffer, result, operation)
        except (KeyError, MPI.Exception) as error:
            raise InvalidType(
                f'MPI cannot reduce {buffer.dtype} by {op!r}: convert the array first ({error}).'
            ) from error
        self._finish_with(group, request, buffer, result)
        return result

    def broadcast(self, buffer: np.ndarray | None, root: int, group: tuple[int, ...]) -> np.ndarray:
        if len(group) == 1:
            assert buffer is not None  # this rank is the root
            return buffer
        communicator, source = self._group(group), group.index(root)
        length = np.array([0 if buffer is None else buffer.nbytes], np.int64)
        self._finish_with(group, communicator.Ibcast(length, source), length)
        data = self._memory.take(int(length[0])) if buffer is None else buffer
        for start in range(0, data.nbytes, _PIECE):
            piece = data[start : start + _PIECE]
            self._finish_with(group, communicator.Ibcast([piece, self._mpi.BYTE], source), piece)
        return data

    def barrier(self, group: tuple[int, ...]) -> None:
        if len(group) > 1:
            self._finish_with(group, self._group(group).Ibarrier())

    def _group(self, group: tuple[int, ...]) -> Any:
        """Return the communicator of a group. All its ranks make it together at the first call."""
        if group not in self._groups:
            # MPI's own call blocks until every rank has come to it, so the ranks meet by messages first.
            name = np.array(group, np.int64).tobytes()
            others = {(rank, name) for rank in group if rank != self.rank}
            with self._lock:
                for rank, _ in others:
                    self._send(rank, _MEETING, np.frombuffer(name, np.uint8))
            self._wait_with(group, lambda: others <= self._meetings)
            ranks = self._world.Get_group().Incl(group)
            self._groups[group] = self._world.Create_group(ranks, zlib.crc32(name) & 0x7FFF)
        return self._groups[group]

    def _finish_with(self, group: tuple[int, ...], request: Any, *buffers: np.ndarray) -> None:
        """Wait for a collective. MPI owns its buffers until it is complete: for ever, if the wait is given up."""
        try:
            self._wait_with(group, request.Test)
        except BaseException:
            self._abandoned.append((request, buffers))
            raise

    def _end_job(self) -> NoReturn:
        self._world.Abort(1)
        os._exit(1)  # not every MPI ends the calling process at once

    def close(self) -> None:
        # What was put is sent first. At the exit of the process MPI waits until all ranks have come to theirs.
        if self._leave():
            self._wake.set()
            if threading.current_thread() is not self._pump:
                self._pump.join(_JOIN_LIMIT)
            atexit.unregister(self.close)

    def _send(self, to: int, tag: int, data: np.ndarray | None = None, done: Callable[[], None] | None = None) -> None:
        data = np.empty(0, np.uint8) if data is None else data
        self._outgoing.append(_Outgoing(self._messages.Isend([data, self._mpi.BYTE], to, tag), data, done))
        self._settle()
        if self._outgoing:
            self._wake.set()

    def _settle(self) -> None:
        """Forget the messages that are sent. The lock is held."""
        waiting = []
        for outgoing in self._outgoing:
            if not outgoing.request.Test():
                waiting.append(outgoing)
            elif outgoing.done is not None:
                outgoing.done()
        self._outgoing = waiting

    def _is_flushed(self) -> bool:
        return not self._outgoing

    def _finish(self, arrival: Arrival) -> None:
        assert isinstance(arrival, _Incoming)  # this engine makes no others
        if not arrival.complete():
            self._outgoing.append(_Outgoing(arrival.request, arrival.data))  # MPI still writes into it

    def _progress(self) -> bool:
        """Take in what has come, forget what is sent; return whether anything has come. The lock is held."""
        came = False
        while True:
            message = self._messages.Improbe(self._mpi.ANY_SOURCE, self._mpi.ANY_TAG, self._status)
            if message is None:
                break
            came = True
            rank, tag = self._status.Get_source(), self._status.Get_tag()
            data = self._memory.take(self._status.Get_count(self._mpi.BYTE))
            arrival = _Incoming(message.Irecv([data, self._mpi.BYTE]), data)
            if tag == _MEETING:
                while not arrival.complete():
                    pass
                self._meetings.add((rank, data.tobytes()))
                continue
            self._take(rank, tag, arrival)
            if not data.nbytes:
                arrival.complete()  # nobody looks at it again, and MPI frees a request that is found complete
        if self._outgoing:
            self._settle()
        return came

    def _wait(self, ready: Callable[[], Result | None], timeout: float | None, late: str) -> Result:
        deadline, waits = Deadline(timeout), _waits()
        while True:
            with self._lock:
                came = self._progress()
                result = ready()
            if result is not None:
                return result
            deadline.check(late)
            if came:
                waits = _waits()
            time.sleep(next(waits))

    def _keep_moving(self) -> None:
        """The thread that moves messages while this rank computes, and watches one other rank."""
        pause = _IDLE_PAUSE
        while not self._closing:
            self._wake.clear()
            try:
                with self._lock:
                    busy = self._progress() or bool(self._outgoing)
                self._watch()
            except Exception as error:  # the others would wait for ever for a rank that cannot receive
                if self._closing:
                    return
                self.abort(f'rank {self.rank}: MPI failed: {error}')
            pause = _LONGEST_PAUSE if busy else min(2 * pause, _IDLE_PAUSE)
            self._wake.wait(pause)


def _waits() -> Iterator[float]:
    """Yield the sleeps between the polls of a wait, seconds."""
    return itertools.chain(itertools.repeat(0.0, _TURNS_WITHOUT_PAUSE), pauses(_SHORTEST_PAUSE, _LONGEST_PAUSE))
