"""Where the episodes of a dataset come from: what every form of data offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space

from zoo.common.datasets.episodes import RecordedEpisode


class Environment(NamedTuple):
    """The environment that episodes were recorded in.

    Attributes:
        name: its registered name, or the name of its class or function.
        type: the ``env_type`` of ``build_env``; None where it is not known.
        arguments: the arguments of ``build_env`` that make it, as plain data; None where only a program can.
    """

    name: str
    type: str | None = None
    arguments: dict[str, Any] | None = None


class Source(ABC):
    """The episodes of one form of data, numbered from 0.

    Attributes:
        name: what to call it in titles and messages.
        path: its file or folder; None where it is in memory.
        observation_space, action_space: of one copy of the environment.
        inferred: ``'observation_space'``, ``'action_space'`` or both, where the data does not say its own.
        environment: None where it is not known.
        lengths: int64 ``[E]``, the steps of each episode.
        terminated, truncated: bool ``[E]``, how each ended; an episode that was cut is neither.
    """

    name: str
    path: Path | None = None
    observation_space: Space
    action_space: Space
    inferred: tuple[str, ...] = ()
    environment: Environment | None = None
    lengths: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    @abstractmethod
    def episode(self, number: int) -> RecordedEpisode:
        """Return one episode."""

    def episodes(self, numbers: Sequence[int] | np.ndarray) -> Iterator[RecordedEpisode]:
        """Iterate over some episodes; little memory is needed where the form allows it."""
        for number in numbers:
            yield self.episode(int(number))

    def returns(self, numbers: np.ndarray) -> np.ndarray:
        """Return the undiscounted returns of some episodes, float64 ``[n]``."""
        sums = (episode.reward.sum(dtype=np.float64) for episode in self.episodes(numbers))
        return np.fromiter(sums, np.float64, len(numbers))

    def fitting(self, observation_space: Space | None, action_space: Space | None) -> Source:
        """Return the same episodes in other spaces, where the data does not say its own; else this source.

        None leaves a space as it is.

        Raises:
            ValueError: the spaces cannot hold the values.
        """
        return self
