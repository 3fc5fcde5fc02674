"""A whole engine: ranks of one machine that talk through the standard library's connections.

    python toy_engine.py 4 -m zoo.distributed.testing

This starts four ranks and runs the suite that every engine has to pass. An engine that can send bytes with a tag from
one rank to another gets queues, save and request from ``MessageEngine``. A package registers its engine as an entry
point:

    [project.entry-points.'zoo.engines']
    toy = 'toy_engine'

Then ``connect`` finds it, and a program that ``toy_engine.py`` started trains over it.
"""

from __future__ import annotations

import atexit
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict, deque
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zoo.distributed.engines.endings import watch_ends
from zoo.distributed.engines.messages import GONE, MessageEngine
from zoo.distributed.engines.neighbor import process_identity
from zoo.distributed.engines.waiting import Deadline

PART = 8  # the tag of a part of a collective: it belongs to no queue
FUNCTIONS = {'sum': np.add, 'max': np.maximum, 'min': np.minimum}


def launched() -> bool:
    """Return whether the launcher below has started this process."""
    return 'TOY_RANK' in os.environ


def place() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks."""
    return int(os.environ['TOY_RANK']), int(os.environ['TOY_SIZE'])


def can_become() -> bool:
    """Return whether a new process in place of this one can still join."""
    return not any(thread.name == 'toy' for thread in threading.enumerate())


def start() -> ToyEngine:
    """Join the ranks."""
    engine = ToyEngine(Path(os.environ['TOY_FOLDER']), *place())
    atexit.register(engine.close)
    watch_ends(engine)
    return engine


class Arrival(NamedTuple):
    """A message that has come."""

    data: np.ndarray

    def complete(self) -> bool:
        return True


class ToyEngine(MessageEngine):
    """One rank. Two threads for each other rank send and receive."""

    name = 'toy'

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        listener = Listener(str(folder / f'rank-{rank}'), 'AF_UNIX', backlog=size)
        (folder / f'ready-{rank}').touch()
        links: dict[int, Connection[Any, Any]] = {}
        identities = {rank: process_identity()}
        for other in range(rank):
            while not (folder / f'ready-{other}').exists():
                time.sleep(0.01)
            links[other] = Client(str(folder / f'rank-{other}'))
            links[other].send((rank, identities[rank]))
            identities[other] = links[other].recv()
        while len(links) < size - 1:
            link: Connection[Any, Any] = listener.accept()
            other, identities[other] = link.recv()
            link.send(identities[rank])
            links[other] = link
        super().__init__(rank, size, [identities[other] for other in range(size)])
        self._changed = threading.Condition(self._lock)
        self._parts: dict[Any, deque[np.ndarray]] = defaultdict(deque)  # by (rank, group)
        self._unsent = 0
        self._outboxes: dict[int, queue.SimpleQueue[Any]] = {other: queue.SimpleQueue() for other in links}
        for other, link in links.items():
            for work in (self._receive, self._transmit):
                threading.Thread(target=work, args=(other, link), name='toy', daemon=True).start()
        threading.Thread(target=self._keep_watching, name='toy', daemon=True).start()

    def _all_reduce(self, buffer: np.ndarray, op: str, group: tuple[int, ...]) -> np.ndarray:
        # In the order of the ranks, so that every rank gets the same bits.
        first, *others = self._exchange(buffer, group)
        result = first.copy()
        for other in others:
            FUNCTIONS[op](result, other, out=result)
        return result

    def broadcast(self, buffer: np.ndarray | None, root: int, group: tuple[int, ...]) -> np.ndarray:
        return self._exchange(np.empty(0, np.uint8) if buffer is None else buffer, group)[group.index(root)]

    def barrier(self, group: tuple[int, ...]) -> None:
        self._exchange(np.empty(0, np.uint8), group)

    def _exchange(self, own: np.ndarray, group: tuple[int, ...]) -> list[np.ndarray]:
        """Return what every rank of the group has given."""
        others = [rank for rank in group if rank != self.rank]
        with self._lock:
            for rank in others:
                self._post(rank, PART, (group, own.copy()))
        self._wait_with(group, lambda: all(self._parts[rank, group] for rank in others))
        with self._lock:
            return [own if rank == self.rank else self._parts[rank, group].popleft() for rank in group]

    def _send(self, to: int, tag: int, data: Any = None, done: Any = None) -> None:
        data = np.empty(0, np.uint8) if data is None else data
        if to == self.rank:
            self._take(to, tag, Arrival(data.copy()))
            if done is not None:
                done()
            self._changed.notify_all()
        else:
            self._post(to, tag, data, done)

    def _post(self, to: int, tag: int, content: Any, done: Any = None) -> None:
        self._unsent += 1
        self._outboxes[to].put((tag, content, done))

    def _transmit(self, other: int, link: Connection[Any, Any]) -> None:
        tag = None
        while tag != GONE:
            tag, content, done = self._outboxes[other].get()
            try:
                link.send((tag, content))
            except OSError:  # the other rank has gone
                tag = GONE
            with self._changed:
                self._unsent -= 1
                if done is not None:
                    done()
                self._changed.notify_all()

    def _receive(self, other: int, link: Connection[Any, Any]) -> None:
        tag = None
        while tag != GONE:
            try:
                tag, content = link.recv()
            except (EOFError, OSError):  # its process has ended; the launcher ends the job if that was a failure
                return
            with self._changed:
                if tag == PART:
                    self._parts[other, content[0]].append(content[1])
                else:
                    self._take(other, tag, Arrival(content))
                self._changed.notify_all()

    def _wait(self, ready: Any, timeout: float | None, late: str) -> Any:
        deadline = Deadline(timeout)
        with self._changed:
            while (result := ready()) is None:
                deadline.check(late)
                self._changed.wait(min(deadline.left, 0.25))
        return result

    def save(self, name: str, parts: list[memoryview]) -> None:
        with self._changed:
            super().save(name, parts)
            self._changed.notify_all()

    def close(self) -> None:
        self._leave(also_tell_gone=True)

    def _keep_watching(self) -> None:
        while not self._closing:
            self._watch()
            time.sleep(0.25)

    def _is_flushed(self) -> bool:
        return self._unsent == 0

    def _finish(self, arrival: Any) -> None:
        """Do nothing: every arrival here is complete."""

    def _end_job(self) -> Any:
        os._exit(1)  # the launcher ends the others


def launch(size: int, program: list[str]) -> int:
    """Run a Python program on so many ranks; return the exit status. A rank that fails ends the others."""
    with tempfile.TemporaryDirectory() as folder:
        variables = os.environ | {'TOY_SIZE': str(size), 'TOY_FOLDER': folder}
        ranks = [
            subprocess.Popen([sys.executable, *program], env=variables | {'TOY_RANK': str(rank)})
            for rank in range(size)
        ]
        try:
            while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
                time.sleep(0.05)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        return 1 if any(rank.returncode for rank in ranks) else 0


if __name__ == '__main__':
    sys.exit(launch(int(sys.argv[1]), sys.argv[2:]))
