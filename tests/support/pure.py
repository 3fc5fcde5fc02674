"""Small environments of pure functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete


class Line:
    """A point on a line that is pushed, with some noise; far out the episode ends."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space: Any = Box(-1, 1, (1,), np.float32)
    max_episode_steps = 20

    def reset(self, seed: Any) -> Any:
        state = tf.random.stateless_uniform([2], seed, -1.0, 1.0)
        return state, state

    def push(self, action: Any) -> Any:
        return action[0]

    def step(self, state: Any, action: Any, seed: Any) -> Any:
        speed = state[1] + 0.2 * self.push(action) + 0.1 * tf.random.stateless_normal([], seed)
        state = tf.stack([state[0] + 0.3 * speed, speed])
        return state, state, -tf.abs(state[0]), tf.abs(state[0]) > 1.5, tf.constant(False)


class Choices(Line):
    """The same with three actions, and a mask that forbids the third one where the point is on the right."""

    observation_space: Any = Dict({'action_mask': Box(0, 1, (3,), np.int8), 'place': Box(-9, 9, (2,), np.float32)})
    action_space = Discrete(3)

    def reset(self, seed: Any) -> Any:
        state, _ = super().reset(seed)
        return state, self.seen(state)

    def seen(self, state: Any) -> Any:
        return {'action_mask': tf.cast(tf.stack([1, 1, tf.cast(state[0] < 0, tf.int32)]), tf.int8), 'place': state}

    def push(self, action: Any) -> Any:
        return tf.cast(action, tf.float32) - 1.0

    def step(self, state: Any, action: Any, seed: Any) -> Any:
        forbidden = tf.logical_and(tf.equal(action, 2), state[0] >= 0)
        state, _, reward, terminated, truncated = super().step(state, action, seed)
        return state, self.seen(state), reward - 100.0 * tf.cast(forbidden, tf.float32), terminated, truncated


class Counter:
    """An episode of ``length`` steps whose state counts them; the action is paid as the reward."""

    observation_space = Box(0, 100, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, length: int = 5) -> None:
        self.length = length

    def reset(self, seed: Any) -> Any:
        return tf.constant(0), tf.constant([0.0])

    def step(self, state: Any, action: Any, seed: Any) -> Any:
        state = state + 1
        obs = tf.reshape(tf.cast(state, tf.float32), [1])
        return state, obs, tf.cast(action, tf.float32), state >= self.length, tf.constant(False)
