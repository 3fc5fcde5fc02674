"""Random streams of an environment whose library draws from the global generators of NumPy and Python."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np


class GlobalStreams:
    """States for the global generators of NumPy and Python, which belong to one environment."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.seed(generator)

    def seed(self, generator: np.random.Generator) -> None:
        """Draw new states."""
        seeds = generator.integers(2**32, size=2)
        self._numpy = np.random.RandomState(int(seeds[0])).get_state()
        self._python = random.Random(int(seeds[1])).getstate()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Within this context the global generators have these states; afterwards they are as they were found."""
        found = np.random.get_state(), random.getstate()
        np.random.set_state(self._numpy)
        random.setstate(self._python)
        try:
            yield
        finally:
            self._numpy, self._python = np.random.get_state(), random.getstate()
            np.random.set_state(found[0])
            random.setstate(found[1])
