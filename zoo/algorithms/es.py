"""ES: evolution strategies.

Salimans et al. 2017, *Evolution Strategies as a Scalable Alternative to Reinforcement Learning* (arXiv 1703.03864):
algorithm 2, with mirrored sampling, and returns replaced by their centred ranks (section 2), Adam and weight decay
(section 4). Perturbations are known by their seeds, so that seeds and returns alone go from process to process.

Departures: the perturbations of a seed are drawn when they are needed, not looked up in a table of noise that every
process keeps. Returns that are equal share the mean of their ranks, lest their order decide. As in the authors' code
1/σ is left out of the gradient, which Adam would take out again, so that ``weight_decay`` compares with theirs. No
virtual batch normalisation; the authors' running statistics of observations are ``normalize_obs``, of all episodes in
place of some. Actions are deterministic; the authors add noise to those of MuJoCo. An episode is never cut short for
having taken longer than others.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from zoo.algorithms.evolution import Evolution
from zoo.common.records import Evaluations
from zoo.common.tools.params import at_least


class ES(Evolution):
    """Evolution strategies for every action space: the ranks of returns decide which way the parameters go."""

    default_network = {'hidden': [64, 64], 'activation': 'tanh'}
    default_optimizer = {'name': 'Adam', 'learning_rate': 1e-2}
    gain = 0.01

    weight_decay: Annotated[
        float, at_least(0), 'part of the weights that is added to the gradient, which pulls them to zero'
    ] = 0.005

    def build(self) -> None:
        super().build()
        self.decay = self.weight_decay

    def weigh(self, evaluations: Evaluations) -> np.ndarray:
        """(u⁺ − u⁻) / 2P ``[P]``, u the centred ranks of the returns."""
        ranks = centred_ranks(evaluations.returns)
        return (ranks[:, 0] - ranks[:, 1]) / ranks.size


def centred_ranks(x: np.ndarray) -> np.ndarray:
    """Ranks from −0.5 (the smallest) to 0.5, float64 in the shape of ``x``; equal numbers share the mean of theirs."""
    _, which, count = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    rank = (last - 0.5 * (count + 1))[which].reshape(x.shape)
    return rank / (x.size - 1) - 0.5
