"""How transitions are drawn from a replay buffer: n-step returns, priorities, sequences."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from zoo.common.schedules import Linear

#: ε of Schaul et al. 2016, section 3.3: what has no error left is drawn now and then all the same.
SMALLEST = 1e-6


class Priorities(NamedTuple):
    """Proportional prioritisation (Schaul et al. 2016, arXiv 1511.05952, sections 3.3 and 3.4).

    Attributes:
        exponent: α, of the priorities: 0 draws uniformly. They are kept with it applied, so that it stays the same.
        correction: β, of the importance weights: 1 corrects in full.
    """

    exponent: float = 0.6
    correction: float | Linear = Linear(0.4, 1.0)


#: The exponents of that paper's table 3 for proportional prioritisation.
PRIORITIES = Priorities()


class SequenceSampling(NamedTuple):
    """Sequences for recurrent networks (Kapturowski et al. 2019, *Recurrent Experience Replay*, section 3).

    Attributes:
        length: steps that are learned from.
        burn_in: steps before them, which only bring the recurrent state up to date.
        state_size: entries of the recurrent state that is stored with every step.
    """

    length: int
    burn_in: int
    state_size: int

    def rows(self, n_step: int) -> int:
        """``R``, rows of one sequence: its steps, and those after them that ``n_step`` looks ahead to."""
        return self.burn_in + self.length + n_step


def raised(priorities: np.ndarray, exponent: float) -> np.ndarray:
    """Priorities as they are kept, float64: with the exponent applied, and above 0.

    Args:
        priorities: how far transitions were off, |δ|.
        exponent: α.

    Raises:
        FloatingPointError: one is NaN or infinite.
    """
    found = (np.abs(priorities, dtype=np.float64) + SMALLEST) ** exponent
    highest = found.max(initial=0.0)
    if not np.isfinite(highest):
        raise FloatingPointError(
            f'a priority became {highest}: a smaller learning rate or normalised observations and rewards may help.'
        )
    return found


def importance(chances: np.ndarray, correction: float) -> np.ndarray:
    """Importance weights, float32 ``[…, B]``: ``(1 / (N P(i)))^β``, divided by the highest one of the batch.

    Whatever all chances have as a factor, ``N`` among it, cancels out.

    Args:
        chances: ``P(i)`` ``[…, B]``, up to a factor.
        correction: β.
    """
    lowest = chances.min(-1, keepdims=True) if chances.ndim else chances
    return ((lowest / chances) ** correction).astype(np.float32)


class Sampling(NamedTuple):
    """How transitions are drawn.

    Attributes:
        gamma: discount of what follows a step.
        n_step: steps in a row that are drawn as one.
        priorities: drawn by priority; None: uniformly.
        sequences: drawn with the steps around them, for recurrent networks; None: each by itself.
    """

    gamma: float
    n_step: int = 1
    priorities: Priorities | None = None
    sequences: SequenceSampling | None = None
