"""Batch renormalization, which Keras 3 lacks: batch normalization that computes alike in training and inference mode.

Ioffe 2017, *Batch Renormalization: Towards Reducing Minibatch Dependence in Batch-Normalized Models* (arXiv
1702.03275). Bounds, decay and warm-up follow CrossQ's code (adityab/CrossQ, commit 2811ad1). The bounds are constant
and take effect after a warm-up of plain batch normalization; in the paper they grow. The moving average is taken of the
variance; in the paper, of the standard deviation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from zoo.common.tools.errors import InvalidValue

#: For batches of at least so many entries the passes are fused: an update of CrossQ with critics of 512 × 512 then
#: takes a sixth less processor time.
FUSED = 2**15

Gradient = Callable[[tf.Tensor], tuple[tf.Tensor, ...]]


@keras.saving.register_keras_serializable('zoo')
class BatchRenormalization(keras.layers.Layer):
    """``γ ((x − μ) / σ · r + d) + β``: algorithm 1 of the paper.

    In training mode μ and σ are the batch's. ``r = σ / σ̄`` and ``d = (μ − μ̄) / σ̄``, clipped, correct them to the moving
    statistics μ̄ and σ̄; no gradient flows through r and d. If neither is clipped, the output equals inference mode's,
    ``γ (x − μ̄) / σ̄ + β``. Every call in training mode updates the moving statistics.

    Inputs ``[B, n]`` are cast to float32, and outputs are float32. Other shapes are refused by a ``ValueError``.

    Args:
        momentum: the share of the moving statistics that an update keeps.
        epsilon: added to variances.
        r_max: r is in [1 / r_max, r_max].
        d_max: d is in [−d_max, d_max].
        warmup_steps: calls in training mode at first with r = 1 and d = 0, which is batch normalization.
    """

    def __init__(
        self,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        r_max: float = 3.0,
        d_max: float = 5.0,
        warmup_steps: int = 100_000,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs | {'dtype': 'float32'}, autocast=False)
        self.momentum = momentum
        self.epsilon = epsilon
        self.r_max = r_max
        self.d_max = d_max
        self.warmup_steps = warmup_steps

    def add_weight(self, *args: Any, **kwargs: Any) -> Any:
        return super().add_weight(*args, **kwargs | {'autocast': False})

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        if len(input_shape) != 2:
            raise InvalidValue(
                f'{self.name} takes batches of vectors, [batch, units], not of the shape {tuple(input_shape)}: flatten '
                'them before, or use keras.layers.BatchNormalization.'
            )
        shape = (input_shape[-1],)
        self.gamma = self.add_weight(shape=shape, initializer='ones', name='gamma')
        self.beta = self.add_weight(shape=shape, initializer='zeros', name='beta')
        self.moving_mean = self.add_weight(shape=shape, initializer='zeros', trainable=False, name='moving_mean')
        self.moving_variance = self.add_weight(shape=shape, initializer='ones', trainable=False, name='moving_variance')
        self.steps = self.add_weight(shape=(), initializer='zeros', dtype='int64', trainable=False, name='steps')
        self.built = True

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        x = tf.cast(inputs, tf.float32)
        if not training or not self.trainable:  # like Keras' BatchNormalization when frozen
            scale, shift = self.affine()
            return x * scale + shift
        mean, variance = _fused(_moments, tf.stop_gradient(x))
        r, d = self._corrections(mean, variance)
        self._learn(mean, variance)
        gamma, beta = self.gamma.value, self.beta.value
        return _standardized(x, mean, tf.math.rsqrt(variance + self.epsilon), gamma * r, beta + gamma * d)

    def affine(self) -> tuple[tf.Tensor, tf.Tensor]:
        """``(scale, shift)``, each ``[n]``: inference mode gives ``x · scale + shift``."""
        scale = self.gamma.value * tf.math.rsqrt(self.moving_variance.value + self.epsilon)
        return scale, self.beta.value - self.moving_mean.value * scale

    def _corrections(self, mean: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """r and d, from the batch's moments, through which no gradient flows."""
        deviation = tf.sqrt(self.moving_variance.value + self.epsilon)
        r = tf.sqrt(variance + self.epsilon) / deviation
        d = (mean - self.moving_mean.value) / deviation
        warm = self.steps.value >= self.warmup_steps
        r = tf.where(warm, tf.clip_by_value(r, 1.0 / self.r_max, self.r_max), 1.0)
        d = tf.where(warm, tf.clip_by_value(d, -self.d_max, self.d_max), 0.0)
        return r, d

    def _learn(self, mean: tf.Tensor, variance: tf.Tensor) -> None:
        for moving, found in ((self.moving_mean.value, mean), (self.moving_variance.value, variance)):
            moving.assign(self.momentum * moving + (1.0 - self.momentum) * found)
        self.steps.value.assign_add(1)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        names = ('momentum', 'epsilon', 'r_max', 'd_max', 'warmup_steps')
        return super().get_config() | {name: getattr(self, name) for name in names}


def _standardized(x: tf.Tensor, mean: tf.Tensor, inverse: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
    """``(x − μ) / σ · scale + shift`` with the batch's own ``mean`` and ``inverse``, 1 / σ.

    The gradient with respect to x flows through both moments; written out, it takes half the passes.
    """

    @tf.custom_gradient
    def compute(x: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return _fused(_gradient, x, mean, inverse, scale, upstream)

        return _fused(_affine, tf.stop_gradient(x), mean, inverse * scale, shift), gradient

    return compute(x, scale, shift)


def _moments(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
    mean = tf.reduce_mean(x, 0)
    return mean, tf.reduce_mean(tf.square(x - mean), 0)


def _affine(x: tf.Tensor, mean: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
    return (x - mean) * scale + shift


def _gradient(
    x: tf.Tensor, mean: tf.Tensor, inverse: tf.Tensor, scale: tf.Tensor, upstream: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    """With respect to x, scale and shift."""
    centred, rows = x - mean, tf.cast(tf.shape(x)[0], tf.float32)
    of_shift = tf.reduce_sum(upstream, 0)
    of_scale = tf.reduce_sum(upstream * centred, 0) * inverse
    factor = scale * inverse
    of_x = factor * upstream - centred * (factor * inverse * of_scale / rows) - factor * of_shift / rows
    return of_x, of_scale, of_shift


def _fused(function: Callable[..., Any], x: tf.Tensor, *others: tf.Tensor) -> Any:
    """Call a function of a batch and of vectors, compiled by XLA into two passes if the batch is large."""
    if tf.executing_eagerly() or (x.shape.num_elements() or 0) < FUSED:
        return function(x, *others)
    made = tf.function(function, jit_compile=True, autograph=False)
    return made.get_concrete_function(x, *others)(x, *others)
