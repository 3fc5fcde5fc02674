"""TD3: twin delayed deep deterministic policy gradient.

Fujimoto et al. 2018, *Addressing Function Approximation Error in Actor-Critic Methods* (arXiv 1802.09477), algorithm 1:
the target takes the smaller of two critics and smooths the target action; the actor moves every other update.
"""

from __future__ import annotations

import logging
from typing import Annotated

import tensorflow as tf

from zoo.algorithms.base import Algorithm
from zoo.common.acting.forward import Forward
from zoo.common.acting.noise import NO_NOISE, GaussianNoise
from zoo.common.maths.distributions import normal_like
from zoo.common.maths.optimizers import polyak
from zoo.common.networks.heads import deterministic_head, value_head
from zoo.common.networks.network import penalized
from zoo.common.parameters import Gamma, NormalizeObs, Tau
from zoo.common.records import Batch
from zoo.common.sampling import Sampling
from zoo.common.tools.params import at_least
from zoo.common.training import loops

log = logging.getLogger('zoo')


class TD3(Algorithm):
    """Twin delayed DDPG for bounded ``Box`` actions. Noise is in the units of [−1, 1], half the range of each entry."""

    loop = loops.off_policy
    acts_in = ('Box',)
    squash = True
    network_names = ('actor', 'critic_1', 'critic_2')
    optimizer_names = ('actor', 'critic')
    metric_names = ('critic', 'actor', 'q')

    default_network = {'hidden': [256, 256], 'activation': 'relu'}
    default_optimizer = {'name': 'Adam', 'learning_rate': 3e-4}

    gamma: Gamma = 0.99
    tau: Tau = 0.005
    policy_delay: Annotated[int, at_least(1), 'updates of the critics for each update of the actor and the targets'] = 2
    explore_noise: Annotated[float, at_least(0), 'deviation of the Gaussian noise on actions while training'] = 0.1
    target_noise: Annotated[float, at_least(0), "deviation of the noise that smooths the target's action"] = 0.2
    noise_clip: Annotated[float, at_least(0), "bound of the noise on the target's action"] = 0.5
    normalize_obs: NormalizeObs = False

    def build(self) -> None:
        """Make the actor and two critics, their targets and optimizers, and exploration by noise."""
        if self.explore_noise == 0.0:
            log.warning(NO_NOISE)
        if self.target_noise == 0.0:
            self.warn_of_unread(('noise_clip',), ' beside target_noise=0')
        elif self.noise_clip == 0.0:
            self.warn_of_unread(('target_noise',), ' beside noise_clip=0')
        size = self.action_adaptor.parts[0].size
        critic = value_head(action_size=size)
        self.build_networks([deterministic_head(size), critic, critic])
        self.actor = self.networks['actor']
        self.critics = [self.networks['critic_1'], self.networks['critic_2']]
        self.target_actor = self.build_target('actor')
        self.target_critics = [self.build_target(name) for name in ('critic_1', 'critic_2')]
        self.phases = self.policy_delay
        self.last_actor_loss = tf.Variable(0.0)
        self.state_variables['last_actor_loss'] = self.last_actor_loss
        critic_variables = [variable for critic in self.critics for variable in critic.trainable_variables]
        self.build_optimizers([self.actor.trainable_variables, critic_variables])
        self.behavior = GaussianNoise(Forward(self.actor), self.action_adaptor, self.explore_noise)

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.gamma)

    def critic_target(self, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        """Return y = r + γ (1 − terminated) min Q′(s′, π′(s′) + clipped noise): algorithm 1, lines 8 and 9."""
        noise = self.target_noise * normal_like(batch.action, seed)
        noise = tf.clip_by_value(noise, -self.noise_clip, self.noise_clip)
        next_action = tf.clip_by_value(self.target_actor(batch.next_obs) + noise, -1.0, 1.0)
        next_q = tf.minimum(*(target(batch.next_obs, next_action)[:, 0] for target in self.target_critics))
        return batch.reward + batch.discount * next_q

    def critic_loss(self, batch: Batch, target: tf.Tensor) -> tf.Tensor:
        """Return mean (Q(s, a) − y)², summed over both critics."""
        errors = [critic(batch.obs, batch.action, training=True)[:, 0] - target for critic in self.critics]
        return penalized(tf.add_n([tf.reduce_mean(tf.square(error)) for error in errors]), *self.critics)

    def actor_loss(self, batch: Batch) -> tf.Tensor:
        """Return −mean Q₁(s, π(s)): the deterministic policy gradient.

        The critic is in inference mode: the replay buffer does not hold these actions, so its statistics stay.
        """
        q = self.critics[0](batch.obs, self.actor(batch.obs, training=True))
        return penalized(-tf.reduce_mean(q), self.actor)

    def update_actor(self, batch: Batch) -> tf.Tensor:
        """Make a gradient step of the actor, and then move all targets; return the loss."""
        loss = self.optimizers['actor'].minimize(lambda: self.actor_loss(batch))
        polyak(self.target_actor.variables, self.actor.variables, self.tau)
        for target, critic in zip(self.target_critics, self.critics, strict=True):
            polyak(target.variables, critic.variables, self.tau)
        return self.last_actor_loss.assign(loss)

    def update(self, batch: Batch, seed: tf.Tensor, phase: int = 0) -> dict[str, tf.Tensor]:
        """Make a gradient step of the critics on a batch with fields ``[B, …]``, and of the actor in the last phase."""
        target = tf.stop_gradient(self.critic_target(batch, seed))
        critic_loss = self.optimizers['critic'].minimize(lambda: self.critic_loss(batch, target))
        due = phase == self.policy_delay - 1
        actor_loss = self.update_actor(batch) if due else self.last_actor_loss.read_value()
        return {'critic': critic_loss, 'actor': actor_loss, 'q': tf.reduce_mean(target)}
