"""Tasks in processes of this machine, for comparisons, tuning and the dashboard."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

import cloudpickle

from zoo.common.tools.processes import without_main

#: Seconds that an interrupted task has to save; seconds between checks that the parent process is still there.
_SAVING, _LOOK = 60.0, 1.0

#: The exit status of an interrupted process, as in shells.
_INTERRUPTED = 130


@dataclass(frozen=True)
class Task:
    """A call that gets a process to itself.

    Attributes:
        name: its name in messages.
        function: the function, which may be defined in a script or a notebook. Its return value is lost.
        args: its arguments.
        log: the file for everything that it prints.
        talks: put a connection to the parent process before the arguments.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    log: Path
    talks: bool = False


class Worker:
    """A process that does a task at once. It is interrupted when the parent process ends.

    Attributes:
        task: the task.
        connection: the connection to the process if the task talks; else None.

    Raises:
        Exception: the function or an argument cannot be pickled; the error of pickle or cloudpickle.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        call = cloudpickle.dumps((task.function, task.args))
        task.log.parent.mkdir(parents=True, exist_ok=True)
        context = multiprocessing.get_context('spawn')
        self.connection: Connection | None = None
        theirs: Connection | None = None
        if task.talks:
            self.connection, theirs = context.Pipe()
        args = (call, os.fspath(task.log), os.getpid(), theirs)
        self._process = context.Process(target=_do, args=args, name=task.name)
        with without_main(), _uninterrupted():
            self._process.start()
        if theirs is not None:
            theirs.close()

    @property
    def sentinel(self) -> int:
        """Handle for ``multiprocessing.connection.wait``, ready when the process has ended."""
        return self._process.sentinel

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def interrupt(self) -> None:
        """Interrupt it like Ctrl-C; a training saves first."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(cast(int, self._process.pid), signal.SIGINT)

    def join(self, seconds: float | None = None) -> None:
        """Wait until it has ended, for at most ``seconds``."""
        self._process.join(seconds)

    def kill(self) -> None:
        """Kill it at once."""
        self._process.kill()
        self._process.join()

    @property
    def reason(self) -> str | None:
        """The last line of the error of a process that has ended; None if all went well."""
        return None if self._process.exitcode == 0 else _reason(self.task, cast(int, self._process.exitcode))

    @property
    def interrupted(self) -> bool:
        """Whether the process ended because of an interrupt."""
        return self._process.exitcode == _INTERRUPTED


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def run(
    tasks: Sequence[Task], jobs: int, begun: Callable[[Task], Any], ended: Callable[[Task, str | None], Any]
) -> None:
    """Do all tasks in order, ``jobs`` at a time, even if some fail.

    An interrupt (Ctrl-C) is passed to the running tasks once, and raised when they have saved and ended.

    Args:
        tasks: the tasks.
        jobs: number of processes at a time.
        begun: called with each task that begins.
        ended: called with each task that has ended and the last line of its error, None if all went well.
    """
    waiting, under_way = list(reversed(tasks)), dict[int, Worker]()
    try:
        while waiting or under_way:
            while waiting and len(under_way) < jobs:
                worker = Worker(waiting.pop())
                under_way[worker.sentinel] = worker
                begun(worker.task)
            for sentinel in wait(list(under_way)):
                worker = under_way.pop(cast(int, sentinel))
                worker.join()
                ended(worker.task, worker.reason)
    except BaseException as error:
        for worker in under_way.values():
            worker.interrupt()
        until = time.monotonic() + _SAVING
        for worker in under_way.values():
            worker.join(max(0.0, until - time.monotonic()))
            if worker.alive:
                worker.kill()
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt('interrupted; the same again goes on from here') from None
        raise


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay interrupts, also in a process that is started meanwhile.

    Until that process is in its own session, the terminal interrupts it with its parent, in the middle of its imports.
    """
    if not hasattr(signal, 'pthread_sigmask'):
        yield
        return
    resource_tracker.ensure_running()  # its start would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _reason(task: Task, code: int) -> str:
    """Return why a process failed: the last line that it wrote, without the module of an error of zoo."""
    if code < 0:  # its last line is not the reason
        return f'its process was killed by {signal.Signals(-code).name}, as the system does where memory is short'
    lines = task.log.read_text(encoding='utf-8', errors='replace').strip().splitlines() if task.log.exists() else []
    if not lines:
        return f'it ended with the status {code}'
    return re.sub(r'^zoo\.[\w.]*\.(?=\w+: )', '', lines[-1])


def _do(call: bytes, log: str, parent: int, connection: Connection | None) -> None:
    """Do the call of a task in its process, with all output in the log."""
    if hasattr(os, 'setsid'):
        os.setsid()  # otherwise the terminal interrupts it together with its parent
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs (&) with it ignored
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(out, stream)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        if hasattr(signal, 'pthread_sigmask'):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        function, args = cloudpickle.loads(call)
        function(*([] if connection is None else [connection]), *args)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        sys.exit(1)


def _end_with(parent: int) -> None:
    """Interrupt this process when its parent is gone."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), signal.SIGINT)
