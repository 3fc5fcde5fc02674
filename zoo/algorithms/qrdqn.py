"""QR-DQN: the quantiles of the distribution of returns for each action.

Dabney et al. 2018, *Distributional Reinforcement Learning with Quantile Regression* (arXiv 1710.10044), algorithm 1.
The switches of DQN work here too. The priority of a transition is the mean of |δ| over all pairs of a quantile of the
network and a quantile of the target.

Departures: streams and noisy layers depart as in DQN.
"""

from __future__ import annotations

from typing import Annotated

import tensorflow as tf

from zoo.algorithms.dqn import DQN
from zoo.common.acting.layers import Means
from zoo.common.maths.quantiles import quantile_huber
from zoo.common.tools.params import at_least


class QRDQN(DQN):
    """Quantile regression DQN for ``Discrete`` actions."""

    numbers = 'quantiles'
    default_optimizer = {'name': 'Adam', 'learning_rate': 5e-5, 'epsilon': 0.01 / 32}

    double_q = False
    quantiles: Annotated[int, at_least(2), 'quantiles of the return of each action'] = 200

    def build_means(self) -> Means:
        """Return Q(s, a) = mean of θᵢ(s, a)."""
        return Means(self.quantiles)

    def losses(self, found: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return Σᵢ meanⱼ ρ(Tθⱼ − θᵢ) and mean |Tθⱼ − θᵢ| of each transition, for quantiles ``[B, n]``.

        ρ is the quantile Huber loss, equation 10: |τᵢ − 1{u < 0}| Lκ(u), with the midpoints τᵢ = (2i + 1) / 2n.
        """
        return quantile_huber(found, target, self.kappa)
