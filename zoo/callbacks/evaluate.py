"""Tests while an agent trains: ``agent.learn(env, 'train', callbacks=[Evaluate(every=5000)])``."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.callbacks.base import WithEnvironment
from zoo.common.records import TestResult
from zoo.common.tools import seeding
from zoo.common.tools.checks import number, whole
from zoo.common.tools.errors import InvalidValue
from zoo.common.training.logger import keep_rows

if TYPE_CHECKING:
    from zoo.common.training.training import Training


class Evaluate(WithEnvironment):
    """Test the agent with its deterministic policy in another environment, and keep the best agent.

    Each test is a row of ``progress.csv`` and of TensorBoard (``test/return``, ``test/length``, ``test/success``). Each
    episode of a test is a row of ``evaluations.csv`` in the run directory: ``step,r,l,success``. Testing does not
    change the training. The result is printed, unless ``learn`` has ``verbose=0``.

    Args:
        every: environment steps between tests.
        episodes: whole episodes of a test.
        env: the environment; None builds one like the training's, of one copy.
        seed: of the tests. Each test has its own episodes, the same in every training, resumed or not. None:
            unpredictable episodes.
        keep_best: save the agent with the highest mean return as ``best`` in the run directory.
        stop_at: end the training when the mean return reaches this; None: never.

    Attributes:
        steps, returns: for each test, the steps of the agent and the mean return.
        best: the highest mean return so far, also of tests that a resumed training repeats; −∞ before the first test.

    Raises:
        ValueError: an argument is refused; at the beginning of the training, an environment with other spaces.
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
        super().__init__(env, seed)
        self.every = whole('every', every)
        self.episodes = whole('episodes', episodes)
        seeding.generator(seed, 'test')  # which refuses what is no seed
        self.keep_best = keep_best
        self.stop_at = None if stop_at is None else number('stop_at', stop_at)
        self.steers = stop_at is not None
        self.steps: list[int] = []
        self.returns: list[float] = []
        self.best = -math.inf

    def begin(self, training: Training) -> None:
        if self.keep_best and training.run_dir is None:
            told = 'Evaluate keeps the best agent in the run directory, but run_dir=False writes none'
            raise InvalidValue(f'{told}: give keep_best=False, or let the training write.')
        check_alone(self, training)
        self.recall(training)
        super().begin(training)

    def recall(self, training: Training) -> None:
        """Begin with the tests before, if the training is resumed or continued in its run directory."""
        self.steps, self.returns, self.best = [], [], -math.inf
        if training.run_dir is not None and training.agent.steps:
            self._take_up(training.run_dir / 'evaluations.csv', training.agent.steps)

    def __call__(self, training: Training) -> bool | None:
        with seeding.global_kept():
            result = training.agent.learn(
                self.playing_env, 'test', test_episodes=self.episodes, seed=self.seed_of(f'test/{len(self.steps)}')
            )
        return self.take(training, cast(TestResult, result))

    def seed_of(self, stream: str) -> int | None:
        """Return the seed of a test's episodes, another one for each name."""
        return None if self.seed is None else int(seeding.generator(self.seed, stream).integers(2**31))

    def take(self, training: Training, result: TestResult) -> bool | None:
        """Log a test, and keep the agent if it is the best so far; False ends the training."""
        agent = training.agent
        mean = float(np.mean(result.returns))
        metrics = {'test/return': mean, 'test/length': float(np.mean(result.lengths))}
        successes = [success for success in result.successes if success is not None]
        if successes:
            metrics['test/success'] = float(np.mean(successes))
        training.log(metrics)
        score = score_of(agent.steps, result)
        training.say(f'Test at step {shown(score)}, lowest {score["min"]:.6g}, in {score["episodes"]:.0f} episodes')
        self.steps.append(agent.steps)
        self.returns.append(mean)
        if self.better(mean):
            self.best = mean
            if self.keep_best and training.run_dir is not None:
                agent.save(training.run_dir / 'best')
        if training.run_dir is not None:  # after the agent is saved, so that a killed run has the best of this file
            self._write(training.run_dir / 'evaluations.csv', agent.steps, result)
        if self.stop_at is not None and mean >= self.stop_at:
            told = 'Stopped at step %d: the mean return of %d episodes is %g, which stop_at=%g asked for.'
            training.warn(told, training.steps, len(result.returns), mean, self.stop_at)
            return False
        return None

    def better(self, mean: float) -> bool:
        """Whether an agent with this mean return is kept as the best."""
        return mean > self.best

    @staticmethod
    def _write(path: Path, step: int, result: TestResult) -> None:
        new = not path.exists()
        with open(path, 'a', newline='', encoding='utf-8') as file:
            writer = csv.writer(file, lineterminator='\n')
            if new:
                writer.writerow(['step', 'r', 'l', 'success'])
            for total, length, success in zip(result.returns, result.lengths, result.successes, strict=True):
                writer.writerow([step, round(total, 6), length, '' if success is None else int(success)])

    def _take_up(self, path: Path, until: int) -> None:
        """Read the tests up to a step, and remove the later ones from the file: they will be repeated.

        If the best agent so far is of a later step, it stays the best, with its score, until there is a better one.
        """
        if not path.exists():
            return
        keep_rows(path, sys.maxsize)  # the last row may not be whole
        with open(path, newline='', encoding='utf-8') as file:
            rows = [(int(row['step']), float(row['r'])) for row in csv.DictReader(file)]
        means = {step: float(np.mean([r for other, r in rows if other == step])) for step, _ in rows}
        self.steps = [step for step in means if step <= until]
        self.returns = [means[step] for step in self.steps]
        if not self.keep_best or (path.parent / 'best').exists():
            self.best = max(means.values(), default=-math.inf)
        keep_rows(path, until)


def check_alone(own: Evaluate, training: Training) -> None:
    """Refuse a second callback that tests: both would write the same file, columns and best agent."""
    first = next(callback for callback in training.callbacks if isinstance(callback, Evaluate))
    if first is not own:
        names = f'{type(first).__name__} and {type(own).__name__}'
        names = f'two callbacks {type(own).__name__}' if type(first) is type(own) else names
        told = f'{names} would both write evaluations.csv, test/return and the best agent'
        raise InvalidValue(f'{told}: give one of them, and test in a second environment with a callback of your own.')


def score_of(step: int, result: TestResult) -> dict[str, float]:
    """Return step, mean, standard deviation, lowest return and number of episodes of a test."""
    returns = np.asarray(result.returns, np.float64)
    numbers = {'mean': returns.mean(), 'std': returns.std(), 'min': returns.min()}
    return {'step': step, **{name: float(value) for name, value in numbers.items()}, 'episodes': returns.size}


def shown(score: Mapping[str, float]) -> str:
    """Return step, mean and standard deviation of a test: ``'4,096: 40.3 ± 4.05'``."""
    return f'{score["step"]:,}: {score["mean"]:.6g} ± {score["std"]:.3g}'
