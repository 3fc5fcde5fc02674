"""Checkpoints at regular intervals, and an end to a training whose return no longer rises."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zoo.callbacks.base import Callback
from zoo.common.tools.checks import number, whole
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.files import as_path

if TYPE_CHECKING:
    from zoo.common.training.training import Training


class Checkpoint(Callback):
    """Save the agent at regular intervals, besides the checkpoints that ``learn`` writes for resuming.

    No checkpoint of this callback changes the training, also with ``exact_resume=True``. So a run that resumes from one
    begins new episodes, which an uninterrupted run does not. ``zoo.load`` loads both.

    Args:
        every: environment steps between checkpoints.
        folder: where they are written; None: ``snapshots`` in the run directory.
        keep: keep only so many, the newest; None: all.
        buffer: save the replay buffer too.

    Attributes:
        paths: the checkpoints that are kept, the oldest first.
    """

    steers = False

    def __init__(
        self,
        every: int = 10_000,
        folder: str | os.PathLike[str] | None = None,
        keep: int | None = None,
        buffer: bool = False,
    ) -> None:
        self.every = whole('every', every)
        self.folder = None if folder is None else as_path(folder, 'folder')
        self.keep = None if keep is None else whole('keep', keep)
        self.saves_buffer = buffer
        self.paths: list[Path] = []

    def begin(self, training: Training) -> None:
        if self.folder is None and training.run_dir is None:
            raise InvalidValue('Checkpoint saves in the run directory, but run_dir=False writes none: give folder=….')
        if self.saves_buffer and not training.has_buffer:
            told = 'Checkpoint(buffer=True) saves the replay buffer, and there is none in this process'
            raise InvalidValue(f'{told}: leave buffer out.')
        self.paths = []
        # A resumed training, or one that continues in its run directory, counts the checkpoints before it.
        if training.steps or (self.folder is None and training.agent.steps):
            self.paths = sorted(path for path in self._place(training).glob('[0-9]*') if path.name.isdigit())

    def _place(self, training: Training) -> Path:
        if self.folder is not None:
            return self.folder
        assert training.run_dir is not None  # begin has looked
        return training.run_dir / 'snapshots'

    def __call__(self, training: Training) -> None:
        where = {'steps': training.steps, 'train_steps': training.train_steps, 'scheduled': False}
        name = f'{training.agent.steps:09d}'
        path = training.agent.save(self._place(training) / name, self.saves_buffer, None if training.done else where)
        self.paths = [other for other in self.paths if other != path] + [path]
        while self.keep is not None and len(self.paths) > self.keep:
            shutil.rmtree(self.paths.pop(0))


class StopOnPlateau(Callback):
    """End the training when the mean return of the last episodes has not risen for ``patience`` steps.

    A resumed training is judged only by the episodes after the interruption.

    Args:
        patience: environment steps without a rise.
        min_rise: the mean has risen when it exceeds the highest one so far by more than this.
        window: number of episodes in the mean; earlier, nothing is judged.
        every: environment steps between checks; None: whenever a row is logged.

    Attributes:
        best, best_step: the highest mean so far, and the step at which it was reached.
    """

    def __init__(self, patience: int, min_rise: float = 0.0, window: int = 100, every: int | None = None) -> None:
        self.patience = whole('patience', patience)
        self.min_rise = number('min_rise', min_rise)
        self.window = whole('window', window)
        self.every = None if every is None else whole('every', every)
        self.best, self.best_step = -math.inf, 0
        self._earlier = 0

    def begin(self, training: Training) -> None:
        if not training.experience.num_envs:
            told = 'StopOnPlateau watches the episodes of the training, and a training on a dataset has none'
            raise InvalidValue(f'{told}: leave it out, or end by the score of tests, KeepBest(stop_at=…).')
        self.best, self.best_step = -math.inf, training.steps
        self._earlier = len(training.returns)

    def __call__(self, training: Training) -> bool | None:
        if len(training.returns) - self._earlier < self.window:
            return None
        mean = float(np.mean(training.returns[-self.window :]))
        if self.best == -math.inf or mean > self.best + self.min_rise:
            self.best, self.best_step = mean, training.steps
            return None
        if training.steps - self.best_step < self.patience:
            return None
        told = 'Stopped at step %d: the mean return of %d episodes has not risen above %g since step %d.'
        training.warn(told, training.steps, self.window, self.best + self.min_rise, self.best_step)
        return False
