"""Films of episodes while an agent trains."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gymnasium import Env

from zoo.callbacks.base import WithEnvironment
from zoo.common.plots.films import check_path, film
from zoo.common.tools.checks import whole
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.files import as_path

if TYPE_CHECKING:
    from zoo.common.training.training import Training


class Film(WithEnvironment):
    """Film an episode of the agent's deterministic policy at regular intervals.

    Args:
        every: environment steps between films.
        folder: where films are written; None: ``videos`` in the run directory.
        kind: ``'gif'``, ``'webp'``, ``'png'`` (an animated one) or, with ffmpeg (``zoo-rl[video]``), ``'mp4'``.
        env: an environment with ``render_mode='rgb_array'``; None builds one like the training's.
        seed: of the environment, the same in every film; None: other episodes each time.
        max_steps: the most steps of an episode that are shown.

    Raises:
        ValueError: an argument is refused; at the beginning of the training, an environment with other spaces.
        ImportError: ``kind`` is ``'mp4'`` and ffmpeg is not installed.
    """

    steers = False

    def __init__(
        self,
        every: int = 50_000,
        folder: str | os.PathLike[str] | None = None,
        kind: str = 'gif',
        env: Env | None = None,
        seed: int | None = 0,
        max_steps: int = 1000,
    ) -> None:
        super().__init__(env, seed, render_mode='rgb_array')
        self.every = whole('every', every)
        self.folder = None if folder is None else as_path(folder, 'folder')
        self.kind = kind
        self.max_steps = whole('max_steps', max_steps)
        check_path(f'video.{kind}')

    def begin(self, training: Training) -> None:
        if self.folder is None and training.run_dir is None:
            raise InvalidValue('Film writes into the run directory, but run_dir=False writes none: give folder=….')
        super().begin(training)

    def __call__(self, training: Training) -> None:
        folder = self.folder
        if folder is None:
            assert training.run_dir is not None  # begin has looked
            folder = training.run_dir / 'videos'
        path = folder / f'{training.agent.steps:09d}.{self.kind}'
        film(training.agent, self.playing_env, path, max_steps=self.max_steps, seed=self.seed)
