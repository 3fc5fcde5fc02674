"""Probes: observations on which two networks are compared, within the space's bounds and beyond them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

from zoo.common import spaces
from zoo.common.networks.network import Network

#: Observations in one batch.
ROWS = 5

#: Where a ``Box`` reaches farther, likely observations are taken in place of its bounds.
FAR = 1e6

#: A batch of flat observations, and of actions for a critic of both.
Probe = tuple[spaces.Flat, tf.Tensor | None]

#: A function of a shape that gives numbers in [0, 1).
Draw = Callable[[tuple[int, ...]], np.ndarray]


def random_probes(space: Space, action_size: int = 0) -> list[Probe]:
    """Probes for a comparison in one process."""
    rng = np.random.default_rng(0)
    return _probes(space, action_size, rng.random, (True, False, True, False))


def fixed_probes(space: Space, action_size: int = 0) -> list[Probe]:
    """Probes that are the same in every process and with every version of NumPy."""
    count = 0

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        nonlocal count
        size = int(np.prod(shape))
        count += size
        return (np.arange(count - size + 1, count + 1) * ((5**0.5 - 1) / 2) % 1.0).reshape(shape)

    return _probes(space, action_size, draw, (True, False))


def outputs(network: Network, probes: Sequence[Probe]) -> list[np.ndarray]:
    """The network's output for each probe."""
    return [network(spaces.tree_map(tf.constant, obs), action).numpy() for obs, action in probes]


def same(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> bool:
    """Whether two lists of outputs are equal to rounding."""
    pairs = zip(first, second, strict=True)
    return all(np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True) for a, b in pairs)


def _probes(space: Space, action_size: int, draw: Draw, within: Sequence[bool]) -> list[Probe]:
    return [(_observations(space, draw, each), _actions(action_size)) for each in within]


def _observations(space: Space, draw: Draw, within: bool) -> spaces.Flat:
    """A batch of flat observations: within the bounds, or normal whatever the bounds."""
    items = {
        path: _leaf(leaf, draw((ROWS, *spaces.shape_of(leaf))), within).astype(leaf.dtype)
        for path, leaf in spaces.leaves(space).items()
    }
    return spaces.from_items(space, items)


def _leaf(leaf: Space, uniform: np.ndarray, within: bool) -> np.ndarray:
    if isinstance(leaf, Discrete):
        return leaf.start + np.floor(uniform * int(leaf.n))
    if isinstance(leaf, MultiDiscrete):
        return leaf.start + np.floor(uniform * leaf.nvec)
    if not isinstance(leaf, Box):
        return uniform < 0.5
    # The logistic distribution, which is near enough to the normal one, by its quantile function.
    normal = np.log(np.clip(uniform, 1e-6, 1.0 - 1e-6)) - np.log1p(-np.clip(uniform, 1e-6, 1.0 - 1e-6))
    low, high = leaf.low.astype(float), leaf.high.astype(float)
    is_near = (np.abs(low) < FAR) & (np.abs(high) < FAR)
    if not within and np.issubdtype(leaf.dtype, np.floating):
        return normal
    spread = np.where(is_near, low, 0.0) + uniform * (np.where(is_near, high, 1.0) - np.where(is_near, low, 0.0))
    return np.where(is_near, spread, np.clip(normal, low, high))


def _actions(size: int) -> tf.Tensor | None:
    if not size:
        return None
    values = np.arange(1, ROWS * size + 1) * (2**0.5) % 2.0 - 1.0
    return tf.constant(values.reshape(ROWS, size), tf.float32)
