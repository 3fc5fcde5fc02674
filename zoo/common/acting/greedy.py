"""Behavior policies that take the best action, always or except with probability epsilon."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.common import spaces
from zoo.common.acting.behavior import Behavior, Remembering
from zoo.common.acting.forward import Forward
from zoo.common.adaptors.action import ActionAdaptor
from zoo.common.adaptors.masks import masked
from zoo.common.schedules import Linear, tensor_at, value_at
from zoo.common.spaces import Flat


class Deterministic(Behavior):
    """The best action: the greatest logit, the switches whose logits are positive, the mean of a Box.

    It explores by perturbed parameters, which last for whole episodes: :mod:`zoo.common.acting.perturbed`.
    """

    traces = True

    def __call__(self, obs: Flat, rng: np.random.Generator, progress: float, deterministic: bool = False) -> Flat:
        return self.action(self.forward(obs), obs)

    def action(self, output: np.ndarray, obs: Flat) -> Flat:
        """Stored actions ``[N, …]`` for logits and means ``[N, …]``; with a mask, only allowed ones."""
        if self.mask_path is not None:
            output = masked(output, obs[self.mask_path], self.adaptor.parts[0].counts)
        return self.adaptor.best(output)

    def chosen(self, output: Any, obs: Flat) -> Flat:
        import tensorflow as tf

        if self.mask_path is not None:
            output = masked(output, obs[self.mask_path], self.adaptor.parts[0].counts)
        pieces, offset = [], 0
        for part in self.adaptor.parts:
            piece = output[:, offset : offset + part.outputs]
            offset += part.outputs
            # A Gaussian's mode does not depend on its standard deviation.
            pieces += [piece, tf.zeros_like(piece)] if 'gaussian' in part.kind else [piece]
        return self.adaptor.distribution.mode(tf.concat(pieces, -1))

    def traced(self, obs: Flat, state: Any, seed: Any, progress: Any) -> tuple[Flat, Any, Any]:
        output, _ = self.traceable.tensors(obs)
        return self.chosen(output, obs), (), state

    def light(self) -> Behavior:
        twin = super().light()
        # A copy's parameters are perturbed, so NumPy's weights must be exactly the trained ones.
        if isinstance(self.forward, Forward) and not self.forward.packs_trained:
            twin.forward = None  # type: ignore[assignment]
        return twin


class EpsilonGreedy(Behavior):
    """The action of the highest value; with probability ε a random one.

    The weights of noisy layers are drawn anew for every observation; without exploration they are the means.
    """

    traces = True

    def __init__(
        self, forward: Forward, adaptor: ActionAdaptor, mask_path: str | None, epsilon: float | Linear
    ) -> None:
        super().__init__(forward, adaptor, mask_path)
        self.epsilon = epsilon

    def __call__(self, obs: Flat, rng: np.random.Generator, progress: float, deterministic: bool = False) -> Flat:
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
        """The probability of a random action: one for all copies, or ``[copies]``."""
        return value_at(self.epsilon, progress)

    def chosen(self, output: Any, obs: Flat) -> Flat:
        import tensorflow as tf

        return tf.argmax(output, -1)

    def traced(self, obs: Flat, state: Any, seed: Any, progress: Any) -> tuple[Flat, Any, Any]:
        import tensorflow as tf

        from zoo.common.maths.distributions import normal_like, split_seed, uniform_like

        count = next(x for _, x in spaces.tree_items(obs)).shape[0]
        of_weights, of_chance, of_action = split_seed(seed, 3)
        size = 0 if self.state_size else self.traceable.noise_size
        noise = normal_like(tf.zeros([count, size]), of_weights) if size else None
        values, after = self.traceable.tensors(obs, state if self.state_size else None, noise)
        best = tf.argmax(values, -1, output_type=tf.int32)
        random = uniform_like(tf.zeros([count]), of_chance) < tensor_at(self.epsilon, progress)
        action = tf.where(random, self.traced_random(obs, of_action), best)
        return action, (), after if self.state_size else state


class RecurrentEpsilonGreedy(Remembering, EpsilonGreedy):
    """The action of the highest value that a recurrent network gives; with probability ε a random one."""

    def step(
        self, obs: Flat, state: np.ndarray, rng: np.random.Generator, progress: float, deterministic: bool = False
    ) -> tuple[Flat, np.ndarray]:
        values, after = self.forward.step(obs, state)
        action = values.argmax(-1)
        if not deterministic:
            random = rng.random(len(action)) < self.chance(len(action), progress)
            if random.any():
                action[random] = self.random(obs, rng)[random]
        return action, after
