"""BC: behavior cloning.

Pomerleau 1989, *ALVINN: An Autonomous Land Vehicle in a Neural Network*
(https://proceedings.neurips.cc/paper/1988/hash/812b4ba287f5ee0bc9d43bbf5bbe87fb-Abstract.html): a policy is fitted to
observations and the right actions by supervised learning. Rewards are not read.

``loss='log_likelihood'`` maximizes the log-probability of the recorded actions, for every action space. ``loss='mse'``
moves the means of ``Box`` actions by squared errors instead. An entry counts in half of its range, whatever the spread
of the policy. The likelihood then moves the spread alone, and parts of the action that are no ``Box``.

Departures: the policy is a distribution, learned by Adam on minibatches. ALVINN has one output unit for each of 45
directions, learned by squared errors. Its roads were simulated.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import tensorflow as tf

from zoo.algorithms.base import Algorithm
from zoo.common import spaces
from zoo.common.acting.forward import Forward
from zoo.common.acting.stochastic import stochastic
from zoo.common.networks.heads import Head, stochastic_head
from zoo.common.networks.network import penalized
from zoo.common.networks.policy import StochasticPolicy
from zoo.common.parameters import BURN_IN, SEQUENCE_LENGTH, BurnIn, NormalizeObs, SequenceLength
from zoo.common.records import Batch
from zoo.common.sampling import Sampling, SequenceSampling
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import between
from zoo.common.training import loops

log = logging.getLogger('zoo')


class BC(Algorithm):
    """Behavior cloning for every action space: supervised learning of recorded actions."""

    loop = loops.offline
    recurrent = True
    acts_in = ('Discrete', 'MultiDiscrete', 'MultiBinary', 'Box', 'Dict', 'Tuple')
    network_names: ClassVar[tuple[str, ...]] = ('actor',)
    optimizer_names: ClassVar[tuple[str, ...]] = ('actor',)
    metric_names: ClassVar[tuple[str, ...]] = ('actor', 'log_prob', 'entropy')

    default_network = {'hidden': [256, 256], 'activation': 'relu'}
    default_optimizer = {'name': 'Adam', 'learning_rate': 1e-3}

    loss: Annotated[
        Literal['log_likelihood', 'mse'],
        'what is minimized: −log π of the recorded actions, or for a Box the squared error of its mean',
    ] = 'log_likelihood'
    log_std_init: Annotated[float, between(-20, 2), 'initial log standard deviation for Box actions'] = 0.0
    sequence_length: SequenceLength = SEQUENCE_LENGTH
    burn_in: BurnIn = BURN_IN
    normalize_obs: NormalizeObs = False

    def build(self) -> None:
        """Make the networks, their optimizers, and the behavior policy."""
        parts = self.action_adaptor.parts
        if not any(part.kind == 'gaussian' for part in parts):
            self.warn_of_unread(('log_std_init',), ', since no action is a Box')
            if self.loss == 'mse':
                raise InvalidValue(
                    f"loss='mse' is for Box actions, and {spaces.describe(self.action_space)} has none: give "
                    "loss='log_likelihood'."
                )
        self.build_networks(self.heads())
        self.policy = StochasticPolicy(self.networks['actor'], self.action_adaptor, self.log_std_init)
        if not self.policy.network.state_size:
            self.warn_of_unread(('sequence_length', 'burn_in'), ', since no network is recurrent')
        if self.policy.log_std is not None:
            self.state_variables['log_std'] = self.policy.log_std
        # Which of the policy's parameters are means of a Box, bool [param_size].
        self.is_mean = np.concatenate(
            [(np.arange(part.param_size) < part.size) & (part.kind == 'gaussian') for part in parts]
        )
        self.build_optimizers(self.groups())
        forward = Forward(self.policy.network, self.policy)
        self.behavior = stochastic(forward, self.action_adaptor, self.policy.mask_path)

    def heads(self) -> list[Head]:
        """Return the head of each network."""
        return [stochastic_head(self.action_adaptor)]

    def groups(self) -> list[list[tf.Variable]]:
        """Return the variables that each optimizer moves."""
        return [self.policy.trainable_variables]

    @property
    def sampling(self) -> Sampling:
        state_size = self.behavior.state_size
        sequences = SequenceSampling(self.sequence_length, self.burn_in, state_size) if state_size else None
        return Sampling(1.0, sequences=sequences)

    def error(self, params: tf.Tensor, action: spaces.Flat, log_prob: tf.Tensor) -> tf.Tensor:
        """Return what is minimized for each transition, ``[B]``.

        It is −log π(a | s). With ``loss='mse'`` it is the squared error of the means, summed over the entries of every
        ``Box``, minus the log-probability without its gradient with respect to the means.

        Args:
            params: parameters of the policy's distribution ``[B, param_size]``.
            action: the recorded actions ``[B, …]``.
            log_prob: log π(a | s) ``[B]``.
        """
        if self.loss == 'log_likelihood':
            return -log_prob
        given = dict(spaces.tree_items(action))
        wanted = tf.concat([given[part.path] for part in self.action_adaptor.parts if part.kind == 'gaussian'], -1)
        means = tf.gather(params, np.flatnonzero(self.is_mean), axis=1)
        squares = tf.reduce_sum(tf.square(means - wanted), -1)
        fixed = tf.where(self.is_mean, tf.stop_gradient(params), params)
        return squares - self.action_adaptor.distribution.log_prob(fixed, action)

    def actor_loss(self, batch: Batch, weight: tf.Tensor | float) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return the mean `error`, each times its weight ``[B]``; the mean log-probability and the mean entropy."""
        distribution: Any = self.action_adaptor.distribution  # a distribution that is not squashed has an entropy
        params = self.policy(batch.obs, training=True)
        log_prob = distribution.log_prob(params, batch.action)
        loss = tf.reduce_mean(weight * self.error(params, batch.action, log_prob))
        entropy = tf.reduce_mean(distribution.entropy(params))
        return penalized(loss, self.policy.network), tf.reduce_mean(log_prob), entropy

    def update_actor(self, batch: Batch, weight: tf.Tensor | float = 1.0) -> dict[str, tf.Tensor]:
        """Make a gradient step of the policy, and return its metrics."""
        found: list[tf.Tensor] = []

        def actor_loss() -> tf.Tensor:
            loss, *rest = self.actor_loss(batch, weight)
            found.extend(rest)
            return loss

        loss = self.optimizers['actor'].minimize(actor_loss)
        return {'actor': loss, 'log_prob': found[0], 'entropy': found[1]}

    def update(self, batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make a gradient step of the policy on a batch with fields ``[B, …]``."""
        return self.update_actor(batch)
