"""DQN: deep Q-network, with later improvements as switches.

Mnih et al. 2015, *Human-level control through deep reinforcement learning* (doi 10.1038/nature14236). The
switches:

* ``double_q``: van Hasselt et al. 2016, *Deep Reinforcement Learning with Double Q-learning* (arXiv 1509.06461);
* ``dueling``: Wang et al. 2016, *Dueling Network Architectures for Deep Reinforcement Learning* (arXiv 1511.06581);
* ``prioritized``: Schaul et al. 2016, *Prioritized Experience Replay* (arXiv 1511.05952);
* ``noisy``: Fortunato et al. 2018, *Noisy Networks for Exploration* (arXiv 1706.10295);
* ``n_step``: Sutton 1988, as in Hessel et al. 2018 (Rainbow, arXiv 1710.02298, section 3).

Departures:

* Adam replaces RMSProp. The Huber loss with ``kappa=1`` is the Nature paper's clipping of the error's gradient; with a
  larger ``kappa`` larger errors count by their size.
* Each stream of a dueling head is one layer on a shared torso; the papers' streams have one more hidden layer each.
* Only the layers of the head are noisy; in the paper all dense layers are. In acting every copy of the environment
  draws noise of its own at every step. In an update all transitions share one draw, as in the paper; the loss, the
  target and the choice of a double Q-learner have one draw each (its equations 14 and 16).
* Noisy layers may be combined with ε-greedy exploration. By default ``epsilon`` is then 0, as in the paper.
"""

from __future__ import annotations

import logging
from typing import Annotated, ClassVar

import tensorflow as tf

from zoo.algorithms.base import Algorithm
from zoo.common import spaces
from zoo.common.acting.forward import Forward
from zoo.common.acting.greedy import EpsilonGreedy, RecurrentEpsilonGreedy
from zoo.common.acting.layers import Means
from zoo.common.adaptors.masks import masked
from zoo.common.maths.distributions import normal_like
from zoo.common.maths.optimizers import polyak
from zoo.common.networks.heads import Head, action_value_head
from zoo.common.networks.network import penalized
from zoo.common.parameters import (
    BURN_IN,
    SEQUENCE_LENGTH,
    BurnIn,
    Gamma,
    NormalizeObs,
    NStep,
    Prioritized,
    PriorityAlpha,
    PriorityBeta,
    SequenceLength,
    Tau,
)
from zoo.common.records import Batch
from zoo.common.sampling import PRIORITIES, Priorities, Sampling, SequenceSampling
from zoo.common.schedules import Linear, value_at
from zoo.common.tools.errors import InvalidValue
from zoo.common.tools.params import above, at_least, between
from zoo.common.training import loops

#: The default schedule of exploration, where no layer is noisy.
EPSILON = Linear(1.0, 0.05, until=0.1)
#: The probability of a random action, at the end of a training, from which on a warning says it beside noisy layers.
MUCH_BESIDE_NOISE = 0.05

log = logging.getLogger('zoo')


def huber(size: tf.Tensor, kappa: float) -> tf.Tensor:
    """Return the Huber loss of errors of this size: half the square up to κ, linear beyond."""
    return tf.where(size <= kappa, 0.5 * tf.square(size), kappa * (size - 0.5 * kappa))


class DQN(Algorithm):
    """Deep Q-network for ``Discrete`` actions: double, dueling, prioritized, noisy, with n-step returns, or plain."""

    loop = loops.off_policy
    recurrent = True
    acts_in = ('Discrete',)
    network_names = ('q',)
    optimizer_names = ('q',)
    metric_names = ('q', 'q_mean')
    default_network = {'hidden': [64, 64], 'activation': 'relu'}
    default_optimizer = {'name': 'Adam', 'learning_rate': 1e-4, 'clip_norm': 10.0}

    gamma: Gamma = 0.99
    double_q: Annotated[bool, 'the network chooses the next action and the target values it'] = True
    dueling: Annotated[bool, "separate streams for the state's value and the advantages"] = False
    prioritized: Prioritized = False
    priority_alpha: PriorityAlpha = PRIORITIES.exponent
    priority_beta: PriorityBeta = PRIORITIES.correction
    noisy: Annotated[bool, 'layers whose weights are drawn anew for every action and update, which explore'] = False
    noisy_std: Annotated[float, above(0), 'deviation of noisy weights at first, for one input'] = 0.5
    n_step: NStep = 1
    target_update_every: Annotated[int, at_least(1), 'gradient updates between moves of the target'] = 500
    tau: Tau = 1.0
    epsilon: Annotated[
        float | Linear | None,
        between(0, 1),
        'probability of a random action in training; None: from 1 to 0.05 in the first tenth, or 0 with noisy layers',
    ] = None
    kappa: Annotated[float, above(0), 'error from which on the loss is linear'] = 1.0
    sequence_length: SequenceLength = SEQUENCE_LENGTH
    burn_in: BurnIn = BURN_IN
    normalize_obs: NormalizeObs = False

    def build(self) -> None:
        """Make the network, its target, the optimizer, and ε-greedy exploration."""
        if self.epsilon is None:
            self.epsilon = 0.0 if self.noisy else EPSILON
        self.warn_of_unread_priorities()
        if self.tau < 1.0 and self.target_update_every > 1:
            log.warning(
                'tau=%g moves the target by this fraction only once in target_update_every=%d updates: give tau=1 to '
                'copy the network then, or target_update_every=1 to move the target in every update.',
                self.tau,
                self.target_update_every,
            )
        if not self.noisy:
            self.warn_of_unread(('noisy_std',), ' without noisy=True')
            if self.epsilon == 0.0:
                log.warning('epsilon=0 without noisy=True never explores: epsilon=None does, by random actions.')
        elif value_at(self.epsilon, 1.0) >= MUCH_BESIDE_NOISE:
            told = 'epsilon=%s draws random actions to the end beside noisy=True: epsilon=None leaves exploring to the'
            log.warning(f'{told} noise.', self.epsilon)
        if self.epsilon == 0.0:
            self.warn_of_unread(('epsilon_exponent',), ' beside epsilon=0')

        self.actions = self.action_adaptor.parts[0].counts[0]
        self.means = self.build_means()
        self.build_networks([self.head()])
        self.network = self.networks['q']
        self.target = self.build_target('q')
        self.update_count = tf.Variable(0, dtype=tf.int64)
        self.state_variables['update_count'] = self.update_count
        self.build_optimizers([self.network.trainable_variables])
        if not self.network.state_size:
            self.warn_of_unread(('sequence_length', 'burn_in'), ', since no network is recurrent')
        elif self.noisy:
            raise InvalidValue(
                'noisy=True cannot explore with a recurrent network: at every step its state would come from other '
                'weights. Use noisy=False.'
            )
        self.build_behavior(Forward(self.network, mask_path=self.mask_path, means=self.means))

    def build_behavior(self, forward: Forward) -> None:
        """Set ``behavior``, how the agent explores."""
        assert self.epsilon is not None
        behavior = RecurrentEpsilonGreedy if self.network.state_size else EpsilonGreedy
        self.behavior = behavior(forward, self.action_adaptor, self.mask_path, self.epsilon)

    @property
    def sampling(self) -> Sampling:
        state_size = self.behavior.state_size
        return Sampling(
            self.gamma,
            self.n_step,
            Priorities(self.priority_alpha, self.priority_beta) if self.prioritized else None,
            SequenceSampling(self.sequence_length, self.burn_in, state_size) if state_size else None,
        )

    # A distributional variant overrides these three and `losses`

    #: The name of the numbers that the network gives for an action, for messages.
    numbers: ClassVar[str] = 'values'

    def build_means(self) -> Means:
        """Return how many numbers the network gives for each action, and how they make its value."""
        return Means()

    def backup(self, batch: Batch, following: tf.Tensor) -> tf.Tensor:
        """Return y = r + γⁿ z ``[B, n]``; z ``[B, n]`` is the target's output for a′, 0 where terminated."""
        return batch.reward[:, tf.newaxis] + batch.discount[:, tf.newaxis] * following

    def losses(self, found: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return Huber(Q(s, a) − y) and the priority |Q(s, a) − y| of each transition ``[B]``; arguments ``[B, 1]``."""
        error = tf.abs(found - target)[:, 0]
        return huber(error, self.kappa), error

    # The rest is the same for all of them

    def head(self) -> Head:
        """Return what the network has to give."""
        sigma = self.noisy_std if self.noisy else 0.0
        return action_value_head(self.actions, self.dueling, self.means.count, type(self).numbers, sigma)

    def draw_noise(self, seed: tf.Tensor) -> list[tf.Tensor | None]:
        """Draw ε for the loss, the target and the choice of a double Q-learner, each ``[1, noise_size]``, or None."""
        if not self.noisy:
            return [None] * 3
        return tf.unstack(normal_like(tf.zeros([3, 1, self.network.noise_size]), seed))

    def following(self, batch: Batch, noise: tf.Tensor | None, other_noise: tf.Tensor | None) -> tf.Tensor:
        """Return the target's output ``[B, n]`` for a′, the action that it values highest; a double Q-learner takes the
        action that the network values highest (van Hasselt et al., equation 4)."""
        output = self.target(batch.next_obs, noise=noise)
        judged = self.network(batch.next_obs, noise=other_noise) if self.double_q else output
        return self.of_action(output, tf.argmax(self.allowed(self.means(judged), batch.next_obs), -1))

    def allowed(self, q: tf.Tensor, obs: spaces.Flat) -> tf.Tensor:
        """Return values ``[B, actions]`` in which a forbidden action cannot be the highest."""
        return q if self.mask_path is None else masked(q, obs[self.mask_path])

    def of_action(self, output: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Return the numbers ``[B, n]`` of an action ``[B]`` from an output ``[B, actions · n]``."""
        each = tf.reshape(output, [-1, self.actions, self.means.count])
        return tf.reduce_sum(each * tf.one_hot(action, self.actions)[..., tf.newaxis], 1)

    def loss(
        self, batch: Batch, target: tf.Tensor, noise: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return the weighted mean of the losses, the priorities ``[B]``, and the mean of Q(s, a)."""
        found = self.of_action(self.network(batch.obs, training=True, noise=noise), batch.action)
        losses, priority = self.losses(found, target)
        loss = penalized(tf.reduce_mean(batch.weight * losses), self.network)
        return loss, priority, tf.reduce_mean(self.means(found))

    def update(self, batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make a gradient step on a batch with fields ``[B, …]``, and move the target when it is due."""
        noise, *of_target = self.draw_noise(seed)
        target = tf.stop_gradient(self.backup(batch, self.following(batch, *of_target)))
        with tf.GradientTape() as tape:
            loss, priority, q_mean = self.loss(batch, target, noise)
        optimizer = self.optimizers['q']
        optimizer.apply(tape.gradient(loss, optimizer.variables))
        due = self.update_count.assign_add(1) % self.target_update_every == 0

        def move() -> tf.Tensor:
            polyak(self.target.variables, self.network.variables, self.tau)
            return loss

        return {'q': tf.cond(due, move, lambda: loss), 'q_mean': q_mean, 'priority': priority}
