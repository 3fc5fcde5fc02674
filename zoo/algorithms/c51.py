"""C51: a categorical distribution of returns for each action.

Bellemare et al. 2017, *A Distributional Perspective on Reinforcement Learning* (arXiv 1707.06887), algorithm 1. The
switches of DQN work here too, combined as by Hessel et al. 2018 (arXiv 1710.02298, section 3): dueling streams of
logits, the next action by the means, priorities by the loss.

Departures: the loss is the Kullback-Leibler divergence. It has the gradient of the paper's cross-entropy, and falls to
0. Streams and noisy layers depart as in DQN.
"""

from __future__ import annotations

import logging
from typing import Annotated

import numpy as np
import tensorflow as tf

from zoo.algorithms.dqn import DQN
from zoo.common.acting.layers import Means
from zoo.common.maths.returns import categorical_projection
from zoo.common.records import Batch
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import Range, at_least

log = logging.getLogger('zoo')


class C51(DQN):
    """Categorical DQN for ``Discrete`` actions: the probabilities of returns at fixed points, the atoms."""

    numbers = 'atoms'
    unused = ('kappa',)
    default_optimizer = {'name': 'Adam', 'learning_rate': 2.5e-4, 'epsilon': 0.01 / 32}

    double_q = False
    atoms: Annotated[int, at_least(2), 'points between v_min and v_max that a return may have'] = 51
    v_min: Annotated[float, Range(), 'the lowest point: the smallest discounted return'] = -10.0
    v_max: Annotated[float, Range(), 'the highest point: the largest discounted return'] = 10.0

    def build(self) -> None:
        if self.v_min >= self.v_max:
            raise InvalidValue(
                f'v_min is {self.v_min:g}, but v_max is {self.v_max:g}: give a smaller v_min or a larger v_max.'
            )
        self.support = np.linspace(self.v_min, self.v_max, self.atoms, dtype=np.float32)
        self._warned = False
        super().build()

    def build_means(self) -> Means:
        """Return Q(s, a) = Σ zᵢ pᵢ(s, a)."""
        return Means(self.atoms, self.support)

    def backup(self, batch: Batch, following: tf.Tensor) -> tf.Tensor:
        """Return the probabilities ``[B, atoms]`` of r + γⁿ z, projected on the atoms: algorithm 1."""
        moved = super().backup(batch, tf.constant(self.support[np.newaxis]))
        return categorical_projection(moved, tf.nn.softmax(following), tf.constant(self.support))

    def see_rewards(self, rewards: np.ndarray) -> None:
        if self._warned:
            return
        low, high = rewards.min(), rewards.max()
        if low < self.v_min or high > self.v_max:
            self._warned = True
            log.warning(
                'Rewards go from %g to %g, but the atoms of returns from v_min=%g to v_max=%g: a return beyond them '
                'counts as the nearest atom, so that good actions and better ones look alike.',
                low,
                high,
                self.v_min,
                self.v_max,
            )

    def losses(self, found: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return KL(m ‖ p) of each transition, also as its priority; m are probabilities, p logits ``[B, atoms]``."""
        loss = tf.reduce_sum(tf.math.xlogy(target, target) - target * tf.nn.log_softmax(found), -1)
        return loss, tf.maximum(loss, 0.0)  # rounding may leave less than 0
