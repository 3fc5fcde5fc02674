"""How an agent over ``'steps'`` is updated: many updates in one compiled call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from zoo.common.types import Transition


def updates(
    update: Callable[..., tf.Tensor], batches: Transition, phases: int, phase: int, metric_count: int
) -> tf.Tensor:
    """``K`` updates in a row, to be traced.

    Args:
        update: ``update(batch, phase)``, one of them: its metrics as one vector.
        batches: fields ``[K, B, …]``.
        phases: how many updates differ in what they do before they repeat.
        phase: of the first.
        metric_count: length of the vector.

    Returns:
        The last one's metrics, float32 ``[metric_count]``.
    """

    def some(first: Any, count: int) -> tf.Tensor:
        for i in range(count):
            batch = tf.nest.map_structure(lambda x, k=first + i: x[k], batches)
            metrics = update(batch, (phase + i) % phases)
        return metrics

    count = batches.reward.shape[0]
    rounds, rest = divmod(count, phases)
    if rounds < 2:
        return some(0, count)
    start = (tf.constant(0), tf.zeros([metric_count]))
    _, metrics = tf.while_loop(
        lambda r, _: r < rounds,
        lambda r, _: (r + 1, some(r * phases, phases)),
        start,
        parallel_iterations=1,
    )
    return some(rounds * phases, rest) if rest else metrics
