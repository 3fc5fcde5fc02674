"""Noisy dense layers (Fortunato et al. 2018, arXiv 1706.10295)."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


class NoisyDense(keras.layers.Layer):
    """A dense layer that draws its weights from the noise it is given: ``(μ + σ ∘ ε) x``.

    Fortunato et al. 2018, *Noisy Networks for Exploration* (arXiv 1706.10295): factorized Gaussian noise (equations 10
    and 11) and the initial values of section 3.2: μ uniform in ±1/√p and σ = σ₀/√p, for p inputs.

    Args:
        units: outputs.
        sigma: σ₀.
        seeds: for the initial kernel and bias.
    """

    def __init__(self, units: int, sigma: float, seeds: tuple[int, int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.sigma = sigma
        self.seeds = seeds

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        width = input_shape[-1]
        assert width is not None
        bound = width**-0.5
        mean = [keras.initializers.RandomUniform(-bound, bound, seed) for seed in self.seeds]
        deviation = keras.initializers.Constant(self.sigma * bound)
        self.kernel = self.add_weight(shape=(width, self.units), initializer=mean[0], name='kernel')
        self.bias = self.add_weight(shape=(self.units,), initializer=mean[1], name='bias')
        self.noise_kernel = self.add_weight(shape=(width, self.units), initializer=deviation, name='noise_kernel')
        self.noise_bias = self.add_weight(shape=(self.units,), initializer=deviation, name='noise_bias')
        self.built = True

    @property
    def noise_size(self) -> int:
        """Normal numbers for one draw of the weights: one for each input and one for each output."""
        return self.kernel.shape[0] + self.units

    def call(self, inputs: Any, noise: Any = None) -> Any:
        """Outputs ``[B, units]`` for ``[B, p]``, float32.

        ``noise`` is normal numbers ``[1, noise_size]``, one draw for all rows, or ``[B, noise_size]``, one for each;
        None takes the mean weights μ.
        """
        kernel, bias = tf.convert_to_tensor(self.kernel), tf.convert_to_tensor(self.bias)
        if noise is None:
            return tf.nn.bias_add(tf.matmul(inputs, kernel), bias)
        noise_kernel, noise_bias = tf.convert_to_tensor(self.noise_kernel), tf.convert_to_tensor(self.noise_bias)
        before, after = tf.split(tf.sign(noise) * tf.sqrt(tf.abs(noise)), [self.noise_size - self.units, self.units], 1)
        if noise.shape[0] == 1:  # one draw for all rows takes one product
            kernel += noise_kernel * (tf.transpose(before) * after)
            return tf.nn.bias_add(tf.matmul(inputs, kernel), bias + noise_bias * after[0])
        # A weight's noise is its input's noise times its output's noise, so no row needs its own kernel.
        noisy = tf.nn.bias_add(tf.matmul(inputs * before, noise_kernel), noise_bias)
        return tf.nn.bias_add(tf.matmul(inputs, kernel), bias) + noisy * after
