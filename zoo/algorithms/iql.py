"""IQL: implicit Q-learning.

Kostrikov et al. 2021, *Offline Reinforcement Learning with Implicit Q-Learning* (arXiv 2110.06169): a state is worth an
upper expectile of the values of the actions in the data (equation 5). So no action outside the data is ever valued. The
policy is extracted by advantage-weighted regression (equation 7).

Departures:

* As in the authors' code (ikostrikov/implicit_q_learning, commit 09d7002) an update moves the state values, then the
  policy, then the critics; weights are at most 100; log σ is one number for each entry of the action, in [−5, 2].
* The actor's learning rate is constant here and falls linearly in the default tables; the authors' falls by a cosine.
* Rewards are not rescaled. The authors divide rewards of MuJoCo by the range of returns in the dataset. The default
  tables have a smaller β for MuJoCo instead.
* On ``Discrete`` actions, which the paper leaves out, a critic gives the values of all actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import tensorflow as tf

from zoo.algorithms.advantage_weighted import AdvantageWeighted
from zoo.common.networks.heads import Head, value_head
from zoo.common.networks.network import penalized
from zoo.common.records import Batch
from zoo.common.tools.params import Range, at_least

#: Bound of the weights of actions.
MOST_WEIGHT = 100.0


class IQL(AdvantageWeighted):
    """Implicit Q-learning for bounded ``Box`` actions and for ``Discrete`` ones: offline, and from there online."""

    network_names = ('actor', 'critic_1', 'critic_2', 'value')
    optimizer_names = ('actor', 'critic', 'value')
    metric_names = ('critic', 'value', 'actor', 'q', 'weight')

    log_std = 0.0
    log_std_bounds = (-5.0, 2.0)

    expectile: Annotated[
        float,
        Range(0, 1, open_low=True, open_high=True),
        'τ, which expectile of the values of actions a state is worth: 0.5 is the mean, near 1 the best',
    ] = 0.7
    beta: Annotated[float, at_least(0), 'inverse temperature of the weights exp(β advantage); 0 clones the data'] = 3.0

    def further_heads(self) -> Sequence[Head]:
        return (value_head(),)

    def value_loss(self, batch: Batch, q: tf.Tensor) -> tf.Tensor:
        """Return mean |τ − 1(u < 0)| u², u = Q′(s, a) − V(s): equation 5."""
        error = q - self.networks['value'](batch.obs, training=True)[:, 0]
        weight = tf.where(error > 0.0, self.expectile, 1.0 - self.expectile)
        return penalized(tf.reduce_mean(weight * tf.square(error)), self.networks['value'])

    def critic_target(self, batch: Batch) -> tf.Tensor:
        """Return y = r + γ (1 − terminated) V(s′): equation 6."""
        return batch.reward + batch.discount * self.networks['value'](batch.next_obs)[:, 0]

    def update(self, batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make a gradient step of state values, policy and critics on a batch with fields ``[B, …]``."""
        q = self.smaller(self.targets, batch.obs, self.taken(batch))
        value_loss = self.optimizers['value'].minimize(lambda: self.value_loss(batch, q))
        advantage = q - self.networks['value'](batch.obs)[:, 0]
        weight = tf.minimum(tf.exp(self.beta * advantage), MOST_WEIGHT)
        actor_loss = self.optimizers['actor'].minimize(lambda: self.actor_loss(batch, weight))
        target = self.critic_target(batch)
        critic_loss = self.optimizers['critic'].minimize(lambda: self.critic_loss(batch, target))
        self.move_targets()
        return {
            'critic': critic_loss,
            'value': value_loss,
            'actor': actor_loss,
            'q': tf.reduce_mean(target),
            'weight': tf.reduce_mean(weight),
        }
