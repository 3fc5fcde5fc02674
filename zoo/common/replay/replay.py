"""Experience replay (Lin 1992; Mnih et al. 2015), uniform or prioritized, of one step or n.

Priorities follow Schaul et al. 2016 (arXiv 1511.05952), n-step returns Sutton 1988, as used by Hessel et al. 2018
(arXiv 1710.02298).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.common.records import Batch, SequenceBatch
from zoo.common.replay import replay_state
from zoo.common.replay.drawing import gather, relabel
from zoo.common.replay.hindsight import Hindsight
from zoo.common.replay.ring import Ring
from zoo.common.replay.sequences import gather_sequences, side_by_side
from zoo.common.replay.whole_episodes import TransitionRows
from zoo.common.sampling import Sampling, importance
from zoo.common.schedules import value_at
from zoo.common.tools.errors import InvalidValue

EMPTY = 'the replay buffer holds no transition yet: add some before sampling.'


def check_capacity(sampling: Sampling, buffer_size: int, batch_size: int, copies: int) -> None:
    """Refuse a replay buffer smaller than a batch, or with fewer steps of a copy than ``n_step``, by a ValueError."""
    if buffer_size < batch_size:
        raise InvalidValue(
            f'buffer_size is {buffer_size}, which cannot hold a batch of batch_size={batch_size}: give at least as '
            'many, and better a hundred times as many.'
        )
    share = -(-buffer_size // copies)
    if share < sampling.n_step:
        raise InvalidValue(
            f'buffer_size is {buffer_size}, {share} for each of {copies} copies of the environment, which cannot hold '
            f'the steps of n_step={sampling.n_step}: give at least {copies * sampling.n_step}.'
        )


class Replay(Ring):
    """A replay buffer: a :class:`zoo.common.replay.ring.Ring` that batches are drawn from.

    By priority, a new transition is given the highest priority so far, so that each is drawn soon. A batch of ``B`` is
    drawn in strata, one transition from each ``B``-th of the sum of priorities (appendix B.2.1). The importance weights
    are divided by the highest weight of their batch (section 3.4), so that they only make steps smaller.
    """

    _drawn: np.ndarray | None = None  # the rows that `prioritize` is about
    _held: np.ndarray | TransitionRows | None = None  # the rows of all transitions, where none is added any more

    def sample(
        self, lead: tuple[int, ...], rng: np.random.Generator, progress: float = 0.0, hindsight: Hindsight | None = None
    ) -> Batch | SequenceBatch:
        """Draw transitions with replacement, or sequences around them; fields ``[*lead, …]``, contiguous.

        Args:
            lead: how many; of sequences ``(K, C)``.
            progress: the fraction of the training that is done, in [0, 1], for schedules.
            hindsight: gives some transitions other goals, and their priorities are then about the new goals. It needs
                :meth:`keep_episodes`.

        Raises:
            ValueError: there is no transition, or the stored rewards are not those that ``hindsight`` computes.
        """
        rows = self._indices(int(np.prod(lead)), rng) if self.tree is None else self._prioritized(lead, rng)
        batch: Any
        if self.sampling.sequences is None:
            batch = gather(self, rows, lead)
        else:
            batch = side_by_side(gather_sequences(self, rows, self.sampling.sequences), lead, rng)
        if self.tree is not None:
            self._drawn = rows
            batch = batch._replace(weight=self._weights(rows, lead, progress))
        if hindsight is not None:
            relabel(self, batch, rows, hindsight, rng)
        return batch

    def _prioritized(self, lead: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draw rows in proportion to their priorities, one from each stratum of a batch."""
        assert self.tree is not None
        if not self.valid.any():
            raise InvalidValue(EMPTY)
        size = lead[-1] if lead else 1
        strata = np.arange(size) + rng.random((*lead[:-1], size))
        return self.tree.find(strata.ravel() / size)

    def _weights(self, rows: np.ndarray, lead: tuple[int, ...], progress: float) -> np.ndarray:
        """Return importance weights, float32 ``[*lead]``; the sum of the priorities in ``P(i)`` cancels out."""
        assert self.tree is not None and self.sampling.priorities is not None
        chances = self.tree.values.take(rows).reshape(lead)
        return importance(chances, value_at(self.sampling.priorities.correction, progress))

    def _indices(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw rows of valid transitions uniformly; the few rows without one are drawn again."""
        if self._held is not None:
            return self._held[rng.integers(len(self._held), size=n)]
        if self.full.all():
            indices = rng.integers(self.valid.size, size=n)
        else:
            filled = np.where(self.full, self.rows, np.maximum(self.cursor, 1))
            if self.num_envs == 1:
                indices = rng.integers(filled[0], size=n)
            else:
                within = rng.integers(filled.sum(), size=n)
                ends = np.cumsum(filled)
                copy = np.searchsorted(ends, within, side='right')
                indices = within - (ends[copy] - filled[copy]) + self.base[copy]
        refused = np.flatnonzero(~self.valid[indices])
        if len(refused):
            if not self.valid.any():
                raise InvalidValue(EMPTY)
            indices[refused] = self._indices(len(refused), rng)
        return indices

    def complete(self, lengths: np.ndarray | None = None) -> None:
        """Take note that all transitions are there: none is added any more.

        A draw of ``[K, B]`` is then the same as ``K`` draws of ``[B]`` one after the other, since none is repeated.
        ``lengths`` are the steps of the whole episodes that it was made of, if it was; no array of rows is kept then.
        """
        self._held = np.flatnonzero(self.valid) if lengths is None else TransitionRows(lengths)

    def prioritize(self, priorities: np.ndarray | None) -> None:
        """Set the priorities ``[*lead]`` of the transitions drawn last; None changes nothing.

        They are |δ|; the exponent is applied here. Call it before adding transitions. Of a transition that was drawn
        more than once the last priority stays.

        Raises:
            ValueError: nothing was drawn by priority.
            FloatingPointError: a priority is NaN or infinite.
        """
        if priorities is None:
            return
        if self.tree is None or self._drawn is None:
            raise InvalidValue('priorities were given, but nothing has been drawn by priority from this replay buffer.')
        self._prioritize(self._drawn, self.with_exponent(priorities.ravel()), 0.0)

    def _prioritize(self, rows: np.ndarray, found: np.ndarray, highest: float) -> None:
        assert self.tree is not None
        self.highest = max(self.highest, highest, float(found.max(initial=0.0)))
        self.tree.put(rows, np.where(self.valid[rows], found, 0.0))

    # Drawing from another process

    @property
    def mass(self) -> float:
        """The weight of this buffer among several drawn from as one: the sum of its priorities, or its length."""
        return float(len(self)) if self.tree is None else self.tree.total()

    def rows_at(self, fractions: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the rows where the running sum of the priorities reaches these fractions of `mass`, int64 ``[n]``.

        ``fractions`` are float64 ``[n]`` in [0, 1]. Where sampling is uniform only their number counts: ``rng`` draws.

        Raises:
            ValueError: there is no transition.
        """
        if self.tree is None:
            return self._indices(len(fractions), rng)
        if not self.valid.any():
            raise InvalidValue(EMPTY)
        return self.tree.find(fractions)

    def gather(
        self, rows: np.ndarray, rng: np.random.Generator, hindsight: Hindsight | None = None
    ) -> Batch | SequenceBatch:
        """Return the transitions in these rows, fields ``[n, …]``, of weight 1; `sample` describes ``hindsight``.

        Where sequences are drawn, return the sequences around the transitions one after another, as
        :func:`zoo.common.replay.sequences.side_by_side` takes them.
        """
        if self.sampling.sequences is not None:
            return gather_sequences(self, rows, self.sampling.sequences)
        batch = gather(self, rows, rows.shape)
        if hindsight is not None:
            relabel(self, batch, rows, hindsight, rng)
        return batch

    def priorities_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the priorities of the transitions in these rows with the exponent applied, float64 ``[n]``."""
        assert self.tree is not None
        return self.tree.values.take(rows)

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return marks of the transitions in these rows, which later transitions there do not share, int64 ``[n, 2]``.

        A mark is the number of the copy, and how far its cursor had moved when it stood there.
        """
        copies = rows // self.rows
        return np.stack([copies, self.moves[copies] - (self.cursor[copies] - rows) % self.rows], -1)

    def prioritize_at(self, places: np.ndarray, found: np.ndarray, highest: float = 0.0) -> int:
        """Set the priorities of transitions that are still held; ignore transitions that were written over.

        Args:
            places: what `places` gave for the transitions, int64 ``[n, 2]``.
            found: priorities with the exponent applied (:func:`zoo.common.sampling.raised`), ``[n]``.
            highest: the highest priority so far in other processes that are drawn from together with this one.

        Returns:
            The number of transitions that were still held.
        """
        copies, moves = places.T
        held = self.moves[copies] - moves <= self.rows - self.longest
        rows = self.base[copies] + moves % self.rows
        self._prioritize(rows[held], found[held], highest)
        return int(held.sum())

    # Saving

    def state(self) -> dict[str, np.ndarray]:
        """Return the arrays to save."""
        return replay_state.save(self)

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over what `state` gave, also of another number of copies.

        Raises:
            ValueError: another capacity.
        """
        replay_state.restore(self, arrays)
        self._drawn = None
