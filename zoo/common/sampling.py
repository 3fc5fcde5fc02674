"""How transitions are drawn from a replay buffer: n-step returns, priorities, sequences."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from zoo.common.schedules import Linear
from zoo.common.tools.errors import NotFinite

#: ε of Schaul et al. 2016, section 3.3: transitions without error are still drawn now and then.
SMALLEST = 1e-6


class Priorities(NamedTuple):
    """Proportional prioritization (Schaul et al. 2016, arXiv 1511.05952, sections 3.3 and 3.4).

    Attributes:
        exponent: α, of the priorities; 0 draws uniformly. It is fixed, since priorities are stored with it applied.
        correction: β, of the importance weights; 1 corrects in full.
    """

    exponent: float = 0.6
    correction: float | Linear = Linear(0.4, 1.0)


#: The exponents of the paper's table 3 for proportional prioritization.
PRIORITIES = Priorities()


class SequenceSampling(NamedTuple):
    """Sequences for recurrent networks (Kapturowski et al. 2019, *Recurrent Experience Replay*, section 3).

    Attributes:
        length: the steps to learn from.
        burn_in: the steps before them, which only bring the recurrent state up to date.
        state_size: entries of the recurrent state, which is stored with every step.
    """

    length: int
    burn_in: int
    state_size: int

    def rows(self, n_step: int) -> int:
        """Return ``R``, the rows of one sequence: its steps, and the next ones that ``n_step`` looks ahead to."""
        return self.burn_in + self.length + n_step


def raised(priorities: np.ndarray, exponent: float) -> np.ndarray:
    """Return the priorities |δ| as they are stored, float64: with the exponent α applied, and above 0.

    Raises:
        FloatingPointError: a priority is NaN or infinite.
    """
    found = (np.abs(priorities, dtype=np.float64) + SMALLEST) ** exponent
    highest = found.max(initial=0.0)
    if not np.isfinite(highest):
        raise NotFinite(
            f'a priority became {highest}: a smaller learning rate or normalized observations and rewards may help.'
        )
    return found


def importance(chances: np.ndarray, correction: float) -> np.ndarray:
    """Return importance weights, float32 ``[…, B]``: ``(1 / (N P(i)))^β``, divided by the highest weight of the batch.

    ``chances`` are ``P(i)`` ``[…, B]`` up to a common factor, which cancels out like ``N``; ``correction`` is β.
    """
    lowest = chances.min(-1, keepdims=True) if chances.ndim else chances
    return ((lowest / chances) ** correction).astype(np.float32)


class Sampling(NamedTuple):
    """How transitions are drawn.

    Attributes:
        gamma: discount.
        n_step: the number of successive steps that are drawn as one.
        priorities: draw by priority; None: uniformly.
        sequences: draw sequences of steps, for recurrent networks; None: each step alone.
        to_the_end: all steps to the end of the episode are drawn as one, whatever ``n_step`` says. Only a replay buffer
            that holds a whole dataset can do that (:meth:`zoo.common.replay.replay.Replay.sum_to_the_end`).
    """

    gamma: float
    n_step: int = 1
    priorities: Priorities | None = None
    sequences: SequenceSampling | None = None
    to_the_end: bool = False
