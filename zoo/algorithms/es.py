"""ES: evolution strategies.

Salimans et al. 2017, *Evolution Strategies as a Scalable Alternative to Reinforcement Learning* (arXiv 1703.03864):
algorithm 2 with mirrored sampling and centered ranks in place of returns (section 2), Adam and weight decay (section
4). Perturbations are known by their seeds, so only seeds and returns go from process to process.

Departures: a perturbation is drawn from its seed when it is needed; in the paper every process looks it up in a table
of noise. Equal returns share the mean of their ranks, so that their order does not matter. As in the authors' code the
gradient has no factor 1/σ, which Adam would cancel, so that ``weight_decay`` compares with theirs. There is no virtual
batch normalization; ``normalize_obs`` stands for the authors' running statistics, from all episodes in place of some.
Actions are deterministic; the authors add noise in MuJoCo. Long episodes are never cut short.
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
        """Return (u⁺ − u⁻) / 2P ``[P]``, u the centered ranks of the returns."""
        ranks = centered_ranks(evaluations.returns)
        return (ranks[:, 0] - ranks[:, 1]) / ranks.size


def centered_ranks(x: np.ndarray) -> np.ndarray:
    """Return ranks from −0.5 (smallest) to 0.5, float64 in the shape of ``x``; equal numbers share their mean rank."""
    _, which, count = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    rank = (last - 0.5 * (count + 1))[which].reshape(x.shape)
    return rank / (x.size - 1) - 0.5
