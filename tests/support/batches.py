"""Batches of transitions for the updates of algorithms that learn from replay or from a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium.spaces import Box, Dict, MultiBinary

from zoo.common.records import Batch, Transition

VECTOR = Box(-np.inf, np.inf, (3,), np.float32)
ACTION = Box(np.float32([-2.0, 0.0]), np.float32([2.0, 10.0]))
MASKED = Dict(action_mask=MultiBinary(3), pose=VECTOR)
SGD = {'name': 'SGD', 'learning_rate': 0.1}


def specs(count: int, **spec: Any) -> list[dict[str, Any]]:
    """``net_list`` of small smooth networks that all differ."""
    return [{'hidden': [5], 'activation': 'tanh', 'seed': i, **spec} for i in range(count)]


def box_batch(size: int = 8, seed: int = 0, gamma: float = 0.99) -> Batch:
    """Transitions with actions ``[size, 2]``, half of them terminated and half truncated, in all combinations."""
    rng = np.random.default_rng(seed)
    return Batch.of(
        Transition(
            rng.normal(size=(size, 3)).astype(np.float32),
            rng.uniform(-1, 1, (size, 2)).astype(np.float32),
            rng.normal(size=size).astype(np.float32),
            rng.normal(size=(size, 3)).astype(np.float32),
            np.arange(size) % 4 >= 2,
            np.arange(size) % 2 == 1,
        ),
        gamma,
    )


def discrete_batch(size: int = 8, seed: int = 0, masked: bool = False, gamma: float = 0.99) -> Batch:
    """The same with one of three actions; ``masked``: the last one is forbidden in every other state."""
    data, rng = box_batch(size, seed, gamma), np.random.default_rng(seed + 1)
    action = rng.integers(3, size=size, dtype=np.int32)
    if not masked:
        return data._replace(action=action)
    mask = np.stack([np.ones(size), np.ones(size), np.arange(size) % 2]).T.astype(np.int8)
    return data._replace(
        action=np.where(mask[:, 2] > 0, action, action % 2).astype(np.int32),
        obs={'action_mask': mask, 'pose': data.obs},
        next_obs={'action_mask': mask[::-1].copy(), 'pose': data.next_obs},
    )


def lead(*data: Batch) -> Batch:
    """Batches for as many updates in one call, ``[K, B, …]``."""
    return tf.nest.map_structure(lambda *x: np.stack([np.asarray(y) for y in x]), *data)
