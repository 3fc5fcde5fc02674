"""Observations together with the recurrent state in which they were seen."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from zoo.common import spaces
from zoo.common.records import Batch, SequenceBatch

#: η of Kapturowski et al. 2019, section 2.3: a sequence's priority is so much of the greatest of its transitions', and
#: the rest of their mean.
GREATEST = 0.9


@dataclasses.dataclass(frozen=True)
class Remembered:
    """Observations ``[B]`` together with what led to them, in place of flat ones where networks are recurrent.

    They are some of the rows of sequences. A network that is given them runs through the sequences up to each of them,
    so that its gradient goes back in time, but not into the first rows, the burn-in, which bring its state up to date
    (Kapturowski et al. 2019, *Recurrent Experience Replay*, section 3.2). A network that is not recurrent sees the
    rows by themselves.

    Attributes:
        obs, action: flat ``[R, C, …]``, time-major.
        begins: bool ``[R, C]``, where an episode begins, and the state is zero.
        state: float32 ``[C, S]``, the state before the first row of the network called ``acts``, and of its target;
            that of others is zero there.
        acts: the name of the network that was acted with.
        burn_in: how many rows that is.
        at: int32 ``[B]``, the numbers of the rows among all ``R C``.
    """

    obs: Any
    action: Any
    begins: tf.Tensor
    state: tf.Tensor
    acts: str
    burn_in: int
    at: tf.Tensor

    def __getitem__(self, path: str) -> tf.Tensor:
        """One leaf of the observations, ``[B, …]``."""
        return self._picked(self.obs[path])

    def rows(self) -> Any:
        """The observations by themselves, flat ``[B, …]``."""
        return spaces.tree_map(self._picked, self.obs)

    def _picked(self, x: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.reshape(x, [-1, *x.shape[2:]]), self.at)

    def run(self, network: Any, with_action: bool, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """What a recurrent network's head is given ``[B, width]``, and its state before these rows ``[B, S]``.

        Args:
            network: a :class:`zoo.common.networks.network.Network`.
            with_action: whether its torso takes the actions that were taken.
            training: whether in training mode, which the burn-in is not.
        """
        state = self.state
        if network.name != self.acts:
            state = tf.zeros([self.begins.shape[1], network.state_size])

        def part(rows: slice, state: tf.Tensor, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
            obs = spaces.tree_map(lambda x: x[rows], self.obs)
            action = self.action[rows] if with_action else None
            return network.encode_sequence(obs, state, self.begins[rows], training, action)

        if self.burn_in:
            _, after = part(slice(0, self.burn_in), state, False)
            state = tf.stop_gradient(after[-1])
        encoded, after = part(slice(self.burn_in, None), state, training)
        before = tf.concat([state[None], after[:-1]], 0)
        before = tf.where(self.begins[self.burn_in :, :, None], 0.0, before)
        at = self.at - self.burn_in * self.begins.shape[1]
        return tf.gather(encoded, at), tf.gather(tf.reshape(before, [-1, network.state_size]), at)


def rows_of(batch: SequenceBatch, burn_in: int, acts: str) -> Batch:
    """The transitions that are learned from in sequences, fields ``[L C, …]``, with what led to them.

    Args:
        batch: fields ``[R, C, …]`` and ``[L, C, …]``.
        burn_in, acts: see :class:`Remembered`.
    """
    length = batch.at.shape[0]

    def flat(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, [-1, *x.shape[2:]])

    def seen(at: tf.Tensor) -> Remembered:
        return Remembered(batch.obs, batch.action, batch.begins, batch.state, acts, burn_in, flat(at))

    return Batch(
        obs=seen(batch.at),
        action=spaces.tree_map(lambda x: tf.gather(flat(x), flat(batch.at)), batch.action),
        reward=flat(batch.reward),
        next_obs=seen(batch.after),
        terminated=flat(batch.terminated),
        truncated=flat(batch.truncated),
        discount=flat(batch.discount),
        weight=tf.tile(batch.weight, [length]),
    )


def of_sequences(priority: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Priorities of sequences ``[C]`` by those of their transitions ``[L, C]``: the paper's section 2.3.

    Args:
        priority: |δ|.
        valid: bool ``[L, C]``, where there is a transition; at least one in each sequence.
    """
    size = tf.where(valid, tf.abs(priority), 0.0)
    mean = tf.reduce_sum(size, 0) / tf.reduce_sum(tf.cast(valid, tf.float32), 0)
    return GREATEST * tf.reduce_max(size, 0) + (1.0 - GREATEST) * mean
