"""One seed, every source of randomness: independent streams derived from it by name."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np


def generator(seed: int | None, stream: str) -> np.random.Generator:
    """A NumPy generator for one use (``'act'``, ``'replay'``, …); from the operating system when ``seed`` is None."""
    if seed is None:
        return np.random.default_rng()
    return np.random.default_rng([seed, zlib.crc32(stream.encode())])


def state(rng: np.random.Generator) -> dict[str, Any]:
    """The generator's state as JSON data."""
    return rng.bit_generator.state


def restore(rng: np.random.Generator, saved: dict[str, Any]) -> None:
    """Put a generator back where `state` found it."""
    rng.bit_generator.state = saved
