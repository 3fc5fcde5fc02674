"""A dataset as the rows of a ring: whole episodes that lie on disk in the order of the ring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from zoo.common import spaces


class WholeEpisodes(NamedTuple):
    """Episodes as the rows of one copy of a :class:`zoo.common.replay.ring.Ring`, which does not write to them.

    An episode of ``T`` steps has ``T + 1`` rows. Behind the last episode are as many rows as the longest stack has
    frames. So there are ``R`` rows in all.

    Attributes:
        obs, action: flat ``[R, …]``, anything that has ``shape``, ``dtype`` and ``take``; actions as they are stored.
        reward: float32 ``[R]``.
        terminated, truncated, valid: bool ``[R]``.
        lengths: int64 ``[E]``, the steps of each episode.
    """

    obs: spaces.Flat
    action: spaces.Flat
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray
    lengths: np.ndarray

    def ages(self, longest: int) -> np.ndarray:
        """Return the number of rows before each row in its episode, at most ``longest - 1``, unsigned ``[R]``."""
        found = np.zeros(len(self.reward), np.min_scalar_type(longest))  # pages of zeros take no memory
        if longest > 1:
            begins = np.concatenate([[0], np.cumsum(self.lengths + 1)])[:-1]
            found[:] = longest - 1
            for age in range(longest - 1):
                within = begins[self.lengths >= age] + age
                found[within] = age
        return found


class TransitionRows:
    """The rows of the transitions of whole episodes, without an array of them.

    ``lengths`` are the steps of each episode, int64 ``[E]``.
    """

    def __init__(self, lengths: np.ndarray) -> None:
        self._ends = np.cumsum(lengths)

    def __len__(self) -> int:
        """Return the number of transitions."""
        return int(self._ends[-1])

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        """Return the rows of transitions by their numbers; each episode before one has a row without a transition."""
        return numbers + np.searchsorted(self._ends, numbers, side='right')


class ConvertedRows:
    """The part of an array's interface that drawing needs, of rows that are converted when they are taken.

    Args:
        rows: ``[R, …]``.
        convert: makes ``[n, *shape]`` of rows ``[n, …]``.
        shape: of a converted row.
        dtype: of converted rows.
    """

    def __init__(
        self, rows: np.ndarray, convert: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...], dtype: Any
    ) -> None:
        self._rows, self._convert = rows, convert
        self.shape, self.dtype = (len(rows), *shape), np.dtype(dtype)

    def take(self, rows: np.ndarray, axis: int = 0) -> np.ndarray:
        """Return a new array ``[*rows.shape, *shape]``."""
        assert axis == 0
        found = self._convert(self._rows.take(rows.ravel(), axis=0))
        return found.reshape(*rows.shape, *self.shape[1:])
