"""Callbacks of a training: ``agent.learn(env, 'train', callbacks=[Evaluate(every=5000), …])``.

A callback is any function of a :class:`zoo.common.training.training.Training`: it is called whenever a row is logged,
and ends the
training by returning False. Those here have more, which yours may have too: an attribute ``every``, the steps between
its calls (at the first update from there on, and at the end), and methods ``begin`` and ``end``.
"""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Env
from gymnasium.vector import VectorEnv

from zoo.callbacks.base import Callback, another_environment, check_number, check_spaces, check_whole, environment_of
from zoo.common.tools import seeding
from zoo.common.training.logger import keep_rows

if TYPE_CHECKING:
    from zoo.common.training.training import Training


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
        self.every = check_whole('every', every)
        self.episodes = check_whole('episodes', episodes)
        self.env = environment_of('Evaluate', env)
        seeding.generator(seed, 'test')  # which refuses what is no seed
        self.seed = seed
        self.keep_best = keep_best
        self.stop_at = None if stop_at is None else check_number('stop_at', stop_at)
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
            self._own = another_environment(training, 'Evaluate', self.seed)
        elif self.env is training.env:
            raise ValueError(
                'Evaluate was given the environment of the training, which is not to be stepped by others.'
            )
        else:
            check_spaces('Evaluate', training, self.env)

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
