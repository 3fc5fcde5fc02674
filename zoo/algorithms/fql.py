"""FQL: flow Q-learning.

Park, Li and Levine 2025, *Flow Q-Learning* (arXiv 2502.02538), algorithm 1. A flow, trained by flow matching, clones
the data, whatever the shape of their distribution. The policy makes an action from noise in one step. It is distilled
from the flow and climbs the critics at the same time, so no gradient goes back through the steps of the flow.

``deterministic=True`` acts from the noise zero, its mode: an action that depends on the observation alone. The paper
draws the noise in tests too, which is ``deterministic=False``.

Departures:

* An update moves the critics, then flow and policy by the critics that have moved; the authors' code (seohongpark/fql,
  commit 719d044) moves all at once.
* In the policy's loss the values are divided by the mean of |Q|, which the authors' code recommends for new tasks; the
  paper does not. So ``alpha`` does not depend on the scale of rewards. The paper's α, from 3 to 1000, belongs to
  ``normalize_q_loss=False``.
* Images are encoded again in each step of the flow.
"""

from __future__ import annotations

from typing import Annotated, Literal

import tensorflow as tf

from zoo.algorithms.base import Algorithm
from zoo.common import spaces
from zoo.common.acting.forward import Forward
from zoo.common.acting.noise import NoiseInput
from zoo.common.maths.distributions import normal_like, split_seed, uniform_like
from zoo.common.maths.optimizers import polyak
from zoo.common.networks.heads import Head, value_head
from zoo.common.networks.network import penalized
from zoo.common.parameters import Gamma, NormalizeObs, Tau
from zoo.common.records import Batch, SequenceBatch
from zoo.common.sampling import Sampling
from zoo.common.tools.params import at_least
from zoo.common.training import loops

#: Smallest mean |Q| that values are divided by.
SMALLEST = 1e-8


class FQL(Algorithm):
    """Flow Q-learning for bounded ``Box`` actions: offline, and from there online."""

    loop = loops.offline_to_online
    acts_in = ('Box',)
    squash = True
    network_names = ('actor', 'flow', 'critic_1', 'critic_2')
    optimizer_names = ('actor', 'flow', 'critic')
    metric_names = ('critic', 'actor', 'flow', 'distill', 'q')

    default_network = {'hidden': [512, 512, 512, 512], 'activation': 'gelu'}
    default_networks = {'critic': {'normalize': 'layer_norm'}}
    default_optimizer = {'name': 'Adam', 'learning_rate': 3e-4}

    gamma: Gamma = 0.99
    tau: Tau = 0.005
    alpha: Annotated[
        float, at_least(0), 'weight of the distillation: how near the policy stays to the data; tune it for each task'
    ] = 1.0
    flow_steps: Annotated[int, at_least(1), 'Euler steps from noise to an action of the flow'] = 10
    q_agg: Annotated[Literal['mean', 'min'], 'what the target takes of the two critics'] = 'mean'
    normalize_q_loss: Annotated[bool, "divide the values in the policy's loss by the mean of |Q|"] = True
    normalize_obs: NormalizeObs = False

    def build(self) -> None:
        """Make policy, flow, and critics with their targets, the optimizers, and acting from noise."""
        size = self.action_adaptor.parts[0].size
        policy = Head(size, f'an action of {size} entries for noise of as many', action_size=size)
        flow = Head(size, f'the velocity of {size} entries for an action and a time', action_size=size + 1)
        critic = value_head(action_size=size)
        self.build_networks([policy, flow, critic, critic])
        self.actor, self.flow, *self.critics = self.networks.values()
        self.targets = [self.build_target(name) for name in ('critic_1', 'critic_2')]
        critic_variables = [variable for critic in self.critics for variable in critic.trainable_variables]
        self.build_optimizers([self.actor.trainable_variables, self.flow.trainable_variables, critic_variables])
        self.behavior = NoiseInput(Forward(self.actor), self.action_adaptor)

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.gamma)

    def observations_at_once(self, batches: Batch | SequenceBatch) -> int:
        return 2 * super().observations_at_once(batches)

    def flow_action(self, obs: spaces.Flat, noise: tf.Tensor) -> tf.Tensor:
        """Return the flow's actions ``[B, n]`` for noise ``[B, n]``, by Euler's method, clipped to the bounds."""
        action = noise
        for i in range(self.flow_steps):
            time = tf.fill([tf.shape(noise)[0], 1], i / self.flow_steps)
            action += self.flow(obs, tf.concat([action, time], -1)) / self.flow_steps
        return tf.clip_by_value(action, -1.0, 1.0)

    # Losses

    def critic_target(self, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        """Return y = r + γ (1 − terminated) Q′(s′, a′), a′ = π(s′, z), z ~ N(0, 1).

        Q′ is the mean of the two targets or the smaller one.
        """
        action = tf.clip_by_value(self.actor(batch.next_obs, normal_like(batch.action, seed)), -1.0, 1.0)
        next_q = [target(batch.next_obs, action)[:, 0] for target in self.targets]
        return batch.reward + batch.discount * (
            tf.minimum(*next_q) if self.q_agg == 'min' else tf.reduce_mean(next_q, 0)
        )

    def critic_loss(self, batch: Batch, target: tf.Tensor) -> tf.Tensor:
        """Return mean (Q(s, a) − y)² over batch and critics: equation 1."""
        errors = [critic(batch.obs, batch.action, training=True)[:, 0] - target for critic in self.critics]
        return penalized(tf.reduce_mean(tf.square(errors)), *self.critics)

    def flow_loss(self, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        """Return mean (v(t, s, xₜ) − (a − z))², xₜ = (1 − t) z + t a, z ~ N(0, 1), t ~ U(0, 1): flow matching."""
        of_noise, of_time = split_seed(seed, 2)
        noise = normal_like(batch.action, of_noise)
        time = uniform_like(batch.action[:, :1], of_time)
        between = (1.0 - time) * noise + time * batch.action
        velocity = self.flow(batch.obs, tf.concat([between, time], -1), training=True)
        return penalized(tf.reduce_mean(tf.square(velocity - (batch.action - noise))), self.flow)

    def actor_loss(self, batch: Batch, noise: tf.Tensor, aim: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return α mean (π(s, z) − a_flow)² − mean Q(s, π(s, z)), and the first mean alone.

        Args:
            batch: fields ``[B, …]``.
            noise: z ``[B, n]``.
            aim: the flow's actions for this noise ``[B, n]``.
        """
        action = self.actor(batch.obs, noise, training=True)
        distill = tf.reduce_mean(tf.square(action - aim))
        inside = tf.clip_by_value(action, -1.0, 1.0)
        q = tf.reduce_mean([critic(batch.obs, inside)[:, 0] for critic in self.critics], 0)
        climb = tf.reduce_mean(q)
        if self.normalize_q_loss:
            climb /= tf.maximum(tf.reduce_mean(tf.abs(tf.stop_gradient(q))), SMALLEST)
        return penalized(self.alpha * distill - climb, self.actor), distill

    def update(self, batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make a gradient step of critics, flow and policy on a batch with fields ``[B, …]``."""
        of_target, of_flow, of_noise = split_seed(seed, 3)
        target = self.critic_target(batch, of_target)
        critic_loss = self.optimizers['critic'].minimize(lambda: self.critic_loss(batch, target))
        noise = normal_like(batch.action, of_noise)
        aim = self.flow_action(batch.obs, noise)
        flow_loss = self.optimizers['flow'].minimize(lambda: self.flow_loss(batch, of_flow))
        distills: list[tf.Tensor] = []

        def actor_loss() -> tf.Tensor:
            loss, distill = self.actor_loss(batch, noise, aim)
            distills.append(distill)
            return loss

        actor_loss_value = self.optimizers['actor'].minimize(actor_loss)
        for target_network, critic in zip(self.targets, self.critics, strict=True):
            polyak(target_network.variables, critic.variables, self.tau)
        return {
            'critic': critic_loss,
            'actor': actor_loss_value,
            'flow': flow_loss,
            'distill': distills[0],
            'q': tf.reduce_mean(target),
        }
