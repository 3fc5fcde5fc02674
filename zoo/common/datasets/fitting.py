"""What zoo wrote, in an agent's spaces: a file keeps inferred spaces, and says that they were inferred."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from zoo.common import spaces
from zoo.common.datasets.episodes import RecordedEpisode, fitted, stored_shape
from zoo.common.datasets.source import Source


class Written(Source):
    """The episodes of a file or folder that zoo wrote."""

    path: Path

    @abstractmethod
    def __init__(self, path: Path) -> None:
        """Open what is at a path."""

    def fitting(self, observation_space: Space | None, action_space: Space | None) -> Source:
        given = {'observation_space': observation_space, 'action_space': action_space}
        wanted = {}
        for kind in self.inferred:
            space, own = given[kind], getattr(self, kind)
            if space is not None and space != own and _arrays(space).keys() == _arrays(own).keys():
                wanted[kind] = space
        if not wanted:
            return self
        left = tuple(kind for kind in self.inferred if kind not in wanted)
        if any(_arrays(x) != _arrays(getattr(self, kind)) for kind, x in wanted.items()):
            return Refitted(self, wanted, left)
        found = copy.copy(self)
        found.__dict__ |= {**wanted, 'inferred': left}
        return found

    def __reduce__(self) -> Any:
        return _opened_again, (type(self), self.path, self.observation_space, self.action_space)


def _opened_again(kind: type[Written], path: Path, observation_space: Space, action_space: Space) -> Source:
    return kind(path).fitting(observation_space, action_space)


def _arrays(space: Space) -> dict[str, Any]:
    """Return the shape and dtype of what is stored of a space, by path."""
    return {path: (stored_shape(leaf), leaf.dtype) for path, leaf in spaces.leaves(space).items()}


class Refitted(Source):
    """The episodes of another source, each converted to the dtypes of other spaces when it is read.

    Args:
        source: of the episodes.
        wanted: the other spaces, by ``'observation_space'`` and ``'action_space'``.
        inferred: which of the spaces are still inferred.
    """

    def __init__(self, source: Source, wanted: dict[str, Space], inferred: tuple[str, ...]) -> None:
        self._source, self.inferred = source, inferred
        self.name, self.path, self.environment = source.name, source.path, source.environment
        self.observation_space = wanted.get('observation_space', source.observation_space)
        self.action_space = wanted.get('action_space', source.action_space)
        self.lengths, self.terminated, self.truncated = source.lengths, source.terminated, source.truncated

    def _converted(self, number: int, episode: RecordedEpisode) -> RecordedEpisode:
        where, steps = f"of '{self.name}' in episode {number}", len(episode.reward)
        return episode._replace(
            obs=fitted(f'{where} the observation', self.observation_space, episode.obs, steps + 1),
            action=fitted(f'{where} the action', self.action_space, episode.action, steps),
        )

    def episode(self, number: int) -> RecordedEpisode:
        return self._converted(number, self._source.episode(number))

    def episodes(self, numbers: Sequence[int] | np.ndarray) -> Iterator[RecordedEpisode]:
        for number, episode in zip(numbers, self._source.episodes(numbers), strict=True):
            yield self._converted(int(number), episode)

    def returns(self, numbers: np.ndarray) -> np.ndarray:
        return self._source.returns(numbers)

    def fitting(self, observation_space: Space | None, action_space: Space | None) -> Source:
        its = {'observation_space': observation_space, 'action_space': action_space}
        given = {kind: x if kind in self.inferred else getattr(self, kind) for kind, x in its.items()}
        return self._source.fitting(given['observation_space'], given['action_space'])
