"""Fitted Q evaluation: the value of a policy, learned from recorded transitions.

Le, Voloshin and Yue 2019, *Batch Policy Learning under Constraints* (arXiv 1903.08738), algorithm 3. A network learns
Q(s, a) ← r + γ (1 − terminated) E[Q′(s′, a′)], a′ ~ π(· | s′), of a policy π that stays as it is. The value of the
policy is the mean of E[Q(s₀, a)] over the first observations of the episodes.

Departures:

* The paper fits a regression to its end before the target moves. Here the target follows the network a little in every
  update, as in DDPG.
* Q is c + scale · network. The number c begins with the mean of the data's returns. Then it follows the mean error of
  the target: c ← c + τ (y − Q′(s, a)) / (1 − γ). What all values have in common is the slowest to learn, since a
  backup leaves γ of its error. This is reward centering (Naik et al. 2024, arXiv 2405.09999) with c = r̄ / (1 − γ).
* Values of the policy are cut off at what the rewards of the data allow. Without that the value of actions that no
  episode shows may grow beyond the best that can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import tensorflow as tf
from gymnasium.spaces import Box, Discrete

from zoo.algorithms.base import Algorithm
from zoo.common import spaces
from zoo.common.acting.greedy import EpsilonGreedy
from zoo.common.acting.stochastic import Stochastic
from zoo.common.maths.distributions import normal_like
from zoo.common.maths.optimizers import polyak
from zoo.common.networks.heads import action_value_head, value_head
from zoo.common.networks.network import Network, compiles_by_xla, penalized
from zoo.common.parameters import Gamma, NormalizeObs, Tau
from zoo.common.records import Batch
from zoo.common.sampling import Sampling
from zoo.common.tools.compilation import PackedCall
from zoo.common.tools.params import above, at_least
from zoo.common.training import loops

#: Observations whose values are computed at a time, and actions that are drawn for each where π cannot be summed over.
_ROWS, _DRAWS = 1024, 16


class FQE(Algorithm):
    """The action values of another agent's policy. Its own policy is the one that it evaluates."""

    loop = loops.offline
    acts_in = ('Discrete', 'MultiDiscrete', 'MultiBinary', 'Box', 'Dict', 'Tuple')
    network_names = ('q',)
    optimizer_names = ('q',)
    metric_names = ('loss', 'q')
    default_network = {'hidden': [256, 256], 'activation': 'relu'}
    default_optimizer = {'name': 'Adam', 'learning_rate': 3e-4}

    evaluated: Annotated[Any, 'the agent whose policy is evaluated'] = None
    deterministic: Annotated[bool, 'evaluate its best actions, in place of what it samples'] = False
    gamma: Gamma = 0.99
    tau: Tau = 0.02
    center: Annotated[float, 'Q where the network gives 0, before the first update'] = 0.0
    scale: Annotated[float, above(0), 'what Q grows by where the network grows by 1'] = 1.0
    horizon: Annotated[float, at_least(1), 'one over the mean of 1 − γ (1 − terminated) in the data'] = 100.0
    low: Annotated[float | None, 'the least value that a policy can have; None: not known'] = None
    high: Annotated[float | None, 'the greatest value that a policy can have; None: not known'] = None
    normalize_obs: NormalizeObs = True

    def build(self) -> None:
        """Make the network, its target and the optimizer."""
        self.discrete = isinstance(self.action_space, Discrete)
        size = sum(part.outputs for part in self.action_adaptor.parts)
        head = action_value_head(size) if self.discrete else value_head(action_size=size)
        # Near 0 at first: what the network has not learned yet moves the center by as much, times the horizon.
        self.build_networks([replace(head, gain=0.01)])
        self.network = self.networks['q']
        self.target = self.build_target('q')
        self.offset = tf.Variable(self.center, dtype=tf.float32)
        self.state_variables['offset'] = self.offset
        self.build_optimizers([self.network.trainable_variables])
        self.behavior = self.evaluated.behavior
        #: Whether the policy draws from a distribution.
        self.samples = isinstance(self.behavior, Stochastic) and not self.deterministic

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.gamma)

    def compiled(self, function: Callable[..., tf.Tensor]) -> PackedCall:
        found = super().compiled(function)
        policy = self.evaluated.networks.values()
        return found if all(compiles_by_xla(network) for network in policy) else PackedCall(function, False)

    # The policy

    def policy_output(self, obs: spaces.Flat, seed: tf.Tensor) -> tf.Tensor:
        """Return what the policy's network gives, ``[B, …]``; noise that it takes as an input is drawn."""
        forward = self.evaluated.forward
        size = forward.noise_size
        takes_noise = size and not isinstance(self.behavior, Stochastic | EpsilonGreedy)
        if not takes_noise or self.deterministic:
            return forward.tensors(obs)[0]
        count = tf.shape(next(x for _, x in spaces.tree_items(obs)))[0]
        return forward.tensors(obs, noise=normal_like(tf.zeros([count, size]), seed + 1))[0]

    def action(self, obs: spaces.Flat, seed: tf.Tensor) -> spaces.Flat:
        """Return stored actions ``[B, …]`` of the policy."""
        output = self.policy_output(obs, seed)
        if self.samples:
            return self.evaluated.action_adaptor.distribution.sample(output, seed)
        return self.behavior.chosen(output, obs)

    # Values

    def value(self, network: Network, obs: spaces.Flat, seed: tf.Tensor) -> tf.Tensor:
        """Return E[Q(s, a)], a ~ π(· | s), ``[B]``: a sum over all ``Discrete`` actions, else of one action."""
        if not self.discrete:
            q = network(obs, self.encoded(self.action(obs, seed)))[:, 0]
            return self.cut_off(self.unscaled(q))
        q = network(obs)
        if self.samples:
            prob = tf.nn.softmax(self.policy_output(obs, seed))
        else:
            prob = tf.one_hot(self.action(obs, seed), q.shape[-1])
        return self.cut_off(self.unscaled(tf.reduce_sum(prob * q, -1)))

    def taken(self, network: Network, batch: Batch, training: bool = False) -> tf.Tensor:
        """Return Q(s, a) of the recorded actions, ``[B]``."""
        if not self.discrete:
            return self.unscaled(network(batch.obs, self.encoded(batch.action), training)[:, 0])
        q = network(batch.obs, training=training)
        return self.unscaled(tf.reduce_sum(q * tf.one_hot(batch.action, q.shape[-1]), -1))

    def unscaled(self, output: tf.Tensor) -> tf.Tensor:
        """Return Q in the units of rewards for the network's output."""
        return self.offset + self.scale * output

    def cut_off(self, value: tf.Tensor) -> tf.Tensor:
        """Return values that are not beyond what a policy can have."""
        low, high = -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high
        return tf.clip_by_value(value, low, high)

    def encoded(self, action: spaces.Flat) -> tf.Tensor:
        """Return stored actions as vectors ``[B, n]``: choices as one-hot, a ``Box`` as the environment takes it."""
        given, pieces = dict(spaces.tree_items(action)), []
        for part in self.action_adaptor.parts:
            x, leaf = given[part.path], self.action_adaptor.leaves[part.path]
            if part.counts:
                columns = tf.unstack(tf.reshape(x, [-1, part.size]), axis=-1)
                pieces += [tf.one_hot(column, n) for column, n in zip(columns, part.counts, strict=True)]
            elif isinstance(leaf, Box):  # what the environment does with an action beyond its bounds
                low, high = (bound.ravel().astype(np.float32) for bound in spaces.bounds(leaf))
                scaled = leaf.is_bounded()  # to [−1, 1]
                x = tf.clip_by_value(x, -1.0 if scaled else low, 1.0 if scaled else high)
                if leaf.dtype.kind in 'iub':  # it takes whole numbers
                    center, half = ((low + high) / 2, (high - low) / 2) if scaled else (0.0, 1.0)
                    x = tf.math.divide_no_nan(tf.round(center + half * x) - center, half)
                pieces.append(x)
            else:
                pieces.append(tf.cast(x, tf.float32))
        return tf.concat(pieces, -1)

    def values_of_first(self, obs: spaces.Flat) -> np.ndarray:
        """Return E[Q(s, a)] of observations ``[E, …]``, float64 ``[E]``; of a ``Box`` a mean of draws."""
        draws = 1 if self.discrete or not self.samples else _DRAWS
        found = []
        for begin in range(0, spaces.count(obs), _ROWS):
            part = spaces.tree_map(lambda x, b=begin: tf.convert_to_tensor(x[b : b + _ROWS]), obs)
            seeds = self.rng.integers(2**31 - 1, size=(draws, 2), dtype=np.int32)
            found.append(
                np.mean([self.value(self.network, part, tf.constant(seed)).numpy() for seed in seeds], 0, np.float64)
            )
        return np.concatenate(found)

    # The update

    def loss(self, batch: Batch, target: tf.Tensor) -> tf.Tensor:
        """Return mean (Q(s, a) − y)², in units of the scale."""
        error = (self.taken(self.network, batch, True) - target) / self.scale
        return penalized(tf.reduce_mean(tf.square(error)), self.network)

    def update(self, batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make a gradient step on a batch with fields ``[B, …]``; then move the target and the center."""
        target = tf.stop_gradient(batch.reward + batch.discount * self.value(self.target, batch.next_obs, seed))
        loss = self.optimizers['q'].minimize(lambda: self.loss(batch, target))
        error = tf.reduce_mean(target - self.taken(self.target, batch))
        polyak(self.target.variables, self.network.variables, self.tau)
        self.offset.assign_add(self.tau * self.horizon * error)
        return {'loss': loss, 'q': tf.reduce_mean(target)}
