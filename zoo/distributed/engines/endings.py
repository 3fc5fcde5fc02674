"""The ends of a rank that ``mpirun`` or ``kungfu-run`` started, where the launcher does not see all of them itself.

A rank that fails ends the whole job with one message: which rank, and why. A rank also ends when its launcher is gone.
With the engine ``local``, :mod:`zoo.distributed.jobs` does this.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from typing import Any

from zoo.distributed.engines.base import Engine, PeerLost

#: Seconds between two looks of a rank for its launcher.
_LOOK_EVERY = 1.0


def watch_ends(engine: Engine) -> None:
    """End every rank when this one ends by an error or by ``sys.exit`` with a status; end this one with its launcher.

    ``raise SystemExit(status)`` is not seen: Python tells nobody of that status.
    """
    sys.excepthook = lambda kind, error, trace: _fail(engine, error)
    sys.exit = _exit_of(engine)
    threading.Thread(target=_end_with, args=(os.getppid(), engine), name='zoo-launcher', daemon=True).start()


def heed_signal(engine: Engine) -> None:
    """Let SIGUSR1, which ``mpirun`` hands on to all ranks, interrupt rank 0 like Ctrl-C without a launcher.

    Rank 0 then has all the time that it needs to save, and the others go on. At SIGTERM it has none: ``mpirun`` sends
    that when it is interrupted or a rank has failed, and SIGKILL a quarter of a second later. A handler that the
    program has set stays.
    """
    number = getattr(signal, 'SIGUSR1', None)  # Windows has none
    in_main = threading.current_thread() is threading.main_thread()  # no other thread can set a handler
    if number is not None and in_main and signal.getsignal(number) == signal.SIG_DFL:
        signal.signal(number, signal.default_int_handler if engine.rank == 0 else signal.SIG_IGN)


def exit_message(code: object) -> str | None:
    """Return what a message says of a rank that ended by ``sys.exit(code)``; None: that is no failure."""
    if isinstance(code, int):
        return f'ended with exit status {int(code)}.' if code else None
    return None if code is None else f'ended: {code}'


def _called(engine: Engine) -> str:
    return f'rank {engine.rank} ({engine.label or "no role yet"})'


def _fail(engine: Engine, error: BaseException) -> None:
    """End every rank for an error that nobody has caught: the others would wait for this rank."""
    if isinstance(error, PeerLost):
        # The lost rank may be about to say why. Ranks that wait for it speak in turn: the first message ends the job,
        # and mpirun can crash when several ranks abort at once.
        time.sleep(1.0 + 0.2 * min(engine.rank, 10))
    if isinstance(error, KeyboardInterrupt):
        engine.abort(f'{_called(engine)} was interrupted{f": {error}" if str(error) else ""}.')
    text = ''.join(traceback.format_exception(error))
    engine.abort(f'{_called(engine)} failed:\n{text}')


def _exit_of(engine: Engine) -> Any:
    """Return a ``sys.exit`` that fails the job if it ends the program with a status. Caught, it changes nothing."""

    class Exit(SystemExit):
        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            # Code that has caught this exception asks for the status from a frame. Without a frame the interpreter
            # asks, and it asks only when it is about to end the program.
            if name == 'code' and sys._getframe().f_back is None and (message := exit_message(value)) is not None:
                engine.abort(f'{_called(engine)} {message}')
            return value

    def exit(status: object = None, /) -> None:
        in_main = threading.current_thread() is threading.main_thread()  # elsewhere it ends only that thread
        kind = Exit if in_main else SystemExit
        raise kind() if status is None else kind(status)

    return exit


def _end_with(parent: int, engine: Engine) -> None:
    """End this process when the launcher that started it is gone.

    Linux' PR_SET_PDEATHSIG cannot do this: it is sent when the *thread* that started this process ends, and
    ``kungfu-run`` is a Go program, whose threads come and go.
    """
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    with contextlib.suppress(OSError):  # standard error may have been a pipe to the launcher
        print(f'{_called(engine)} ends: its launcher, process {parent}, is gone.', file=sys.stderr, flush=True)
    os._exit(1)
