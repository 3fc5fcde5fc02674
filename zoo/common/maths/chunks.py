"""Functions of many rows, computed on some rows at a time, so that memory does not grow with the rows.

A float32 copy of an image takes four times the image's memory, and a convolution takes several times that. Up to
``most`` rows the function is called once, as without this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

#: Bytes of float32 features that a network is given at a time. A forward pass takes about four times as much.
CHUNK_BYTES = 64e6


def in_chunks(
    function: Callable[[Any, Any], tuple[Any, Any]], inputs: Any, most: int, carry: Any = ()
) -> tuple[Any, Any]:
    """Return ``function(inputs, carry)``, called on at most ``most`` rows at a time; the first chunk fixes the shapes.

    Args:
        function: takes inputs ``[rows, …]`` and what the rows before handed on. It returns a structure of tensors
            ``[rows, …]``, each row from its own inputs and earlier rows, and what it hands on to later rows.
        inputs: a structure of tensors ``[rows, …]``, the number of rows known.
        carry: what is handed on to the first rows.

    Returns:
        The outputs of all rows, and what the last chunk handed on; without meaning where the last chunk was filled up.
    """
    rows = tf.nest.flatten(inputs)[0].shape[0]
    if rows <= most:
        return function(inputs, carry)
    count, size = split(rows, most)

    def chunk(i: Any, carry: Any) -> tuple[Any, Any]:
        at = tf.minimum(i * size + tf.range(size), rows - 1)  # the last row again, where the last chunk has too few
        return function(tf.nest.map_structure(lambda x: tf.gather(x, at), inputs), carry)

    first, carry = chunk(0, carry)
    kinds = tf.nest.flatten(first)
    arrays = tuple(tf.TensorArray(x.dtype, count, element_shape=x.shape).write(0, x) for x in kinds)

    def body(i: tf.Tensor, carry: Any, arrays: tuple[tf.TensorArray, ...]) -> tuple[Any, ...]:
        found, carry = chunk(i, carry)
        return i + 1, carry, tuple(a.write(i, x) for a, x in zip(arrays, tf.nest.flatten(found), strict=True))

    start = (_after(kinds), carry, arrays)
    _, carry, arrays = tf.while_loop(lambda i, *_: i < count, body, start, parallel_iterations=1)
    whole = [
        tf.reshape(array.stack(), [count * size, *x.shape[1:]])[:rows] for array, x in zip(arrays, kinds, strict=True)
    ]
    return tf.nest.pack_sequence_as(first, whole), carry


def mean_in_chunks(
    function: Callable[..., Sequence[tf.Tensor | None]], inputs: tuple[Any, ...], valid: tf.Tensor | None, most: int
) -> list[tf.Tensor | None]:
    """Return ``function(*inputs, valid)``, means over the valid rows, as the weighted mean over chunks of the rows.

    Args:
        function: returns means over the valid rows, or gradients of such means; None stays None.
        inputs: structures of tensors ``[rows, …]``, the number of rows known.
        valid: float32 ``[rows]``, 0 or 1; None: all rows are.
        most: the rows of a chunk at most.
    """
    rows = tf.nest.flatten(inputs)[0].shape[0]
    if rows <= most:
        return list(function(*inputs, valid))
    count, size = split(rows, most)
    whole = tf.ones([rows]) if valid is None else valid
    total = tf.maximum(tf.reduce_sum(whole), 1.0)
    known: list[bool] = []

    def chunk(i: Any) -> list[tf.Tensor]:
        at = i * size + tf.range(size)
        there = tf.cast(at < rows, tf.float32)
        at = tf.minimum(at, rows - 1)
        own = tf.gather(whole, at) * there
        found = function(*tf.nest.map_structure(lambda x: tf.gather(x, at), inputs), own)
        known[:] = [x is not None for x in found]
        share = tf.reduce_sum(own) / total
        return [share * tf.convert_to_tensor(x) for x in found if x is not None]

    def body(i: tf.Tensor, sums: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        return i + 1, [x + y for x, y in zip(sums, chunk(i), strict=True)]

    first = chunk(0)
    _, sums = tf.while_loop(lambda i, _: i < count, body, (_after(first), first), parallel_iterations=1)
    rest = iter(sums)
    return [next(rest) if is_known else None for is_known in known]


def _after(found: list[tf.Tensor]) -> tf.Tensor:
    """Return 1 once these tensors are there: the loop would otherwise compute its first chunk beside them."""
    with tf.control_dependencies(found):
        return tf.identity(tf.constant(1))


def rows_at_once(size: int) -> int:
    """Return how many observations with ``size`` features a network is given at a time."""
    return max(1, int(CHUNK_BYTES // (4 * size)))


def split(rows: int, most: int) -> tuple[int, int]:
    """Return the number of chunks of at most ``most`` rows, and the rows of each; the last one may have fewer."""
    count = -(-rows // most)
    return count, -(-rows // count)
