"""Queues of nested structures from one rank to another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from zoo.distributed import wire
from zoo.distributed.engines.base import Channel, ClusterError
from zoo.distributed.engines.waiting import Deadline, pauses

#: Bounds of a queue by default: messages that may wait, bytes of one message.
MAXSIZE, MAX_BYTES = 16, 256 << 20

# Seconds between two looks at several queues.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 20e-6, 2e-3


class Queue:
    """A bounded queue of structures from one rank, which puts, to another, which gets.

    :meth:`zoo.distributed.Cluster.queue` makes it. Several threads may use an end. ``channel`` is this rank's end; None
    in other ranks.
    """

    def __init__(self, channel: Channel | None, name: str, can_put: bool, can_get: bool) -> None:
        self._channel, self._name, self._can_put, self._can_get = channel, name, can_put, can_get

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


def wait_any(queues: Sequence[Queue], timeout: float | None = None) -> list[int]:
    """Wait until one of several queues is ready, and return the indices of those that are; none after ``timeout`` s."""
    deadline, waits = Deadline(timeout), pauses(_SHORTEST_PAUSE, _LONGEST_PAUSE)
    while True:
        found = [i for i, queue in enumerate(queues) if queue.ready()]
        if found or deadline.left <= 0:
            return found
        time.sleep(next(waits))
