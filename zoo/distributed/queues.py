"""Queues of nested structures from one rank to another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from zoo.distributed import wire
from zoo.distributed.engines.base import Channel, ClusterError, Engine, Selector
from zoo.distributed.engines.polling import PolledSelector

#: Bounds of a queue by default: messages that may wait, bytes of one message.
MAXSIZE, MAX_BYTES = 16, 256 << 20


class Queue:
    """A bounded queue of structures from one rank, which puts, to another, which gets.

    :meth:`zoo.distributed.Cluster.queue` makes it. Several threads may use an end. ``channel`` is this rank's end; None
    in other ranks.
    """

    def __init__(
        self, channel: Channel | None, name: str, can_put: bool, can_get: bool, engine: Engine | None = None
    ) -> None:
        self._channel, self._name, self._can_put, self._can_get = channel, name, can_put, can_get
        self._engine = engine

    def put(self, x: Any, timeout: float | None = None) -> None:
        """Send a structure (:mod:`zoo.distributed.wire` says which). It may be changed once this returns.

        ``timeout``: seconds to wait while the queue is full; None waits without limit.

        Raises:
            TimeoutError: the queue stayed full.
            PeerLost: the receiver is gone.
            MessageTooLarge: ``x`` is larger than the queue's ``max_bytes``.
            ClusterError: this rank is not the source.
            TypeError: something in ``x`` cannot be sent.
            ValueError: there is no array in ``x``.
        """
        if self._channel is None or not self._can_put:
            raise ClusterError(f'this rank cannot put into {self._name}: only its source can.')
        self._channel.put(wire.encode(x), timeout)

    def get(self, timeout: float | None = None) -> Any:
        """Receive a structure. The caller may keep and change its arrays.

        ``timeout``: seconds to wait while the queue is empty; None waits without limit.

        Raises:
            TimeoutError: the queue stayed empty.
            PeerLost: the sender is gone, and everything that it sent has been received.
            ClusterError: this rank is not the target.
        """
        return wire.decode(self._receiver().get(timeout))

    def ready(self) -> bool:
        """Return whether :meth:`get` would not wait: it would return a structure, or raise :class:`PeerLost`.

        Raises:
            ClusterError: this rank is not the target.
            PeerLost: the job has failed.
        """
        return self._receiver().ready()

    def close(self) -> None:
        """Close this end. The other end gets :class:`PeerLost`; a receiver first gets what was sent before."""
        if self._channel is not None:
            self._channel.close()

    def _receiver(self) -> Channel:
        if self._channel is None or not self._can_get:
            raise ClusterError(f'this rank cannot get from {self._name}: only its target can.')
        return self._channel


class Inbox:
    """One place to wait for several queues that this rank gets from. One thread uses it.

    Its cost depends on the queues that are ready, not on all: with a thousand queues a message costs about as much as
    with ten. A queue keeps its index when others are removed.
    """

    def __init__(self, queues: Iterable[Queue]) -> None:
        self._queues = dict(enumerate(queues))
        self._selector: Selector | None = None
        self._places: list[int] = []  # the index of each place of the selector
        self._due: deque[int] = deque()  # found ready, and not yet returned by `next`
        self._last = -1
        #: How many queues were ready when :meth:`next` last looked at all of them.
        self.found = 0

    def __len__(self) -> int:
        return len(self._queues)

    def wait(self, timeout: float | None = None) -> list[int]:
        """Wait until a queue is ready; return the indices of all that are, in order; none after ``timeout`` seconds.

        Raises:
            ClusterError: this rank is not the target of one of them.
            PeerLost: the job has failed.
        """
        if self._selector is None:
            self._places = list(self._queues)
            self._selector = _selector(list(self._queues.values()))
        return [self._places[i] for i in self._selector.select(timeout)]

    def next(self, timeout: float | None = None) -> int | None:
        """Return the index of a ready queue, each in its turn; None if none was ready for ``timeout`` seconds.

        A queue has its turn again after all others that were ready at the same time: none waits while another one is
        served twice. The caller takes a message of the queue, or removes the queue, before the next call.
        """
        if not self._due:
            ready = self.wait(timeout)
            self.found = len(ready)
            after = [i for i in ready if i > self._last]
            self._due.extend(after + ready[: len(ready) - len(after)])
        if not self._due:
            return None
        self._last = self._due.popleft()
        return self._last

    def remove(self, i: int) -> None:
        """Wait no more for a queue: its sender has left. The queue stays open."""
        del self._queues[i]
        self._selector = None
        if i in self._due:
            self._due.remove(i)


def wait_any(queues: Sequence[Queue], timeout: float | None = None) -> list[int]:
    """Wait until one of several queues is ready, and return the indices of those that are; none after ``timeout`` s.

    A program that waits for the same queues again and again keeps an :class:`Inbox` of them.
    """
    return Inbox(queues).wait(timeout)


def _selector(queues: list[Queue]) -> Selector:
    """Return the selector of the engine that has made all these queues."""
    engine = next((queue._engine for queue in queues if isinstance(queue, Queue)), None)
    if engine is None or any(not isinstance(queue, Queue) or queue._engine is not engine for queue in queues):
        return PolledSelector(queues)
    return engine.selector([queue._receiver() for queue in queues])
