"""Tasks in processes of this machine: what comparisons, tuning and the dashboard have their trainings done by."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
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

#: Seconds that an interrupted task has to save, and between looks whether the process that began it is still there.
_SAVING, _LOOK = 60.0, 1.0

#: The status with which an interrupted process ends, as shells have it.
_INTERRUPTED = 130


@dataclass(frozen=True)
class Task:
    """A call for a process of its own.

    Attributes:
        name: what it is called.
        function: also one of a script or a notebook; what it returns is lost.
        args: its arguments.
        log: the file for what it would write on the screen.
        talks: whether its first argument is to be a connection to who began it.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    log: Path
    talks: bool = False


class Worker:
    """A process that does a task from now on. When the process that began it ends, it is interrupted.

    Attributes:
        task: what it does.
        connection: to it, where the task talks; else None.

    Args:
        task: what is to be done.

    Raises:
        Exception: whatever pickling says of a function or an argument that cannot be sent to a process.
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
        self._process = context.Process(
            target=_do, args=(call, os.fspath(task.log), os.getpid(), theirs), name=task.name
        )
        with without_main(), _uninterrupted():
            self._process.start()
        if theirs is not None:
            theirs.close()

    @property
    def sentinel(self) -> int:
        """What ``multiprocessing.connection.wait`` takes."""
        return self._process.sentinel

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.is_alive()

    def interrupt(self) -> None:
        """Have it end as by Ctrl-C: a training saves first."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(cast(int, self._process.pid), signal.SIGINT)

    def join(self, seconds: float | None = None) -> None:
        """Wait until it has ended, for so many seconds at the most."""
        self._process.join(seconds)

    def kill(self) -> None:
        """End it without further ado."""
        self._process.kill()
        self._process.join()

    @property
    def reason(self) -> str | None:
        """Of one that has ended: the last line of its error, or None where all went well."""
        return None if self._process.exitcode == 0 else _reason(self.task, cast(int, self._process.exitcode))

    @property
    def interrupted(self) -> bool:
        """Of one that has ended: whether it was by an interrupt."""
        return self._process.exitcode == _INTERRUPTED


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def run(
    tasks: Sequence[Task], jobs: int, begun: Callable[[Task], Any], ended: Callable[[Task, str | None], Any]
) -> None:
    """Do tasks, so many at a time; all of them, also where some fail.

    An interrupt (Ctrl-C) is handed on to the tasks under way, once, and raised when they have saved and ended.

    Args:
        tasks: what is to be done, in this order.
        jobs: how many at a time.
        begun: told of each task that begins.
        ended: told of each that has ended, with the last line of its error, or None where all went well.
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
    """Let an interrupt wait, in a process that is started here too: until that is in a session of its own, the terminal
    interrupts it with its parent, in the middle of its imports."""
    if not hasattr(signal, 'pthread_sigmask'):
        yield
        return
    resource_tracker.ensure_running()  # which lets them through again, when it begins
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _reason(task: Task, code: int) -> str:
    """Why a process has failed, from the last line that it has written."""
    if code < 0:  # what it has written last is not why
        return f'its process was killed by {signal.Signals(-code).name}, as the system does where memory is short'
    lines = task.log.read_text(encoding='utf-8', errors='replace').strip().splitlines() if task.log.exists() else []
    return lines[-1] if lines else f'it ended with the status {code}'


def _do(call: bytes, log: str, parent: int, connection: Connection | None) -> None:
    """What a process does: the call, with its output in the log."""
    if hasattr(os, 'setsid'):
        os.setsid()  # lest the terminal interrupt it too, when its parent does
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's shell has it ignored behind an &
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
    """Interrupt this process when the one that began it is gone."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), signal.SIGINT)
