"""The process of a rank: the call that it runs, its signs of life, its end, and how a lighter one replaces it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle

from zoo.distributed.engines.base import Engine, PeerLost
from zoo.distributed.engines.endings import exit_message
from zoo.distributed.engines.local import engine as local
from zoo.distributed.engines.local.folder import Board, Seat, leave_with

#: Seconds between two signs of life of a rank.
BEAT = 0.5

#: Environment variables of a rank: each one computes on one thread, since there are as many ranks as cores or more.
THREADS = {'OMP_NUM_THREADS': '1', 'OPENBLAS_NUM_THREADS': '1', 'MKL_NUM_THREADS': '1'}


def pack(target: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """Return a call that another process can make, with what it needs of the running script."""
    return cloudpickle.dumps((target, args))


def run_rank(place: Seat, call: bytes) -> None:
    """Run a call of :func:`pack` as a rank of a job, in a process that was started for it."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)  # the watching process handles Ctrl-C …
    signal.signal(signal.SIGINT, signal.default_int_handler)  # … and hands it on
    folder, local.seat = Path(place.folder), place
    threading.Thread(target=_beat, args=(place,), name='zoo-beat', daemon=True).start()
    try:
        _make(call)
    except SystemExit as end:
        if (text := exit_message(end.code)) is not None:
            leave_with(folder, place.rank, 'error', text)
    except KeyboardInterrupt:
        leave_with(folder, place.rank, 'abort', 'interrupted.')
    except BaseException as error:
        kind = 'lost' if isinstance(error, PeerLost) else 'error'
        inside = error.__traceback__
        for _ in range(2):  # without the frames of this module
            inside = inside and inside.tb_next
        trace = ''.join(traceback.format_exception(type(error), error, inside))
        leave_with(folder, place.rank, kind, f'failed:\n{trace}')


def end_with(engine: Engine, message: str) -> NoReturn:
    """End this rank from any thread, as an error does that nobody catches: ``local`` may start it again.

    The message follows the number and the role of the rank.
    """
    if local.seat is not None and local.seat.parent:
        leave_with(Path(local.seat.folder), engine.rank, 'error', message)
    engine.abort(f'rank {engine.rank} ({engine.label}) {message}')


def become(call: bytes) -> NoReturn:
    """Replace this process by a new one that makes a call of :func:`pack`: the same rank, without imported modules.

    The new process keeps the arguments, module path, environment, interpreter options and open streams. All else ends
    without notice, as when the process is killed: threads, ``finally`` blocks, functions of :mod:`atexit`.
    """
    with tempfile.TemporaryFile() as file:
        file.write(call)
        file.seek(0)
        handle = os.dup(file.fileno())
    os.set_inheritable(handle, True)
    place = local.seat and tuple(local.seat)
    code = (
        f'import sys; sys.path[:] = {sys.path!r}; sys.argv[:] = {sys.argv!r}; '
        f'from zoo.distributed import rank_process; rank_process.go_on({handle}, {place})'
    )
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # private; as multiprocessing does
    os.execve(sys.executable, [sys.executable, *options, '-c', code], THREADS | os.environ)


def go_on(handle: int, place: tuple[Any, ...] | None) -> None:
    """Make the call that :func:`become` has written to an open file, in the new process."""
    with open(handle, 'rb') as file:
        call = file.read()
    if place is None:
        _make(call)
    else:
        run_rank(Seat(*place), call)


def _make(call: bytes) -> None:
    target, args = cloudpickle.loads(call)
    target(*args)


def _beat(place: Seat) -> None:
    """Show that this process runs. When the watching process is gone, remove the job's folder and end this process."""
    try:
        board = Board(Path(place.folder), place.size)
    except OSError:  # the job is over already
        os._exit(1)
    while os.getppid() == place.parent:
        board.beats[place.rank] += 1
        time.sleep(BEAT)
    doomed = f'{place.folder}-gone'  # renamed first, so that other threads of this process make no new files in it
    with contextlib.suppress(OSError):
        os.rename(place.folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
