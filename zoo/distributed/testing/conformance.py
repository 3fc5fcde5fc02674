"""What a program sees of an engine, on one learner and three actors."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from zoo.common.records import Trajectories
from zoo.distributed import Cluster, Inbox, Layout, MessageTooLarge, PeerLost, wait_any

WAIT = 60.0  # seconds; longer than anything here takes on a slow machine
DTYPES = ['bool', 'int8', 'uint8', 'int32', 'int64', 'float16', 'float32', 'float64']

checks = 0


def check(holds: bool, what: object = '') -> None:
    """Assert, and count the check."""
    global checks
    assert holds, what
    checks += 1


def raises(kind: type[BaseException], call: Callable[..., Any], *args: Any) -> None:
    """Check that a call raises an error of this kind."""
    try:
        call(*args)
    except kind:
        check(True)
    else:
        check(False, f'no {kind.__name__}')


def subsets(ranks: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every subset of one rank or more."""
    return itertools.chain.from_iterable(itertools.combinations(ranks, n) for n in range(1, len(ranks) + 1))


def reductions(cluster: Cluster) -> None:
    """Check reductions over every group, dtype and operation, of actors."""
    me = cluster.role_rank()
    for group in subsets(range(cluster.role_size())):
        if me not in group:
            continue
        x = {'a': np.arange(5.0) + me, 'b': [np.full((2, 3), me, np.int32), (np.float32(me), 2 * me)]}
        for op, expected in (('sum', sum(group)), ('mean', sum(group) / len(group)), ('max', max(group))):
            y = cluster.role_all_reduce(x, op, ranks=group)
            base = np.arange(5.0) * (len(group) if op == 'sum' else 1)
            check(np.allclose(y['a'], base + expected), (op, group))
            check(y['b'][0].shape == (2, 3) and np.allclose(y['b'][0], expected))
            check(y['b'][1][0] == np.float32(expected) and y['b'][1][1] == 2 * expected)
    for dtype, op in itertools.product(DTYPES, ('sum', 'max', 'min')):
        rows = [(np.arange(7) % 3 * (rank + 1)).astype(dtype) for rank in range(cluster.role_size())]
        expected = {'sum': np.add, 'max': np.maximum, 'min': np.minimum}[op].reduce(rows, dtype=dtype)
        y = cluster.role_all_reduce(rows[me], op)
        check(y.dtype == np.dtype(dtype) and np.array_equal(y, expected), (dtype, op))
    check(cluster.role_all_reduce(np.zeros((0, 3), np.float32), 'sum').shape == (0, 3))
    for dtype, op in itertools.product(('>f8', '>i4', '>f2'), ('sum', 'max', 'mean')):  # byte orders of other machines
        y = cluster.role_all_reduce(np.array([1.0, 2.0]).astype(dtype), op)
        kept = op != 'mean' or dtype == '>f2' or dtype == '>f8'
        check(y.dtype == np.dtype(dtype if kept else np.float64), (dtype, op, y.dtype))
        check(y.tolist() == [(3 if op == 'sum' else 1) * x for x in (1, 2)], (dtype, op, y))
    y = cluster.role_all_reduce(np.array([60000], np.float16), 'mean')  # the sum is too large for float16
    check(y.dtype == np.float16 and y[0] == np.float16(60000), y)
    for dtype, op in itertools.product(('float16', 'float32', 'float64'), ('max', 'min')):  # a NaN is not lost
        y = cluster.role_all_reduce(np.where(np.arange(4) == me, np.nan, me).astype(dtype), op)
        last = {'max': 2, 'min': 0}[op]
        check(y.dtype == np.dtype(dtype) and np.isnan(y[:3]).all() and y[3] == last, (dtype, op, y))
    large = np.full(64 << 18, me + 1, np.float32)  # 64 MB
    large[-1] = 10 * me
    n = cluster.role_size()
    y = cluster.role_all_reduce(large, 'sum')
    check((y[:-1] == n * (n + 1) / 2).all() and y[-1] == 10 * n * (n - 1) / 2)
    bits = cluster.role_all_reduce(np.random.default_rng(me).normal(size=1000), 'mean').view(np.int64)
    check(np.array_equal(cluster.role_all_reduce(bits, 'max'), bits), 'other bits on another rank')


def broadcasts(cluster: Cluster) -> None:
    """Check broadcasts from every root, small and large, of actors."""
    for root in range(cluster.role_size()):
        x: dict[str, Any] = {'root': root, 'w': np.full((3, root + 1), root, np.float32), 'empty': np.zeros(0)}
        y = cluster.role_broadcast(x if cluster.role_rank() == root else None, root)
        check(y['root'] == root and np.array_equal(y['w'], x['w']) and y['empty'].shape == (0,))
    big = np.arange(3 << 20)  # 24 MB
    check(np.array_equal(cluster.role_broadcast(big if cluster.role_rank() == 0 else None), big))


def queues(cluster: Cluster) -> None:
    """Check queues of two messages: actors 0, 1, 2 put, learner 0 gets."""
    producers = range(cluster.role_size('actor'))
    pairs = [cluster.queue_pair(('actor', i), ('learner', 0), 2, 1 << 20) for i in producers]
    if cluster.role() == 'actor':
        out, back = pairs[cluster.role_rank()]
        check(not back.ready())
        out.put({'x': np.zeros(1)}, WAIT)
        out.put({'x': np.zeros(1)}, WAIT)
        raises(TimeoutError, out.put, {'x': np.zeros(1)}, 0.2)  # the bound
        cluster.barrier()
        raises(MessageTooLarge, out.put, {'x': np.zeros(1 << 20)}, WAIT)
        for i in range(50):
            ones = np.ones((i, 2, 3), np.float32)
            out.put(Trajectories({'eye': ones}, np.arange(i), ones, ones, ones > 0, ones < 0, ones > 0), WAIT)
        check(back.get(WAIT)['last'][0] == 50)
        raises(TimeoutError, back.get, 0.1)
        out.close()
        return
    waiting = set(producers)
    while waiting:
        found = wait_any([pairs[i][0] for i in producers])
        assert found
        waiting -= set(found)
    cluster.barrier()
    for out, _ in pairs:
        out.get(WAIT)
        check(out.ready())
        out.get(WAIT)
    for i, (out, _) in itertools.product(range(50), pairs):
        y = out.get(WAIT)
        check(
            isinstance(y, Trajectories) and y.obs['eye'].shape == (i, 2, 3) and np.array_equal(y.action, np.arange(i))
        )
    for out, back in pairs:
        back.put({'last': np.array([50])}, WAIT)
        check(wait_any([out], WAIT) == [0])
        raises(PeerLost, out.get, WAIT)


def inboxes(cluster: Cluster) -> None:
    """Check that a learner hears all actors in their turn, though actor 0 sends most, and waits idly."""
    actors = range(cluster.role_size('actor'))
    pairs = [cluster.queue_pair(('actor', i), ('learner', 0), 4) for i in actors]
    rounds, me = 20, cluster.role_rank()
    if cluster.role() == 'actor':
        out, back = pairs[me]
        for number in range(rounds * 4 if me == 0 else rounds):
            out.put({'x': np.full(1000, number)}, WAIT)
            if me and number >= 4:
                back.get(WAIT)
        cluster.barrier()
        if me == 1:
            threading.Event().wait(0.5)
            out.put({'x': np.zeros(1)}, WAIT)
        back.get(WAIT)
        out.close()
        return
    inbox, turns, seen = Inbox(out for out, _ in pairs), [], [0] * len(pairs)
    for number in range(rounds * (len(pairs) + 3)):
        if number < 4 * len(pairs) and number % len(pairs) == 0:
            while inbox.wait(WAIT) != list(actors):  # all have four messages on their way
                time.sleep(0.001)
        i = inbox.next(WAIT)
        assert i is not None
        y = pairs[i][0].get(WAIT)
        check((y['x'] == seen[i]).all(), 'another message than the next one')
        seen[i] += 1
        turns.append(i)
        if i and seen[i] > 4:
            pairs[i][1].put({'x': np.zeros(1)}, WAIT)
    check(seen == [rounds * 4] + [rounds] * (len(pairs) - 1))
    check(turns[: 4 * len(pairs)] == 4 * list(actors), 'one actor was served twice while others had a message')
    cluster.barrier()
    check(inbox.next(0.0) is None and inbox.wait(0.05) == [], 'ready without a message')
    used = time.thread_time()
    check(inbox.next(WAIT) == 1)
    check(time.thread_time() - used < 0.25, 'the wait was busy')
    pairs[1][0].get(WAIT)
    for _, back in pairs:
        back.put({'x': np.zeros(1)}, WAIT)
    while len(inbox):
        i = inbox.next(WAIT)
        assert i is not None
        raises(PeerLost, pairs[i][0].get, WAIT)
        inbox.remove(i)


def saves(cluster: Cluster) -> None:
    """Check save and request: late, never, and often."""
    cluster.barrier()
    if cluster.role() == 'actor':
        y = cluster.request('learner', 0, 'late', WAIT)  # asked for before it is saved
        check(np.array_equal(y['x'], np.arange(1000)))
        raises(TimeoutError, cluster.request, 'learner', 0, 'never', 0.2)
        cluster.barrier()
        versions = [cluster.request('learner', 0, 'w', WAIT)['w'] for _ in range(20)]
        check(all((w == w[0]).all() for w in versions), 'a mixture of two saves')
        check(all(a[0] <= b[0] for a, b in itertools.pairwise(versions)), 'an older save after a newer one')
        return
    threading.Event().wait(0.3)
    cluster.save('late', {'x': np.arange(1000)})
    cluster.save('w', {'w': np.full(1 << 17, 0.0)})
    cluster.barrier()
    for version in range(20):
        cluster.save('w', {'w': np.full((1 << 17) + version, float(version))})
    check(cluster.request('learner', 0, 'w', WAIT)['w'][0] == 19)


def conform(cluster: Cluster) -> int:
    """Check everything; return the number of checks that passed on all ranks."""
    check(cluster.size == 4 and cluster.role_size('actor') == 3)
    cluster.barrier()
    if cluster.role() == 'actor':
        reductions(cluster)
        broadcasts(cluster)
    cluster.barrier()
    queues(cluster)
    inboxes(cluster)
    saves(cluster)
    cluster.barrier()
    # Two roles at once, each with collectives of its own, out of step with each other.
    cluster = Cluster(cluster.engine, Layout(learners=2, actors=2))
    for i in range(200 if cluster.role() == 'learner' else 100):
        total = cluster.role_all_reduce(np.full(1000, i + cluster.role_rank()), 'sum')
        check((total == 2 * i + 1).all())
        if i % 10 == 0:
            cluster.role_barrier()
    everyone = Cluster(cluster.engine, Layout(learners=cluster.size))
    return int(everyone.role_all_reduce(np.array([checks]), 'sum')[0])
