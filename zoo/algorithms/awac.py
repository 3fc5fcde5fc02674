"""AWAC: advantage-weighted actor-critic.

Nair et al. 2020, *AWAC: Accelerating Online Reinforcement Learning with Offline Datasets* (arXiv 2006.09359): critics
value the current policy; the policy imitates the actions in the data, weighted by the exponential of their advantage
(equation 13, algorithm 1).

Departures:

* As in the authors' code (rlkit, commit ac45a9d) the weights are a softmax over the batch times its size, so that their
  mean is 1; the paper has exp(A / λ) itself.
* log σ is one number for each entry of the action, kept in [−6, 0] after every step; the authors' is a sigmoid of it.
  No weight decay: it is an option of the optimizer.
* An update moves the critics, then the policy by the critics that have moved.
* On ``Discrete`` actions, which the paper leaves out, expectations are sums over all actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import tensorflow as tf

from zoo.algorithms.advantage_weighted import AdvantageWeighted
from zoo.common import spaces
from zoo.common.networks.network import Network
from zoo.common.records import Batch
from zoo.common.tools.params import above


class AWAC(AdvantageWeighted):
    """Advantage-weighted actor-critic for bounded ``Box`` actions and for ``Discrete`` ones: offline and online."""

    network_names = ('actor', 'critic_1', 'critic_2')
    optimizer_names = ('actor', 'critic')
    metric_names = ('critic', 'actor', 'q', 'advantage')

    log_std = -3.0
    log_std_bounds = (-6.0, 0.0)

    lam: Annotated[float, above(0), 'λ, temperature of the weights exp(advantage / λ); a large one clones the data'] = (
        1.0
    )

    def expected(self, critics: Sequence[Network], obs: spaces.Flat, seed: tf.Tensor) -> tf.Tensor:
        """Return E[min Q(s, a)], a ~ π(· | s), ``[B]``: estimated by one action of a Box, summed over a Discrete."""
        params = self.policy(obs)
        if self.discrete:
            q = tf.reduce_min([critic(obs) for critic in critics], 0)
            return tf.reduce_sum(tf.nn.softmax(params) * q, -1)
        action = self.action_adaptor.distribution.sample(params, seed)
        return self.smaller(critics, obs, tf.clip_by_value(action, -1.0, 1.0))

    def critic_target(self, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        """Return y = r + γ (1 − terminated) E[min Q′(s′, a′)]."""
        return batch.reward + batch.discount * self.expected(self.targets, batch.next_obs, seed)

    def advantage(self, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        """Return A(s, a) = min Q(s, a) − E[min Q(s, a′)] for the actions in the data, ``[B]``."""
        return self.smaller(self.critics, batch.obs, self.taken(batch)) - self.expected(self.critics, batch.obs, seed)

    def update(self, batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make a gradient step of critics and policy on a batch with fields ``[B, …]``."""
        target = self.critic_target(batch, seed)
        critic_loss = self.optimizers['critic'].minimize(lambda: self.critic_loss(batch, target))
        advantage = self.advantage(batch, seed + 1)
        weight = tf.nn.softmax(advantage / self.lam) * tf.cast(tf.shape(advantage)[0], tf.float32)
        actor_loss = self.optimizers['actor'].minimize(lambda: self.actor_loss(batch, weight))
        self.move_targets()
        return {
            'critic': critic_loss,
            'actor': actor_loss,
            'q': tf.reduce_mean(target),
            'advantage': tf.reduce_mean(advantage),
        }
