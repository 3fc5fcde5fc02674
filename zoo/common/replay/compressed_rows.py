"""Storage of images by row, each compressed by itself with LZ4.

LZ4 rather than Zstandard, since an image is unpacked far oftener than it is packed, and that takes LZ4 less time;
``benchmarks/replay.py`` compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: What Python takes for an object of bytes and the reference to it, beside the bytes.
OVERHEAD = 33 + 8


class CompressedRows:
    """As much of the interface of an array as a ring of rows needs: rows that are written, and rows that are read.

    A row that was never written is zeros, as in an array that was made so.

    Attributes:
        shape, dtype: as of the array ``[rows, …]`` in whose place this is.

    Args:
        shape, dtype: likewise.

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
        """Memory of the rows that are held at the moment."""
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
        """The rows as they were written, an array of its own."""
        assert axis == 0
        return self[rows]

    def packed(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows as they are kept: all their bytes, uint8 ``[bytes]``, and how many each row has, int64, as ``rows``."""
        parts = [self._rows[row] for row in rows.ravel().tolist()]
        return np.frombuffer(b''.join(parts), np.uint8), np.array(list(map(len, parts)), np.int64).reshape(rows.shape)

    def set_packed(self, rows: np.ndarray, packed: np.ndarray, lengths: np.ndarray) -> None:
        """The inverse of `packed`."""
        whole = memoryview(np.ascontiguousarray(packed))
        ends = np.cumsum(lengths.ravel()).tolist()
        for row, begin, end in zip(rows.ravel().tolist(), [0, *ends], ends, strict=False):
            self._rows[row] = bytes(whole[begin:end])


def _codec() -> tuple[Callable[..., bytes], Callable[..., bytes]]:
    """The functions that pack and unpack."""
    try:
        import lz4.block
    except ImportError as error:
        raise ImportError(
            f"images in the replay buffer are compressed by LZ4: pip install 'zoo-rl[compress]' ({error})."
        ) from error
    return lz4.block.compress, lz4.block.decompress
