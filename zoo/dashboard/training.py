"""Training in the background: a process of its own, which the page follows by its run directory and steers by a pipe.

Why a process. A thread would take turns with the notebook's own code, so that neither would go at its speed; and an
error of a simulator would end the notebook. The process does what a script does, ``zoo.train``, with one callback more,
which looks into the pipe some ten times a second:

* *pause* holds the training up at the next update, where the agent is whole; the time does not count.
* *stop* interrupts it there, as Ctrl-C does a script: it saves a checkpoint, from which it can be resumed.

Both are at an update, since a process that is stopped by a signal in mid-step cannot say where it is, and actors in
other processes would go on. An update can be long in coming; :meth:`Training.interrupt` does not wait for it.

When the notebook's kernel ends, the training is interrupted and saves, too.
"""

from __future__ import annotations

import atexit
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
from zoo.experiments.workers import Task, Worker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

#: Seconds between looks into the pipe, and the most steps.
_LOOK, _MOST_STEPS = 0.1, 50
#: Of a film: steps, and width of the picture in pixels.
FILM_STEPS, _FILM_WIDTH = 400, 360


class Narrow(gymnasium.Wrapper):
    """An environment whose pictures are narrow enough for a page."""

    def render(self) -> Any:
        """A picture, uint8 ``[height, width, 3]``."""
        from PIL import Image

        frame: Any = self.env.render()
        picture = Image.fromarray(frame)
        if picture.width > _FILM_WIDTH:
            picture = picture.resize((_FILM_WIDTH, round(picture.height * _FILM_WIDTH / picture.width)))
        return np.asarray(picture)


class Control(Callback):
    """In the training process: answers who asks how far it is, pauses, and interrupts.

    Args:
        connection: to the page. What is sent is an answer, so that a page that does not listen holds nothing up.
    """

    def __init__(self, connection: Connection) -> None:
        self.every = 1
        self._connection = connection
        self._last = time.monotonic(), 0

    def begin(self, training: Any) -> None:
        """See :class:`zoo.callbacks.Callback`."""
        self._connection.send(('begun', str(training.run_dir), training.steps, training.train_steps))

    def __call__(self, training: Any) -> None:
        """See :class:`zoo.callbacks.Callback`."""
        now, (before, steps) = time.monotonic(), self._last
        self._last = now, training.steps
        # Looking every so many steps, and not at a clock after each, costs fast trainings nothing.
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
        if message == 'go':
            self._connection.send(('training', training.steps))
        elif message == 'stop':
            self._connection.send(('training', training.steps))
            raise KeyboardInterrupt


def _train(connection: Connection, folder: str, order: dict[str, Any]) -> None:
    """In the training process: a new run, in a folder of runs."""
    os.environ['ZOO_RUNS'] = folder
    _, result = zoo.train(**order, callbacks=[Control(connection)])
    connection.send(('ended', result.steps, result.wall_time))


def _resume(connection: Connection, run: str, env: Mapping[str, Any] | None, net_list: list[Any] | None) -> None:
    """In the training process: a run goes on."""
    made = None if env is None else zoo.build_env(**env)
    _, result = zoo.resume(run, env=made, net_list=net_list, callbacks=[Control(connection)])
    connection.send(('ended', result.steps, result.wall_time))


def _film(run: str, env: Mapping[str, Any] | None, net_list: list[Any] | None, path: str) -> None:
    """In a process: an episode of a run's newest agent."""
    found = zoo.open_run(run)
    agent = found.load(net_list=net_list)
    looks = {'nenv': 1, 'vectorized': False, 'render_mode': 'rgb_array'}
    made = found.build_env(seed=0, **looks) if env is None else zoo.build_env(**{**env, 'seed': 0, **looks})
    zoo.film(agent, Narrow(made), path, max_steps=FILM_STEPS, seed=0)
    made.close()


def _began(function: Any, args: tuple[Any, ...], name: str, talks: bool) -> Worker:
    """The process of a task.

    Raises:
        ValueError: something of the user's own cannot be sent to a process.
    """
    log = Path(tempfile.mkdtemp(prefix='zoo-')) / 'output.txt'
    try:
        return Worker(Task(name, function, args, log, talks))
    except Exception as error:
        raise ValueError(
            f'this cannot be sent to the process that trains ({type(error).__name__}: {error}): define environments as '
            'classes or functions, and networks of Keras layers, and leave out what holds open files, locks or windows.'
        ) from error


class Training:
    """A run under way in a process of its own.

    Attributes:
        state: ``'starting'``, ``'training'``, ``'pausing'``, ``'paused'``, ``'stopping'``, ``'stopped'`` (saved, to be
            resumed), ``'ended'`` or ``'failed'``.
        run_dir: where it writes; None before it has begun.
        steps, train_steps: how far it is, and where it ends.
        result: of one that has ended, its steps and its seconds.
        error: why it failed, a sentence.
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
    def start(cls, order: Mapping[str, Any], folder: str | os.PathLike[str]) -> Training:
        """Begin a run.

        Args:
            order: the arguments of ``zoo.train``.
            folder: of the runs.

        Raises:
            ValueError: something of the user's own cannot be sent to a process.
        """
        return cls(_began(_train, (os.fspath(folder), dict(order)), f'train {order["alg"]}', True))

    @classmethod
    def resume(
        cls,
        run: str | os.PathLike[str],
        env: Mapping[str, Any] | None = None,
        net_list: list[Any] | None = None,
    ) -> Training:
        """Go on with a run that was interrupted.

        Args:
            run: its folder.
            env: the arguments of ``build_env`` where no name makes the environment.
            net_list: where networks are of the user's own.
        """
        return cls(_began(_resume, (os.fspath(run), env, net_list), 'resume', True))

    @property
    def alive(self) -> bool:
        """Whether there is anything to wait for."""
        return self.state not in ('stopped', 'ended', 'failed')

    @property
    def output(self) -> str:
        """What it has written on its screen: warnings."""
        log = self._worker.task.log
        return log.read_text(encoding='utf-8', errors='replace') if log.exists() else self._output

    def pause(self) -> None:
        """Hold it up at its next update."""
        if self.state == 'training':
            self._send('pause')
            self.state = 'pausing'

    def go_on(self) -> None:
        """Let it go on after a pause."""
        if self.state in ('paused', 'pausing'):
            self._send('go')
            self.state = 'training'

    def stop(self) -> None:
        """Interrupt it at its next update; it saves. One that has not begun ends at once."""
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
        """Bring the attributes up to date."""
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
        """Poll until it is in one of the states, or has ended.

        Raises:
            TimeoutError: that has not come to pass.
        """
        until = time.monotonic() + seconds
        while self.alive and self.state not in states:
            if time.monotonic() > until:
                raise TimeoutError(f'the training is still {self.state} after {seconds:g} s.')
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
        try:
            self._worker.connection.send(message)
        except OSError:  # it has just ended
            pass

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


class Film:
    """An episode of a run's newest agent, filmed in a process of its own.

    Attributes:
        path: of the film, an animated WebP.
        error: why there is none, a sentence.
    """

    def __init__(self, run: Any, env: Mapping[str, Any] | None = None, net_list: list[Any] | None = None) -> None:
        if not run.checkpoints:
            raise ValueError(f'{run.name} has no checkpoint yet: there is no agent to film.')
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


def in_words(line: str) -> str:
    """The last line of an error without the name of its class: ``'ValueError: gamma is 2'`` → ``'gamma is 2'``."""
    name, _, text = line.partition(': ')
    return text if text and name.replace('.', '').isidentifier() else line
