"""SAC: soft actor-critic.

Haarnoja et al. 2018, *Soft Actor-Critic Algorithms and Applications* (arXiv 1812.05905): two critics, no state-value
network, the temperature tuned to a target entropy (equations 5, 7 and 18). On ``Discrete`` actions: Christodoulou 2019,
*Soft Actor-Critic for Discrete Action Settings* (arXiv 1910.07207). There a critic gives the value of every action, and
expectations are sums over all actions in place of estimates from one (its equations 10 to 12).

Departures:

* An update moves the critics, then the actor, then the temperature on the same batch, as in Spinning Up. The
  temperature's loss is written in log α, as in the authors' code.
* On ``Discrete`` actions the target entropy is half of the greatest possible; Christodoulou takes 0.98 of it. So near
  to a uniform policy the temperature grows without end as soon as one action is better (Xu et al. 2021, *Target Entropy
  Annealing for Discrete Soft Actor-Critic*, arXiv 2112.02852; they lower it during training).
* The additions of Zhou et al. 2022, *Revisiting Discrete Soft Actor-Critic* (arXiv 2209.10081), are left out: the mean
  of both critics, clipped steps of the critics, a penalty on a policy whose entropy changes.
* ``use_sde`` is the state-dependent exploration of Raffin et al. 2020 (arXiv 2005.05719). Only acting keeps a matrix of
  noise. An update draws each action from the Gaussian of the implied variance; the authors' code draws the actions of a
  batch from one matrix. Means are not clipped, since log-probabilities are computed before the tanh.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
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
from zoo.common.parameters import (
    BURN_IN,
    SEQUENCE_LENGTH,
    BurnIn,
    Gamma,
    NormalizeObs,
    SdeSampleFreq,
    SequenceLength,
    Tau,
    UseSde,
)
from zoo.common.records import Batch
from zoo.common.sampling import Sampling, SequenceSampling
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import above, between
from zoo.common.training import loops

log = logging.getLogger('zoo')

#: The default target entropy for ``Discrete``, as a part of the greatest.
PART_OF_ENTROPY = 0.5


class SAC(Algorithm):
    """Soft actor-critic for bounded ``Box`` actions and for ``Discrete`` ones."""

    loop = loops.off_policy
    recurrent = True
    acts_in: ClassVar[tuple[str, ...]] = ('Box', 'Discrete')
    squash = True
    network_names: ClassVar[tuple[str, ...]] = ('actor', 'critic_1', 'critic_2')
    optimizer_names = ('actor', 'critic', 'alpha')
    metric_names: ClassVar[tuple[str, ...]] = ('critic', 'actor', 'alpha', 'entropy', 'q')

    default_network = {'hidden': [256, 256], 'activation': 'relu'}
    default_optimizer = {'name': 'Adam', 'learning_rate': 3e-4}

    gamma: Gamma = 0.99
    tau: Tau = 0.005
    alpha: Annotated[
        float | Literal['auto'], above(0), "the temperature; 'auto' tunes it from 1 to the target entropy"
    ] = 'auto'
    target_entropy: Annotated[
        float | None,
        'in nats, of a Box in units of [−1, 1]; None takes minus the number of entries of a Box (SAC paper, appendix '
        'D), or half of the greatest entropy of a Discrete; a state that forbids actions has a smaller target, by the '
        'logarithm of the number of allowed actions',
    ] = None
    sequence_length: SequenceLength = SEQUENCE_LENGTH
    burn_in: BurnIn = BURN_IN
    use_sde: UseSde = False
    sde_sample_freq: SdeSampleFreq = None
    log_std_init: Annotated[float, between(-20, 2), 'initial log σ of state-dependent exploration'] = -3.0
    normalize_obs: NormalizeObs = False

    def build(self) -> None:
        """Make the actor, the critics with their targets, the temperature, the optimizers, and the behavior policy."""
        if self.alpha != 'auto' and self.target_entropy is not None:
            log.warning('alpha is fixed at %g, so target_entropy=%g changes nothing.', self.alpha, self.target_entropy)
        if not self.use_sde:
            self.warn_of_unread(('sde_sample_freq', 'log_std_init'), ' without use_sde=True')

        self.discrete = isinstance(self.action_space, Discrete)
        critics = self.network_names[1:]
        policy_head = stochastic_head(self.action_adaptor, free_log_std=self.use_sde)
        self.build_networks([policy_head, *[self.critic_head()] * len(critics)])
        log_std = self.log_std_init if self.use_sde else 0.0
        self.policy = StochasticPolicy(self.networks['actor'], self.action_adaptor, log_std, self.use_sde)
        if self.policy.log_std is not None:
            self.state_variables['log_std'] = self.policy.log_std
        self.critics = [self.networks[name] for name in critics]
        if not self.policy.network.state_size:
            self.warn_of_unread(('sequence_length', 'burn_in'), ', since no network is recurrent')
            building.check_memory(self.networks)
        self.targets = self.build_targets()
        fixed = self.alpha != 'auto'
        self.log_alpha = tf.Variable(float(np.log(self.alpha)) if fixed else 0.0, dtype=tf.float32, trainable=not fixed)
        self.state_variables['log_alpha'] = self.log_alpha
        self._target_entropy = self._checked_entropy()

        critic_variables = [variable for critic in self.critics for variable in critic.trainable_variables]
        self.build_optimizers([self.policy.trainable_variables, critic_variables, [self.log_alpha]])
        forward = Forward(self.policy.network, self.policy)
        self.behavior = stochastic(forward, self.action_adaptor, self.policy.mask_path, self.sde_sample_freq)

    @property
    def sampling(self) -> Sampling:
        state_size = self.behavior.state_size
        sequences = SequenceSampling(self.sequence_length, self.burn_in, state_size) if state_size else None
        return Sampling(self.gamma, sequences=sequences)

    def _checked_entropy(self) -> float:
        """Return the target entropy, in nats.

        Raises:
            ValueError: no policy over this number of actions has the entropy that was given.
        """
        target, part = self.target_entropy, self.action_adaptor.parts[0]
        if not self.discrete:
            greatest = part.size * math.log(2.0)  # of the uniform distribution over [−1, 1]ⁿ
            if target is not None and target >= greatest:
                raise InvalidValue(
                    f'target_entropy is {target:g}, but the greatest entropy of actions in [-1, 1] is {greatest:.5g}, '
                    f'{part.size} times log 2, when all are alike: give less, such as {-part.size}.'
                )
            return -float(part.size) if target is None else float(target)
        actions = part.counts[0]
        greatest = math.log(actions)
        if target is None:
            return PART_OF_ENTROPY * greatest
        if target < 0:
            raise InvalidValue(
                f'target_entropy is {target:g}, but a policy over {actions} actions has an entropy of 0 to '
                f'{greatest:.5g}: give one of these. (Minus the number of entries is for Box actions.)'
            )
        if target >= greatest:
            raise InvalidValue(
                f'target_entropy is {target:g}, but the greatest entropy of a policy over {actions} actions is '
                f'{greatest:.5g}, when all are alike: give less.'
            )
        return float(target)

    def critic_head(self) -> Head:
        """Return what a critic has to give: Q(s, a), or Q(s, ·) for ``Discrete`` actions."""
        part = self.action_adaptor.parts[0]
        return action_value_head(part.counts[0]) if self.discrete else value_head(action_size=part.size)

    def build_targets(self) -> list[Network]:
        """Return the target of each critic."""
        return [self.build_target(name) for name in self.network_names[1:]]

    # Expectations over π: estimated by one action of a Box, summed over all actions of a Discrete

    def expectations(
        self, critics: Sequence[Network], obs: spaces.Flat, seed: tf.Tensor, training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return E[min Q(s, a)] and the entropy E[−log π(a | s)], a ~ π(· | s), each ``[B]``.

        Args:
            critics: the smallest of their values counts.
            obs: flat observations.
            seed: of the action that is drawn from a ``Box``.
            training: whether the policy is in training mode.
        """
        if self.discrete:
            log_prob = tf.nn.log_softmax(self.policy(obs, training))  # −1e9 for forbidden actions, so that π is 0
            prob = tf.exp(log_prob)
            q = tf.reduce_min([critic(obs) for critic in critics], 0)
            return tf.reduce_sum(prob * q, -1), -tf.reduce_sum(prob * log_prob, -1)
        action, log_prob = self.sample(obs, seed, training)
        return self.value(critics, obs, action), -log_prob

    def sample(self, obs: spaces.Flat, seed: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Draw actions ``[B, n]`` in (−1, 1) and their log-probabilities ``[B]``, by the reparameterization trick."""
        return self.action_adaptor.distribution.sample_and_log_prob(self.policy(obs, training), seed)

    def value(self, critics: Sequence[Network], obs: spaces.Flat, action: tf.Tensor) -> tf.Tensor:
        """Return min Q(s, a) over the critics, ``[B]``, for ``Box`` actions."""
        return tf.reduce_min([critic(obs, action)[:, 0] for critic in critics], 0)

    def taken(self, critic: Network, batch: Batch) -> tf.Tensor:
        """Return Q(s, a) for the actions that were taken, ``[B]``, in training mode."""
        if self.discrete:
            q = critic(batch.obs, training=True)
            return tf.reduce_sum(q * tf.one_hot(batch.action, q.shape[-1]), -1)
        return critic(batch.obs, batch.action, training=True)[:, 0]

    def wanted_entropy(self, obs: spaces.Flat) -> tf.Tensor | float:
        """Return the target entropy; with masked ``Discrete`` actions one for each state, ``[B]``."""
        mask_path = self.policy.mask_path
        if mask_path is None:
            return self._target_entropy
        mask = tf.cast(obs[mask_path], tf.bool)
        actions = mask.shape[-1]
        allowed = tf.reduce_sum(tf.cast(mask, tf.float32), -1)
        allowed = tf.where(allowed > 0.0, allowed, float(actions))  # a mask that forbids every action is ignored
        return self._target_entropy * tf.math.log(allowed) / max(math.log(actions), 1e-9)

    # Losses and update

    def critic_target(self, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        """Return y = r + γ (1 − terminated) E[min Q′(s′, a′) − α log π(a′ | s′)]: equations 3 and 5."""
        q, entropy = self.expectations(self.targets, batch.next_obs, seed)
        return batch.reward + batch.discount * (q + tf.exp(self.log_alpha) * entropy)

    def critic_loss(self, batch: Batch, target: tf.Tensor) -> tf.Tensor:
        """Return ½ mean (Q(s, a) − y)², summed over the critics: equation 5."""
        errors = [self.taken(critic, batch) - target for critic in self.critics]
        return penalized(0.5 * tf.add_n([tf.reduce_mean(tf.square(error)) for error in errors]), *self.critics)

    def actor_loss(self, batch: Batch, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return mean E[α log π(a | s) − min Q(s, a)], equation 7, the mean entropy and the mean value.

        The critics are in inference mode: the replay buffer does not hold these actions, so their statistics stay.
        """
        q, entropy = self.expectations(self.critics, batch.obs, seed, training=True)
        loss = penalized(-tf.reduce_mean(q + tf.exp(self.log_alpha) * entropy), self.policy.network)
        return loss, tf.reduce_mean(entropy), tf.reduce_mean(q)

    def alpha_loss(self, entropy: tf.Tensor, wanted: tf.Tensor | float) -> tf.Tensor:
        """Return log α (entropy − target entropy): equation 18 with log α for α."""
        return self.log_alpha * tf.stop_gradient(entropy - tf.reduce_mean(wanted))

    def update_actor(self, batch: Batch, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Make a gradient step of the actor, then of the temperature; return what `actor_loss` returned."""
        found: list[tf.Tensor] = []

        def actor_loss() -> tf.Tensor:
            loss, *rest = self.actor_loss(batch, seed)
            found.extend(rest)
            return loss

        loss = self.optimizers['actor'].minimize(actor_loss)
        entropy, q = found
        if self.alpha == 'auto':
            self.optimizers['alpha'].minimize(lambda: self.alpha_loss(entropy, self.wanted_entropy(batch.obs)))
        return loss, entropy, q

    def update(self, batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make a gradient step of critics, actor and temperature on a batch with fields ``[B, …]``."""
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
