"""Roles, and what ranks do together: collectives within a role, queues, save and request, over any engine.

The table of calls and their equivalents in ``multiprocessing`` is in ``docs/distributed.md``.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

import numpy as np

from zoo.common.tools.errors import unknown
from zoo.distributed import wire
from zoo.distributed.engines import kungfu, local, mpi
from zoo.distributed.engines.base import OPS, Channel, ClusterError, Engine, PeerLost, is_count

ENGINES = ('local', 'mpi', 'kungfu')

#: Bounds of a queue whose user gives none: messages that wait, bytes of one message.
MAXSIZE, MAX_BYTES = 16, 256 << 20

# Seconds between two looks at several queues; from the one to the other by doubling.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 20e-6, 2e-3

_REDUCTIONS = ('mean', *OPS)
_LONGEST_NAME = 200


class Role(str, Enum):
    """What a rank is there for."""

    LEARNER = 'learner'
    ACTOR = 'actor'
    SERVER = 'server'
    BUFFER = 'buffer'

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Layout:
    """How many ranks each role has. They are dealt in this order: learners first, then actors, servers, buffers."""

    learners: int = 1
    actors: int = 0
    servers: int = 0
    buffers: int = 0

    def __post_init__(self) -> None:
        for role in Role:
            count = self.count(role)
            if not is_count(count, 0):
                raise ValueError(f'{role}s={count!r} is not a number of ranks: give 0 or more.')
        if self.size == 0:
            raise ValueError('a cluster of no ranks: give at least one learner.')

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return sum(self.count(role) for role in Role)

    def count(self, role: Role | str) -> int:
        """How many ranks a role has."""
        return getattr(self, f'{_role(role)}s')

    def ranks(self, role: Role | str) -> tuple[int, ...]:
        """The global ranks of a role."""
        role = _role(role)
        start = sum(self.count(other) for other in list(Role)[: list(Role).index(role)])
        return tuple(range(start, start + self.count(role)))

    def place(self, rank: int) -> tuple[Role, int]:
        """The role of a global rank and its number within that."""
        return next((role, rank - self.ranks(role)[0]) for role in Role if rank in self.ranks(role))

    def by_rank(self) -> str:
        """Which ranks have which role: ``'rank 0 is a learner, ranks 1 to 4 are actors'``."""
        parts = []
        for role in Role:
            ranks = self.ranks(role)
            if len(ranks) == 1:
                parts.append(f'rank {ranks[0]} is {"an" if role == Role.ACTOR else "a"} {role}')
            elif ranks:
                parts.append(f'ranks {ranks[0]} to {ranks[-1]} are {role}s')
        return ', '.join(parts)

    def __str__(self) -> str:
        counts = [(role, self.count(role)) for role in Role]
        return ' + '.join(f'{count} {role}{"" if count == 1 else "s"}' for role, count in counts if count)


def connect(
    learners: int = 1, actors: int = 0, servers: int = 0, buffers: int = 0, engine: str | None = None
) -> Cluster:
    """Join the cluster that this process was launched for.

    Every rank calls this with the same numbers. Without a launcher it is a cluster of this process alone.

    Args:
        learners: ranks with :attr:`Role.LEARNER`, and so on.
        actors: likewise.
        servers: likewise.
        buffers: likewise.
        engine: ``'local'``, ``'mpi'`` or ``'kungfu'``; None: that of the launcher.

    Raises:
        ClusterError: the roles do not add up to the ranks that were launched; the engine is not installed, or its
            launcher did not start this process.
        ValueError: a number of ranks that is none, or an unknown engine.
    """
    layout = Layout(learners, actors, servers, buffers)
    found = _find_engine(engine)
    if found.size != layout.size:
        raise ClusterError(
            f'{layout} make {layout.size} ranks, but {found.size} were started: start {layout.size}, or change the '
            'roles.'
        )
    return Cluster(found, layout)


class Cluster:
    """This rank's view of the cluster. Collectives take nested structures of arrays; see :mod:`zoo.distributed.wire`.

    Args:
        engine: the connected engine.
        layout: the roles, of as many ranks as the engine has.

    Attributes:
        engine: the engine.
        layout: the roles.
        rank: this rank's number among all, from 0.
        size: how many ranks there are.
        restarts: how often this rank was started again after it had died (``local`` alone does that).
    """

    def __init__(self, engine: Engine, layout: Layout) -> None:
        self.engine, self.layout = engine, layout
        self.rank, self.size = engine.rank, engine.size
        self.restarts = engine.restarts
        self._role, self._role_rank = layout.place(engine.rank)
        self._queues: dict[tuple[int, int], int] = {}
        engine.label = f'{self._role} {self._role_rank}'

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None or not self.engine.ends_by_errors:
            self.close()

    def __repr__(self) -> str:
        return f'<Cluster {self.engine.name}: rank {self.rank} of {self.size}, {self._role} {self._role_rank}>'

    def role(self) -> Role:
        """This rank's role."""
        return self._role

    def role_rank(self) -> int:
        """This rank's number within its role, from 0."""
        return self._role_rank

    def role_size(self, role: Role | str | None = None) -> int:
        """How many ranks a role has; None: this rank's own."""
        return self.layout.count(self._role if role is None else role)

    def role_all_reduce(self, x: Any, op: str = 'mean', ranks: Sequence[int] | None = None) -> Any:
        """The element-wise reduction of a structure over the ranks of this rank's role.

        Arrays of one dtype travel as one buffer. The result is the same, bit by bit, on every rank, and its dtypes are
        those of ``x``, in which the sums of integers wrap around as NumPy's do; but the mean of integers and bools is
        float64. The sum of bools is *or*. A NaN of one rank is in the result.

        Args:
            x: of the same structure, shapes and dtypes on every rank; Python numbers in it are reduced too.
            op: ``'mean'``, ``'sum'``, ``'max'`` or ``'min'``.
            ranks: the numbers within the role of those that take part, this one among them; None: all.

        Raises:
            ClusterError: this rank's structure, shapes or dtypes, or ``op``, are not those of the others.
            PeerLost: another rank's are not, or another rank has left.
            TypeError: something in ``x`` is no number, or is complex, of which there is no maximum or minimum.
            ValueError: no array in ``x``, unknown ``op``, unsuitable ``ranks``.
        """
        if op not in _REDUCTIONS:
            raise ValueError(unknown('reduction', op, _REDUCTIONS))
        group = self._group(ranks)
        flat = wire.flatten(x, numbers=True)
        kinds = 'biufc' if op in ('mean', 'sum') else 'biuf'
        for name, array in zip(flat.names, flat.arrays, strict=True):
            if array.dtype.kind not in kinds:
                raise TypeError(f'{name or "the object"!r} has dtype {array.dtype}, which has no {op}.')
        self._check_equal(f'role_all_reduce {op}', flat, group)
        arrays = [array.astype(_worked_in(array.dtype, op), copy=False) for array in flat.arrays]
        results: list[Any] = [None] * len(arrays)
        for dtype in dict.fromkeys(array.dtype for array in arrays):
            members = [i for i, array in enumerate(arrays) if array.dtype == dtype]
            if len(members) == 1:
                buffer = arrays[members[0]].reshape(-1)
            else:
                buffer = np.concatenate([arrays[i].reshape(-1) for i in members])
            total = self.engine.all_reduce(buffer, 'sum' if op == 'mean' else op, group)
            if op == 'mean' and total.size:
                total = np.divide(total, dtype.type(len(group)), out=total)
            start = 0
            for i in members:
                part = total[start : start + arrays[i].size].reshape(arrays[i].shape)
                own = flat.arrays[i].dtype
                results[i] = part if op == 'mean' and own.kind in 'biu' else part.astype(own, copy=False)
                start += arrays[i].size
        return wire.rebuild(flat.tree, results)

    def role_broadcast(self, x: Any = None, root: int = 0, ranks: Sequence[int] | None = None) -> Any:
        """One rank's structure on every rank of this rank's role.

        Args:
            x: the structure, on the root; ignored elsewhere.
            root: the number within the role of the rank that sends.
            ranks: the numbers within the role of those that take part, this one among them; None: all.

        Returns:
            the structure; on the root ``x`` itself.

        Raises:
            ClusterError: the ranks call this with different roots.
            PeerLost: another rank has left.
            TypeError: something in ``x`` cannot be sent.
            ValueError: no array in ``x``, unsuitable ``root`` or ``ranks``.
        """
        group = self._group(ranks)
        source = self._global(self._role, root)
        if source not in group:
            raise ValueError(f'root={root} does not take part: it has to be one of ranks={list(ranks or ())}.')
        message = np.frombuffer(b''.join(wire.encode(x)), np.uint8) if self.rank == source else None
        largest, least = self.engine.all_reduce(np.array([root, -root], np.int64), 'max', group)
        if largest != -least:  # each root would keep its own
            other = largest if root == -least else -least
            raise ClusterError(
                f'{_called(self._role, self._role_rank)} calls role_broadcast with root={root} and others with '
                f'root={other}: a collective needs the same root everywhere.'
            )
        if self.rank != source:
            return wire.decode(memoryview(self.engine.broadcast(None, source, group)))
        self.engine.broadcast(message, source, group)
        return x

    def role_barrier(self, ranks: Sequence[int] | None = None) -> None:
        """Wait for all ranks of this rank's role, or for those of them that ``ranks`` numbers."""
        self.engine.barrier(self._group(ranks))

    def barrier(self) -> None:
        """Wait for all ranks of the cluster."""
        self.engine.barrier(tuple(range(self.size)))

    def save(self, name: str, x: Any) -> None:
        """Keep a structure for every rank to request, in place of the one that had this name.

        Raises:
            TypeError: something in ``x`` cannot be sent.
            ValueError: no array in ``x``, or a name that is not 1 to 200 characters.
        """
        self.engine.save(_checked_name(name), wire.encode(x))

    def request(self, role: Role | str, role_rank: int, name: str, timeout: float | None = None) -> Any:
        """What a rank has saved last under a name; waits until it has saved something.

        Raises:
            TimeoutError: it has not, within ``timeout`` seconds.
            PeerLost: it has left without.
            ValueError: there is no such rank, or the name is not 1 to 200 characters.
        """
        return wire.decode(self.engine.request(self._global(role, role_rank), _checked_name(name), timeout))

    def queue(
        self,
        source: tuple[Role | str, int],
        target: tuple[Role | str, int],
        maxsize: int = MAXSIZE,
        max_bytes: int = MAX_BYTES,
    ) -> Queue:
        """A queue from one rank to another. Both call this, in the same order if they share several; others may.

        Args:
            source: role and number of the rank that puts.
            target: role and number of the rank that gets.
            maxsize: how many messages may wait.
            max_bytes: the largest message.

        Raises:
            ValueError: there is no such rank, both are the same one, or a bound is not positive.
        """
        ends = self._global(*source), self._global(*target)
        if ends[0] == ends[1]:
            raise ValueError(f'a queue from {_called(*source)} to itself: give two ranks.')
        if not is_count(maxsize, 1) or not is_count(max_bytes, 1):
            raise ValueError(
                f'maxsize={maxsize!r}, max_bytes={max_bytes!r} are no bounds of a queue: give whole numbers, 1 or more.'
            )
        index = self._queues.get(ends, 0)
        self._queues[ends] = index + 1
        channel = self.engine.channel(*ends, index, maxsize, max_bytes) if self.rank in ends else None
        name = f'the queue from {_called(*source)} to {_called(*target)}'
        return Queue(channel, name, self.rank == ends[0], self.rank == ends[1])

    def queue_pair(
        self,
        one: tuple[Role | str, int],
        other: tuple[Role | str, int],
        maxsize: int = MAXSIZE,
        max_bytes: int = MAX_BYTES,
    ) -> tuple[Queue, Queue]:
        """A queue from ``one`` to ``other`` and a queue back; see :meth:`queue`."""
        return self.queue(one, other, maxsize, max_bytes), self.queue(other, one, maxsize, max_bytes)

    def allow_restarts(self, times: int) -> None:
        """Let this rank be started again when it dies, so many times in all, where the engine can: ``local`` alone."""
        self.engine.allow_restarts(times)

    def abort(self, message: str) -> NoReturn:
        """Print a message and end every rank, with exit status 1."""
        self.engine.abort(f'rank {self.rank} ({self._role} {self._role_rank}): {message}')

    def close(self) -> None:
        """Leave the cluster in good order; whoever waits for this rank afterwards gets :class:`PeerLost`."""
        self.engine.close()

    def _global(self, role: Role | str, role_rank: int) -> int:
        ranks = self.layout.ranks(role)
        if not 0 <= role_rank < len(ranks):
            raise ValueError(f'there is no {_called(role, role_rank)}: the cluster has {self.layout}.')
        return ranks[role_rank]

    def _group(self, ranks: Sequence[int] | None) -> tuple[int, ...]:
        """The sorted global ranks of some of this rank's role."""
        if ranks is None:
            return self.layout.ranks(self._role)
        group = tuple(sorted({self._global(self._role, rank) for rank in ranks}))
        if self.rank not in group:
            caller = _called(self._role, self._role_rank)
            raise ValueError(f'ranks={list(ranks)} leave out the one that calls, {caller}.')
        return group

    def _check_equal(self, call: str, flat: wire.Flat, group: tuple[int, ...]) -> None:
        """Raise if the ranks are about to reduce different things, for which engines would hang or mix bytes.

        Each time, since a rank cannot know that another one does something new; it is a message of 16 bytes.
        """
        if len(group) == 1:
            return
        text = f'{call}: {wire.describe(flat)}'
        digest = hashlib.blake2b(f'{text} {flat.tree}'.encode(), digest_size=7).digest()
        number = int.from_bytes(digest, 'little')
        extremes = self.engine.all_reduce(np.array([number, -number], np.int64), 'max', group)
        if extremes[0] == -extremes[1]:
            return
        everyone = np.zeros(len(group), np.int64)
        everyone[group.index(self.rank)] = number
        everyone = self.engine.all_reduce(everyone, 'sum', group).tolist()
        usual = max(everyone, key=everyone.count)  # of equally many the first
        reference = group[everyone.index(usual)]
        message = np.frombuffer(text.encode(), np.uint8) if self.rank == reference else None
        expected = self.engine.broadcast(message, reference, group).tobytes().decode()
        different = [group[i] for i, each in enumerate(everyone) if each != usual]
        if self.rank in different:
            mine = text if text != expected else f'{text} in another structure'
            raise ClusterError(
                f'rank {self.rank} ({self._role} {self._role_rank}) calls {_shorten(mine)}; rank {reference} and those '
                f'like it {_shorten(expected)}: a collective needs the same shapes and dtypes everywhere.'
            )
        raise PeerLost(f'ranks {different} call a collective with other shapes or dtypes than this one.')


class Queue:
    """A bounded queue of structures from one rank to another; see :meth:`Cluster.queue`.

    ``put`` belongs to the one and ``get`` to the other; several threads may use an end.
    """

    def __init__(self, channel: Channel | None, name: str, can_put: bool, can_get: bool) -> None:
        self._channel, self._name, self._can_put, self._can_get = channel, name, can_put, can_get

    def put(self, x: Any, timeout: float | None = None) -> None:
        """Send a structure; it may be changed once this returns.

        Raises:
            TimeoutError: the queue was full for ``timeout`` seconds (None: wait as long as it takes).
            PeerLost: the receiver is gone.
            MessageTooLarge: ``x`` is larger than the queue's ``max_bytes``.
            ClusterError: this rank is not the source.
            TypeError: something in ``x`` cannot be sent.
            ValueError: no array in ``x``.
        """
        if self._channel is None or not self._can_put:
            raise ClusterError(f"{self._name} is not this rank's to put into.")
        self._channel.put(wire.encode(x), timeout)

    def get(self, timeout: float | None = None) -> Any:
        """Receive a structure; its arrays are the caller's to keep and to change.

        Raises:
            TimeoutError: the queue was empty for ``timeout`` seconds (None: wait as long as it takes).
            PeerLost: the sender is gone, and everything that it sent has been received.
            ClusterError: this rank is not the target.
        """
        if self._channel is None or not self._can_get:
            raise ClusterError(f"{self._name} is not this rank's to get from.")
        return wire.decode(self._channel.get(timeout))

    def ready(self) -> bool:
        """Whether :meth:`get` would not have to wait: it would give a structure, or raise :class:`PeerLost`.

        Raises:
            ClusterError: this rank is not the target.
            PeerLost: the job has failed.
        """
        if self._channel is None or not self._can_get:
            raise ClusterError(f"{self._name} is not this rank's to get from.")
        return self._channel.ready()

    def close(self) -> None:
        """Give up this end: the other one gets :class:`PeerLost`, a receiver once it has what was sent before."""
        if self._channel is not None:
            self._channel.close()


def wait_any(queues: Sequence[Queue], timeout: float | None = None) -> list[int]:
    """Wait until one of several queues is ready.

    Returns:
        the indices of those that are; none after ``timeout`` seconds.
    """
    end = None if timeout is None else time.monotonic() + timeout
    pause = _SHORTEST_PAUSE
    while True:
        found = [i for i, queue in enumerate(queues) if queue.ready()]
        if found or (end is not None and time.monotonic() >= end):
            return found
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _find_engine(name: str | None) -> Engine:
    """The engine of the launcher that started this process, or the one that is asked for."""
    if name is not None and name not in ENGINES:
        raise ValueError(unknown('engine', name, ENGINES))
    if name is None:
        name = _launched_by()
    if name == 'local':
        return local.LocalEngine(local.seat)
    return mpi.start() if name == 'mpi' else kungfu.start()


def is_launched() -> bool:
    """Whether this process is a rank that a launcher or a job has started."""
    return local.seat is not None or _launched_by() != 'local'


def launched_place() -> tuple[int, int] | None:
    """The rank of this process and the number of ranks, where its launcher tells without :func:`connect`."""
    launcher, environment = _launched_by(), os.environ
    if launcher == 'local':
        return None if local.seat is None else (local.seat.rank, local.seat.size)
    if launcher == 'kungfu':
        peers = environment.get('KUNGFU_INIT_PEERS', '').split(',')
        own = environment['KUNGFU_SELF_SPEC']
        return (peers.index(own), len(peers)) if own in peers else None
    for prefix in ('OMPI_COMM_WORLD', 'PMI'):
        if f'{prefix}_RANK' in environment and f'{prefix}_SIZE' in environment:
            return int(environment[f'{prefix}_RANK']), int(environment[f'{prefix}_SIZE'])
    return None


def _launched_by() -> str:
    if local.seat is not None:
        return 'local'
    if kungfu.launched():
        return 'kungfu'
    return 'mpi' if mpi.launched() else 'local'


def _worked_in(dtype: np.dtype, op: str) -> np.dtype:
    """The dtype in which arrays of a dtype are reduced."""
    if op == 'mean' and dtype.kind in 'biu':
        return np.dtype(np.float64)
    if op == 'mean' and dtype.kind == 'f' and dtype.itemsize == 2:  # which their sum may be too large for
        return np.dtype(np.float32)
    return dtype.newbyteorder('=')  # the only order that engines reduce in


def _role(role: Role | str) -> Role:
    try:
        return Role(role)
    except ValueError:
        raise ValueError(unknown('role', role, [str(each) for each in Role])) from None


def _called(role: Role | str, role_rank: int) -> str:
    return f'{_role(role)} {role_rank}'


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME:
        raise ValueError(f'{name!r:.80} is not a name to save under: use a string of 1 to {_LONGEST_NAME} characters.')
    return name


def _shorten(text: str) -> str:
    return text if len(text) <= 300 else text[:297] + '...'
