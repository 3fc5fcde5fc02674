"""Behavior policies that take the best action, always or except with probability epsilon."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.acting.behavior import Behavior, Remembering
from zoo.common.acting.chain import Chain
from zoo.common.acting.forward import Forward
from zoo.common.adaptors.action import ActionAdaptor, masked
from zoo.common.schedules import Linear, value_at


class Deterministic(Behavior):
    """The best action by what a network puts out: of the greatest logit, the switches that are on, the mean of a Box.

    What explores are its parameters, which are perturbed for whole episodes: :mod:`zoo.common.population`.
    """

    forward: Forward | Chain  # it is not called where there is none

    def __call__(
        self, obs: spaces.Flat, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> spaces.Flat:
        """See :class:`Behavior`."""
        return self.action(self.forward(obs), obs)

    def action(self, output: np.ndarray, obs: spaces.Flat) -> spaces.Flat:
        """Stored actions ``[N, …]`` for logits and means ``[N, …]``, of the allowed ones if masked."""
        if self.mask_path is not None:
            output = masked(output, obs[self.mask_path], self.adaptor.parts[0].counts)
        return self.adaptor.best(output)

    def chosen(self, output: Any, obs: spaces.Flat) -> spaces.Flat:
        """See :class:`Behavior`."""
        import tensorflow as tf

        if self.mask_path is not None:
            output = masked(output, obs[self.mask_path], self.adaptor.parts[0].counts)
        pieces, offset = [], 0
        for part in self.adaptor.parts:
            piece = output[:, offset : offset + part.outputs]
            offset += part.outputs
            # How far a Gaussian spreads is nothing to its mode.
            pieces += [piece, tf.zeros_like(piece)] if 'gaussian' in part.kind else [piece]
        return self.adaptor.distribution.mode(tf.concat(pieces, -1))

    def light(self) -> Behavior:
        """See :class:`Behavior`; also without a forward pass where NumPy has other weights than those that move."""
        twin = super().light()
        if isinstance(self.forward, Forward) and not self.forward.packs_trained:
            twin.forward = None
        return twin


class EpsilonGreedy(Behavior):
    """The action of the highest value; with probability ε a random one.

    Where the network has noisy layers their weights are drawn anew for every observation, and are the means without
    exploration.

    Args:
        forward, adaptor, mask_path: see :class:`Behavior`.
        epsilon: ε, a number or a schedule.
    """

    forward: Forward | Chain  # it is not called where there is none

    def __init__(
        self, forward: Forward, adaptor: ActionAdaptor, mask_path: str | None, epsilon: float | Linear
    ) -> None:
        super().__init__(forward, adaptor, mask_path)
        self.epsilon = epsilon

    def __call__(
        self, obs: spaces.Flat, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> spaces.Flat:
        """See :class:`Behavior`."""
        if deterministic:
            return self.forward(obs).argmax(-1)
        random = rng.random(spaces.count(obs)) < self.chance(spaces.count(obs), progress)
        if random.all():
            return self.random(obs, rng)
        size = self.forward.noise_size
        noise = rng.standard_normal((spaces.count(obs), size), dtype=np.float32) if size else None
        action = self.forward(obs, noise).argmax(-1)
        if random.any():
            action[random] = self.random(obs, rng)[random]
        return action

    def chance(self, copies: int, progress: float) -> float | np.ndarray:
        """The probability of a random action: of all copies, or of each ``[copies]``."""
        return value_at(self.epsilon, progress)

    def chosen(self, output: Any, obs: spaces.Flat) -> spaces.Flat:
        """See :class:`Behavior`."""
        import tensorflow as tf

        return tf.argmax(output, -1)


class RecurrentEpsilonGreedy(Remembering, EpsilonGreedy):
    """The action of the highest value that a recurrent network gives; with probability ε a random one."""

    def step(
        self,
        obs: spaces.Flat,
        state: np.ndarray,
        rng: np.random.Generator,
        progress: float,
        deterministic: bool = False,
    ) -> tuple[spaces.Flat, np.ndarray]:
        """See :class:`Behavior`."""
        values, after = self.forward.step(obs, state)
        action = values.argmax(-1)
        if not deterministic:
            random = rng.random(len(action)) < self.chance(len(action), progress)
            if random.any():
                action[random] = self.random(obs, rng)[random]
        return action, after
