"""ARS: augmented random search.

Mania et al. 2018, *Simple Random Search Provides a Competitive Approach to Reinforcement Learning* (arXiv 1803.07055),
algorithm 2: V1, and with ``normalize_obs`` V2, which normalizes observations by running statistics; with
``top_directions`` V1-t and V2-t. By default the policy is linear and begins at zero.

Departures: the linear policy has a bias; in the paper's V2 the subtracted mean has this effect. The step α/(b σ_R) Σ is
a step of an optimizer with learning rate α, by default plain gradient descent. Where all returns are equal, σ_R is 0
and there is no step. The statistics cover all observations until the last update, also of directions that did not
count, as in the paper. ``alive_bonus_offset`` is what section 4 takes off the rewards of some tasks.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from zoo.algorithms.evolution import Evolution
from zoo.common.records import Evaluations
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import at_least


class ARS(Evolution):
    """Augmented random search for every action space: a linear policy, and the directions that mattered most."""

    default_network = {'hidden': [], 'activation': 'tanh'}
    default_optimizer = {'name': 'SGD', 'learning_rate': 0.02}
    gain = 0.0

    num_directions = 8
    top_directions: Annotated[
        int | None, at_least(1), 'how many perturbations count, the ones with the highest returns; None: all do'
    ] = None
    alive_bonus_offset: Annotated[
        float, 'added to the reward of every step where directions are compared, such as -1 for a bonus of 1'
    ] = 0.0

    def build(self) -> None:
        if self.top_directions is not None and self.top_directions > self.num_directions:
            raise InvalidValue(
                f'top_directions is {self.top_directions}, but there are {self.num_directions} directions '
                '(num_directions): give at most as many.'
            )
        super().build()

    def weigh(self, evaluations: Evaluations) -> np.ndarray:
        """Return (r⁺ − r⁻) / (b σ_R) for the b directions of the largest max(r⁺, r⁻), 0 for others ``[P]``: step 7."""
        returns = evaluations.returns + self.alive_bonus_offset * evaluations.lengths / evaluations.episodes
        best = np.argsort(-returns.max(1), kind='stable')[: self.top_directions]
        spread = returns[best].std()
        weights = np.zeros(len(returns))
        if spread > 0:
            weights[best] = (returns[best, 0] - returns[best, 1]) / (len(best) * spread)
        return weights
