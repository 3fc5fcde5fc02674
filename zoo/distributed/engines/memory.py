"""Memory for received messages: large blocks are used again once nothing refers to them."""

from __future__ import annotations

import mmap
import weakref
from collections import deque

import numpy as np

#: Bytes of a huge page on most systems.
_HUGE = 1 << 21


class Memory:
    """A pool of blocks for received bytes.

    The system hands out a fresh block page by page. For 10 MB that costs as much as reducing them over four ranks.
    """

    _SMALLEST, _LARGEST, _KEPT = 1 << 16, 1 << 25, 1 << 26  # bytes of a block, of a block, of all free ones of a size

    def __init__(self) -> None:
        self._free: dict[int, deque[np.ndarray]] = {}

    def take(self, size: int) -> np.ndarray:
        """Return uint8 ``[size]`` with undefined contents."""
        if not self._SMALLEST <= size <= self._LARGEST:
            return np.empty(size, np.uint8)
        rounded = 1 << (size - 1).bit_length()
        free = self._free.setdefault(rounded, deque(maxlen=min(32, self._KEPT // rounded)))
        try:
            block = free.pop()
        except IndexError:
            block = _block(rounded)
        # Over a memoryview: NumPy then keeps this very array alive for every view of it.
        array = np.frombuffer(memoryview(block)[:size], np.uint8)
        weakref.finalize(array, free.append, block).atexit = False
        return array


def _block(size: int) -> np.ndarray:
    """Return uint8 ``[size]``, in huge pages where the system has them: MPI fills those faster."""
    if size < _HUGE or not hasattr(mmap, 'MADV_HUGEPAGE'):
        return np.empty(size, np.uint8)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        pages.madvise(mmap.MADV_HUGEPAGE)
    except OSError:  # the system was built without huge pages
        return np.empty(size, np.uint8)
    return np.frombuffer(pages, np.uint8)
