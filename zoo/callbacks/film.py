"""Films of episodes while an agent trains."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium import Env

from zoo.callbacks.base import Callback, another_environment, check_spaces, check_whole, environment_of
from zoo.common.plots.films import check_path, film

if TYPE_CHECKING:
    from zoo.common.training.training import Training


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
        self.every = check_whole('every', every)
        self.folder = None if folder is None else Path(folder).expanduser()
        self.kind = kind
        self.env = environment_of('Record', env)
        self.seed = seed
        self.max_steps = check_whole('max_steps', max_steps)
        check_path(f'video.{kind}')
        self._own: Any = None

    def begin(self, training: Training) -> None:
        """See :class:`Callback`."""
        if self.folder is None and training.run_dir is None:
            raise ValueError('Record writes into the run directory, but run_dir=False writes none: give folder=….')
        if self.env is None:
            self._own = another_environment(training, 'Record', self.seed, render_mode='rgb_array')
        elif self.env is training.env:
            raise ValueError('Record was given the environment of the training, which only that steps.')
        else:
            check_spaces('Record', training, self.env)

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
