"""Noise that is added to deterministic actions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.acting.behavior import Behavior
from zoo.common.acting.chain import Chain
from zoo.common.acting.forward import Forward
from zoo.common.adaptors.action import ActionAdaptor


class GaussianNoise(Behavior):
    """A deterministic policy's action in [−1, 1], and normal noise on it.

    Args:
        forward, adaptor: see :class:`Behavior`.
        scale: the noise's standard deviation.
    """

    forward: Forward | Chain  # it is not called where there is none

    def __init__(self, forward: Forward, adaptor: ActionAdaptor, scale: float) -> None:
        super().__init__(forward, adaptor)
        self.scale = scale

    def __call__(
        self, obs: spaces.Flat, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> spaces.Flat:
        """See :class:`Behavior`."""
        action = self.forward(obs)
        if deterministic:
            return action
        return np.clip(action + self.draw(action.shape, rng), -1.0, 1.0)

    def chosen(self, output: Any, obs: spaces.Flat) -> spaces.Flat:
        """See :class:`Behavior`."""
        return output

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """The noise of the next step, float32 ``[N, n]``."""
        return self.scale * rng.standard_normal(shape, dtype=np.float32)


class OrnsteinUhlenbeck(GaussianNoise):
    """A deterministic policy's action in [−1, 1], and noise on it that stays alike from step to step.

    The process of Uhlenbeck and Ornstein 1930 as Lillicrap et al. 2016 (arXiv 1509.02971, section 3) use it, by Euler's
    steps ``x ← x − θ x dt + σ √dt N(0, 1)``, one process for each entry of the action of each copy. It begins at 0 in
    every episode, and has the deviation ``σ / √(θ (2 − θ dt))`` after long.

    Args:
        forward, adaptor: see :class:`Behavior`.
        scale: σ.
        theta: θ, the part of itself that it loses in a time of 1, where that is short.
        dt: time between two steps.

    Attributes:
        noise: of the last step of each copy, float32 ``[N, n]``; None where no episode has begun.
    """

    along_episodes = True

    def __init__(self, forward: Forward, adaptor: ActionAdaptor, scale: float, theta: float, dt: float) -> None:
        super().__init__(forward, adaptor, scale)
        self.theta = theta
        self.dt = dt

    def episodes_begin(self, copies: np.ndarray) -> None:
        """See :class:`Behavior`."""
        if self.noise is None or len(self.noise) != len(copies):
            self.noise = self.adaptor.zeros((len(copies),))
        else:
            self.noise = np.where(copies[:, None], np.float32(0.0), self.noise)

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """The noise of the next step, ``[N, n]``; of other observations than those of the copies, of a first step."""
        step = self.scale * math.sqrt(self.dt) * rng.standard_normal(shape, dtype=np.float32)
        if self.noise is None or self.noise.shape != shape:
            return step
        self.noise = (1.0 - self.theta * self.dt) * self.noise + step
        return self.noise
