"""What the engines over messages share: queues, save / request, leaving in good order and the watch over a neighbour.

An engine that can send bytes with a tag from one rank to another, in order, gets the rest from :class:`MessageEngine`:

* A queue is bounded by credits. The sender starts with ``maxsize`` of them, spends one for a message and gets it back
  when the receiver has taken that message out.
* A saved message stays in the memory of the rank that saved it, as one array that is never written again: the next save
  puts another one in its place. An answer is that array as it is, so no reader can see a mixture of two.
* A rank that leaves says so to all; whoever waits for it then raises :class:`PeerLost`.
* Every rank shows the next one that it runs, once a second. A rank whose process was stopped ends the job.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import NoReturn, Protocol, TypeVar

import numpy as np

from zoo.distributed.engines.base import GRACE, OPS, MessageTooLarge, PeerLost

Result = TypeVar('Result')

# Tags of the messages that belong to no queue.
_REQUEST, _CANCEL, GONE, _ALIVE = 0, 1, 2, 3
# Tags of queue i of a pair of ranks: _QUEUES + 4 * i + one of these.
_DATA, _CREDIT, _SENDER_CLOSED, _RECEIVER_CLOSED = 0, 1, 2, 3
_QUEUES = 16
# Tags of the answers to requests: _REPLIES + the request's number, counted round. Open MPI takes no tag from 2**23 on
# when it goes through UCX.
_REPLIES = 1 << 22
_REPLY_NUMBERS = 1 << 20
LARGEST_TAG = _REPLIES + _REPLY_NUMBERS

#: The largest message, bytes.
LARGEST = 2**31 - 1

# Seconds. A rank whose process is stopped is given up after the first limit; one that is silent for a reason unknown (a
# host that is gone, or a long import that keeps the interpreter to itself) after the second.
_ALIVE_EVERY, _STOPPED_LIMIT, _SILENT_LIMIT = 1.0, 5.0, 60.0
_FLUSH_LIMIT = 5.0


class Arrival(Protocol):
    """A message on its way into ``data``."""

    @property
    def data(self) -> np.ndarray:
        """Where its bytes go, uint8."""

    def complete(self) -> bool:
        """Whether all of ``data`` is there."""


class MessageEngine:
    """The half of an engine that is made of messages (see :class:`zoo.distributed.engines.base.Engine`).

    A subclass sets ``rank``, ``size`` and ``identities`` (what :func:`process_identity` gives on every rank), has
    :meth:`_send` and :meth:`_wait`, hands every arrival to :meth:`_take`, calls :meth:`_watch` several times a second
    from a thread of its own, and ends that when ``_closing`` is true. ``_lock`` guards everything here.
    """

    name: str
    label: str = ''
    ends_by_errors = True  # see endings.py
    restarts = 0

    def __init__(self, rank: int, size: int, identities: list[str]) -> None:
        self.rank = rank
        self.size = size
        self._identities = identities
        self._lock = threading.RLock()
        self._inbox: dict[tuple[int, int], deque[Arrival]] = defaultdict(deque)
        self._credits: dict[tuple[int, int], int] = defaultdict(int)
        self._closed: set[tuple[int, int, int]] = set()  # (rank, queue, _SENDER_CLOSED or _RECEIVER_CLOSED)
        self._gone: set[int] = set()
        self._saved: dict[str, np.ndarray] = {}
        self._asked: list[tuple[int, int, str]] = []  # (rank, number, name) of requests for what is not saved yet
        self._replies: dict[int, Arrival | None] = {}
        self._next_number = 0
        self._closing = False
        self._watched: int | None = None
        self._silence = 0.0
        self._last_watch = time.monotonic()
        self._next_alive = 0.0

    # For the subclass.

    def _send(
        self, rank: int, tag: int, data: np.ndarray | None = None, done: Callable[[], None] | None = None
    ) -> None:
        """Start to send uint8 ``data``, which is not to change until ``done`` is called. The lock is held."""
        raise NotImplementedError

    def _wait(self, ready: Callable[[], Result | None], timeout: float | None, late: str) -> Result:
        """Wait until ``ready()``, called with the lock held, gives something.

        Raises:
            TimeoutError: with the sentence ``late``, after ``timeout`` seconds.
        """
        raise NotImplementedError

    def _wait_with(self, group: tuple[int, ...], complete: Callable[[], bool]) -> None:
        """Wait for a collective of a group that has been started.

        Raises:
            PeerLost: a rank of the group has left, and did not take part.
        """
        lost_at: float | None = None

        def ready() -> bool | None:
            nonlocal lost_at
            if complete():
                return True
            lost = self._gone.intersection(group)
            if lost:
                # A rank that took part and then left may be known to have left before its last message is in.
                lost_at = time.monotonic() if lost_at is None else lost_at
                if time.monotonic() - lost_at > GRACE:
                    raise PeerLost(f'rank {min(lost)} left the cluster while ranks {list(group)} wait for it.')
            return None

        self._wait(ready, None, '')

    def _all_reduce(self, buffer: np.ndarray, op: str, group: tuple[int, ...]) -> np.ndarray:
        """The reduction of a number's dtype, not empty and over several ranks, else as :meth:`all_reduce`."""
        raise NotImplementedError

    def _is_flushed(self) -> bool:
        """Whether everything is sent. The lock is held."""
        raise NotImplementedError

    def _finish(self, arrival: Arrival) -> None:
        """Keep an arrival that nobody wants any more until it is complete. The lock is held."""

    def _end_job(self) -> NoReturn:
        """End every rank with exit status 1."""
        raise NotImplementedError

    def _take(self, rank: int, tag: int, arrival: Arrival) -> None:
        """Put one message where it belongs. The lock is held."""
        if rank == self._watched:
            self._silence = 0.0
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
            elif kind == _CREDIT:
                self._credits[rank, queue] += 1
            else:
                self._closed.add((rank, queue, kind))
        elif tag == GONE:
            self._gone.add(rank)
            self._asked = [asked for asked in self._asked if asked[0] != rank]
        elif tag == _REQUEST:
            while not arrival.complete():  # a few bytes, which came with their envelope
                pass
            number, name = int(arrival.data[:8].view(np.int64)[0]), arrival.data[8:].tobytes().decode()
            if name in self._saved:
                self._send(rank, _REPLIES + number, self._saved[name])
            else:
                self._asked.append((rank, number, name))
        elif tag == _CANCEL:
            while not arrival.complete():
                pass
            number = int(arrival.data.view(np.int64)[0])
            self._asked = [asked for asked in self._asked if asked[:2] != (rank, number)]

    def _watch(self) -> None:
        """Show the next rank that this one runs, and end the job when the one before has stopped answering."""
        with self._lock:
            now = time.monotonic()
            # At most so much in one turn: a rank that was itself kept from running blames nobody.
            self._silence += min(now - self._last_watch, 0.25)
            self._last_watch = now
            if now >= self._next_alive and not self._closing:
                self._next_alive = now + _ALIVE_EVERY
                following, watched = self._neighbour(1), self._neighbour(-1)
                if following is not None:
                    self._send(following, _ALIVE)
                if watched != self._watched:
                    self._watched, self._silence = watched, 0.0
            watched, silence = self._watched, self._silence
        if watched is None or silence < _STOPPED_LIMIT or self._closing:
            return
        stopped = _is_stopped(self._identities[watched], self._identities[self.rank])
        if stopped or silence >= _SILENT_LIMIT:
            why = 'its process is stopped' if stopped else 'it is silent'
            self.abort(f'rank {watched} has not answered for {silence:.0f} s ({why}): ending every rank.')

    def _neighbour(self, step: int) -> int | None:
        """The next rank in a ring of those that have not left, or None for the last one."""
        for distance in range(1, self.size):
            rank = (self.rank + step * distance) % self.size
            if rank not in self._gone:
                return rank
        return None

    # The calls.

    def all_reduce(self, buffer: np.ndarray, op: str, group: tuple[int, ...]) -> np.ndarray:
        """See :meth:`zoo.distributed.engines.base.Engine.all_reduce`; float16 is added up in float32.

        Raises:
            TypeError: the engine has no reduction of that dtype.
        """
        if op not in OPS:
            raise ValueError(f'unknown reduction {op!r}: it is one of {", ".join(OPS)}.')
        if len(group) == 1 or buffer.size == 0:
            return buffer.copy()
        if buffer.dtype == np.bool_:
            logical = 'max' if op == 'sum' else op
            return self.all_reduce(buffer.view(np.uint8), logical, group).view(np.bool_)
        if buffer.dtype == np.float16:
            return self.all_reduce(buffer.astype(np.float32), op, group).astype(np.float16)
        reduced = self._all_reduce(buffer, op, group)
        if op != 'sum' and buffer.dtype.kind == 'f':
            # Of a NaN and a number, which one is left depends on their order.
            lost = self._all_reduce(np.isnan(buffer).view(np.uint8), 'max', group)
            reduced[lost.view(np.bool_)] = np.nan
        return reduced

    def channel(self, source: int, target: int, index: int, maxsize: int, max_bytes: int) -> MessageChannel:
        """See :meth:`zoo.distributed.engines.base.Engine.channel`. No message is larger than :data:`LARGEST`."""
        return MessageChannel(self, source, target, index, maxsize, min(max_bytes, LARGEST))

    def save(self, name: str, parts: list[memoryview]) -> None:
        """See :meth:`zoo.distributed.engines.base.Engine.save`."""
        data = join(parts)
        if data.nbytes > LARGEST:
            raise MessageTooLarge(
                f'{name!r} has {data.nbytes} bytes, and a message at most {LARGEST}: save it in parts.'
            )
        with self._lock:
            self._saved[name] = data
            for asked in [asked for asked in self._asked if asked[2] == name]:
                self._asked.remove(asked)
                self._send(asked[0], _REPLIES + asked[1], data)

    def request(self, rank: int, name: str, timeout: float | None) -> memoryview:
        """See :meth:`zoo.distributed.engines.base.Engine.request`."""
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

    def allow_restarts(self, times: int) -> None:
        """See :meth:`zoo.distributed.engines.base.Engine.allow_restarts`; no launcher of messages can."""

    def abort(self, message: str) -> NoReturn:
        """See :meth:`zoo.distributed.engines.base.Engine.abort`: the launcher ends the other ranks."""
        sys.stdout.flush()
        print(message, file=sys.stderr, flush=True)
        self._end_job()

    def _leave(self, also_tell_gone: bool = False) -> bool:
        """Tell the others that this one leaves and send what there is to send; False when that was done before."""
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
            pass  # its receiver is not there any more
        return True


class MessageChannel:
    """One end of a queue between two ranks (see :class:`zoo.distributed.engines.base.Channel`)."""

    def __init__(
        self, engine: MessageEngine, source: int, target: int, index: int, maxsize: int, max_bytes: int
    ) -> None:
        self._engine = engine
        self._source, self._target, self._index = source, target, index
        self._maxsize, self._max_bytes = maxsize, max_bytes
        self._tag = _QUEUES + 4 * index
        self._buffers: list[np.ndarray] = []  # sent from before, and free
        self._is_closed = False
        if engine.rank == source:
            with engine._lock:
                engine._credits[target, index] += maxsize

    def put(self, parts: list[memoryview], timeout: float | None) -> None:
        """See :meth:`zoo.distributed.engines.base.Channel.put`."""
        engine, key = self._engine, (self._target, self._index)
        size = sum(part.nbytes for part in parts)
        if size > self._max_bytes:
            raise MessageTooLarge(
                f'a message of {size} bytes in the queue from rank {self._source} to rank {self._target}, '
                f'which takes at most {self._max_bytes}: '
                f'{"put it in parts" if self._max_bytes == LARGEST else "make the queue with a larger max_bytes"}.'
            )

        def credit() -> bool | None:
            if self._is_closed or (*key, _RECEIVER_CLOSED) in engine._closed or self._target in engine._gone:
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
        """See :meth:`zoo.distributed.engines.base.Channel.get`."""
        engine, key = self._engine, (self._source, self._index)

        def message() -> np.ndarray | None:
            waiting = engine._inbox[key]
            if waiting:
                if not waiting[0].complete():
                    return None
                data = waiting.popleft().data
                if self._source not in engine._gone:
                    engine._send(self._source, self._tag + _CREDIT)
                return data
            if self._is_closed or (*key, _SENDER_CLOSED) in engine._closed or self._source in engine._gone:
                raise PeerLost(f'the queue from rank {self._source} is closed: its sender has left.')
            return None

        late = f'the queue from rank {self._source} to rank {self._target} was empty'
        return memoryview(engine._wait(message, timeout, late))

    def ready(self) -> bool:
        """See :meth:`zoo.distributed.engines.base.Channel.ready`."""
        engine, key = self._engine, (self._source, self._index)

        def found() -> bool | None:
            waiting = engine._inbox[key]
            if waiting:
                return waiting[0].complete() or None
            return self._is_closed or (*key, _SENDER_CLOSED) in engine._closed or self._source in engine._gone or None

        try:
            return engine._wait(found, 0.0, '')
        except TimeoutError:
            return False

    def close(self) -> None:
        """See :meth:`zoo.distributed.engines.base.Channel.close`."""
        engine = self._engine
        with engine._lock:
            if self._is_closed or engine._closing:
                return
            self._is_closed = True
            ends = ((self._source, self._target, _SENDER_CLOSED), (self._target, self._source, _RECEIVER_CLOSED))
            for end, other, kind in ends:
                if engine.rank == end and other not in engine._gone:
                    engine._send(other, self._tag + kind)


def join(parts: list[memoryview], out: np.ndarray | None = None) -> np.ndarray:
    """The parts one after the other, in ``out`` or in new memory: uint8 ``[at least their bytes]``."""
    out = np.empty(sum(part.nbytes for part in parts), np.uint8) if out is None else out
    start = 0
    for part in parts:
        if part.nbytes:
            out[start : start + part.nbytes] = np.frombuffer(part, np.uint8)
        start += part.nbytes
    return out


def process_identity() -> str:
    """``'<machine and process namespace>|<process id>'``, equal in its first part where ``/proc`` is the same one."""
    try:
        with open('/proc/sys/kernel/random/boot_id') as file:
            return f'{file.read().strip()} {os.readlink("/proc/self/ns/pid")}|{os.getpid()}'
    except OSError:
        return f'{socket.gethostname()} without /proc|{os.getpid()}'


def _is_stopped(other: str, own: str) -> bool:
    """Whether the process of an identity is stopped by a signal or a debugger, where that can be told from here."""
    place, _, process = other.partition('|')
    if place != own.partition('|')[0]:
        return False
    try:
        with open(f'/proc/{process}/stat') as file:
            return file.read().rpartition(')')[2].split()[0] in 'Tt'
    except (OSError, IndexError):
        return False
