"""Memory for what an engine receives."""

from __future__ import annotations

import weakref
from collections import deque

import numpy as np


class Memory:
    """Memory for what is received, large blocks of which are used again once nothing refers to them any more.

    The system hands out a fresh block page by page, which for 10 MB costs as much as reducing them over four ranks.
    """

    _SMALLEST, _LARGEST, _KEPT = 1 << 16, 1 << 25, 1 << 26  # bytes of a block, of a block, of the free ones of a size

    def __init__(self) -> None:
        self._free: dict[int, deque[np.ndarray]] = {}

    def take(self, size: int) -> np.ndarray:
        """Uint8 ``[size]``, its contents undefined."""
        if not self._SMALLEST <= size <= self._LARGEST:
            return np.empty(size, np.uint8)
        rounded = 1 << (size - 1).bit_length()
        free = self._free.setdefault(rounded, deque(maxlen=min(32, self._KEPT // rounded)))
        try:
            block = free.pop()
        except IndexError:
            block = np.empty(rounded, np.uint8)
        # Over a memoryview, since NumPy then keeps this very array alive for every view that is made of it.
        array = np.frombuffer(memoryview(block)[:size], np.uint8)
        weakref.finalize(array, free.append, block).atexit = False
        return array
