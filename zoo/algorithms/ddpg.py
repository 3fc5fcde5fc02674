"""DDPG: deep deterministic policy gradient.

Lillicrap et al. 2016, *Continuous Control with Deep Reinforcement Learning* (arXiv 1509.02971), algorithm 1. Two
options, off by default, come from the learner of Ape-X DDPG (Horgan et al. 2018, arXiv 1803.00933) and from D4PG:
``n_step``, returns of several steps, and ``prioritized``, transitions drawn by |δ| (Schaul et al. 2016, arXiv
1511.05952).

Departures: no batch normalization and no weight decay. An action joins the observation in the first layer of the
critic, not in the second. The last layers are initialized like the others. Noise is Gaussian by default; the paper's
Ornstein-Uhlenbeck process is an option.
"""

from __future__ import annotations

import logging
from typing import Annotated, Literal

import tensorflow as tf

from zoo.algorithms.base import Algorithm
from zoo.common.acting.forward import Forward
from zoo.common.acting.noise import NO_NOISE, GaussianNoise, OrnsteinUhlenbeck
from zoo.common.maths.optimizers import polyak
from zoo.common.networks.heads import deterministic_head, value_head
from zoo.common.networks.network import penalized
from zoo.common.parameters import (
    Gamma,
    NormalizeObs,
    NStep,
    Prioritized,
    PriorityAlpha,
    PriorityBeta,
    Tau,
)
from zoo.common.records import Batch
from zoo.common.sampling import PRIORITIES, Priorities, Sampling
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import above, at_least
from zoo.common.training import loops

log = logging.getLogger('zoo')


class DDPG(Algorithm):
    """Deep deterministic policy gradient for bounded ``Box`` actions.

    Noise is in the units of [−1, 1], half the range of each entry.
    """

    loop = loops.off_policy
    acts_in = ('Box',)
    squash = True
    network_names = ('actor', 'critic')
    optimizer_names = ('actor', 'critic')
    metric_names = ('critic', 'actor', 'q')

    default_network = {'hidden': [256, 256], 'activation': 'relu'}
    default_optimizer = {'name': 'Adam', 'learning_rate': 1e-3}

    gamma: Gamma = 0.99
    tau: Tau = 0.005
    explore_noise: Annotated[float, at_least(0), 'σ of the noise on actions while training'] = 0.1
    noise: Annotated[
        Literal['gaussian', 'ornstein_uhlenbeck'],
        'kind of the noise: new in every step, or a process along each episode',
    ] = 'gaussian'
    theta: Annotated[float, above(0), 'how fast an Ornstein-Uhlenbeck process returns to 0'] = 0.15
    dt: Annotated[float, above(0), 'time of one step of an Ornstein-Uhlenbeck process'] = 0.01
    n_step: NStep = 1
    prioritized: Prioritized = False
    priority_alpha: PriorityAlpha = PRIORITIES.exponent
    priority_beta: PriorityBeta = PRIORITIES.correction
    normalize_obs: NormalizeObs = False

    def build(self) -> None:
        """Make actor and critic, their targets and optimizers, and exploration by noise."""
        if self.theta * self.dt >= 2.0:
            raise InvalidValue(
                f'theta · dt is {self.theta * self.dt:g}, with which the process grows without end: give less than 2.'
            )
        if self.explore_noise == 0.0:
            log.warning(NO_NOISE)
            self.warn_of_unread(('noise', 'theta', 'dt', 'noise_exponent'), ' beside explore_noise=0')
        elif self.noise != 'ornstein_uhlenbeck':
            self.warn_of_unread(('theta', 'dt'), " without noise='ornstein_uhlenbeck'")
        self.warn_of_unread_priorities()

        size = self.action_adaptor.parts[0].size
        self.build_networks([deterministic_head(size), value_head(action_size=size)])
        self.actor, self.critic = self.networks['actor'], self.networks['critic']
        self.target_actor, self.target_critic = self.build_target('actor'), self.build_target('critic')
        self.build_optimizers([self.actor.trainable_variables, self.critic.trainable_variables])
        self.build_behavior(Forward(self.actor))

    def build_behavior(self, forward: Forward) -> None:
        """Set ``behavior``, how the agent explores."""
        self.behavior = GaussianNoise(forward, self.action_adaptor, self.explore_noise)
        if self.noise == 'ornstein_uhlenbeck':
            self.behavior = OrnsteinUhlenbeck(forward, self.action_adaptor, self.explore_noise, self.theta, self.dt)

    @property
    def sampling(self) -> Sampling:
        priorities = Priorities(self.priority_alpha, self.priority_beta) if self.prioritized else None
        return Sampling(self.gamma, self.n_step, priorities)

    def critic_target(self, batch: Batch) -> tf.Tensor:
        """Return y = r + γ (1 − terminated) Q′(s′, π′(s′)); with n steps Σ γⁱ rᵢ + γⁿ (1 − terminated) Q′."""
        next_q = self.target_critic(batch.next_obs, self.target_actor(batch.next_obs))[:, 0]
        return batch.reward + batch.discount * next_q

    def critic_loss(self, batch: Batch, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return mean w (Q(s, a) − y)², w the importance weights; and |Q(s, a) − y| of each transition ``[B]``."""
        error = self.critic(batch.obs, batch.action, training=True)[:, 0] - target
        return penalized(tf.reduce_mean(batch.weight * tf.square(error)), self.critic), tf.abs(error)

    def actor_loss(self, batch: Batch) -> tf.Tensor:
        """Return −mean w Q(s, π(s)): equation 6.

        The critic is in inference mode: the replay buffer does not hold these actions, so its statistics stay.
        """
        q = self.critic(batch.obs, self.actor(batch.obs, training=True))[:, 0]
        return penalized(-tf.reduce_mean(batch.weight * q), self.actor)

    def update(self, batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make a gradient step of critic and actor on a batch with fields ``[B, …]``, and move the targets."""
        target = tf.stop_gradient(self.critic_target(batch))
        found: list[tf.Tensor] = []

        def critic_loss() -> tf.Tensor:
            loss, priority = self.critic_loss(batch, target)
            found.append(priority)
            return loss

        critic_loss_value = self.optimizers['critic'].minimize(critic_loss)
        actor_loss = self.optimizers['actor'].minimize(lambda: self.actor_loss(batch))
        for target_network, network in ((self.target_actor, self.actor), (self.target_critic, self.critic)):
            polyak(target_network.variables, network.variables, self.tau)
        return {'critic': critic_loss_value, 'actor': actor_loss, 'q': tf.reduce_mean(target), 'priority': found[0]}
