"""Sequences of steps, laid side by side."""

from __future__ import annotations

import numpy as np

from zoo.common import spaces
from zoo.common.records import SequenceBatch


def side_by_side(found: SequenceBatch, lead: tuple[int, ...], rng: np.random.Generator) -> SequenceBatch:
    """Sequences one after another, as :meth:`Replay.gather` gives them, as the batches ``[K, …]`` of ``K`` updates.

    Args:
        found: fields ``[K C, …]``.
        lead: ``K`` and ``C``.
        rng: draws, where there is no transition, another one of the same update to be in its place.
    """
    updates, count = lead
    length = found.valid.shape[1]

    def arranged(x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.swapaxes(x.reshape(*lead, *x.shape[1:]), 1, 2))  # [K, R or L, C, …]

    valid = arranged(found.valid)
    # The number of each transition among those of its update, or of the one that takes its place.
    pick = np.tile(np.arange(length * count), (updates, 1))
    for own, numbers in zip(valid.reshape(updates, -1), pick, strict=True):
        if not own.all():
            numbers[~own] = rng.choice(numbers[own], int((~own).sum()))

    def learned(x: np.ndarray) -> np.ndarray:
        return np.take_along_axis(arranged(x).reshape(updates, -1), pick, 1).reshape(valid.shape)

    # Rows are numbered time-major, all sequences of an update together.
    column = np.tile(np.arange(count, dtype=np.int32), updates)[:, None]
    return SequenceBatch(
        obs=spaces.tree_map(arranged, found.obs),
        action=spaces.tree_map(arranged, found.action),
        state=found.state.reshape(*lead, -1),
        begins=arranged(found.begins),
        at=learned(found.at * count + column),
        after=learned(found.after * count + column),
        reward=learned(found.reward),
        discount=learned(found.discount),
        terminated=learned(found.terminated),
        truncated=learned(found.truncated),
        weight=found.weight.reshape(lead),
        valid=valid,
    )
