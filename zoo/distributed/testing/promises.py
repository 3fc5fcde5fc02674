"""What an engine promises in its own calls: :class:`zoo.distributed.engines.base.Engine`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from zoo.distributed.cluster import Cluster
from zoo.distributed.engines.base import MessageTooLarge, PeerLost


def bytes_of(array: np.ndarray) -> list[memoryview]:
    """Return an array as the parts of a message."""
    return [memoryview(np.ascontiguousarray(array).view(np.uint8))]


def said_by(kind: type[BaseException], call: Callable[[], Any]) -> str:
    """Return the message of the error of this kind that a call raises."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f'no {kind.__name__}')


def collectives(cluster: Cluster) -> None:
    """Check reductions and broadcasts of every dtype over several groups; the same bits on every rank."""
    engine, rank, everyone = cluster.engine, cluster.rank, tuple(range(cluster.size))
    names = 'int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64'
    numeric = [np.dtype(name) for name in names.split()]
    for group in [everyone, (0, 1), (1, 2, 3), (0, 3), (rank,)]:
        if rank not in group:
            continue
        for dtype in numeric:
            for op, expected in (('sum', sum(group)), ('max', max(group)), ('min', min(group))):
                reduced = engine.all_reduce(np.full(7, rank, dtype), op, group)
                assert reduced.dtype == dtype and (reduced == expected).all(), (dtype, op, group)
        flags = np.array([rank == group[0], True, False])
        assert engine.all_reduce(flags, 'sum', group).tolist() == [True, True, False]
        assert engine.all_reduce(flags, 'min', group).tolist() == [len(group) == 1, True, False]
        assert engine.all_reduce(np.empty(0, np.float32), 'sum', group).shape == (0,)
        for root in group:
            sent = np.full(100_001, root, np.uint8) if rank == root else None
            received = engine.broadcast(sent, root, group)
            assert received.shape == (100_001,) and (received == root).all()
            assert engine.broadcast(np.empty(0, np.uint8) if rank == root else None, root, group).size == 0

    # The caller may keep a result, although memory is used again for later ones.
    results = [engine.all_reduce(np.full(50_000, number, np.float32), 'sum', everyone)[5:] for number in range(12)]
    assert all((result == 4 * number).all() for number, result in enumerate(results))
    for group in [everyone, (0, 1, 3)]:
        for length in (10, 3_000, 100_000, 3_000_000):
            if rank in group:
                random = np.random.default_rng(rank).normal(size=length).astype(np.float32)
                total = engine.all_reduce(random, 'sum', group)
                bits = engine.broadcast(total.view(np.uint8) if rank == 0 else None, 0, group)
                assert (bits == total.view(np.uint8)).all(), 'other bits on another rank'
                whole: Any = sum(np.random.default_rng(each).normal(size=length) for each in group)
                assert np.allclose(total, whole, atol=1e-4)
    assert 'complex64' in said_by(TypeError, lambda: cluster.role_all_reduce(np.ones(3, np.complex64), 'max'))
    engine.barrier(everyone)


def queues(cluster: Cluster) -> None:
    """Check bounds, order, closing and many producers of queues."""
    engine, rank, everyone = cluster.engine, cluster.rank, tuple(range(cluster.size))
    if rank in (0, 1):
        queue = engine.channel(1, 0, 0, 3, 2_000_000)
        other = engine.channel(1, 0, 1, 1, 100)
        back = engine.channel(0, 1, 0, 1, 100)
    if rank == 1:
        changing = np.zeros(300_000, np.int32)
        for number in range(40):
            changing[:] = number
            queue.put([memoryview(np.array([number])).cast('B'), *bytes_of(changing)], 30)
        back.get(30)
        assert '2000001 bytes' in said_by(MessageTooLarge, lambda: queue.put([memoryview(bytes(2_000_001))], 1))
        other.put([memoryview(b'beside')], 30)
        for _ in range(3):
            queue.put([memoryview(b'x')], 30)
        assert 'full (3 messages)' in said_by(TimeoutError, lambda: queue.put([memoryview(b'x')], 0.2))
        back.get(30)
        queue.put([memoryview(b'y')], 30)
        queue.close()
        time.sleep(0.5)
        said_by(PeerLost, lambda: other.put([memoryview(b'x')], 30))
    if rank == 0:
        for number in range(40):
            message = np.frombuffer(queue.get(30), np.uint8)
            assert message[:8].view(np.int64)[0] == number
            assert (message[8:].view(np.int32) == number).all(), 'changed after put'
        assert 'empty' in said_by(TimeoutError, lambda: queue.get(0.1))
        back.put([memoryview(b'go')], 30)
        assert bytes(other.get(30)) == b'beside'
        other.close()
        time.sleep(0.5)
        back.put([memoryview(b'go')], 30)
        assert [bytes(queue.get(30)) for _ in range(4)] == [b'x', b'x', b'x', b'y']
        said_by(PeerLost, lambda: queue.get(30))
    engine.barrier(everyone)

    # Many producers, while the others reduce.
    inboxes = [engine.channel(source, 0, 2, 2, 100) for source in (1, 2, 3) if rank in (0, source)]
    for number in range(20):
        for inbox in inboxes:
            if rank == 0:
                assert bytes(inbox.get(30)) == bytes([number])
            else:
                inbox.put([memoryview(bytes([number]))], 30)
        if rank != 0:
            assert engine.all_reduce(np.ones(3), 'sum', (1, 2, 3))[0] == 3
    engine.barrier(everyone)


def saved(cluster: Cluster) -> None:
    """Check that a reader of what changes all the time never gets a mixture of two saves."""
    engine, rank, everyone = cluster.engine, cluster.rank, tuple(range(cluster.size))
    if rank == 0:
        time.sleep(0.5)
        end = time.monotonic() + 2
        number = 0
        while time.monotonic() < end:  # of changing size, and never inside MPI for long
            engine.save('weights', bytes_of(np.full(100_000 + number % 7, number % 250, np.uint8)))
            number += 1
        engine.barrier(everyone)
    else:
        assert 'nothing' in said_by(TimeoutError, lambda: engine.request(0, 'nothing', 0.1))
        seen = set()
        end = time.monotonic() + 2
        while time.monotonic() < end:
            weights = np.frombuffer(engine.request(0, 'weights', 30), np.uint8)
            assert weights.min() == weights.max(), 'a mixture of two saves'
            seen.add(int(weights[0]))
        assert len(seen) > 1, seen
        engine.save('mine', [memoryview(b'a'), memoryview(b'bc')])
        assert bytes(engine.request(rank, 'mine', 0)) == b'abc'
        engine.barrier(everyone)


def busy(cluster: Cluster) -> None:
    """Check that a rank that computes, and calls nothing of the engine, serves the others all the same."""
    engine, rank, everyone = cluster.engine, cluster.rank, tuple(range(cluster.size))
    if rank == 0:
        engine.save('weights', bytes_of(np.ones(3_000_000)))
        queue = engine.channel(0, 1, 0, 1, 1 << 30)
        queue.put(bytes_of(np.ones(3_000_000)), 30)
        engine.barrier(everyone)
        end = time.monotonic() + 6
        while time.monotonic() < end:
            sum(range(1000))
        engine.barrier(everyone)
    else:
        engine.barrier(everyone)
        start = time.monotonic()
        assert len(engine.request(0, 'weights', 30)) == 24_000_000
        if rank == 1:
            assert len(engine.channel(0, 1, 0, 1, 1 << 30).get(30)) == 24_000_000
        assert time.monotonic() - start < 5
        engine.barrier(everyone)


def many(cluster: Cluster) -> None:
    """Check that thousands of small messages leave nothing behind."""
    engine, rank, everyone = cluster.engine, cluster.rank, tuple(range(cluster.size))

    def memory() -> int:
        return int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE')

    if rank < 2:
        queue = engine.channel(1, 0, 0, 64, 100)
        for number in range(4_000):
            if number == 1_000:
                before = memory()
            if rank == 1:
                queue.put([memoryview(b'x')], 60)
            else:
                queue.get(60)
        limit = 8_000_000 if engine.name == 'kungfu' else 1_000_000  # Go's heap settles after some thousands
        assert memory() - before < limit, memory() - before
    engine.barrier(everyone)


#: The programs by their names.
PROMISES: dict[str, Callable[[Cluster], None]] = {
    'collectives': collectives,
    'queues': queues,
    'saved': saved,
    'busy': busy,
    'many': many,
}
