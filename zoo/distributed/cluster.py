"""What ranks do together: collectives within a role, queues, save and request, over any engine.

A *collective* is a call that all ranks of a role make together, such as a sum over their arrays.
``docs/howto/own_programs.md`` has a table of the calls and their equivalents in ``multiprocessing``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from zoo.common.tools.errors import InvalidType, InvalidValue, unknown
from zoo.distributed import wire
from zoo.distributed.engines.base import OPS, ClusterError, Engine, PeerLost, is_count
from zoo.distributed.launchers import start_engine
from zoo.distributed.layout import Layout, Role, called
from zoo.distributed.queues import MAX_BYTES, MAXSIZE, Queue

_REDUCTIONS = ('mean', *OPS)
_LONGEST_NAME = 200

#: A role, and the number of a rank within it.
Place = tuple[Role | str, int]


def connect(
    learners: int = 1, actors: int = 0, servers: int = 0, buffers: int = 0, engine: str | None = None
) -> Cluster:
    """Join the cluster that this process was launched for.

    Every rank calls this with the same numbers. Without a launcher the cluster is this process alone.

    Args:
        learners, actors, servers, buffers: how many ranks have each :class:`Role`.
        engine: ``'local'``, ``'mpi'``, ``'kungfu'`` or the name of an installed engine; None takes the engine of the
            launcher.

    Raises:
        ClusterError: the roles do not add up to the ranks that were launched; the engine is not installed, or its
            launcher did not start this process.
        ValueError: a number of ranks that is not a count, or an unknown engine.
    """
    layout = Layout(learners, actors, servers, buffers)
    started = start_engine(engine)
    if started.size != layout.size:
        raise ClusterError(
            f'{layout} make {layout.size} ranks, but {started.size} were started: start {layout.size}, or change the '
            'roles.'
        )
    return Cluster(started, layout)


class Cluster:
    """This rank's view of the cluster. Its calls take nested structures of arrays (:mod:`zoo.distributed.wire`).

    >>> cluster = connect(learners=1, actors=2)
    >>> mean = cluster.role_all_reduce(gradient, op='mean')

    Attributes:
        engine: the connected engine.
        layout: the roles, for as many ranks as the engine has.
        rank: this rank's number among all ranks, from 0.
        size: the number of ranks.
        restarts: how often this rank was started again after it had died (only ``local`` does that).
    """

    def __init__(self, engine: Engine, layout: Layout) -> None:
        self.engine, self.layout = engine, layout
        self.rank, self.size = engine.rank, engine.size
        self.restarts = engine.restarts
        self._role, self._role_rank = layout.place(engine.rank)
        self._queues: dict[tuple[int, int], int] = {}
        engine.label = self._me = called(self._role, self._role_rank)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None or not self.engine.ends_by_errors:
            self.close()

    def __repr__(self) -> str:
        return f'<Cluster {self.engine.name}: rank {self.rank} of {self.size}, {self._me}>'

    def role(self) -> Role:
        """Return this rank's role."""
        return self._role

    def role_rank(self) -> int:
        """Return this rank's number within its role, from 0."""
        return self._role_rank

    def role_size(self, role: Role | str | None = None) -> int:
        """Return how many ranks a role has; None: this rank's own role."""
        return self.layout.count(self._role if role is None else role)

    def role_all_reduce(self, x: Any, op: str = 'mean', ranks: Sequence[int] | None = None) -> Any:
        """Return the element-wise reduction of a structure over the ranks of this rank's role.

        Arrays of one dtype travel as one buffer. The result is the same, bit by bit, on every rank. Its dtypes are the
        dtypes of ``x``, and sums of integers wrap around as in NumPy; but the mean of integers and bools is float64.
        The sum of bools is *or*. A NaN of one rank makes the result NaN.

        Args:
            x: the structure, with the same shapes and dtypes on every rank. Python numbers in it are reduced too.
            op: ``'mean'``, ``'sum'``, ``'max'`` or ``'min'``.
            ranks: the numbers within the role of the ranks that take part, this one included; None: all.

        Raises:
            ClusterError: this rank calls with another structure, other shapes, dtypes or ``op`` than most ranks.
            PeerLost: another rank does so, or another rank has left.
            TypeError: something in ``x`` is not a number, or is complex and has no maximum or minimum.
            ValueError: there is no array in ``x``; unknown ``op``; unsuitable ``ranks``.
        """
        if op not in _REDUCTIONS:
            raise InvalidValue(unknown('reduction', op, _REDUCTIONS))
        group = self._group(ranks)
        flat = wire.flatten(x, numbers=True)
        kinds = 'biufc' if op in ('mean', 'sum') else 'biuf'
        for name, array in zip(flat.names, flat.arrays, strict=True):
            if array.dtype.kind not in kinds:
                raise InvalidType(f'{name or "the object"!r} has dtype {array.dtype}, which has no {op}.')
        self._check_equal(f'role_all_reduce {op}', flat, group)
        arrays = [array.astype(_worked_in(array.dtype, op), copy=False) for array in flat.arrays]
        results: list[Any] = [None] * len(arrays)
        for dtype in dict.fromkeys(array.dtype for array in arrays):
            members = [i for i, array in enumerate(arrays) if array.dtype == dtype]
            parts = [arrays[i].reshape(-1) for i in members]
            buffer = parts[0] if len(parts) == 1 else np.concatenate(parts)
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
        """Return one rank's structure ``x`` on every rank of this rank's role; on the root ``x`` itself.

        Args:
            root: the number within the role of the rank that sends.
            ranks: as in :meth:`role_all_reduce`.

        Raises:
            ClusterError: the ranks call this with different roots.
            PeerLost: another rank has left.
            TypeError: something in ``x`` cannot be sent.
            ValueError: there is no array in ``x``; unsuitable ``root`` or ``ranks``.
        """
        group = self._group(ranks)
        source = self._global(self._role, root)
        if source not in group:
            raise InvalidValue(f'root={root} does not take part: it has to be one of ranks={list(ranks or ())}.')
        message = np.frombuffer(b''.join(wire.encode(x)), np.uint8) if self.rank == source else None
        largest, least = self.engine.all_reduce(np.array([root, -root], np.int64), 'max', group)
        if largest != -least:  # each root would keep its own structure
            other = largest if root == -least else -least
            raise ClusterError(
                f'{self._me} calls role_broadcast with root={root} and others with root={other}: a collective needs '
                'the same root everywhere.'
            )
        if self.rank != source:
            return wire.decode(memoryview(self.engine.broadcast(None, source, group)))
        self.engine.broadcast(message, source, group)
        return x

    def role_barrier(self, ranks: Sequence[int] | None = None) -> None:
        """Wait for all ranks of this rank's role, or for ``ranks`` of it, as in :meth:`role_all_reduce`."""
        self.engine.barrier(self._group(ranks))

    def barrier(self) -> None:
        """Wait for all ranks of the cluster."""
        self.engine.barrier(tuple(range(self.size)))

    def save(self, name: str, x: Any) -> None:
        """Keep a structure under a name for every rank to request. It replaces an older one of this name.

        Raises:
            TypeError: something in ``x`` cannot be sent.
            ValueError: there is no array in ``x``, or the name is not 1 to 200 characters.
        """
        self.engine.save(_checked_name(name), wire.encode(x))

    def request(self, role: Role | str, role_rank: int, name: str, timeout: float | None = None) -> Any:
        """Return what a rank of a role has saved last under a name. Waits until it has saved something.

        ``timeout``: seconds to wait; None waits without limit.

        Raises:
            TimeoutError: nothing was saved under that name.
            PeerLost: the rank has left and saved nothing under that name.
            ValueError: there is no such rank, or the name is not 1 to 200 characters.
        """
        return wire.decode(self.engine.request(self._global(role, role_rank), _checked_name(name), timeout))

    def queue(self, source: Place, target: Place, maxsize: int = MAXSIZE, max_bytes: int = MAX_BYTES) -> Queue:
        """Return a queue from one rank to another.

        Both ranks call this; if they share several queues, in the same order. Other ranks may call it too.

        Args:
            source, target: role and number of the rank that puts, and of the rank that gets.
            maxsize: how many messages may wait.
            max_bytes: the size of the largest message.

        Raises:
            ValueError: there is no such rank, both are the same rank, or a bound is not a positive whole number.
        """
        ends = self._global(*source), self._global(*target)
        if ends[0] == ends[1]:
            raise InvalidValue(f'a queue from {called(*source)} to itself: give two ranks.')
        if not is_count(maxsize, 1) or not is_count(max_bytes, 1):
            raise InvalidValue(
                f'maxsize={maxsize!r}, max_bytes={max_bytes!r} are no bounds of a queue: give whole numbers, 1 or more.'
            )
        index = self._queues.get(ends, 0)
        self._queues[ends] = index + 1
        channel = self.engine.channel(*ends, index, maxsize, max_bytes) if self.rank in ends else None
        name = f'the queue from {called(*source)} to {called(*target)}'
        return Queue(channel, name, self.rank == ends[0], self.rank == ends[1], self.engine)

    def queue_pair(
        self, one: Place, other: Place, maxsize: int = MAXSIZE, max_bytes: int = MAX_BYTES
    ) -> tuple[Queue, Queue]:
        """Return a queue from ``one`` to ``other`` and a queue back, with these bounds (:meth:`queue`)."""
        return self.queue(one, other, maxsize, max_bytes), self.queue(other, one, maxsize, max_bytes)

    def allow_restarts(self, times: int, works: bool = True) -> None:
        """Allow this rank to be started again when it dies, ``times`` times in all. Only ``local`` can do that.

        ``works``: whether this rank has begun its work. A rank that has not says so again when it does; until then the
        same error twice in a row ends the job.
        """
        self.engine.allow_restarts(times, works)

    def abort(self, message: str) -> NoReturn:
        """Print a message and end every rank with exit status 1."""
        self.engine.abort(f'rank {self.rank} ({self._me}): {message}')

    def close(self) -> None:
        """Leave the cluster in good order. A rank that waits for this one afterwards gets :class:`PeerLost`."""
        self.engine.close()

    def _global(self, role: Role | str, role_rank: int) -> int:
        ranks = self.layout.ranks(role)
        if not 0 <= role_rank < len(ranks):
            raise InvalidValue(f'there is no {called(role, role_rank)}: the cluster has {self.layout}.')
        return ranks[role_rank]

    def _group(self, ranks: Sequence[int] | None) -> tuple[int, ...]:
        """Return the sorted global ranks of this rank's role, or of these numbers within it."""
        if ranks is None:
            return self.layout.ranks(self._role)
        group = tuple(sorted({self._global(self._role, rank) for rank in ranks}))
        if self.rank not in group:
            raise InvalidValue(f'ranks={list(ranks)} leave out the calling rank, {self._me}.')
        return group

    def _check_equal(self, call: str, flat: wire.Flat, group: tuple[int, ...]) -> None:
        """Raise if the ranks are about to reduce different things: engines would hang or mix bytes.

        This costs 16 bytes at every call: a rank cannot know that another one does something new.
        """
        if len(group) == 1:
            return
        text = f'{call}: {wire.describe(flat)}'
        number = int.from_bytes(hashlib.blake2b(f'{text} {flat.tree}'.encode(), digest_size=7).digest(), 'little')
        extremes = self.engine.all_reduce(np.array([number, -number], np.int64), 'max', group)
        if extremes[0] == -extremes[1]:
            return
        everyone = np.zeros(len(group), np.int64)
        everyone[group.index(self.rank)] = number
        everyone = self.engine.all_reduce(everyone, 'sum', group).tolist()
        usual = max(everyone, key=everyone.count)  # the first of equally many
        reference = group[everyone.index(usual)]
        message = np.frombuffer(text.encode(), np.uint8) if self.rank == reference else None
        expected = self.engine.broadcast(message, reference, group).tobytes().decode()
        different = [group[i] for i, each in enumerate(everyone) if each != usual]
        if self.rank in different:
            mine = text if text != expected else f'{text} in another structure'
            raise ClusterError(
                f'rank {self.rank} ({self._me}) calls {wire.shorten(mine, 300)}; rank {reference} and those like it '
                f'{wire.shorten(expected, 300)}: a collective needs the same shapes and dtypes everywhere.'
            )
        raise PeerLost(f'ranks {different} call a collective with other shapes or dtypes than this one.')


def _worked_in(dtype: np.dtype, op: str) -> np.dtype:
    """Return the dtype in which arrays of a dtype are reduced."""
    if op == 'mean' and dtype.kind in 'biu':
        return np.dtype(np.float64)
    if op == 'mean' and dtype.kind == 'f' and dtype.itemsize == 2:  # their sum may be too large for it
        return np.dtype(np.float32)
    return dtype.newbyteorder('=')  # the only byte order that engines reduce in


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME:
        raise InvalidValue(
            f'{name!r:.80} is not a name to save under: use a string of 1 to {_LONGEST_NAME} characters.'
        )
    return name
