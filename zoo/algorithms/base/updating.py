"""Many updates in one compiled call, for loops over ``'steps'``."""

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
    """Make ``K`` updates in a row. To be called inside a compiled function.

    Args:
        update: ``update(batch, phase)`` makes one update and gives some tensors.
        batches: fields ``[K, B, …]``.
        phases: the number of different updates that take turns.
        phase: the phase of the first update.
        kinds: shapes and dtypes of the tensors that an update gives.

    Returns:
        The tensors of all updates, each ``[K, …]``.
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
