"""The dense layer of assembled networks: Keras' own with products that take less time on processors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

#: Under ``'mixed_bfloat16'`` only kernels with more entries are multiplied in bfloat16. (XLA compiles dense networks up
#: to this size, see :mod:`zoo.common.tools.compilation`, and is slow in bfloat16.)
NARROW = 128 * 128

#: Transposing a kernel before the product pays from this number of rows on, and up to this number of entries.
ROWS = 128
LARGEST_TURNED = 512 * 512

Gradient = Callable[[tf.Tensor], tuple[tf.Tensor, ...]]


@keras.saving.register_keras_serializable('zoo')
class Dense(keras.layers.Dense):
    """``keras.layers.Dense`` with the same weights and results; only the gradient is computed in another order.

    Under ``'mixed_bfloat16'`` a kernel of more than 128 × 128 entries is multiplied in bfloat16: input, kernel, bias
    and the incoming gradient are rounded. The sums run in float32 and are rounded at the end, in the gradient's
    products too. Everything else is float32, the output too: activations and their gradients take some five times as
    long in bfloat16 (benchmarks/results/bfloat16.md), and a narrow product gains nothing.
    """

    def __init__(self, units: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(units, *args, autocast=False, **kwargs)

    @property
    def rounds(self) -> bool:
        """Whether its products are computed in bfloat16."""
        return self.compute_dtype == 'bfloat16' and self.kernel.shape[0] * self.units > NARROW

    def add_weight(self, *args: Any, **kwargs: Any) -> Any:
        return super().add_weight(*args, **kwargs | {'autocast': False})

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        if len(inputs.shape) != 2 or not self.use_bias:
            return super().call(inputs, training)
        kernel, bias = tf.convert_to_tensor(self.kernel), tf.convert_to_tensor(self.bias)
        if self.rounds:
            x = rounded_affine(inputs, kernel, bias)
        else:
            x = tf.nn.bias_add(product(tf.cast(inputs, tf.float32), kernel), bias)
        return x if self.activation is None else self.activation(x)


def product(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """``x · kernel`` for ``[B, n]`` and ``[n, m]``.

    The gradient with respect to ``x`` is a product with the transposed kernel. TensorFlow transposes inside it, and so
    reads the kernel against its order in memory, which takes much longer. Transposing the kernel first costs little
    (benchmarks/results/operations.md).
    """
    rows, entries = x.shape[0], kernel.shape.num_elements()
    if rows is not None and rows >= ROWS and NARROW < entries <= LARGEST_TURNED:
        return _product(x, kernel)
    return tf.matmul(x, kernel)


@tf.custom_gradient
def _product(x: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.matmul(upstream, _turned(kernel)), tf.matmul(x, upstream, transpose_a=True)

    return tf.matmul(x, kernel), gradient


@tf.custom_gradient
def _turned(kernel: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """The transposed kernel; the snapshot keeps TensorFlow from moving the transposition back into the product."""
    return tf.raw_ops.Snapshot(input=tf.transpose(kernel)), tf.transpose


@tf.custom_gradient
def rounded_affine(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """``x · kernel + bias``, float32 ``[B, m]``: all three are rounded to bfloat16, and the result is rounded again.

    The gradients of ``x`` and ``kernel`` are rounded likewise; the bias' gradient is float32. The product adds the bias
    to its sums before it rounds them.
    """
    rounded_x, rounded_kernel = tf.cast(x, tf.bfloat16), tf.cast(kernel, tf.bfloat16)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        rounded_upstream = tf.cast(upstream, tf.bfloat16)
        return (
            tf.cast(tf.matmul(rounded_upstream, rounded_kernel, transpose_b=True), x.dtype),
            tf.cast(tf.matmul(rounded_x, rounded_upstream, transpose_a=True), tf.float32),
            tf.reduce_sum(upstream, 0),
        )

    sums = tf.nn.bias_add(tf.matmul(rounded_x, rounded_kernel), tf.cast(bias, tf.bfloat16))
    return tf.cast(sums, tf.float32), gradient
