"""How a rank ends that ``mpirun`` or ``kungfu-run`` has started, which do not see all of it themselves.

A rank that fails ends the job, with one message that says which it is and why; and none goes on when its launcher is
gone. With ``local`` this is the business of the process that watches: :mod:`zoo.distributed.jobs`.
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

#: How often a rank looks whether its launcher is there, seconds.
_LOOK_EVERY = 1.0


def watch_ends(engine: Engine) -> None:
    """End every rank when this one ends by an error or by ``sys.exit`` with a status, and this one with its launcher.

    Python tells nobody of the status with which ``raise SystemExit(status)`` ends a program: that is not seen.
    """
    sys.excepthook = lambda kind, error, trace: _fail(engine, error)
    sys.exit = _exit_of(engine)
    parent = os.getppid()
    threading.Thread(target=_end_with, args=(parent, engine), name='zoo-launcher', daemon=True).start()


def heed_signal(engine: Engine) -> None:
    """Let SIGUSR1, which ``mpirun`` hands on to all ranks, interrupt rank 0 as Ctrl-C does where there is no launcher.

    So rank 0 has all the time that it needs to save, while the others go on. It has not at SIGTERM, by which ``mpirun``
    ends its ranks when it is interrupted itself or when one has failed: SIGKILL is a quarter of a second behind.
    A handler that the program has set before stays.
    """
    number = getattr(signal, 'SIGUSR1', None)  # which Windows has not
    in_main = threading.current_thread() is threading.main_thread()  # elsewhere no handler can be set
    if number is not None and in_main and signal.getsignal(number) == signal.SIG_DFL:
        signal.signal(number, signal.default_int_handler if engine.rank == 0 else signal.SIG_IGN)


def exit_message(code: object) -> str | None:
    """What is said of a rank that has ended by ``sys.exit(code)``, after its number and role; None: it did not fail."""
    if isinstance(code, int):
        return f'ended with exit status {int(code)}.' if code else None
    return None if code is None else f'ended: {code}'


def _called(engine: Engine) -> str:
    return f'rank {engine.rank} ({engine.label or "no role yet"})'


def _fail(engine: Engine, error: BaseException) -> None:
    """End every rank for an error that nobody has caught; without that, the others would wait for this one."""
    if isinstance(error, PeerLost):
        # The one that was lost may be about to say why, and to end this rank too. Several that wait for it speak in
        # turn: one message ends the job, and mpirun can crash when several ranks abort at once.
        time.sleep(1.0 + 0.2 * min(engine.rank, 10))
    if isinstance(error, KeyboardInterrupt):
        engine.abort(f'{_called(engine)} was interrupted{f": {error}" if str(error) else ""}.')
    text = ''.join(traceback.format_exception(error))
    engine.abort(f'{_called(engine)} failed:\n{text}')


def _exit_of(engine: Engine) -> Any:
    """A ``sys.exit`` that fails the job if it ends the program with a status, and is as ever if it is caught."""

    class Exit(SystemExit):
        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            # Code that has caught this asks for the status from a frame; without one it is the interpreter that asks,
            # and it does so when this is about to end the program.
            if name == 'code' and sys._getframe().f_back is None and (message := exit_message(value)) is not None:
                engine.abort(f'{_called(engine)} {message}')
            return value

    def exit(status: object = None, /) -> None:
        in_main = threading.current_thread() is threading.main_thread()  # elsewhere it ends that thread alone
        kind = Exit if in_main else SystemExit
        raise kind() if status is None else kind(status)

    return exit


def _end_with(parent: int, engine: Engine) -> None:
    """End this process when another one, which has started it, is gone.

    Not by PR_SET_PDEATHSIG of Linux: that is sent when the *thread* ends that has started this process, and those of
    ``kungfu-run``, a Go program, come and go.
    """
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    with contextlib.suppress(OSError):  # what was printed may have gone to the launcher
        print(f'{_called(engine)} ends: its launcher, process {parent}, is gone.', file=sys.stderr, flush=True)
    os._exit(1)
