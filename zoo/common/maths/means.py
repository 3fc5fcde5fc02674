"""Means over valid entries, and what is normalized by them."""

from __future__ import annotations

import tensorflow as tf

from zoo.common.maths.optimizers import AllReduce, mean_over


def mean_of(x: tf.Tensor, valid: tf.Tensor | None) -> tf.Tensor:
    """Return the mean of ``x`` ``[B]`` over the valid entries, float32 ``[B]``; None: over all."""
    if valid is None:
        return tf.reduce_mean(x)
    return tf.reduce_sum(x * valid) / tf.maximum(tf.reduce_sum(valid), 1.0)


def normalized(advantage: tf.Tensor, valid: tf.Tensor | None, all_reduce: AllReduce | None = None) -> tf.Tensor:
    """Return advantages ``[…, B]`` with mean 0 and standard deviation 1 in the valid entries of each row.

    Args:
        advantage: of this learner, one row or several.
        valid: float32 ``[…, B]``; None: all entries are.
        all_reduce: the exchange with other learners. Mean and deviation then cover the rows of all learners, as if one
            learner had them all.
    """
    if all_reduce is None:
        centered = advantage - mean_of(advantage, valid)
        return centered / (tf.sqrt(mean_of(tf.square(centered), valid)) + 1e-8)
    valid = tf.ones_like(advantage) if valid is None else valid
    total, count = mean_over(all_reduce, [tf.reduce_sum(x, -1, keepdims=True) for x in (advantage * valid, valid)])
    count = tf.maximum(count, 1e-8)
    centered = advantage - total / count
    (squares,) = mean_over(all_reduce, [tf.reduce_sum(tf.square(centered) * valid, -1, keepdims=True)])
    return centered / (tf.sqrt(squares / count) + 1e-8)
