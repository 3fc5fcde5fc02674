"""MARWIL: monotonic advantage re-weighted imitation learning.

Wang et al. 2018, *Exponentially Weighted Imitation Learning for Batched Historical Data*
(https://proceedings.neurips.cc/paper/2018/hash/4aec1b3435c52abbdf8334ea0e7141e0-Abstract.html), algorithm 1: behavior
cloning in which each action counts by ``exp(β A / c)``. The advantage A is the discounted return to the end of
the episode minus the value of the state, which a critic learns. ``c`` is the root of the moving average of A². With
``beta=0`` every action counts alike: that is behavior cloning, weight by weight.

Departures:

* At the end of an episode that was truncated, or that the data cut, the critic's value stands for the rest.
* Policy and critic are two networks with an optimizer each; the paper's share their first layers and one loss.
* The moving average begins with the first batch and moves by a hundredth in an update (``advantage_rate``).
* A weight is at most ``max_weight``, so that one lucky action does not decide an update.
"""

from __future__ import annotations

import math
from typing import Annotated

import tensorflow as tf

from zoo.algorithms.bc import BC
from zoo.common.networks.heads import Head, value_head
from zoo.common.networks.network import penalized
from zoo.common.parameters import Gamma
from zoo.common.records import Batch
from zoo.common.sampling import Sampling
from zoo.common.tools.params import Range, at_least


class MARWIL(BC):
    """Behavior cloning for every action space in which better actions count more."""

    recurrent = False  # the return of a step reaches beyond the sequence that is drawn
    unused = ('sequence_length', 'burn_in')
    network_names = ('actor', 'critic')
    optimizer_names = ('actor', 'critic')
    metric_names = ('actor', 'log_prob', 'entropy', 'critic', 'value', 'weight')

    gamma: Gamma = 0.99
    beta: Annotated[float, at_least(0), 'β: how much more better actions count; 0 is behavior cloning'] = 1.0
    max_weight: Annotated[float, at_least(1), 'bound of the weight of an action'] = 20.0
    advantage_rate: Annotated[
        float, Range(0, 1, open_low=True), 'how far c², the moving average of A², moves in an update'
    ] = 0.01

    def build(self) -> None:
        self.square = tf.Variable(0.0, trainable=False)  # c²; 0 before the first update
        self.state_variables['square'] = self.square
        super().build()
        self.critic = self.networks['critic']

    def heads(self) -> list[Head]:
        return [*super().heads(), value_head()]

    def groups(self) -> list[list[tf.Variable]]:
        return [*super().groups(), self.networks['critic'].trainable_variables]

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.gamma, to_the_end=True)

    def returns(self, batch: Batch) -> tf.Tensor:
        """Return R ``[B]``: the discounted rewards to the end, and the value of the last state where it is no end."""
        return batch.reward + batch.discount * self.critic(batch.next_obs)[:, 0]

    def weight(self, advantage: tf.Tensor) -> tf.Tensor:
        """Return min(exp(β A / c), w) ``[B]`` for advantages A ``[B]``, and move c²: algorithm 1."""
        mean = tf.reduce_mean(tf.square(advantage))
        moved = self.square + self.advantage_rate * (mean - self.square)
        self.square.assign(tf.where(self.square > 0.0, moved, mean))
        scaled = advantage / (tf.sqrt(self.square) + 1e-8)
        return tf.exp(tf.minimum(self.beta * scaled, math.log(self.max_weight)))

    def critic_loss(self, batch: Batch, returns: tf.Tensor) -> tf.Tensor:
        """Return ½ mean (V(s) − R)²."""
        error = self.critic(batch.obs, training=True)[:, 0] - returns
        return penalized(0.5 * tf.reduce_mean(tf.square(error)), self.critic)

    def update(self, batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make a gradient step of policy and critic on a batch with fields ``[B, …]``."""
        returns, value = tf.stop_gradient(self.returns(batch)), self.critic(batch.obs)[:, 0]
        weight = tf.stop_gradient(self.weight(returns - value))
        metrics = self.update_actor(batch, weight)
        critic_loss = self.optimizers['critic'].minimize(lambda: self.critic_loss(batch, returns))
        return metrics | {'critic': critic_loss, 'value': tf.reduce_mean(value), 'weight': tf.reduce_mean(weight)}
