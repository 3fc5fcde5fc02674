"""CQL: conservative Q-learning.

Kumar et al. 2020, *Conservative Q-Learning for Offline Reinforcement Learning* (arXiv 2006.04779): SAC whose critics
also learn that actions outside the data are worth less (CQL(H), equation 4). The soft maximum over all actions is
estimated by importance sampling from uniform actions and from the policy's (appendix F); over ``Discrete`` actions it
is exact.

Departures, besides the departures of SAC:

* As in the authors' code (aviralkumar2907/CQL, commit d67dbe9) half of the policy's actions are drawn in the next
  state, the target has no entropy, and squared errors are not halved. So ``conservative_weight`` is twice the α of the
  paper.
* The policy is not trained by behavior cloning at first; the authors' code does so for 40,000 updates.
* The weight is fixed: no Lagrangian variant, which the authors leave out of their settings for MuJoCo's data.
* On ``Discrete`` actions it is discrete SAC that is made conservative; the paper takes QR-DQN.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import tensorflow as tf

from zoo.algorithms.sac import SAC
from zoo.common import spaces
from zoo.common.adaptors.masks import masked
from zoo.common.maths.distributions import split_seed, uniform_like
from zoo.common.maths.optimizers import polyak
from zoo.common.networks.network import Network, penalized
from zoo.common.networks.remembered import repeated
from zoo.common.records import Batch, SequenceBatch
from zoo.common.tools.params import at_least
from zoo.common.training import loops


class Drawn(NamedTuple):
    """Actions of a ``Box`` for each state of a batch, float32 ``[B m, n]``, and their log-densities ``[B, m]``."""

    action: tf.Tensor
    log_prob: tf.Tensor


class CQL(SAC):
    """Conservative Q-learning for bounded ``Box`` actions and ``Discrete`` ones: offline, and from there online."""

    loop = loops.offline_to_online
    metric_names = ('critic', 'actor', 'alpha', 'entropy', 'q', 'gap')
    unused = ('use_sde', 'sde_sample_freq', 'log_std_init')

    conservative_weight: Annotated[
        float, at_least(0), 'how strongly values of actions outside the data are pushed down'
    ] = 5.0
    n_actions: Annotated[
        int,
        at_least(1),
        'actions of a Box of each kind, uniform, of the policy here and in the next state, that '
        'estimate the soft maximum',
    ] = 10
    backup_entropy: Annotated[bool, 'whether the target adds the entropy, as in SAC'] = False

    def build(self) -> None:
        super().build()
        if self.discrete:
            self.warn_of_unread(('n_actions',), ', since the soft maximum over Discrete actions is exact')

    def observations_at_once(self, batches: Batch | SequenceBatch) -> int:
        drawn = 0 if self.discrete else 3 * self.n_actions
        return (1 + drawn) * super().observations_at_once(batches)

    def critic_target(self, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        """Return y = r + γ (1 − terminated) E[min Q′(s′, a′)], with the entropy if asked for."""
        if self.backup_entropy:
            return super().critic_target(batch, seed)
        q, _ = self.expectations(self.targets, batch.next_obs, seed)
        return batch.reward + batch.discount * q

    def drawn(self, batch: Batch, seed: tf.Tensor) -> Drawn:
        """Draw ``m = 3 n_actions`` actions for each state: uniform, and of the policy there and in the next state."""
        uniform, *seeds = split_seed(seed, 3)
        size, count = self.action_adaptor.parts[0].size, self.n_actions
        rows = tf.shape(batch.reward)[0]
        action = 2.0 * uniform_like(tf.zeros([rows * count, size]), uniform) - 1.0
        found = [(action, tf.fill([rows * count], -size * math.log(2.0)))]
        for obs, own in zip((batch.obs, batch.next_obs), seeds, strict=True):
            params = tf.repeat(self.policy(obs), count, 0)
            found.append(self.action_adaptor.distribution.sample_and_log_prob(params, own))
        actions = tf.concat([tf.reshape(action, [rows, count, size]) for action, _ in found], 1)
        log_prob = tf.concat([tf.reshape(log_prob, [rows, count]) for _, log_prob in found], 1)
        return Drawn(tf.reshape(actions, [-1, size]), log_prob)

    def soft_maximum(self, critic: Network, obs: spaces.Flat, drawn: Drawn | None) -> tf.Tensor:
        """Return log Σ exp Q(s, a) over all actions, ``[B]``; for a ``Box`` its estimate plus log m."""
        if drawn is None:
            q, mask_path = critic(obs), self.policy.mask_path
            return tf.reduce_logsumexp(q if mask_path is None else masked(q, obs[mask_path]), -1)
        q = critic(repeated(obs, drawn.log_prob.shape[1]), drawn.action)
        return tf.reduce_logsumexp(tf.reshape(q, tf.shape(drawn.log_prob)) - drawn.log_prob, -1)

    def conservative_loss(self, batch: Batch, target: tf.Tensor, drawn: Drawn | None) -> tuple[tf.Tensor, tf.Tensor]:
        """Return mean (Q(s, a) − y)² + w gap, summed over the critics, and their mean gap: equation 4.

        The gap is mean (log Σ exp Q(s, ·) − Q(s, a)): how much higher values are outside the data.
        """
        losses, gaps = [], []
        for critic in self.critics:
            highest = self.soft_maximum(critic, batch.obs, drawn)
            q = self.taken(critic, batch)  # last: a user's network adds to the loss what its last call found
            gaps.append(tf.reduce_mean(highest - q))
            losses.append(tf.reduce_mean(tf.square(q - target)) + self.conservative_weight * gaps[-1])
        return penalized(tf.add_n(losses), *self.critics), tf.reduce_mean(gaps)

    def update(self, batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make a gradient step of critics, actor and temperature on a batch with fields ``[B, …]``."""
        of_target, of_drawn = split_seed(seed, 2)
        target = self.critic_target(batch, of_target)
        drawn = None if self.discrete else self.drawn(batch, of_drawn)
        gaps: list[tf.Tensor] = []

        def critic_loss() -> tf.Tensor:
            loss, gap = self.conservative_loss(batch, target, drawn)
            gaps.append(gap)
            return loss

        critic_loss_value = self.optimizers['critic'].minimize(critic_loss)
        actor_loss, entropy, q = self.update_actor(batch, seed + 1)
        for target_network, critic in zip(self.targets, self.critics, strict=True):
            polyak(target_network.variables, critic.variables, self.tau)
        return {
            'critic': critic_loss_value,
            'actor': actor_loss,
            'alpha': tf.exp(self.log_alpha),
            'entropy': entropy,
            'q': q,
            'gap': gaps[0],
        }
