"""How an agent over ``'steps'`` is updated: many updates in one compiled call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from zoo.common.records import Batch, SequenceBatch


def updates(
    update: Callable[..., tuple[tf.Tensor, ...]],
    batches: Batch | SequenceBatch,
    phases: int,
    phase: int,
    kinds: Sequence[tf.TensorSpec],
) -> list[tf.Tensor]:
    """``K`` updates in a row, to be traced.

    Args:
        update: ``update(batch, phase)``, one of them, which gives some tensors.
        batches: fields ``[K, B, …]``.
        phases: how many updates differ in what they do before they repeat.
        phase: of the first.
        kinds: shapes and dtypes of what an update gives.

    Returns:
        What all of them gave, each ``[K, …]``.
    """
    count = batches.reward.shape[0]
    arrays = tuple(tf.TensorArray(kind.dtype, count, element_shape=kind.shape) for kind in kinds)

    def some(first: Any, count: int, arrays: tuple[tf.TensorArray, ...]) -> tuple[tf.TensorArray, ...]:
        for i in range(count):
            batch = tf.nest.map_structure(lambda x, k=first + i: x[k], batches)
            found = update(batch, (phase + i) % phases)
            arrays = tuple(array.write(first + i, x) for array, x in zip(arrays, found, strict=True))
        return arrays

    rounds, rest = divmod(count, phases)
    if rounds < 2:
        return [array.stack() for array in some(0, count, arrays)]
    _, arrays = tf.while_loop(
        lambda r, _: r < rounds,
        lambda r, arrays: (r + 1, some(r * phases, phases, arrays)),
        (tf.constant(0), arrays),
        parallel_iterations=1,
    )
    return [array.stack() for array in some(rounds * phases, rest, arrays)]
