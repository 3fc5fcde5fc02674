"""The interface of an engine, and the errors that it may raise.

An engine moves bytes between ranks; :mod:`zoo.distributed.cluster` and :mod:`zoo.distributed.wire` add roles and nested
structures. A *rank* is one process of the job, numbered from 0. A *group* is a sorted tuple of global ranks and
includes the calling rank. Every rank of a group calls the same collectives in the same order. Groups may overlap, and
collectives of different groups may run at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol

import numpy as np

from zoo.common.tools.errors import Failure

#: The reductions that every engine knows. The cluster computes a mean as a sum and divides it.
OPS = ('sum', 'max', 'min')


class ClusterError(Failure):
    """The job cannot go on: the layout, the launcher, the engine or another rank is not as it must be."""


class PeerLost(ClusterError):
    """The rank at the other end has died, has left, or has closed the queue."""


class MessageTooLarge(ClusterError):
    """A message is larger than its queue allows.

    >>> cluster.queue(source, target, max_bytes=2**20)  # for messages of up to a megabyte
    """


def is_count(number: object, least: int) -> bool:
    """Return whether this is a whole number, of Python or NumPy, and at least ``least``."""
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool) and bool(number >= least)


class Channel(Protocol):
    """One end of a bounded first-in, first-out queue of whole messages from one rank to another."""

    def put(self, parts: list[memoryview], timeout: float | None) -> None:
        """Send one message: contiguous buffers of bytes, which may be changed once this returns.

        Raises:
            MessageTooLarge: the parts together are larger than the queue's ``max_bytes``.
            TimeoutError: the queue was full for ``timeout`` seconds; None waits without limit.
            PeerLost: the receiver is gone.
        """

    def get(self, timeout: float | None) -> memoryview:
        """Receive one whole message: its parts in a row, in memory that the caller may keep.

        Raises:
            TimeoutError: the queue was empty for ``timeout`` seconds; None waits without limit.
            PeerLost: the sender is gone, and every message that it sent whole has been received.
        """

    def ready(self) -> bool:
        """Return whether :meth:`get` would not wait: a whole message is there, or the sender is gone."""

    def close(self) -> None:
        """Close this end. The other end raises :class:`PeerLost`; a receiver first gets what was sent before."""


class Selector(Protocol):
    """One place to wait for several channels."""

    def select(self, timeout: float | None) -> list[int]:
        """Wait until a channel is ready; return the places of all that are, in order; none after ``timeout`` seconds.

        None waits without limit. What a call costs should depend on the ready channels, not on all.

        Raises:
            PeerLost: the job has failed.
        """


class Engine(Protocol):
    """The connection of one rank to the others.

    Attributes:
        name: the name by which :func:`zoo.distributed.connect` finds it, such as ``'local'``.
        rank: the number of this rank, from 0 to ``size - 1``.
        size: the number of ranks.
        label: what messages call this rank besides its number, such as ``'actor 2'``; the cluster sets it.
        ends_by_errors: whether an error that nobody catches ends this process, and with it the job unless the rank is
            started again. A ``with`` block that such an error leaves does not leave the cluster.
        restarts: how often this rank was started again.
    """

    name: str
    rank: int
    size: int
    label: str
    ends_by_errors: bool
    restarts: int

    def all_reduce(self, buffer: np.ndarray, op: str, group: tuple[int, ...]) -> np.ndarray:
        """Return the element-wise reduction of all ranks' buffers; the same bits on every rank of the group.

        Args:
            buffer: 1-D and contiguous, any numeric or bool dtype of native byte order. Length and dtype are equal on
                every rank; the length may be 0. A NaN of one rank makes the result NaN.
            op: one of :data:`OPS`. For bool, ``'sum'`` and ``'max'`` are *or*, ``'min'`` is *and*.
        """

    def broadcast(self, buffer: np.ndarray | None, root: int, group: tuple[int, ...]) -> np.ndarray:
        """Return the bytes of a root, a global rank, on every rank of the group.

        The buffer is uint8, 1-D and contiguous on the root; None elsewhere.
        """

    def barrier(self, group: tuple[int, ...]) -> None:
        """Wait until every rank of the group has called this."""

    def channel(self, source: int, target: int, index: int, maxsize: int, max_bytes: int) -> Channel:
        """Return this rank's end of a queue between two global ranks. Both call this with the same arguments.

        Args:
            source, target: the rank that puts, and the rank that gets.
            index: the number of this queue among all from ``source`` to ``target``, from 0.
            maxsize: how many messages may wait.
            max_bytes: the size of the largest message.
        """

    def selector(self, channels: Sequence[Channel]) -> Selector:
        """Return one place to wait for channels of this engine that this rank gets from.

        An engine that cannot do better returns :class:`zoo.distributed.engines.polling.PolledSelector`.
        """

    def save(self, name: str, parts: list[memoryview]) -> None:
        """Keep a message, contiguous buffers of bytes, under a name of 1 to 200 characters for every rank to request.

        A reader gets the whole of one save, never a mixture. Each save may have another size.
        """

    def request(self, rank: int, name: str, timeout: float | None) -> memoryview:
        """Return what a rank, which may be this one, has saved last under a name, in memory that the caller may keep.

        Raises:
            TimeoutError: nothing was saved under it for ``timeout`` seconds; None waits without limit.
            PeerLost: the rank died before it saved anything under it.
        """

    def allow_restarts(self, times: int, works: bool = True) -> None:
        """Allow this rank to be started again when it dies, ``times`` times in all, if the engine can do that.

        ``works``: whether it has begun its work. Until then the same error twice in a row ends the job.
        """

    def abort(self, message: str) -> NoReturn:
        """Print the message once and end every rank of the job with exit status 1."""

    def close(self) -> None:
        """Leave the cluster in good order. The other ranks may go on without this one."""


class Launcher(Protocol):
    """What the entry point of an engine names, in the group ``zoo.engines``: a module or a class that answers for it.

    All engines are asked ``launched`` in every process that trains with roles. So the import has to be quick, and
    ``start`` imports what is heavy.
    """

    def launched(self) -> bool:
        """Return whether the engine's launcher has started this process as one of several ranks."""

    def place(self) -> tuple[int, int] | None:
        """Return the rank of this process and the number of ranks; None if that is not known before ``start``."""

    def start(self) -> Engine:
        """Join the ranks. Returns once all of them have called this.

        Raises:
            ClusterError: the launcher did not start this process, or something is not installed.
        """

    def can_become(self) -> bool:
        """Return whether another program may take the place of this process (``execve``) and then call ``start``.

        An actor that needs no TensorFlow does that to become light. What ``start`` needs has to be in environment
        variables, and the engine must not run yet.
        """
