"""Behavior policies with noise: added to deterministic actions, or as an input of the network."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.acting.behavior import Behavior
from zoo.common.acting.forward import Forward
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.spaces import Flat, count

#: What a log says of a deterministic policy without noise.
NO_NOISE = 'explore_noise=0: nothing explores but the random actions of explore_steps.'


class GaussianNoise(Behavior):
    """A deterministic policy's action in [−1, 1] with normal noise added; ``scale`` is its standard deviation."""

    traces = True

    def __init__(self, forward: Forward, adaptor: ActionAdaptor, scale: float) -> None:
        super().__init__(forward, adaptor)
        self.scale = scale

    def __call__(self, obs: Flat, rng: np.random.Generator, progress: float, deterministic: bool = False) -> Flat:
        action = self.forward(obs)
        if deterministic:
            return action
        return np.clip(action + self.draw(action.shape, rng), -1.0, 1.0)

    def chosen(self, output: Any, obs: Flat) -> Flat:
        return output

    def traced(self, obs: Flat, state: Any, seed: Any, progress: Any) -> tuple[Flat, Any, Any]:
        import tensorflow as tf

        from zoo.common.maths.distributions import normal_like

        action, _ = self.traceable.tensors(obs)
        return tf.clip_by_value(action + self.scale * normal_like(action, seed), -1.0, 1.0), (), state

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Noise for the next step, float32 ``[N, n]``."""
        return self.scale * rng.standard_normal(shape, dtype=np.float32)


class NoiseInput(Behavior):
    """A network's action in [−1, 1] for an observation and normal noise, which together are its input.

    Without exploration the noise is zero, its mode. So the action is a function of the observation, which an exported
    agent repeats. A sample is what the policy was trained to give; ``deterministic=False`` draws one.
    """

    traces = True

    def __init__(self, forward: Forward, adaptor: ActionAdaptor) -> None:
        super().__init__(forward, adaptor)
        self.noise_size = forward.noise_size

    def __call__(self, obs: Flat, rng: np.random.Generator, progress: float, deterministic: bool = False) -> Flat:
        noise = None if deterministic else rng.standard_normal((count(obs), self.noise_size), dtype=np.float32)
        return np.clip(self.forward(obs, noise), -1.0, 1.0)

    def chosen(self, output: Any, obs: Flat) -> Flat:
        import tensorflow as tf

        return tf.clip_by_value(output, -1.0, 1.0)

    def traced(self, obs: Flat, state: Any, seed: Any, progress: Any) -> tuple[Flat, Any, Any]:
        import tensorflow as tf

        from zoo.common.maths.distributions import normal_like

        copies = next(x for _, x in spaces.tree_items(obs)).shape[0]
        action, _ = self.traceable.tensors(obs, noise=normal_like(tf.zeros([copies, self.noise_size]), seed))
        return tf.clip_by_value(action, -1.0, 1.0), (), state


class OrnsteinUhlenbeck(GaussianNoise):
    """A deterministic policy's action in [−1, 1] with noise added that is correlated from step to step.

    The process of Uhlenbeck and Ornstein (1930), as used by Lillicrap et al. 2016 (arXiv 1509.02971, section 3), in
    Euler steps: ``x ← x − θ x dt + σ √dt N(0, 1)``. Each entry of the action of each copy has its own process, which
    starts at 0 in every episode. Its standard deviation approaches ``σ / √(θ (2 − θ dt))``.

    Args:
        scale: σ.
        theta: θ, the rate at which the noise returns to 0.
        dt: time between two steps.
    """

    along_episodes = True
    traces = False

    def __init__(self, forward: Forward, adaptor: ActionAdaptor, scale: float, theta: float, dt: float) -> None:
        super().__init__(forward, adaptor, scale)
        self.theta = theta
        self.dt = dt

    def episodes_begin(self, copies: np.ndarray) -> None:
        if self.noise is None or len(self.noise) != len(copies):
            self.noise = self.adaptor.zeros((len(copies),))
        else:
            self.noise = np.where(copies[:, None], np.float32(0.0), self.noise)

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Noise for the next step, float32 ``[N, n]``; if N is not the number of copies, for the first step."""
        step = self.scale * math.sqrt(self.dt) * rng.standard_normal(shape, dtype=np.float32)
        if self.noise is None or self.noise.shape != shape:
            return step
        self.noise = (1.0 - self.theta * self.dt) * self.noise + step
        return self.noise
