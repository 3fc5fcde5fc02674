"""Checkpoints every so many steps, and an end where the return no longer rises."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zoo.callbacks.base import Callback, check_number, check_whole

if TYPE_CHECKING:
    from zoo.common.training.training import Training


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
        self.every = check_whole('every', every)
        self.folder = None if folder is None else Path(folder).expanduser()
        self.keep = None if keep is None else check_whole('keep', keep)
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
        self.patience = check_whole('patience', patience)
        self.min_rise = check_number('min_rise', min_rise)
        self.window = check_whole('window', window)
        self.every = None if every is None else check_whole('every', every)
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
