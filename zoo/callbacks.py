"""Callbacks of a training: ``agent.learn(env, 'train', callbacks=[Evaluate(every=5000), …])``.

A callback is any function of a :class:`zoo.common.loops.Training`: it is called whenever a row is logged, and ends the
training by returning False. Those here have more, which yours may have too: an attribute ``every``, the steps between
its calls (at the first update from there on, and at the end), and methods ``begin`` and ``end``.
"""

from __future__ import annotations

import csv
import math
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.common import seeding
from zoo.common.agent import mismatch
from zoo.common.env_wrappers import env_name, rebuilder
from zoo.common.logging import keep_rows
from zoo.common.videos import check_path, film

if TYPE_CHECKING:
    from zoo.common.loops import Training

__all__ = ['Callback', 'Checkpoint', 'Evaluate', 'MLflow', 'Record', 'StopOnPlateau', 'WandB']


class Callback:
    """What a callback may have; a subclass gives what it needs of it.

    Attributes:
        every: steps between calls; None: whenever a row is logged.
    """

    every: int | None = None

    def begin(self, training: Training) -> None:
        """Called before the first step of the training."""

    def __call__(self, training: Training) -> bool | None:
        """Called when it is due; False ends the training."""
        raise NotImplementedError

    def logged(self, training: Training, metrics: Mapping[str, float]) -> None:
        """Called with the metrics of a row that another callback writes by ``training.log``."""

    def end(self, training: Training) -> None:
        """Called after the training, also one that was interrupted or has failed (``training.error``)."""

    def __repr__(self) -> str:
        return f'{type(self).__name__}(every={self.every})'


class Evaluate(Callback):
    """Test the agent in an environment of its own, with its deterministic policy; keep the best one.

    Each test is a row of ``progress.csv`` and of TensorBoard (``test/return``, ``test/length``, ``test/success``), and
    each of its episodes a row of ``evaluations.csv`` in the run directory: ``step,r,l,success``. Testing changes
    nothing of the training.

    Args:
        every: steps between tests.
        episodes: whole episodes of a test.
        env: the environment; None builds one like that of the training, of one copy.
        seed: of the tests. Each has episodes of its own, the same in every training, so that one that is resumed is
            tested as one that was not interrupted; None: unpredictable ones.
        keep_best: save the agent with the highest mean return as ``best`` in the run directory.
        stop_at: end the training when the mean return reaches this; None: never.

    Attributes:
        steps, returns: of each test the steps of the agent and the mean return.
        best: the highest mean return so far, with those of tests that a resumed training makes again; −∞ before the
            first test.

    Raises:
        ValueError: an argument that is not what is said here; at the training's beginning, an environment of other
            spaces.
    """

    def __init__(
        self,
        every: int = 10_000,
        episodes: int = 10,
        env: Env | VectorEnv | None = None,
        seed: int | None = 0,
        keep_best: bool = True,
        stop_at: float | None = None,
    ) -> None:
        self.every = _whole('every', every)
        self.episodes = _whole('episodes', episodes)
        self.env = _environment_of('Evaluate', env)
        seeding.generator(seed, 'test')  # which refuses what is no seed
        self.seed = seed
        self.keep_best = keep_best
        self.stop_at = None if stop_at is None else _number('stop_at', stop_at)
        self.steps: list[int] = []
        self.returns: list[float] = []
        self.best = -math.inf
        self._own: Env | VectorEnv | None = None

    def begin(self, training: Training) -> None:
        """See :class:`Callback`."""
        if self.keep_best and training.run_dir is None:
            raise ValueError(
                'Evaluate keeps the best agent in the run directory, but run_dir=False writes none: give keep_best='
                'False, or let the training write.'
            )
        self.steps, self.returns, self.best = [], [], -math.inf
        if training.run_dir is not None and training.agent.steps:  # resumed or continued: what came before counts
            self._take_up(training.run_dir / 'evaluations.csv', training.agent.steps)
        if self.env is None:
            self._own = _another(training, 'Evaluate', self.seed)
        elif self.env is training.env:
            raise ValueError(
                'Evaluate was given the environment of the training, which is not to be stepped by others.'
            )
        else:
            _check_spaces('Evaluate', training, self.env)

    def __call__(self, training: Training) -> bool | None:
        """See :class:`Callback`."""
        agent: Any = training.agent
        env = self._own if self.env is None else self.env
        seed = None
        if self.seed is not None:
            seed = int(seeding.generator(self.seed, f'test/{len(self.steps)}').integers(2**31))
        result = agent.learn(env, 'test', test_episodes=self.episodes, seed=seed)
        mean = float(np.mean(result.returns))
        metrics = {'test/return': mean, 'test/length': float(np.mean(result.lengths))}
        successes = [success for success in result.successes if success is not None]
        if successes:
            metrics['test/success'] = float(np.mean(successes))
        training.log(metrics)
        self.steps.append(agent.steps)
        self.returns.append(mean)
        if mean > self.best:
            self.best = mean
            if self.keep_best and training.run_dir is not None:
                agent.save(training.run_dir / 'best')
        if training.run_dir is not None:  # the best of what is here is kept, even in a killed run
            self._write(training.run_dir / 'evaluations.csv', agent.steps, result)
        if self.stop_at is not None and mean >= self.stop_at:
            training.warn(
                'Stopped at step %d: the mean return of %d episodes is %g, which stop_at=%g asked for.',
                training.steps,
                self.episodes,
                mean,
                self.stop_at,
            )
            return False
        return None

    def end(self, training: Training) -> None:
        """See :class:`Callback`."""
        if self._own is not None:
            self._own.close()
            self._own = None

    @staticmethod
    def _write(path: Path, step: int, result: Any) -> None:
        new = not path.exists()
        with open(path, 'a', newline='', encoding='utf-8') as file:
            writer = csv.writer(file, lineterminator='\n')
            if new:
                writer.writerow(['step', 'r', 'l', 'success'])
            for total, length, success in zip(result.returns, result.lengths, result.successes, strict=True):
                writer.writerow([step, round(total, 6), length, '' if success is None else int(success)])

    def _take_up(self, path: Path, until: int) -> None:
        """Take what is there up to a step, and take the rest, which will be tested again, out of the file.

        The agent of a later step that was the best one stays that, with its score, until there is a better one.
        """
        if not path.exists():
            return
        keep_rows(path, sys.maxsize)  # the last one may not be whole
        with open(path, newline='', encoding='utf-8') as file:
            rows = [(int(row['step']), float(row['r'])) for row in csv.DictReader(file)]
        means = {step: float(np.mean([r for other, r in rows if other == step])) for step, _ in rows}
        self.steps = [step for step in means if step <= until]
        self.returns = [means[step] for step in self.steps]
        if not self.keep_best or (path.parent / 'best').exists():
            self.best = max(means.values(), default=-math.inf)
        keep_rows(path, until)


class Checkpoint(Callback):
    """Save the agent every so many steps, beside the checkpoints that ``learn`` writes for going on.

    Those of ``learn`` (``checkpoint_every``) begin new episodes, so that a run that goes on from there is the same;
    these here change nothing of the training. ``zoo.load`` takes either.

    Args:
        every: steps between them.
        folder: where to; None: ``snapshots`` in the run directory.
        keep: how many of them, the newest; None: all.
        buffer: with the replay buffer.
    """

    def __init__(
        self,
        every: int = 10_000,
        folder: str | os.PathLike[str] | None = None,
        keep: int | None = None,
        buffer: bool = False,
    ) -> None:
        self.every = _whole('every', every)
        self.folder = None if folder is None else Path(folder).expanduser()
        self.keep = None if keep is None else _whole('keep', keep)
        self.buffer = buffer
        self.paths: list[Path] = []

    def begin(self, training: Training) -> None:
        """See :class:`Callback`."""
        if self.folder is None and training.run_dir is None:
            raise ValueError('Checkpoint saves in the run directory, but run_dir=False writes none: give folder=….')
        self.paths = []
        # Resumed, or continued in the run directory: what came before counts.
        if training.steps or (self.folder is None and training.agent.steps):
            self.paths = sorted(path for path in self._place(training).glob('[0-9]*') if path.name.isdigit())

    def _place(self, training: Training) -> Path:
        if self.folder is not None:
            return self.folder
        assert training.run_dir is not None  # begin has looked
        return training.run_dir / 'snapshots'

    def __call__(self, training: Training) -> None:
        """See :class:`Callback`."""
        folder = self._place(training)
        where = {'steps': training.steps, 'train_steps': training.train_steps}
        path = training.agent.save(
            folder / f'{training.agent.steps:09d}', self.buffer, None if training.done else where
        )
        self.paths = [other for other in self.paths if other != path] + [path]
        while self.keep is not None and len(self.paths) > self.keep:
            shutil.rmtree(self.paths.pop(0))


class StopOnPlateau(Callback):
    """End the training when the mean return of the last episodes has not risen for so many steps.

    A training that is resumed is judged anew, from the episodes that it plays then.

    Args:
        patience: steps without a rise.
        min_rise: how much higher than the highest mean so far counts as a rise.
        window: episodes that the mean is taken of; nothing is judged before there are as many.
        every: steps between looks; None: whenever a row is logged.
    """

    def __init__(self, patience: int, min_rise: float = 0.0, window: int = 100, every: int | None = None) -> None:
        self.patience = _whole('patience', patience)
        self.min_rise = _number('min_rise', min_rise)
        self.window = _whole('window', window)
        self.every = None if every is None else _whole('every', every)
        self.best, self.best_step = -math.inf, 0
        self._earlier = 0

    def begin(self, training: Training) -> None:
        """See :class:`Callback`."""
        self.best, self.best_step = -math.inf, training.steps
        self._earlier = len(training.returns)

    def __call__(self, training: Training) -> bool | None:
        """See :class:`Callback`."""
        if len(training.returns) - self._earlier < self.window:
            return None
        mean = float(np.mean(training.returns[-self.window :]))
        if self.best == -math.inf or mean > self.best + self.min_rise:
            self.best, self.best_step = mean, training.steps
            return None
        if training.steps - self.best_step < self.patience:
            return None
        training.warn(
            'Stopped at step %d: the mean return of %d episodes has not risen above %g since step %d.',
            training.steps,
            self.window,
            self.best + self.min_rise,
            self.best_step,
        )
        return False


class Record(Callback):
    """Film an episode of the agent every so many steps, with its deterministic policy.

    Args:
        every: steps between them.
        folder: where to; None: ``videos`` in the run directory.
        kind: ``'gif'``, ``'webp'``, ``'png'`` (an animated one) or, with ffmpeg (``zoo-rl[video]``), ``'mp4'``.
        env: an environment with ``render_mode='rgb_array'``; None builds one like that of the training.
        seed: of the environment, the same in every film; None: other episodes each time.
        max_steps: steps of an episode that are shown.
    """

    def __init__(
        self,
        every: int = 50_000,
        folder: str | os.PathLike[str] | None = None,
        kind: str = 'gif',
        env: Env | None = None,
        seed: int | None = 0,
        max_steps: int = 1000,
    ) -> None:
        self.every = _whole('every', every)
        self.folder = None if folder is None else Path(folder).expanduser()
        self.kind = kind
        self.env = _environment_of('Record', env)
        self.seed = seed
        self.max_steps = _whole('max_steps', max_steps)
        check_path(f'video.{kind}')
        self._own: Any = None

    def begin(self, training: Training) -> None:
        """See :class:`Callback`."""
        if self.folder is None and training.run_dir is None:
            raise ValueError('Record writes into the run directory, but run_dir=False writes none: give folder=….')
        if self.env is None:
            self._own = _another(training, 'Record', self.seed, render_mode='rgb_array')
        elif self.env is training.env:
            raise ValueError('Record was given the environment of the training, which only that steps.')
        else:
            _check_spaces('Record', training, self.env)

    def __call__(self, training: Training) -> None:
        """See :class:`Callback`."""
        folder = self.folder
        if folder is None:
            assert training.run_dir is not None  # begin has looked
            folder = training.run_dir / 'videos'
        path = folder / f'{training.agent.steps:09d}.{self.kind}'
        env = self._own if self.env is None else self.env
        film(training.agent, env, path, max_steps=self.max_steps, seed=self.seed)

    def end(self, training: Training) -> None:
        """See :class:`Callback`."""
        if self._own is not None:
            self._own.close()
            self._own = None


class WandB(Callback):
    """Send the rows of the log to Weights & Biases.

    Args:
        project: its name there.
        **options: of ``wandb.init``, such as ``mode='offline'``, ``group='…'``.

    Raises:
        ImportError: wandb is not installed.
    """

    def __init__(self, project: str = 'zoo', **options: Any) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ImportError(f'the callback WandB needs a package: pip install wandb ({error}).') from error
        self.options = {'project': project, **options}
        self._wandb: Any = wandb
        self._run: Any = None

    def begin(self, training: Training) -> None:
        """See :class:`Callback`."""
        known = {'config': _settings(training), 'name': _title(training)}
        if training.run_dir is not None:
            known['dir'] = str(training.run_dir)
        self._run = self._wandb.init(**{**known, **self.options})

    def __call__(self, training: Training) -> None:
        """See :class:`Callback`."""
        self.logged(training, training.metrics)

    def logged(self, training: Training, metrics: Mapping[str, float]) -> None:
        """See :class:`Callback`."""
        self._run.log(dict(metrics), step=training.agent.steps)

    def end(self, training: Training) -> None:
        """See :class:`Callback`."""
        self._run.finish(exit_code=0 if training.error is None else 1)


class MLflow(Callback):
    """Send the rows of the log to MLflow.

    Args:
        experiment: its name there; None: the one that is active.
        tracking_uri: where to; None: as MLflow is set.

    Raises:
        ImportError: mlflow is not installed.
    """

    def __init__(self, experiment: str | None = None, tracking_uri: str | None = None) -> None:
        try:
            import mlflow
        except ImportError as error:
            raise ImportError(f'the callback MLflow needs a package: pip install mlflow ({error}).') from error
        self.experiment = experiment
        self.tracking_uri = tracking_uri
        self._mlflow: Any = mlflow

    def begin(self, training: Training) -> None:
        """See :class:`Callback`."""
        if self.tracking_uri is not None:
            self._mlflow.set_tracking_uri(self.tracking_uri)
        if self.experiment is not None:
            self._mlflow.set_experiment(self.experiment)
        self._mlflow.start_run(run_name=_title(training))
        self._mlflow.log_params({name: str(value)[:_MLFLOW_WIDTH] for name, value in _settings(training).items()})

    def __call__(self, training: Training) -> None:
        """See :class:`Callback`."""
        self.logged(training, training.metrics)

    def logged(self, training: Training, metrics: Mapping[str, float]) -> None:
        """See :class:`Callback`."""
        self._mlflow.log_metrics(dict(metrics), step=training.agent.steps)

    def end(self, training: Training) -> None:
        """See :class:`Callback`."""
        statuses = {True: 'FINISHED', False: 'KILLED' if isinstance(training.error, KeyboardInterrupt) else 'FAILED'}
        self._mlflow.end_run(statuses[training.error is None])


#: Characters of a parameter that MLflow takes from every storage.
_MLFLOW_WIDTH = 500


def _settings(training: Training) -> dict[str, Any]:
    """What was trained, as plain data by name."""
    config: Mapping[str, Any] = training.agent.config()
    found = {
        name: value for name, value in config.items() if name not in ('params', 'observation_space', 'action_space')
    }
    return {**found, **config['params'], 'environment': _environment(training), 'train_steps': training.train_steps}


def _environment(training: Training) -> str:
    return '' if training.env is None else env_name(training.env)


def _title(training: Training) -> str:
    if training.run_dir is not None:
        return training.run_dir.name
    return f'{type(training.agent).__name__} {_environment(training)}'


def _another(training: Training, who: str, seed: int | None, **changes: Any) -> Any:
    """An environment like that of the training, of one copy.

    Raises:
        ValueError: it cannot be built again.
    """
    rebuild = None if training.env is None else rebuilder(training.env)
    if rebuild is None:
        raise ValueError(
            f'{who} needs an environment of its own, but build_env did not make that of the training from a name, a '
            f'class or a function, so that it could make another one: give {who}(env=…).'
        )
    if getattr(training.env, 'render_mode', None) == 'human':  # one window is enough
        changes = {'render_mode': None, **changes}
    return rebuild(seed=seed, nenv=1, **changes)


def _environment_of(who: str, env: Any) -> Any:
    if env is not None and not isinstance(env, Env | VectorEnv):
        raise ValueError(
            f'env of {who} is {env!r}: give an environment from build_env, or None for one as in training.'
        )
    return env


def _check_spaces(who: str, training: Training, env: Any) -> None:
    wrong = mismatch(training.agent, env)
    if wrong is not None:
        raise ValueError(f"{who}'s environment is another than the agent's: its {wrong}.")


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or math.isnan(value):
        raise ValueError(f'{name} is {value!r}: give a number.')
    return float(value)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f'{name} is {value!r}: give a whole number of at least 1.')
    return int(value)
