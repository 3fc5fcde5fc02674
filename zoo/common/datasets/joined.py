"""Several datasets as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
from gymnasium.spaces import Space

from zoo.common.adaptors import action as actions
from zoo.common.adaptors import observation as observations
from zoo.common.datasets.dataset import Dataset
from zoo.common.datasets.episodes import RecordedEpisode
from zoo.common.datasets.source import Source
from zoo.common.tools.errors import InvalidValue


class Joined(Source):
    """The episodes of several datasets, one after another.

    Raises:
        ValueError: they have other spaces.
    """

    def __init__(self, parts: Sequence[Dataset]) -> None:
        first = parts[0]
        self._parts, self.name = list(parts), ' + '.join(dict.fromkeys(part.source.name for part in parts))
        self.observation_space, self.action_space = first.observation_space, first.action_space
        for part in parts[1:]:
            for kind, adaptor in (('observation_space', observations), ('action_space', actions)):
                reason = adaptor.mismatch(getattr(first, kind), getattr(part, kind))
                if reason is not None:
                    reason = reason.split(', but this agent')[0]
                    raise InvalidValue(
                        f"of '{part.source.name}' the {kind} {reason}, unlike in '{first.source.name}': join "
                        'datasets of one environment.'
                    )
        self.inferred = tuple(kind for kind in first.source.inferred if all(kind in x.source.inferred for x in parts))
        known = [part.environment for part in parts]
        self.environment = known[0] if all(one == known[0] for one in known) else None
        self.lengths = np.concatenate([part.lengths for part in parts])
        self.terminated = np.concatenate([part.terminated for part in parts])
        self.truncated = np.concatenate([part.truncated for part in parts])
        self._ends = np.cumsum([len(part) for part in parts])

    def _place(self, number: int) -> tuple[int, int]:
        """Return which part has an episode, and its number in the part's source."""
        at = int(np.searchsorted(self._ends, number, side='right'))
        return at, int(self._parts[at].numbers[number - (self._ends[at - 1] if at else 0)])

    def episode(self, number: int) -> RecordedEpisode:
        at, own = self._place(number)
        return self._parts[at].source.episode(own)

    def episodes(self, numbers: Sequence[int] | np.ndarray) -> Iterator[RecordedEpisode]:
        places = (self._place(int(number)) for number in numbers)
        for at, group in groupby(places, key=lambda place: place[0]):
            yield from self._parts[at].source.episodes([own for _, own in group])

    def returns(self, numbers: np.ndarray) -> np.ndarray:
        return np.concatenate([part.source.returns(part.numbers) for part in self._parts])[numbers]

    def fitting(self, observation_space: Space | None, action_space: Space | None) -> Source:
        fitted = [part.fitting(observation_space, action_space) for part in self._parts]
        return self if all(new is old for new, old in zip(fitted, self._parts, strict=True)) else Joined(fitted)
