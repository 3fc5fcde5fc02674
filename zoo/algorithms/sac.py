"""SAC: soft actor-critic.

Haarnoja et al. 2018, *Soft Actor-Critic Algorithms and Applications* (arXiv 1812.05905): two critics, no state-value
network, the temperature tuned to a target entropy (equations 5, 7 and 18).

Departures: an update of the critics, then the actor, then the temperature on the same batch, as in Spinning Up; the
temperature's loss is written in log α, as in the authors' code.
"""

from __future__ import annotations

import logging
from typing import Annotated, Literal

import numpy as np
import tensorflow as tf

from zoo.algorithms.base import Algorithm
from zoo.common import loops, spaces
from zoo.common.acting import Forward, Stochastic
from zoo.common.adaptors.policy import Network, StochasticPolicy, penalized, stochastic_head, value_head
from zoo.common.optim import polyak
from zoo.common.params import ActionSpace, Gamma, NetList, NormalizeObs, ObservationSpace, OptimizersList, Tau, above
from zoo.common.types import Batch

log = logging.getLogger('zoo')

Alpha = Annotated[float | Literal['auto'], above(0), "the temperature; 'auto' tunes it from 1 to the target entropy"]
TargetEntropy = Annotated[
    float | None, 'in nats; None takes minus the number of action entries (SAC paper, appendix D)'
]


class SAC(Algorithm):
    """Soft actor-critic for bounded ``Box`` actions."""

    loop = loops.off_policy
    acts_in = ('Box',)
    squash = True
    network_names = ('actor', 'critic_1', 'critic_2')
    optimizer_names = ('actor', 'critic', 'alpha')
    metric_names = ('critic', 'actor', 'alpha', 'entropy', 'q')

    def __init__(
        self,
        observation_space: ObservationSpace,
        action_space: ActionSpace,
        net_list: NetList = None,
        optimizers_list: OptimizersList = None,
        gamma: Gamma = 0.99,
        tau: Tau = 0.005,
        alpha: Alpha = 'auto',
        target_entropy: TargetEntropy = None,
        normalize_obs: NormalizeObs = False,
    ) -> None:
        if alpha != 'auto' and target_entropy is not None:
            log.warning('alpha is fixed at %g, so target_entropy=%g changes nothing.', alpha, target_entropy)
        super().__init__(observation_space, action_space, normalize_obs)
        self.gamma = gamma
        self.tau = tau
        self.alpha = alpha
        self.target_entropy = target_entropy

        size = self.action_adaptor.parts[0].size
        critic = value_head(action_size=size)
        heads = [stochastic_head(self.action_adaptor, free_log_std=False), critic, critic]
        self.build_networks(net_list, heads, {'hidden': [256, 256], 'activation': 'relu'})
        self.policy = StochasticPolicy(self.networks['actor'], self.action_adaptor)
        self.critics = [self.networks['critic_1'], self.networks['critic_2']]
        self.targets = self.build_targets()
        self.log_alpha = tf.Variable(0.0 if alpha == 'auto' else float(np.log(alpha)), dtype=tf.float32)
        self.state_variables['log_alpha'] = self.log_alpha
        self._target_entropy = -float(size) if target_entropy is None else float(target_entropy)

        critic_variables = [variable for critic in self.critics for variable in critic.trainable_variables]
        groups = [self.policy.trainable_variables, critic_variables, [self.log_alpha]]
        self.build_optimizers(optimizers_list, groups, {'name': 'Adam', 'learning_rate': 3e-4})
        forward = Forward(self.policy.network, self.policy)
        self.behavior = Stochastic(forward, self.action_adaptor, self.policy.mask_path)

    def build_targets(self) -> list[Network]:
        """The target of each critic."""
        return [self.build_target(name) for name in ('critic_1', 'critic_2')]

    def sample(self, obs: spaces.Flat, seed: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Actions ``[B, n]`` in (−1, 1) and their log-probabilities ``[B]``, by the reparameterisation trick."""
        return self.action_adaptor.distribution.sample_and_log_prob(self.policy(obs, training), seed)

    def critic_target(self, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        """y = r + γ (1 − terminated) (min Q′(s′, a′) − α log π(a′ | s′)), a′ ~ π: equations 3 and 5."""
        next_action, log_prob = self.sample(batch.next_obs, seed)
        next_q = tf.minimum(*(target(batch.next_obs, next_action)[:, 0] for target in self.targets))
        soft_value = next_q - tf.exp(self.log_alpha) * log_prob
        return batch.reward + batch.discount * soft_value

    def critic_loss(self, batch: Batch, target: tf.Tensor) -> tf.Tensor:
        """½ mean (Q(s, a) − y)², summed over both critics: equation 5."""
        errors = [critic(batch.obs, batch.action, training=True)[:, 0] - target for critic in self.critics]
        return penalized(0.5 * tf.add_n([tf.reduce_mean(tf.square(error)) for error in errors]), *self.critics)

    def actor_loss(self, batch: Batch, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """mean (α log π(a | s) − min Q(s, a)), a ~ π: equation 7; also the entropy estimate and the mean value.

        The critics are in inference mode: their statistics are not to learn from actions that the replay does not hold.
        """
        action, log_prob = self.sample(batch.obs, seed, training=True)
        q = tf.minimum(*(critic(batch.obs, action)[:, 0] for critic in self.critics))
        loss = penalized(tf.reduce_mean(tf.exp(self.log_alpha) * log_prob - q), self.policy.network)
        return loss, -tf.reduce_mean(log_prob), tf.reduce_mean(q)

    def alpha_loss(self, entropy: tf.Tensor) -> tf.Tensor:
        """log α (entropy − target entropy): equation 18 with log α for α."""
        return self.log_alpha * tf.stop_gradient(entropy - self._target_entropy)

    def update_actor(self, batch: Batch, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """One gradient step of the actor, and of the temperature by its entropy; what `actor_loss` gave."""
        found: list[tf.Tensor] = []

        def actor_loss() -> tf.Tensor:
            loss, *rest = self.actor_loss(batch, seed)
            found.extend(rest)
            return loss

        loss = self.optimizers['actor'].minimize(actor_loss)
        entropy, q = found
        if self.alpha == 'auto':
            self.optimizers['alpha'].minimize(lambda: self.alpha_loss(entropy))
        return loss, entropy, q

    def update(self, batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """One gradient step of critics, actor and temperature on a batch with fields ``[B, …]``."""
        target = tf.stop_gradient(self.critic_target(batch, seed))
        critic_loss = self.optimizers['critic'].minimize(lambda: self.critic_loss(batch, target))
        actor_loss, entropy, q = self.update_actor(batch, seed + 1)
        for target_network, critic in zip(self.targets, self.critics, strict=True):
            polyak(target_network.variables, critic.variables, self.tau)
        return {
            'critic': critic_loss,
            'actor': actor_loss,
            'alpha': tf.exp(self.log_alpha),
            'entropy': entropy,
            'q': q,
        }
