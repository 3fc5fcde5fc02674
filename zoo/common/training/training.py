"""What all training loops share: counters, logs, checkpoints, callbacks."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common import plots
from zoo.common.envs.about import about
from zoo.common.envs.goals import Goals
from zoo.common.records import Episode, TrainingResult
from zoo.common.replay.replay import Replay
from zoo.common.rollouts.claims import claims
from zoo.common.tools.errors import NotFinite, UserError
from zoo.common.tools.identity import name_of
from zoo.common.training.agent import Agent, Loop
from zoo.common.training.average import Average
from zoo.common.training.experience import Experience
from zoo.common.training.experience_of import experience_of
from zoo.common.training.logger import Logger
from zoo.common.training.monitor import Monitor

log = logging.getLogger('zoo')

#: Logs show the mean return of this many last episodes.
WINDOW = 100
#: Steps of each copy without the end of an episode after which a warning says so. A game of Atari has up to 27,000.
LONG_EPISODE = 30_000


class Training:
    """One call of ``learn(env, 'train')``, which callbacks are given.

    A callback is a function of the training, called whenever a row is logged. It ends the training by returning False.
    With an attribute ``every`` it is called at the first update after each multiple of so many steps instead, and at
    the end. Its optional methods ``begin(training)`` and ``end(training)`` are called before the first step and after
    the last one, even after an error; ``logged(training, metrics)`` for each row that a callback writes.

    Attributes:
        agent, run_dir, checkpoint_every, callbacks, learn_params: as given.
        steps: environment steps of this call so far, summed over copies, or updates on a dataset; a resumed call goes
            on from the steps of the interrupted one. ``train_steps`` is the end.
        returns, episode_steps: the return of each episode that ended in this call, and the step count at its end, as
            ``array.array``.
        losses: the last metrics of ``update``.
        metrics: the last row of the log, by name.
        env: the training environment, or with roles an environment like it. A callback tests in another one. None
            where a dataset is learned from and no environment was given.
        replay: the replay buffer, where there is one in this process.
        interval: the fewest steps that were asked for between rows, checkpoints or calls of a callback.
        error: the exception that ended the training, for the ``end`` of a callback; None without one.

    Args:
        agent, env, train_steps, render, plot_func, callbacks: as for ``learn``.
        learn_params: the parameters of this call of ``learn``, with its seed, as plain data.
        run_dir: where to write; None writes nothing.
        env_seed: of the first episodes.
        log_every: steps between rows; None makes some 200 rows in all.
        checkpoint_every: steps between checkpoints; None makes ten at most, and none before 10,000 steps.
            Only ``exact_resume`` lets a checkpoint change the training.
        checkpoint_buffer, exact_resume, verbose: as for ``learn``.
        average: the mean of the weights that the agent has outside its updates; None: there is none.
        start: the steps that a resumed call has behind it; ``train_steps`` includes them.
        experience: gives the experience; None: ``env`` does, which otherwise only gives its name.
        name: of the environment, for titles; None: its own.
        goals: of the environment, for the loop's parameter ``her``.
    """

    def __init__(
        self,
        agent: Agent,
        env: Env | VectorEnv | None,
        train_steps: int,
        *,
        render: bool = False,
        plot_func: Callable[[Sequence[float]], Any] | None = None,
        callbacks: Iterable[Callable[[Training], bool | None]] = (),
        learn_params: Mapping[str, Any] | None = None,
        run_dir: Path | None = None,
        env_seed: int | None = None,
        log_every: int | None = None,
        checkpoint_every: int | None = None,
        checkpoint_buffer: bool = False,
        exact_resume: bool = False,
        average: Average | None = None,
        verbose: int = 1,
        start: int = 0,
        experience: Experience | None = None,
        goals: Goals | None = None,
        name: str | None = None,
    ) -> None:
        self.agent = agent
        self.goals = goals
        self.train_steps = train_steps
        self.learn_params = dict(learn_params or {})
        self.env = env
        self._stepped = env if experience is None else None
        if experience is None:
            assert env is not None
            experience = experience_of(agent, env, render, start)
        self.experience = experience
        self.steps = start
        self.run_dir = run_dir
        # Compact arrays: they grow as long as the training lasts.
        self.returns = array('d')
        self.episode_steps = array('q')
        self.losses: dict[str, float] = {}
        self.metrics: dict[str, float] = {}
        self.error: BaseException | None = None
        self.replay: Replay | None = None
        self._start = start
        self._recent: deque[Episode] = deque(maxlen=WINDOW)
        self._tests: list[tuple[int, float]] = []
        self._told_of_ends = False
        self._plot_func = plot_func
        self.callbacks = tuple(callbacks)
        # Callbacks with `every`: the step at which each is due, and the step at which it was called last.
        self._timed = [callback for callback in self.callbacks if getattr(callback, 'every', None) is not None]
        self._due = [self._after(start, callback) for callback in self._timed]
        self._called = [start for _ in self._timed]
        self._next_due = min(self._due, default=math.inf)
        self._env_seed = env_seed
        self._log_every = log_every or max(1, train_steps // 200)
        asked: list[int] = [getattr(callback, 'every') for callback in self._timed]  # noqa: B009
        self.interval = min([*asked, *(every for every in (log_every, checkpoint_every) if every)], default=train_steps)
        # At least 10,000: shorter trainings take seconds.
        self.checkpoint_every = checkpoint_every or max(10_000, train_steps // 10)
        self.checkpoint_buffer = checkpoint_buffer or exact_resume
        self._exact_resume = exact_resume
        self._average = Average(agent, 0.0, train_steps, start) if average is None else average
        self._next_log = start + self._log_every
        self._next_checkpoint = start + self.checkpoint_every
        self._last_checkpoint: Path | None = None
        self._stopped = False
        name = name or ('' if env is None else about(env).name)
        self._title = f'{type(agent).__name__} {name}'.strip()
        resumed_at = agent.steps if start else None
        unit = 'steps' if experience.num_envs else 'updates'
        self._logger = Logger(run_dir, train_steps, verbose, self._title, start, resumed_at, unit, self._measured)
        self._monitor: Monitor | None = None
        if run_dir is not None:
            self._monitor = Monitor(run_dir / 'monitor.csv', name, resumed_at)
            if start:
                self._recall(self._monitor.earlier)
        self._earlier = len(self.returns)
        self._began = self._log_time = time.perf_counter()
        self._log_steps = start

    @property
    def progress(self) -> float:
        """The fraction of the training that is done, in [0, 1]."""
        return min(1.0, self.steps / self.train_steps)

    @property
    def has_buffer(self) -> bool:
        """Whether this process has a replay buffer of its own, or will have one."""
        of_steps = self.agent.loop.experience == 'steps' and bool(self.experience.num_envs)
        return of_steps and getattr(self.experience, 'replay', None) is None

    @property
    def saves_buffer(self) -> bool:
        """Whether a checkpoint for resuming, or a callback, saves the replay buffer."""
        return self.checkpoint_buffer or any(getattr(callback, 'saves_buffer', False) for callback in self.callbacks)

    @property
    def averaged_every(self) -> int | None:
        """How many steps lie between two samples for the mean of the weights; None: there is no mean."""
        return self._average.every

    @property
    def steps_to_next(self) -> int:
        """How many steps may be taken before the log, a checkpoint, a callback or the mean of the weights is due."""
        due = [self.train_steps, self._next_log, self._next_checkpoint, self._next_due]
        if (every := self._average.every) is not None:
            due.append(self.steps - self.steps % every + every)
        return max(1, int(min(due)) - self.steps)

    @property
    def seconds(self) -> float:
        """Seconds that it has taken, without what callbacks said that they had :meth:`waited`."""
        return time.perf_counter() - self._began

    @property
    def done(self) -> bool:
        """Whether all steps are taken, or a callback has asked to stop."""
        return self._stopped or self.steps >= self.train_steps

    def run(self, loop: Loop, **params: Any) -> TrainingResult:
        """Run ``loop`` to its end, and close everything even after an error."""
        with claims.training_in(self._stepped), contextlib.ExitStack() as ends:
            try:
                for callback in self.callbacks:
                    if hasattr(callback, 'begin'):
                        callback.begin(self)
                    if hasattr(callback, 'end'):
                        ends.callback(self._end, callback)
            except BaseException as error:
                self.error = error
                self._close()
                raise
            return self._run(loop, params)

    def _end(self, callback: Any) -> None:
        """Call a callback's ``end``. Its failure must not hide the error that ended the training."""
        try:
            callback.end(self)
        except Exception as error:
            if self.error is None:
                raise
            log.error('The end of the callback %r failed too: %r', callback, error)

    def _run(self, loop: Loop, params: dict[str, Any]) -> TrainingResult:
        try:
            # A resumed call begins with new episodes: no checkpoint holds the state of an environment.
            if self._start and not self._exact_resume:
                self._logger.clear()
                played = ', with new episodes' if self.experience.num_envs else ''
                log.info('Resumed at step %d of %d%s.', self.steps, self.train_steps, played)
            self._logger.begin()
            if self.experience.num_envs:
                self.experience.restart(self._env_seed if not self._start else self.agent.draw_seed())
            loop.run(self, self.experience, **params)
            self._average.show()
            if self.steps > self._log_steps:
                self._log()
            self._logger.finish()
            self._call_timed(at_end=True)
            self._save(final=True)
        except KeyboardInterrupt as error:
            self.error = error
            self._rescue()
            saved = 'nothing is saved' if self._last_checkpoint is None else f'saved in {self._last_checkpoint}'
            where = f'at step {self.steps:,} of {self.train_steps:,}; {saved}'
            self.warn('Interrupted %s.', where)
            raise KeyboardInterrupt(f'training was interrupted {where}') from None  # the traceback's last line
        except Exception as error:
            self.error = error
            self._rescue()
            kept = self._last_checkpoint or 'none was written'
            if isinstance(error, FloatingPointError):
                raise NotFinite(f'{error} The last good checkpoint: {kept}.') from error
            if self.steps > self._start or not isinstance(error, UserError):  # else nothing is lost
                told = 'Training failed at step %d of %d. The last good checkpoint: %s.'
                log.error(told, self.steps, self.train_steps, kept)
            raise
        finally:
            self._average.show()
            self._close()
            self._attempt('curve.png', self._draw)
        return TrainingResult(
            steps=self.steps - self._start,
            episodes=len(self.returns) - self._earlier,
            returns=self.returns[self._earlier :].tolist(),
            losses=self.losses,
            wall_time=self.seconds,
            run_dir=self.run_dir,
            episode_steps=self.episode_steps[self._earlier :].tolist(),
        )

    def _recall(self, rows: Iterable[tuple[float, int, int]]) -> None:
        """Take over the episodes before the checkpoint, so that the curve and the means go on."""
        for episode_return, length, step in rows:
            self._recent.append(Episode(episode_return, length, None))
            self.returns.append(episode_return)
            self.episode_steps.append(step - self.agent.steps + self.steps)

    def stepped(self, count: int, episodes: Sequence[Episode]) -> None:
        """Count environment steps, and the episodes that ended in them. The experience calls this after steps."""
        self._count(count)
        for episode in episodes:
            self._recent.append(episode)
            self.returns.append(episode.episode_return)
            self.episode_steps.append(self.steps)
            if self._monitor is not None:
                self._monitor.write(episode.episode_return, episode.length, self.agent.steps)
        if (
            not (self._recent or self._told_of_ends)
            and self.steps - self._start >= LONG_EPISODE * self.experience.num_envs
        ):
            self._told_of_ends = True
            self.warn(
                'No episode has ended in %d steps, so there is no return to show: if episodes never end, give them a '
                'time limit, build_env(…, max_episode_steps=…).',
                self.steps - self._start,
            )

    def learned(self, updates: int) -> None:
        """Count gradient updates on a dataset, the steps of a training without an environment."""
        self.agent.data_steps += updates
        self._count(updates)

    def _count(self, steps: int) -> None:
        self.steps += steps
        self.agent.steps += steps
        self._logger.advance(steps)

    def log(self, metrics: Mapping[str, float]) -> None:
        """Write a callback's metrics, such as ``{'test/return': 195.0}``, to ``progress.csv`` and TensorBoard."""
        self._logger.log(self.agent.steps, metrics)
        if 'test/return' in metrics:
            self._tests.append((self.steps, metrics['test/return']))
        for callback in self.callbacks:
            if hasattr(callback, 'logged'):
                callback.logged(self, metrics)

    def waited(self, seconds: float) -> None:
        """Leave seconds that a callback has taken out of the training's times."""
        self._began += seconds
        self._log_time += seconds
        self._logger.waited(seconds)
        if self._monitor is not None:
            self._monitor.waited(seconds)

    def say(self, text: str) -> None:
        """Print a line to standard error, above a progress bar; nothing with ``verbose=0``."""
        self._logger.say(text)

    def warn(self, message: str, *values: Any) -> None:
        """Log a warning, on its own line beside a progress bar."""
        self._logger.clear()
        log.warning(message, *values)

    def updated(self, metrics: dict[str, float] | None) -> None:
        """Log and save when due, with the metrics of the last update or None. The loops call this between updates.

        Raises:
            FloatingPointError: a loss is NaN or infinite.
        """
        if metrics is not None:
            self.losses = metrics
            for name, value in metrics.items():
                if not math.isfinite(value):
                    raise NotFinite(
                        f'step {self.steps}: the loss {name!r} became {value}: a smaller learning rate or '
                        'normalized observations and rewards may help.'
                    )
            self.agent.progress = self.progress
        self._average.stepped(self.steps)
        if self.steps >= self._next_log:
            self._next_log = self.steps + self._log_every
            self._log()
        if self.steps >= self._next_due:
            self._call_timed()
        if self.steps >= self._next_checkpoint and not self.done:
            self._next_checkpoint = self.steps + self.checkpoint_every
            self._save()
            # New episodes, so that a run resumed from here goes on like this one. Also without a run directory, so
            # that writing changes nothing.
            if self._exact_resume and self.experience.num_envs:
                self.experience.restart(self.agent.draw_seed())
                if self.replay is not None:
                    self.replay.cut()
        self._stopped = self.experience.least(not self._stopped) == 0

    def _rescue(self) -> None:
        """Save the agent after a failure, if its weights are finite and it has taken a step."""
        good = all(map(math.isfinite, self.losses.values())) and self.agent.weights_are_finite()
        if self.run_dir is None or self.steps == self._start or not good or self._last_checkpoint == self._checkpoint():
            return
        try:
            self._save(final=True)
        except Exception as error:
            log.error('The agent could not be saved: %s', error)

    def _log(self) -> None:
        now = time.perf_counter()
        rate = (self.steps - self._log_steps) / max(now - self._log_time, 1e-9)
        self._log_time, self._log_steps = now, self.steps
        metrics = self._measured()
        metrics |= {f'schedule/{name}': value for name, value in self.agent.scheduled_values().items()}
        metrics['speed/steps_per_second'] = rate
        self.metrics = metrics | self.experience.measured()
        self._logger.log(self.agent.steps, self.metrics)
        if self._monitor is not None:
            self._monitor.flush()
        if self._plot_func is not None:
            self._plot_func(self.returns)
        for callback in self.callbacks:
            if getattr(callback, 'every', None) is None:
                self._call(callback)

    def _measured(self) -> dict[str, float]:
        """Return the last losses, and the means of the last episodes."""
        metrics = {f'loss/{name}': value for name, value in self.losses.items()}
        if self._recent:
            metrics['episode/return'] = float(np.mean([episode.episode_return for episode in self._recent]))
            metrics['episode/length'] = float(np.mean([episode.length for episode in self._recent]))
            successes = [episode.success for episode in self._recent if episode.success is not None]
            if successes:
                metrics['episode/success'] = float(np.mean(successes))
        if self.experience.num_envs:
            metrics['episode/count'] = len(self.returns)
        return metrics

    def _call(self, callback: Callable[[Training], bool | None]) -> None:
        with self._average.shown():
            answer = callback(self)
        if not str(callback.__module__).startswith('zoo.'):
            self.agent.forward.refresh()  # it may have set weights
        if isinstance(answer, bool | np.bool_) and not answer:
            self._stopped = True
            if not str(callback.__module__).startswith('zoo.'):  # zoo's own say why
                self.say(f'{name_of(callback)} has ended the training at step {self.steps:,}.')

    def _call_timed(self, at_end: bool = False) -> None:
        """Call the callbacks that are due, and at the end those that were not called at this step."""
        for i, callback in enumerate(self._timed):
            if self.steps >= self._due[i] or (at_end and self.steps > self._called[i]):
                self._called[i], self._due[i] = self.steps, self._after(self.steps, callback)
                self._call(callback)
        self._next_due = min(self._due, default=math.inf)

    @staticmethod
    def _after(steps: int, callback: Any) -> int:
        """Return the next multiple of ``every``, so that one late call does not delay the next one."""
        return int((steps // callback.every + 1) * callback.every)

    def _close(self) -> None:
        """Close the files. All rows are written before, so that a failure here loses nothing."""
        self._attempt('progress.csv', self._logger.close)
        if self._monitor is not None:
            self._attempt('monitor.csv', self._monitor.close)

    @staticmethod
    def _attempt(file: str, finish: Callable[[], None]) -> None:
        """Log what fails, such as the picture on a full disk: it must not hide the error that ended the training."""
        try:
            finish()
        except Exception as error:
            log.error('%s could not be written: %s', file, error)

    def _checkpoint(self) -> Path:
        """Return where the agent is saved now."""
        assert self.run_dir is not None
        return self.run_dir / 'checkpoints' / f'{self.agent.steps:09d}'  # its life's steps only grow

    def _save(self, final: bool = False) -> None:
        if self.run_dir is None:
            return
        if not self.agent.weights_are_finite():  # the loss would show it one update later
            raise NotFinite(f'step {self.steps}: a weight became NaN or infinite: lower the learning rate.')
        loop_state = None
        if not (final and self.done):
            loop_state = {'steps': self.steps, 'train_steps': self.train_steps, 'scheduled': not final}
        path = self._checkpoint()
        with self._average.shown():
            self.agent.save(path, buffer=self.checkpoint_buffer, loop_state=loop_state)
        self._last_checkpoint = path

    def _draw(self) -> None:
        if self.run_dir is not None:
            tests = [step for step, _ in self._tests], [mean for _, mean in self._tests]
            shown = (self.episode_steps, self.returns) if self.experience.num_envs else tests
            curves = {type(self.agent).__name__: [shown]}
            plots.learning_curve(self.run_dir / 'curve.png', curves, self._title)
