"""Training in a process that the page follows by its run directory and controls by a pipe.

A thread would share the processor with the notebook, and a crash of a simulator would end the notebook. The process
calls ``zoo.train`` with a callback that reads the pipe about ten times a second. *Pause* and *stop* wait for an update,
where the agent is whole: a process that a signal stops within a step cannot say where it is, and actors in other
processes would go on. When the notebook's kernel ends, the training is interrupted and saves.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

import zoo
from zoo.callbacks import Callback
from zoo.common.tools.errors import InvalidValue, TimedOut
from zoo.experiments.workers import Task, Worker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

#: Seconds between two looks into the pipe; the most environment steps between them.
_LOOK, _MOST_STEPS = 0.1, 50
#: Most steps of a film; width of its pictures in pixels.
FILM_STEPS, _FILM_WIDTH = 400, 360


class Narrow(gymnasium.Wrapper):
    """An environment with pictures that are narrow enough for the page."""

    def render(self) -> Any:
        from PIL import Image

        frame: Any = self.env.render()
        picture = Image.fromarray(frame)
        if picture.width > _FILM_WIDTH:
            picture = picture.resize((_FILM_WIDTH, round(picture.height * _FILM_WIDTH / picture.width)))
        return np.asarray(picture)


class Control(Callback):
    """Answers the page from within the training process, pauses, and interrupts.

    It writes to the connection only after a question, so a page that does not read blocks nothing.
    """

    steers = False

    def __init__(self, connection: Connection) -> None:
        self.every = 1
        self._connection = connection
        self._last = time.monotonic(), 0

    def begin(self, training: Any) -> None:
        self._connection.send(('begun', str(training.run_dir), training.steps, training.train_steps))

    def __call__(self, training: Any) -> None:
        now, (before, steps) = time.monotonic(), self._last
        self._last = now, training.steps
        # Counting steps instead of reading a clock after each costs fast trainings nothing.
        rate = (training.steps - steps) / max(now - before, 1e-9)
        self.every = max(1, min(_MOST_STEPS, int(rate * _LOOK)))
        while self._connection.poll():
            self._answer(self._connection.recv(), training)

    def _answer(self, message: str, training: Any) -> None:
        if message == 'steps':
            self._connection.send(('training', training.steps))
        elif message == 'pause':
            began = time.monotonic()
            self._connection.send(('paused', training.steps))
            while message not in ('go', 'stop'):
                message = self._connection.recv()
                if message == 'steps':
                    self._connection.send(('paused', training.steps))
            training.waited(time.monotonic() - began)
            self._last = time.monotonic(), training.steps
        if message in ('go', 'stop'):
            self._connection.send(('training', training.steps))
        if message == 'stop':
            raise KeyboardInterrupt


def _train(connection: Connection, folder: str, order: dict[str, Any]) -> None:
    """Train a new run in a folder of runs; runs in the training process."""
    os.environ['ZOO_RUNS'] = folder
    _, result = zoo.train(**order, callbacks=[Control(connection)])
    connection.send(('ended', result.steps, result.wall_time))


def _resume(connection: Connection, run: str, env: Mapping[str, Any] | None, net_list: list[Any] | None) -> None:
    """Resume a run; runs in the training process."""
    made = None if env is None else zoo.build_env(**env)
    _, result = zoo.resume(run, env=made, net_list=net_list, callbacks=[Control(connection)])
    connection.send(('ended', result.steps, result.wall_time))


def _film(run: str, env: Mapping[str, Any] | None, net_list: list[Any] | None, path: str) -> None:
    """Film an episode of a run's newest agent; runs in its own process."""
    found = zoo.open_run(run)
    agent = found.load(net_list=net_list)
    looks = {'nenv': 1, 'vectorized': False, 'render_mode': 'rgb_array'}
    made = found.build_env(seed=0, **looks) if env is None else zoo.build_env(**{**env, 'seed': 0, **looks})
    zoo.film(agent, Narrow(made), path, max_steps=FILM_STEPS, seed=0)
    made.close()


def _began(function: Any, args: tuple[Any, ...], name: str, talks: bool) -> Worker:
    """Start the process of a task; ValueError if something of the user's own cannot be sent to it."""
    log = Path(tempfile.mkdtemp(prefix='zoo-')) / 'output.txt'
    try:
        return Worker(Task(name, function, args, log, talks))
    except Exception as error:
        raise InvalidValue(
            f'this cannot be sent to the process that trains ({type(error).__name__}: {error}): define environments as '
            'classes or functions, and networks of Keras layers, and leave out what holds open files, locks or windows.'
        ) from error


class BackgroundTraining:
    """A training in its own process.

    Attributes:
        state: ``'starting'``, ``'training'``, ``'pausing'``, ``'paused'``, ``'stopping'``, ``'stopped'`` (saved, to be
            resumed), ``'ended'`` or ``'failed'``.
        run_dir: where it writes; None before it has begun.
        steps, train_steps: environment steps so far, and in all.
        result: its steps and its seconds, after it has ended.
        error: a sentence that says why it failed.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.state = 'starting'
        self.run_dir: Path | None = None
        self.steps = self.train_steps = 0
        self.result: tuple[int, float] | None = None
        self.error = ''
        self._asked = False
        self._output = ''
        atexit.register(self._end)  # before the one by which multiprocessing waits for it

    @classmethod
    def start(cls, order: Mapping[str, Any], folder: str | os.PathLike[str]) -> BackgroundTraining:
        """Begin a run in a folder of runs; ``order`` are the arguments of ``zoo.train``.

        Raises:
            ValueError: something of the user's own cannot be sent to a process.
        """
        return cls(_began(_train, (os.fspath(folder), dict(order)), f'train {order["alg"]}', True))

    @classmethod
    def resume(
        cls, run: str | os.PathLike[str], env: Mapping[str, Any] | None = None, net_list: list[Any] | None = None
    ) -> BackgroundTraining:
        """Resume an interrupted run, given by its folder.

        Args:
            env: the arguments of ``build_env``, if the environment has no name.
            net_list: the networks, if they are the user's own.
        """
        return cls(_began(_resume, (os.fspath(run), env, net_list), 'resume', True))

    @property
    def alive(self) -> bool:
        return self.state not in ('stopped', 'ended', 'failed')

    @property
    def output(self) -> str:
        """What it has printed: warnings."""
        log = self._worker.task.log
        return log.read_text(encoding='utf-8', errors='replace') if log.exists() else self._output

    def pause(self) -> None:
        """Pause it at its next update."""
        if self.state == 'training':
            self._send('pause')
            self.state = 'pausing'

    def go_on(self) -> None:
        if self.state in ('paused', 'pausing'):
            self._send('go')
            self.state = 'training'

    def stop(self) -> None:
        """Interrupt it at its next update, where it saves; before its first step it ends at once."""
        if self.state == 'starting':
            self.interrupt()
        elif self.alive:
            self._send('stop')
            self.state = 'stopping'

    def interrupt(self) -> None:
        """Interrupt it wherever it is; it saves."""
        if self.alive:
            self._worker.interrupt()
            self.state = 'stopping'

    def poll(self) -> None:
        if not self.alive:
            return
        alive = self._worker.alive
        connection = self._worker.connection
        assert connection is not None
        try:
            while connection.poll():
                self._heard(*connection.recv())
        except (EOFError, OSError):
            pass
        if not alive:
            self._over()
        elif not self._asked and self.run_dir is not None:
            self._asked = True
            self._send('steps')

    def wait(self, seconds: float, *states: str) -> None:
        """Poll until it is in one of the states, or has ended; TimeoutError if neither happens in time."""
        until = time.monotonic() + seconds
        while self.alive and self.state not in states:
            if time.monotonic() > until:
                raise TimedOut(f'the training is still {self.state} after {seconds:g} s.')
            time.sleep(0.05)
            self.poll()

    def _heard(self, kind: str, *values: Any) -> None:
        if kind == 'begun':
            self.run_dir, self.steps, self.train_steps = Path(values[0]), values[1], values[2]
            if self.state == 'starting':
                self.state = 'training'
        elif kind == 'ended':
            self.result = values[0], values[1]
        else:
            self._asked = False
            self.steps = values[0]
            if kind == 'paused' and self.state == 'pausing':
                self.state = 'paused'

    def _send(self, message: str) -> None:
        assert self._worker.connection is not None
        with contextlib.suppress(OSError):  # it has just ended
            self._worker.connection.send(message)

    def _over(self) -> None:
        self._worker.join()
        if self._worker.interrupted:
            self.state = 'stopped'
        elif self._worker.reason is None:
            self.state = 'ended'
            self.steps = self.train_steps
        else:
            self.state = 'failed'
            self.error = in_words(self._worker.reason)
        atexit.unregister(self._end)
        self._output = self.output
        if self.run_dir is not None and self.run_dir.is_dir():
            with open(self.run_dir / 'output.txt', 'a', encoding='utf-8') as file:
                file.write(self._output)
        shutil.rmtree(self._worker.task.log.parent, ignore_errors=True)

    def _end(self) -> None:
        self._worker.interrupt()


class Filming:
    """The filming of an episode with a run's newest agent, in its own process.

    Attributes:
        path: the film, an animated WebP.
        error: a sentence that says why there is no film.
    """

    def __init__(self, run: Any, env: Mapping[str, Any] | None = None, net_list: list[Any] | None = None) -> None:
        if not run.checkpoints:
            raise InvalidValue(f'{run.name} has no checkpoint yet: there is no agent to film.')
        self.steps = int(run.checkpoints[-1].name)
        self.path: Path = run.path / 'videos' / f'{run.checkpoints[-1].name}.webp'
        self.error = ''
        self._worker = _began(_film, (os.fspath(run.path), env, net_list, os.fspath(self.path)), 'film', False)

    @property
    def done(self) -> bool:
        """Whether it has ended, with a film or an error."""
        if self._worker.alive:
            return False
        self._worker.join()
        if self._worker.reason is not None:
            self.error = in_words(self._worker.reason)
        shutil.rmtree(self._worker.task.log.parent, ignore_errors=True)
        return True

    def cancel(self) -> None:
        """End it without a film."""
        self._worker.kill()
        shutil.rmtree(self._worker.task.log.parent, ignore_errors=True)


def in_words(line: str) -> str:
    """Return the last line of an error without its class: ``'ValueError: gamma is 2'`` → ``'gamma is 2'``."""
    name, _, text = line.partition(': ')
    return text if text and name.replace('.', '').isidentifier() else line
