"""Memory for received messages is used again, but never while something refers to it."""

from __future__ import annotations

import numpy as np
import pytest

from zoo.distributed.engines import memory as memory_module
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


@pytest.mark.full(but='32768')
@pytest.mark.parametrize('size', [1 << 15, 1 << 20, (1 << 21) + 1, 10_000_000])
def test_blocks_of_every_kind_can_be_written(size: int):
    memory = Memory()
    block = memory.take(size)
    block[:] = np.arange(size) % 251
    assert block.shape == (size,) and block.dtype == np.uint8
    assert (block == np.arange(size) % 251).all()


def test_without_huge_pages(monkeypatch: pytest.MonkeyPatch):
    """A system without huge pages gets other memory."""
    monkeypatch.delattr(memory_module.mmap, 'MADV_HUGEPAGE', raising=False)
    assert Memory().take(1 << 22).shape == (1 << 22,)
    monkeypatch.setattr(memory_module.mmap, 'MADV_HUGEPAGE', -1, raising=False)
    assert Memory().take(1 << 22).shape == (1 << 22,)
