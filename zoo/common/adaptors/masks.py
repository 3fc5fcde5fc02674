"""Masks: forbidden actions get a logit, or a value, that is never chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: Logits of forbidden actions: finite, so that entropies of masked distributions stay finite too.
MASKED_LOGIT = -1e9


def masked(values: Any, mask: Any, counts: Sequence[int] | None = None) -> Any:
    """Logits or values in which forbidden actions have `MASKED_LOGIT`.

    A mask that forbids every action is ignored; environments may give one when an episode is over. In a
    ``MultiDiscrete`` this holds for each choice by itself. All switches of a ``MultiBinary`` may be off.

    Args:
        values: float32 ``[N, actions]``, an array or a tensor.
        mask: of the same kind, ``[N, …]`` with as many entries, not zero for allowed actions.
        counts: the number of actions of each choice, empty for switches; None: one choice among all actions.
    """
    if counts is None:
        counts = (values.shape[-1],)
    if isinstance(values, np.ndarray):
        allowed = np.reshape(mask, values.shape).astype(bool, copy=False)
        if counts:
            nothing = ~np.logical_or.reduceat(allowed, np.cumsum([0, *counts[:-1]]), axis=-1)
            if nothing.any():
                allowed = allowed | np.repeat(nothing, counts, axis=-1)
        return np.where(allowed, values, np.float32(MASKED_LOGIT))
    import tensorflow as tf

    allowed = tf.reshape(tf.cast(mask, tf.bool), tf.shape(values))
    if counts:
        ends = np.cumsum(counts).tolist()  # slices, because LiteRT does not split bool tensors
        choices = [allowed[:, begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
        allowed = tf.concat([choice | ~tf.reduce_any(choice, -1, keepdims=True) for choice in choices], -1)
    return tf.where(allowed, values, MASKED_LOGIT)


def forbidden(action: np.ndarray, mask: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """Return which stored actions ``[N]`` or ``[N, k]`` their mask ``[N, …]`` forbids, bool ``[N]``.

    ``counts`` are the numbers of actions of the choices; without any, the actions are switches, which a mask keeps off.
    """
    chosen = action.reshape(len(action), -1)
    allowed = masked(np.zeros((len(action), sum(counts) or chosen.shape[1]), np.float32), mask, counts) == 0.0
    if not counts:
        return np.any(~allowed & (chosen != 0), -1)
    first = np.cumsum([0, *counts[:-1]])
    return np.logical_not(np.take_along_axis(allowed, first + chosen, -1).all(-1))
