"""Observations together with the steps before them, for recurrent networks that learn from replayed sequences."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from zoo.common import spaces
from zoo.common.records import Batch, SequenceBatch

#: η of Kapturowski et al. 2019, section 2.3: the weight of the greatest priority among a sequence's transitions; the
#: mean priority has the rest.
GREATEST = 0.9


@dataclasses.dataclass(frozen=True)
class Remembered:
    """Observations ``[B]`` together with the sequences that led to them, in place of flat observations.

    A recurrent network runs through the sequences up to each observation, so that its gradient goes back in time. The
    first rows, the burn-in, only bring its state up to date, without a gradient (Kapturowski et al. 2019, *Recurrent
    Experience Replay*, section 3.2). A network that is not recurrent sees the observations by themselves.

    Attributes:
        obs, action: flat ``[R, C, …]``, time-major.
        begins: bool ``[R, C]``: where True, an episode begins and the state is zero.
        state: float32 ``[C, S]``, the state before the first row, of the network ``acts`` and of its target. The state
            of other networks is zero there.
        acts: the name of the network that acted.
        burn_in: rows of the burn-in.
        warm: int32 ``[C]``, how many of these rows count; they come first.
        at: int32 ``[B]``, indices of the observations among all ``R C`` rows.
    """

    obs: Any
    action: Any
    begins: tf.Tensor
    state: tf.Tensor
    acts: str
    burn_in: int
    warm: tf.Tensor
    at: tf.Tensor

    def __getitem__(self, path: str) -> tf.Tensor:
        """One leaf of the observations, ``[B, …]``."""
        return self._picked(self.obs[path])

    def rows(self) -> Any:
        """The observations alone, flat ``[B, …]``."""
        return spaces.tree_map(self._picked, self.obs)

    def _picked(self, x: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.reshape(x, [-1, *x.shape[2:]]), self.at)

    def run(self, network: Any, with_action: bool, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """The inputs of a recurrent network's head ``[B, width]``, and its state before these rows ``[B, S]``.

        The burn-in is never in training mode. ``with_action``: the network's torso takes the actions too.
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
            # One state for each number of rows that count; 0 rows leave the state as it was given.
            states = tf.transpose(tf.concat([state[None], after], 0), [1, 0, 2])
            state = tf.stop_gradient(tf.gather(states, self.warm, batch_dims=1))
        encoded, after = part(slice(self.burn_in, None), state, training)
        before = tf.concat([state[None], after[:-1]], 0)
        before = tf.where(self.begins[self.burn_in :, :, None], 0.0, before)
        at = self.at - self.burn_in * self.begins.shape[1]
        return tf.gather(encoded, at), tf.gather(tf.reshape(before, [-1, network.state_size]), at)


def rows_of(batch: SequenceBatch, burn_in: int, acts: str) -> Batch:
    """The transitions in sequences that are learned from, fields ``[L C, …]``, with the steps before them."""
    length = batch.at.shape[0]

    def flat(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, [-1, *x.shape[2:]])

    def seen(at: tf.Tensor) -> Remembered:
        return Remembered(batch.obs, batch.action, batch.begins, batch.state, acts, burn_in, batch.warm, flat(at))

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


def repeated(obs: Any, count: int) -> Any:
    """Each of some observations ``count`` times in a row, ``[count · B]``; they may be :class:`Remembered`."""
    if isinstance(obs, Remembered):
        return dataclasses.replace(obs, at=tf.repeat(obs.at, count))
    return spaces.tree_map(lambda x: tf.repeat(x, count, 0), obs)


def of_sequences(priority: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Priorities of sequences ``[C]`` from |δ| ``[L, C]`` of their transitions: the paper's section 2.3.

    ``valid``, bool ``[L, C]``, says where there is a transition; each sequence has at least one.
    """
    size = tf.where(valid, tf.abs(priority), 0.0)
    mean = tf.reduce_sum(size, 0) / tf.reduce_sum(tf.cast(valid, tf.float32), 0)
    return GREATEST * tf.reduce_max(size, 0) + (1.0 - GREATEST) * mean
