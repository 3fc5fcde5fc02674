"""Copies of a compiled environment: seeds, time limits, and new episodes in the step that ends one."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from zoo.common import spaces
from zoo.common.envs.compiled.functions import Functions, Mapped


class CopiesState(NamedTuple):
    """Where ``N`` copies are.

    Attributes:
        inner: the environment's own states, ``[N, …]``.
        obs: flat observations to act on next, ``[N, …]``.
        elapsed: int32 ``[N]``, steps of the episodes so far.
        key: int32 ``[N, 2]``, the seed of each copy.
        drawn: int32 ``[N]``, how many seeds each copy has used.
    """

    inner: Any
    obs: Any
    elapsed: tf.Tensor
    key: tf.Tensor
    drawn: tf.Tensor


class Outcome(NamedTuple):
    """What a step gave, ``[N, …]``; ``next_obs`` is the true final observation where an episode ended."""

    next_obs: Any
    reward: tf.Tensor
    terminated: tf.Tensor
    truncated: tf.Tensor


class Copies:
    """``N`` copies as pure functions of tensors, to be called inside a compiled function.

    A copy begins a new episode in the step that ends one. Copy ``i`` has the same episodes whatever the others do.

    Args:
        functions: the environment.
        num_envs: N.
        max_episode_steps: steps after which an episode is truncated; None: the environment's own limit.
    """

    def __init__(self, functions: Functions, num_envs: int, max_episode_steps: int | None = None) -> None:
        self.functions, self.num_envs = functions, num_envs
        self.mapped = Mapped(functions)
        own = getattr(functions, 'max_episode_steps', None)
        self.limit = own if max_episode_steps is None else max_episode_steps

    def begin(self, seeds: tf.Tensor) -> CopiesState:
        """Begin an episode in every copy; ``seeds`` are int32 ``[N]``."""
        key = tf.stack([seeds, tf.fill([self.num_envs], 0x5EED)], -1)
        drawn = tf.zeros([self.num_envs], tf.int32)
        inner, obs = self.mapped.reset(_seeds(key, drawn))
        return CopiesState(inner, obs, tf.zeros_like(drawn), key, drawn + 1)

    def advance(self, state: CopiesState, action: Any) -> tuple[CopiesState, Outcome]:
        """Take a step with flat actions ``[N, …]`` in the environment's units; episodes that end are not followed."""
        taken = spaces.unflatten(self.functions.action_space, action)
        inner, obs, reward, terminated, truncated = self.mapped.step(state.inner, taken, _seeds(state.key, state.drawn))
        elapsed = state.elapsed + 1
        if self.limit is not None:
            truncated = tf.logical_or(truncated, elapsed >= self.limit)
        after = CopiesState(inner, obs, elapsed, state.key, state.drawn + 1)
        return after, Outcome(obs, reward, terminated, truncated)

    def step(self, state: CopiesState, action: Any) -> tuple[CopiesState, Outcome]:
        """Take a step, and begin a new episode in the copies whose episode has ended."""
        after, outcome = self.advance(state, action)
        done = tf.logical_or(outcome.terminated, outcome.truncated)

        def renewed() -> tuple[Any, Any]:
            first = self.mapped.reset(_seeds(after.key, after.drawn))
            return tf.nest.map_structure(lambda new, old: where(done, new, old), first, (after.inner, after.obs))

        # Most steps end no episode, and some resets cost as much as hundreds of steps.
        inner, obs = tf.cond(tf.reduce_any(done), renewed, lambda: (after.inner, after.obs))
        elapsed = tf.where(done, 0, after.elapsed)
        return CopiesState(inner, obs, elapsed, after.key, after.drawn + 1), outcome


def where(copies: tf.Tensor, one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Return the rows of ``one`` where ``copies``, bool ``[N]``, is True, and the rows of ``other`` elsewhere."""
    return tf.where(tf.reshape(copies, [-1, *[1] * (len(one.shape) - 1)]), one, other)


def _seeds(key: tf.Tensor, drawn: tf.Tensor) -> tf.Tensor:
    """Return a seed for each copy, int32 ``[N, 2]``: a hash, because a seed counted up is another copy's next one.

    MurmurHash3 (Appleby 2011) has these mixing steps. They cost less than a draw from the generator.
    """
    words = tf.bitcast(key, tf.uint32) + tf.constant([0x9E3779B9, 0x85EBCA6B], tf.uint32)
    words = words ^ (tf.bitcast(drawn, tf.uint32)[:, None] * tf.constant([0xCC9E2D51, 0x1B873593], tf.uint32))
    words = _mixed(_mixed(words) + tf.reverse(words, [1]))
    return tf.bitcast(words, tf.int32)


def _mixed(x: tf.Tensor) -> tf.Tensor:
    shift = tf.bitwise.right_shift
    x = (x ^ shift(x, tf.constant(16, tf.uint32))) * tf.constant(0x85EBCA6B, tf.uint32)
    x = (x ^ shift(x, tf.constant(13, tf.uint32))) * tf.constant(0xC2B2AE35, tf.uint32)
    return x ^ shift(x, tf.constant(16, tf.uint32))
