"""Images compressed by LZ4, each row by itself.

LZ4 unpacks faster than Zstandard, and an image is unpacked far more often than it is packed;
``benchmarks/speed/replay.py`` compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from zoo.common.tools.errors import MissingPackage

#: The bytes that Python takes for a bytes object and the reference to it, besides its content.
OVERHEAD = 33 + 8


class CompressedRows:
    """The part of an array's interface that a ring of rows needs: reading and writing rows.

    A row that was never written is zeros.

    Args:
        shape, dtype: of the array ``[rows, …]`` that this stands for.

    Raises:
        ImportError: the package ``lz4`` is not installed.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self._size = int(np.prod(self.shape[1:])) * self.dtype.itemsize
        self._rows: list[bytes] = [b''] * self.shape[0]
        self._zeros = bytes(self._size)
        _codec()  # refused when the storage is made and not at the first step

    @property
    def nbytes(self) -> int:
        """The memory of the rows held at the moment."""
        return sum(map(len, self._rows)) + OVERHEAD * len(self._rows)

    def __setitem__(self, rows: np.ndarray, values: np.ndarray) -> None:
        pack, _ = _codec()
        values = np.ascontiguousarray(values, self.dtype)
        for row, value in zip(rows.tolist(), values, strict=True):
            raw = value.tobytes()
            packed = pack(raw, store_size=False)
            self._rows[row] = packed if len(packed) < self._size else raw  # noise only grows

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        _, unpack = _codec()
        size, held = self._size, self._rows
        found = []
        for row in rows.tolist():
            packed = held[row]
            if len(packed) == size:
                found.append(packed)
            else:
                found.append(unpack(packed, uncompressed_size=size) if packed else self._zeros)
        return np.frombuffer(bytearray().join(found), self.dtype).reshape(-1, *self.shape[1:])

    def take(self, rows: np.ndarray, axis: int = 0) -> np.ndarray:
        """Return a new array of the rows."""
        assert axis == 0
        return self[rows]

    def packed(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return rows as they are kept: all bytes, uint8 ``[bytes]``, and the length of each row, int64 as ``rows``."""
        parts = [self._rows[row] for row in rows.ravel().tolist()]
        return np.frombuffer(b''.join(parts), np.uint8), np.array(list(map(len, parts)), np.int64).reshape(rows.shape)

    def set_packed(self, rows: np.ndarray, packed: np.ndarray, lengths: np.ndarray) -> None:
        """Set rows from what `packed` gave."""
        whole = memoryview(np.ascontiguousarray(packed))
        ends = np.cumsum(lengths.ravel()).tolist()
        for row, begin, end in zip(rows.ravel().tolist(), [0, *ends], ends, strict=False):
            self._rows[row] = bytes(whole[begin:end])


def _codec() -> tuple[Callable[..., bytes], Callable[..., bytes]]:
    """Return the functions that pack and unpack."""
    try:
        import lz4.block
    except ImportError as error:
        raise MissingPackage(
            f"images in the replay buffer are compressed by LZ4: pip install 'zoo-rl[compress]' ({error})."
        ) from error
    return lz4.block.compress, lz4.block.decompress
