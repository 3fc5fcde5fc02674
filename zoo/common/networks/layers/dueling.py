"""The dueling head (Wang et al. 2016, arXiv 1511.06581)."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


class DuelingHead(keras.layers.Layer):
    """Q(s, a) = V(s) + A(s, a) − mean over a of A(s, a): Wang et al. 2016, equation 9.

    With several numbers for each action, the atoms or quantiles of a distribution, this holds for each of them: Hessel
    et al. 2018 (arXiv 1710.02298), section 3.

    Args:
        value: the layer of V, ``values`` outputs.
        advantage: the layer of A, ``values`` outputs for each action.
        values: numbers for each action.
    """

    def __init__(self, value: keras.layers.Layer, advantage: keras.layers.Layer, values: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.value = value
        self.advantage = advantage
        self.values = values

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.value.build(input_shape)
        self.advantage.build(input_shape)
        self.built = True

    def call(self, inputs: Any, noise: Any = None) -> Any:
        """Outputs ``[B, actions · values]``, an action's numbers side by side; ``noise`` is for both layers."""
        if noise is None:
            value, advantage = self.value(inputs), self.advantage(inputs)
        else:
            first, second = tf.split(noise, [self.value.noise_size, self.advantage.noise_size], 1)
            value, advantage = self.value(inputs, first), self.advantage(inputs, second)
        if self.values == 1:
            return value + advantage - tf.reduce_mean(advantage, -1, keepdims=True)
        each = tf.reshape(advantage, [-1, advantage.shape[-1] // self.values, self.values])
        joined = value[:, tf.newaxis] + each - tf.reduce_mean(each, 1, keepdims=True)
        return tf.reshape(joined, [-1, advantage.shape[-1]])
