"""Tasks in processes of this machine, some at a time: what comparisons and tuning have their trainings done by."""

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
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, cast

import cloudpickle

from zoo.common.processes import without_main

#: Seconds that an interrupted task has to save, and between looks whether the process that began it is still there.
_SAVING, _LOOK = 60.0, 1.0


@dataclass(frozen=True)
class Task:
    """A call for a process of its own.

    Attributes:
        name: what it is called.
        function: also one of a script or a notebook; what it returns is lost.
        args: its arguments.
        log: the file for what it would write on the screen.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    log: Path


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
    waiting, under_way = list(reversed(tasks)), dict[int, tuple[Task, Any]]()
    context = multiprocessing.get_context('spawn')
    try:
        while waiting or under_way:
            while waiting and len(under_way) < jobs:
                task = waiting.pop()
                task.log.parent.mkdir(parents=True, exist_ok=True)
                call = cloudpickle.dumps((task.function, task.args))
                with without_main(), _uninterrupted():
                    process = context.Process(target=_do, args=(call, os.fspath(task.log), os.getpid()), name=task.name)
                    process.start()
                under_way[process.sentinel] = task, process
                begun(task)
            for sentinel in wait(list(under_way)):
                task, process = under_way.pop(cast(int, sentinel))
                process.join()
                ended(task, None if process.exitcode == 0 else _reason(task, process.exitcode))
    except BaseException as error:
        for _, process in under_way.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)
        until = time.monotonic() + _SAVING
        for _, process in under_way.values():
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
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


def _do(call: bytes, log: str, parent: int) -> None:
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
        function(*args)
    except KeyboardInterrupt:
        sys.exit(130)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        sys.exit(1)


def _end_with(parent: int) -> None:
    """Interrupt this process when the one that began it is gone."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), signal.SIGINT)
