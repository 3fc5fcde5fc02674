"""What an engine is: the one protocol behind :class:`zoo.distributed.Cluster`, and the errors that it may raise.

An engine moves bytes between ranks and knows nothing of roles or of nested structures: those are the business of
:mod:`zoo.distributed.cluster` and :mod:`zoo.distributed.wire`. A *group* is a sorted tuple of global ranks that
includes the rank that calls; every rank of the group calls the same collectives in the same order. Groups may overlap,
and collectives of different groups may run at the same time.
"""

from __future__ import annotations

from typing import NoReturn, Protocol

import numpy as np

#: The reductions that every engine knows; a mean is a sum that the cluster divides.
OPS = ('sum', 'max', 'min')

#: Seconds that a collective may go on after a rank of its group has left: it may have left right after its own part.
GRACE = 3.0


class ClusterError(RuntimeError):
    """The ranks cannot go on together: the layout, a launcher, an engine or another rank is not what it has to be."""


class PeerLost(ClusterError):
    """The rank at the other end has died or has closed the queue."""


class MessageTooLarge(ClusterError):
    """A message is larger than the bound of its queue."""


def is_count(number: object, least: int) -> bool:
    """Whether that is a whole number, of Python's or NumPy's types, and not less than ``least``."""
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool) and bool(number >= least)


class Channel(Protocol):
    """One end of a bounded first-in, first-out queue of whole messages from one rank to another."""

    def put(self, parts: list[memoryview], timeout: float | None) -> None:
        """Send one message; the parts may be changed once this returns.

        Args:
            parts: contiguous buffers of bytes that together are the message.
            timeout: seconds to wait while the queue is full; None: as long as it takes.

        Raises:
            MessageTooLarge: the parts are larger than the queue's ``max_bytes`` together.
            TimeoutError: the queue was full all the time.
            PeerLost: the receiver is gone.
        """

    def get(self, timeout: float | None) -> memoryview:
        """Receive one whole message: its parts, one after the other, in memory that is the caller's to keep.

        Args:
            timeout: seconds to wait while the queue is empty; None: as long as it takes.

        Raises:
            TimeoutError: the queue was empty all the time.
            PeerLost: the sender is gone, and everything that it sent whole has been received.
        """

    def ready(self) -> bool:
        """Whether :meth:`get` would not have to wait: a whole message is there, or none will come any more."""

    def close(self) -> None:
        """Give up this end: the other one raises :class:`PeerLost`, a receiver once it has what was sent before."""


class Engine(Protocol):
    """The calls of one rank. ``rank`` counts from 0 to ``size - 1``; ``name`` is what messages call the engine.

    The cluster sets ``label``, what messages call this rank besides its number, such as ``'actor 2'``. Where
    ``ends_by_errors``, an error that nobody catches ends the process, and the job unless the rank is started again:
    what leaves a block by an error has not left the cluster. ``restarts`` says how often that was done.
    """

    name: str
    rank: int
    size: int
    label: str
    ends_by_errors: bool
    restarts: int

    def all_reduce(self, buffer: np.ndarray, op: str, group: tuple[int, ...]) -> np.ndarray:
        """The element-wise reduction of every rank's buffer; the same bits on every rank of the group.

        Args:
            buffer: 1-D, contiguous, any numeric or bool dtype of native byte order, the same length and dtype on every
                rank; may be empty. A NaN of one rank is in the result.
            op: one of :data:`OPS`; on bool, ``'sum'`` and ``'max'`` are *or*, ``'min'`` is *and*.
            group: the ranks that take part.
        """

    def broadcast(self, buffer: np.ndarray | None, root: int, group: tuple[int, ...]) -> np.ndarray:
        """The root's bytes on every rank of the group.

        Args:
            buffer: uint8, 1-D, contiguous, on the root; None elsewhere.
            root: the global rank that sends.
            group: the ranks that take part.
        """

    def barrier(self, group: tuple[int, ...]) -> None:
        """Wait until every rank of the group has called this."""

    def channel(self, source: int, target: int, index: int, maxsize: int, max_bytes: int) -> Channel:
        """This rank's end of a queue; the source and the target call it with the same arguments, other ranks need not.

        Args:
            source: the global rank that puts.
            target: the global rank that gets.
            index: counts the queues from ``source`` to ``target``, from 0.
            maxsize: how many messages may wait.
            max_bytes: the largest message.
        """

    def save(self, name: str, parts: list[memoryview]) -> None:
        """Keep a message under a name for every rank to request: a reader sees the whole of one save, never a mixture.

        Args:
            name: 1 to 200 characters.
            parts: contiguous buffers that together are the message; of any size, also other than the last one's.
        """

    def request(self, rank: int, name: str, timeout: float | None) -> memoryview:
        """What a rank, this one too, has saved last under a name, in memory that is the caller's to keep.

        Args:
            rank: the global rank that saves it.
            name: the name.
            timeout: seconds to wait for the first save; None: as long as it takes.

        Raises:
            TimeoutError: nothing was saved under that name.
            PeerLost: the rank died before it saved anything under that name.
        """

    def allow_restarts(self, times: int) -> None:
        """Let this rank be started again when it dies, so many times in all, where the engine can."""

    def abort(self, message: str) -> NoReturn:
        """Print the message once and end every rank of the job with exit status 1."""

    def close(self) -> None:
        """Leave the cluster in good order: the others may go on without this rank."""
