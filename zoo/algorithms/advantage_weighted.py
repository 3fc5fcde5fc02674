"""What IQL and AWAC share: a policy that imitates the actions in the data, the better ones more.

Both choose actions that the data have, and so need no values of any others to improve the policy. They differ in how
they value states. See :mod:`zoo.algorithms.iql` and :mod:`zoo.algorithms.awac`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import tensorflow as tf
from gymnasium.spaces import Discrete

from zoo.algorithms.base import Algorithm, building
from zoo.common import spaces
from zoo.common.acting.forward import Forward
from zoo.common.acting.stochastic import stochastic
from zoo.common.maths.optimizers import polyak
from zoo.common.networks.heads import Head, action_value_head, stochastic_head, value_head
from zoo.common.networks.network import Network, penalized
from zoo.common.networks.policy import StochasticPolicy
from zoo.common.parameters import BURN_IN, SEQUENCE_LENGTH, BurnIn, Gamma, NormalizeObs, SequenceLength, Tau
from zoo.common.records import Batch
from zoo.common.sampling import Sampling, SequenceSampling
from zoo.common.training import loops


class AdvantageWeighted(Algorithm):
    """A stochastic policy and two critics with targets, for bounded ``Box`` actions and for ``Discrete`` ones.

    The actions of a ``Box`` have a Gaussian distribution. Its mean is kept in [−1, 1] by a tanh; its deviation is the
    same in every state. A squashed Gaussian would give actions at the bounds no density.
    """

    loop = loops.offline_to_online
    acts_in = ('Box', 'Discrete')
    bounded = True
    recurrent = True

    default_network = {'hidden': [256, 256], 'activation': 'relu'}
    default_optimizer = {'name': 'Adam', 'learning_rate': 3e-4}

    #: log σ of the Gaussian: at first, and its bounds.
    log_std: ClassVar[float]
    log_std_bounds: ClassVar[tuple[float, float]]

    gamma: Gamma = 0.99
    tau: Tau = 0.005
    sequence_length: SequenceLength = SEQUENCE_LENGTH
    burn_in: BurnIn = BURN_IN
    normalize_obs: NormalizeObs = False

    def build(self) -> None:
        """Make the policy, the critics with their targets, the optimizers, and the behavior policy."""
        self.discrete = isinstance(self.action_space, Discrete)
        part = self.action_adaptor.parts[0]
        policy_head = stochastic_head(self.action_adaptor)
        if not self.discrete:
            policy_head = replace(policy_head, activation='tanh', also_accepts=None)
        critic_head = action_value_head(part.counts[0]) if self.discrete else value_head(action_size=part.size)
        self.build_networks([policy_head, critic_head, critic_head, *self.further_heads()])
        self.policy = StochasticPolicy(self.networks['actor'], self.action_adaptor, self.log_std)
        self.critics = [self.networks['critic_1'], self.networks['critic_2']]
        self.targets = [self.build_target('critic_1'), self.build_target('critic_2')]
        if not self.policy.network.state_size:
            self.warn_of_unread(('sequence_length', 'burn_in'), ', since no network is recurrent')
            building.check_memory(self.networks)

        critic_variables = [variable for critic in self.critics for variable in critic.trainable_variables]
        further = [self.networks[name].trainable_variables for name in self.network_names[3:]]
        self.build_optimizers([self.policy.trainable_variables, critic_variables, *further])
        if self.policy.log_std is not None:
            self.state_variables['log_std'] = self.policy.log_std
            self.optimizers['actor'].constrain([(self.policy.log_std, self.within_bounds)])
        forward = Forward(self.policy.network, self.policy)
        self.behavior = stochastic(forward, self.action_adaptor, self.policy.mask_path)

    def further_heads(self) -> Sequence[Head]:
        """Return the heads of the networks after the policy and the critics."""
        return ()

    def within_bounds(self, log_std: tf.Tensor) -> tf.Tensor:
        return tf.clip_by_value(log_std, *self.log_std_bounds)

    @property
    def sampling(self) -> Sampling:
        state_size = self.behavior.state_size
        sequences = SequenceSampling(self.sequence_length, self.burn_in, state_size) if state_size else None
        return Sampling(self.gamma, sequences=sequences)

    def taken(self, batch: Batch) -> tf.Tensor:
        """Return the actions that the environment took: a sample beyond the bounds was clipped on its way there."""
        return batch.action if self.discrete else tf.clip_by_value(batch.action, -1.0, 1.0)

    def value(self, critic: Network, obs: spaces.Flat, action: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return Q(s, a), ``[B]``."""
        if self.discrete:
            q = critic(obs, training=training)
            return tf.reduce_sum(q * tf.one_hot(action, q.shape[-1]), -1)
        return critic(obs, action, training=training)[:, 0]

    def smaller(self, critics: Sequence[Network], obs: spaces.Flat, action: tf.Tensor) -> tf.Tensor:
        """Return min Q(s, a) over the critics, ``[B]``."""
        return tf.minimum(*(self.value(critic, obs, action) for critic in critics))

    # Losses

    def critic_loss(self, batch: Batch, target: tf.Tensor) -> tf.Tensor:
        """Return mean (Q(s, a) − y)², summed over both critics."""
        errors = [self.value(critic, batch.obs, self.taken(batch), True) - target for critic in self.critics]
        return penalized(tf.add_n([tf.reduce_mean(tf.square(error)) for error in errors]), *self.critics)

    def actor_loss(self, batch: Batch, weight: tf.Tensor) -> tf.Tensor:
        """Return −mean w log π(a | s) for the actions in the data, weights ``[B]``."""
        params = self.policy(batch.obs, training=True)
        log_prob = self.action_adaptor.distribution.log_prob(params, self.taken(batch))
        return penalized(-tf.reduce_mean(weight * log_prob), self.policy.network)

    def move_targets(self) -> None:
        """Move the targets of the critics."""
        for target, critic in zip(self.targets, self.critics, strict=True):
            polyak(target.variables, critic.variables, self.tau)
