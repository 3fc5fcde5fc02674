"""The loss of every critic of quantiles of the return.

Dabney et al. 2018, *Distributional Reinforcement Learning with Quantile Regression* (arXiv 1710.10044), eq. 9 and 10.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def quantile_huber(quantiles: tf.Tensor, target: tf.Tensor, kappa: float = 1.0) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute for each row Σₘ meanₖ |τₘ − 1{yₖ < θₘ}| Lκ(yₖ − θₘ), and the mean of |yₖ − θₘ|, both ``[B]``.

    Lκ is the Huber loss: half the square up to κ, linear beyond. τₘ = (2m + 1) / 2M is the middle of the m-th part of
    [0, 1]. The gradient is computed along with the loss: this passes over all pairs once instead of some ten times.

    Args:
        quantiles: θ, float32 ``[B, M]``, in ascending order once they are learned.
        target: y, float32 ``[B, K]``, in any order. No gradient flows to it, nor through the second result.
        kappa: κ, above 0.
    """
    target = tf.stop_gradient(tf.convert_to_tensor(target))

    @tf.custom_gradient
    def losses(quantiles: tf.Tensor) -> tuple[tf.Tensor, Any]:
        loss, gradient = _loss_and_gradient(quantiles, target, tf.constant(kappa, tf.float32))
        return loss, lambda upstream: upstream[:, None] * gradient

    return losses(quantiles), _distance(tf.stop_gradient(quantiles), target)


@tf.function(jit_compile=True, autograph=False)
def _loss_and_gradient(quantiles: tf.Tensor, target: tf.Tensor, kappa: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    count = quantiles.shape[-1]
    fractions = ((np.arange(count, dtype=np.float32) + 0.5) / count)[:, None]
    error = target[:, None, :] - quantiles[:, :, None]
    slope = tf.clip_by_value(error, -kappa, kappa)  # the Huber loss is slope · (error − ½ slope)
    weighted = tf.where(error < 0.0, 1.0 - fractions, fractions) * slope
    loss = tf.reduce_sum(tf.reduce_mean(weighted * (error - 0.5 * slope), 2), 1)
    return loss, -tf.reduce_mean(weighted, 2)


@tf.function(jit_compile=True, autograph=False)
def _distance(quantiles: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.abs(target[:, None, :] - quantiles[:, :, None]), [1, 2])
