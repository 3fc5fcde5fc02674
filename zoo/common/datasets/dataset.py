"""A dataset: recorded episodes and what is known of them, in memory or on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from gymnasium import Env
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv

from zoo.common import spaces
from zoo.common.datasets.episodes import Checks, RecordedEpisode
from zoo.common.datasets.source import Environment, Source
from zoo.common.datasets.writing import written
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.printing import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Dataset:
    """Recorded episodes, as :func:`zoo.open_dataset` gives them.

    An episode is read when it is asked for, and checked: its numbers are finite, and its actions lie in their space. So
    a dataset may be larger than memory. ``dataset[3]`` is an episode, ``dataset[:10]`` a dataset of some of them.

    >>> dataset = zoo.open_dataset('runs/expert.npz')
    >>> dataset.returns.mean()
    >>> for episode in dataset:
    ...     print(len(episode.reward), episode.terminated)

    Args:
        source: where the episodes come from.
        numbers: the episodes of the source that belong to it, in order; None: all.

    Raises:
        ValueError: there is no episode.
    """

    def __init__(self, source: Source, numbers: np.ndarray | None = None) -> None:
        self.source = source
        self.numbers = np.arange(len(source.lengths)) if numbers is None else numbers
        if not len(source.lengths):
            raise InvalidValue(f"'{source.name}' holds no episode of at least one step: record some first.")
        self._checks = Checks(source.name, source.observation_space, source.action_space)

    # What is known of it

    @property
    def name(self) -> str:
        """The name of its file without the ending, or a word for what it was made of."""
        return self.source.name if self.path is None else self.path.stem

    @property
    def path(self) -> Path | None:
        """Its file or folder; None where it is in memory, or joined of several."""
        return self.source.path

    @property
    def observation_space(self) -> Space:
        """The space of one observation."""
        return self.source.observation_space

    @property
    def action_space(self) -> Space:
        """The space of one action."""
        return self.source.action_space

    @property
    def environment(self) -> Environment | None:
        """The environment that it was recorded in, by name, type and arguments of ``build_env``; None if not known."""
        return self.source.environment

    @property
    def lengths(self) -> np.ndarray:
        """The steps of each episode, int64 ``[E]``."""
        return self.source.lengths[self.numbers]

    @property
    def steps(self) -> int:
        """The number of steps, and so of transitions, in all episodes."""
        return int(self.lengths.sum())

    @property
    def terminated(self) -> np.ndarray:
        """Whether the task ended each episode, bool ``[E]``."""
        return self.source.terminated[self.numbers]

    @property
    def truncated(self) -> np.ndarray:
        """Whether a time limit ended each episode, bool ``[E]``. One that is neither was cut on the way."""
        return self.source.truncated[self.numbers]

    @cached_property
    def returns(self) -> np.ndarray:
        """The undiscounted return of each episode, float64 ``[E]``. It is read from the data when first asked for."""
        found = self.source.returns(self.numbers)
        if not np.isfinite(found).all():
            at = self.numbers[np.flatnonzero(~np.isfinite(found))[0]]
            raise InvalidValue(f"of '{self.source.name}' a reward is NaN or infinite, in episode {at}.")
        return found

    # Episodes

    def __len__(self) -> int:
        """Return the number of episodes."""
        return len(self.numbers)

    def __iter__(self) -> Iterator[RecordedEpisode]:
        """Iterate over the episodes.

        Raises:
            ValueError: an episode has a value that is not finite or not in its space, or the file is damaged.
        """
        for number, episode in zip(self.numbers.tolist(), self.source.episodes(self.numbers), strict=True):
            self._checks.episode(number, episode)
            yield episode

    @overload
    def __getitem__(self, index: int) -> RecordedEpisode: ...

    @overload
    def __getitem__(self, index: slice) -> Dataset: ...

    def __getitem__(self, index: Any) -> Any:
        """Return one episode, or by a slice a dataset of some of them.

        Raises:
            IndexError: there is no such episode.
            ValueError: the slice has no episode, or the episode is damaged as iteration says it.
        """
        if isinstance(index, slice):
            numbers = self.numbers[index]
            if not len(numbers):
                raise InvalidValue(f"of the {len(self)} episodes of '{self.name}' that slice has none.")
            return Dataset(self.source, numbers)
        if not isinstance(index, Integral) or isinstance(index, bool):
            raise InvalidValue(f'an episode is asked for by a number or a slice, such as dataset[:10], not {index!r}.')
        if not -len(self) <= int(index) < len(self):
            raise IndexError(f'there is no episode {index}: there are {len(self)}, numbered from 0.')
        number = int(self.numbers[index])
        episode = self.source.episode(number)
        self._checks.episode(number, episode)
        return episode

    @property
    def is_whole(self) -> bool:
        """Whether it has every episode of its data, in order."""
        return np.array_equal(self.numbers, np.arange(len(self.source.lengths)))

    def fitting(self, observation_space: Space | None, action_space: Space | None) -> Dataset:
        """Return it in other spaces, where its data does not say its own; else itself."""
        source = self.source.fitting(observation_space, action_space)
        return self if source is self.source else Dataset(source, self.numbers)

    # Whole datasets

    def save(self, path: str | os.PathLike[str]) -> Dataset:
        """Write it, completely or not at all, and return what was written. Little memory is needed.

        Args:
            path: a file whose name ends in ``.npz``: small, since it is compressed. Or a folder, a name without an
                ending: arrays that are mapped into memory when they are read, for datasets of any size.

        Raises:
            ValueError: another ending, a folder of other files, or an episode that is damaged as iteration says it.
            OSError: the path cannot be written.
        """
        its = self.source
        return Dataset(written(path, its.observation_space, its.action_space, its.environment, self, its.inferred))

    def build_env(self, **arguments: Any) -> Env | VectorEnv:
        """Build the environment that it was recorded in, from what the data says of it.

        ``arguments`` are those of ``build_env`` to change or to add, such as ``nenv=4`` or ``seed=1``.

        Raises:
            ValueError: the environment is not known, or no name makes it.
        """
        from zoo.common.envs.build import build_env

        known = self.environment
        if known is None or known.arguments is None:
            told = 'does not say its environment' if known is None else f'was recorded in {known.name}, which no name '
            told += '' if known is None else 'makes (a class, a function, an object, or with reward_shaping)'
            raise InvalidValue(f"'{self.name}' {told}: build the environment with build_env.")
        return build_env(**{**known.arguments, **arguments})

    def __repr__(self) -> str:
        return (
            f'<Dataset {self.name!r}: {len(self):,} episodes, {self.steps:,} steps, '
            f'{spaces.describe(self.observation_space)} -> {spaces.describe(self.action_space)}>'
        )

    def summary(self) -> str:
        """Return a table for printing: spaces, environment, episodes and how they ended, steps, returns."""
        terminated, truncated = self.terminated, self.truncated & ~self.terminated
        ends = {'terminated': terminated, 'truncated': truncated, 'cut': ~(terminated | truncated)}
        told = ', '.join(f'{int(which.sum()):,} {name}' for name, which in ends.items() if which.any())
        known = self.environment
        rows = [
            ('dataset', self.name if self.path is None else str(self.path)),
            ('environment', '' if known is None else f'{known.name}{f" ({known.type})" if known.type else ""}'),
            ('observations', spaces.describe(self.observation_space)),
            ('actions', spaces.describe(self.action_space)),
            ('episodes', f'{len(self):,}: {told}'),
            ('steps', f'{self.steps:,}'),
            ('lengths', _spread(self.lengths)),
            ('returns', _spread(self.returns)),
        ]
        return '\n'.join(Table('', (), [row for row in rows if row[1]]).lines())

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw histograms of the returns and the lengths of its episodes.

        Args:
            path: the PNG to write (1080 × 432 pixels), its folder made if need be; None only makes the figure.
        """
        from zoo.common.plots.histograms import histograms

        told = f'{self.name}: {len(self):,} episodes, {self.steps:,} steps'
        return histograms(path, {'Episode return': self.returns, 'Episode length': self.lengths}, told)


def _spread(x: np.ndarray) -> str:
    """Return the least, the median, the mean and the largest of some numbers as text."""
    parts = {'min': x.min(), 'median': np.median(x), 'mean': x.mean(), 'max': x.max()}
    return ', '.join(f'{name} {value:,.6g}' for name, value in parts.items())
