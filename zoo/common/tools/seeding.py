"""One seed, every source of randomness: independent streams derived from it by name."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np


def generator(seed: int | None, stream: str) -> np.random.Generator:
    """A NumPy generator for one use (``'agent'``, ``'env/train'``, …); from the operating system when ``seed`` is None.

    Raises:
        ValueError: ``seed`` is negative or no whole number.
    """
    if seed is None:
        return np.random.default_rng()
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f'the seed is {seed!r}: give a whole number of at least 0, or None for an unpredictable one.')
    return np.random.default_rng([seed, zlib.crc32(stream.encode())])


def state(rng: np.random.Generator) -> Mapping[str, Any]:
    """The generator's state as JSON data."""
    return rng.bit_generator.state


def restore(rng: np.random.Generator, saved: Mapping[str, Any]) -> None:
    """Put a generator back where `state` found it."""
    rng.bit_generator.state = saved
