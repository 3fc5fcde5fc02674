"""A replay buffer of tensors, for steps and updates that are compiled into one call."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium.spaces import Space

from zoo.common import spaces
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.maths.distributions import GENERATOR, split_seed
from zoo.common.records import Batch, Transition
from zoo.common.rollouts.rollout_buffer import ANNOUNCE_BYTES

log = logging.getLogger('zoo')


class TensorRing:
    """The last transitions of ``N`` copies. A step of all copies is one row; the newest row replaces the oldest one.

    Inside a compiled function the storage is a :class:`zoo.common.records.Transition` of tensors ``[rows, N, …]``,
    which the functions here take and return, with the number of rows written so far.

    Args:
        observation_space, action_adaptor: give shapes and dtypes.
        capacity: transitions, summed over copies.
        num_envs: N.
    """

    def __init__(self, observation_space: Space, action_adaptor: ActionAdaptor, capacity: int, num_envs: int) -> None:
        self.capacity, self.num_envs = capacity, num_envs
        self.rows = max(1, capacity // num_envs)
        lead = (self.rows, num_envs)
        like = Transition(
            spaces.zeros(observation_space, lead),
            action_adaptor.zeros(lead),
            np.zeros(lead, np.float32),
            spaces.zeros(observation_space, lead),
            np.zeros(lead, bool),
            np.zeros(lead, bool),
        )
        size = sum(x.nbytes for field in like for _, x in spaces.tree_items(field))
        if size > ANNOUNCE_BYTES:
            log.warning('The replay buffer takes %.2f GB of memory.', size / 1e9)
        self.storage = Transition(
            *(spaces.tree_map(lambda x: tf.Variable(x, trainable=False), field) for field in like)
        )
        #: Rows written so far.
        self.written = 0

    @property
    def added(self) -> int:
        """The number of transitions stored so far, including those written over since."""
        return self.written * self.num_envs

    def tensors(self) -> Transition:
        """Return the storage at the beginning of a compiled call."""
        return Transition(*(spaces.tree_map(lambda x: x.read_value(), field) for field in self.storage))

    def keep(self, tensors: Transition) -> None:
        """Keep the storage at the end of a compiled call."""
        for field, found in zip(self.storage, tensors, strict=True):
            spaces.tree_map(lambda variable, x: variable.assign(x), field, found)

    def put(self, tensors: Transition, written: tf.Tensor, step: Transition) -> Transition:
        """Return the storage with one more row, fields ``[N, …]``; ``written`` rows, int32, were there before."""
        at = tf.reshape(written % self.rows, [1, 1])
        return Transition(
            *(
                spaces.tree_map(lambda x, y: tf.tensor_scatter_nd_update(x, at, y[None]), field, found)
                for field, found in zip(tensors, step, strict=True)
            )
        )

    def cut(self) -> None:
        """Let no transition of several steps reach beyond the newest row: other episodes follow it."""
        if self.written:
            at = (self.written - 1) % self.rows
            truncated = self.storage.truncated
            truncated[at].assign(tf.logical_not(self.storage.terminated[at]))

    def draw(
        self, tensors: Transition, written: tf.Tensor, seed: tf.Tensor, batch_size: int, gamma: float, n_step: int
    ) -> Batch:
        """Draw ``B`` transitions uniformly, with replacement, each of up to ``n_step`` steps; fields ``[B, …]``.

        A transition has fewer steps where the episode or the stored steps end before, as in
        :class:`zoo.common.replay.replay.Replay`.
        """
        of_row, of_copy = split_seed(seed, 2)
        held = tf.minimum(written, self.rows)
        row = tf.random.stateless_uniform([batch_size], of_row, 0, held, tf.int32, alg=GENERATOR)
        copy = tf.random.stateless_uniform([batch_size], of_copy, 0, self.num_envs, tf.int32, alg=GENERATOR)
        first = written - held + row  # counted from the first step of all

        def at(field: Any, number: tf.Tensor) -> Any:
            where = tf.stack([number % self.rows, copy], -1)
            return spaces.tree_map(lambda x: tf.gather_nd(x, where), field)

        last, going = first, tf.ones([batch_size], bool)
        reward, discount = tf.zeros([batch_size]), tf.ones([batch_size])
        for i in range(n_step):
            now = first + i
            going = tf.logical_and(going, now < written)
            now = tf.where(going, now, last)
            reward += tf.where(going, float(np.float64(gamma) ** i) * at(tensors.reward, now), 0.0)
            discount = tf.where(going, float(np.float64(gamma) ** (i + 1)), discount)
            last = now
            ended = tf.logical_or(at(tensors.terminated, now), at(tensors.truncated, now))
            going = tf.logical_and(going, tf.logical_not(ended))
        terminated = at(tensors.terminated, last)
        return Batch(
            at(tensors.obs, first),
            at(tensors.action, first),
            reward,
            at(tensors.next_obs, last),
            terminated,
            at(tensors.truncated, last),
            tf.where(terminated, 0.0, discount),
            tf.ones([batch_size]),
        )
