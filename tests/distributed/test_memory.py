"""Received memory is used again, but never while something refers to it."""

from __future__ import annotations

import numpy as np

from zoo.distributed.engines.memory import Memory


def test_memory_is_used_again_only_when_nothing_refers_to_it():
    memory = Memory()
    first = memory.take(100_000)
    address = first.ctypes.data
    view = first.view(np.float32)[3:10].reshape(7, 1)
    del first
    second = memory.take(100_000)
    assert second.ctypes.data != address
    del view
    assert memory.take(90_000).ctypes.data == address
    held = memoryview(second)
    address = second.ctypes.data
    del second
    assert memory.take(100_000).ctypes.data != address
    assert held.nbytes == 100_000
