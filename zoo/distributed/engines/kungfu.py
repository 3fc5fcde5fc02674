"""The ``kungfu`` engine: ranks that ``kungfu-run`` started, through the C interface of KungFu's own library.

All-reduce and broadcast are KungFu's, over a tree of the ranks of the group. Everything else travels in KungFu's
queues: one in each direction between every two ranks. All of them are made when the engine starts, because a queue that
is made while others are in use can end the process. One thread per queue reads at all times, because an unread queue
blocks its neighbors. Every message carries its length, because a read of another length returns garbage, and its
number, because a lost message would not be noticed.

KungFu's own save and request are not used. A request of another size than was saved hangs. A request for a name that
nobody saved returns at once. A read during a save mixes two saves.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import queue
import signal
import sys
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from zoo.common.tools.errors import InvalidType
from zoo.distributed.engines.base import ClusterError
from zoo.distributed.engines.endings import watch_ends
from zoo.distributed.engines.messages import GONE, Arrival, MessageEngine, Result
from zoo.distributed.engines.neighbor import process_identity
from zoo.distributed.engines.waiting import Deadline

HOW_TO_GET = (
    'install KungFu from its own repository (the package kungfu on PyPI is unrelated) and start the program '
    'with: kungfu-run -np <ranks> python <program>'
)

_CLASSES = {'u': 0, 'i': 1, 'f': 2}
_OPS = {'sum': 0, 'min': 1, 'max': 2}
_IDENTITY_BYTES = 128
#: The largest piece of a broadcast, bytes.
_PIECE = 1 << 30
# Calls of one kind in one group follow each other, so a few names in turn never meet. KungFu keeps every name for ever.
_NAMES = 4
_LONGEST_WAIT, _WATCH_EVERY = 0.25, 0.25  # seconds


class _Whole(NamedTuple):
    """A message that has come."""

    data: np.ndarray

    def complete(self) -> bool:
        return True


def launched() -> bool:
    """Return whether ``kungfu-run`` has started this process."""
    return 'KUNGFU_SELF_SPEC' in os.environ


def place() -> tuple[int, int] | None:
    """Return the rank of this process and the number of ranks; None if ``kungfu-run`` does not tell them."""
    peers = os.environ.get('KUNGFU_INIT_PEERS', '').split(',')
    own = os.environ['KUNGFU_SELF_SPEC']
    return (peers.index(own), len(peers)) if own in peers else None


def can_become() -> bool:
    """Return whether KungFu does not run yet in this process."""
    return 'kungfu.python' not in sys.modules


def start() -> KungfuEngine:
    """Join the ranks that ``kungfu-run`` has started. Returns once all of them have called this.

    Raises:
        ClusterError: ``kungfu-run`` did not start this process, or KungFu is not installed.
    """
    if not launched():
        raise ClusterError(f'the engine kungfu was asked for outside kungfu-run: {HOW_TO_GET}.')
    if importlib.util.find_spec('kungfu') is None:
        raise ClusterError(f'started by kungfu-run, but this Python has no package kungfu: {HOW_TO_GET}.')
    in_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} if in_main else {}
    try:
        import kungfu.python as runtime  # the import waits for all ranks

        folder = Path(sys.modules['kungfu'].__path__[0])
        library = ctypes.CDLL(str(folder / ('libkungfu.dylib' if sys.platform == 'darwin' else 'libkungfu.so')))
    except (ImportError, OSError) as error:
        raise ClusterError(f'the package kungfu cannot be loaded ({error}): {HOW_TO_GET}.') from error
    for number, handler in handlers.items():  # the import makes the process ignore both signals
        signal.signal(number, handler)
    engine = KungfuEngine(library, runtime.current_rank(), runtime.current_cluster_size())
    atexit.register(engine.stay)  # runs before KungFu's own exit function
    watch_ends(engine)
    return engine


def dtype_code(dtype: np.dtype) -> int:
    """Return KungFu's number of a dtype: ``class << 16 | bytes << 8 | 8``.

    Raises:
        TypeError: KungFu cannot reduce this dtype.
    """
    dtype = np.dtype(dtype)
    if dtype.kind not in _CLASSES or dtype.itemsize > 8 or not dtype.isnative:
        raise InvalidType(f'KungFu cannot reduce {dtype}: convert the array to an integer, float32 or float64 first.')
    return _CLASSES[dtype.kind] << 16 | dtype.itemsize << 8 | 8


def topology(size: int, root: int, group: tuple[int, ...]) -> np.ndarray:
    """Return a binary tree over the group: int32 ``[size]``, each rank's parent. The root and all ranks outside the
    group are their own parents."""
    fathers = np.arange(size, dtype=np.int32)
    members = [root, *(rank for rank in group if rank != root)]
    for place, rank in enumerate(members[1:], start=1):
        fathers[rank] = members[(place - 1) // 2]
    return fathers


class KungfuEngine(MessageEngine):
    """One rank under ``kungfu-run``. Its calls are thread-safe. ``library`` has the functions of KungFu's C library."""

    name = 'kungfu'

    def __init__(self, library: Any, rank: int, size: int) -> None:
        self._library = library
        own = np.frombuffer(process_identity().encode()[:_IDENTITY_BYTES].ljust(_IDENTITY_BYTES), np.uint8)
        everyone = np.empty((size, _IDENTITY_BYTES), np.uint8)
        self._call('GoKungfuAllGather', own, own.size, np.uint8, everyone, 'zoo identities')
        super().__init__(rank, size, [bytes(identity).decode().strip() for identity in everyone])
        self._changed = threading.Condition(self._lock)
        self._calls: dict[tuple[str, tuple[int, ...]], int] = defaultdict(int)
        self._unsent = 0
        self._queues: dict[tuple[int, int], int] = {}
        for other in range(size):
            for pair in ((min(rank, other), max(rank, other)), (max(rank, other), min(rank, other))):
                if other != rank:  # both ends make them in the same order
                    number = ctypes.c_int32()
                    self._call('GoKungfuQueueNew', *pair, ctypes.byref(number), done=False)
                    self._queues[pair] = number.value
        self._call('GoKungfuBarrier')
        self._outboxes: dict[int, queue.SimpleQueue] = {}
        for other in range(size):
            if other != rank:
                self._outboxes[other] = queue.SimpleQueue()
                for work in (self._receive, self._transmit):
                    threading.Thread(target=work, args=(other,), name=f'zoo-kungfu-{other}', daemon=True).start()
        threading.Thread(target=self._keep_watching, name='zoo-kungfu', daemon=True).start()

    def _all_reduce(self, buffer: np.ndarray, op: str, group: tuple[int, ...]) -> np.ndarray:
        if buffer.dtype.kind == 'c' and op == 'sum':
            return self.all_reduce(buffer.view(buffer.real.dtype), op, group).view(buffer.dtype)
        dtype_code(buffer.dtype)  # refuses a dtype here rather than in a thread
        result, operation = np.empty_like(buffer), ctypes.c_int32(_OPS[op])
        args = buffer, result, buffer.size, buffer.dtype, operation, topology(self.size, group[0], group)
        self._together(partial(self._call, 'GoKungfuSubsetAllReduce', *args, self._unused_name('reduce', group)), group)
        return result

    def broadcast(self, buffer: np.ndarray | None, root: int, group: tuple[int, ...]) -> np.ndarray:
        if len(group) == 1:
            assert buffer is not None  # this rank is the root
            return buffer
        # This is also a barrier: a broadcast to a rank that has not come to it blocks everything between the two ranks.
        length = np.array([0 if buffer is None else buffer.nbytes], np.int64)
        size = int(self.all_reduce(length, 'sum', group)[0])
        data = np.empty(size, np.uint8)
        tree = topology(self.size, root, group)
        for start in range(0, size, _PIECE):
            received = data[start : start + _PIECE]
            sent = received if buffer is None else buffer[start : start + _PIECE]
            name = self._unused_name('broadcast', group)
            call = partial(self._call, 'GoSubsetBroadcast', sent, received, received.size, np.uint8, tree, name)
            self._together(call, group)
        return data

    def barrier(self, group: tuple[int, ...]) -> None:
        self.all_reduce(np.zeros(1, np.uint8), 'max', group)

    def _unused_name(self, kind: str, group: tuple[int, ...]) -> str:
        with self._lock:
            count = self._calls[kind, group]
            self._calls[kind, group] = count + 1
        return f'zoo {kind} {zlib.crc32(np.array(group, np.int64).tobytes())} {len(group)} {count % _NAMES}'

    def _together(self, call: Callable[[], None], group: tuple[int, ...]) -> None:
        """Run a collective and wait for it, or for a rank to leave.

        It runs in a daemon thread: it cannot be interrupted, and an exit would wait for an executor's threads.
        """
        future = Future[None]()

        def run() -> None:
            try:
                call()
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(None)
            with self._changed:
                self._changed.notify_all()

        threading.Thread(target=run, name='zoo-kungfu-collective', daemon=True).start()
        self._wait_with(group, future.done)
        future.result()

    def save(self, name: str, parts: list[memoryview]) -> None:
        super().save(name, parts)
        with self._changed:
            self._changed.notify_all()

    def _end_job(self) -> NoReturn:
        os._exit(1)  # a normal exit would wait for threads inside KungFu

    def close(self) -> None:
        # What was put is sent first. Ranks that have left are told too: they wait in `stay`.
        self._leave(also_tell_gone=True)

    def stay(self) -> None:
        """Close, and wait until all ranks have closed: KungFu hangs when one is missing at the exit of the others."""
        self.close()
        self._wait(lambda: True if len(self._gone) == self.size - 1 else None, None, '')

    def _send(self, to: int, tag: int, data: np.ndarray | None = None, done: Callable[[], None] | None = None) -> None:
        data = np.empty(0, np.uint8) if data is None else data
        if to == self.rank:
            self._take(to, tag, _Whole(data.copy()))
            if done is not None:
                done()
            self._changed.notify_all()
            return
        self._unsent += 1
        self._outboxes[to].put((tag, data, done))

    def _is_flushed(self) -> bool:
        return self._unsent == 0

    def _finish(self, arrival: Arrival) -> None:
        assert arrival.complete()  # this engine's threads hand on whole messages

    def _wait(self, ready: Callable[[], Result | None], timeout: float | None, late: str) -> Result:
        deadline = Deadline(timeout)
        with self._changed:
            while (result := ready()) is None:
                deadline.check(late)
                self._changed.wait(min(deadline.left, _LONGEST_WAIT))
        return result

    def _transmit(self, target: int) -> None:
        """Send to one rank, in a thread of its own."""
        count = 0
        while True:
            tag, data, done = self._outboxes[target].get()
            header = np.array([count, tag, data.nbytes], np.int64)
            self._queue('GoKungfuQueuePut', self.rank, target, header.view(np.uint8))
            if data.nbytes:
                self._queue('GoKungfuQueuePut', self.rank, target, data)
            count += 1
            with self._changed:
                self._unsent -= 1
                if done is not None:
                    done()
                self._changed.notify_all()
            if tag == GONE:
                return

    def _receive(self, source: int) -> None:
        """Receive from one rank, in a thread of its own."""
        expected, header = 0, np.empty(3, np.int64)
        while True:
            self._queue('GoKungfuQueueGet', source, self.rank, header.view(np.uint8))
            count, tag, size = header.tolist()
            if count != expected:
                self.abort(f'rank {self.rank}: message {count} came from rank {source} instead of message {expected}.')
            data = np.empty(size, np.uint8)
            if size:
                self._queue('GoKungfuQueueGet', source, self.rank, data)
            expected += 1
            with self._changed:
                self._take(source, tag, _Whole(data))
                self._changed.notify_all()
            if tag == GONE:
                return

    def _queue(self, function: str, source: int, target: int, data: np.ndarray) -> None:
        """Put uint8 data into the queue between two ranks, or fill it from there."""
        number = ctypes.c_int32(self._queues[source, target])
        self._call(function, source, target, number, data, data.size, np.uint8, done=False)

    def _keep_watching(self) -> None:
        while not self._closing:
            self._watch()
            time.sleep(_WATCH_EVERY)

    def _call(self, function: str, *args: Any, done: bool = True) -> None:
        """Call the library: arrays by address, dtypes by number, ``int`` as Go's; ctypes as they are.

        Raises:
            ClusterError: the call failed.
        """
        plain: list[Any] = []
        for arg in args:
            if isinstance(arg, np.ndarray):
                plain.append(ctypes.c_void_p(arg.ctypes.data))
            elif isinstance(arg, (type, np.dtype)):
                plain.append(ctypes.c_int32(dtype_code(np.dtype(arg))))
            elif isinstance(arg, int):
                plain.append(ctypes.c_int64(arg))
            elif isinstance(arg, str):
                plain.append(ctypes.c_char_p(arg.encode()))
            else:
                plain.append(arg)
        if done:
            plain.append(ctypes.c_void_p(None))  # no callback: the call returns when it is done
        entry = getattr(self._library, function)
        entry.restype = ctypes.c_int64
        if entry(*plain):
            raise ClusterError(f'KungFu reports that {function} failed; its own message is above.')
