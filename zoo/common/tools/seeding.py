"""Independent random streams, derived from one seed by name."""

from __future__ import annotations

import contextlib
import random
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zoo.common.tools.checks import is_integer
from zoo.common.tools.errors import InvalidValue


def generator(seed: int | None, stream: str) -> np.random.Generator:
    """Make the NumPy generator of a stream (``'agent'``, ``'env/train'``, …); without a seed, a random one."""
    if seed is None:
        return np.random.default_rng()
    if not is_integer(seed, 0):
        raise InvalidValue(f'the seed is {seed!r}: give a whole number of at least 0, or None for a random one.')
    return np.random.default_rng([seed, zlib.crc32(stream.encode())])


def state(rng: np.random.Generator) -> Mapping[str, Any]:
    """Give the generator's state as JSON data."""
    return rng.bit_generator.state


def restore(rng: np.random.Generator, saved: Mapping[str, Any]) -> None:
    """Put a generator into a state that `state` gave."""
    rng.bit_generator.state = saved


@contextlib.contextmanager
def global_kept() -> Iterator[None]:
    """Put the global generators of Python and NumPy back: an environment may draw from them, and one more must not."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
