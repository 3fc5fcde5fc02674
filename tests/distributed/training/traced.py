"""An environment that leaves traces, in a module without TensorFlow, because actors import it."""

from __future__ import annotations

import atexit
import os
import re
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium


class Traced(gymnasium.Wrapper):
    """An environment that writes a file in each process that steps it, and fails or dies when it is told to.

    Args:
        env: the environment to wrap.
        folder: where the files are written.
        die_at: the step at which the process is killed, unless another process was killed before.
        fail_at: the step at which every process raises.
        delay: seconds that each step waits.
        closing: 'well', or 'raises', 'crashes' or 'hangs' in an actor that has stepped it.
        exit_with: at ``fail_at`` end the program with this status instead, by ``sys.exit``.
        crashes: whether a signal kills an actor's process when it exits, like a faulty library would.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        folder: str,
        die_at: int = 0,
        fail_at: int = 0,
        exit_with: int | None = None,
        delay: float = 0.0,
        closing: str = 'well',
        crashes: bool = False,
    ) -> None:
        super().__init__(env)
        self.folder, self.die_at, self.fail_at, self.t = Path(folder), die_at, fail_at, 0
        self.delay, self.closing, self.exit_with = delay, closing, exit_with
        if crashes and 'pytest' not in sys.modules:
            atexit.register(os.kill, os.getpid(), signal.SIGSEGV)

    def close(self) -> None:
        super().close()
        if self.closing == 'well' or not self.t or 'pytest' in sys.modules:
            return
        if self.closing == 'raises':
            raise OSError('the simulator does not answer')
        if self.closing == 'crashes':
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(1000)

    def step(self, action: Any) -> Any:
        self.t += 1
        time.sleep(self.delay)
        if self.t == 1:
            seen = 'tensorflow' in sys.modules
            (self.folder / f'{os.getpid()}.stepped').write_text(f'{seen} {os.environ.get("OMP_NUM_THREADS")}')
        if self.t == self.die_at:
            try:
                (self.folder / 'died').touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        if self.t == self.fail_at:
            if self.exit_with is not None:
                sys.exit(self.exit_with)
            raise ArithmeticError('the simulator is broken')
        return super().step(action)


class Hanging(gymnasium.Wrapper):
    """CartPole that fails or hangs in the processes of actors.

    Args:
        folder: where a file is written each time.
        where: ``'make'``, ``'reset'``: the third one, since ``build_env`` resets too, or ``'step'``: the 20th.
        how: ``'sleeps'``, ``'spins'`` without letting other threads run, ``'raises'``, ``'differs'``: raises another
            error each time, or ``'dies'``.
        times: how often; None: each time.
    """

    def __init__(self, folder: str, where: str, how: str, times: int | None = None) -> None:
        super().__init__(gymnasium.make('CartPole-v1'))
        self.folder, self.where, self.how, self.times, self.t = Path(folder), where, how, times, 0
        self.resets = 0
        self._fail('make')

    def reset(self, **kwargs: Any) -> Any:
        self.resets += 1
        if self.resets == 3:
            self._fail('reset')
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        self.t += 1
        if self.t == 20:
            self._fail('step')
        return super().step(action)

    def _fail(self, where: str) -> None:
        failed = len(list(self.folder.iterdir()))
        if where != self.where or 'pytest' in sys.modules or failed == self.times:
            return
        (self.folder / str(failed)).touch()
        if self.how == 'raises':
            raise ArithmeticError('the simulator is broken')
        if self.how == 'differs':
            raise ArithmeticError(f'the simulator is broken, {failed}')
        if self.how == 'dies':
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == 'spins':
            re.match('(a+)+b', 'a' * 60)
        time.sleep(1000)


def hanging(folder: Path, where: str, how: str, times: int | None = None) -> Any:
    """Return a function that builds an environment that hangs."""
    return partial(Hanging, str(folder), where, how, times)


def traced(env_id: str, folder: Path, **kwargs: Any) -> Any:
    """Return a function that builds a traced environment."""
    return partial(make_traced, env_id, str(folder), **kwargs)


def make_traced(env_id: str, folder: str, **kwargs: Any) -> gymnasium.Env:
    return Traced(gymnasium.make(env_id), folder, **kwargs)
