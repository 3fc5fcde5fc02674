"""The engine ``kungfu`` over a stand-in for KungFu's library. test_engines.py runs the real one."""

from __future__ import annotations

import ctypes
import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from zoo.distributed.engines import kungfu
from zoo.distributed.engines.base import ClusterError, MessageTooLarge, PeerLost
from zoo.distributed.engines.kungfu import KungfuEngine, dtype_code, topology

CODES = {
    dtype_code(np.dtype(name)): np.dtype(name)
    for name in 'int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64'.split()
}


class Net:
    """What the libraries of all ranks share: queues by pair, and the meetings of collectives by name and group."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.queues: dict[tuple[int, int, int], queue.Queue] = defaultdict(lambda: queue.Queue(1))
        self.changed = threading.Condition()
        self.meetings: dict[Any, dict[int, np.ndarray]] = defaultdict(dict)
        self.open: set[tuple[int, str]] = set()


class Library:
    """KungFu's functions for one rank. A queue holds one message, and a read of another size changes nothing."""

    def __init__(self, net: Net, rank: int) -> None:
        self.net, self.rank = net, rank
        self.made: dict[tuple[int, int], int] = defaultdict(int)
        self.order: list[tuple[int, int]] = []
        self.calls: dict[Any, int] = defaultdict(int)
        self.fail: str | None = None
        library = self

        class Entry:
            def __init__(self, function: Callable[..., int]) -> None:
                self._function = function

            def __call__(self, *args: Any) -> int:
                return 1 if library.fail == self._function.__name__ else self._function(*args)

        for name in ('AllGather', 'Barrier', 'SubsetAllReduce', 'QueueNew', 'QueuePut', 'QueueGet'):
            setattr(self, f'GoKungfu{name}', Entry(getattr(self, name)))
        self.GoSubsetBroadcast = Entry(self.SubsetBroadcast)

    def meet(self, name: str, members: tuple[int, ...], mine: np.ndarray) -> dict[int, np.ndarray]:
        """Return all members' contributions once all are there."""
        net = self.net
        with net.changed:
            assert (self.rank, name) not in net.open, f'the name {name!r} was used twice at once'
            net.open.add((self.rank, name))
            key = (name, members, self.calls[name, members])
            self.calls[name, members] += 1
            net.meetings[key][self.rank] = mine.copy()
            net.changed.notify_all()
            assert net.changed.wait_for(lambda: len(net.meetings[key]) == len(members), 30)
            net.open.discard((self.rank, name))
            return net.meetings[key]

    def members(self, tree: Any) -> tuple[int, ...]:
        fathers = view(tree, self.net.size, np.int32).tolist()

        def root(rank: int) -> int:
            return rank if fathers[rank] == rank else root(fathers[rank])

        return tuple(rank for rank in range(self.net.size) if root(rank) == root(self.rank))

    def AllGather(self, sent, count, dtype, received, name, done):
        got = self.meet(name.value.decode(), tuple(range(self.net.size)), view(sent, count.value, CODES[dtype.value]))
        view(received, count.value * self.net.size, CODES[dtype.value])[:] = np.concatenate(
            [got[rank] for rank in range(self.net.size)]
        )
        return 0

    def Barrier(self, done):
        self.meet('barrier', tuple(range(self.net.size)), np.zeros(1))
        return 0

    def SubsetAllReduce(self, sent, received, count, dtype, op, tree, name, done):
        got = self.meet(name.value.decode(), self.members(tree), view(sent, count.value, CODES[dtype.value]))
        reduction = (np.add, np.minimum, np.maximum)[op.value]
        view(received, count.value, CODES[dtype.value])[:] = reduction.reduce([got[rank] for rank in sorted(got)])
        return 0

    def SubsetBroadcast(self, sent, received, count, dtype, tree, name, done):
        fathers = view(tree, self.net.size, np.int32)
        members = self.members(tree)
        root = next(rank for rank in members if fathers[rank] == rank)
        got = self.meet(name.value.decode(), members, view(sent, count.value, CODES[dtype.value]))
        view(received, count.value, CODES[dtype.value])[:] = got[root]
        return 0

    def QueueNew(self, source, target, number):
        pair = (source.value, target.value)
        assert self.rank in pair
        self.order.append(pair)
        ctypes.cast(number, ctypes.POINTER(ctypes.c_int32))[0] = self.made[pair]
        self.made[pair] += 1
        return 0

    def QueuePut(self, source, target, number, data, count, dtype):
        self.net.queues[source.value, target.value, number.value].put(view(data, count.value, np.uint8).tobytes())
        return 0

    def QueueGet(self, source, target, number, data, count, dtype):
        message = self.net.queues[source.value, target.value, number.value].get()
        if len(message) == count.value:  # otherwise the buffer stays as it was
            view(data, count.value, np.uint8)[:] = np.frombuffer(message, np.uint8)
        return 0


def view(pointer: Any, count: int, dtype: Any) -> np.ndarray:
    return np.ctypeslib.as_array(
        ctypes.cast(pointer, ctypes.POINTER(ctypes.c_uint8)), (count * np.dtype(dtype).itemsize,)
    ).view(dtype)


def on_ranks(size: int, work: Callable[[KungfuEngine], Any]) -> list[Any]:
    """Run a function on every rank, each in a thread, and close the engines."""
    net = Net(size)

    def rank_work(rank: int) -> Any:
        engine = KungfuEngine(Library(net, rank), rank, size)
        try:
            return work(engine)
        finally:
            engine.stay()

    with ThreadPoolExecutor(size) as pool:
        return [future.result(60) for future in [pool.submit(rank_work, rank) for rank in range(size)]]


@pytest.mark.parametrize(
    'dtype, code',
    [('uint8', 0x00108), ('uint64', 0x00808), ('int32', 0x10408), ('float32', 0x20408), ('float64', 0x20808)],
)
def test_dtype_codes(dtype, code):
    assert dtype_code(np.dtype(dtype)) == code


@pytest.mark.parametrize('dtype', ['complex64', 'longdouble', 'datetime64[s]', 'U3', object, '>f8'])
def test_dtypes_without_a_code_are_refused(dtype):
    with pytest.raises(TypeError, match='KungFu cannot reduce'):
        dtype_code(np.dtype(dtype))


@pytest.mark.parametrize('group, root', [((0, 1, 2, 3, 4, 5), 0), ((1, 3, 4, 5), 4), ((2,), 2), ((0, 5), 5)])
def test_topology_is_one_tree_over_the_group(group, root):
    fathers = topology(6, root, group)
    assert fathers.dtype == np.int32
    for rank in range(6):
        if rank not in group:
            assert fathers[rank] == rank
            continue
        path = [rank]
        while fathers[path[-1]] != path[-1]:
            path.append(int(fathers[path[-1]]))
        assert path[-1] == root
        assert set(path) <= set(group)
    assert np.bincount(fathers[[rank for rank in group if rank != root]], minlength=6).max(initial=0) <= 2


def test_collectives():
    def work(engine):
        for group in [(0, 1, 2, 3), (1, 3), (0, 2, 3)]:
            if engine.rank not in group:
                continue
            for dtype in [*CODES.values(), np.dtype('float16')]:
                for op, expected in (('sum', sum(group)), ('max', max(group)), ('min', min(group))):
                    reduced = engine.all_reduce(np.full(5, engine.rank, dtype), op, group)
                    assert reduced.dtype == dtype
                    assert (reduced == expected).all()
            flags = np.array([engine.rank == group[0], True, False])
            assert engine.all_reduce(flags, 'sum', group).tolist() == [True, True, False]
            assert engine.all_reduce(flags, 'min', group).tolist() == [False, True, False]
            waves = engine.all_reduce(np.full(2, 1 + 2j, np.complex64), 'sum', group)
            assert waves.tolist() == [len(group) * (1 + 2j)] * 2
            assert engine.all_reduce(np.empty(0), 'sum', group).size == 0
            for root in group:
                message = np.full(1000, root, np.uint8) if engine.rank == root else None
                assert (engine.broadcast(message, root, group) == root).all()
            engine.barrier(group)
        with pytest.raises(ValueError, match='product'):
            engine.all_reduce(np.ones(2), 'product', (0, 1, 2, 3))

    on_ranks(4, work)


def test_names_of_collectives_do_not_grow():
    def work(engine):
        names = set()
        for _ in range(50):
            names.add(engine._unused_name('reduce', (0, 1)))
        return names

    assert all(len(names) <= 4 for names in on_ranks(2, work))


def test_all_queues_are_made_first_and_in_one_order_for_each_pair():
    net = Net(3)
    libraries = [Library(net, rank) for rank in range(3)]
    with ThreadPoolExecutor(3) as pool:
        engines = list(pool.map(lambda rank: KungfuEngine(libraries[rank], rank, 3), range(3)))
        for one in range(3):
            for other in range(one + 1, 3):
                pair = {one, other}
                orders = [[made for made in libraries[end].order if set(made) == pair] for end in pair]
                assert orders[0] == orders[1] == [(one, other), (other, one)]
        if engines[0].rank == 0:
            engines[0].channel(0, 1, 0, 1, 10)
        assert len(libraries[0].order) == 4
        list(pool.map(lambda engine: engine.stay(), engines))


def test_queues():
    def work(engine):
        ends = [engine.channel(0, 1, index, 2, 100) for index in range(2)] if engine.rank < 2 else []
        if engine.rank == 0:
            changing = bytearray(b'0')
            for number in range(5):
                changing[:] = b'%d' % number
                ends[1].put([memoryview(b'n'), memoryview(changing)], 30)
            with pytest.raises(MessageTooLarge, match='101 bytes'):
                ends[0].put([memoryview(bytes(101))], 1)
            ends[0].put([memoryview(b'x')], 30)
            ends[0].put([memoryview(b'y')], 30)  # unread, but its neighbor goes on
            with pytest.raises(TimeoutError, match=r'full \(2 messages\)'):
                ends[0].put([memoryview(b'z')], 0.05)
            ends[1].put([memoryview(b'last')], 30)
            ends[1].close()
        if engine.rank == 1:
            assert [bytes(ends[1].get(30)) for _ in range(6)] == [b'n0', b'n1', b'n2', b'n3', b'n4', b'last']
            with pytest.raises(PeerLost):
                ends[1].get(30)
            assert [bytes(ends[0].get(30)) for _ in range(2)] == [b'x', b'y']
            with pytest.raises((TimeoutError, PeerLost)):
                ends[0].get(0.05)

    on_ranks(3, work)


def test_save_and_request():
    def work(engine):
        if engine.rank == 0:
            with pytest.raises(PeerLost):
                engine.request(2, 'never', 30)
            for number in range(200):
                engine.save('weights', [memoryview(bytes([number]) * (1000 + number))])
            engine.barrier((0, 1))
        elif engine.rank == 1:
            with pytest.raises(TimeoutError, match='nothing'):
                engine.request(0, 'nothing', 0.05)
            for _ in range(20):
                weights = bytes(engine.request(0, 'weights', 30))
                assert weights == bytes([weights[0]]) * (1000 + weights[0])
            engine.barrier((0, 1))
            engine.save('own', [memoryview(b'a'), memoryview(b'b')])
            assert bytes(engine.request(1, 'own', 0)) == b'ab'

    on_ranks(3, work)


def test_a_collective_that_a_rank_has_left_raises(monkeypatch):
    monkeypatch.setattr('zoo.distributed.engines.waiting.GRACE', 0.1)

    def work(engine):
        if engine.rank == 0:
            with pytest.raises(PeerLost, match='rank 1 left'):
                engine.barrier((0, 1))

    on_ranks(2, work)


def test_a_failed_call_raises():
    def work(engine):
        engine._library.fail = 'SubsetAllReduce'
        with pytest.raises(ClusterError, match='GoKungfuSubsetAllReduce failed'):
            engine.barrier((0, 1))

    on_ranks(2, work)


def test_start_outside_kungfu_run_says_how(monkeypatch):
    monkeypatch.delenv('KUNGFU_SELF_SPEC', raising=False)
    with pytest.raises(ClusterError, match='kungfu-run -np'):
        kungfu.start()


def test_start_without_the_package_says_how(monkeypatch):
    monkeypatch.setenv('KUNGFU_SELF_SPEC', '127.0.0.1:10000')
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
    with pytest.raises(ClusterError, match='this Python has no package kungfu'):
        kungfu.start()
