"""DQN: deep Q-network, with double Q-learning.

Mnih et al. 2015, *Human-level control through deep reinforcement learning* (Nature 518); van Hasselt et al. 2016, *Deep
Reinforcement Learning with Double Q-learning* (arXiv 1509.06461); Wang et al. 2016, *Dueling Network Architectures*
(arXiv 1511.06581).

Departures: Adam in place of RMSProp; the Huber loss, which is the Nature paper's clipping of the error's gradient.
"""

from __future__ import annotations

from typing import Annotated

import tensorflow as tf

from zoo.algorithms.base import Algorithm
from zoo.common import loops, spaces
from zoo.common.acting import EpsilonGreedy, Forward
from zoo.common.adaptors.action import masked
from zoo.common.adaptors.policy import action_value_head, penalized
from zoo.common.optim import polyak
from zoo.common.params import (
    ActionSpace,
    Gamma,
    NetList,
    NormalizeObs,
    ObservationSpace,
    OptimizersList,
    Tau,
    at_least,
    between,
)
from zoo.common.schedules import Linear
from zoo.common.types import Batch

#: The default schedule of exploration.
EPSILON = Linear(1.0, 0.05, until=0.1)


class DQN(Algorithm):
    """Deep Q-network for ``Discrete`` actions."""

    loop = loops.off_policy
    acts_in = ('Discrete',)
    network_names = ('q',)
    optimizer_names = ('q',)
    metric_names = ('q', 'q_mean')

    def __init__(
        self,
        observation_space: ObservationSpace,
        action_space: ActionSpace,
        net_list: NetList = None,
        optimizers_list: OptimizersList = None,
        gamma: Gamma = 0.99,
        double_q: Annotated[bool, 'the network chooses the next action and the target values it'] = True,
        dueling: Annotated[bool, "separate streams for the state's value and the advantages"] = False,
        target_update_every: Annotated[int, at_least(1), 'gradient updates between moves of the target'] = 500,
        tau: Tau = 1.0,
        epsilon: Annotated[float | Linear, between(0, 1), 'probability of a random action in training'] = EPSILON,
        normalize_obs: NormalizeObs = False,
    ) -> None:
        super().__init__(observation_space, action_space, normalize_obs)
        self.gamma = gamma
        self.double_q = double_q
        self.dueling = dueling
        self.target_update_every = target_update_every
        self.tau = tau
        self.epsilon = epsilon

        head = action_value_head(self.action_adaptor.parts[0].counts[0], dueling)
        self.build_networks(net_list, [head], {'hidden': [64, 64], 'activation': 'relu'})
        self.network = self.networks['q']
        self.target = self.build_target('q')
        self.update_count = tf.Variable(0, dtype=tf.int64)
        self.state_variables['update_count'] = self.update_count
        default = {'name': 'Adam', 'learning_rate': 1e-4, 'clip_norm': 10.0}
        self.build_optimizers(optimizers_list, [self.network.trainable_variables], default)
        forward = Forward(self.network, mask_path=self.mask_path)
        self.behavior = EpsilonGreedy(forward, self.action_adaptor, self.mask_path, epsilon)

    def next_value(self, batch: Batch) -> tf.Tensor:
        """max over a′ of Q′(s′, a′); with double Q-learning Q′(s′, argmax Q(s′, ·)) (van Hasselt et al., eq. 4)."""
        target_q = self.allowed(self.target(batch.next_obs), batch.next_obs)
        if not self.double_q:
            return tf.reduce_max(target_q, -1)
        best = tf.argmax(self.allowed(self.network(batch.next_obs), batch.next_obs), -1)
        return tf.reduce_sum(target_q * tf.one_hot(best, target_q.shape[-1]), -1)

    def allowed(self, q: tf.Tensor, obs: spaces.Flat) -> tf.Tensor:
        """Values ``[B, actions]`` with those of forbidden actions out of reach."""
        return q if self.mask_path is None else masked(q, obs[self.mask_path])

    def loss(self, batch: Batch, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """mean Huber(Q(s, a) − y), and the mean of Q(s, a)."""
        q = self.network(batch.obs, training=True)
        chosen = tf.reduce_sum(q * tf.one_hot(batch.action, q.shape[-1]), -1)
        error = tf.abs(chosen - target)
        huber = tf.where(error <= 1.0, 0.5 * tf.square(error), error - 0.5)
        return penalized(tf.reduce_mean(huber), self.network), tf.reduce_mean(chosen)

    def update(self, batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """One gradient step on a batch with fields ``[B, …]``, and a move of the target when it is due."""
        target = tf.stop_gradient(batch.reward + batch.discount * self.next_value(batch))
        with tf.GradientTape() as tape:
            loss, q_mean = self.loss(batch, target)
        optimizer = self.optimizers['q']
        optimizer.apply(tape.gradient(loss, optimizer.variables))
        due = self.update_count.assign_add(1) % self.target_update_every == 0

        def move() -> tf.Tensor:
            polyak(self.target.variables, self.network.variables, self.tau)
            return loss

        return {'q': tf.cond(due, move, lambda: loss), 'q_mean': q_mean}
