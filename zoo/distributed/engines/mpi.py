"""The ``mpi`` engine: ranks started by ``mpirun``, through mpi4py.

Collectives are MPI's own, on one sub-communicator per group. Queues and save / request are non-blocking messages on a
communicator of their own, moved on by whoever waits for one and, while nobody waits, by a thread that mostly sleeps.

Why save / request are messages and not one-sided windows: MPI promises no progress to a rank that is not inside MPI,
and Open MPI takes that literally. A ``Get`` from a rank that computes for three seconds returns after three seconds,
through shared memory as over TCP. A thread of the target has to enter MPI now and then in any case, and once it does,
it may as well answer a message, with the one reference to the newest save: no registration of memory, no reader that
meets half a save.

Why waiting never spins: there are often more ranks than cores, and MPI's own waiting takes a core from a rank that has
work to do. Every wait here polls, first at once and then after sleeps that grow to half a millisecond; the collectives
too are the non-blocking ones, which take no longer, and a wait for them sees when a rank leaves.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np

from zoo.distributed.engines.base import ClusterError
from zoo.distributed.engines.endings import heed_signal, watch_ends
from zoo.distributed.engines.memory import Memory
from zoo.distributed.engines.messages import LARGEST_TAG, Arrival, MessageEngine, Result, process_identity

HOW_TO_GET = "pip install 'zoo-rl[mpi]', then start the program with: mpirun -n <ranks> python <program>"

# Read by Open MPI when it starts. The UCX windows of its wheel print an error that means nothing; and a rank that waits
# inside MPI, which is short here, is to let the others run.
_SETTINGS = {'OMPI_MCA_osc': '^ucx', 'OMPI_MCA_mpi_yield_when_idle': '1'}

#: The tag, among those of messages that belong to no queue, that says: this rank is about to make a group.
_MEETING = 8

#: The largest piece of a broadcast, bytes: MPI counts in 32 bits.
_PIECE = 1 << 30

# Seconds. A wait polls at once for some turns, and then sleeps between two polls, each time twice as long.
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
    """A message on its way out of ``data``, or into it when nobody wants it any more; ``done`` is called at its end."""

    request: Any
    data: np.ndarray
    done: Callable[[], None] | None = None


def launched() -> bool:
    """Whether this process is one of several that a launcher of MPI has started."""
    return any(int(os.environ.get(name) or 1) > 1 for name in ('OMPI_COMM_WORLD_SIZE', 'PMI_SIZE'))


def _start_mpi() -> Any:
    """The module ``mpi4py.MPI``, with MPI running and open to several threads."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import mpi4py

        mpi4py.rc.thread_level = 'multiple'
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, and no MPI library
        raise ClusterError(f'the engine mpi cannot be loaded ({error}): {HOW_TO_GET}.') from error
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise ClusterError(
            'this MPI was built without MPI_THREAD_MULTIPLE, which the engine mpi needs: use Open MPI 5.'
        )
    largest = cast(int, MPI.COMM_WORLD.Get_attr(MPI.TAG_UB))  # which every MPI has
    if largest < LARGEST_TAG:
        raise ClusterError(
            f'the transport of this MPI has tags up to {largest}, and the engine mpi needs {LARGEST_TAG}: choose '
            'another, with Open MPI by --mca pml ob1.'
        )
    return MPI


def start() -> MpiEngine:
    """Join the ranks that ``mpirun`` has started; returns once all of them have come here.

    Raises:
        ClusterError: not started by ``mpirun`` as one of several, or mpi4py or MPI is missing or too old.
    """
    if not launched():
        raise ClusterError(f'the engine mpi was asked for outside mpirun: {HOW_TO_GET}.')
    engine = MpiEngine()
    watch_ends(engine)
    heed_signal(engine)
    return engine


class MpiEngine(MessageEngine):
    """One rank of ``MPI.COMM_WORLD`` (see :class:`zoo.distributed.engines.base.Engine`). Its calls are thread-safe.

    Raises:
        ClusterError: mpi4py or MPI is missing, or too old.
    """

    name = 'mpi'

    def __init__(self) -> None:
        self._mpi = MPI = _start_mpi()
        self._world = MPI.COMM_WORLD
        super().__init__(self._world.Get_rank(), self._world.Get_size(), self._world.allgather(process_identity()))
        self._messages = self._world.Dup()  # guarded by self._lock, as are the next two
        self._status = MPI.Status()
        self._outgoing: list[_Outgoing] = []
        self._groups: dict[tuple[int, ...], Any] = {}
        self._meetings: set[tuple[int, bytes]] = set()  # (rank, group) of those that are about to make one
        self._abandoned: list[Any] = []
        self._memory = Memory()
        self._wake = threading.Event()
        self._pump = threading.Thread(target=self._keep_moving, name='zoo-mpi', daemon=True)
        self._pump.start()
        atexit.register(self.close)  # runs before mpi4py's own, which ends MPI

    # Collectives.

    def _all_reduce(self, buffer: np.ndarray, op: str, group: tuple[int, ...]) -> np.ndarray:
        MPI = self._mpi
        result = self._memory.take(buffer.nbytes).view(buffer.dtype)
        operation = {'sum': MPI.SUM, 'max': MPI.MAX, 'min': MPI.MIN}[op]
        try:
            request = self._group(group).Iallreduce(buffer, result, operation)
        except (KeyError, MPI.Exception) as error:
            raise TypeError(
                f'MPI cannot reduce {buffer.dtype} by {op!r}: convert the array first ({error}).'
            ) from error
        self._finish_with(group, request, buffer, result)
        return result

    def broadcast(self, buffer: np.ndarray | None, root: int, group: tuple[int, ...]) -> np.ndarray:
        """See :meth:`zoo.distributed.engines.base.Engine.broadcast`."""
        if len(group) == 1:
            assert buffer is not None  # which the root has
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
        """See :meth:`zoo.distributed.engines.base.Engine.barrier`."""
        if len(group) > 1:
            self._finish_with(group, self._group(group).Ibarrier())

    def _group(self, group: tuple[int, ...]) -> Any:
        """The communicator of a group, made by all of it at the first call."""
        communicator = self._groups.get(group)
        if communicator is None:
            # Making one blocks for as long as any of them does not come to it, so they meet by messages before.
            name = np.array(group, np.int64).tobytes()
            others = {(rank, name) for rank in group if rank != self.rank}
            with self._lock:
                for rank, _ in others:
                    self._send(rank, _MEETING, np.frombuffer(name, np.uint8))
            self._wait_with(group, lambda: others <= self._meetings)
            ranks = self._world.Get_group().Incl(group)
            communicator = self._groups[group] = self._world.Create_group(ranks, zlib.crc32(name) & 0x7FFF)
        return communicator

    def _finish_with(self, group: tuple[int, ...], request: Any, *buffers: np.ndarray) -> None:
        """Wait for a collective, whose buffers are MPI's until it is complete: for ever, if it is given up before."""
        try:
            self._wait_with(group, request.Test)
        except BaseException:
            self._abandoned.append((request, buffers))
            raise

    # The end.

    def _end_job(self) -> NoReturn:
        self._world.Abort(1)
        os._exit(1)  # not every MPI ends the calling process at once

    def close(self) -> None:
        """See :meth:`zoo.distributed.engines.base.Engine.close`.

        What was put is sent first; who waits for this rank from now on gets :class:`PeerLost`. Later, at the exit of
        the process, MPI waits until all ranks have come to theirs.
        """
        if self._leave():
            self._wake.set()
            if threading.current_thread() is not self._pump:
                self._pump.join(_JOIN_LIMIT)
            atexit.unregister(self.close)

    # Messages.

    def _send(
        self, rank: int, tag: int, data: np.ndarray | None = None, done: Callable[[], None] | None = None
    ) -> None:
        data = np.empty(0, np.uint8) if data is None else data
        request = self._messages.Isend([data, self._mpi.BYTE], rank, tag)
        self._outgoing.append(_Outgoing(request, data, done))
        self._settle()
        if self._outgoing:
            self._wake.set()

    def _settle(self) -> None:
        """Let go of what is sent. The lock is held."""
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
        assert isinstance(arrival, _Incoming)  # as all of this engine's are
        if not arrival.complete():
            self._outgoing.append(_Outgoing(arrival.request, arrival.data))  # MPI still writes into it

    def _progress(self) -> bool:
        """Take in what has come and let go of what is sent; whether anything has come. The lock is held."""
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
                arrival.complete()  # nobody looks at it again, and MPI lets go of a request when it is found complete
        if self._outgoing:
            self._settle()
        return came

    def _wait(self, ready: Callable[[], Result | None], timeout: float | None, late: str) -> Result:
        deadline = None if timeout is None else time.monotonic() + timeout
        turn, pause = 0, _SHORTEST_PAUSE
        while True:
            with self._lock:
                came = self._progress()
                result = ready()
            if result is not None:
                return result
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f'{late}, in {timeout:g} s.')
            turn, pause = (0, _SHORTEST_PAUSE) if came else (turn + 1, pause)
            if turn <= _TURNS_WITHOUT_PAUSE:
                time.sleep(0)
            else:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _keep_moving(self) -> None:
        """The thread that moves messages while this rank computes, and watches one other rank."""
        pause = _IDLE_PAUSE
        while not self._closing:
            self._wake.clear()
            try:
                with self._lock:
                    busy = self._progress() or bool(self._outgoing)
                self._watch()
            except Exception as error:  # a rank that cannot receive would leave the others waiting for ever
                if self._closing:
                    return
                self.abort(f'rank {self.rank}: MPI failed: {error}')
            pause = _LONGEST_PAUSE if busy else min(2 * pause, _IDLE_PAUSE)
            self._wake.wait(pause)
