"""What ``mpi`` and ``kungfu`` share: queues, save / request and leaving, over messages with tags.

An engine that can send bytes with a tag from one rank to another, in order, gets the rest from :class:`MessageEngine`:

* A queue is bounded by credits: the sender starts with ``maxsize`` of them, spends one for each message, and gets it
  back when the receiver has taken the message out.
* A saved message stays in the memory of the rank that saved it, as one array that is never written again. The answer to
  a request is that array, so no reader can see a mixture of two saves.
* A rank that leaves tells all others. A rank that waits for it then raises :class:`PeerLost`.
* Every rank shows the next one once a second that it runs. A rank whose process was stopped ends the job.
"""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol, TypeVar, cast

import numpy as np

from zoo.common.tools.errors import InvalidValue
from zoo.distributed.engines.base import OPS, Channel, MessageTooLarge, PeerLost
from zoo.distributed.engines.neighbor import NeighborWatch
from zoo.distributed.engines.waiting import Grace

Result = TypeVar('Result')

# Tags of messages that belong to no queue.
_REQUEST, _CANCEL, GONE, _ALIVE = 0, 1, 2, 3
# Tags of queue i of a pair of ranks: _QUEUES + 4 * i + one of these.
_DATA, _CREDIT, _SENDER_CLOSED, _RECEIVER_CLOSED = 0, 1, 2, 3
_QUEUES = 16
# Tags of answers to requests: _REPLIES + the request's number, which starts again at 0. Over UCX, Open MPI takes no tag
# from 2**23 on.
_REPLIES = 1 << 22
_REPLY_NUMBERS = 1 << 20
LARGEST_TAG = _REPLIES + _REPLY_NUMBERS

#: The largest message, bytes.
LARGEST = 2**31 - 1

#: Seconds that a rank that leaves waits for its last messages to be sent.
_FLUSH_LIMIT = 5.0


class Arrival(Protocol):
    """A message on its way into ``data``."""

    @property
    def data(self) -> np.ndarray:
        """The array that its bytes go into, uint8."""

    def complete(self) -> bool:
        """Return whether all of ``data`` is there."""


class MessageEngine(ABC):
    """The half of an engine that consists of messages. Its calls are thread-safe: ``_lock`` guards everything here.

    A subclass implements the abstract methods and hands every arrival to :meth:`_take`. It calls :meth:`_watch` several
    times a second, from a thread of its own, until ``_closing`` is true. ``identities``: see :class:`NeighborWatch`.
    """

    name: str
    label: str = ''
    ends_by_errors = True  # by endings.py
    restarts = 0

    def __init__(self, rank: int, size: int, identities: list[str]) -> None:
        self.rank, self.size = rank, size
        self._neighbor = NeighborWatch(rank, identities)
        self._lock = threading.RLock()
        self._inbox: dict[tuple[int, int], deque[Arrival]] = defaultdict(deque)  # by (source, queue)
        self._stirred: dict[tuple[int, int], None] = {}  # (source, queue) of queues that may be ready, as a set
        self._incoming: dict[int, set[int]] = defaultdict(set)  # the queues from each rank to this one
        self._credits: dict[tuple[int, int], int] = defaultdict(int)  # by (target, queue)
        self._closed: set[tuple[int, int, int]] = set()  # (rank, queue, _SENDER_CLOSED or _RECEIVER_CLOSED)
        self._gone: set[int] = set()
        self._saved: dict[str, np.ndarray] = {}
        self._asked: list[tuple[int, int, str]] = []  # (rank, number, name) of requests for what is not saved yet
        self._replies: dict[int, Arrival | None] = {}
        self._next_number = 0
        self._closing = False

    @abstractmethod
    def _send(self, to: int, tag: int, data: np.ndarray | None = None, done: Callable[[], None] | None = None) -> None:
        """Start to send a rank uint8 ``data``, which must not change until ``done`` is called. The lock is held."""

    @abstractmethod
    def _wait(self, ready: Callable[[], Result | None], timeout: float | None, late: str) -> Result:
        """Wait until ``ready()``, called with the lock held, returns something other than None, and return that.

        Raises:
            TimeoutError: after ``timeout`` seconds, with the sentence ``late``.
        """

    @abstractmethod
    def _all_reduce(self, buffer: np.ndarray, op: str, group: tuple[int, ...]) -> np.ndarray:
        """Do :meth:`all_reduce` for numbers (not bool, not float16), not empty, over several ranks."""

    @abstractmethod
    def _is_flushed(self) -> bool:
        """Return whether everything is sent. The lock is held."""

    @abstractmethod
    def _end_job(self) -> NoReturn:
        """End every rank with exit status 1."""

    @abstractmethod
    def _finish(self, arrival: Arrival) -> None:
        """Keep an arrival that nobody wants any more until it is complete. The lock is held."""

    def _wait_with(self, group: tuple[int, ...], complete: Callable[[], bool]) -> None:
        """Wait for a collective of a group that has been started.

        Raises:
            PeerLost: a rank of the group has left and did not take part.
        """
        grace = Grace()

        def ready() -> bool | None:
            if complete():
                return True
            lost = self._gone.intersection(group)
            # A rank may take part and then leave, and the news of the second may come first.
            if lost and grace.is_over():
                raise PeerLost(f'rank {min(lost)} left the cluster while ranks {list(group)} wait for it.')
            return None

        self._wait(ready, None, '')

    def _take(self, rank: int, tag: int, arrival: Arrival) -> None:
        """Put one message where it belongs. The lock is held."""
        self._neighbor.heard(rank)
        if tag >= _REPLIES:
            number = tag - _REPLIES
            if number in self._replies:
                self._replies[number] = arrival
            else:
                self._finish(arrival)
        elif tag >= _QUEUES:
            queue, kind = divmod(tag - _QUEUES, 4)
            if kind == _DATA:
                self._inbox[rank, queue].append(arrival)
                self._stirred[rank, queue] = None
            elif kind == _CREDIT:
                self._credits[rank, queue] += 1
            else:
                self._closed.add((rank, queue, kind))
                self._stirred[rank, queue] = None
        elif tag == GONE:
            self._gone.add(rank)
            self._stirred.update(dict.fromkeys((rank, queue) for queue in self._incoming[rank]))
            self._asked = [asked for asked in self._asked if asked[0] != rank]
        elif tag in (_REQUEST, _CANCEL):
            while not arrival.complete():  # a few bytes, which came with their envelope
                pass
            number = int(arrival.data[:8].view(np.int64)[0])
            if tag == _CANCEL:
                self._asked = [asked for asked in self._asked if asked[:2] != (rank, number)]
                return
            name = arrival.data[8:].tobytes().decode()
            if name in self._saved:
                self._send(rank, _REPLIES + number, self._saved[name])
            else:
                self._asked.append((rank, number, name))

    def _watch(self) -> None:
        """Show the next rank that this one runs. End the job when the rank before has stopped answering."""
        with self._lock:
            following = None if self._closing else self._neighbor.turn(self._gone)
            if following is not None:
                self._send(following, _ALIVE)
        failure = self._neighbor.failure()
        if failure is not None and not self._closing:
            self.abort(failure)

    def _leave(self, also_tell_gone: bool = False) -> bool:
        """Tell the others that this rank leaves, and send what is still to be sent. False: this was done before."""
        with self._lock:
            if self._closing:
                return False
            self._closing = True
            for rank in range(self.size):
                if rank != self.rank and (also_tell_gone or rank not in self._gone):
                    self._send(rank, GONE)
        try:
            self._wait(lambda: True if self._is_flushed() else None, _FLUSH_LIMIT, '')
        except TimeoutError:
            pass  # a receiver is not there any more
        return True

    def all_reduce(self, buffer: np.ndarray, op: str, group: tuple[int, ...]) -> np.ndarray:
        # float16 is added up in float32. Raises TypeError where the engine has no reduction of a dtype.
        if op not in OPS:
            raise InvalidValue(f'unknown reduction {op!r}: it is one of {", ".join(OPS)}.')
        if len(group) == 1 or buffer.size == 0:
            return buffer.copy()
        if buffer.dtype == np.bool_:
            logical = 'max' if op == 'sum' else op
            return self.all_reduce(buffer.view(np.uint8), logical, group).view(np.bool_)
        if buffer.dtype == np.float16:
            return self.all_reduce(buffer.astype(np.float32), op, group).astype(np.float16)
        reduced = self._all_reduce(buffer, op, group)
        if op != 'sum' and buffer.dtype.kind == 'f':
            # Of a NaN and a number, their order decides which one is left.
            lost = self._all_reduce(np.isnan(buffer).view(np.uint8), 'max', group)
            reduced[lost.view(np.bool_)] = np.nan
        return reduced

    def channel(self, source: int, target: int, index: int, maxsize: int, max_bytes: int) -> MessageChannel:
        return MessageChannel(self, source, target, index, maxsize, min(max_bytes, LARGEST))

    def selector(self, channels: Sequence[Channel]) -> MessageSelector:
        return MessageSelector(self, cast('Sequence[MessageChannel]', channels))  # made by this engine

    def save(self, name: str, parts: list[memoryview]) -> None:
        data = join(parts)
        if data.nbytes > LARGEST:
            raise MessageTooLarge(f'{name!r} has {data.nbytes} bytes, a message at most {LARGEST}: save it in parts.')
        with self._lock:
            self._saved[name] = data
            for asked in [asked for asked in self._asked if asked[2] == name]:
                self._asked.remove(asked)
                self._send(asked[0], _REPLIES + asked[1], data)

    def request(self, rank: int, name: str, timeout: float | None) -> memoryview:
        late = f'rank {rank} has saved nothing as {name!r}'
        if rank == self.rank:
            return memoryview(self._wait(lambda: self._saved.get(name), timeout, late).copy())
        with self._lock:
            number, self._next_number = self._next_number, (self._next_number + 1) % _REPLY_NUMBERS
            self._replies[number] = None
            self._send(rank, _REQUEST, join([memoryview(np.array([number], np.int64)), memoryview(name.encode())]))

        def reply() -> np.ndarray | None:
            arrival = self._replies[number]
            if arrival is not None:
                return arrival.data if arrival.complete() else None
            if rank in self._gone:
                raise PeerLost(f'rank {rank} left the cluster before it answered a request for {name!r}.')
            return None

        try:
            return memoryview(self._wait(reply, timeout, late))
        finally:
            with self._lock:
                arrival = self._replies.pop(number)
                if arrival is not None:
                    self._finish(arrival)
                elif rank not in self._gone:
                    self._send(rank, _CANCEL, np.array([number], np.int64).view(np.uint8))

    def allow_restarts(self, times: int, works: bool = True) -> None:  # noqa: B027
        """Change nothing: neither ``mpirun`` nor ``kungfu-run`` can start a rank again."""

    def abort(self, message: str) -> NoReturn:
        sys.stdout.flush()
        print(message, file=sys.stderr, flush=True)
        self._end_job()


class MessageChannel:
    """One end of a queue between two ranks, as messages and credits; ``max_bytes`` is at most :data:`LARGEST`."""

    def __init__(
        self, engine: MessageEngine, source: int, target: int, index: int, maxsize: int, max_bytes: int
    ) -> None:
        self._engine = engine
        self._source, self._target, self._index = source, target, index
        self._maxsize, self._max_bytes = maxsize, max_bytes
        self._tag = _QUEUES + 4 * index
        self._buffers: list[np.ndarray] = []  # sent earlier, and free
        self._is_closed = False
        if engine.rank == source:
            with engine._lock:
                engine._credits[target, index] += maxsize
        else:
            with engine._lock:
                engine._incoming[source].add(index)
                engine._stirred[source, index] = None

    def put(self, parts: list[memoryview], timeout: float | None) -> None:
        engine, key = self._engine, (self._target, self._index)
        size = sum(part.nbytes for part in parts)
        if size > self._max_bytes:
            remedy = 'put it in parts' if self._max_bytes == LARGEST else 'make the queue with a larger max_bytes'
            raise MessageTooLarge(
                f'a message of {size} bytes in the queue from rank {self._source} to rank {self._target}, which takes '
                f'at most {self._max_bytes}: {remedy}.'
            )

        def credit() -> bool | None:
            if self._is_lost(self._target, _RECEIVER_CLOSED):
                raise PeerLost(f'the queue to rank {self._target} is closed: its receiver has left.')
            if engine._credits[key] == 0:
                return None
            engine._credits[key] -= 1
            return True

        late = f'the queue from rank {self._source} to rank {self._target} was full ({self._maxsize} messages)'
        engine._wait(credit, timeout, late)
        with engine._lock:
            buffer = self._buffers.pop() if self._buffers else None
        if buffer is None or buffer.nbytes < size:
            buffer = np.empty(size, np.uint8)
        join(parts, buffer)
        with engine._lock:
            engine._send(self._target, self._tag + _DATA, buffer[:size], lambda: self._buffers.append(buffer))

    def get(self, timeout: float | None) -> memoryview:
        engine = self._engine

        def message() -> np.ndarray | None:
            waiting = engine._inbox[self._source, self._index]
            if not waiting and self._is_lost(self._source, _SENDER_CLOSED):
                raise PeerLost(f'the queue from rank {self._source} is closed: its sender has left.')
            if not waiting or not waiting[0].complete():
                return None
            if self._source not in engine._gone:
                engine._send(self._source, self._tag + _CREDIT)
            return waiting.popleft().data

        late = f'the queue from rank {self._source} to rank {self._target} was empty'
        return memoryview(engine._wait(message, timeout, late))

    def ready(self) -> bool:
        try:
            return self._engine._wait(lambda: self._state() or None, 0.0, '')
        except TimeoutError:
            return False

    def close(self) -> None:
        engine = self._engine
        with engine._lock:
            if self._is_closed or engine._closing:
                return
            self._is_closed = True
            engine._stirred[self._source, self._index] = None
            source, target = self._source, self._target
            for end, other, kind in ((source, target, _SENDER_CLOSED), (target, source, _RECEIVER_CLOSED)):
                if engine.rank == end and other not in engine._gone:
                    engine._send(other, self._tag + kind)

    def _state(self) -> bool | None:
        """Return whether :meth:`get` would not wait; None: it would, and nothing is on its way. The lock is held."""
        waiting = self._engine._inbox[self._source, self._index]
        return waiting[0].complete() if waiting else self._is_lost(self._source, _SENDER_CLOSED) or None

    def _is_lost(self, peer: int, closed: int) -> bool:
        """Return whether this end is closed, or the other one is closed or gone. The lock is held."""
        engine = self._engine
        return self._is_closed or (peer, self._index, closed) in engine._closed or peer in engine._gone


class MessageSelector:
    """One place to wait for queues of an engine. A look asks only the queues that something has happened to."""

    def __init__(self, engine: MessageEngine, channels: Sequence[MessageChannel]) -> None:
        self._engine = engine
        self._channels = {(channel._source, channel._index): (i, channel) for i, channel in enumerate(channels)}

    def select(self, timeout: float | None) -> list[int]:
        """Wait until a queue is ready; return the places of all that are, in order; none after ``timeout`` s."""
        try:
            return self._engine._wait(self._look, timeout, '')
        except TimeoutError:
            return []

    def _look(self) -> list[int] | None:
        found, stirred = [], self._engine._stirred
        for key in list(stirred):
            if key in self._channels:
                i, channel = self._channels[key]
                state = channel._state()
                if state:
                    found.append(i)
                elif state is None:
                    del stirred[key]
        return sorted(found) or None


def join(parts: list[memoryview], out: np.ndarray | None = None) -> np.ndarray:
    """Copy the parts in a row into ``out`` or new memory, and return that: uint8 ``[their bytes or more]``."""
    out = np.empty(sum(part.nbytes for part in parts), np.uint8) if out is None else out
    start = 0
    for part in parts:
        if part.nbytes:
            out[start : start + part.nbytes] = np.frombuffer(part, np.uint8)
        start += part.nbytes
    return out
