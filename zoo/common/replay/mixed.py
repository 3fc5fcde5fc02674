"""Two replay buffers that batches are drawn from: a fixed share of each batch comes from recorded episodes.

Ball et al. 2023, *Efficient Online Reinforcement Learning with Offline Data* (arXiv 2302.02948, section 4.1): half of
each batch is new experience and half is data, however much there is of each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.records import Batch
from zoo.common.replay.hindsight import Hindsight
from zoo.common.replay.replay import Replay


class MixedReplay:
    """A replay buffer of new transitions beside one of recorded transitions.

    Args:
        new: the buffer that training fills.
        data: the buffer that holds the recorded transitions.
        share: the part of each batch that is drawn from ``data``, rounded to whole transitions.
    """

    recorded = 0

    def __init__(self, new: Replay, data: Replay, share: float) -> None:
        self.new, self.data, self.share = new, data, share
        self._split = 0

    @property
    def added(self) -> int:
        """The number of new transitions stored so far."""
        return self.new.added - self.new.recorded

    def sample(
        self, lead: tuple[int, ...], rng: np.random.Generator, progress: float = 0.0, hindsight: Hindsight | None = None
    ) -> Batch:
        """Draw transitions, fields ``[K, B, …]``: the new ones come first in each batch."""
        updates, size = lead
        of_data = round(self.share * size)
        self._split = size - of_data
        parts: list[Any] = []
        if self._split:
            parts.append(self.new.sample((updates, self._split), rng, progress, hindsight))
        if of_data:
            parts.append(self.data.sample((updates, of_data), rng, progress))
        if len(parts) == 1:
            return parts[0]
        fields = zip(*parts, strict=True)
        return Batch(*(spaces.tree_map(lambda *x: np.concatenate(x, 1), *field) for field in fields))

    def prioritize(self, priorities: np.ndarray | None) -> None:
        """Set the priorities ``[K, B]`` of the transitions drawn last; None changes nothing."""
        if priorities is None:
            return
        if self._split:
            self.new.prioritize(priorities[:, : self._split])
        if self._split < priorities.shape[1]:
            self.data.prioritize(priorities[:, self._split :])
